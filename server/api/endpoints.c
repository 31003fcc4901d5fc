/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The endpoints of services: how often they are called, how long that takes, and what it costs. All
 * of them are sorted and searched before a part is returned.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/internal.h"

static const double shares[] = {0.5, 0.95, 0.99, 1};

/* What endpoints can be sorted by. The percentiles are in the order of `shares`. */
static const char *const columns[] = {"service", "endpoint", "requests", "errors",
				      "running", "p50_ms",   "p95_ms",	 "p99_ms",
				      "max_ms",	 "samples",  "value",	 "error_share"};
enum { BY_SERVICE, BY_ENDPOINT, BY_FIRST_SHARE = 5 };

struct endpoint {
	u32 service, name; /* string ids in the set */
	double requests, errors, running;
	u64 samples;
	double value;
	u64 ns[ARRAY_SIZE(shares)];
};

struct endpoints {
	struct query_requests all;
	vec(struct endpoint) list; /* that match the search */
	u64 total;		   /* before the search */
	double requests;	   /* of all these */
	struct api_list part;
};

static void endpoints_deinit(struct endpoints *e)
{
	query_requests_deinit(&e->all);
	vec_deinit(&e->list);
}

/* Adds up the requests of one endpoint, which begin at `first`. Returns where they end. */
static size_t add_endpoint(struct endpoints *e, size_t first, struct endpoint *ret)
{
	const struct span *spans = e->all.set.spans.spans.data;
	const struct span *of = &spans[e->all.requests.data[first].span];
	struct endpoint new = {.service = of->service, .name = of->endpoint};
	size_t end = query_requests_endpoint_end(&e->all, first);

	for (size_t i = first; i < end; i++) {
		const struct request *q = &e->all.requests.data[i];

		new.requests += q->stands_for;
		new.errors += spans[q->span].status == SPAN_ERROR ? q->stands_for : 0;
		new.running += q->count ? q->stands_for : 0;
		new.samples += q->count;
		new.value += (double)q->value * q->stands_for;
	}
	/* States do not add up: the mean of the requests that have any. */
	if (new.running > 0 && store_type_is_state(e->all.type))
		new.value /= new.running;
	for (size_t k = 0; k < ARRAY_SIZE(shares); k++)
		new.ns[k] = query_requests_percentile(&e->all, first, end - first, shares[k]);
	*ret = new;
	return end;
}

static bool finds(const struct endpoints *e, const struct endpoint *x)
{
	const struct spans *s = &e->all.set.spans;
	_cleanup_str_ struct str both = {};

	if (!*e->part.search)
		return true;
	str_printf(&both, "%s %s", spans_string(s, x->service), spans_string(s, x->name));
	return api_list_finds(&e->part, str_get(&both));
}

static int collect(struct endpoints *e, bool only_running)
{
	int r = 0;

	query_requests_by_endpoint(&e->all);
	for (size_t i = 0; i < e->all.requests.n && r == 0;) {
		struct endpoint one;

		i = add_endpoint(e, i, &one);
		/* With a predicate over stacks, list only endpoints that ran such a stack. */
		if (only_running && !one.samples)
			continue;
		e->total++;
		e->requests += only_running ? one.running : one.requests;
		if (finds(e, &one))
			r = vec_push(&e->list, one);
	}
	return r;
}

static double number_of(const struct endpoint *x, size_t column)
{
	const double numbers[] = {[2] = x->requests,	  [3] = x->errors,
				  [4] = x->running,	  [5] = (double)x->ns[0],
				  [6] = (double)x->ns[1], [7] = (double)x->ns[2],
				  [8] = (double)x->ns[3], [9] = (double)x->samples,
				  [10] = x->value,	  [11] = x->errors / x->requests};

	_Static_assert(ARRAY_SIZE(numbers) == ARRAY_SIZE(columns), "a number for each column");
	return numbers[column];
}

static int compare(const void *a, const void *b, void *arg)
{
	const struct endpoints *e = arg;
	const struct spans *s = &e->all.set.spans;
	const struct endpoint *x = a, *y = b;
	const char *services[] = {spans_string(s, x->service), spans_string(s, y->service)};
	const char *names[] = {spans_string(s, x->name), spans_string(s, y->name)};
	int order;

	if (e->part.column == BY_SERVICE)
		order = api_list_compare_text(&e->part, services[0], services[1]);
	else if (e->part.column == BY_ENDPOINT)
		order = api_list_compare_text(&e->part, names[0], names[1]);
	else
		order = api_list_compare(&e->part, number_of(x, e->part.column),
					 number_of(y, e->part.column));
	if (order == 0)
		order = strcmp(services[0], services[1]);
	return order ? order : strcmp(names[0], names[1]);
}

static void put_endpoint(struct json_writer *w, const struct spans *s, const struct endpoint *e)
{
	json_open_object(w, NULL);
	json_put_text(w, "service", spans_string(s, e->service));
	json_put_text(w, "endpoint", spans_string(s, e->name));
	json_put_fixed(w, "requests", e->requests, 0);
	json_put_fixed(w, "errors", e->errors, 0);
	json_put_fixed(w, "running", e->running, 0);
	for (size_t i = 0; i < ARRAY_SIZE(shares); i++)
		json_put_scaled(w, columns[BY_FIRST_SHARE + i], e->ns[i], 6);
	json_put_u64(w, "samples", e->samples);
	json_put_fixed(w, "value", e->value, 0);
	json_close(w);
}

static void put_endpoints(struct json_writer *w, const struct query *q, const struct endpoints *e)
{
	json_open_object(w, NULL);
	json_put_u64(w, "from", q->from_ms);
	json_put_u64(w, "to", q->to_ms);
	json_put_text(w, "type", e->all.type);
	json_put_u64(w, "total", e->total);
	json_put_u64(w, "matching", e->list.n);
	json_put_fixed(w, "requests", e->requests, 0);
	/* Of a share, endpoints with few requests may be missing. */
	json_put_u64(w, "share_of", 1ULL << e->all.bits);
	json_open_array(w, "endpoints");
	for (size_t i = e->part.offset; i < e->list.n && i - e->part.offset < e->part.limit; i++)
		put_endpoint(w, &e->all.set.spans, &e->list.data[i]);
	json_close(w);
	json_put_bool(w, "damaged", e->all.damaged);
	json_close(w);
}

static int endpoints(struct api_call *c)
{
	__attribute__((cleanup(endpoints_deinit))) struct endpoints e = {
		.part = {.limit = 1000, .max = 100000}};
	_cleanup_query_ struct query q = {};
	struct store_span_filter f;
	int r = api_list(c, columns, ARRAY_SIZE(columns), "-value", &e.part);

	if (r == 0)
		r = api_query(c, "", &q);
	if (r == 0)
		r = api_requests(c, "", &q);
	f = query_span_filter(&q);
	if (r == 0)
		r = query_requests(c->a->o.store, &q, &f, &e.all, &c->d);
	if (r == 0)
		r = collect(&e, q.stacks != NULL);
	if (r < 0)
		return r;
	if (e.list.n)
		qsort_r(e.list.data, e.list.n, sizeof(*e.list.data), compare, &e);
	put_endpoints(&c->json, &q, &e);
	return 0;
}

const struct api_route api_endpoint_routes[] = {
	{"GET", "/api/v1/endpoints", NET_ROLE_READ, API_STYLE_JSON, endpoints},
	{},
};
