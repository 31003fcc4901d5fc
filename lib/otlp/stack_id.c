/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The id under which Elasticsearch keeps a stack, as the collector's exporter computes it from what
 * otlp_profiles_encode() writes: FNV-1a of 128 bits over each location's file and address. Without
 * OpenTelemetry's hash of the file, the location's lines identify the file.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/text.h"
#include "otlp/otlp.h"

struct fnv {
	unsigned __int128 value;
};

static void fnv_add(struct fnv *f, const void *bytes, size_t n)
{
	const unsigned __int128 prime = (unsigned __int128)1 << 88 | 0x13b;

	for (size_t i = 0; i < n; i++)
		f->value = (f->value ^ ((const u8 *)bytes)[i]) * prime;
}

static u64 big_endian(u64 v)
{
	return __builtin_bswap64(v);
}

static const struct profile_frame *frame_at(const struct profile *p, u32 index)
{
	return &p->frames.data[p->stack_frames.data[index]];
}

/* Whether OTLP has a Line for the frame: its function has a name or a file. */
static const struct profile_function *function_of(const struct profile *p,
						  const struct profile_frame *f)
{
	const struct profile_function *fn;

	if (f->function >= p->functions.n)
		return NULL;
	fn = &p->functions.data[f->function];
	return fn->name || fn->system_name || fn->file || fn->start_line ? fn : NULL;
}

/* How many frames form one location, by the rule of the encoder. */
static u32 location_length(const struct profile *p, u32 first, u32 n)
{
	const struct profile_frame *f = frame_at(p, first);
	u32 i = 0;

	while (frame_at(p, first + i)->flags & PROFILE_FRAME_INLINED && i + 1 < n) {
		const struct profile_frame *next = frame_at(p, first + i + 1);

		if (!function_of(p, f) || !function_of(p, next) || next->address != f->address ||
		    next->mapping != f->mapping || next->kind != f->kind)
			break;
		i++;
	}
	return i + 1;
}

static int add_clean(XXH64_state_t *x, const char *text, struct str *scratch)
{
	str_clear(scratch);
	text_append_clean(scratch, text, 0);
	XXH64_update(x, str_get(scratch), scratch->n);
	return scratch->failed ? -ENOMEM : 0;
}

/* The id of a file without a hash, from the location's lines. */
static int lines_id(const struct profile *p, u32 first, u32 n, XXH64_state_t *x,
		    struct str *scratch, u8 ret[16])
{
	u64 id, place[2];
	int r = 0;

	XXH64_reset(x, 0);
	for (u32 i = 0; i < n && r == 0; i++) {
		const struct profile_frame *f = frame_at(p, first + i);
		const struct profile_function *fn = function_of(p, f);

		if (!fn)
			continue;
		r = add_clean(x, profile_string(p, fn->name), scratch);
		if (r == 0)
			r = add_clean(x, profile_string(p, fn->file), scratch);
		place[0] = big_endian(f->line);
		place[1] = big_endian(f->column);
		XXH64_update(x, place, sizeof(place));
	}
	id = big_endian(XXH64_digest(x));
	memcpy(ret, &id, 8);
	memcpy(ret + 8, &id, 8);
	return r;
}

static bool file_id(const struct profile *p, u32 mapping, u8 ret[16])
{
	static const u8 none[16];
	const char *id;

	if (mapping >= p->mappings.n)
		return false;
	id = profile_string(p, p->mappings.data[mapping].build_id);
	return str_starts(id, PROFILE_HTLHASH) &&
	       text_unhex(id + strlen(PROFILE_HTLHASH), 16, ret) && memcmp(ret, none, 16) != 0;
}

static int add_location(const struct profile *p, u32 first, u32 n, XXH64_state_t *x,
			struct str *scratch, struct fnv *f)
{
	const struct profile_frame *leaf = frame_at(p, first), *last = frame_at(p, first + n - 1);
	u64 place = leaf->address;
	char text[24];
	u8 id[16];
	int r = 0;

	if (!file_id(p, leaf->mapping, id))
		r = lines_id(p, first, n, x, scratch, id);
	if (!place && function_of(p, last))
		place = last->line;
	fnv_add(f, id, sizeof(id));
	fnv_add(f, text, (size_t)snprintf(text, sizeof(text), "%llu", place));
	return r;
}

int otlp_stack_id(const struct profile *p, u32 stack, u8 ret[16])
{
	const struct profile_stack *s = &p->stacks.data[stack];
	struct fnv f = {(unsigned __int128)0x6c62272e07bb0142 << 64 | 0x62b821756295c58d};
	_cleanup_str_ struct str scratch = {};
	XXH64_state_t *x = XXH64_createState();
	u64 halves[2];
	int r = x ? 0 : -ENOMEM;

	for (u32 i = 0; i < s->n && r == 0;) {
		u32 n = location_length(p, s->first + i, s->n - i);

		r = add_location(p, s->first + i, n, x, &scratch, &f);
		i += n;
	}
	XXH64_freeState(x);
	halves[0] = big_endian((u64)(f.value >> 64));
	halves[1] = big_endian((u64)f.value);
	memcpy(ret, halves, 16);
	return r;
}
