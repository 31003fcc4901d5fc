/* SPDX-License-Identifier: Apache-2.0 */
/* The samples of kept requests (kept.h): from the store, each once, in order, without wakers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/skywalking.h"
#include "server/api/kept.h"

#define MAX_SEGMENTS 1000000
#define WOKEN "[woken by "

const char *const kept_group_names[KEPT_GROUPS] = {"slow", "control"};

void kept_deinit(struct kept *k)
{
	vec_deinit(&k->asked);
	free(k->traces);
	trace_set_deinit(&k->set);
	map_deinit(&k->by_span);
	vec_deinit(&k->segments);
	map_deinit(&k->by_segment);
	store_links_deinit(&k->links);
	store_series_set_deinit(&k->series);
	map_deinit(&k->by_series);
	free(k->of_series);
	map_deinit(&k->threads);
	profile_destroy(k->stacks);
	strtab_deinit(&k->who);
	vec_deinit(&k->samples);
}

const struct store_link *kept_link(const struct kept *k, const struct kept_sample *s)
{
	return &k->links.links.data[s->link];
}

/* ---- traces and spans ---- */

static int compare_ids(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

static size_t sort_ids(u8 (*ids)[16], size_t n)
{
	size_t kept = 0;

	if (n)
		qsort(ids, n, 16, compare_ids);
	for (size_t i = 0; i < n; i++)
		if (!kept || memcmp(ids[kept - 1], ids[i], 16) != 0)
			memmove(ids[kept++], ids[i], 16);
	return kept;
}

/* The index of a trace, or PROFILE_NONE. */
static u32 trace_of(const struct kept *k, const u8 id[16])
{
	const u8(*at)[16] =
		k->n_traces ? bsearch(id, k->traces, k->n_traces, 16, compare_ids) : NULL;

	return at ? (u32)(at - (const u8(*)[16])k->traces) : PROFILE_NONE;
}

static int resolve_asked(struct kept *k)
{
	int r = 0;

	for (size_t i = 0; i < k->asked.n && r == 0; i++) {
		struct kept_asked *q = &k->asked.data[i];

		q->trace = trace_of(k, q->trace_id);
		q->span =
			q->whole ? PROFILE_NONE : trace_set_span(&k->set, q->trace_id, q->span_id);
		if (k->by_request && q->span != PROFILE_NONE)
			r = map_put(&k->by_span, q->span, i);
	}
	return r;
}

static int load_spans(struct api_call *c, struct kept *k)
{
	int r;

	k->traces = reallocarray(NULL, k->asked.n + 1, sizeof(*k->traces));
	if (!k->traces)
		return -ENOMEM;
	vec_foreach (&k->asked, q)
		memcpy(k->traces[k->n_traces++], q->trace_id, 16);
	k->n_traces = sort_ids(k->traces, k->n_traces);
	r = trace_set_load(k->store, (const u8(*)[16])k->traces, k->n_traces, k->service, &k->set,
			   &c->d);
	return r < 0 ? r : resolve_asked(k);
}

/* ---- segments of SkyWalking ---- */

static u64 hash_id(const u8 *id, size_t n)
{
	return hash_bytes(id, n) >> 1; /* a map cannot have the two largest keys */
}

static int add_segment(struct kept *k, const u8 span_id[8], u32 span)
{
	struct kept_segment s = {.span = span};
	int r;

	if (map_get(&k->by_segment, hash_id(span_id, 8)))
		return 0;
	if (k->segments.n == MAX_SEGMENTS)
		return -E2BIG;
	memcpy(s.span_id, span_id, sizeof(s.span_id));
	r = map_put(&k->by_segment, hash_id(span_id, 8), k->segments.n);
	return r < 0 ? r : vec_push(&k->segments, s);
}

u32 kept_segment_of(const struct kept *k, const struct kept_sample *s)
{
	const u64 *at = map_get(&k->by_segment, hash_id(kept_link(k, s)->link.span_id, 8));

	return at ? (u32)*at : KEPT_NO_SEQUENCE;
}

/*
 * The traces, and the traces of their segments' own, in *ret, which the caller frees. own: hash of
 * one of the latter → trace.
 */
static int find_segments(struct kept *k, struct map *own, u8 (**ret)[16], size_t *ret_n)
{
	const struct spans *s = &k->set.spans;
	u8(*ids)[16] = reallocarray(NULL, s->spans.n + k->n_traces + 1, 16);
	size_t n = k->n_traces;
	int r = ids ? 0 : -ENOMEM;

	if (r == 0)
		memcpy(ids, k->traces, n * 16);
	for (size_t i = 0; i < s->spans.n && r == 0; i++) {
		const struct span *e = &s->spans.data[i];
		const char *text = spans_attribute(s, e, SKYWALKING_SEGMENT);
		size_t before = k->segments.n;
		u8 first[8];

		if (!text)
			continue;
		skywalking_span_id(text, 0, first);
		r = add_segment(k, first, trace_set_span(&k->set, e->trace_id, first));
		if (r < 0 || k->segments.n == before)
			continue;
		skywalking_own_trace_id(text, ids[n]);
		r = map_put(own, hash_id(ids[n++], 16), trace_of(k, e->trace_id));
	}
	if (r < 0) {
		free(ids);
		return r;
	}
	*ret_n = sort_ids(ids, n);
	*ret = ids;
	return 0;
}

/* ---- links ---- */

static enum sample_type type_of(const struct kept *k, const struct store_link *l)
{
	struct store_type t;

	return store_type_parse(profile_string(k->links.profile, l->type), &t) == 0
		       ? store_type_find(&t)
		       : SAMPLE_TYPE_N;
}

static bool is_sequence(const struct kept *k, const struct store_link *l)
{
	return type_of(k, l) == SAMPLE_TYPE_REQUEST_SEQUENCE;
}

static bool is_wanted(const struct kept *k, const struct store_link *l)
{
	return *k->type ? !strcmp(profile_string(k->links.profile, l->type), k->type)
			: type_of(k, l) == SAMPLE_TYPE_REQUEST_WALL;
}

/* By what tells samples apart, but for the type. */
static int compare_places(const struct kept *k, const struct kept_sample *a,
			  const struct kept_sample *b)
{
	const struct store_link *x = kept_link(k, a), *y = kept_link(k, b);
	int order = memcmp(x->link.span_id, y->link.span_id, sizeof(x->link.span_id));

	if (a->trace != b->trace)
		return a->trace < b->trace ? -1 : 1;
	if (order)
		return order;
	if (x->series != y->series)
		return x->series < y->series ? -1 : 1;
	if (x->time_ms != y->time_ms)
		return x->time_ms < y->time_ms ? -1 : 1;
	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static int compare_samples(const void *a, const void *b, void *arg)
{
	const struct kept *k = arg;
	const struct kept_sample *x = a, *y = b;
	int order = compare_places(k, x, y);

	if (order)
		return order;
	if (kept_link(k, x)->type != kept_link(k, y)->type)
		return kept_link(k, x)->type < kept_link(k, y)->type ? -1 : 1;
	return x->own - y->own;
}

static int take_links(struct kept *k, const struct map *own)
{
	int r = 0;

	for (size_t i = 0; i < k->links.links.n && r == 0; i++) {
		const struct store_link *l = &k->links.links.data[i];
		struct kept_sample s = {.trace = trace_of(k, l->link.trace_id),
					.link = (u32)i,
					.request = PROFILE_NONE,
					.stack = PROFILE_NONE,
					.sequence = KEPT_NO_SEQUENCE};
		const u64 *of = s.trace == PROFILE_NONE
					? map_get(own, hash_id(l->link.trace_id, 16))
					: NULL;

		if (!is_wanted(k, l) && !is_sequence(k, l))
			continue;
		if (of) {
			s.trace = (u32)*of;
			s.own = true;
		}
		r = vec_push(&k->samples, s);
	}
	return r;
}

/* Each once, by span, thread and time. */
static void order_samples(struct kept *k)
{
	struct kept_sample *all = k->samples.data;
	size_t kept = 0;

	if (k->samples.n)
		qsort_r(all, k->samples.n, sizeof(*all), compare_samples, k);
	for (size_t i = 0; i < k->samples.n; i++) {
		struct store_link *l = &k->links.links.data[all[i].link];
		struct store_link *last = kept ? &k->links.links.data[all[kept - 1].link] : NULL;

		if (!last || last->type != l->type ||
		    compare_places(k, &all[kept - 1], &all[i]) != 0)
			all[kept++] = all[i];
		else if (all[kept - 1].own == all[i].own)
			last->value += l->value;
	}
	k->samples.n = kept;
}

/* Gives the snapshots their numbers, which are beside them, and leaves out the numbers. */
static void take_sequences(struct kept *k)
{
	struct kept_sample *all = k->samples.data;
	size_t n = 0;

	for (size_t i = 0; i < k->samples.n; i++)
		for (size_t j = i - MIN(i, (size_t)1); j < k->samples.n && j <= i + 1; j++) {
			const struct store_link *l = kept_link(k, &all[j]);

			if (j != i && is_sequence(k, l) && l->value > 0 &&
			    !is_sequence(k, kept_link(k, &all[i])) &&
			    compare_places(k, &all[i], &all[j]) == 0)
				all[i].sequence = (u32)MIN(l->value - 1, (s64)INT32_MAX);
		}
	for (size_t i = 0; i < k->samples.n; i++)
		if (!is_sequence(k, kept_link(k, &all[i])))
			all[n++] = all[i];
	k->samples.n = n;
}

static int load_links(struct api_call *c, struct kept *k)
{
	_cleanup_free_ u8(*ids)[16] = NULL;
	struct store_link_filter f = {
		.from_ms = k->from_ms, .to_ms = k->to_ms, .service = k->service};
	struct map own = {};
	int r = find_segments(k, &own, &ids, &f.n_traces);

	f.traces = (const u8(*)[16])ids;
	if (r == 0 && f.n_traces)
		r = store_find_links(k->store, &f, &k->links, &c->d);
	if (r == 0)
		r = take_links(k, &own);
	map_deinit(&own);
	if (r < 0)
		return r;
	k->damaged = k->links.damaged || k->set.spans.damaged;
	order_samples(k);
	take_sequences(k);
	return 0;
}

/* ---- series ---- */

bool kept_is_of_task(const struct profile *p, u32 resource, const char *task)
{
	const char *label = profile_label(p, resource, "task");

	return label && !strcmp(label, task);
}

/* A key of the host and its thread with this id: a thread that lived shortly tells no process. */
static int thread_key(const struct profile *p, u32 resource, const char *id, u64 *ret)
{
	_cleanup_str_ struct str text = {};
	const char *host = profile_label(p, resource, "host.name");

	str_printf(&text, "%s\n%s", host ? host : "", id);
	*ret = hash_id((const u8 *)str_get(&text), text.n);
	return text.failed ? -ENOMEM : 0;
}

/* What its labels say, but what it waited for. */
static int read_series(struct kept *k, size_t at)
{
	static const char *const names[] = {"thread.name", "thread.id", "process.pid",
					    "service.name", "host.name"};
	const struct profile *p = k->series.profile;
	const struct store_found_series *e = &k->series.series.data[at];
	struct kept_series *s = &k->of_series[at];
	const char *id = profile_label(p, e->resource, "thread.id");
	_cleanup_str_ struct str text = {};
	u64 key;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = profile_label(p, e->resource, names[i]);

		str_printf(&text, "%s\n", value ? value : "");
		if (!i)
			s->thread = value ? value : "";
	}
	s->key = hash_bytes(str_get(&text), text.n) | 1;
	s->of_task = !k->task || kept_is_of_task(p, e->resource, k->task);
	if (id && *s->thread)
		r = thread_key(p, e->resource, id, &key);
	if (r == 0 && id && *s->thread)
		r = map_put(&k->threads, key, at);
	return text.failed ? -ENOMEM : r < 0 ? r : map_put(&k->by_series, e->id >> 1, at);
}

/*
 * For whom samples of the series waited: the labels owner, a thread id, and waker, a name, with
 * waker_tid if it is a thread's.
 */
static int read_whom(struct kept *k, size_t at)
{
	const struct profile *p = k->series.profile;
	u32 resource = k->series.series.data[at].resource;
	const char *owner = profile_label(p, resource, "owner");
	const char *waker = profile_label(p, resource, "waker");
	const char *tid = profile_label(p, resource, "waker_tid");
	_cleanup_str_ struct str text = {};
	const u64 *thread;
	u64 key;
	int r = 0;

	if (owner && *owner) {
		r = thread_key(p, resource, owner, &key);
		thread = r == 0 ? map_get(&k->threads, key) : NULL;
		str_printf(&text, "%s\n%s", owner, thread ? k->of_series[*thread].thread : "");
		if (r == 0)
			r = strtab_add(&k->who, str_get(&text), text.n, &k->of_series[at].owner);
	}
	if (r < 0 || !waker || !*waker)
		return text.failed ? -ENOMEM : r;
	str_clear(&text);
	str_printf(&text, "%s%s%s", tid ? tid : "", tid ? "\n" : "", waker);
	return text.failed ? -ENOMEM
			   : strtab_add(&k->who, str_get(&text), text.n, &k->of_series[at].waker);
}

static int load_series(struct api_call *c, struct kept *k)
{
	/* Of all types: a thread that had a lock may have samples of another type only. */
	struct store_filter f = {.from_ms = ~0ULL, .service = k->service};
	int r;

	vec_foreach (&k->samples, s) {
		const struct store_link *l = kept_link(k, s);

		f.from_ms = MIN(f.from_ms, l->time_ms);
		f.to_ms = MAX(f.to_ms, l->time_ms + 1);
		if (!*k->type)
			snprintf(k->type, sizeof(k->type), "%s",
				 profile_string(k->links.profile, l->type));
	}
	if (!k->samples.n)
		return 0;
	r = store_find_series(k->store, &f, &k->series, &c->d);
	if (r < 0)
		return r;
	k->damaged |= k->series.damaged;
	k->of_series = calloc(k->series.series.n + 1, sizeof(*k->of_series));
	r = k->of_series ? 0 : -ENOMEM;
	for (size_t i = 0; i < k->series.series.n && r == 0; i++)
		r = read_series(k, i);
	for (size_t i = 0; i < k->series.series.n && r == 0; i++)
		r = read_whom(k, i);
	return r;
}

static const struct kept_series *series_of(const struct kept *k, const struct kept_sample *s)
{
	const u64 *at = map_get(&k->by_series, kept_link(k, s)->series >> 1);

	return at ? &k->of_series[*at] : NULL;
}

/* ---- whose a sample is ---- */

/* Whether a sample was taken for the task. Two tasks that keep a request each have its samples. */
static bool is_of_task(const struct kept *k, const struct kept_sample *s)
{
	const struct kept_series *of = series_of(k, s);

	return !k->task || (of && of->of_task);
}

/* The span of a snapshot is that of its segment, in which its time decides. */
static u32 request_of_snapshot(const struct kept *k, const struct kept_sample *s)
{
	u32 segment = kept_segment_of(k, s);
	u32 span = segment == KEPT_NO_SEQUENCE ? PROFILE_NONE : k->segments.data[segment].span;
	const u64 *at = NULL;

	if (!k->by_request)
		return 0;
	if (span != PROFILE_NONE && k->set.request_of[span] != PROFILE_NONE)
		at = map_get(&k->by_span, k->set.request_of[span]);
	return at ? (u32)*at : PROFILE_NONE;
}

/* The request that a sample belongs to, or PROFILE_NONE. */
static u32 request_of(const struct kept *k, const struct kept_sample *s)
{
	const struct store_link *l = kept_link(k, s);
	const struct kept_asked *q = k->asked.data;
	const u64 *at;
	u32 span;

	if (s->sequence != KEPT_NO_SEQUENCE)
		return request_of_snapshot(k, s);
	if (k->by_request) {
		span = trace_set_request(&k->set, &l->link,
					 profile_string(k->links.profile, l->service));
		at = span == PROFILE_NONE ? NULL : map_get(&k->by_span, span);
		if (!at ||
		    (!k->children && memcmp(l->link.span_id, k->asked.data[*at].span_id, 8) != 0))
			return PROFILE_NONE;
		return (u32)*at;
	}
	if (q->whole || !memcmp(l->link.span_id, q->span_id, sizeof(q->span_id)))
		return 0;
	span = trace_set_span(&k->set, q->trace_id, l->link.span_id);
	return k->children && span != PROFILE_NONE && trace_set_is_below(&k->set, span, q->span)
		       ? 0
		       : PROFILE_NONE;
}

static int keep_asked(struct api_call *c, struct kept *k)
{
	size_t n = 0;

	for (size_t i = 0; i < k->samples.n; i++) {
		struct kept_sample *s = &k->samples.data[i];
		int r = quota_check(&c->d);

		if (r < 0)
			return r;
		if (!is_of_task(k, s))
			continue;
		/* Segments of spans that did not arrive. */
		if (s->sequence != KEPT_NO_SEQUENCE)
			r = add_segment(k, kept_link(k, s)->link.span_id, PROFILE_NONE);
		if (r < 0)
			return r;
		s->request = request_of(k, s);
		if (s->request == PROFILE_NONE)
			continue;
		k->asked.data[s->request].samples++;
		k->samples.data[n++] = *s;
	}
	k->samples.n = n;
	return 0;
}

/* ---- stacks ---- */

/*
 * A stack without who ended the wait, which the always-on profile has behind a note. waker: 0: the
 * stack is as it was.
 */
struct cut {
	u32 stack, waker;
	bool done;
};

static int cut_stack(struct kept *k, u32 stack, struct cut *ret)
{
	const struct profile_stack s = k->stacks->stacks.data[stack];
	_cleanup_str_ struct str scratch = {};
	_cleanup_free_ u32 *frames = NULL;

	*ret = (struct cut){.stack = stack, .done = true};
	for (u32 i = s.n; i--;) {
		u32 frame = k->stacks->stack_frames.data[s.first + i];
		const char *name;
		size_t n;
		int r;

		if (k->stacks->frames.data[frame].kind != FRAME_NOTE)
			continue;
		name = profile_frame_name(k->stacks, frame, &scratch);
		if (strncmp(name, WOKEN, strlen(WOKEN)) != 0)
			continue;
		name += strlen(WOKEN);
		n = strlen(name);
		r = strtab_add(&k->who, name, n && name[n - 1] == ']' ? n - 1 : n, &ret->waker);
		frames = r == 0 ? calloc(s.n + 1, sizeof(*frames)) : NULL;
		if (!frames)
			return -ENOMEM;
		memcpy(frames, &k->stacks->stack_frames.data[s.first + i + 1],
		       (s.n - i - 1) * sizeof(*frames));
		return profile_add_stack(k->stacks, frames, s.n - i - 1, &ret->stack);
	}
	return 0;
}

static int load_stacks(struct api_call *c, struct kept *k)
{
	size_t n = k->samples.n;
	_cleanup_free_ u64 *ids = calloc(n + 1, sizeof(*ids));
	_cleanup_free_ u32 *stacks = calloc(n + 1, sizeof(*stacks));
	_cleanup_free_ struct cut *cuts = NULL;
	int r = ids && stacks ? 0 : -ENOMEM;

	k->stacks = profile_create();
	if (!k->stacks)
		r = -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++)
		ids[i] = kept_link(k, &k->samples.data[i])->stack;
	if (r == 0)
		r = store_load_stacks(k->store, ids, n, k->stacks, stacks, &c->d);
	if (r == 0)
		cuts = calloc(k->stacks->stacks.n + 1, sizeof(*cuts));
	if (r == 0 && !cuts)
		r = -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++) {
		struct kept_sample *s = &k->samples.data[i];
		const struct kept_series *of;

		r = quota_check(&c->d);
		if (stacks[i] == PROFILE_NONE) {
			k->damaged = true;
			continue;
		}
		if (r == 0 && !cuts[stacks[i]].done)
			r = cut_stack(k, stacks[i], &cuts[stacks[i]]);
		of = series_of(k, s);
		s->stack = cuts[stacks[i]].stack;
		s->waker = of && of->waker ? of->waker : cuts[stacks[i]].waker;
		s->owner = of ? of->owner : 0;
	}
	return r;
}

/* ---- all of it ---- */

int kept_load(struct api_call *c, struct kept *k)
{
	int r;

	k->store = c->a->o.store;
	r = strtab_init(&k->who);
	if (r == 0)
		r = load_spans(c, k);
	if (r == 0)
		r = load_links(c, k);
	if (r == 0)
		r = load_series(c, k);
	if (r == 0 && !k->by_request && !k->set.spans.spans.n && !k->links.links.n)
		return diag_set(&c->d, -ENOENT, "there is no such trace, or not any more");
	if (r == 0 && !k->by_request && !k->asked.data[0].whole &&
	    k->asked.data[0].span == PROFILE_NONE)
		return diag_set(&c->d, -ENOENT, "the trace has no such span, or not any more");
	if (r == 0)
		r = keep_asked(c, k);
	return r < 0 ? r : load_stacks(c, k);
}
