/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads recordings of JDK Flight Recorder: jdk.ExecutionSample, each a sample with its time. Those
 * of threads in native code (jdk.NativeMethodSample) are left out: they are taken whether the code
 * runs or waits.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "format/jfr.h"

#define PROCESS "java"
#define NS_PER_S 1000000000ULL
#define MAX_FRAMES 4096
#define TRUNCATED "[truncated: too many frames]"

struct jfr_reader {
	struct profile *p; /* owned */
	struct jfr_chunk *c;
	u32 comm;
	/* Of the chunk at hand: key → id in the profile. */
	struct map stacks, threads, functions;
	vec(u32) frames;
	struct str text, other;
};

static void reader_deinit(struct jfr_reader *f)
{
	profile_destroy(f->p);
	map_deinit(&f->stacks);
	map_deinit(&f->threads);
	map_deinit(&f->functions);
	vec_deinit(&f->frames);
	str_deinit(&f->text);
	str_deinit(&f->other);
}

/* ---- what is wanted of a value: some fields by name ---- */

struct wanted {
	const char *name;
	enum { WANT_INTEGER, WANT_BYTE, WANT_KEY, WANT_STRING, WANT_AT } what;
	union {
		u64 *number;
		struct str *text;
		struct buf *at; /* of an array: at its count */
	};
	u64 *class_id; /* of the field, or NULL */
};

static int read_wanted(struct jfr_reader *f, struct buf *b, const struct jfr_field *field,
		       const struct wanted *w)
{
	const struct jfr_class *k = jfr_class(f->c, field->class_id);
	u8 byte;

	if (w->class_id)
		*w->class_id = field->class_id;
	switch (w->what) {
	case WANT_AT:
		*w->at = *b;
		return field->array ? jfr_skip_field(f->c, b, field)
				    : jfr_damaged(f->c, b, "not an array");
	case WANT_KEY:
		if (!field->pooled || field->array || !jfr_integer(b, w->number))
			return jfr_damaged(f->c, b, "a reference is not where it should be");
		return 0;
	case WANT_STRING:
		str_clear(w->text);
		if (field->pooled || field->array || !k || k->primitive != JFR_STRING)
			return jfr_damaged(f->c, b, "a string is not where it should be");
		return jfr_string(f->c, b, w->text);
	case WANT_BYTE:
		if (field->pooled || field->array || !k || k->primitive != JFR_BOOLEAN ||
		    !buf_u8(b, &byte))
			return jfr_damaged(f->c, b, "a flag is not where it should be");
		*w->number = byte;
		return 0;
	case WANT_INTEGER:
	default:
		if (field->pooled || field->array || !k || k->primitive != JFR_INTEGER ||
		    !jfr_integer(b, w->number))
			return jfr_damaged(f->c, b, "a number is not where it should be");
		return 0;
	}
}

static int read_fields(struct jfr_reader *f, struct buf *b, const struct jfr_class *k,
		       const struct wanted *w, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < k->fields.n && r == 0; i++) {
		const struct jfr_field *field = &k->fields.data[i];
		const struct wanted *hit = NULL;

		for (size_t j = 0; j < n && !hit; j++)
			if (!strcmp(jfr_field_name(f->c, field), w[j].name))
				hit = &w[j];
		r = hit ? read_wanted(f, b, field, hit) : jfr_skip_field(f->c, b, field);
	}
	return r;
}

/* Of a pooled value; what is not there leaves everything as it was. */
static int read_pooled(struct jfr_reader *f, u64 class_id, u64 key, const struct wanted *w,
		       size_t n)
{
	const struct jfr_class *k = jfr_class(f->c, class_id);
	struct buf b;

	if (!k || !jfr_pooled(f->c, k, key, &b))
		return 0;
	return read_fields(f, &b, k, w, n);
}

/* A jdk.types.Symbol, and anything else that has one string. */
static int read_symbol(struct jfr_reader *f, u64 class_id, u64 key, const char *field,
		       struct str *ret)
{
	const struct wanted w[] = {{.name = field, .what = WANT_STRING, .text = ret}};

	str_clear(ret);
	return read_pooled(f, class_id, key, w, ARRAY_SIZE(w));
}

/* ---- functions ---- */

/* java.lang.String.hashCode */
static int read_method(struct jfr_reader *f, u64 class_id, u64 key, u32 *ret)
{
	u64 type = 0, type_class = 0, name = 0, name_class = 0, symbol = 0, symbol_class = 0;
	const struct wanted method[] = {
		{.name = "type", .what = WANT_KEY, .number = &type, .class_id = &type_class},
		{.name = "name", .what = WANT_KEY, .number = &name, .class_id = &name_class},
	};
	const struct wanted of_class[] = {
		{.name = "name", .what = WANT_KEY, .number = &symbol, .class_id = &symbol_class}};
	u64 *known = key < MAP_GONE_KEY ? map_get(&f->functions, key) : NULL;
	struct profile_function fn = {};
	int r;

	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	r = read_pooled(f, class_id, key, method, ARRAY_SIZE(method));
	if (r == 0)
		r = read_pooled(f, type_class, type, of_class, ARRAY_SIZE(of_class));
	if (r == 0)
		r = read_symbol(f, symbol_class, symbol, "string", &f->text);
	for (size_t i = 0; i < f->text.n; i++)
		if (f->text.data[i] == '/')
			f->text.data[i] = '.';
	if (r == 0)
		r = read_symbol(f, name_class, name, "string", &f->other);
	if (f->text.n && f->other.n)
		str_putc(&f->text, '.');
	str_append(&f->text, str_get(&f->other), f->other.n);
	if (r == 0 && f->text.failed)
		r = -ENOMEM;
	if (r == 0 && f->text.n) {
		r = profile_add_string(f->p, str_get(&f->text), f->text.n, &fn.name);
		fn.system_name = fn.name;
		if (r == 0)
			r = profile_add_function(f->p, &fn, ret);
	} else {
		*ret = PROFILE_NONE;
	}
	if (r == 0 && key < MAP_GONE_KEY)
		r = map_put(&f->functions, key, *ret);
	return r;
}

static void set_kind(struct profile_frame *frame, const char *type)
{
	frame->kind = frame->function == PROFILE_NONE ? FRAME_UNKNOWN : FRAME_JAVA;
	if (!strcmp(type, "Inlined"))
		frame->flags = PROFILE_FRAME_INLINED;
	/* async-profiler's. */
	else if (!strcmp(type, "Kernel"))
		frame->kind = FRAME_KERNEL;
	else if (!strcmp(type, "C++"))
		frame->kind = FRAME_NATIVE;
}

static int read_frame(struct jfr_reader *f, struct buf *b, const struct jfr_class *k)
{
	u64 method = 0, method_class = 0, line = 0, type = 0, type_class = 0;
	const struct wanted w[] = {
		{.name = "method", .what = WANT_KEY, .number = &method, .class_id = &method_class},
		{.name = "lineNumber", .what = WANT_INTEGER, .number = &line},
		{.name = "type", .what = WANT_KEY, .number = &type, .class_id = &type_class},
	};
	struct profile_frame frame = {.mapping = PROFILE_NONE, .function = PROFILE_NONE};
	u32 id;
	int r = read_fields(f, b, k, w, ARRAY_SIZE(w));

	if (r == 0)
		r = read_method(f, method_class, method, &frame.function);
	if (r == 0)
		r = read_symbol(f, type_class, type, "description", &f->text);
	if (r < 0)
		return r;
	set_kind(&frame, str_get(&f->text));
	frame.line = line <= INT32_MAX ? (u32)line : 0;
	r = profile_add_frame(f->p, &frame, &id);
	return r < 0 ? r : vec_push(&f->frames, id);
}

static int read_frames(struct jfr_reader *f, struct buf *b, u64 class_id, bool truncated)
{
	const struct jfr_class *k = jfr_class(f->c, class_id);
	u64 n;
	u32 id;
	int r = 0;

	if (!k || !jfr_integer(b, &n))
		return jfr_damaged(f->c, b, "a stack trace is damaged");
	vec_clear(&f->frames);
	for (u64 i = 0; i < n && r == 0; i++) {
		if (i == MAX_FRAMES)
			return jfr_damaged(f->c, b, "a stack trace of too many frames");
		r = read_frame(f, b, k);
	}
	if (r < 0 || !truncated)
		return r;
	r = profile_add_note(f->p, TRUNCATED, &id);
	return r < 0 ? r : vec_push(&f->frames, id);
}

static int read_stack(struct jfr_reader *f, u64 class_id, u64 key, u32 *ret)
{
	u64 truncated = 0, frame_class = 0;
	struct buf at = {};
	const struct wanted w[] = {
		{.name = "truncated", .what = WANT_BYTE, .number = &truncated},
		{.name = "frames", .what = WANT_AT, .at = &at, .class_id = &frame_class},
	};
	u64 *known = key < MAP_GONE_KEY ? map_get(&f->stacks, key) : NULL;
	int r = 0;

	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	vec_clear(&f->frames);
	r = read_pooled(f, class_id, key, w, ARRAY_SIZE(w));
	if (r == 0 && at.pos)
		r = read_frames(f, &at, frame_class, truncated);
	if (r == 0)
		r = profile_add_stack(f->p, f->frames.data, f->frames.n, ret);
	if (r == 0 && key < MAP_GONE_KEY)
		r = map_put(&f->stacks, key, *ret);
	return r;
}

static int read_thread(struct jfr_reader *f, u64 class_id, u64 key, u32 *ret)
{
	struct profile_thread t = {.comm = f->comm};
	u64 tid = 0;
	const struct wanted w[] = {
		{.name = "osName", .what = WANT_STRING, .text = &f->other},
		{.name = "osThreadId", .what = WANT_INTEGER, .number = &tid},
		{.name = "javaName", .what = WANT_STRING, .text = &f->text},
	};
	u64 *known = key < MAP_GONE_KEY ? map_get(&f->threads, key) : NULL;
	const struct str *name;
	int r;

	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	str_clear(&f->text);
	str_clear(&f->other);
	r = read_pooled(f, class_id, key, w, ARRAY_SIZE(w));
	name = f->text.n ? &f->text : &f->other;
	t.tid = tid <= INT32_MAX ? (u32)tid : 0;
	if (r == 0)
		r = profile_add_string(f->p, str_get(name), name->n, &t.thread_name);
	if (r == 0)
		r = profile_add_thread(f->p, &t, ret);
	if (r == 0 && key < MAP_GONE_KEY)
		r = map_put(&f->threads, key, *ret);
	return r;
}

/* ---- events ---- */

static u64 time_of(const struct jfr_chunk *c, u64 ticks)
{
	u64 after = ticks > c->start_ticks ? ticks - c->start_ticks : 0;
	unsigned __int128 ns = (unsigned __int128)after * NS_PER_S / c->ticks_per_s;

	return ns < INT64_MAX - NS_PER_S && c->start_ns < INT64_MAX / 2
		       ? MIN(c->start_ns + (u64)ns, (u64)INT64_MAX)
		       : c->start_ns;
}

static int read_sample(struct jfr_reader *f, struct buf *b, const struct jfr_class *k)
{
	u64 ticks = 0, thread = 0, thread_class = 0, stack = 0, stack_class = 0, time;
	const struct wanted w[] = {
		{.name = "startTime", .what = WANT_INTEGER, .number = &ticks},
		{.name = "sampledThread",
		 .what = WANT_KEY,
		 .number = &thread,
		 .class_id = &thread_class},
		{.name = "stackTrace",
		 .what = WANT_KEY,
		 .number = &stack,
		 .class_id = &stack_class},
	};
	const s64 one = 1;
	u32 thread_id, stack_id;
	int r = read_fields(f, b, k, w, ARRAY_SIZE(w));

	if (r == 0)
		r = read_thread(f, thread_class, thread, &thread_id);
	if (r == 0)
		r = read_stack(f, stack_class, stack, &stack_id);
	if (r < 0)
		return r;
	time = time_of(f->c, ticks);
	if (!f->p->time_ns || time < f->p->time_ns)
		f->p->time_ns = time;
	f->p->duration_ns = MAX(f->p->duration_ns, time - f->p->time_ns);
	return profile_add_sample(f->p, time, thread_id, stack_id, &one);
}

static int read_chunk(struct jfr_reader *f)
{
	const struct jfr_class *sample = jfr_class_by_name(f->c, "jdk.ExecutionSample");
	struct buf b = f->c->all;
	int r = 0;

	map_clear(&f->stacks);
	map_clear(&f->threads);
	map_clear(&f->functions);
	if (!buf_skip(&b, 68))
		return jfr_damaged(f->c, &b, "a chunk is cut off");
	while (buf_left(&b) && r == 0) {
		struct buf event = b, at = b;
		u64 size, type;

		if (!jfr_integer(&at, &size) || size <= (u64)(at.pos - event.pos) ||
		    !buf_take(&b, size, &event))
			return jfr_damaged(f->c, &event, "an event is cut off");
		at.end = event.end;
		if (!jfr_integer(&at, &type))
			return jfr_damaged(f->c, &event, "an event is cut off");
		if (sample && type == sample->id)
			r = read_sample(f, &at, sample);
	}
	return r;
}

int jfr_probe(const u8 *data, size_t n)
{
	return n >= 68 && !memcmp(data, "FLR\0", 4) ? 100 : 0;
}

int jfr_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(reader_deinit))) struct jfr_reader f = {.p = profile_create()};
	struct buf b = buf_of(data, n);
	int r = f.p ? profile_add_table_type(f.p, SAMPLE_TYPE_SAMPLES) : -ENOMEM;

	if (r == 0)
		r = profile_add_string(f.p, PROCESS, strlen(PROCESS), &f.comm);
	if (r == 0 && !n)
		r = diag_set(reterr_diag, -EBADMSG, "JFR: empty");
	for (u32 i = 0; r == 0 && buf_left(&b); i++) {
		_cleanup_chunk_ struct jfr_chunk c = {};

		if (i == JFR_MAX_CHUNKS)
			return diag_set(reterr_diag, -E2BIG, "JFR: more than %d chunks",
					JFR_MAX_CHUNKS);
		f.c = &c;
		r = jfr_chunk_open(&b, &c, reterr_diag);
		if (r == 0)
			r = read_chunk(&f);
	}
	if (r < 0)
		return r;
	profile_derive_quality(f.p);
	*ret = take_ptr(f.p);
	return 0;
}
