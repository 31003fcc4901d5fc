/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what Austin writes of Python programs: its text
 *
 *	# austin: 3.7.0
 *	# interval: 100
 *	# mode: wall
 *
 *	P7;T0:9;/app/main.py:main:12;/app/work.py:work:3 104
 *
 * and the same in binary, MOJO ("MOJ", the version, then events of a byte and their fields). Values
 * are microseconds (modes wall and cpu), bytes (memory), or both and whether the thread was idle
 * (full).
 */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/vocab.h"
#include "format/internal.h"

#define MOJO_MAX_VERSION 3
#define MAX_DEPTH 65536

/* Events of MOJO (Austin, src/mojo.h). */
enum mojo {
	MOJO_METADATA = 1,
	MOJO_STACK,
	MOJO_FRAME,
	MOJO_FRAME_INVALID,
	MOJO_FRAME_REF,
	MOJO_FRAME_KERNEL,
	MOJO_GC,
	MOJO_IDLE,
	MOJO_TIME,
	MOJO_MEMORY,
	MOJO_STRING,
	MOJO_STRING_REF,
};

enum mode { MODE_UNKNOWN, MODE_WALL, MODE_CPU, MODE_MEMORY, MODE_FULL };

struct austin_reader {
	struct profile *p; /* owned */
	struct diag *diag;
	enum mode mode;
	struct map frames;  /* text: string id → frame; MOJO: key → frame */
	struct map strings; /* MOJO: key → string id */
	struct map threads; /* pid, tid → thread */
	vec(u32) stack;	    /* root first */
	u64 pid, tid, version;
	s64 time_us, memory;
	bool open, idle, has_value;
	u64 n_samples, damaged, damaged_line;
};

static void reader_deinit(struct austin_reader *f)
{
	profile_destroy(f->p);
	map_deinit(&f->frames);
	map_deinit(&f->strings);
	map_deinit(&f->threads);
	vec_deinit(&f->stack);
}

/* ---- samples ---- */

static bool is(const char *s, size_t n, const char *text)
{
	return n == strlen(text) && !memcmp(s, text, n);
}

/* Of a file: it cannot change once there are samples. */
static void set_mode(struct austin_reader *f, const char *s, size_t n)
{
	if (f->p->n_types)
		return;
	if (is(s, n, "cpu"))
		f->mode = MODE_CPU;
	else if (is(s, n, "memory"))
		f->mode = MODE_MEMORY;
	else if (is(s, n, "full"))
		f->mode = MODE_FULL;
	else
		f->mode = MODE_WALL;
}

static int add_types(struct austin_reader *f)
{
	const char *bytes = vocab_unit(UNIT_BYTES);
	int r = profile_add_table_type(f->p, SAMPLE_TYPE_SAMPLES);

	f->p->default_type = 1;
	if (r == 0 && f->mode == MODE_MEMORY)
		return profile_add_type(f->p, "memory", bytes);
	if (r == 0 && f->mode == MODE_CPU)
		return profile_add_table_type(f->p, SAMPLE_TYPE_CPU);
	if (r == 0)
		r = profile_add_table_type(f->p, SAMPLE_TYPE_WALL);
	if (r == 0 && f->mode == MODE_FULL)
		r = profile_add_table_type(f->p, SAMPLE_TYPE_CPU);
	if (r == 0 && f->mode == MODE_FULL)
		r = profile_add_type(f->p, "memory", bytes);
	return r;
}

static int get_thread(struct austin_reader *f, u32 *ret)
{
	u64 key = hash_u64(f->pid ^ hash_u64(f->tid)) >> 1, *known = map_get(&f->threads, key);
	struct profile_thread t = {.pid = f->pid <= INT32_MAX ? (u32)f->pid : 0,
				   .tid = f->tid <= INT32_MAX ? (u32)f->tid : 0};
	int r;

	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	r = profile_add_string(f->p, "python", strlen("python"), &t.comm);
	if (r == 0)
		r = profile_add_thread(f->p, &t, ret);
	return r < 0 ? r : map_put(&f->threads, key, *ret);
}

/* The sample at hand, if there is one. */
static int finish_sample(struct austin_reader *f)
{
	s64 ns = 0, values[4] = {1};
	u32 thread, stack;
	int r = 0;

	if (!f->open || !f->has_value)
		return 0;
	f->open = false;
	if (__builtin_mul_overflow(f->time_us, 1000, &ns))
		return diag_set(f->diag, -EBADMSG, "Austin: a time is not a number that can be");
	if (!f->p->n_types)
		r = add_types(f);
	values[1] = f->mode == MODE_MEMORY ? f->memory : ns;
	values[2] = f->idle ? 0 : ns;
	values[3] = f->memory;
	for (size_t i = 0; i < f->stack.n / 2; i++) {
		u32 swap = f->stack.data[i];

		f->stack.data[i] = f->stack.data[f->stack.n - 1 - i];
		f->stack.data[f->stack.n - 1 - i] = swap;
	}
	if (r == 0)
		r = get_thread(f, &thread);
	if (r == 0)
		r = profile_add_stack(f->p, f->stack.data, f->stack.n, &stack);
	if (r == 0)
		r = profile_add_sample(f->p, 0, thread, stack, values);
	f->n_samples++;
	return r == -ERANGE ? diag_set(f->diag, r, "Austin: values add up to more than 63 bits")
			    : r;
}

static void start_sample(struct austin_reader *f, u64 pid, u64 tid)
{
	vec_clear(&f->stack);
	f->pid = pid;
	f->tid = tid;
	f->time_us = f->memory = 0;
	f->open = true;
	f->idle = f->has_value = false;
}

static int push(struct austin_reader *f, u32 frame)
{
	return f->stack.n < MAX_DEPTH ? vec_push(&f->stack, frame)
				      : diag_set(f->diag, -EFBIG, "Austin: a stack is too deep");
}

/* Austin's native variant has frames of libraries between those of Python. */
static u8 kind_of(const char *file, size_t n)
{
	if (is(file, n, "kernel"))
		return FRAME_KERNEL;
	return (n > 3 && !memcmp(file + n - 3, ".py", 3)) || (n && file[0] == '<') ? FRAME_PYTHON
										   : FRAME_NATIVE;
}

/* ---- text ---- */

/* A number at the end of s; false, and nothing changed, if there is none. */
static bool take_end_number(const char *s, size_t *n, char before, s64 *ret)
{
	size_t i = *n;
	bool minus;
	s64 v = 0;

	while (i && isdigit((u8)s[i - 1]))
		i--;
	minus = i && s[i - 1] == '-';
	if (i == *n || i - minus == 0 || s[i - minus - 1] != before)
		return false;
	for (size_t k = i; k < *n; k++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, s[k] - '0', &v))
			return false;
	*n = i - minus - 1;
	*ret = minus ? -v : v;
	return true;
}

/* "/app/main.py:main:12"; without the rest where it is a mark of Austin, such as ":GC:". */
static int make_text_frame(struct austin_reader *f, const char *s, size_t n, u32 *ret)
{
	struct profile_source source = {.name = s, .name_n = n, .kind = FRAME_PYTHON};
	size_t place_n = n, from = 0;
	s64 line = 0;
	const char *colon;

	if (!take_end_number(s, &place_n, ':', &line))
		return profile_add_source_frame(f->p, &source, ret);
	for (size_t i = 0; i < place_n; i++)
		if (s[i] == '/' || s[i] == '\\')
			from = i;
	colon = memchr(s + from, ':', place_n - from);
	if (colon) {
		source.file = s;
		source.file_n = (size_t)(colon - s);
		source.name = colon + 1;
		source.name_n = (size_t)(s + place_n - source.name);
		source.kind = kind_of(s, source.file_n);
	}
	source.line = line > 0 && line <= INT32_MAX ? (u32)line : 0;
	return profile_add_source_frame(f->p, &source, ret);
}

static int text_frame(struct austin_reader *f, const char *s, size_t n)
{
	u32 text, frame;
	u64 *known;
	int r = profile_add_string(f->p, s, n, &text);

	if (r < 0)
		return r;
	known = map_get(&f->frames, text);
	if (known)
		return push(f, (u32)*known);
	r = make_text_frame(f, s, n, &frame);
	if (r == 0)
		r = map_put(&f->frames, text, frame);
	return r < 0 ? r : push(f, frame);
}

static size_t until(const char *s, size_t n, char c)
{
	const char *at = memchr(s, c, n);

	return at ? (size_t)(at - s) : n;
}

static u64 number_of(const char *s, size_t n)
{
	u64 v = 0;

	for (size_t i = 0; i < n; i++)
		if (!isdigit((u8)s[i]) || v > INT32_MAX)
			return 0;
		else
			v = v * 10 + (u64)(s[i] - '0');
	return v;
}

/* "P7;T0:9": the interpreter stands before the thread since Austin 3.6. */
static bool take_head(const char **s, size_t *n, u64 *ret_pid, u64 *ret_tid)
{
	size_t pid_n = until(*s, *n, ';'), tid_n, colon;
	const char *t = *s + pid_n + 1;

	if (pid_n < 2 || pid_n + 2 >= *n || (*s)[0] != 'P' || t[0] != 'T')
		return false;
	tid_n = until(t, *n - pid_n - 1, ';');
	colon = until(t, tid_n, ':');
	*ret_pid = number_of(*s + 1, pid_n - 1);
	*ret_tid = colon < tid_n ? number_of(t + colon + 1, tid_n - colon - 1)
				 : number_of(t + 1, tid_n - 1);
	*n -= pid_n + 1 + tid_n;
	*s = t + tid_n;
	return true;
}

/* " 104", or in mode full " 104,1,-4096". */
static bool take_values(struct austin_reader *f, const char *s, size_t *n)
{
	size_t space = *n, end = *n;
	s64 idle = 0;

	while (space && s[space - 1] != ' ')
		space--;
	if (!memchr(s + space, ',', *n - space)) {
		if (!take_end_number(s, n, ' ', f->mode == MODE_MEMORY ? &f->memory : &f->time_us))
			return false;
		return true;
	}
	if (!take_end_number(s, &end, ',', &f->memory) || !take_end_number(s, &end, ',', &idle) ||
	    !take_end_number(s, &end, ' ', &f->time_us))
		return false;
	f->idle = idle != 0;
	if (f->mode == MODE_UNKNOWN)
		f->mode = MODE_FULL;
	*n = end;
	return true;
}

static int text_line(struct austin_reader *f, const char *s, size_t n)
{
	u64 pid, tid;
	int r = 0;

	if (memchr(s, '\0', n) || !take_head(&s, &n, &pid, &tid))
		return -EBADMSG;
	start_sample(f, pid, tid);
	if (!take_values(f, s, &n))
		return -EBADMSG;
	f->has_value = true;
	while (n && r == 0) { /* s is at a semicolon */
		size_t frame_n = until(s + 1, n - 1, ';');

		r = text_frame(f, s + 1, frame_n);
		s += frame_n + 1;
		n -= frame_n + 1;
	}
	if (r == -EBADMSG)
		r = -EINVAL;
	return r < 0 ? r : finish_sample(f);
}

static int read_text(struct austin_reader *f, const char *pos, const char *end)
{
	static const char mode[] = "# mode: ";
	const char *s;
	u64 line = 0;
	size_t n;
	int r = 0;

	while (r == 0 && profile_next_line(&pos, end, &s, &n)) {
		line++;
		if (n >= sizeof(mode) && !memcmp(s, mode, sizeof(mode) - 1))
			set_mode(f, s + sizeof(mode) - 1, n - sizeof(mode) + 1);
		if (!n || s[0] == '#')
			continue;
		r = text_line(f, s, n);
		if (r != -EBADMSG || (f->diag && f->diag->text[0]))
			continue;
		r = 0;
		if (!f->damaged++)
			f->damaged_line = line;
	}
	return r;
}

/* ---- MOJO ---- */

/* 6 bits and a sign in the first byte, 7 in those that follow, the lowest first. */
static bool mojo_integer(struct buf *b, s64 *ret)
{
	u8 byte;
	u64 v;
	bool minus;

	if (!buf_u8(b, &byte))
		return false;
	v = byte & 0x3f;
	minus = byte & 0x40;
	for (u32 shift = 6; byte & 0x80; shift += 7) {
		if (!buf_u8(b, &byte))
			return false;
		if (shift < 64)
			v |= (u64)(byte & 0x7f) << shift;
	}
	*ret = minus ? -(s64)(v & INT64_MAX) : (s64)(v & INT64_MAX);
	return true;
}

/* Keys are those of a process. */
static u64 key_of(const struct austin_reader *f, s64 key)
{
	return hash_u64(f->pid ^ hash_u64((u64)key)) >> 1;
}

static int define_frame(struct austin_reader *f, struct buf *b)
{
	struct profile_frame frame = {.mapping = PROFILE_NONE, .kind = FRAME_PYTHON};
	struct profile_function fn = {};
	s64 key, file, scope, line, rest;
	u64 *file_id, *name_id;
	u32 id;
	int r;

	if (!mojo_integer(b, &key) || !mojo_integer(b, &file) || !mojo_integer(b, &scope) ||
	    !mojo_integer(b, &line))
		return -ENODATA;
	for (u32 i = 0; i < 3 && f->version > 1; i++)
		if (!mojo_integer(b, &rest))
			return -ENODATA;
	file_id = map_get(&f->strings, key_of(f, file));
	name_id = map_get(&f->strings, key_of(f, scope));
	frame.line = line > 0 && line <= INT32_MAX ? (u32)line : 0;
	r = name_id ? 0 : profile_add_string(f->p, "<unknown>", strlen("<unknown>"), &fn.name);
	fn.name = name_id ? (u32)*name_id : fn.name;
	fn.system_name = fn.name;
	if (file_id) {
		const char *path = profile_string(f->p, (u32)*file_id);

		fn.file = (u32)*file_id;
		frame.kind = kind_of(path, strlen(path));
	}
	if (r == 0)
		r = profile_add_function(f->p, &fn, &frame.function);
	if (r == 0)
		r = profile_add_frame(f->p, &frame, &id);
	return r < 0 ? r : map_put(&f->frames, key_of(f, key), id);
}

static int push_name(struct austin_reader *f, const char *name, u8 kind)
{
	struct profile_source s = {.name = name, .name_n = strlen(name), .kind = kind};
	u32 id;
	int r = profile_add_source_frame(f->p, &s, &id);

	return r < 0 ? r : push(f, id);
}

static int mojo_stack(struct austin_reader *f, struct buf *b)
{
	const char *text;
	s64 pid, interpreter;
	u64 tid = 0;
	int r = finish_sample(f);

	if (r < 0)
		return r;
	if (!mojo_integer(b, &pid) || (f->version > 2 && !mojo_integer(b, &interpreter)) ||
	    !buf_cstr(b, &text))
		return -ENODATA;
	(void)str_to_u64(text, 16, &tid);
	start_sample(f, (u64)pid, tid);
	return 0;
}

static int mojo_text(struct austin_reader *f, struct buf *b, u8 event)
{
	const char *label, *value;
	s64 key;
	u32 id;
	int r;

	if (event == MOJO_STRING) {
		if (!mojo_integer(b, &key) || !buf_cstr(b, &value))
			return -ENODATA;
		r = profile_add_string(f->p, value, strlen(value), &id);
		return r < 0 ? r : map_put(&f->strings, key_of(f, key), id);
	}
	if (!buf_cstr(b, &label) || !buf_cstr(b, &value))
		return -ENODATA;
	if (!strcmp(label, "mode"))
		set_mode(f, value, strlen(value));
	return 0;
}

static int mojo_event(struct austin_reader *f, struct buf *b, u8 event)
{
	const char *name;
	u64 *known;
	s64 v = 0;

	switch (event) {
	case MOJO_METADATA:
	case MOJO_STRING:
		return mojo_text(f, b, event);
	case MOJO_STACK:
		return mojo_stack(f, b);
	case MOJO_FRAME:
		return define_frame(f, b);
	case MOJO_FRAME_INVALID:
		return push_name(f, ":INVALID:", FRAME_UNKNOWN);
	case MOJO_FRAME_REF:
		if (!mojo_integer(b, &v))
			return -ENODATA;
		known = map_get(&f->frames, key_of(f, v));
		return known ? push(f, (u32)*known) : push_name(f, "<unknown>", FRAME_PYTHON);
	case MOJO_FRAME_KERNEL:
		return buf_cstr(b, &name) ? push_name(f, name, FRAME_KERNEL) : -ENODATA;
	case MOJO_GC:
		return push_name(f, ":GC:", FRAME_PYTHON);
	case MOJO_IDLE:
		f->idle = true;
		return 0;
	case MOJO_TIME:
	case MOJO_MEMORY:
		f->has_value = true;
		return mojo_integer(b, event == MOJO_TIME ? &f->time_us : &f->memory) ? 0
										      : -ENODATA;
	case MOJO_STRING_REF:
		return mojo_integer(b, &v) ? 0 : -ENODATA;
	default:
		return -EPROTO;
	}
}

static int read_mojo(struct austin_reader *f, struct buf b)
{
	s64 version = 0;
	u64 offset = 0;
	u8 event;
	int r = 0;

	if (!buf_skip(&b, 3) || !mojo_integer(&b, &version) || version < 1 ||
	    version > MOJO_MAX_VERSION)
		return diag_set(f->diag, -ENOTSUP,
				"Austin: version %lld of MOJO is not read: convert the file with "
				"mojo2austin",
				(long long)version);
	f->version = (u64)version;
	while (r == 0 && buf_left(&b)) {
		offset = buf_offset(&b);
		(void)buf_u8(&b, &event);
		r = mojo_event(f, &b, event);
	}
	if (r == 0)
		return finish_sample(f);
	if (r != -ENODATA && r != -EPROTO)
		return r;
	if (!f->n_samples)
		return diag_set_at(f->diag, -EBADMSG, offset, "Austin: damaged");
	(void)diag_set_at(f->diag, 0, offset,
			  r == -ENODATA ? "Austin: is cut off; what stands before it is read"
					: "Austin: damaged; what stands before it is read");
	return 0;
}

/* ---- the file ---- */

int austin_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(reader_deinit))) struct austin_reader f = {.p = profile_create(),
									  .diag = reterr_diag};
	bool mojo = n > 3 && !memcmp(data, "MOJ", 3);
	int r = -ENOMEM;

	if (f.p)
		r = mojo ? read_mojo(&f, buf_of(data, n))
			 : read_text(&f, (const char *)data, (const char *)data + n);
	if (r < 0)
		return r;
	if (f.damaged > f.n_samples)
		return diag_set(reterr_diag, -EBADMSG,
				"Austin: line %llu is not P1;T1;file:function:line... and a number",
				(unsigned long long)f.damaged_line);
	if (!f.n_samples)
		return diag_set(reterr_diag, -EBADMSG, "Austin: no samples in it");
	if (f.damaged)
		(void)diag_set(reterr_diag, 0,
			       "Austin: damaged lines left out: %llu, the first is line %llu",
			       (unsigned long long)f.damaged, (unsigned long long)f.damaged_line);
	profile_derive_quality(f.p);
	*ret = take_ptr(f.p);
	return 0;
}

int austin_probe(const u8 *data, size_t n)
{
	const char *pos = (const char *)data, *end = pos + n, *s;
	size_t len;
	u64 pid, tid;

	if (!data || n < 4)
		return 0;
	if (!memcmp(data, "MOJ", 3) || (n > 9 && !memcmp(data, "# austin:", 9)))
		return 95;
	/* Its text without the header is folded text but for the first two names. */
	while (profile_next_line(&pos, end, &s, &len))
		if (len && s[0] != '#')
			return take_head(&s, &len, &pid, &tid) ? 70 : 0;
	return 0;
}
