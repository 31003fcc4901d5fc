/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the Firefox Profiler's processed format: what its page saves and uploads, and what culprit
 * writes (firefox_write.c). Tables are in each thread, or in `shared` since version 50 or so; a
 * table that a thread lacks is looked for there. What Firefox itself records is another format,
 * which its page converts to this one when it loads it.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/quota.h"
#include "base/vocab.h"
#include "format/internal.h"

#define READ_LIMIT_BYTES (1ULL << 30) /* JSON takes up to 20 times as much in memory */
#define MAX_DEPTH 65536
/*
 * Stacks share their prefixes, and written out they may be huge. Frames of all stacks together, for
 * each byte of the file, and what small files may have.
 */
#define FRAMES_PER_BYTE 16
#define FRAMES_AT_LEAST (1u << 20)

struct firefox_reader {
	struct profile *p; /* owned */
	struct diag *diag;
	const json_t *root;
	const json_t *thread; /* the current one, with its tables: */
	const json_t *texts, *stacks, *frames, *funcs, *resources;
	u32 thread_id;
	vec(u32) ids; /* of each frame of the thread, in the profile; PROFILE_NONE: not added yet */
	vec(u32) stack;
	u64 n_frames, max_frames; /* of all stacks so far */
	double carry;		  /* remainder of weights that are not whole numbers */
};

static void reader_deinit(struct firefox_reader *f)
{
	profile_destroy(f->p);
	vec_deinit(&f->ids);
	vec_deinit(&f->stack);
}

static int bad(const struct firefox_reader *f, const char *what)
{
	return diag_set(f->diag, -EBADMSG, "firefox: %s", what);
}

/* ---- tables: objects of columns ---- */

static const json_t *table(const struct firefox_reader *f, const char *name)
{
	const json_t *t = json_object_get(f->thread, name);

	return t ? t : json_object_get(json_object_get(f->root, "shared"), name);
}

static const json_t *cell(const json_t *t, const char *column, size_t row)
{
	return json_array_get(json_object_get(t, column), row);
}

/* A number from 0 that is below `n`, else PROFILE_NONE: null, -1, or damage. */
static u32 index_of(const json_t *v, size_t n)
{
	json_int_t i = json_is_integer(v) ? json_integer_value(v) : -1;

	return i >= 0 && (u64)i < n && i < PROFILE_NONE ? (u32)i : PROFILE_NONE;
}

static u32 number_of(const json_t *v)
{
	return index_of(v, PROFILE_NONE) == PROFILE_NONE ? 0 : index_of(v, PROFILE_NONE);
}

static size_t rows(const json_t *t, const char *column)
{
	return json_array_size(json_object_get(t, column));
}

static const char *text_at(const struct firefox_reader *f, const json_t *v)
{
	const char *s = json_string_value(json_array_get(f->texts, index_of(v, ~0ULL)));

	return s ? s : "";
}

/* ---- frames ---- */

static const char *category_of(const struct firefox_reader *f, const json_t *v)
{
	const json_t *all = json_object_get(json_object_get(f->root, "meta"), "categories");
	const char *name = json_string_value(
		json_object_get(json_array_get(all, index_of(v, json_array_size(all))), "name"));

	return name ? name : "";
}

static u8 kind_of(const struct firefox_reader *f, u32 frame, u32 func)
{
	const char *category = category_of(f, cell(f->frames, "category", frame));

	if (json_is_true(cell(f->funcs, "isJS", func)))
		return FRAME_JAVASCRIPT;
	if (!strcmp(category, "Kernel"))
		return FRAME_KERNEL;
	if (!strcmp(category, "JIT"))
		return FRAME_JIT;
	return FRAME_NATIVE;
}

/* The library of a function. */
static int add_mapping(struct firefox_reader *f, u32 func, u32 *ret)
{
	const json_t *libs = json_object_get(f->root, "libs");
	u32 resource = index_of(cell(f->funcs, "resource", func), rows(f->resources, "lib"));
	const json_t *lib = json_array_get(
		libs, index_of(cell(f->resources, "lib", resource), json_array_size(libs)));
	const char *path = json_string_value(json_object_get(lib, "path"));
	const char *build_id = json_string_value(json_object_get(lib, "codeId"));
	struct profile_mapping m = {};
	int r;

	if (!path)
		path = json_string_value(json_object_get(lib, "name"));
	if (!path || !*path)
		return 0;
	r = profile_add_string(f->p, path, strlen(path), &m.path);
	if (r == 0 && build_id)
		r = profile_add_string(f->p, build_id, strlen(build_id), &m.build_id);
	return r < 0 ? r : profile_add_mapping(f->p, &m, ret);
}

static int add_function(struct firefox_reader *f, u32 func, const char *name, u32 *ret)
{
	const char *file = text_at(f, cell(f->funcs, "fileName", func));
	struct profile_function fn = {.start_line = number_of(cell(f->funcs, "lineNumber", func))};
	int r = profile_add_string(f->p, name, strlen(name), &fn.name);

	fn.system_name = fn.name;
	if (r == 0)
		r = profile_add_string(f->p, file, strlen(file), &fn.file);
	return r < 0 ? r : profile_add_function(f->p, &fn, ret);
}

static int add_frame(struct firefox_reader *f, u32 frame, u32 *ret)
{
	u32 func = index_of(cell(f->frames, "func", frame), rows(f->funcs, "name"));
	const char *name = text_at(f, cell(f->funcs, "name", func));
	struct profile_frame row = {.mapping = PROFILE_NONE,
				    .function = PROFILE_NONE,
				    .line = number_of(cell(f->frames, "line", frame)),
				    .column = number_of(cell(f->frames, "column", frame))};
	size_t path_n;
	int r;

	if (func == PROFILE_NONE)
		return bad(f, "a frame has no function");
	if (!strncmp(name, "[truncated:", strlen("[truncated:")))
		return profile_add_note(f->p, name, ret);
	row.kind = kind_of(f, frame, func);
	if (number_of(cell(f->frames, "inlineDepth", frame)))
		row.flags = PROFILE_FRAME_INLINED;
	r = add_mapping(f, func, &row.mapping);
	if (r < 0)
		return r;
	if (row.mapping != PROFILE_NONE &&
	    profile_split_address(name, strlen(name), &path_n, &row.address))
		;
	else if (!*name || !strcmp(name, "[unknown]"))
		row.kind = row.kind == FRAME_NATIVE ? FRAME_UNKNOWN : row.kind;
	else
		r = add_function(f, func, name, &row.function);
	return r < 0 ? r : profile_add_frame(f->p, &row, ret);
}

/* ---- samples ---- */

/* The leaf that says what the sample waited for, by the category of its stack, if it did. */
static int push_wait(struct firefox_reader *f, u32 at)
{
	_cleanup_str_ struct str wait = {};
	u32 frame;
	int r;

	str_printf(&wait, "[%s]", category_of(f, cell(f->stacks, "category", at)));
	if (!vocab_wait_by_frame(str_get(&wait), wait.n))
		return 0;
	r = profile_add_frame_text(f->p, wait.data, wait.n, &frame);
	return r < 0 ? r : vec_push(&f->stack, frame);
}

static int push_frames(struct firefox_reader *f, u32 at)
{
	int r = 0;

	while (at != PROFILE_NONE && r == 0) {
		u32 i = index_of(cell(f->stacks, "frame", at), f->ids.n);

		if (i == PROFILE_NONE || f->stack.n > MAX_DEPTH)
			return bad(f, "a stack has a frame that is not there, or too many");
		if (f->ids.data[i] == PROFILE_NONE)
			r = add_frame(f, i, &f->ids.data[i]);
		if (r == 0)
			r = vec_push(&f->stack, f->ids.data[i]);
		/* A stack stands behind its prefix: there are no circles. */
		at = index_of(cell(f->stacks, "prefix", at), at);
	}
	return r;
}

static int add_stack(struct firefox_reader *f, u32 at, u32 *ret)
{
	int r = quota_check(f->diag);

	vec_clear(&f->stack);
	if (r == 0 && at != PROFILE_NONE)
		r = push_wait(f, at);
	if (r == 0)
		r = push_frames(f, at);
	f->n_frames += f->stack.n;
	if (r == 0 && f->n_frames > f->max_frames)
		return diag_set(f->diag, -EFBIG, "firefox: its stacks are too deep for its size");
	return r < 0 ? r : profile_add_stack(f->p, f->stack.data, f->stack.n, ret);
}

/* Fractions are carried to the next sample, so that the sum stays right. */
static int weight_of(struct firefox_reader *f, const json_t *v, double scale, s64 *ret)
{
	double weight = json_is_number(v) ? json_number_value(v) * scale + f->carry : 1;

	if (json_is_integer(v) && scale == 1) {
		*ret = json_integer_value(v);
		return 0;
	}
	if (!(weight > -9e18 && weight < 9e18))
		return bad(f, "a weight is not a number that can be");
	*ret = __builtin_llround(weight);
	f->carry = weight - (double)*ret;
	return 0;
}

/* The times of samples are milliseconds since meta.startTime. */
static u64 time_of(const struct firefox_reader *f, const json_t *v)
{
	double start =
		json_number_value(json_object_get(json_object_get(f->root, "meta"), "startTime"));
	double ms = json_number_value(v) + start;

	return start > 0 && ms > 0 && ms < 1e13 ? (u64)(ms * 1e6) : 0;
}

static int read_samples(struct firefox_reader *f, const json_t *samples, double scale)
{
	size_t n = rows(samples, "stack");
	bool has_weights = json_is_array(json_object_get(samples, "weight"));
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		u32 at = index_of(cell(samples, "stack", i), rows(f->stacks, "frame")), stack;
		s64 value = 1;

		if (at == PROFILE_NONE && !has_weights)
			continue; /* nothing was sampled then */
		r = has_weights ? weight_of(f, cell(samples, "weight", i), scale, &value) : 0;
		if (r == 0)
			r = add_stack(f, at, &stack);
		if (r == 0)
			r = profile_add_sample(f->p, time_of(f, cell(samples, "time", i)),
					       f->thread_id, stack, &value);
	}
	return r == -ERANGE ? bad(f, "weights add up to more than 63 bits") : r;
}

/* ---- threads ---- */

static u32 id_of(const json_t *v)
{
	u64 id = 0;

	if (json_is_string(v) && str_to_u64(json_string_value(v), 10, &id) == 0)
		return id <= INT32_MAX ? (u32)id : 0;
	return number_of(v);
}

static int add_thread(struct firefox_reader *f)
{
	const char *name = json_string_value(json_object_get(f->thread, "name"));
	const char *process = json_string_value(json_object_get(f->thread, "processName"));
	struct profile_thread t = {.pid = id_of(json_object_get(f->thread, "pid")),
				   .tid = id_of(json_object_get(f->thread, "tid"))};
	int r;

	if (!process || !*process)
		process = name ? name : "";
	r = profile_add_string(f->p, process, strlen(process), &t.comm);
	if (r == 0 && name)
		r = profile_add_string(f->p, name, strlen(name), &t.thread_name);
	return r < 0 ? r : profile_add_thread(f->p, &t, &f->thread_id);
}

/* What weights count, which is the same in all threads of a file. */
static int add_type(struct firefox_reader *f, const json_t *samples, double *ret_scale)
{
	const char *weights = json_string_value(json_object_get(samples, "weightType"));
	const char *name = vocab_sample_type(SAMPLE_TYPE_SAMPLES)->name;
	enum unit unit = UNIT_COUNT;

	*ret_scale = 1;
	if (weights && !strcmp(weights, "tracing-ms")) {
		name = "time";
		unit = UNIT_NANOSECONDS;
		*ret_scale = 1e6;
	} else if (weights && !strcmp(weights, vocab_unit(UNIT_BYTES))) {
		name = "space";
		unit = UNIT_BYTES;
	}
	if (!f->p->n_types)
		return profile_add_type(f->p, name, vocab_unit(unit));
	return strcmp(profile_string(f->p, f->p->types[0].unit), vocab_unit(unit)) != 0
		       ? bad(f, "its threads have different units")
		       : 0;
}

static int read_thread(struct firefox_reader *f, const json_t *thread)
{
	const json_t *samples = json_object_get(thread, "samples");
	double scale;
	int r;

	f->thread = thread;
	f->stacks = table(f, "stackTable");
	f->frames = table(f, "frameTable");
	f->funcs = table(f, "funcTable");
	f->resources = table(f, "resourceTable");
	f->texts = table(f, "stringArray");
	if (!json_is_object(samples))
		return 0; /* markers only */
	if (json_object_get(samples, "schema") || !json_is_array(f->texts))
		return bad(f, "is not in the processed format: open it at profiler.firefox.com and "
			      "save it from there");
	vec_clear(&f->ids);
	for (size_t i = 0; i < rows(f->frames, "func"); i++)
		if (vec_push(&f->ids, PROFILE_NONE) < 0)
			return -ENOMEM;
	r = add_type(f, samples, &scale);
	if (r == 0)
		r = add_thread(f);
	return r < 0 ? r : read_samples(f, samples, scale);
}

static int read_root(struct firefox_reader *f)
{
	const json_t *threads = json_object_get(f->root, "threads");
	const json_t *meta = json_object_get(f->root, "meta");
	const char *product = json_string_value(json_object_get(meta, "product"));
	int r = 0;

	if (!json_is_array(threads) || !json_is_object(meta))
		return bad(f, "has no threads or no meta");
	for (size_t i = 0; i < json_array_size(threads) && r == 0; i++)
		r = read_thread(f, json_array_get(threads, i));
	if (r == 0 && !f->p->n_types)
		r = profile_add_type(f->p, vocab_sample_type(SAMPLE_TYPE_SAMPLES)->name,
				     vocab_unit(UNIT_COUNT));
	if (r == 0 && product)
		r = profile_add_string(f->p, product, strlen(product), &f->p->title);
	if (r == 0)
		profile_derive_quality(f->p);
	return r;
}

int firefox_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(reader_deinit))) struct firefox_reader f = {.p = profile_create(),
									   .diag = reterr_diag};
	json_t *root = NULL;
	int r;

	if (!f.p)
		return -ENOMEM;
	if (n > READ_LIMIT_BYTES)
		return diag_set(reterr_diag, -EFBIG, "firefox: more than %llu MiB",
				READ_LIMIT_BYTES >> 20);
	r = json_read((const char *)data, n, 0, &root, reterr_diag);
	if (r < 0)
		return r;
	f.root = root;
	f.max_frames = FRAMES_AT_LEAST + FRAMES_PER_BYTE * (u64)n;
	r = read_root(&f);
	json_decref(root);
	if (r < 0)
		return r;
	*ret = take_ptr(f.p);
	return 0;
}

/* No other format has threads with a meta. */
int firefox_probe(const u8 *data, size_t n)
{
	if (!data || profile_first_char(data, n) != '{')
		return 0;
	if (!memmem(data, n, "\"threads\"", 9) || !memmem(data, n, "\"meta\"", 6))
		return 0;
	return memmem(data, n, "preprocessedProfileVersion", 26) ? 85 : 30;
}
