/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /api/v1/cost: CPU seconds, money and CO2 of services, endpoints or functions, by the factors
 * in the server's options. Rows count self time, so they add up to the total.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "profile/table.h"
#include "server/api/internal.h"

#define DEFAULT_ROWS 100

struct row {
	/* Borrowed. NULL: not of this kind of row. */
	const char *service, *endpoint, *name, *object;
	double seconds;
};

struct costing {
	struct query q;
	double unit;		 /* seconds per unit of the type */
	struct profile *profile; /* owned, as are */
	struct profile_table *table;
	struct query_requests requests;
	vec(struct row) rows;
	const char *note;
};

static void costing_deinit(struct costing *s)
{
	query_deinit(&s->q);
	profile_destroy(s->profile);
	profile_table_destroy(s->table);
	query_requests_deinit(&s->requests);
	vec_deinit(&s->rows);
}

/* ---- which type is CPU time ---- */

static int choose_type(struct api_call *c, struct costing *s)
{
	__attribute__((cleanup(query_names_deinit))) struct query_names n = {};
	int r;

	if (s->q.type) {
		s->unit = store_type_cpu_seconds(s->q.type);
		return s->unit > 0 ? 0
				   : diag_set(&c->d, -EINVAL,
					      "type: only CPU time has a price, not %s", s->q.type);
	}
	r = query_types(c->a->o.store, &s->q, &n, &c->d);
	for (size_t i = 0; i < n.names.n && r == 0; i++)
		if (!s->q.type && store_type_cpu_seconds(n.names.data[i].name) > 0) {
			s->q.type = strdup(n.names.data[i].name);
			r = s->q.type ? 0 : -ENOMEM;
		}
	if (r == 0 && s->q.type)
		s->unit = store_type_cpu_seconds(s->q.type);
	else if (r == 0)
		s->note = "there is no CPU time in this range";
	return r;
}

/* ---- rows ---- */

static int by_service(struct costing *s)
{
	const struct profile *p = s->profile;
	_cleanup_free_ double *sums = calloc(p->threads.n + 1, sizeof(*sums));
	int r = sums ? 0 : -ENOMEM;

	for (size_t i = 0; i < p->n_samples && r == 0; i++) {
		const struct profile_sample *e = profile_sample(p, i);

		if (e->thread != PROFILE_NONE)
			sums[e->thread] += (double)e->value[0] * s->unit;
	}
	for (size_t i = 0; i < p->threads.n && r == 0; i++)
		r = vec_push(&s->rows,
			     (struct row){.service = profile_string(p, p->threads.data[i].comm),
					  .seconds = sums[i]});
	return r;
}

static int by_function(struct costing *s)
{
	static const struct profile_tree_options all = {};
	int r = profile_table_build(s->profile, &all, &s->table);

	for (size_t i = 0; r == 0 && i < s->table->rows.n; i++) {
		const struct profile_row *e = &s->table->rows.data[i];

		if (e->self)
			r = vec_push(
				&s->rows,
				(struct row){.name = strtab_get(&s->table->strings, e->name),
					     .object = strtab_get(&s->table->strings, e->object),
					     .seconds = (double)e->self * s->unit});
	}
	return r;
}

static int by_endpoint(struct api_call *c, struct costing *s)
{
	const struct store_span_filter f = query_span_filter(&s->q);
	const struct span *spans, *last = NULL;
	int r = query_requests(c->a->o.store, &s->q, &f, &s->requests, &c->d);

	if (r < 0)
		return r;
	query_requests_by_endpoint(&s->requests);
	spans = s->requests.set.spans.spans.data;
	for (size_t i = 0; i < s->requests.requests.n && r == 0; i++) {
		const struct request *e = &s->requests.requests.data[i];
		const struct span *of = &spans[e->span];
		const struct spans *texts = &s->requests.set.spans;

		if (!last || of->service != last->service || of->endpoint != last->endpoint)
			r = vec_push(&s->rows,
				     (struct row){.service = spans_string(texts, of->service),
						  .endpoint = spans_string(texts, of->endpoint)});
		last = of;
		if (r == 0)
			s->rows.data[s->rows.n - 1].seconds +=
				(double)e->value * e->stands_for * s->unit;
	}
	return r;
}

static int sum_by_parameter(struct api_call *c, struct costing *s)
{
	const char *by = net_parameter(c->r, "by");
	bool function = by && !strcmp(by, "function");
	int r = 0;

	if (by && *by && !function && strcmp(by, "service") != 0 && strcmp(by, "endpoint") != 0)
		return diag_set(&c->d, -EINVAL, "by: service, endpoint or function");
	if (by && !strcmp(by, "endpoint")) {
		r = api_requests(c, "", &s->q);
		if (r == 0)
			r = choose_type(c, s);
		return r < 0 || s->note ? r : by_endpoint(c, s);
	}
	r = api_spans(c, "", &s->q);
	if (r == 0)
		r = choose_type(c, s);
	if (r < 0 || s->note)
		return r;
	r = query_profile(c->a->o.store, &s->q, 0, &s->profile, &c->d);
	if (r < 0)
		return r;
	return function ? by_function(s) : by_service(s);
}

/* ---- the answer ---- */

static int compare_rows(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->seconds > y->seconds ? -1 : x->seconds < y->seconds;
}

static void put_costs(struct json_writer *w, const struct api_cost *f, double seconds)
{
	double hours = seconds / 3600;

	json_put_fixed(w, "cpu_seconds", seconds, 6);
	json_put_fixed(w, "money", hours * f->core_hour, 9);
	json_put_fixed(w, "co2_grams", hours * f->watts / 1000 * f->pue * f->grams, 6);
}

static void put_factors(struct json_writer *w, const struct api_cost *f)
{
	json_open_object(w, "factors");
	json_put_text(w, "currency", f->currency ? f->currency : "");
	json_put_double(w, "core_hour", f->core_hour);
	json_put_double(w, "watts", f->watts);
	json_put_double(w, "pue", f->pue);
	json_put_double(w, "grams_per_kwh", f->grams);
	json_close(w);
}

static void put_row(struct json_writer *w, const struct api_cost *f, const struct row *e)
{
	json_open_object(w, NULL);
	if (e->service)
		json_put_text(w, "service", e->service);
	if (e->endpoint)
		json_put_text(w, "endpoint", e->endpoint);
	if (e->name)
		json_put_text(w, "name", e->name);
	if (e->object)
		json_put_text(w, "object", e->object);
	put_costs(w, f, e->seconds);
	json_close(w);
}

static void put_answer(struct json_writer *w, const struct api_cost *f, const struct costing *s,
		       u64 limit)
{
	double all = 0;

	for (size_t i = 0; i < s->rows.n; i++)
		all += s->rows.data[i].seconds;
	json_open_object(w, NULL);
	json_put_u64(w, "from", s->q.from_ms);
	json_put_u64(w, "to", s->q.to_ms);
	json_put_text(w, "type", s->q.type ? s->q.type : "");
	put_factors(w, f);
	if (s->note)
		json_put_text(w, "note", s->note);
	json_open_object(w, "total");
	put_costs(w, f, all);
	json_close(w);
	json_open_array(w, "rows");
	for (size_t i = 0; i < s->rows.n && i < limit; i++)
		put_row(w, f, &s->rows.data[i]);
	json_close(w);
	json_close(w);
}

static int cost(struct api_call *c)
{
	__attribute__((cleanup(costing_deinit))) struct costing s = {};
	u64 limit = DEFAULT_ROWS;
	int r = api_number(c, "limit", 1, 100000, &limit);

	if (r == 0)
		r = api_query(c, "", &s.q);
	if (r == 0)
		r = sum_by_parameter(c, &s);
	if (r < 0)
		return r;
	if (s.rows.n)
		qsort(s.rows.data, s.rows.n, sizeof(*s.rows.data), compare_rows);
	put_answer(&c->json, &c->a->o.cost, &s, limit);
	return 0;
}

const struct api_route api_cost_routes[] = {
	{"GET", "/api/v1/cost", NET_ROLE_READ, API_STYLE_JSON, cost},
	{},
};
