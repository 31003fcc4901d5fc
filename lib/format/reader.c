/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of text formats have in common. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "profile/internal.h"

/* Takes the suffix off and says what it meant. */
static void strip_suffix(const char *text, size_t *n, struct profile_frame *f)
{
	if (*n <= 4 || memcmp(text + *n - 4, "_[", 2) || text[*n - 1] != ']')
		return;
	switch (text[*n - 2]) {
	case 'k':
		f->kind = FRAME_KERNEL;
		break;
	case 'j':
		f->kind = FRAME_JIT;
		break;
	case 'i':
		f->flags = PROFILE_FRAME_INLINED;
		break;
	default:
		return;
	}
	*n -= 4;
}

/*
 * `file+0x12ab`, exactly as profile_frame_name() writes it: anything else (upper case, leading
 * zeros, more than 64 bits) stays a name, so that what is written again is the same text.
 */
static bool split_address(const char *text, size_t n, size_t *ret_path_n, u64 *ret_address)
{
	size_t digits = 0;
	u64 v = 0;

	while (digits < n && isxdigit((u8)text[n - 1 - digits]) &&
	       !isupper((u8)text[n - 1 - digits]))
		digits++;
	if (!digits || digits > 16 || n < digits + 4 || memcmp(text + n - digits - 3, "+0x", 3))
		return false;
	/* profile_frame_name() shows the last part of a path only. */
	if ((text[n - digits] == '0' && digits > 1) || memchr(text, '/', n))
		return false;
	for (size_t i = n - digits; i < n; i++)
		v = v << 4 | (u64)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
	*ret_path_n = n - digits - 3;
	*ret_address = v;
	return true;
}

static bool is_text(const char *text, size_t n, const char *is)
{
	return n == strlen(is) && !memcmp(text, is, n);
}

int profile_add_frame_text(struct profile *p, const char *text, size_t n, u32 *ret_id)
{
	struct profile_frame f = {
		.mapping = PROFILE_NONE, .function = PROFILE_NONE, .kind = FRAME_NATIVE};
	struct profile_mapping m = {};
	struct profile_function fn = {};
	size_t path_n;
	int r;

	strip_suffix(text, &n, &f);
	if (f.kind == FRAME_NATIVE && !f.flags && n >= 11 && !memcmp(text, "[truncated:", 11))
		f.kind = FRAME_NOTE;
	if (n == 0 || is_text(text, n, "[unknown]")) {
		if (f.kind == FRAME_NATIVE)
			f.kind = FRAME_UNKNOWN;
		return profile_add_frame(p, &f, ret_id);
	}
	if (split_address(text, n, &path_n, &f.address)) {
		r = profile_add_string(p, text, path_n, &m.path);
		if (r == 0)
			r = profile_add_mapping(p, &m, &f.mapping);
		return r < 0 ? r : profile_add_frame(p, &f, ret_id);
	}
	r = profile_add_string(p, text, n, &fn.name);
	fn.system_name = fn.name;
	if (r == 0)
		r = profile_add_function(p, &fn, &f.function);
	return r < 0 ? r : profile_add_frame(p, &f, ret_id);
}

int profile_add_comm(struct profile *p, const char *comm, size_t n, u32 *ret_thread)
{
	struct profile_thread t = {};
	int r = profile_add_string(p, comm, n, &t.comm);

	return r < 0 ? r : profile_add_thread(p, &t, ret_thread);
}

static bool is_truncation(const struct profile *p, const struct profile_frame *f)
{
	return f->kind == FRAME_NOTE && f->function < p->functions.n &&
	       str_starts(profile_string(p, p->functions.data[f->function].name), "[truncated");
}

void profile_count_quality(struct profile *p, u32 stack, u64 samples)
{
	const struct profile_stack *s = &p->stacks.data[stack];
	u64 unknown = 0, frames = 0;
	bool truncated = false, user = false;

	for (u32 i = 0; i < s->n; i++) {
		const struct profile_frame *f = &p->frames.data[p->stack_frames.data[s->first + i]];

		truncated |= is_truncation(p, f);
		if (f->kind == FRAME_NOTE)
			continue;
		user |= f->kind != FRAME_KERNEL;
		unknown += f->function == PROFILE_NONE;
		frames++;
	}
	p->quality.samples += samples;
	p->quality.truncated += truncated ? samples : 0;
	p->quality.user_stacks += user ? samples : 0;
	p->quality.unknown += unknown * samples;
	p->quality.frames += frames * samples;
}

void profile_derive_quality(struct profile *p)
{
	p->quality = (struct profile_quality){};
	for (u32 t = 0; t < p->n_types; t++) {
		if (strcmp(profile_string(p, p->types[t].name), "samples") ||
		    strcmp(profile_string(p, p->types[t].unit), "count"))
			continue;
		for (size_t i = 0; i < p->n_samples; i++) {
			const struct profile_sample *s = profile_sample(p, i);

			if (s->value[t] > 0)
				profile_count_quality(p, s->stack, (u64)s->value[t]);
		}
		return;
	}
}
