/* SPDX-License-Identifier: Apache-2.0 */
/* query_profile(): turns the rows of a scan into a profile. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/quota.h"
#include "base/str.h"
#include "base/vocab.h"
#include "server/query/plan.h"
#include "server/query/query.h"

struct item {
	u64 stack; /* id in the store */
	u64 count;
	s64 value;
	u32 thread; /* in the profile */
};

struct answer {
	struct store *store;
	const struct query *q;
	struct plan *plan;
	struct profile *profile;
	bool waits; /* threads have what they waited for as an attribute */
	vec(struct item) items;
	struct diag *diag;
	bool damaged;
};

static int add_text(struct profile *p, const char *text, u32 *ret)
{
	return profile_add_string(p, text, strlen(text), ret);
}

static int set_type(struct profile *p, const char *type, bool whole_time)
{
	const struct vocab_sample_type *none =
		vocab_sample_type(whole_time ? SAMPLE_TYPE_WALL : SAMPLE_TYPE_SAMPLES);
	struct store_type t;
	int r = store_type_parse(type, &t);

	if (r == 0)
		r = profile_add_type(p, *t.name && !whole_time ? t.name : none->name,
				     *t.unit ? t.unit : none->unit);
	if (r == 0)
		r = add_text(p, t.period, &p->period_name);
	return r < 0 ? r : add_text(p, t.period_unit, &p->period_unit);
}

/* ---- threads ---- */

static int add_thread(struct answer *a, const char *service, u32 thread_name, u32 resource,
		      u32 attributes, u32 *ret)
{
	struct profile_thread t = {
		.thread_name = thread_name, .resource = resource, .attributes = attributes};
	int r = add_text(a->profile, service, &t.comm);

	return r < 0 ? r : profile_add_thread(a->profile, &t, ret);
}

/* A resource with one label; 0 without a value. */
static int add_label(struct answer *a, const char *name, const char *value, u32 *ret)
{
	struct profile_label l;
	int r = add_text(a->profile, name, &l.name);

	*ret = 0;
	if (r == 0)
		r = add_text(a->profile, value, &l.value);
	return r == 0 && *value ? profile_add_resource(a->profile, &l, 1, ret) : r;
}

/* The thread for all series with this value of a label, and with this wait ("" = none). */
static int wait_thread(struct answer *a, const char *name, const char *value, const char *wait,
		       u32 *ret)
{
	u32 resource, attributes;
	int r = add_label(a, name, value, &resource);

	if (r == 0)
		r = add_label(a, PROFILE_WAIT, wait, &attributes);
	return r < 0 ? r : add_thread(a, value, 0, resource, attributes, ret);
}

static int label_thread(struct answer *a, const char *name, const char *value, u32 *ret)
{
	return wait_thread(a, name, value, "", ret);
}

static int series_thread(struct answer *a, const struct store_found_series *s, u32 *ret)
{
	const struct profile *set = a->plan->set.profile;
	const struct profile_resource *r = &set->resources.data[s->resource];
	struct profile_label labels[PROFILE_MAX_LABELS];
	const char *service = "";
	u32 resource = 0, n = 0, thread_name = 0;
	int res = 0;

	for (u32 i = 0; i < r->n && res == 0; i++) {
		const struct profile_label *l = &set->labels.data[r->first + i];
		const char *name = profile_string(set, l->name);
		const char *value = profile_string(set, l->value);

		if (!strcmp(name, "thread.name")) {
			res = add_text(a->profile, value, &thread_name);
			continue;
		}
		if (!strcmp(name, "service.name"))
			service = value;
		res = add_text(a->profile, name, &labels[n].name);
		if (res == 0)
			res = add_text(a->profile, value, &labels[n++].value);
	}
	if (res == 0)
		res = profile_add_resource(a->profile, labels, n, &resource);
	return res < 0 ? res : add_thread(a, service, thread_name, resource, 0, ret);
}

/* ---- what is asked of the store ---- */

static int scan_by(struct answer *a, const struct store_filter *f, u32 by, struct store_rows *ret)
{
	bool states = store_type_is_state(a->plan->type);
	struct map weights = {};
	int r = store_scan(a->store, f, STORE_BY_STACK | by | (states ? STORE_BY_SERIES : 0), 0,
			   ret, a->diag);

	a->damaged |= ret->damaged;
	/* At one moment each process that has rows is there. */
	if (r == 0 && states && f->to_ms - f->from_ms > 1)
		r = plan_weigh(a->store, a->q, f, &weights, a->diag);
	if (r == 0 && states)
		plan_take_means(ret, &weights);
	map_deinit(&weights);
	return r;
}

/* Adds the samples of all series; by_series: series id → thread. */
static int add_series(struct answer *a, const struct map *by_series)
{
	const struct store_filter f = plan_filter(a->plan, a->q);
	_cleanup_store_rows_ struct store_rows rows = {};
	int r = scan_by(a, &f, STORE_BY_SERIES, &rows);

	for (size_t i = 0; i < rows.rows.n && r == 0; i++) {
		const struct store_row *row = &rows.rows.data[i];
		u64 *thread = map_get(by_series, row->series);
		struct item e = {row->stack, row->count, row->value,
				 thread ? (u32)*thread : PROFILE_NONE};

		r = vec_push(&a->items, e);
	}
	return r;
}

static int scan_series(struct answer *a)
{
	struct map threads = {};
	u32 thread = 0;
	int r = 0;

	for (size_t i = 0; i < a->plan->series.n && r == 0; i++) {
		const struct store_found_series *s = &a->plan->series.data[i];

		r = series_thread(a, s, &thread);
		if (r == 0)
			r = map_put(&threads, s->id, thread);
	}
	if (r == 0)
		r = add_series(a, &threads);
	map_deinit(&threads);
	return r;
}

/* The thread of a value and a wait, created if it is new; ids of `values` are thread + 1. */
static int value_thread(struct answer *a, struct strtab *values, const char *value,
			const char *wait, u32 *ret)
{
	const char *group = a->q->group_by ? a->q->group_by : "service.name";
	_cleanup_str_ struct str key = {};
	size_t before = values->n;
	char text[128];
	u32 id, thread;
	int r;

	/* The prefix makes the key non-empty: "" always has an id. No name of a wait has a '='. */
	str_printf(&key, "%s=%s", wait, value);
	r = key.failed ? -ENOMEM : strtab_add(values, key.data, key.n, &id);
	if (r < 0)
		return r;
	*ret = id - 1;
	if (values->n == before)
		return 0;
	snprintf(text, sizeof(text), "[no %.100s]", group);
	return wait_thread(a, group, *value || !a->q->group_by ? value : text, wait, &thread);
}

static int scan_groups(struct answer *a)
{
	const char *group = a->q->group_by ? a->q->group_by : "service.name";
	__attribute__((cleanup(strtab_deinit))) struct strtab values = {};
	struct map threads = {};
	u32 thread = 0;
	int r = strtab_init(&values);

	for (size_t i = 0; i < a->plan->series.n && r == 0; i++) {
		const struct store_found_series *s = &a->plan->series.data[i];

		const char *wait = a->waits ? plan_label(a->plan, s, PROFILE_WAIT) : "";

		/* A program can call something else "wait". */
		wait = vocab_wait(vocab_wait_by_name(wait, strlen(wait)))->name;
		r = value_thread(a, &values, plan_label(a->plan, s, group), wait, &thread);
		if (r == 0)
			r = map_put(&threads, s->id, thread);
	}
	if (r == 0)
		r = add_series(a, &threads);
	map_deinit(&threads);
	return r;
}

/* One scan for all services: there may be 100,000. */
static int scan_services(struct answer *a)
{
	const struct store_filter f = plan_filter(a->plan, a->q);
	_cleanup_store_rows_ struct store_rows rows = {};
	_cleanup_free_ u32 *threads = NULL; /* by id of the service's name, plus 1 */
	int r = scan_by(a, &f, STORE_BY_SERVICE, &rows);

	threads = calloc(rows.names.n + 1, sizeof(*threads));
	if (r == 0 && !threads)
		r = -ENOMEM;
	for (size_t i = 0; i < rows.rows.n && r == 0; i++) {
		const struct store_row *row = &rows.rows.data[i];
		struct item e = {row->stack, row->count, row->value, threads[row->service]};

		if (!e.thread)
			r = label_thread(a, "service.name", strtab_get(&rows.names, row->service),
					 &e.thread);
		else
			e.thread--;
		threads[row->service] = e.thread + 1;
		if (r == 0)
			r = vec_push(&a->items, e);
	}
	return r;
}

/* ---- samples of spans ---- */

static int compare_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->thread != y->thread)
		return x->thread < y->thread ? -1 : 1;
	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static void merge_items(struct answer *a)
{
	size_t n = 0;

	if (a->items.n)
		qsort(a->items.data, a->items.n, sizeof(*a->items.data), compare_items);
	for (size_t i = 0; i < a->items.n; i++) {
		const struct item *e = &a->items.data[i];

		if (n && compare_items(&a->items.data[n - 1], e) == 0) {
			a->items.data[n - 1].count += e->count;
			a->items.data[n - 1].value += e->value;
		} else {
			a->items.data[n++] = *e;
		}
	}
	a->items.n = n;
}

struct store_span_filter query_span_filter(const struct query *q)
{
	return (struct store_span_filter){.from_ms = q->from_ms,
					  .to_ms = q->to_ms,
					  .service = q->spans.service,
					  .endpoint = q->spans.endpoint,
					  .min_ns = q->spans.min_ns,
					  .max_ns = q->spans.max_ns,
					  .statuses = q->spans.statuses,
					  .roots = true};
}

/* The thread of the request's service. */
static int request_thread(struct answer *a, const struct query_requests *all, u32 i, u32 *ret)
{
	u32 span = all->requests.data[i].span;

	return label_thread(a, "service.name",
			    spans_string(&all->set.spans, all->set.spans.spans.data[span].service),
			    ret);
}

/* The number of requests with samples, by thread. */
static int weigh_requests(struct answer *a, const struct query_requests *all, double *ret)
{
	u32 thread = 0;
	int r = 0;

	for (u32 i = 0; i < all->requests.n && r == 0; i++) {
		const struct request *e = &all->requests.data[i];

		if (!e->count)
			continue;
		r = request_thread(a, all, i, &thread);
		if (r == 0)
			ret[thread] += e->stands_for;
	}
	return r;
}

/*
 * A sample of a thinned-out trace counts for all traces that the trace represents. States do not
 * add up: the values of states are means over the requests of a service.
 */
static int scan_requests(struct answer *a)
{
	_cleanup_query_requests_ struct query_requests all = {};
	const struct store_span_filter f = query_span_filter(a->q);
	_cleanup_free_ double *weights = NULL;
	int r = query_requests(a->store, a->q, &f, &all, a->diag);

	if (r < 0)
		return r;
	snprintf(a->plan->type, sizeof(a->plan->type), "%s", all.type);
	a->damaged |= all.damaged;
	/* There are at most as many threads as requests. */
	weights = calloc(all.requests.n + 1, sizeof(*weights));
	r = weights ? weigh_requests(a, &all, weights) : -ENOMEM;
	for (size_t i = 0; i < all.samples.n && r == 0; i++) {
		const struct request_sample *e = &all.samples.data[i];
		double stands_for = all.requests.data[e->request].stands_for;
		struct item item = {.stack = e->stack,
				    .count = e->count,
				    .value = (s64)((double)e->value * stands_for)};

		r = request_thread(a, &all, e->request, &item.thread);
		if (r == 0)
			r = vec_push(&a->items, item);
	}
	merge_items(a);
	for (size_t i = 0; i < a->items.n && r == 0 && store_type_is_state(all.type); i++) {
		struct item *e = &a->items.data[i];

		e->value = llround((double)e->value / weights[e->thread]);
	}
	return r;
}

static bool is_of_span(const struct trace_set *t, const struct query_spans *q,
		       const struct profile_link *l)
{
	u32 asked, span;

	if (q->of == QUERY_OF_TRACE || !memcmp(l->span_id, q->span_id, sizeof(l->span_id)))
		return true;
	if (q->of == QUERY_OF_SPAN)
		return false;
	asked = trace_set_span(t, q->trace_id, q->span_id);
	span = trace_set_span(t, l->trace_id, l->span_id);
	return asked != PROFILE_NONE && span != PROFILE_NONE && trace_set_is_below(t, span, asked);
}

/* A sample of a span, for the thread of its service. */
static int add_link(struct answer *a, const struct store_links *l, const struct store_link *e,
		    struct store_rows *rows)
{
	u32 thread = 0;
	int r = label_thread(a, "service.name", profile_string(l->profile, e->service), &thread);

	return r < 0 ? r : link_rows_add(rows, thread, e);
}

/* Adds the sums of what add_link() added to `rows`, where a row's time is its thread. */
static int take_link_rows(struct answer *a, struct store_rows *rows)
{
	int r = 0;

	link_rows_merge(rows, a->plan->type);
	for (size_t i = 0; i < rows->rows.n && r == 0; i++) {
		const struct store_row *e = &rows->rows.data[i];

		r = vec_push(&a->items,
			     (struct item){e->stack, e->count, e->value, (u32)e->time_ms});
	}
	merge_items(a);
	return r;
}

static int scan_trace(struct answer *a)
{
	const struct query_spans *q = &a->q->spans;
	const struct store_link_filter f = {
		.to_ms = 1ULL << 62, .traces = &q->trace_id, .n_traces = 1};
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_trace_set_ struct trace_set t = {};
	_cleanup_store_rows_ struct store_rows rows = {};
	int r = store_find_links(a->store, &f, &l, a->diag);

	if (r == 0)
		r = trace_set_load(a->store, &q->trace_id, 1, NULL, &t, a->diag);
	if (r < 0)
		return r;
	if (a->q->type)
		snprintf(a->plan->type, sizeof(a->plan->type), "%s", a->q->type);
	else
		query_choose_type(&l, a->plan->type);
	a->damaged |= l.damaged || t.spans.damaged;
	for (size_t i = 0; i < l.links.n && r == 0; i++) {
		const struct store_link *e = &l.links.data[i];

		if (strcmp(profile_string(l.profile, e->type), a->plan->type) != 0 ||
		    !plan_has_series(a->plan, e->series) || !is_of_span(&t, q, &e->link))
			continue;
		r = add_link(a, &l, e, &rows);
	}
	return r < 0 ? r : take_link_rows(a, &rows);
}

static int compare_spans(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(((struct profile_link *)NULL)->span_id));
}

/* Samples of the listed spans or traces in the range. */
static int scan_listed(struct answer *a)
{
	const struct query_spans *q = &a->q->spans;
	const struct store_link_filter f = {.from_ms = a->q->from_ms,
					    .to_ms = a->q->to_ms,
					    .type = a->q->type,
					    .service = a->plan->service,
					    .traces = q->traces,
					    .n_traces = q->n_traces};
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_store_rows_ struct store_rows rows = {};
	int r = store_find_links(a->store, &f, &l, a->diag);

	snprintf(a->plan->type, sizeof(a->plan->type), "%s", a->q->type ? a->q->type : "");
	a->damaged |= l.damaged;
	for (size_t i = 0; i < l.links.n && r == 0; i++) {
		const struct store_link *e = &l.links.data[i];

		if (i % 1000 == 0)
			r = quota_check(a->diag);
		if (r < 0 || !plan_has_series(a->plan, e->series) ||
		    (q->n_spans && !bsearch(e->link.span_id, q->spans, q->n_spans,
					    sizeof(e->link.span_id), compare_spans)))
			continue;
		r = add_link(a, &l, e, &rows);
	}
	return r < 0 ? r : take_link_rows(a, &rows);
}

/* One scan for each moment that the selectors accept. */
static int scan_moments(struct answer *a)
{
	int r = 0;

	for (size_t i = 0; i < a->q->n_moments && r == 0; i++) {
		const struct query_moment *m = &a->q->moments[i];
		const struct store_found_series *s = NULL;
		_cleanup_store_rows_ struct store_rows rows = {};
		struct store_filter f = {.from_ms = m->time_ms,
					 .to_ms = m->time_ms + 1,
					 .type = a->plan->type,
					 .series = &m->series,
					 .n_series = 1};
		u32 thread = 0;

		vec_foreach (&a->plan->series, e)
			s = e->id == m->series ? e : s;
		r = quota_check(a->diag);
		if (r < 0 || !s || m->time_ms < a->q->from_ms || m->time_ms >= a->q->to_ms)
			continue;
		f.service = plan_label(a->plan, s, "service.name");
		r = label_thread(a, "service.name", f.service, &thread);
		if (r == 0)
			r = scan_by(a, &f, 0, &rows);
		for (size_t k = 0; k < rows.rows.n && r == 0; k++) {
			const struct store_row *row = &rows.rows.data[k];

			r = vec_push(&a->items,
				     (struct item){row->stack, row->count, row->value, thread});
		}
	}
	merge_items(a);
	return r;
}

static int scan_spans(struct answer *a)
{
	if (a->q->spans.of == QUERY_OF_LISTED)
		return scan_listed(a);
	if (a->q->spans.of == QUERY_OF_REQUESTS)
		return scan_requests(a);
	return scan_trace(a);
}

/* ---- what is kept ---- */

/* Loads the stacks of the items into the profile `into`. */
static int load_items(struct answer *a, struct profile *into, u32 **ret)
{
	_cleanup_free_ u64 *ids = calloc(a->items.n + 1, sizeof(*ids));
	_cleanup_free_ u32 *stacks = calloc(a->items.n + 1, sizeof(*stacks));
	int r;

	if (!ids || !stacks)
		return -ENOMEM;
	for (size_t i = 0; i < a->items.n; i++)
		ids[i] = a->items.data[i].stack;
	r = store_load_stacks(a->store, ids, a->items.n, into, stacks, a->diag);
	if (r == 0)
		*ret = take_ptr(stacks);
	return r;
}

/* A predicate cannot accept a lost stack. */
static int keep_matching(struct answer *a)
{
	_cleanup_query_stacks_ struct query_stacks *predicate = NULL;
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_free_ u32 *stacks = NULL;
	size_t n = 0;
	int r = p ? plan_predicate(a->q, &predicate, a->diag) : -ENOMEM;

	if (r == 0)
		r = load_items(a, p, &stacks);
	if (r == 0)
		r = query_stacks_profile(predicate, p);
	for (size_t i = 0; i < a->items.n && r >= 0; i++) {
		if (stacks[i] == PROFILE_NONE)
			continue;
		r = query_stacks_match(predicate, stacks[i], a->diag);
		if (r > 0)
			a->items.data[n++] = a->items.data[i];
	}
	a->items.n = r >= 0 ? n : a->items.n;
	return MIN(r, 0);
}

static u64 weight(const struct item *i)
{
	return i->value < 0 ? -(u64)i->value : (u64)i->value;
}

static int compare_weights(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (weight(x) != weight(y))
		return weight(x) > weight(y) ? -1 : 1;
	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* Replaces the lightest stacks with one stack, so that the total stays the same. */
static int cut_to_heaviest(struct answer *a, size_t max)
{
	struct profile *p = a->profile;
	u64 n = a->items.n - max;
	char text[64];
	u32 stack = 0;
	int r;

	qsort(a->items.data, a->items.n, sizeof(*a->items.data), compare_weights);
	snprintf(text, sizeof(text), "[%llu lighter stacks]", (unsigned long long)n);
	r = profile_add_note_stack(p, text, &stack);
	for (size_t i = max; i < a->items.n && r == 0; i++) {
		const struct item *e = &a->items.data[i];

		p->quality.samples += e->count;
		r = profile_add_sample(p, 0, e->thread, stack, &e->value);
	}
	a->items.n = max;
	return r;
}

static int add_samples(struct answer *a)
{
	struct profile *p = a->profile;
	_cleanup_free_ u32 *stacks = NULL;
	u32 lost = PROFILE_NONE;
	int r = load_items(a, p, &stacks);

	for (size_t i = 0; i < a->items.n && r == 0; i++) {
		const struct item *e = &a->items.data[i];

		if (stacks[i] == PROFILE_NONE && lost == PROFILE_NONE)
			r = profile_add_note_stack(p, "[stack lost: the store is damaged]", &lost);
		if (stacks[i] == PROFILE_NONE)
			stacks[i] = lost;
		if (r == 0)
			r = profile_add_sample(p, 0, e->thread, stacks[i], &e->value);
		if (r == 0) {
			profile_set_draws(p, e->count);
			profile_count_quality(p, stacks[i], e->count);
		}
	}
	return r;
}

static int fill_profile(struct answer *a, size_t max_stacks)
{
	int r;

	a->profile->time_ns = a->q->from_ms * 1000000;
	a->profile->duration_ns = (a->q->to_ms - a->q->from_ms) * 1000000;
	if (a->q->spans.of != QUERY_OF_ALL)
		r = scan_spans(a);
	else
		r = a->q->moments		 ? scan_moments(a)
		    : a->q->by_series		 ? scan_series(a)
		    : a->q->group_by || a->waits ? scan_groups(a)
						 : scan_services(a);
	if (r == 0 && a->q->strict && !a->items.n)
		r = query_check_type(a->store, a->q, a->diag);
	/* For spans the type is known only now; samples are added later. */
	if (r == 0)
		r = set_type(a->profile, a->plan->type, a->q->whole_time);
	if (r == 0 && plan_selects_stacks(a->q))
		r = keep_matching(a);
	if (r == 0 && max_stacks && a->items.n > max_stacks)
		r = cut_to_heaviest(a, max_stacks);
	return r < 0 ? r : add_samples(a);
}

/* Of waits the plan needs the series, which tell what was waited for. */
static int init_plan(struct answer *a, struct diag *reterr_diag)
{
	const struct query *q = a->q;
	u32 flags = PLAN_ONE_TYPE;
	int r;

	if (q->spans.of)
		return plan_init_series(a->plan, a->store, q, reterr_diag);
	if (q->by_series || q->group_by || q->n_moments || q->whole_time ||
	    (q->type && store_type_has_waits(q->type)))
		flags |= PLAN_SERIES;
	r = plan_init(a->plan, a->store, q, flags, reterr_diag);
	a->waits = q->whole_time || store_type_has_waits(a->plan->type);
	if (r < 0 || !a->waits || flags & PLAN_SERIES)
		return r;
	plan_deinit(a->plan);
	return plan_init(a->plan, a->store, q, flags | PLAN_SERIES, reterr_diag);
}

static int profile_of_type(struct store *s, const struct query *q, size_t max_stacks,
			   struct profile **ret, struct diag *reterr_diag)
{
	_cleanup_plan_ struct plan plan = {};
	_cleanup_profile_ struct profile *p = profile_create();
	struct answer a = {.store = s, .q = q, .plan = &plan, .profile = p, .diag = reterr_diag};
	int r = p ? init_plan(&a, reterr_diag) : -ENOMEM;

	if (r == 0 && q->strict && q->group_by && !q->spans.of)
		r = plan_check_group(&plan, s, q->group_by, reterr_diag);
	if (r == 0)
		r = fill_profile(&a, max_stacks);
	vec_deinit(&a.items);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot answer: %s", strerror(-r));
	p->quality.damaged = a.damaged || plan.set.damaged;
	p->quality.limited = plan_limited(&plan) | query_limited(p);
	*ret = take_ptr(p);
	return 0;
}

/* Adds what `q` selects of a type to *sum, which may be NULL. */
static int add_type(struct store *s, const struct query *q, char *type, size_t max_stacks,
		    struct profile **sum, struct diag *reterr_diag)
{
	_cleanup_profile_ struct profile *p = NULL;
	struct profile_quality *all;
	struct query one = *q;
	int r;

	one.type = type;
	one.also = NULL;
	one.whole_time = true;
	r = profile_of_type(s, &one, max_stacks, &p, reterr_diag);
	if (r < 0)
		return r;
	if (!*sum) {
		*sum = take_ptr(p);
		return 0;
	}
	r = profile_merge(*sum, p, reterr_diag);
	all = &(*sum)->quality;
	all->damaged |= p->quality.damaged;
	all->limited |= p->quality.limited;
	(*sum)->time_ns = p->time_ns;
	(*sum)->duration_ns = p->duration_ns;
	return r;
}

int query_profile(struct store *s, const struct query *q, size_t max_stacks, struct profile **ret,
		  struct diag *reterr_diag)
{
	_cleanup_profile_ struct profile *sum = NULL;
	int r;

	if (!q->also)
		return profile_of_type(s, q, max_stacks, ret, reterr_diag);
	r = add_type(s, q, q->type, max_stacks, &sum, reterr_diag);
	if (r == 0)
		r = add_type(s, q, q->also, max_stacks, &sum, reterr_diag);
	if (r == 0)
		*ret = take_ptr(sum);
	return r;
}
