/* SPDX-License-Identifier: Apache-2.0 */
/* query_mark_measured(): which requests could have samples; requests.h has the rules. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/query/plan.h"

#define HOST "host.name"
/* An idle service has no sample for a while at the ends of its time. */
#define MARGIN_MS 60000ULL

/* A service on a host, from its first sample to its last. */
struct place {
	const char *service, *host; /* borrowed; host "": not said */
	u64 from_ms, to_ms;
	bool selected; /* the query selects some of its series */
	bool known;    /* requests name this host, too */
};

struct places {
	vec(struct place) all;
};

static void places_deinit(struct places *p)
{
	vec_deinit(&p->all);
}

static struct place *find_place(struct places *p, const char *service, const char *host)
{
	vec_foreach (&p->all, e)
		if (!strcmp(e->service, service) && !strcmp(e->host, host))
			return e;
	return NULL;
}

static int add_place(struct places *p, const struct place *seen)
{
	struct place *e = find_place(p, seen->service, seen->host);

	if (!e)
		return vec_push(&p->all, *seen);
	e->from_ms = MIN(e->from_ms, seen->from_ms);
	e->to_ms = MAX(e->to_ms, seen->to_ms);
	e->selected |= seen->selected;
	return 0;
}

/* The place and time of a request. */
static struct place of_request(const struct query_requests *r, const struct request *e)
{
	const struct spans *spans = &r->set.spans;
	const struct span *s = &spans->spans.data[e->span];
	const char *host = profile_label(spans->profile, s->resource, HOST);

	return (struct place){.service = spans_string(spans, s->service),
			      .host = host ? host : "",
			      .from_ms = s->start_ns / 1000000,
			      .to_ms = (s->start_ns + s->duration_ns) / 1000000};
}

static int add_series(struct places *p, const struct plan *plan)
{
	int r = 0;

	for (size_t i = 0; i < plan->set.series.n && r == 0; i++) {
		const struct store_found_series *e = &plan->set.series.data[i];
		const struct place seen = {.service = plan_label(plan, e, "service.name"),
					   .host = plan_label(plan, e, HOST),
					   .from_ms = e->first_ms,
					   .to_ms = e->last_ms,
					   .selected = plan_has_series(plan, e->id)};

		r = add_place(p, &seen);
	}
	return r;
}

/* A request that has samples shows that its place was sampled, whatever its host is called. */
static int add_requests(struct places *p, const struct query_requests *r)
{
	size_t n_series = p->all.n;
	int e = 0;

	for (size_t i = 0; i < r->requests.n; i++) {
		const struct place at = of_request(r, &r->requests.data[i]);
		struct place *same = at.host[0] ? find_place(p, at.service, at.host) : NULL;

		if (same && (size_t)(same - p->all.data) < n_series)
			same->known = true;
	}
	for (size_t i = 0; i < r->requests.n && e == 0; i++) {
		struct place at = of_request(r, &r->requests.data[i]);

		at.selected = true;
		if (r->requests.data[i].count)
			e = add_place(p, &at);
	}
	return e;
}

static bool is_measured(struct places *p, const struct place *at)
{
	bool known = false;

	vec_foreach (&p->all, e)
		known |= e->known && !strcmp(e->service, at->service);
	vec_foreach (&p->all, e)
		if (e->selected && !strcmp(e->service, at->service) &&
		    (!known || !at->host[0] || !e->host[0] || !strcmp(e->host, at->host)) &&
		    at->from_ms + MARGIN_MS >= e->from_ms && at->to_ms <= e->to_ms + MARGIN_MS)
			return true;
	return false;
}

/* The query over the time of the requests, with the type that their samples have. */
static struct query around(const struct query *q, struct query_requests *r)
{
	struct query wide = *q;

	wide.from_ms = ~0ULL;
	wide.to_ms = 0;
	wide.type = r->type[0] ? r->type : NULL;
	for (size_t i = 0; i < r->requests.n; i++) {
		const struct place at = of_request(r, &r->requests.data[i]);

		wide.from_ms = MIN(wide.from_ms, at.from_ms);
		wide.to_ms = MAX(wide.to_ms, at.to_ms);
	}
	wide.from_ms -= MIN(wide.from_ms, MARGIN_MS);
	wide.to_ms += MARGIN_MS;
	return wide;
}

int query_mark_measured(struct store *s, const struct query *q, struct query_requests *r,
			struct diag *reterr_diag)
{
	__attribute__((cleanup(places_deinit))) struct places places = {};
	_cleanup_plan_ struct plan plan = {};
	const struct query wide = around(q, r);
	int e;

	if (!r->requests.n)
		return 0;
	e = plan_init(&plan, s, &wide, false, reterr_diag);
	if (e == 0)
		e = add_series(&places, &plan);
	if (e == 0)
		e = add_requests(&places, r);
	if (e < 0)
		return diag_set(reterr_diag, e, "cannot answer: %s", strerror(-e));
	vec_foreach (&r->requests, request) {
		const struct place at = of_request(r, request);

		request->measured = store_type_is_state(r->type) ? request->count > 0
								 : is_measured(&places, &at);
	}
	r->damaged |= plan.set.damaged;
	return 0;
}
