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
#include <stdlib.h>
#include <string.h>

#include "base/vocab.h"
#include "format/internal.h"

#define FORMAT_VERSION 49
#define RESOURCE_LIBRARY 1

enum category { CATEGORY_OTHER, CATEGORY_USER, CATEGORY_KERNEL, CATEGORY_JIT };

struct ff_stack {
	u32 prefix, frame; /* prefix: PROFILE_NONE = root */
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
	s64 value;
};

struct firefox_writer {
	const struct profile *p;
	const struct profile_write_options *o;
	struct str *out;
	struct str scratch;
	vec(u32) libs; /* by mapping: index in libs, PROFILE_NONE = not used */
	u32 n_libs;
	vec(struct ff_sample) samples;
	/* Of the thread at hand. */
	struct strtab strings;
	struct map stack_ids;	 /* (prefix + 1) << 32 | frame → stack */
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

static int stack_for(struct firefox_writer *w, u32 prefix, u32 frame, u32 *ret)
{
	struct ff_stack stack = {.prefix = prefix, .frame = frame};
	bool added = false;
	int r = id_for(&w->stack_ids, ((u64)prefix + 1) << 32 | frame, w->stacks.n, ret, &added);

	return r < 0 || !added ? r : vec_push(&w->stacks, stack);
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
	s->stack = at;
	return r;
}

/* ---- columns ---- */

/* "name":[ one element per index ], with `element` a statement that appends element i. */
#define COLUMN(w, name, n, element)                                                                \
	do {                                                                                       \
		str_puts((w)->out, "\"" name "\":[");                                              \
		for (size_t i = 0; i < (n); i++) {                                                 \
			if (i)                                                                     \
				str_putc((w)->out, ',');                                           \
			element;                                                                   \
		}                                                                                  \
		str_putc((w)->out, ']');                                                           \
	} while (0)

static void put_u32(struct firefox_writer *w, u32 v)
{
	str_printf(w->out, "%u", v);
}

/* PROFILE_NONE, or 0 where that means "not known", is null. */
static void put_or_null(struct firefox_writer *w, u32 v, u32 none)
{
	if (v == none)
		str_puts(w->out, "null");
	else
		put_u32(w, v);
}

static void put_or_minus(struct firefox_writer *w, u32 v)
{
	if (v == PROFILE_NONE)
		str_puts(w->out, "-1");
	else
		put_u32(w, v);
}

static void put_constant(struct firefox_writer *w, const char *name, size_t n, const char *value)
{
	str_printf(w->out, "\"%s\":[", name);
	for (size_t i = 0; i < n; i++)
		str_printf(w->out, "%s%s", i ? "," : "", value);
	str_putc(w->out, ']');
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

/* An address must be a number that JSON readers keep: kernel addresses are not. */
static void put_address(struct firefox_writer *w, const struct profile_frame *f)
{
	if (f->mapping == PROFILE_NONE || f->address >> 53)
		str_puts(w->out, "-1");
	else
		str_printf(w->out, "%llu", f->address);
}

static void append_frame_table(struct firefox_writer *w)
{
	size_t n = w->frames.n;

	str_printf(w->out, ",\n\"frameTable\":{\"length\":%zu,", n);
	COLUMN(w, "address", n, put_address(w, frame_at(w, i)));
	str_putc(w->out, ',');
	COLUMN(w, "inlineDepth", n, put_u32(w, w->frames.data[i].depth));
	str_putc(w->out, ',');
	COLUMN(w, "category", n, put_u32(w, category_of(frame_at(w, i))));
	str_putc(w->out, ',');
	put_constant(w, "subcategory", n, "0");
	str_putc(w->out, ',');
	COLUMN(w, "func", n, put_u32(w, w->frames.data[i].func));
	str_putc(w->out, ',');
	put_constant(w, "nativeSymbol", n, "null");
	str_putc(w->out, ',');
	put_constant(w, "innerWindowID", n, "0");
	str_putc(w->out, ',');
	put_constant(w, "implementation", n, "null");
	str_putc(w->out, ',');
	COLUMN(w, "line", n, put_or_null(w, frame_at(w, i)->line, 0));
	str_putc(w->out, ',');
	COLUMN(w, "column", n, put_or_null(w, frame_at(w, i)->column, 0));
	str_putc(w->out, '}');
}

static void append_func_table(struct firefox_writer *w)
{
	size_t n = w->funcs.n;

	str_printf(w->out, ",\n\"funcTable\":{\"length\":%zu,", n);
	COLUMN(w, "name", n, put_u32(w, w->funcs.data[i].name));
	str_putc(w->out, ',');
	put_constant(w, "isJS", n, "false");
	str_putc(w->out, ',');
	put_constant(w, "relevantForJS", n, "false");
	str_putc(w->out, ',');
	COLUMN(w, "resource", n, put_or_minus(w, w->funcs.data[i].resource));
	str_putc(w->out, ',');
	COLUMN(w, "fileName", n, put_or_null(w, w->funcs.data[i].file, PROFILE_NONE));
	str_putc(w->out, ',');
	COLUMN(w, "lineNumber", n, put_or_null(w, w->funcs.data[i].line, 0));
	str_putc(w->out, ',');
	put_constant(w, "columnNumber", n, "null");
	str_putc(w->out, '}');
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
		str_printf(w->out, ",\n\"resourceTable\":{\"length\":%zu,", n);
		COLUMN(w, "lib", n, put_u32(w, w->libs.data[w->resources.data[i]]));
		str_putc(w->out, ',');
		COLUMN(w, "name", n, put_u32(w, names.data[i]));
		str_putc(w->out, ',');
		put_constant(w, "host", n, "null");
		str_putc(w->out, ',');
		COLUMN(w, "type", n, put_u32(w, RESOURCE_LIBRARY));
		str_putc(w->out, '}');
	}
	vec_deinit(&names);
	return r;
}

static void append_stack_table(struct firefox_writer *w)
{
	size_t n = w->stacks.n;

	str_printf(w->out, ",\n\"stackTable\":{\"length\":%zu,", n);
	COLUMN(w, "prefix", n, put_or_null(w, w->stacks.data[i].prefix, PROFILE_NONE));
	str_putc(w->out, ',');
	COLUMN(w, "frame", n, put_u32(w, w->stacks.data[i].frame));
	str_putc(w->out, ',');
	COLUMN(w, "category", n, put_u32(w, category_of(frame_at(w, w->stacks.data[i].frame))));
	str_putc(w->out, ',');
	put_constant(w, "subcategory", n, "0");
	str_putc(w->out, '}');
}

static double time_ms(const struct firefox_writer *w, u64 time_ns)
{
	return time_ns > w->p->time_ns ? (double)(time_ns - w->p->time_ns) / 1e6 : 0;
}

static void append_samples(struct firefox_writer *w, const struct ff_sample *s, size_t n)
{
	const char *unit = profile_string(w->p, w->p->types[w->p->default_type].unit);
	double per_ms = (double)vocab_per_second(unit) / 1e3; /* 0: not time */

	str_printf(w->out, ",\n\"samples\":{\"length\":%zu,", n);
	COLUMN(w, "stack", n, put_or_null(w, s[i].stack, PROFILE_NONE));
	str_putc(w->out, ',');
	COLUMN(w, "time", n, str_printf(w->out, "%.6f", time_ms(w, s[i].time_ns)));
	str_putc(w->out, ',');
	if (per_ms > 0)
		COLUMN(w, "weight", n, str_printf(w->out, "%.6f", (double)s[i].value / per_ms));
	else
		COLUMN(w, "weight", n, str_printf(w->out, "%lld", s[i].value));
	str_printf(w->out, ",\"weightType\":\"%s\"}",
		   per_ms > 0				   ? "tracing-ms"
		   : !strcmp(unit, vocab_unit(UNIT_BYTES)) ? "bytes"
							   : "samples");
}

/* ---- threads ---- */

static void append_thread_head(struct firefox_writer *w, const struct ff_sample *s, size_t n)
{
	static const struct profile_thread unknown;
	u32 id = s->thread;
	const struct profile_thread *t = id < w->p->threads.n ? &w->p->threads.data[id] : &unknown;
	const char *comm = profile_string(w->p, t->comm);
	const char *name = profile_string(w->p, t->thread_name);

	str_puts(w->out, "{\"name\":");
	text_append_json(w->out, *name ? name : *comm ? comm : "unknown");
	str_puts(w->out, ",\"processName\":");
	text_append_json(w->out, *comm ? comm : "unknown");
	if (t->pid)
		str_printf(w->out, ",\"pid\":\"%u\"", t->pid);
	else /* threads of one pid are shown as one process, and these need not be */
		str_printf(w->out, ",\"pid\":\"unknown-%u\"", id + 1);
	str_printf(w->out,
		   ",\"tid\":%u,\"isMainThread\":%s,\"processType\":\"default\","
		   "\"processStartupTime\":0,\"processShutdownTime\":null,"
		   "\"registerTime\":%.6f,\"unregisterTime\":null,\"pausedRanges\":[],\n"
		   "\"markers\":{\"length\":0,\"category\":[],\"data\":[],\"endTime\":[],"
		   "\"name\":[],\"phase\":[],\"startTime\":[]},\n"
		   "\"nativeSymbols\":{\"length\":0,\"address\":[],\"functionSize\":[],"
		   "\"libIndex\":[],\"name\":[]}",
		   t->tid, t->pid == t->tid ? "true" : "false", n ? time_ms(w, s->time_ns) : 0);
}

static int append_thread(struct firefox_writer *w, struct ff_sample *s, size_t n)
{
	int r;

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
	str_puts(w->out, ",\n");
	COLUMN(w, "stringArray", w->strings.n,
	       text_append_json(w->out, strtab_get(&w->strings, (u32)i)));
	str_putc(w->out, '}');
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
		struct ff_sample own = {s->time_ns, thread, s->stack, s->value[w->p->default_type]};

		r = own.value ? vec_push(&w->samples, own) : 0;
	}
	if (w->samples.n)
		qsort(w->samples.data, w->samples.n, sizeof(*w->samples.data), compare_samples);
	for (size_t from = 0, i = 1; i <= w->samples.n && r == 0; i++) {
		if (i < w->samples.n && w->samples.data[i].thread == w->samples.data[from].thread)
			continue;
		str_puts(w->out, from ? ",\n" : "\n");
		r = append_thread(w, &w->samples.data[from], i - from);
		from = i;
	}
	return r;
}

/* ---- head ---- */

static void append_meta(struct firefox_writer *w)
{
	const struct profile *p = w->p;
	const char *title = w->o->title ? w->o->title : profile_string(p, p->title);
	u64 per_second = vocab_per_second(profile_string(p, p->period_unit));
	double interval_ms =
		p->period > 0 && per_second ? (double)p->period * 1e3 / (double)per_second : 1;

	str_printf(w->out,
		   "{\"meta\":{\"preprocessedProfileVersion\":%d,\"version\":24,"
		   "\"interval\":%.6f,\"startTime\":%.3f,\"processType\":0,\"stackwalk\":1,"
		   "\"debug\":false,\"symbolicated\":true,\"product\":",
		   FORMAT_VERSION, interval_ms, (double)p->time_ns / 1e6);
	text_append_json(w->out, *title ? title : "culprit");
	str_puts(w->out,
		 ",\"importedFrom\":\"culprit " CULPRIT_VERSION "\","
		 "\"extensions\":{\"length\":0,\"baseURL\":[],\"id\":[],\"name\":[]},\n"
		 "\"categories\":["
		 "{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]},"
		 "{\"name\":\"User\",\"color\":\"yellow\",\"subcategories\":[\"Other\"]},"
		 "{\"name\":\"Kernel\",\"color\":\"orange\",\"subcategories\":[\"Other\"]},"
		 "{\"name\":\"JIT\",\"color\":\"green\",\"subcategories\":[\"Other\"]}],\n"
		 "\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":"
		 "\"\xc2\xb5s\"},\"usesOnlyOneStackType\":true,\"doesNotUseFrameImplementation\":"
		 "true,\"sourceCodeIsNotOnSearchfox\":true,\"markerSchema\":[]}");
}

/* All mappings that frames name; threads share the list. */
static int append_libs(struct firefox_writer *w)
{
	int r = 0;

	for (size_t i = 0; i < w->p->mappings.n && r == 0; i++)
		r = vec_push(&w->libs, PROFILE_NONE);
	if (r < 0)
		return r;
	str_puts(w->out, ",\n\"libs\":[");
	for (size_t i = 0; i < w->p->mappings.n; i++) {
		const struct profile_mapping *m = &w->p->mappings.data[i];
		const char *path = profile_string(w->p, m->path),
			   *names[4] = {profile_basename(path), path, profile_basename(path), path};
		static const char *const keys[4] = {"name", "path", "debugName", "debugPath"};

		w->libs.data[i] = w->n_libs++;
		str_puts(w->out, i ? ",\n{" : "\n{");
		for (int k = 0; k < 4; k++) {
			str_printf(w->out, "\"%s\":", keys[k]);
			text_append_json(w->out, names[k]);
			str_putc(w->out, ',');
		}
		str_puts(w->out, "\"breakpadId\":\"\",\"arch\":null,\"codeId\":");
		if (m->build_id)
			text_append_json(w->out, profile_string(w->p, m->build_id));
		else
			str_puts(w->out, "null");
		str_putc(w->out, '}');
	}
	str_puts(w->out, "]");
	return 0;
}

int firefox_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
		  struct diag *reterr_diag)
{
	__attribute__((cleanup(writer_deinit))) struct firefox_writer w = {
		.p = p, .o = o, .out = out};
	int r;

	if (o->base)
		return diag_set(reterr_diag, -ENOTSUP, "the Firefox format cannot hold a diff");
	if (p->default_type >= p->n_types)
		return diag_set(reterr_diag, -EINVAL, "a profile without values");
	append_meta(&w);
	r = append_libs(&w);
	str_puts(out, ",\n\"pages\":[],\"profilerOverhead\":[],\"counters\":[],\n\"threads\":[");
	if (r == 0)
		r = append_threads(&w);
	str_puts(out, "]}\n");
	return r < 0 ? r : out->failed ? -ENOMEM : 0;
}
