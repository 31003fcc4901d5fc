/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of text formats have in common. */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/vocab.h"
#include "format/internal.h"

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

char profile_first_char(const u8 *data, size_t n)
{
	size_t i = 0;

	while (i < n && i < 64 && data[i] && strchr(" \t\r\n", data[i]))
		i++;
	return i < n ? (char)data[i] : '\0';
}

bool profile_split_address(const char *text, size_t n, size_t *ret_path_n, u64 *ret_address)
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
	if (f.kind == FRAME_NATIVE && !f.flags && vocab_wait_by_frame(text, n))
		f.kind = FRAME_WAIT;
	if (n == 0 || is_text(text, n, "[unknown]")) {
		if (f.kind == FRAME_NATIVE)
			f.kind = FRAME_UNKNOWN;
		return profile_add_frame(p, &f, ret_id);
	}
	if (profile_split_address(text, n, &path_n, &f.address)) {
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

size_t profile_root_prefix(const char *s, size_t n)
{
	static const char *const prefixes[] = {PROFILE_PREFIX_POD, PROFILE_PREFIX_CONTAINER};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		size_t prefix_n = strlen(prefixes[i]);

		if (n > prefix_n && !memcmp(s, prefixes[i], prefix_n))
			return prefix_n;
	}
	return 0;
}

/* "[123]comm", exactly as it is written: the length of "[123]", or 0. */
static size_t pid_prefix(const char *s, size_t n, u32 *ret_pid)
{
	u64 pid = 0;
	size_t i = 1;

	if (n < 4 || s[0] != '[' || s[1] == '0')
		return 0;
	for (; i < n && isdigit((u8)s[i]) && pid <= INT32_MAX; i++)
		pid = pid * 10 + (u64)(s[i] - '0');
	if (i == 1 || i + 1 >= n || s[i] != ']' || pid > INT32_MAX)
		return 0;
	*ret_pid = (u32)pid;
	return i + 1;
}

static int add_root_label(struct profile *p, const char *s, size_t n, size_t prefix_n,
			  struct profile_label *ret)
{
	const char *name = s[1] == PROFILE_PREFIX_POD[1] ? "k8s.pod.name" : "container.name";
	int r = profile_add_string(p, name, strlen(name), &ret->name);

	return r < 0 ? r : profile_add_string(p, s + prefix_n, n - prefix_n, &ret->value);
}

int profile_add_head_text(struct profile *p, const char *s, size_t n, u32 *ret_thread)
{
	struct profile_label labels[PROFILE_MAX_LABELS];
	struct profile_thread t = {};
	size_t n_labels = 0, prefix_n;
	int r = 0;

	for (size_t i = 0, name_n; i <= n && r == 0; i += name_n + 1) {
		const char *end;

		i += i < n && s[i] == ' ';
		end = memchr(s + i, ';', n - i);
		name_n = end ? (size_t)(end - s) - i : n - i;
		prefix_n = profile_root_prefix(s + i, name_n);
		if (!prefix_n) {
			prefix_n = pid_prefix(s + i, name_n, &t.pid);
			r = profile_add_string(p, s + i + prefix_n, name_n - prefix_n, &t.comm);
		} else if (n_labels < ARRAY_SIZE(labels)) {
			r = add_root_label(p, s + i, name_n, prefix_n, &labels[n_labels++]);
		}
	}
	if (r == 0)
		r = profile_add_resource(p, labels, n_labels, &t.resource);
	return r < 0 ? r : profile_add_thread(p, &t, ret_thread);
}

bool profile_next_line(const char **pos, const char *end, const char **ret_s, size_t *ret_n)
{
	const char *s = *pos, *nl;
	size_t n;

	if (s >= end)
		return false;
	nl = memchr(s, '\n', (size_t)(end - s));
	n = (size_t)((nl ? nl : end) - s);
	*pos = nl ? nl + 1 : end;
	*ret_s = s;
	*ret_n = n && s[n - 1] == '\r' ? n - 1 : n;
	return true;
}

int profile_add_source_frame(struct profile *p, const struct profile_source *s, u32 *ret_id)
{
	struct profile_frame frame = {.mapping = PROFILE_NONE,
				      .function = PROFILE_NONE,
				      .line = s->line,
				      .kind = s->kind};
	struct profile_function fn = {.start_line = s->start_line};
	_cleanup_str_ struct str name = {}, shown = {};
	int r;

	/* Of a name without a visible character nothing would be shown. */
	str_append(&name, s->name, s->name_n);
	text_append_clean(&shown, str_get(&name), 0);
	if (name.failed || shown.failed)
		return -ENOMEM;
	if (!shown.n) {
		frame.kind = FRAME_UNKNOWN;
		return profile_add_frame(p, &frame, ret_id);
	}
	r = profile_add_string(p, s->name, s->name_n, &fn.name);
	fn.system_name = fn.name;
	if (r == 0)
		r = profile_add_string(p, s->file, s->file_n, &fn.file);
	if (r == 0)
		r = profile_add_function(p, &fn, &frame.function);
	return r < 0 ? r : profile_add_frame(p, &frame, ret_id);
}
