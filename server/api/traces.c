/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searches traces, returns a trace as a waterfall with the samples of its spans, and lists
 * endpoints.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "server/api/internal.h"

#define DEFAULT_LIMIT 50
#define MAX_LIMIT 1000

static void put_hex(struct json_writer *w, const char *key, const u8 *id, size_t n)
{
	char text[2 * 16 + 1];

	text_hex(id, n, text);
	json_put_text(w, key, text);
}

/* Puts nanoseconds as milliseconds. */
static void put_ms(struct json_writer *w, const char *key, u64 ns)
{
	json_put_scaled(w, key, ns, 6);
}

/* The members of a span that both the list of traces and a trace have. */
static void put_span(struct json_writer *w, const struct spans *s, const struct span *e)
{
	put_hex(w, "span_id", e->span_id, sizeof(e->span_id));
	if (span_has_parent(e))
		put_hex(w, "parent_id", e->parent_id, sizeof(e->parent_id));
	json_put_text(w, "service", spans_string(s, e->service));
	json_put_text(w, "name", spans_string(s, e->name));
	if (e->flags & SPAN_ROOT)
		json_put_text(w, "endpoint", spans_string(s, e->endpoint));
	json_put_text(w, "kind", span_kind_name(e->kind));
	json_put_text(w, "status", span_status_name(e->status));
	if (e->message)
		json_put_text(w, "message", spans_string(s, e->message));
	put_ms(w, "start_ms", e->start_ns);
	put_ms(w, "duration_ms", e->duration_ns);
	json_put_u64(w, "stands_for", 1ULL << e->weight);
}

/* ---- samples of spans ---- */

/* The type of the request, else the one of query_choose_type(). */
static void choose_type(struct api_call *c, const struct store_links *l, char ret[STORE_TYPE_BYTES])
{
	const char *asked = net_parameter(c->r, "type");

	if (asked && *asked)
		snprintf(ret, STORE_TYPE_BYTES, "%s", asked);
	else
		query_choose_type(l, ret);
}

struct own {
	u64 count;
	s64 value;
};

static void put_own(struct json_writer *w, const struct own *own)
{
	json_put_u64(w, "samples", own->count);
	json_put_s64(w, "value", own->value);
}

static bool has_samples(const struct own *own, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (own[i].count)
			return true;
	return false;
}

/* Adds rows whose keys are positions in `own`. */
static void add_rows(struct store_rows *rows, const char *type, struct own *own)
{
	link_rows_merge(rows, type);
	vec_foreach (&rows->rows, row) {
		own[row->time_ms].count += row->count;
		own[row->time_ms].value += row->value;
	}
}

/* By span, and behind the last what is of spans that are not here. */
static int add_links(const struct trace_set *t, const struct store_links *l, const char *type,
		     struct own *own)
{
	_cleanup_store_rows_ struct store_rows rows = {};
	int r = 0;

	for (size_t i = 0; i < l->links.n && r == 0; i++) {
		const struct store_link *e = &l->links.data[i];
		u32 span = trace_set_span(t, e->link.trace_id, e->link.span_id);

		if (!strcmp(profile_string(l->profile, e->type), type))
			r = link_rows_add(&rows, span == PROFILE_NONE ? t->spans.spans.n : span, e);
	}
	add_rows(&rows, type, own);
	return r;
}

/* ---- one trace ---- */

static void put_attributes(struct json_writer *w, const struct spans *s, const struct span *e)
{
	json_open_object(w, "attributes");
	for (u32 i = 0; i < e->n; i++) {
		const struct profile_label *l = &s->attributes.data[e->first + i];

		json_put_text(w, spans_string(s, l->name), spans_string(s, l->value));
	}
	json_close(w);
}

static void put_waterfall(struct json_writer *w, const struct trace_set *t, const struct own *own)
{
	const struct spans *s = &t->spans;

	json_open_array(w, "spans");
	for (size_t i = 0; i < s->spans.n; i++) {
		const struct span *e = &s->spans.data[i];

		json_open_object(w, NULL);
		put_span(w, s, e);
		json_put_bool(w, "root", e->flags & SPAN_ROOT);
		put_own(w, &own[i]);
		if (e->tid)
			json_put_u64(w, "tid", e->tid);
		put_attributes(w, s, e);
		json_close(w);
	}
	json_close(w);
	json_open_object(w, "other");
	put_own(w, &own[s->spans.n]);
	json_close(w);
	json_put_bool(w, "damaged", s->damaged);
}

static int trace(struct api_call *c)
{
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_trace_set_ struct trace_set t = {};
	_cleanup_free_ struct own *own = NULL;
	struct store *s = c->a->o.store;
	struct store_link_filter f = {.to_ms = 1ULL << 62, .n_traces = 1};
	char type[STORE_TYPE_BYTES];
	u8 id[1][16];
	int r;

	if (!span_parse_id(strrchr(c->r->path, '/') + 1, id[0], 16))
		return diag_set(&c->d, -EINVAL, "a trace id has 32 hex digits");
	f.traces = id;
	r = trace_set_load(s, id, 1, NULL, &t, &c->d);
	if (r == 0)
		r = store_find_links(s, &f, &l, &c->d);
	if (r == 0 && !t.spans.spans.n && !l.links.n)
		r = diag_set(&c->d, -ENOENT, "there is no such trace, or not any more");
	own = calloc(t.spans.spans.n + 1, sizeof(*own));
	if (r == 0 && !own)
		r = -ENOMEM;
	if (r < 0)
		return r;
	choose_type(c, &l, type);
	r = add_links(&t, &l, type, own);
	if (r == 0 && *type && !has_samples(own, t.spans.spans.n + 1))
		r = query_check_type(s, &(struct query){.to_ms = f.to_ms, .type = type}, &c->d);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	put_hex(&c->json, "trace_id", id[0], 16);
	json_put_text(&c->json, "type", type);
	put_waterfall(&c->json, &t, own);
	json_close(&c->json);
	return 0;
}

/* ---- looking for some ---- */

/* Counts the samples of each span's trace, in all services. */
static int samples_of_traces(struct api_call *c, const struct spans *s, struct own *own,
			     char type[STORE_TYPE_BYTES])
{
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_trace_ids_ struct trace_ids ids = {};
	_cleanup_store_rows_ struct store_rows rows = {};
	struct store_link_filter f = {.to_ms = 1ULL << 62};
	int r = trace_ids_of_spans(s, &ids);

	f.traces = ids.ids;
	f.n_traces = ids.n;
	if (r == 0)
		r = store_find_links(c->a->o.store, &f, &l, &c->d);
	if (r < 0)
		return r;
	choose_type(c, &l, type);
	for (size_t k = 0; k < l.links.n; k++) {
		const struct store_link *e = &l.links.data[k];

		if (strcmp(profile_string(l.profile, e->type), type) != 0)
			continue;
		for (size_t i = 0; i < s->spans.n && r == 0; i++)
			if (!memcmp(s->spans.data[i].trace_id, e->link.trace_id, 16))
				r = link_rows_add(&rows, i, e);
	}
	add_rows(&rows, type, own);
	return r;
}

static void put_traces(struct json_writer *w, const struct query *q, const struct spans *s,
		       const struct own *own, const char *type)
{
	json_open_object(w, NULL);
	json_put_u64(w, "from", q->from_ms);
	json_put_u64(w, "to", q->to_ms);
	json_put_text(w, "type", type);
	json_open_array(w, "traces");
	for (size_t i = 0; i < s->spans.n; i++) {
		json_open_object(w, NULL);
		put_hex(w, "trace_id", s->spans.data[i].trace_id, 16);
		put_span(w, s, &s->spans.data[i]);
		put_own(w, &own[i]);
		json_close(w);
	}
	json_close(w);
	json_put_bool(w, "damaged", s->damaged);
	json_close(w);
}

/* Lists requests that ran a stack of the predicate, slowest first. */
static int traces_of_stacks(struct api_call *c, const struct query *q, size_t limit)
{
	_cleanup_query_requests_ struct query_requests all = {};
	const struct store_span_filter f = query_span_filter(q);
	_cleanup_free_ struct own *own = NULL;
	size_t n = 0, kept = 0;
	int r = query_requests(c->a->o.store, q, &f, &all, &c->d);

	own = calloc(all.requests.n + 1, sizeof(*own));
	if (r == 0 && !own)
		r = -ENOMEM;
	if (r < 0)
		return r;
	for (size_t i = 0; i < all.requests.n; i++)
		if (all.requests.data[i].count)
			all.requests.data[n++] = all.requests.data[i];
	query_requests_by_duration(&all, n);
	{
		struct spans found = all.set.spans;
		vec(struct span) spans = {};

		for (; kept < n && kept < limit && r == 0; kept++) {
			const struct request *e = &all.requests.data[kept];

			own[kept] = (struct own){e->count, e->value};
			r = vec_push(&spans, found.spans.data[e->span]);
		}
		memcpy(&found.spans, &spans, sizeof(spans));
		found.damaged = all.damaged;
		if (r == 0)
			put_traces(&c->json, q, &found, own, all.type);
		vec_deinit(&spans);
	}
	return r;
}

static int traces(struct api_call *c)
{
	_cleanup_query_ struct query q = {};
	_cleanup_spans_ struct spans s = {};
	_cleanup_free_ struct own *own = NULL;
	char type[STORE_TYPE_BYTES] = "";
	struct store_span_filter f;
	u64 limit = DEFAULT_LIMIT;
	int r = api_number(c, "limit", 1, MAX_LIMIT, &limit);

	if (r == 0)
		r = api_query(c, "", &q);
	if (r == 0)
		r = api_requests(c, "", &q);
	if (r < 0 || q.stacks)
		return r < 0 ? r : traces_of_stacks(c, &q, limit);
	f = query_span_filter(&q);
	f.limit = limit;
	r = store_find_spans(c->a->o.store, &f, &s, &c->d);
	own = calloc(s.spans.n + 1, sizeof(*own));
	if (r == 0 && !own)
		r = -ENOMEM;
	if (r == 0)
		r = samples_of_traces(c, &s, own, type);
	if (r == 0 && !has_samples(own, s.spans.n))
		r = query_check_type(c->a->o.store, &q, &c->d);
	if (r == 0)
		put_traces(&c->json, &q, &s, own, type);
	return r;
}

/* ---- what services are asked for ---- */

struct endpoint {
	u32 service, name; /* string ids in the set */
	double requests, errors, running;
	u64 samples;
	double value;
	size_t first, n; /* its requests, in the list sorted by endpoint and duration */
};

struct endpoints {
	struct query_requests all;
	vec(struct endpoint) list;
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
	struct endpoint new = {.service = of->service, .name = of->endpoint, .first = first};
	size_t i = first;

	for (; i < e->all.requests.n; i++) {
		const struct request *q = &e->all.requests.data[i];
		const struct span *s = &spans[q->span];

		if (s->service != new.service || s->endpoint != new.name)
			break;
		new.requests += q->stands_for;
		new.errors += s->status == SPAN_ERROR ? q->stands_for : 0;
		new.running += q->count ? q->stands_for : 0;
		new.samples += q->count;
		new.value += (double)q->value * q->stands_for;
	}
	/* States do not add up: the mean of the requests that have any. */
	if (new.running > 0 && store_type_is_state(e->all.type))
		new.value /= new.running;
	new.n = i - first;
	*ret = new;
	return i;
}

static int compare_endpoints(const void *a, const void *b)
{
	const struct endpoint *x = a, *y = b;

	if (x->value != y->value)
		return x->value > y->value ? -1 : 1;
	return x->requests > y->requests ? -1 : x->requests < y->requests;
}

static void put_endpoint(struct json_writer *w, const struct endpoints *all,
			 const struct endpoint *e)
{
	static const struct {
		const char *name;
		double share;
	} shares[] = {{"p50_ms", 0.5}, {"p95_ms", 0.95}, {"p99_ms", 0.99}, {"max_ms", 1}};
	const struct spans *s = &all->all.set.spans;

	json_open_object(w, NULL);
	json_put_text(w, "service", spans_string(s, e->service));
	json_put_text(w, "endpoint", spans_string(s, e->name));
	json_put_fixed(w, "requests", e->requests, 0);
	json_put_fixed(w, "errors", e->errors, 0);
	json_put_fixed(w, "running", e->running, 0);
	for (size_t i = 0; i < ARRAY_SIZE(shares); i++)
		put_ms(w, shares[i].name,
		       query_requests_percentile(&all->all, e->first, e->n, shares[i].share));
	json_put_u64(w, "samples", e->samples);
	json_put_fixed(w, "value", e->value, 0);
	json_close(w);
}

static void put_endpoints(struct json_writer *w, const struct query *q, const struct endpoints *e,
			  u64 limit)
{
	json_open_object(w, NULL);
	json_put_u64(w, "from", q->from_ms);
	json_put_u64(w, "to", q->to_ms);
	json_put_text(w, "type", e->all.type);
	json_open_array(w, "endpoints");
	for (size_t i = 0; i < e->list.n && i < limit; i++)
		put_endpoint(w, e, &e->list.data[i]);
	json_close(w);
	json_put_bool(w, "damaged", e->all.damaged);
	json_close(w);
}

static int endpoints(struct api_call *c)
{
	__attribute__((cleanup(endpoints_deinit))) struct endpoints e = {};
	_cleanup_query_ struct query q = {};
	struct store_span_filter f;
	u64 limit = 1000;
	int r = api_number(c, "limit", 1, 100000, &limit);

	if (r == 0)
		r = api_query(c, "", &q);
	if (r == 0)
		r = api_requests(c, "", &q);
	f = query_span_filter(&q);
	if (r == 0)
		r = query_requests(c->a->o.store, &q, &f, &e.all, &c->d);
	if (r < 0)
		return r;
	query_requests_by_endpoint(&e.all);
	for (size_t i = 0; i < e.all.requests.n && r == 0;) {
		struct endpoint one;

		i = add_endpoint(&e, i, &one);
		/* With a predicate over stacks, list only endpoints that ran such a stack. */
		if (!q.stacks || one.samples)
			r = vec_push(&e.list, one);
	}
	if (e.list.n)
		qsort(e.list.data, e.list.n, sizeof(*e.list.data), compare_endpoints);
	put_endpoints(&c->json, &q, &e, limit);
	return r;
}

#define R NET_ROLE_READ
const struct api_route api_trace_routes[] = {
	{"GET", "/api/v1/traces", R, API_STYLE_JSON, traces},
	{"GET", "/api/v1/endpoints", R, API_STYLE_JSON, endpoints},
	{"GET", "/api/v1/traces/{trace_id}", R, API_STYLE_JSON, trace},
	{},
};
