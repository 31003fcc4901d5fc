/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads CPU profiles of V8: .cpuprofile of Node.js and Chrome, with a list or (before 2016) a tree
 * of nodes, and traces of Chrome (traceEvents), which have a profile in the event CpuProfile or in
 * an event Profile and many ProfileChunk. Each profile of a trace becomes a thread.
 *
 * A sample lasts until the next one. Time in (idle) is left out, and the title tells how much.
 * (garbage collector) and (program) belong to no caller in the file: they are put on the stack that
 * ran before, as Chrome's own page does. doc/format/others.md
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
#define MAX_TRACKS 256
#define MAX_US 9e12 /* of the clock of a file: a hundred days */

enum node_kind { NODE_CODE, NODE_ROOT, NODE_IDLE, NODE_ON_TOP };

struct node {
	u64 parent; /* id; ~0: none, or not known yet */
	u64 hits;
	u32 frame;
	u32 stack; /* PROFILE_NONE: not added yet */
	enum node_kind kind;
};

/* One profile: of a .cpuprofile the only one. */
struct track {
	u64 pid, tid;
	const char *id; /* borrowed from the JSON; or NULL */
	vec(struct node) nodes;
	struct map by_id;  /* id → index in nodes */
	vec(u64) samples;  /* ids of nodes */
	vec(double) times; /* of samples, µs; or none */
	double end;	   /* µs; 0 = not known */
	double clock;	   /* µs, the latest sample */
};

struct chrome_reader {
	struct profile *p; /* owned */
	struct diag *diag;
	const json_t *events; /* of a trace; or NULL */
	vec(struct track) tracks;
	vec(u32) open; /* the current stack: indices of nodes, root first */
	vec(u32) ids;  /* the same as frames, leaf first */
	u64 n_frames, max_frames;
	u64 idle_ns, idle_samples;
	u64 lost; /* samples of nodes that are not there */
	bool timed;
};

static void reader_deinit(struct chrome_reader *f)
{
	vec_foreach (&f->tracks, t) {
		vec_deinit(&t->nodes);
		vec_deinit(&t->samples);
		vec_deinit(&t->times);
		map_deinit(&t->by_id);
	}
	vec_deinit(&f->tracks);
	vec_deinit(&f->open);
	vec_deinit(&f->ids);
	profile_destroy(f->p);
}

static int bad(const struct chrome_reader *f, const char *what)
{
	return diag_set(f->diag, -EBADMSG, "CPU profile of Chrome: %s", what);
}

/* A whole number from 0 on that a map can have as a key; else ~0. */
static u64 id_of(const json_t *v)
{
	double i = json_is_number(v) ? json_number_value(v) : -1;

	return i >= 0 && i < 1e15 && i == floor(i) ? (u64)i : ~0ULL;
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* ---- nodes ---- */

static enum node_kind kind_of(const char *name)
{
	if (!strcmp(name, "(root)"))
		return NODE_ROOT;
	if (!strcmp(name, "(idle)"))
		return NODE_IDLE;
	return !strcmp(name, "(program)") || !strcmp(name, "(garbage collector)") ? NODE_ON_TOP
										  : NODE_CODE;
}

/* Lines in the file count from 0. */
static u32 line_of(const json_t *call)
{
	double line = json_number_value(json_object_get(call, "lineNumber"));

	return line >= 0 && line < INT32_MAX ? (u32)line + 1 : 0;
}

static int add_frame(struct chrome_reader *f, const json_t *call, struct node *node)
{
	const char *name = text_of(call, "functionName"), *url = text_of(call, "url");
	_cleanup_str_ struct str made = {};
	struct profile_source s = {
		.file = url, .file_n = strlen(url), .start_line = *url ? line_of(call) : 0};

	node->kind = kind_of(name);
	if (!*name && *url)
		str_printf(&made, "(anonymous %s:%u)", profile_basename(url), s.start_line);
	s.name = made.n ? str_get(&made) : *name ? name : "(anonymous)";
	s.name_n = strlen(s.name);
	s.kind = s.name[0] == '(' && !*url ? FRAME_NATIVE : FRAME_JAVASCRIPT;
	return profile_add_source_frame(f->p, &s, &node->frame);
}

/* A node with its function; its children are told by id, or are nodes in it (the old form). */
static int add_node(struct chrome_reader *f, struct track *t, const json_t *o, u64 parent)
{
	const json_t *call = json_object_get(o, "callFrame");
	struct node node = {.parent = parent, .stack = PROFILE_NONE};
	u64 id = id_of(json_object_get(o, "id")), hits = id_of(json_object_get(o, "hitCount"));
	int r;

	if (id >= MAP_GONE_KEY || map_get(&t->by_id, id))
		return bad(f, "a node has no id, or that of another node");
	if (json_is_number(json_object_get(o, "parent")))
		node.parent = id_of(json_object_get(o, "parent"));
	node.hits = hits == ~0ULL ? 0 : hits;
	r = add_frame(f, call ? call : o, &node);
	if (r == 0)
		r = map_put(&t->by_id, id, t->nodes.n);
	return r < 0 ? r : vec_push(&t->nodes, node);
}

static int add_nodes(struct chrome_reader *f, struct track *t, const json_t *nodes)
{
	int r = 0;

	for (size_t i = 0; i < json_array_size(nodes) && r == 0; i++)
		r = add_node(f, t, json_array_get(nodes, i), ~0ULL);
	for (size_t i = 0; i < json_array_size(nodes) && r == 0; i++) {
		const json_t *o = json_array_get(nodes, i),
			     *children = json_object_get(o, "children");

		for (size_t k = 0; k < json_array_size(children); k++) {
			u64 child = id_of(json_array_get(children, k));
			u64 *at = child < MAP_GONE_KEY ? map_get(&t->by_id, child) : NULL;

			if (at)
				t->nodes.data[*at].parent = id_of(json_object_get(o, "id"));
		}
	}
	return r;
}

struct pending {
	const json_t *node;
	u64 parent;
};

static int add_tree(struct chrome_reader *f, struct track *t, const json_t *head)
{
	vec(struct pending) todo = {};
	struct pending first = {head, ~0ULL};
	int r = vec_push(&todo, first);

	while (r == 0 && todo.n) {
		struct pending at = todo.data[--todo.n];
		const json_t *children = json_object_get(at.node, "children");
		struct pending next = {.parent = id_of(json_object_get(at.node, "id"))};

		r = add_node(f, t, at.node, at.parent);
		for (size_t i = 0; i < json_array_size(children) && r == 0; i++) {
			next.node = json_array_get(children, i);
			r = vec_push(&todo, next);
		}
	}
	vec_deinit(&todo);
	return r;
}

/* ---- samples of a track ---- */

static int add_samples(struct chrome_reader *f, struct track *t, const json_t *samples)
{
	int r = 0;

	for (size_t i = 0; i < json_array_size(samples) && r == 0; i++)
		r = vec_push(&t->samples, id_of(json_array_get(samples, i)));
	return r < 0 ? bad(f, "out of memory") : 0;
}

/* Times between samples (timeDeltas), or of them (timestamps). */
static int add_times(struct chrome_reader *f, struct track *t, const json_t *times, bool deltas)
{
	int r = 0;

	for (size_t i = 0; i < json_array_size(times) && r == 0; i++) {
		double v = json_number_value(json_array_get(times, i));

		t->clock = deltas ? t->clock + v : v;
		if (!(fabs(t->clock) < 1e3 * MAX_US))
			return bad(f, "a time is not a number that can be");
		r = vec_push(&t->times, t->clock);
	}
	return r;
}

/* What a .cpuprofile and the parts of a trace have. */
static int add_part(struct chrome_reader *f, struct track *t, const json_t *o)
{
	const json_t *head = json_object_get(o, "head");
	int r = add_nodes(f, t, json_object_get(o, "nodes"));

	if (r == 0 && head)
		r = add_tree(f, t, head);
	if (r == 0)
		r = add_samples(f, t, json_object_get(o, "samples"));
	if (r == 0)
		r = add_times(f, t, json_object_get(o, "timeDeltas"), true);
	if (r == 0)
		r = add_times(f, t, json_object_get(o, "timestamps"), false);
	return r;
}

/* ---- traces ---- */

static struct track *find_track(struct chrome_reader *f, const json_t *event)
{
	u64 pid = id_of(json_object_get(event, "pid")), tid = id_of(json_object_get(event, "tid"));
	const char *id = json_string_value(json_object_get(event, "id"));

	vec_foreach (&f->tracks, t)
		if (t->pid == pid && str_same(t->id, id) && (id || t->tid == tid))
			return t;
	return NULL;
}

/* Adds the track if it is not there: *ret is borrowed until the next call. */
static int get_track(struct chrome_reader *f, const json_t *event, struct track **ret)
{
	struct track new = {.pid = id_of(json_object_get(event, "pid")),
			    .tid = id_of(json_object_get(event, "tid")),
			    .id = json_string_value(json_object_get(event, "id"))};
	int r = 0;

	*ret = find_track(f, event);
	if (*ret)
		return 0;
	if (f->tracks.n == MAX_TRACKS)
		return bad(f, "too many profiles in it");
	r = vec_push(&f->tracks, new);
	if (r == 0)
		*ret = &f->tracks.data[f->tracks.n - 1];
	return r;
}

static int read_event(struct chrome_reader *f, const json_t *event)
{
	const json_t *data = json_object_get(json_object_get(event, "args"), "data");
	const json_t *part = json_object_get(data, "cpuProfile");
	struct track *t;
	int r = quota_check(f->diag);

	if (r < 0 || !data)
		return r;
	r = get_track(f, event, &t);
	if (r == 0 && !strcmp(text_of(event, "name"), "Profile"))
		t->clock = json_number_value(json_object_get(data, "startTime"));
	if (r == 0 && !t->times.n && !t->clock)
		t->clock = json_number_value(json_object_get(part, "startTime"));
	if (r == 0 && part)
		r = add_part(f, t, part);
	if (r == 0 && json_object_get(data, "timeDeltas"))
		r = add_times(f, t, json_object_get(data, "timeDeltas"), true);
	if (r == 0 && json_object_get(part, "endTime"))
		t->end = json_number_value(json_object_get(part, "endTime"));
	if (r == 0 && json_object_get(data, "endTime"))
		t->end = json_number_value(json_object_get(data, "endTime"));
	return r;
}

static int by_time(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	double dx = json_number_value(json_object_get(x, "ts"));
	double dy = json_number_value(json_object_get(y, "ts"));

	return dx != dy ? (dx > dy) - (dx < dy) : (x > y) - (x < y);
}

static bool is_profile_event(const json_t *event)
{
	const char *name = text_of(event, "name");

	return !strcmp(name, "Profile") || !strcmp(name, "ProfileChunk") ||
	       !strcmp(name, "CpuProfile");
}

static int read_events(struct chrome_reader *f)
{
	vec(const json_t *) parts = {};
	int r = 0;

	for (size_t i = 0; i < json_array_size(f->events) && r == 0; i++)
		if (is_profile_event(json_array_get(f->events, i)))
			r = vec_push(&parts, json_array_get(f->events, i));
	if (r == 0 && !parts.n)
		r = bad(f, "the trace has none: record it with the category "
			   "disabled-by-default-v8.cpu_profiler");
	if (r == 0)
		qsort(parts.data, parts.n, sizeof(*parts.data), by_time);
	for (size_t i = 0; i < parts.n && r == 0; i++)
		r = read_event(f, parts.data[i]);
	vec_deinit(&parts);
	return r;
}

/* What the event thread_name or process_name of the trace says, or NULL. */
static const char *name_of(const struct chrome_reader *f, const struct track *t, const char *event)
{
	bool thread = !strcmp(event, "thread_name");

	for (size_t i = 0; i < json_array_size(f->events); i++) {
		const json_t *o = json_array_get(f->events, i);

		if (!strcmp(text_of(o, "name"), event) &&
		    id_of(json_object_get(o, "pid")) == t->pid &&
		    (!thread || id_of(json_object_get(o, "tid")) == t->tid))
			return json_string_value(
				json_object_get(json_object_get(o, "args"), "name"));
	}
	return NULL;
}

static int add_thread(struct chrome_reader *f, const struct track *t, u32 *ret)
{
	const char *thread = name_of(f, t, "thread_name"), *process = name_of(f, t, "process_name");
	struct profile_thread row = {.pid = t->pid <= INT32_MAX ? (u32)t->pid : 0,
				     .tid = t->tid <= INT32_MAX ? (u32)t->tid : 0};
	int r = 0;

	if (!f->events)
		return 0;
	if (!process || !*process)
		process = thread && *thread ? thread : "chrome";
	r = profile_add_string(f->p, process, strlen(process), &row.comm);
	if (r == 0 && thread)
		r = profile_add_string(f->p, thread, strlen(thread), &row.thread_name);
	return r < 0 ? r : profile_add_thread(f->p, &row, ret);
}

/* ---- stacks ---- */

static int open_callers(struct chrome_reader *f, const struct track *t, u32 at)
{
	int r = 0;

	vec_clear(&f->open);
	for (;;) {
		const struct node *node = &t->nodes.data[at];
		u64 *parent = node->parent < MAP_GONE_KEY ? map_get(&t->by_id, node->parent) : NULL;

		/* A sample of the root itself has no other frame. */
		if (node->kind != NODE_ROOT || !f->open.n)
			r = vec_push(&f->open, at);
		if (r < 0 || !parent)
			break;
		if (f->open.n > t->nodes.n)
			return bad(f, "a node is its own caller");
		at = (u32)*parent;
	}
	for (size_t i = 0; i < f->open.n / 2; i++) {
		u32 swap = f->open.data[i];

		f->open.data[i] = f->open.data[f->open.n - 1 - i];
		f->open.data[f->open.n - 1 - i] = swap;
	}
	return r;
}

/* Puts the node on the stack that ran before, or goes back to where the stack has it already. */
static int open_on_top(struct chrome_reader *f, u32 at)
{
	for (size_t i = f->open.n; i > 0; i--)
		if (f->open.data[i - 1] == at) {
			f->open.n = i;
			return 0;
		}
	return vec_push(&f->open, at);
}

/* The stack of f->open. */
static int add_stack(struct chrome_reader *f, const struct track *t, u32 *ret)
{
	int r = 0;

	vec_clear(&f->ids);
	for (size_t i = f->open.n; i > 0 && r == 0; i--)
		r = vec_push(&f->ids, t->nodes.data[f->open.data[i - 1]].frame);
	f->n_frames += f->ids.n;
	if (f->n_frames > f->max_frames)
		return diag_set(f->diag, -EFBIG,
				"CPU profile of Chrome: its stacks are too deep for its size");
	return r < 0 ? r : profile_add_stack(f->p, f->ids.data, f->ids.n, ret);
}

/* The stack of a sample of this node. */
static int stack_of(struct chrome_reader *f, struct track *t, u32 at, u32 *ret)
{
	struct node *node = &t->nodes.data[at];
	int r;

	if (node->kind == NODE_ON_TOP) {
		r = open_on_top(f, at);
		return r < 0 ? r : add_stack(f, t, ret);
	}
	r = open_callers(f, t, at);
	if (r == 0 && node->stack == PROFILE_NONE)
		r = add_stack(f, t, &node->stack);
	*ret = node->stack;
	return r;
}

static int add_sample(struct chrome_reader *f, struct track *t, u32 thread, u32 at, s64 count,
		      s64 ns)
{
	s64 values[2] = {count, ns};
	u32 stack = 0;
	int r;

	if (t->nodes.data[at].kind == NODE_IDLE) {
		vec_clear(&f->open);
		f->idle_ns += (u64)ns;
		f->idle_samples += (u64)count;
		return 0;
	}
	r = stack_of(f, t, at, &stack);
	if (r == 0)
		r = profile_add_sample(f->p, 0, thread, stack, values);
	return r == -ERANGE ? bad(f, "its values add up to more than 63 bits") : r;
}

/* Until the next sample; times that go back are those of the sample before, as in Chrome. */
static s64 lasts_ns(struct track *t, size_t i, double *latest)
{
	double end, begin;

	if (i >= t->times.n)
		return 0;
	begin = *latest = i ? fmax(*latest, t->times.data[i]) : t->times.data[0];
	end = i + 1 < t->times.n && i + 1 < t->samples.n ? t->times.data[i + 1] : t->end;
	end = fmax(end, begin);
	return end - begin < MAX_US ? __builtin_llround(1e3 * end) - __builtin_llround(1e3 * begin)
				    : 0;
}

static int read_track(struct chrome_reader *f, struct track *t)
{
	u32 thread = PROFILE_NONE;
	double latest = 0;
	int r = add_thread(f, t, &thread);

	vec_clear(&f->open);
	for (size_t i = 0; i < t->samples.n && r == 0; i++) {
		u64 id = t->samples.data[i],
		    *at = id < MAP_GONE_KEY ? map_get(&t->by_id, id) : NULL;
		s64 ns = lasts_ns(t, i, &latest);

		if (!at)
			f->lost++;
		else
			r = add_sample(f, t, thread, (u32)*at, 1, ns);
	}
	/* Old files tell only how often each node was sampled. */
	for (size_t i = 0; i < t->nodes.n && !t->samples.n && r == 0; i++)
		if (t->nodes.data[i].hits && t->nodes.data[i].hits <= INT32_MAX)
			r = add_sample(f, t, thread, (u32)i, (s64)t->nodes.data[i].hits, 0);
	return r;
}

/* ---- the file ---- */

static int add_types(struct chrome_reader *f)
{
	const char *type = "time";
	int r = profile_add_table_type(f->p, SAMPLE_TYPE_SAMPLES);

	vec_foreach (&f->tracks, t)
		f->timed |= t->times.n > 0;
	if (r < 0 || !f->timed)
		return r;
	f->p->default_type = 1;
	return profile_add_type(f->p, type, vocab_unit(UNIT_NANOSECONDS));
}

static int finish(struct chrome_reader *f)
{
	_cleanup_str_ struct str title = {};
	const char *unit = vocab_unit(f->timed ? UNIT_NANOSECONDS : UNIT_COUNT);

	if (f->lost)
		(void)diag_set(
			f->diag, 0,
			"CPU profile of Chrome: samples left out, whose node is missing: %llu",
			(unsigned long long)f->lost);
	profile_derive_quality(f->p);
	if (!f->idle_samples)
		return 0;
	str_puts(&title, "idle left out: ");
	text_append_value(&title, (s64)(f->timed ? f->idle_ns : f->idle_samples), unit);
	str_puts(&title, f->timed ? "" : " samples");
	return profile_add_string(f->p, str_get(&title), title.n, &f->p->title);
}

static int read_root(struct chrome_reader *f, const json_t *root)
{
	struct track only = {};
	int r;

	f->events = json_is_array(root) ? root : json_object_get(root, "traceEvents");
	if (f->events) {
		r = read_events(f);
	} else {
		only.clock = json_number_value(json_object_get(root, "startTime"));
		only.end = json_number_value(json_object_get(root, "endTime"));
		if (json_object_get(root, "head")) { /* in seconds there */
			only.clock *= 1e6;
			only.end *= 1e6;
		}
		r = vec_push(&f->tracks, only);
		if (r == 0)
			r = add_part(f, &f->tracks.data[0], root);
		if (r == 0 && !f->tracks.data[0].nodes.n)
			r = bad(f, "has no nodes");
	}
	if (r == 0)
		r = add_types(f);
	for (size_t i = 0; i < f->tracks.n && r == 0; i++)
		r = read_track(f, &f->tracks.data[i]);
	return r < 0 ? r : finish(f);
}

int chrome_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(reader_deinit))) struct chrome_reader f = {
		.p = profile_create(), .diag = reterr_diag, .max_frames = profile_max_frames(n)};
	json_t *root = NULL;
	int r;

	if (!f.p)
		return -ENOMEM;
	if (n > READ_LIMIT_BYTES)
		return diag_set(reterr_diag, -EFBIG, "CPU profile of Chrome: more than %llu MiB",
				READ_LIMIT_BYTES >> 20);
	/* Other events of a trace have addresses that are no s64. */
	r = json_read((const char *)data, n, JSON_DECODE_INT_AS_REAL, &root, reterr_diag);
	if (r < 0)
		return r;
	r = read_root(&f, root);
	json_decref(root);
	if (r == 0)
		*ret = take_ptr(f.p);
	return r;
}

int chrome_probe(const u8 *data, size_t n)
{
	char first = data ? profile_first_char(data, n) : '\0';

	if (first == '[')
		return memmem(data, n, "\"ph\"", 4) ? 60 : 0;
	if (first != '{')
		return 0;
	if (memmem(data, n, "\"traceEvents\"", 13))
		return 60;
	return memmem(data, n, "\"functionName\"", 14) &&
			       (memmem(data, n, "\"nodes\"", 7) || memmem(data, n, "\"head\"", 6))
		       ? 60
		       : 0;
}
