/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /api/v1/requests/{trace_id}/analysis: how long the calls of a kept request took, thread by
 * thread, by one of two estimates (server/analyze/analyze.h).
 *
 * Samples of culprit's agents have the time that they stand for, which is added up. SkyWalking's
 * agents send snapshots of a segment, whose part that belongs to a span is found by its times. Both
 * are samples of the type request:wall; those of snapshots have a twin of the type
 * request:sequence, with the snapshot's number plus 1. Snapshots may be stored under the trace of
 * their segment's own, under the segment's trace, or under both (server/ingest/skywalking.c): here
 * each is taken once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/skywalking.h"
#include "server/analyze/analyze.h"
#include "server/api/internal.h"

#define MAX_SEGMENTS 10000 /* of a trace */
#define PERIOD_NS 10000000 /* the shortest that SkyWalking's agents know */
#define NO_SEGMENT (~0u)

struct segment {
	u8 span_id[8]; /* of its first span */
	u32 span;      /* that span, or PROFILE_NONE */
	u32 group;     /* index + 1; 0 = none */
};

/* What one thread did for the trace. */
struct group {
	u64 key;		      /* of a thread of culprit's; 0 = of snapshots */
	u32 segment;		      /* or NO_SEGMENT */
	const char *service, *thread; /* borrowed */
	struct analyze_snapshots snapshots;
	u64 first_ns, last_ns;
};

struct analysis {
	struct store *store;
	u8 trace_id[16], span_id[8];
	bool of_span, children, compatible, by_line;
	char type[STORE_TYPE_BYTES];
	const char *task; /* the only one whose samples are taken; NULL: all; borrowed */
	struct trace_set set;
	u32 span; /* in the set, if of_span */
	vec(struct segment) segments;
	struct map by_span; /* hash of a segment's first span → segment */
	struct store_links links;
	struct store_series_set series;
	struct map by_series;	/* half of a series' id → its position */
	struct profile *stacks; /* owned */
	struct map frames;	/* hash of a frame's texts → its number */
	vec(u32) frame_of;	/* a frame of each number */
	vec(struct group) groups;
	u64 found;
};

static void analysis_deinit(struct analysis *a)
{
	vec_foreach (&a->groups, g)
		analyze_snapshots_deinit(&g->snapshots);
	vec_deinit(&a->groups);
	vec_deinit(&a->segments);
	vec_deinit(&a->frame_of);
	map_deinit(&a->by_span);
	map_deinit(&a->by_series);
	map_deinit(&a->frames);
	trace_set_deinit(&a->set);
	store_links_deinit(&a->links);
	store_series_set_deinit(&a->series);
	profile_destroy(a->stacks);
}

/* ---- parameters ---- */

static int choice(struct api_call *c, const char *name, const char *first, const char *second,
		  bool *ret_second)
{
	const char *text = net_parameter(c->r, name);

	*ret_second = text && !strcmp(text, second);
	return !text || *ret_second || !strcmp(text, first)
		       ? 0
		       : diag_set(&c->d, -EINVAL, "%s: %s or %s", name, first, second);
}

static int read_parameters(struct api_call *c, struct analysis *a)
{
	const char *id = strstr(c->r->path, "/requests/") + strlen("/requests/");
	const char *span = net_parameter(c->r, "span"), *type = net_parameter(c->r, "type");
	char trace[33] = "";
	bool exclude = false;
	int r;

	if (strcspn(id, "/") == 32)
		memcpy(trace, id, 32);
	if (!span_parse_id(trace, a->trace_id, 16))
		return diag_set(&c->d, -EINVAL, "a trace id has 32 hex digits");
	a->of_span = span && *span;
	if (a->of_span && !span_parse_id(span, a->span_id, 8))
		return diag_set(&c->d, -EINVAL, "span: 16 hex digits");
	r = choice(c, "estimator", "unbiased", "skywalking", &a->compatible);
	if (r == 0)
		r = choice(c, "children", "include", "exclude", &exclude);
	a->children = !exclude;
	a->by_line = true;
	if (r == 0)
		r = api_flag(c, "lines", &a->by_line);
	snprintf(a->type, sizeof(a->type), "%s", type ? type : "");
	a->task = net_parameter(c->r, "task");
	return r;
}

/* ---- spans ---- */

static u64 hash_id(const u8 id[8])
{
	return hash_bytes(id, 8) >> 1; /* a map cannot have the two largest keys */
}

static int add_segment(struct analysis *a, const u8 span_id[8], u32 span)
{
	struct segment s = {.span = span};
	int r;

	if (map_get(&a->by_span, hash_id(span_id)))
		return 0;
	if (a->segments.n == MAX_SEGMENTS)
		return -E2BIG;
	memcpy(s.span_id, span_id, sizeof(s.span_id));
	r = map_put(&a->by_span, hash_id(span_id), a->segments.n);
	return r < 0 ? r : vec_push(&a->segments, s);
}

static int compare_ids(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

/* The trace, and the traces of its segments' own. The caller frees *ret. */
static int find_segments(struct analysis *a, u8 (**ret)[16], size_t *ret_n)
{
	const struct spans *s = &a->set.spans;
	u8(*ids)[16] = reallocarray(NULL, s->spans.n + 1, 16);
	size_t n = 0;
	int r = ids ? 0 : -ENOMEM;

	if (r == 0)
		memcpy(ids[n++], a->trace_id, 16);
	for (size_t i = 0; i < s->spans.n && r == 0; i++) {
		const char *text = spans_attribute(s, &s->spans.data[i], SKYWALKING_SEGMENT);
		size_t before = a->segments.n;
		u8 first[8];

		if (!text)
			continue;
		skywalking_span_id(text, 0, first);
		r = add_segment(a, first, trace_set_span(&a->set, a->trace_id, first));
		if (r == 0 && a->segments.n > before)
			skywalking_own_trace_id(text, ids[n++]);
	}
	if (r < 0) {
		free(ids);
		return r;
	}
	qsort(ids, n, 16, compare_ids);
	*ret = ids;
	*ret_n = n;
	return 0;
}

/* ---- samples ---- */

static enum sample_type type_of(const struct analysis *a, const struct store_link *l)
{
	struct store_type t;

	return store_type_parse(profile_string(a->links.profile, l->type), &t) == 0
		       ? store_type_find(&t)
		       : SAMPLE_TYPE_N;
}

static bool is_sequence(const struct analysis *a, const struct store_link *l)
{
	return type_of(a, l) == SAMPLE_TYPE_REQUEST_SEQUENCE;
}

static bool is_wanted(const struct analysis *a, const struct store_link *l)
{
	return *a->type ? !strcmp(profile_string(a->links.profile, l->type), a->type)
			: type_of(a, l) == SAMPLE_TYPE_REQUEST_WALL;
}

static int compare_links(const void *a, const void *b)
{
	const struct store_link *x = a, *y = b;
	int order = memcmp(x->link.span_id, y->link.span_id, sizeof(x->link.span_id));

	if (order)
		return order;
	if (x->series != y->series)
		return x->series < y->series ? -1 : 1;
	if (x->time_ms != y->time_ms)
		return x->time_ms < y->time_ms ? -1 : 1;
	if (x->stack != y->stack)
		return x->stack < y->stack ? -1 : 1;
	return x->type < y->type ? -1 : x->type > y->type;
}

/* Keeps the wanted samples and their numbers, each once, by span, thread and time. */
static void order_links(struct analysis *a)
{
	struct store_link *all = a->links.links.data;
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < a->links.links.n; i++)
		if (is_wanted(a, &all[i]) || is_sequence(a, &all[i]))
			all[n++] = all[i];
	if (n)
		qsort(all, n, sizeof(*all), compare_links);
	for (size_t i = 0; i < n; i++)
		if (!kept || compare_links(&all[kept - 1], &all[i]) != 0)
			all[kept++] = all[i];
		else if (!memcmp(all[kept - 1].link.trace_id, all[i].link.trace_id, 16))
			all[kept - 1].value += all[i].value;
	a->links.links.n = kept;
}

/* The number of the snapshot that is link i; false: it is none of SkyWalking's. */
static bool find_sequence(const struct analysis *a, size_t i, u32 *ret)
{
	const struct store_link *all = a->links.links.data;
	struct store_link key = all[i];

	for (size_t k = i - MIN(i, (size_t)1); k < a->links.links.n && k <= i + 1; k++) {
		key.type = all[k].type;
		if (k != i && is_sequence(a, &all[k]) && compare_links(&key, &all[k]) == 0 &&
		    all[k].value > 0) {
			*ret = (u32)MIN(all[k].value - 1, (s64)INT32_MAX);
			return true;
		}
	}
	return false;
}

static int load_samples(struct api_call *c, struct analysis *a)
{
	_cleanup_free_ u8(*ids)[16] = NULL;
	struct store_link_filter f = {.to_ms = 1ULL << 62};
	struct store_filter of = {.from_ms = ~0ULL};
	int r = trace_set_load(a->store, &a->trace_id, 1, NULL, &a->set, &c->d);

	if (r == 0)
		r = find_segments(a, &ids, &f.n_traces);
	f.traces = ids;
	if (r == 0)
		r = store_find_links(a->store, &f, &a->links, &c->d);
	if (r < 0)
		return r;
	if (!a->set.spans.spans.n && !a->links.links.n)
		return diag_set(&c->d, -ENOENT, "there is no such trace, or not any more");
	a->span = a->of_span ? trace_set_span(&a->set, a->trace_id, a->span_id) : PROFILE_NONE;
	if (a->of_span && a->span == PROFILE_NONE)
		return diag_set(&c->d, -ENOENT, "the trace has no such span, or not any more");
	order_links(a);
	if (!a->links.links.n)
		return 0;
	vec_foreach (&a->links.links, l) {
		of.from_ms = MIN(of.from_ms, l->time_ms);
		of.to_ms = MAX(of.to_ms, l->time_ms + 1);
	}
	if (!*a->type)
		vec_foreach (&a->links.links, l)
			if (is_wanted(a, l))
				snprintf(a->type, sizeof(a->type), "%s",
					 profile_string(a->links.profile, l->type));
	of.type = a->type;
	r = store_find_series(a->store, &of, &a->series, &c->d);
	for (size_t i = 0; i < a->series.series.n && r == 0; i++)
		r = map_put(&a->by_series, a->series.series.data[i].id >> 1, i);
	return r;
}

/* ---- frames ---- */

/* The number of a frame, the same for all that are shown alike. */
static int number_of(struct analysis *a, u32 frame, u32 *ret)
{
	const struct profile_frame *f = &a->stacks->frames.data[frame];
	_cleanup_str_ struct str name = {}, text = {};
	const char *file =
		f->function == PROFILE_NONE
			? ""
			: profile_string(a->stacks, a->stacks->functions.data[f->function].file);
	u64 key, *known;
	int r;

	str_printf(&text, "%s\n%s\n%u\n%u", profile_frame_name(a->stacks, frame, &name), file,
		   a->by_line ? f->line : 0, f->kind);
	if (text.failed)
		return -ENOMEM;
	key = hash_bytes(str_get(&text), text.n) >> 1;
	known = map_get(&a->frames, key);
	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	*ret = (u32)a->frame_of.n;
	r = map_put(&a->frames, key, a->frame_of.n);
	return r < 0 ? r : vec_push(&a->frame_of, frame);
}

/* numbers: by frame, PROFILE_NONE where not known yet. */
static int put_stack(struct analysis *a, u32 stack, u32 *numbers, struct group *g,
		     struct analyze_snapshot *e)
{
	const struct profile_stack *s = &a->stacks->stacks.data[stack];
	int r = 0;

	e->first = (u32)g->snapshots.frames.n;
	e->n = s->n;
	for (u32 i = 0; i < s->n && r == 0; i++) {
		u32 frame = a->stacks->stack_frames.data[s->first + s->n - 1 - i];

		if (numbers[frame] == PROFILE_NONE)
			r = number_of(a, frame, &numbers[frame]);
		if (r == 0)
			r = vec_push(&g->snapshots.frames, numbers[frame]);
	}
	return r;
}

/* ---- groups ---- */

/* The thread of a series: what its labels say, but what it waited for. */
static const char *thread_of(struct analysis *a, u64 series, u64 *ret_key)
{
	static const char *const names[] = {"thread.name", "thread.id", "process.pid",
					    "service.name", "host.name"};
	_cleanup_str_ struct str text = {};
	const u64 *at = map_get(&a->by_series, series >> 1);
	const char *thread = "";

	for (size_t i = 0; i < ARRAY_SIZE(names) && at; i++) {
		const char *value = profile_label(a->series.profile,
						  a->series.series.data[*at].resource, names[i]);

		str_printf(&text, "%s\n", value ? value : "");
		if (!i && value)
			thread = value;
	}
	if (!text.n)
		str_printf(&text, "%llu", series);
	*ret_key = hash_bytes(str_get(&text), text.n) | 1;
	return thread;
}

static const char *service_of(const struct analysis *a, const struct store_link *l)
{
	return profile_string(a->links.profile, l->service);
}

/* Whether a sample was taken for the task. Two tasks that keep a request each have its samples. */
static bool is_of_task(const struct analysis *a, const struct store_link *l)
{
	const u64 *at = a->task ? map_get(&a->by_series, l->series >> 1) : NULL;
	const char *task =
		at ? profile_label(a->series.profile, a->series.series.data[*at].resource, "task")
		   : NULL;

	return !a->task || (task && !strcmp(task, a->task));
}

/* The group of a sample, index in a->groups. */
static int group_of(struct analysis *a, const struct store_link *l, bool snapshot, u32 *ret)
{
	struct group new = {.segment = NO_SEGMENT, .service = service_of(a, l), .thread = ""};
	struct segment *s = NULL;
	int r = 0;

	if (snapshot) {
		r = add_segment(a, l->link.span_id, PROFILE_NONE);
		if (r < 0)
			return r;
		new.segment = (u32)*map_get(&a->by_span, hash_id(l->link.span_id));
		s = &a->segments.data[new.segment];
		if (s->group) {
			*ret = s->group - 1;
			return 0;
		}
		if (s->span != PROFILE_NONE) {
			const struct span *e = &a->set.spans.spans.data[s->span];

			new.thread = spans_string(&a->set.spans, e->name);
			new.service = spans_string(&a->set.spans, e->service);
		}
		s->group = (u32)a->groups.n + 1;
	} else {
		new.thread = thread_of(a, l->series, &new.key);
		for (*ret = 0; *ret < a->groups.n; (*ret)++)
			if (a->groups.data[*ret].key == new.key)
				return 0;
	}
	*ret = (u32)a->groups.n;
	return vec_push(&a->groups, new);
}

/* Whether a sample of culprit's belongs to what was asked for. */
static bool is_asked(const struct analysis *a, const struct store_link *l)
{
	u32 span;

	if (!a->of_span || !memcmp(l->link.span_id, a->span_id, sizeof(a->span_id)))
		return true;
	if (!a->children)
		return false;
	span = trace_set_span(&a->set, a->trace_id, l->link.span_id);
	return span != PROFILE_NONE && trace_set_is_below(&a->set, span, a->span);
}

/* stack: in a->stacks. */
static int add_sample(struct analysis *a, size_t i, u32 stack, u32 *numbers)
{
	const struct store_link *l = &a->links.links.data[i];
	struct analyze_snapshot e = {.time_ns = l->time_ms * 1000000, .value = l->value};
	bool snapshot = find_sequence(a, i, &e.sequence);
	struct group *g;
	u32 group;
	int r;

	if (!is_of_task(a, l) || (!snapshot && !is_asked(a, l)))
		return 0;
	r = group_of(a, l, snapshot, &group);
	if (r < 0)
		return r;
	g = &a->groups.data[group];
	/* Links are in the order of their times, span by span. */
	if (!snapshot)
		e.sequence = (u32)g->snapshots.list.n;
	g->first_ns = g->snapshots.list.n ? MIN(g->first_ns, e.time_ns) : e.time_ns;
	g->last_ns = MAX(g->last_ns, e.time_ns);
	r = put_stack(a, stack, numbers, g, &e);
	return r < 0 ? r : vec_push(&g->snapshots.list, e);
}

static int make_groups(struct api_call *c, struct analysis *a)
{
	size_t n = a->links.links.n;
	_cleanup_free_ u64 *ids = calloc(n + 1, sizeof(*ids));
	_cleanup_free_ u32 *stacks = calloc(n + 1, sizeof(*stacks)), *numbers = NULL;
	int r = ids && stacks ? 0 : -ENOMEM;

	a->stacks = profile_create();
	if (!a->stacks)
		r = -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++)
		ids[i] = a->links.links.data[i].stack;
	if (r == 0)
		r = store_load_stacks(a->store, ids, n, a->stacks, stacks, &c->d);
	if (r == 0)
		numbers = malloc((a->stacks->frames.n + 1) * sizeof(*numbers));
	if (r == 0 && !numbers)
		r = -ENOMEM;
	if (r < 0)
		return r;
	memset(numbers, 0xff, (a->stacks->frames.n + 1) * sizeof(*numbers));
	for (size_t i = 0; i < n && r == 0; i++) {
		r = quota_check(&c->d);
		if (r < 0 || is_sequence(a, &a->links.links.data[i]))
			continue;
		if (stacks[i] == PROFILE_NONE)
			a->links.damaged = true;
		else
			r = add_sample(a, i, stacks[i], numbers);
	}
	return r;
}

/* ---- estimates ---- */

static struct analyze_range range_of(const struct span *e)
{
	return (struct analyze_range){0, e->start_ns, e->start_ns + e->duration_ns};
}

/* The part of the span that is not its children's in the same segment. */
static int own_ranges(struct analysis *a, const char *segment, struct analyze_ranges *ret)
{
	const struct spans *s = &a->set.spans;
	const struct span *of = &s->spans.data[a->span];
	const struct analyze_range all = range_of(of);
	struct analyze_ranges children = {};
	int r = 0;

	for (size_t i = 0; i < s->spans.n && r == 0; i++) {
		const struct span *e = &s->spans.data[i];
		const char *its = spans_attribute(s, e, SKYWALKING_SEGMENT);

		if (its && !strcmp(its, segment) && !memcmp(e->parent_id, of->span_id, 8))
			r = vec_push(&children.list, range_of(e));
	}
	if (r == 0)
		r = analyze_without(&all, children.list.data, children.list.n, ret);
	vec_deinit(&children.list);
	return r;
}

/* Which times of the segment were asked for; none: it does not belong to the span. */
static int asked_ranges(struct analysis *a, const struct segment *s,
			const struct analyze_range *extent, struct analyze_ranges *ret)
{
	const struct spans *spans = &a->set.spans;
	const char *segment = NULL;
	u8 first[8] = {};

	if (!a->of_span)
		return vec_push(&ret->list, *extent);
	segment = spans_attribute(spans, &spans->spans.data[a->span], SKYWALKING_SEGMENT);
	if (segment)
		skywalking_span_id(segment, 0, first);
	if (segment && !memcmp(first, s->span_id, sizeof(first)))
		return a->children ? vec_push(&ret->list, range_of(&spans->spans.data[a->span]))
				   : own_ranges(a, segment, ret);
	if (a->children && s->span != PROFILE_NONE && trace_set_is_below(&a->set, s->span, a->span))
		return vec_push(&ret->list, *extent);
	return 0;
}

static int analyze_group(struct analysis *a, const struct group *g, struct analyze_calls *ret)
{
	const struct segment *s = g->segment == NO_SEGMENT ? NULL : &a->segments.data[g->segment];
	struct analyze_range extent = {0, g->first_ns, g->last_ns};
	struct analyze_ranges ranges = {};
	u64 gap;
	int r;

	if (!s)
		return a->compatible ? analyze_skywalking(&g->snapshots, &extent, 1,
							  ANALYZE_SKYWALKING_MAX, ret)
				     : analyze_sum(&g->snapshots, ret);
	if (s->span != PROFILE_NONE)
		extent = range_of(&a->set.spans.spans.data[s->span]);
	r = asked_ranges(a, s, &extent, &ranges);
	if (r == 0)
		r = analyze_usual_gap(&g->snapshots, &gap);
	if (r == 0 && ranges.list.n && a->compatible)
		r = analyze_skywalking(&g->snapshots, ranges.list.data, ranges.list.n,
				       ANALYZE_SKYWALKING_MAX, ret);
	else if (r == 0 && ranges.list.n)
		r = analyze_unbiased(&g->snapshots, &extent, 1, ranges.list.data, ranges.list.n,
				     2 * MAX(gap, (u64)PERIOD_NS), ret);
	vec_deinit(&ranges.list);
	return r;
}

/* ---- the answer ---- */

static void put_hex(struct json_writer *w, const char *key, const u8 *id, size_t n)
{
	char text[2 * 16 + 1];

	text_hex(id, n, text);
	json_put_text(w, key, text);
}

static void put_frame(struct json_writer *w, const struct analysis *a, u32 number)
{
	const struct profile_frame *f;
	_cleanup_str_ struct str scratch = {};

	if (number == ANALYZE_NOT_SAMPLED) {
		json_put_text(w, "function", "[not sampled]");
		json_put_text(w, "kind", vocab_frame_kind(FRAME_NOTE)->name);
		return;
	}
	f = &a->stacks->frames.data[a->frame_of.data[number]];
	json_put_text(w, "function",
		      profile_frame_name(a->stacks, a->frame_of.data[number], &scratch));
	json_put_text(w, "kind", vocab_frame_kind(f->kind)->name);
	if (f->function != PROFILE_NONE && a->stacks->functions.data[f->function].file)
		json_put_text(
			w, "file",
			profile_string(a->stacks, a->stacks->functions.data[f->function].file));
	if (a->by_line && f->line)
		json_put_u64(w, "line", f->line);
}

static void put_rows(struct json_writer *w, const struct analysis *a, const struct analyze_calls *c)
{
	u32 first = 1, next = 1;

	json_open_array(w, "rows");
	for (size_t i = 0; i < c->rows.n; i++) {
		const struct analyze_call *row = &c->rows.data[i];

		/* Ids of all trees of a group are in one order. */
		first = row->id == 1 ? next : first;
		json_open_object(w, NULL);
		json_put_u64(w, "id", next++);
		json_put_u64(w, "parent", row->parent ? first + row->parent - 1 : 0);
		put_frame(w, a, row->frame);
		json_put_s64(w, "total_ns", row->total_ns);
		json_put_s64(w, "self_ns", row->self_ns);
		json_put_u64(w, "count", row->count);
		json_close(w);
	}
	json_close(w);
}

static void put_group(struct json_writer *w, const struct analysis *a, const struct group *g,
		      const struct analyze_calls *c)
{
	s64 total = 0;
	u64 count = 0;

	for (size_t i = 0; i < c->rows.n; i++)
		if (!c->rows.data[i].parent) {
			total += c->rows.data[i].total_ns;
			count += c->rows.data[i].count;
		}
	json_open_object(w, NULL);
	json_put_text(w, "service", g->service);
	json_put_text(w, "thread", g->thread);
	json_put_bool(w, "snapshots", g->segment != NO_SEGMENT);
	if (g->segment != NO_SEGMENT)
		put_hex(w, "span_id", a->segments.data[g->segment].span_id, 8);
	json_put_s64(w, "total_ns", total);
	json_put_u64(w, "count", count);
	put_rows(w, a, c);
	json_close(w);
}

static int put_groups(struct api_call *c, struct analysis *a)
{
	size_t rows = 0;
	int r = 0;

	json_open_array(&c->json, "groups");
	for (size_t i = 0; i < a->groups.n && r == 0; i++) {
		_cleanup_calls_ struct analyze_calls calls = {};

		r = quota_check(&c->d);
		if (r == 0)
			r = analyze_group(a, &a->groups.data[i], &calls);
		rows += calls.rows.n;
		if (r == 0 && rows > API_MAX_NODES)
			r = -E2BIG;
		if (r == 0 && calls.rows.n)
			put_group(&c->json, a, &a->groups.data[i], &calls);
		a->found = MAX(a->found, calls.found);
	}
	json_close(&c->json);
	return r;
}

static int put_answer(struct api_call *c, struct analysis *a)
{
	struct analyze_calls most = {};
	_cleanup_str_ struct str tip = {};
	int r;

	json_open_object(&c->json, NULL);
	put_hex(&c->json, "trace_id", a->trace_id, 16);
	if (a->of_span)
		put_hex(&c->json, "span_id", a->span_id, 8);
	json_put_text(&c->json, "type", a->type);
	json_put_text(&c->json, "estimator", a->compatible ? "skywalking" : "unbiased");
	json_put_text(&c->json, "children", a->children ? "include" : "exclude");
	r = put_groups(c, a);
	most.found = a->found;
	analyze_skywalking_tip(&most, ANALYZE_SKYWALKING_MAX, &tip);
	if (tip.n)
		json_put_text(&c->json, "tip", str_get(&tip));
	json_put_bool(&c->json, "damaged",
		      a->links.damaged || a->set.spans.damaged || a->series.damaged);
	json_close(&c->json);
	return r;
}

static int analysis(struct api_call *c)
{
	__attribute__((cleanup(analysis_deinit))) struct analysis a = {.store = c->a->o.store};
	int r = read_parameters(c, &a);

	if (r == 0)
		r = load_samples(c, &a);
	if (r == 0)
		r = make_groups(c, &a);
	return r < 0 ? r : put_answer(c, &a);
}

const struct api_route api_analysis_routes[] = {
	{"GET", "/api/v1/requests/{trace_id}/analysis", NET_ROLE_READ, API_STYLE_JSON, analysis},
	{},
};
