/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the Firefox Profiler's processed format, version 49: the last but one with all tables
 * inside of each thread, which every later version of the page upgrades on load. Tables are columns
 * of equal length; an index is into the table of the same thread, but for libs.
 *
 *	samples.stack → stackTable.frame → frameTable.func → funcTable.resource → resourceTable.lib
 *	                         .prefix ↺
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/vocab.h"
#include "format/internal.h"

#define FORMAT_VERSION 49
#define RESOURCE_LIBRARY 1

/* Behind them one for each wait: its number is CATEGORY_WAITS and the enum wait. */
enum category { CATEGORY_OTHER, CATEGORY_USER, CATEGORY_KERNEL, CATEGORY_JIT, CATEGORY_WAITS };

struct ff_stack {
	u32 prefix, frame; /* prefix: PROFILE_NONE = root */
	u32 category;
};

struct ff_func {
	u32 name, file; /* strings; file: PROFILE_NONE = none */
	u32 resource;	/* or PROFILE_NONE */
	u32 line;
};

struct ff_frame {
	u32 frame; /* of the profile */
	u32 func;
	u32 depth; /* of inlining: 0 is the function that the address is in */
};

struct ff_sample {
	u64 time_ns;
	u32 thread, stack; /* of the profile; then stack is an index in stacks, or PROFILE_NONE */
	enum wait wait;
	s64 value;
};

struct firefox_writer {
	const struct profile *p;
	const struct profile_write_options *o;
	struct json_writer json;
	struct str scratch;
	vec(u32) libs; /* by mapping: index in libs, PROFILE_NONE = not used */
	u32 n_libs;
	vec(struct ff_sample) samples;
	/* Of the thread at hand. */
	struct strtab strings;
	struct map stack_ids;	 /* (prefix + 1) << 32 | frame → stack */
	struct map wait_ids;	 /* stack << 32 | wait → the stack in that wait */
	struct map frame_ids;	 /* frame << 32 | depth → frame */
	struct map func_ids;	 /* function << 32 | mapping → func */
	struct map unnamed_ids;	 /* frame → func */
	struct map resource_ids; /* mapping → resource */
	vec(struct ff_stack) stacks;
	vec(struct ff_frame) frames;
	vec(struct ff_func) funcs;
	vec(u32) resources; /* mappings */
};

static void thread_clear(struct firefox_writer *w)
{
	strtab_deinit(&w->strings);
	map_clear(&w->stack_ids);
	map_clear(&w->wait_ids);
	map_clear(&w->frame_ids);
	map_clear(&w->func_ids);
	map_clear(&w->unnamed_ids);
	map_clear(&w->resource_ids);
	vec_clear(&w->stacks);
	vec_clear(&w->frames);
	vec_clear(&w->funcs);
	vec_clear(&w->resources);
}

static void writer_deinit(struct firefox_writer *w)
{
	str_deinit(&w->scratch);
	vec_deinit(&w->libs);
	vec_deinit(&w->samples);
	strtab_deinit(&w->strings);
	map_deinit(&w->stack_ids);
	map_deinit(&w->wait_ids);
	map_deinit(&w->frame_ids);
	map_deinit(&w->func_ids);
	map_deinit(&w->unnamed_ids);
	map_deinit(&w->resource_ids);
	vec_deinit(&w->stacks);
	vec_deinit(&w->frames);
	vec_deinit(&w->funcs);
	vec_deinit(&w->resources);
}

/* ---- interning, per thread ---- */

static int add_string(struct firefox_writer *w, const char *s, u32 *ret)
{
	return strtab_add(&w->strings, s, strlen(s), ret);
}

/* The id of a key, or the next one, and then ret_new says so. */
static int id_for(struct map *m, u64 key, size_t next, u32 *ret, bool *ret_new)
{
	u64 *known = map_get(m, key);
	int r = known ? 0 : map_put(m, key, next);

	if (r == 0) {
		*ret = known ? (u32)*known : (u32)next;
		*ret_new = !known;
	}
	return r;
}

static int resource_for(struct firefox_writer *w, u32 mapping, u32 *ret)
{
	bool added = false;
	int r;

	if (mapping >= w->p->mappings.n) {
		*ret = PROFILE_NONE;
		return 0;
	}
	r = id_for(&w->resource_ids, mapping, w->resources.n, ret, &added);
	return r < 0 || !added ? r : vec_push(&w->resources, mapping);
}

static int func_for(struct firefox_writer *w, u32 id, u32 *ret)
{
	const struct profile_frame *f = &w->p->frames.data[id];
	const struct profile_function *fn =
		f->function < w->p->functions.n ? &w->p->functions.data[f->function] : NULL;
	struct ff_func func = {.file = PROFILE_NONE, .line = fn ? fn->start_line : 0};
	bool added = false;
	int r = fn ? id_for(&w->func_ids, (u64)f->function << 32 | f->mapping, w->funcs.n, ret,
			    &added)
		   : id_for(&w->unnamed_ids, id, w->funcs.n, ret, &added);

	if (r < 0 || !added)
		return r;
	r = add_string(w, profile_frame_name(w->p, id, &w->scratch), &func.name);
	if (r == 0 && fn && fn->file)
		r = add_string(w, profile_string(w->p, fn->file), &func.file);
	if (r == 0)
		r = resource_for(w, f->mapping, &func.resource);
	return r < 0 ? r : vec_push(&w->funcs, func);
}

static int frame_for(struct firefox_writer *w, u32 id, u32 depth, u32 *ret)
{
	struct ff_frame frame = {.frame = id, .depth = depth};
	bool added = false;
	int r = id_for(&w->frame_ids, (u64)id << 32 | depth, w->frames.n, ret, &added);

	if (r < 0 || !added)
		return r;
	r = func_for(w, id, &frame.func);
	return r < 0 ? r : vec_push(&w->frames, frame);
}

static u32 category_of(const struct profile_frame *f)
{
	switch (vocab_frame_kind(f->kind)->class) {
	case FRAME_CLASS_KERNEL:
		return CATEGORY_KERNEL;
	case FRAME_CLASS_MANAGED:
		return CATEGORY_JIT;
	case FRAME_CLASS_NATIVE:
		return CATEGORY_USER;
	default:
		return CATEGORY_OTHER;
	}
}

static const struct profile_frame *frame_at(const struct firefox_writer *w, size_t i)
{
	return &w->p->frames.data[w->frames.data[i].frame];
}

static int stack_for(struct firefox_writer *w, u32 prefix, u32 frame, u32 *ret)
{
	struct ff_stack stack = {
		.prefix = prefix, .frame = frame, .category = category_of(frame_at(w, frame))};
	bool added = false;
	int r = id_for(&w->stack_ids, ((u64)prefix + 1) << 32 | frame, w->stacks.n, ret, &added);

	return r < 0 || !added ? r : vec_push(&w->stacks, stack);
}

/* The same frames in a stack of its own, because a sample's category is that of its stack. */
static int wait_stack_for(struct firefox_writer *w, enum wait wait, u32 *stack)
{
	struct ff_stack in_wait;
	bool added = false;
	u32 of = *stack;
	int r;

	if (!wait || of == PROFILE_NONE)
		return 0;
	r = id_for(&w->wait_ids, (u64)of << 32 | wait, w->stacks.n, stack, &added);
	if (r < 0 || !added)
		return r;
	in_wait = w->stacks.data[of];
	in_wait.category = CATEGORY_WAITS + wait;
	return vec_push(&w->stacks, in_wait);
}

/* Turns s->stack into an index of this thread's stack table. */
static int add_stack(struct firefox_writer *w, struct ff_sample *s)
{
	const struct profile_stack *stack = &w->p->stacks.data[s->stack];
	u32 at = PROFILE_NONE, depth = 0, frame = PROFILE_NONE;
	int r = 0;

	for (u32 i = stack->n; i > 0 && r == 0; i--) {
		u32 id = w->p->stack_frames.data[stack->first + i - 1];
		const struct profile_frame *f = &w->p->frames.data[id];

		if (profile_frame_dropped(f, &w->o->tree))
			continue;
		depth = f->flags & PROFILE_FRAME_INLINED ? depth + 1 : 0;
		r = frame_for(w, id, depth, &frame);
		if (r == 0)
			r = stack_for(w, at, frame, &at);
	}
	if (r == 0)
		r = wait_stack_for(w, s->wait, &at);
	s->stack = at;
	return r;
}

/* ---- columns ---- */

/* An array with one element per index i, which the statement `element` puts. */
#define COLUMN(w, name, n, element)                                                                \
	do {                                                                                       \
		json_open_array(&(w)->json, name);                                                 \
		for (size_t i = 0; i < (n); i++)                                                   \
			element;                                                                   \
		json_close(&(w)->json);                                                            \
	} while (0)

static void put_u32(struct firefox_writer *w, u32 v)
{
	json_put_u64(&w->json, NULL, v);
}

/* PROFILE_NONE, or 0 where that means "not known", is null. */
static void put_or_null(struct firefox_writer *w, u32 v, u32 none)
{
	if (v == none)
		json_put_null(&w->json, NULL);
	else
		put_u32(w, v);
}

static void put_or_minus(struct firefox_writer *w, u32 v)
{
	json_put_s64(&w->json, NULL, v == PROFILE_NONE ? -1 : (s64)v);
}

static void put_nulls(struct firefox_writer *w, const char *name, size_t n)
{
	COLUMN(w, name, n, json_put_null(&w->json, NULL));
}

static void put_zeros(struct firefox_writer *w, const char *name, size_t n)
{
	COLUMN(w, name, n, put_u32(w, 0));
}

static void put_falses(struct firefox_writer *w, const char *name, size_t n)
{
	COLUMN(w, name, n, json_put_bool(&w->json, NULL, false));
}

/* Opens a table: an object of columns that have n elements each. */
static void open_table(struct firefox_writer *w, const char *name, size_t n)
{
	json_open_object(&w->json, name);
	json_put_u64(&w->json, "length", n);
}

/* An address must be a number that JSON readers keep: kernel addresses are not. */
static void put_address(struct firefox_writer *w, const struct profile_frame *f)
{
	bool shown = f->mapping != PROFILE_NONE && !(f->address >> 53);

	json_put_s64(&w->json, NULL, shown ? (s64)f->address : -1);
}

static void append_frame_table(struct firefox_writer *w)
{
	size_t n = w->frames.n;

	open_table(w, "frameTable", n);
	COLUMN(w, "address", n, put_address(w, frame_at(w, i)));
	COLUMN(w, "inlineDepth", n, put_u32(w, w->frames.data[i].depth));
	COLUMN(w, "category", n, put_u32(w, category_of(frame_at(w, i))));
	put_zeros(w, "subcategory", n);
	COLUMN(w, "func", n, put_u32(w, w->frames.data[i].func));
	put_nulls(w, "nativeSymbol", n);
	put_zeros(w, "innerWindowID", n);
	put_nulls(w, "implementation", n);
	COLUMN(w, "line", n, put_or_null(w, frame_at(w, i)->line, 0));
	COLUMN(w, "column", n, put_or_null(w, frame_at(w, i)->column, 0));
	json_close(&w->json);
}

static void append_func_table(struct firefox_writer *w)
{
	size_t n = w->funcs.n;

	open_table(w, "funcTable", n);
	COLUMN(w, "name", n, put_u32(w, w->funcs.data[i].name));
	put_falses(w, "isJS", n);
	put_falses(w, "relevantForJS", n);
	COLUMN(w, "resource", n, put_or_minus(w, w->funcs.data[i].resource));
	COLUMN(w, "fileName", n, put_or_null(w, w->funcs.data[i].file, PROFILE_NONE));
	COLUMN(w, "lineNumber", n, put_or_null(w, w->funcs.data[i].line, 0));
	put_nulls(w, "columnNumber", n);
	json_close(&w->json);
}

/* Adds strings, so it comes before the string array. */
static int append_resource_table(struct firefox_writer *w)
{
	size_t n = w->resources.n;
	vec(u32) names = {};
	int r = vec_reserve(&names, n);

	for (size_t i = 0; i < n && r == 0; i++) {
		u32 path = w->p->mappings.data[w->resources.data[i]].path, id;

		r = add_string(w, profile_basename(profile_string(w->p, path)), &id);
		if (r == 0)
			r = vec_push(&names, id);
	}
	if (r == 0) {
		open_table(w, "resourceTable", n);
		COLUMN(w, "lib", n, put_u32(w, w->libs.data[w->resources.data[i]]));
		COLUMN(w, "name", n, put_u32(w, names.data[i]));
		put_nulls(w, "host", n);
		COLUMN(w, "type", n, put_u32(w, RESOURCE_LIBRARY));
		json_close(&w->json);
	}
	vec_deinit(&names);
	return r;
}

static void append_stack_table(struct firefox_writer *w)
{
	size_t n = w->stacks.n;

	open_table(w, "stackTable", n);
	COLUMN(w, "prefix", n, put_or_null(w, w->stacks.data[i].prefix, PROFILE_NONE));
	COLUMN(w, "frame", n, put_u32(w, w->stacks.data[i].frame));
	COLUMN(w, "category", n, put_u32(w, w->stacks.data[i].category));
	put_zeros(w, "subcategory", n);
	json_close(&w->json);
}

static double time_ms(const struct firefox_writer *w, u64 time_ns)
{
	return time_ns > w->p->time_ns ? (double)(time_ns - w->p->time_ns) / 1e6 : 0;
}

static void append_samples(struct firefox_writer *w, const struct ff_sample *s, size_t n)
{
	const char *unit = profile_string(w->p, w->p->types[w->p->default_type].unit);
	double per_ms = (double)vocab_per_second(unit) / 1e3; /* 0: not time */

	open_table(w, "samples", n);
	COLUMN(w, "stack", n, put_or_null(w, s[i].stack, PROFILE_NONE));
	COLUMN(w, "time", n, json_put_fixed(&w->json, NULL, time_ms(w, s[i].time_ns), 6));
	if (per_ms > 0)
		COLUMN(w, "weight", n,
		       json_put_fixed(&w->json, NULL, (double)s[i].value / per_ms, 6));
	else
		COLUMN(w, "weight", n, json_put_s64(&w->json, NULL, s[i].value));
	json_put_text(&w->json, "weightType",
		      per_ms > 0			      ? "tracing-ms"
		      : !strcmp(unit, vocab_unit(UNIT_BYTES)) ? "bytes"
							      : "samples");
	json_close(&w->json);
}

/* ---- threads ---- */

/* `columns` ends with NULL. */
static void put_empty_table(struct firefox_writer *w, const char *name, const char *const *columns)
{
	open_table(w, name, 0);
	for (; *columns; columns++)
		put_nulls(w, *columns, 0);
	json_close(&w->json);
}

static void append_thread_head(struct firefox_writer *w, const struct ff_sample *s, size_t n)
{
	static const char *const markers[] = {"category", "data",      "endTime", "name",
					      "phase",	  "startTime", NULL};
	static const char *const symbols[] = {"address", "functionSize", "libIndex", "name", NULL};
	static const struct profile_thread unknown;
	u32 id = s->thread;
	const struct profile_thread *t = id < w->p->threads.n ? &w->p->threads.data[id] : &unknown;
	const char *comm = profile_string(w->p, t->comm);
	const char *name = profile_string(w->p, t->thread_name);

	struct json_writer *j = &w->json;
	char pid[32];

	/* The page shows threads of one pid as one process, which unknown ones need not be. */
	snprintf(pid, sizeof(pid), t->pid ? "%u" : "unknown-%u", t->pid ? t->pid : id + 1);
	json_put_text(j, "name", *name ? name : *comm ? comm : "unknown");
	json_put_text(j, "processName", *comm ? comm : "unknown");
	json_put_text(j, "pid", pid);
	json_put_u64(j, "tid", t->tid);
	json_put_bool(j, "isMainThread", t->pid == t->tid);
	json_put_text(j, "processType", "default");
	json_put_u64(j, "processStartupTime", 0);
	json_put_null(j, "processShutdownTime");
	json_put_fixed(j, "registerTime", n ? time_ms(w, s->time_ns) : 0, 6);
	json_put_null(j, "unregisterTime");
	put_nulls(w, "pausedRanges", 0);
	put_empty_table(w, "markers", markers);
	put_empty_table(w, "nativeSymbols", symbols);
}

static int append_thread(struct firefox_writer *w, struct ff_sample *s, size_t n)
{
	int r;

	json_open_object(&w->json, NULL);
	append_thread_head(w, s, n);
	thread_clear(w);
	r = strtab_init(&w->strings);
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_stack(w, &s[i]);
	if (r < 0)
		return r;
	append_samples(w, s, n);
	append_stack_table(w);
	append_frame_table(w);
	append_func_table(w);
	r = append_resource_table(w);
	COLUMN(w, "stringArray", w->strings.n,
	       json_put_text(&w->json, NULL, strtab_get(&w->strings, (u32)i)));
	json_close(&w->json);
	return r;
}

static int compare_samples(const void *a, const void *b)
{
	const struct ff_sample *x = a, *y = b;

	if (x->thread != y->thread)
		return x->thread < y->thread ? -1 : 1;
	return x->time_ns != y->time_ns ? (x->time_ns < y->time_ns ? -1 : 1) : 0;
}

static int append_threads(struct firefox_writer *w)
{
	_cleanup_free_ u32 *threads = NULL;
	int r = profile_same_threads(w->p, &threads);

	for (size_t i = 0; i < w->p->n_samples && r == 0; i++) {
		const struct profile_sample *s = profile_sample(w->p, i);
		u32 thread = s->thread < w->p->threads.n ? threads[s->thread] : s->thread;
		struct ff_sample own = {s->time_ns, thread, s->stack, profile_wait(w->p, s->thread),
					s->value[w->p->default_type]};

		r = own.value ? vec_push(&w->samples, own) : 0;
	}
	if (w->samples.n)
		qsort(w->samples.data, w->samples.n, sizeof(*w->samples.data), compare_samples);
	for (size_t from = 0, i = 1; i <= w->samples.n && r == 0; i++) {
		if (i < w->samples.n && w->samples.data[i].thread == w->samples.data[from].thread)
			continue;
		r = append_thread(w, &w->samples.data[from], i - from);
		from = i;
	}
	return r;
}

/* ---- head ---- */

static void append_category(struct firefox_writer *w, const char *name, const char *color)
{
	json_open_object(&w->json, NULL);
	json_put_text(&w->json, "name", name);
	json_put_text(&w->json, "color", color);
	COLUMN(w, "subcategories", 1, json_put_text(&w->json, NULL, "Other"));
	json_close(&w->json);
}

/* By enum category. The page has its own colours, and knows them by name. */
static void append_categories(struct firefox_writer *w)
{
	static const char *const wait_colors[WAIT_N] = {
		[WAIT_NONE] = "transparent", [WAIT_RUNNING] = "green",
		[WAIT_LOCK] = "red",	     [WAIT_DISK] = "purple",
		[WAIT_NETWORK] = "blue",     [WAIT_PIPE] = "lightblue",
		[WAIT_SLEEP] = "grey",	     [WAIT_FAULT] = "magenta",
		[WAIT_CHILD] = "yellow",     [WAIT_POLL] = "brown",
		[WAIT_RUNNABLE] = "orange",  [WAIT_STOPPED] = "darkgray",
		[WAIT_OTHER] = "lightred",   [WAIT_IDLE] = "transparent",
		[WAIT_CHANNEL] = "yellow"};
	static const struct {
		const char *name, *color;
	} categories[] = {[CATEGORY_OTHER] = {"Other", "grey"},
			  [CATEGORY_USER] = {"User", "yellow"},
			  [CATEGORY_KERNEL] = {"Kernel", "orange"},
			  [CATEGORY_JIT] = {"JIT", "green"}};

	json_open_array(&w->json, "categories");
	for (u32 k = 0; k < ARRAY_SIZE(categories); k++)
		append_category(w, categories[k].name, categories[k].color);
	for (u32 k = 0; k < WAIT_N && profile_has_waits(w->p); k++)
		append_category(w, k ? vocab_wait(k)->name : "no wait", wait_colors[k]);
	json_close(&w->json);
}

static void append_meta(struct firefox_writer *w)
{
	static const char *const extensions[] = {"baseURL", "id", "name", NULL};
	struct json_writer *j = &w->json;
	const struct profile *p = w->p;
	const char *title = w->o->title ? w->o->title : profile_string(p, p->title);
	u64 per_second = vocab_per_second(profile_string(p, p->period_unit));
	double interval_ms =
		p->period > 0 && per_second ? (double)p->period * 1e3 / (double)per_second : 1;

	json_open_object(j, "meta");
	json_put_u64(j, "preprocessedProfileVersion", FORMAT_VERSION);
	json_put_u64(j, "version", 24);
	json_put_fixed(j, "interval", interval_ms, 6);
	json_put_fixed(j, "startTime", (double)p->time_ns / 1e6, 3);
	json_put_u64(j, "processType", 0);
	json_put_u64(j, "stackwalk", 1);
	json_put_bool(j, "debug", false);
	json_put_bool(j, "symbolicated", true);
	json_put_text(j, "product", *title ? title : "culprit");
	json_put_text(j, "importedFrom", "culprit " CULPRIT_VERSION);
	put_empty_table(w, "extensions", extensions);
	append_categories(w);
	json_open_object(j, "sampleUnits");
	json_put_text(j, "time", "ms");
	json_put_text(j, "eventDelay", "ms");
	json_put_text(j, "threadCPUDelta", "\xc2\xb5s");
	json_close(j);
	json_put_bool(j, "usesOnlyOneStackType", true);
	json_put_bool(j, "doesNotUseFrameImplementation", true);
	json_put_bool(j, "sourceCodeIsNotOnSearchfox", true);
	put_nulls(w, "markerSchema", 0);
	json_close(j);
}

/* All mappings that frames name; threads share the list. */
static int append_libs(struct firefox_writer *w)
{
	int r = 0;

	for (size_t i = 0; i < w->p->mappings.n && r == 0; i++)
		r = vec_push(&w->libs, PROFILE_NONE);
	if (r < 0)
		return r;
	json_open_array(&w->json, "libs");
	for (size_t i = 0; i < w->p->mappings.n; i++) {
		const struct profile_mapping *m = &w->p->mappings.data[i];
		const char *path = profile_string(w->p, m->path), *name = profile_basename(path);

		w->libs.data[i] = w->n_libs++;
		json_open_object(&w->json, NULL);
		json_put_text(&w->json, "name", name);
		json_put_text(&w->json, "path", path);
		json_put_text(&w->json, "debugName", name);
		json_put_text(&w->json, "debugPath", path);
		json_put_text(&w->json, "breakpadId", "");
		json_put_null(&w->json, "arch");
		if (m->build_id)
			json_put_text(&w->json, "codeId", profile_string(w->p, m->build_id));
		else
			json_put_null(&w->json, "codeId");
		json_close(&w->json);
	}
	json_close(&w->json);
	return 0;
}

int firefox_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
		  struct diag *reterr_diag)
{
	__attribute__((cleanup(writer_deinit))) struct firefox_writer w = {
		.p = p, .o = o, .json = {.out = out}};
	int r;

	if (o->base)
		return diag_set(reterr_diag, -ENOTSUP, "the Firefox format cannot hold a diff");
	if (p->default_type >= p->n_types)
		return diag_set(reterr_diag, -EINVAL, "a profile without values");
	json_open_object(&w.json, NULL);
	append_meta(&w);
	r = append_libs(&w);
	put_nulls(&w, "pages", 0);
	put_nulls(&w, "profilerOverhead", 0);
	put_nulls(&w, "counters", 0);
	json_open_array(&w.json, "threads");
	if (r == 0)
		r = append_threads(&w);
	json_close(&w.json);
	json_close(&w.json);
	str_putc(out, '\n');
	return r < 0 ? r : out->failed ? -ENOMEM : 0;
}
