/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads speedscope's JSON, sampled and evented. Each profile of the file becomes a process with the
 * profile's name, except in files by culprit, whose stacks begin with the process.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/vocab.h"
#include "format/internal.h"

#define READ_LIMIT_BYTES (1ULL << 30) /* JSON takes up to 20 times as much in memory */

struct speedscope_reader {
	struct profile *p; /* owned */
	struct diag *diag;
	const json_t *frames;
	vec(u32) frame_ids; /* by index in shared.frames */
	vec(u32) stack;	    /* current stack: indices in shared.frames, root first */
	vec(u32) ids;	    /* current stack: frames, leaf first */
	double scale;	    /* from the unit of the first profile */
	const char *unit;   /* of the first profile */
	bool process_first; /* a file by culprit: stacks begin with the process */
	u32 thread;	    /* of the current profile */
	double carry;	    /* remainder of weights that are not whole numbers */
};

static void reader_deinit(struct speedscope_reader *f)
{
	profile_destroy(f->p);
	vec_deinit(&f->frame_ids);
	vec_deinit(&f->stack);
	vec_deinit(&f->ids);
}

static int bad(struct speedscope_reader *f, const char *what)
{
	return diag_set(f->diag, -EBADMSG, "speedscope: %s", what);
}

static u32 u32_of(const json_t *o, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(o, key));

	return v > 0 && v <= 0xffffffffLL ? (u32)v : 0;
}

static int read_frame(struct speedscope_reader *f, const json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	const char *file = json_string_value(json_object_get(o, "file"));
	struct profile_frame frame;
	u32 id;
	int r;

	if (!name)
		return bad(f, "a frame has no name");
	r = profile_add_frame_text(f->p, name, strlen(name), &id);
	if (r < 0)
		return r;
	frame = f->p->frames.data[id];
	frame.line = u32_of(o, "line");
	frame.column = u32_of(o, "col");
	if (file && frame.function != PROFILE_NONE) {
		struct profile_function fn = f->p->functions.data[frame.function];

		r = profile_add_string(f->p, file, strlen(file), &fn.file);
		if (r == 0)
			r = profile_add_function(f->p, &fn, &frame.function);
	}
	if (r == 0)
		r = profile_add_frame(f->p, &frame, &id);
	return r < 0 ? r : vec_push(&f->frame_ids, id);
}

/* Adds the type of a profile's values. Converts units of time to nanoseconds. */
static int read_unit(struct speedscope_reader *f, const char *unit)
{
	const char *ours = vocab_unit(UNIT_COUNT);
	const char *type = vocab_sample_type(SAMPLE_TYPE_SAMPLES)->name;
	u64 per_second = unit ? vocab_per_second(unit) : 0;

	f->scale = 1;
	if (per_second) {
		type = "time";
		ours = vocab_unit(UNIT_NANOSECONDS);
		f->scale = (double)vocab_per_second(ours) / (double)per_second;
	} else if (unit && !strcmp(unit, vocab_unit(UNIT_BYTES))) {
		type = "space";
		ours = vocab_unit(UNIT_BYTES);
	} else if (!unit || strcmp(unit, "none") != 0) {
		return bad(f, "a profile has no known unit");
	}
	if (f->unit)
		return strcmp(ours, f->unit) ? bad(f, "its profiles have different units") : 0;
	f->unit = ours;
	return profile_add_type(f->p, type, ours);
}

/* Fractions are carried to the next sample, so that the sum stays right. */
static int whole(struct speedscope_reader *f, double weight, s64 *ret)
{
	weight = weight * f->scale + f->carry;
	if (!(weight > -9e18 && weight < 9e18))
		return bad(f, "a weight is not a number that can be");
	*ret = __builtin_llround(weight);
	f->carry = weight - (double)*ret;
	return 0;
}

/* Adds f->stack with `value`. */
static int add_sample(struct speedscope_reader *f, s64 value)
{
	u32 thread = f->thread, stack;
	size_t first = 0;
	int r = 0;

	if (f->process_first && f->stack.n) {
		const char *comm = json_string_value(
			json_object_get(json_array_get(f->frames, f->stack.data[0]), "name"));

		r = profile_add_comm(f->p, comm, strlen(comm), &thread);
		first = 1;
	}
	vec_clear(&f->ids);
	for (size_t i = f->stack.n; i > first && r == 0; i--)
		r = vec_push(&f->ids, f->frame_ids.data[f->stack.data[i - 1]]);
	if (r == 0)
		r = profile_add_stack(f->p, f->ids.data, f->ids.n, &stack);
	if (r == 0)
		r = profile_add_sample(f->p, 0, thread, stack, &value);
	return r == -ERANGE ? bad(f, "weights add up to more than 63 bits") : r;
}

static int frame_index(struct speedscope_reader *f, const json_t *v, u32 *ret)
{
	json_int_t i = json_integer_value(v);

	if (!json_is_integer(v) || i < 0 || (u64)i >= f->frame_ids.n)
		return bad(f, "a stack names a frame that is not there");
	*ret = (u32)i;
	return 0;
}

static int read_sampled(struct speedscope_reader *f, const json_t *profile)
{
	const json_t *samples = json_object_get(profile, "samples");
	const json_t *weights = json_object_get(profile, "weights");
	size_t n = json_array_size(samples);
	int r = 0;

	if (!json_is_array(samples) || !json_is_array(weights) || n != json_array_size(weights))
		return bad(f, "samples and weights are not equally many");
	for (size_t i = 0; i < n && r == 0; i++) {
		const json_t *stack = json_array_get(samples, i), *w = json_array_get(weights, i);
		u32 frame = 0;
		s64 value;

		if (!json_is_array(stack) || !json_is_number(w))
			return bad(f, "a sample is not a list of frames with a number");
		vec_clear(&f->stack);
		for (size_t k = 0; k < json_array_size(stack) && r == 0; k++) {
			r = frame_index(f, json_array_get(stack, k), &frame);
			if (r == 0)
				r = vec_push(&f->stack, frame);
		}
		/* A double cannot represent every whole number. */
		value = json_integer_value(w);
		if (r == 0 && (!json_is_integer(w) || f->scale != 1))
			r = whole(f, json_number_value(w), &value);
		if (r == 0)
			r = add_sample(f, value);
	}
	return r;
}

static int read_event(struct speedscope_reader *f, const json_t *event, double *last)
{
	const char *type = json_string_value(json_object_get(event, "type"));
	const json_t *at = json_object_get(event, "at");
	u32 frame = 0;
	s64 value;
	int r = frame_index(f, json_object_get(event, "frame"), &frame);

	if (r < 0)
		return r;
	if (!type || !json_is_number(at) || json_number_value(at) < *last)
		return bad(f, "an event is out of order or has no time");
	if (json_number_value(at) > *last && f->stack.n) {
		r = whole(f, json_number_value(at) - *last, &value);
		if (r == 0)
			r = add_sample(f, value);
	}
	*last = json_number_value(at);
	if (r < 0)
		return r;
	if (!strcmp(type, "O"))
		return vec_push(&f->stack, frame);
	if (strcmp(type, "C") != 0 || !f->stack.n || f->stack.data[f->stack.n - 1] != frame)
		return bad(f, "a frame is closed that is not the innermost one");
	f->stack.n--;
	return 0;
}

static int read_evented(struct speedscope_reader *f, const json_t *profile)
{
	const json_t *events = json_object_get(profile, "events");
	double last = json_number_value(json_object_get(profile, "startValue"));
	int r = 0;

	if (!json_is_array(events))
		return bad(f, "an evented profile has no events");
	vec_clear(&f->stack);
	for (size_t i = 0; i < json_array_size(events) && r == 0; i++)
		r = read_event(f, json_array_get(events, i), &last);
	if (r == 0 && f->stack.n)
		return bad(f, "a frame is never closed");
	return r;
}

static int read_profile(struct speedscope_reader *f, const json_t *profile)
{
	const char *type = json_string_value(json_object_get(profile, "type"));
	const char *name = json_string_value(json_object_get(profile, "name"));
	int r = read_unit(f, json_string_value(json_object_get(profile, "unit")));

	f->thread = PROFILE_NONE;
	if (r == 0 && !f->process_first && name && *name)
		r = profile_add_comm(f->p, name, strlen(name), &f->thread);
	if (r < 0)
		return r;
	if (type && !strcmp(type, "sampled"))
		return read_sampled(f, profile);
	if (type && !strcmp(type, "evented"))
		return read_evented(f, profile);
	return bad(f, "a profile is neither sampled nor evented");
}

static int read_root(struct speedscope_reader *f, const json_t *root)
{
	const json_t *profiles = json_object_get(root, "profiles");
	const char *exporter = json_string_value(json_object_get(root, "exporter"));
	const char *name = json_string_value(json_object_get(root, "name"));
	int r = 0;

	f->frames = json_object_get(json_object_get(root, "shared"), "frames");
	f->process_first = exporter && str_starts(exporter, "culprit@");
	if (!json_is_array(f->frames) || !json_is_array(profiles) || !json_array_size(profiles))
		return bad(f, "has no shared.frames or no profiles");
	for (size_t i = 0; i < json_array_size(f->frames) && r == 0; i++)
		r = read_frame(f, json_array_get(f->frames, i));
	for (size_t i = 0; i < json_array_size(profiles) && r == 0; i++)
		r = read_profile(f, json_array_get(profiles, i));
	if (r == 0 && name)
		r = profile_add_string(f->p, name, strlen(name), &f->p->title);
	if (r == 0)
		profile_derive_quality(f->p);
	return r;
}

int speedscope_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(reader_deinit))) struct speedscope_reader f = {.p = profile_create(),
									      .diag = reterr_diag};
	json_t *root = NULL;
	int r;

	if (!f.p)
		return -ENOMEM;
	if (n > READ_LIMIT_BYTES)
		return diag_set(reterr_diag, -EFBIG, "speedscope: more than %llu MiB",
				READ_LIMIT_BYTES >> 20);
	r = json_read((const char *)data, n, 0, &root, reterr_diag);
	if (r < 0)
		return r;
	r = read_root(&f, root);
	json_decref(root);
	if (r < 0)
		return r;
	*ret = take_ptr(f.p);
	return 0;
}

/* The file names its schema, or has the two members that no other format has together. */
int speedscope_probe(const u8 *data, size_t n)
{
	if (!data || profile_first_char(data, n) != '{')
		return 0;
	if (memmem(data, MIN(n, (size_t)4096), "speedscope", 10))
		return 90;
	return memmem(data, n, "\"profiles\"", 10) && memmem(data, n, "\"frames\"", 8) ? 40 : 0;
}
