/* SPDX-License-Identifier: Apache-2.0 */
/* What events of Flight Recorder refer to: stacks with their functions, and threads. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "format/jfr_reader.h"

#define MAX_FRAMES 4096
#define TRUNCATED "[truncated: too many frames]"

/* ---- what is wanted of a value: some fields by name ---- */

static int read_wanted(struct jfr_reader *f, struct buf *b, const struct jfr_field *field,
		       const struct jfr_wanted *w)
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

int jfr_read_fields(struct jfr_reader *f, struct buf *b, const struct jfr_class *k,
		    const struct jfr_wanted *w, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < k->fields.n && r == 0; i++) {
		const struct jfr_field *field = &k->fields.data[i];
		const struct jfr_wanted *hit = NULL;

		for (size_t j = 0; j < n && !hit; j++)
			if (!strcmp(jfr_field_name(f->c, field), w[j].name))
				hit = &w[j];
		r = hit ? read_wanted(f, b, field, hit) : jfr_skip_field(f->c, b, field);
	}
	return r;
}

/* Of a pooled value; what is not there leaves everything as it was. */
static int read_pooled(struct jfr_reader *f, u64 class_id, u64 key, const struct jfr_wanted *w,
		       size_t n)
{
	const struct jfr_class *k = jfr_class(f->c, class_id);
	struct buf b;

	if (!k || !jfr_pooled(f->c, k, key, &b))
		return 0;
	return jfr_read_fields(f, &b, k, w, n);
}

/* A jdk.types.Symbol, and anything else that has one string. */
int jfr_read_symbol(struct jfr_reader *f, u64 class_id, u64 key, const char *field, struct str *ret)
{
	const struct jfr_wanted w[] = {{.name = field, .what = WANT_STRING, .text = ret}};

	str_clear(ret);
	return read_pooled(f, class_id, key, w, ARRAY_SIZE(w));
}

/* ---- functions ---- */

/* The names of a method's class and of the method, into `text` and `other`. */
static int read_names(struct jfr_reader *f, u64 class_id, u64 key)
{
	u64 type = 0, type_class = 0, name = 0, name_class = 0, symbol = 0, symbol_class = 0;
	const struct jfr_wanted method[] = {
		{.name = "type", .what = WANT_KEY, .number = &type, .class_id = &type_class},
		{.name = "name", .what = WANT_KEY, .number = &name, .class_id = &name_class},
	};
	const struct jfr_wanted of_class[] = {
		{.name = "name", .what = WANT_KEY, .number = &symbol, .class_id = &symbol_class}};
	int r = read_pooled(f, class_id, key, method, ARRAY_SIZE(method));

	if (r == 0)
		r = read_pooled(f, type_class, type, of_class, ARRAY_SIZE(of_class));
	if (r == 0)
		r = jfr_read_symbol(f, symbol_class, symbol, "string", &f->text);
	return r < 0 ? r : jfr_read_symbol(f, name_class, name, "string", &f->other);
}

static int add_function(struct jfr_reader *f, const struct str *name, u32 *ret)
{
	struct profile_function fn = {};
	int r;

	*ret = PROFILE_NONE;
	if (!name->n)
		return 0;
	r = profile_add_string(f->p, str_get(name), name->n, &fn.name);
	fn.system_name = fn.name;
	return r < 0 ? r : profile_add_function(f->p, &fn, ret);
}

/* java.lang.String.hashCode */
static int read_method(struct jfr_reader *f, u64 class_id, u64 key, struct profile_frame *frame)
{
	u64 *known = key < MAP_GONE_KEY ? map_get(&f->functions, key) : NULL;
	int r;

	if (known) {
		frame->function = (u32)*known;
		return 0;
	}
	r = read_names(f, class_id, key);
	if (r < 0)
		return r;
	for (size_t i = 0; i < f->text.n; i++)
		if (f->text.data[i] == '/')
			f->text.data[i] = '.';
	if (f->text.n && f->other.n)
		str_putc(&f->text, '.');
	str_append(&f->text, str_get(&f->other), f->other.n);
	if (f->text.failed)
		return -ENOMEM;
	r = add_function(f, &f->text, &frame->function);
	return r == 0 && key < MAP_GONE_KEY ? map_put(&f->functions, key, frame->function) : r;
}

/* async-profiler's native frames: the "class" is the library. */
static int read_native(struct jfr_reader *f, u64 class_id, u64 key, struct profile_frame *frame)
{
	u64 *known = key < MAP_GONE_KEY ? map_get(&f->natives, key) : NULL;
	struct profile_mapping library = {};
	int r;

	if (known) {
		frame->function = (u32)*known;
		frame->mapping = (u32)(*known >> 32);
		return 0;
	}
	r = read_names(f, class_id, key);
	if (r == 0)
		r = add_function(f, &f->other, &frame->function);
	if (r == 0 && f->text.n) {
		r = profile_add_string(f->p, str_get(&f->text), f->text.n, &library.path);
		if (r == 0)
			r = profile_add_mapping(f->p, &library, &frame->mapping);
	}
	if (r < 0 || key >= MAP_GONE_KEY)
		return r;
	return map_put(&f->natives, key, (u64)frame->mapping << 32 | frame->function);
}

static void set_kind(struct profile_frame *frame, const char *type)
{
	frame->kind = FRAME_JAVA;
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
	const struct jfr_wanted w[] = {
		{.name = "method", .what = WANT_KEY, .number = &method, .class_id = &method_class},
		{.name = "lineNumber", .what = WANT_INTEGER, .number = &line},
		{.name = "type", .what = WANT_KEY, .number = &type, .class_id = &type_class},
	};
	struct profile_frame frame = {.mapping = PROFILE_NONE, .function = PROFILE_NONE};
	u32 id;
	int r = jfr_read_fields(f, b, k, w, ARRAY_SIZE(w));

	if (r == 0)
		r = jfr_read_symbol(f, type_class, type, "description", &f->text);
	if (r < 0)
		return r;
	set_kind(&frame, str_get(&f->text));
	r = (frame.kind == FRAME_JAVA ? read_method : read_native)(f, method_class, method, &frame);
	if (r < 0)
		return r;
	if (frame.function == PROFILE_NONE)
		frame.kind = FRAME_UNKNOWN;
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

int jfr_read_stack(struct jfr_reader *f, u64 class_id, u64 key, u32 *ret)
{
	u64 truncated = 0, frame_class = 0;
	struct buf at = {};
	const struct jfr_wanted w[] = {
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

int jfr_read_thread(struct jfr_reader *f, u64 class_id, u64 key, u32 *ret)
{
	struct profile_thread t = {.comm = f->comm};
	u64 tid = 0;
	const struct jfr_wanted w[] = {
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
