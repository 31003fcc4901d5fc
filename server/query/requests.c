/* SPDX-License-Identifier: Apache-2.0 */
#include "server/query/requests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/query/plan.h"

void query_requests_deinit(struct query_requests *r)
{
	trace_set_deinit(&r->set);
	vec_deinit(&r->requests);
	vec_deinit(&r->samples);
	*r = (struct query_requests){};
}

void query_choose_type(const struct store_links *l, char ret[STORE_TYPE_BYTES])
{
	_cleanup_free_ u64 *counts = calloc(l->profile->strings.n + 1, sizeof(*counts));
	u32 best = 0;

	for (size_t i = 0; counts && i < l->links.n; i++)
		counts[l->links.data[i].type] += l->links.data[i].count;
	for (u32 id = 1; counts && id < l->profile->strings.n; id++)
		if (counts[id] &&
		    store_type_is_better(profile_string(l->profile, id), counts[id],
					 profile_string(l->profile, best), counts[best]))
			best = id;
	snprintf(ret, STORE_TYPE_BYTES, "%s", profile_string(l->profile, best));
}

/* ---- finding requests ---- */

struct asking {
	struct store *store;
	const struct query *q;
	const struct store_span_filter *f;
	struct query_requests *out;
	struct diag *diag;
	struct trace_ids ids;
	u32 bits;     /* the share of traces is 1 / 2^bits */
	u32 *by_span; /* owned; indexed by span of the set: request + 1 */
	u64 until_ms; /* when the last request ended */
};

static void asking_deinit(struct asking *a)
{
	trace_ids_deinit(&a->ids);
	free(a->by_span);
}

/* Loads the spans of the traces; takes a smaller share while there are too many. */
static int load_set(struct asking *a)
{
	size_t max = QUERY_MAX_TRACES;
	int r;

	do {
		a->bits = trace_ids_sample(&a->ids, max, a->bits);
		r = trace_set_load(a->store, a->ids.ids, a->ids.n, a->f->service, &a->out->set,
				   a->diag);
		max /= 4;
	} while (r == -E2BIG && max);
	return r;
}

static int note_requests(struct asking *a, const struct spans *found)
{
	struct query_requests *out = a->out;
	size_t n = out->set.spans.spans.n;
	int r = 0;

	a->by_span = calloc(n + 1, sizeof(*a->by_span));
	if (!a->by_span)
		return -ENOMEM;
	for (size_t i = 0; i < found->spans.n && r == 0; i++) {
		const struct span *e = &found->spans.data[i];
		u32 at = trace_set_span(&out->set, e->trace_id, e->span_id);
		struct request request = {.span = at,
					  .stands_for = (double)(1ULL << e->weight) *
							(double)(1ULL << a->bits)};

		if (at == PROFILE_NONE || a->by_span[at])
			continue;
		r = vec_push(&out->requests, request);
		a->by_span[at] = (u32)out->requests.n;
		a->until_ms = MAX(a->until_ms, (e->start_ns + e->duration_ns) / 1000000 + 1);
	}
	return r;
}

static int find_requests(struct asking *a)
{
	struct store_span_filter f = *a->f;
	_cleanup_spans_ struct spans found = {};
	struct diag why;
	int r;

	/* Take a smaller share while there are too many. */
	do {
		f.share_bits = a->bits;
		why = (struct diag){};
		r = store_find_spans(a->store, &f, &found, &why);
		a->bits += r == -E2BIG ? 3 : 0;
	} while (r == -E2BIG && a->bits < 40);
	if (r < 0)
		return diag_set(a->diag, r, "%s", why.text);
	r = trace_ids_of_spans(&found, &a->ids);
	if (r == 0)
		r = load_set(a);
	if (r == 0)
		r = note_requests(a, &found);
	a->out->bits = a->bits;
	a->out->damaged |= found.damaged;
	return r;
}

/* ---- samples of the requests ---- */

static int compare_samples(const void *a, const void *b)
{
	const struct request_sample *x = a, *y = b;

	if (x->request != y->request)
		return x->request < y->request ? -1 : 1;
	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static void merge_samples(struct query_requests *out)
{
	size_t n = 0;

	if (out->samples.n)
		qsort(out->samples.data, out->samples.n, sizeof(*out->samples.data),
		      compare_samples);
	for (size_t i = 0; i < out->samples.n; i++) {
		const struct request_sample *e = &out->samples.data[i];

		if (n && compare_samples(&out->samples.data[n - 1], e) == 0) {
			out->samples.data[n - 1].count += e->count;
			out->samples.data[n - 1].value += e->value;
		} else {
			out->samples.data[n++] = *e;
		}
	}
	out->samples.n = n;
}

/* Whether the query selects the link: by its type, or by the one that is added to that. */
static bool is_selected(const struct asking *a, const struct store_link *e, const char *type,
			const struct plan plans[2])
{
	if (!strcmp(type, a->out->type))
		return plan_has_series(&plans[0], e->series);
	return a->q->also && !strcmp(type, a->q->also) && plan_has_series(&plans[1], e->series);
}

static int take_links(struct asking *a, const struct store_links *l, const struct plan plans[2])
{
	struct query_requests *out = a->out;
	_cleanup_store_rows_ struct store_rows rows = {};
	int r = 0;

	if (a->q->type)
		snprintf(out->type, sizeof(out->type), "%s", a->q->type);
	else
		query_choose_type(l, out->type);
	for (size_t i = 0; i < l->links.n && r == 0; i++) {
		const struct store_link *e = &l->links.data[i];
		u32 at;

		if (!is_selected(a, e, profile_string(l->profile, e->type), plans))
			continue;
		at = trace_set_request(&out->set, &e->link, profile_string(l->profile, e->service));
		if (at == PROFILE_NONE || !a->by_span[at])
			continue;
		r = link_rows_add(&rows, a->by_span[at] - 1, e);
	}
	link_rows_merge(&rows, out->type);
	for (size_t i = 0; i < rows.rows.n && r == 0; i++) {
		const struct store_row *e = &rows.rows.data[i];

		r = vec_push(&out->samples, (struct request_sample){.request = (u32)e->time_ms,
								    .stack = e->stack,
								    .count = e->count,
								    .value = e->value});
	}
	merge_samples(out);
	return r;
}

static int keep_matching_stacks(struct asking *a)
{
	struct query_requests *out = a->out;
	_cleanup_free_ u64 *ids = reallocarray(NULL, out->samples.n + 1, sizeof(*ids));
	_cleanup_free_ u8 *match = calloc(out->samples.n + 1, 1);
	size_t n = 0;
	int r = ids && match ? 0 : -ENOMEM;

	for (size_t i = 0; i < out->samples.n && r == 0; i++)
		ids[i] = out->samples.data[i].stack;
	if (r == 0)
		r = plan_match_stacks(a->store, a->q, ids, out->samples.n, match, a->diag);
	for (size_t i = 0; i < out->samples.n && r == 0; i++)
		if (match[i])
			out->samples.data[n++] = out->samples.data[i];
	out->samples.n = r == 0 ? n : out->samples.n;
	return r;
}

static int find_samples(struct asking *a)
{
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_plan_ struct plan plan = {}, also = {};
	struct query other = *a->q;
	const struct store_link_filter f = {
		.from_ms = a->f->from_ms,
		.to_ms = MAX(a->f->to_ms, a->until_ms),
		.service = a->f->service,
		.traces = a->ids.ids,
		.n_traces = a->ids.n,
	};
	int r = store_find_links(a->store, &f, &l, a->diag);

	if (r == 0)
		r = plan_init_series(&plan, a->store, a->q, a->diag);
	other.type = a->q->also;
	if (r == 0 && a->q->also)
		r = plan_init_series(&also, a->store, &other, a->diag);
	if (r == 0)
		r = take_links(a, &l, (const struct plan[]){plan, also});
	if (r == 0 && plan_selects_stacks(a->q))
		r = keep_matching_stacks(a);
	a->out->damaged |= l.damaged;
	for (size_t i = 0; i < a->out->samples.n; i++) {
		const struct request_sample *e = &a->out->samples.data[i];

		a->out->requests.data[e->request].count += e->count;
		a->out->requests.data[e->request].value += e->value;
	}
	return r;
}

int query_requests(struct store *s, const struct query *q, const struct store_span_filter *f,
		   struct query_requests *ret, struct diag *reterr_diag)
{
	struct query_requests out = {};
	struct asking a = {.store = s, .q = q, .f = f, .out = &out, .diag = reterr_diag};
	int r = find_requests(&a);

	if (r == 0)
		r = find_samples(&a);
	if (r == 0 && q->strict && !out.samples.n)
		r = query_check_type(s, q, reterr_diag);
	asking_deinit(&a);
	if (r == 0) {
		*ret = out;
		return 0;
	}
	query_requests_deinit(&out);
	return diag_set(reterr_diag, r, "cannot answer: %s", strerror(-r));
}

/* ---- order ---- */

static int compare_durations(const void *a, const void *b, void *arg)
{
	const struct span *spans = arg, *x = &spans[((const struct request *)a)->span],
			  *y = &spans[((const struct request *)b)->span];

	return x->duration_ns > y->duration_ns ? -1 : x->duration_ns < y->duration_ns;
}

static int compare_endpoints(const void *a, const void *b, void *arg)
{
	const struct span *spans = arg, *x = &spans[((const struct request *)a)->span],
			  *y = &spans[((const struct request *)b)->span];

	if (x->service != y->service)
		return x->service < y->service ? -1 : 1;
	if (x->endpoint != y->endpoint)
		return x->endpoint < y->endpoint ? -1 : 1;
	return compare_durations(b, a, arg);
}

void query_requests_by_endpoint(struct query_requests *r)
{
	if (r->requests.n)
		qsort_r(r->requests.data, r->requests.n, sizeof(*r->requests.data),
			compare_endpoints, r->set.spans.spans.data);
}

size_t query_requests_endpoint_end(const struct query_requests *r, size_t first)
{
	const struct span *spans = r->set.spans.spans.data;
	const struct span *of = &spans[r->requests.data[first].span];
	size_t i = first + 1;

	for (; i < r->requests.n; i++) {
		const struct span *s = &spans[r->requests.data[i].span];

		if (s->service != of->service || s->endpoint != of->endpoint)
			break;
	}
	return i;
}

u64 query_requests_percentile(const struct query_requests *r, size_t first, size_t n, double share)
{
	const struct request *e = r->requests.data + first;
	double all = 0, below = 0;

	for (size_t i = 0; i < n; i++)
		all += e[i].stands_for;
	for (size_t i = 0; i < n; i++) {
		below += e[i].stands_for;
		if (below >= all * share || i + 1 == n)
			return r->set.spans.spans.data[e[i].span].duration_ns;
	}
	return 0;
}
