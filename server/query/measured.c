/* SPDX-License-Identifier: Apache-2.0 */
/* query_mark_measured(): which requests could have samples; requests.h has the rules. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "server/query/plan.h"

#define HOST "host.name"
/* An idle service has no sample for a while at the ends of its time. */
#define MARGIN_MS 60000ULL

/* A service on a host, from its first sample to its last. Names are ids of places.names. */
struct place {
	u32 service, host; /* host 0: not said */
	u64 from_ms, to_ms;
	bool selected; /* the query selects some of its series */
};

struct places {
	struct strtab names;
	vec(struct place) all;
	struct map by_name;  /* name_of() → index in `all` */
	struct map services; /* of requests: id → whether their hosts are those of series, too */
};

static void places_deinit(struct places *p)
{
	strtab_deinit(&p->names);
	vec_deinit(&p->all);
	map_deinit(&p->by_name);
	map_deinit(&p->services);
}

static u64 name_of(const struct place *e)
{
	return (u64)e->service << 32 | e->host;
}

static int add_place(struct places *p, const struct place *seen)
{
	u64 *at = map_get(&p->by_name, name_of(seen));
	struct place *e = at ? &p->all.data[*at] : NULL;
	int r;

	if (!e) {
		r = vec_push(&p->all, *seen);
		return r < 0 ? r : map_put(&p->by_name, name_of(seen), p->all.n - 1);
	}
	e->from_ms = MIN(e->from_ms, seen->from_ms);
	e->to_ms = MAX(e->to_ms, seen->to_ms);
	e->selected |= seen->selected;
	return 0;
}

static int name_place(struct places *p, const char *service, const char *host, struct place *ret)
{
	int r = strtab_add(&p->names, service, strlen(service), &ret->service);

	return r < 0 ? r : strtab_add(&p->names, host, strlen(host), &ret->host);
}

/* The place and time of a request. */
static int of_request(struct places *p, const struct query_requests *r, const struct request *e,
		      struct place *ret)
{
	const struct spans *spans = &r->set.spans;
	const struct span *s = &spans->spans.data[e->span];
	const char *host = profile_label(spans->profile, s->resource, HOST);

	*ret = (struct place){.from_ms = s->start_ns / 1000000,
			      .to_ms = (s->start_ns + s->duration_ns) / 1000000,
			      .selected = true};
	return name_place(p, spans_string(spans, s->service), host ? host : "", ret);
}

/* Only of services that have requests. */
static int add_series(struct places *p, const struct plan *plan)
{
	int r = 0;

	for (size_t i = 0; i < plan->set.series.n && r == 0; i++) {
		const struct store_found_series *e = &plan->set.series.data[i];
		struct place seen = {.from_ms = e->first_ms,
				     .to_ms = e->last_ms,
				     .selected = plan_has_series(plan, e->id)};

		r = name_place(p, plan_label(plan, e, "service.name"), plan_label(plan, e, HOST),
			       &seen);
		if (r == 0 && map_get(&p->services, seen.service))
			r = add_place(p, &seen);
	}
	return r;
}

static int add_services(struct places *p, const struct query_requests *r)
{
	struct place at;
	int e = 0;

	for (size_t i = 0; i < r->requests.n && e == 0; i++) {
		e = of_request(p, r, &r->requests.data[i], &at);
		if (e == 0)
			e = map_put(&p->services, at.service, false);
	}
	return e;
}

/* A request that has samples shows that its place was sampled, whatever its host is called. */
static int add_requests(struct places *p, const struct query_requests *r)
{
	struct place at;
	int e = 0;

	for (size_t i = 0; i < r->requests.n && e == 0; i++) {
		e = of_request(p, r, &r->requests.data[i], &at);
		if (e == 0 && at.host && map_get(&p->by_name, name_of(&at)))
			e = map_put(&p->services, at.service, true);
	}
	for (size_t i = 0; i < r->requests.n && e == 0; i++) {
		e = of_request(p, r, &r->requests.data[i], &at);
		if (e == 0 && r->requests.data[i].count)
			e = add_place(p, &at);
	}
	return e;
}

static bool covers(const struct place *e, const struct place *at)
{
	return e->selected && at->from_ms + MARGIN_MS >= e->from_ms &&
	       at->to_ms <= e->to_ms + MARGIN_MS;
}

/* Where the hosts of a service do not matter, each of its places counts. */
static bool is_measured(struct places *p, const struct place *at)
{
	const u64 *known = map_get(&p->services, at->service);
	struct place nowhere = *at;
	const u64 *here, *unsaid;

	if (!known || !*known || !at->host) {
		vec_foreach (&p->all, e)
			if (e->service == at->service && covers(e, at))
				return true;
		return false;
	}
	nowhere.host = 0;
	here = map_get(&p->by_name, name_of(at));
	unsaid = map_get(&p->by_name, name_of(&nowhere));
	return (here && covers(&p->all.data[*here], at)) ||
	       (unsaid && covers(&p->all.data[*unsaid], at));
}

/* The query over the time of the requests, with the type that their samples have. */
static struct query around(const struct query *q, struct query_requests *r)
{
	struct query wide = *q;

	wide.from_ms = ~0ULL;
	wide.to_ms = 0;
	wide.type = r->type[0] ? r->type : NULL;
	for (size_t i = 0; i < r->requests.n; i++) {
		const struct span *s = &r->set.spans.spans.data[r->requests.data[i].span];

		wide.from_ms = MIN(wide.from_ms, s->start_ns / 1000000);
		wide.to_ms = MAX(wide.to_ms, (s->start_ns + s->duration_ns) / 1000000);
	}
	wide.from_ms -= MIN(wide.from_ms, MARGIN_MS);
	wide.to_ms += MARGIN_MS;
	return wide;
}

static int mark_requests(struct places *p, struct query_requests *r)
{
	struct place at;
	int e = 0;

	for (size_t i = 0; i < r->requests.n && e == 0; i++) {
		struct request *request = &r->requests.data[i];

		e = of_request(p, r, request, &at);
		request->measured = store_type_is_state(r->type) ? request->count > 0
								 : e == 0 && is_measured(p, &at);
	}
	return e;
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
	e = plan_init(&plan, s, &wide, PLAN_SERIES, reterr_diag);
	if (e == 0)
		e = strtab_init(&places.names);
	if (e == 0)
		e = add_services(&places, r);
	if (e == 0)
		e = add_series(&places, &plan);
	if (e == 0)
		e = add_requests(&places, r);
	if (e == 0)
		e = mark_requests(&places, r);
	if (e < 0)
		return diag_set(reterr_diag, e, "cannot answer: %s", strerror(-e));
	r->damaged |= plan.set.damaged;
	return 0;
}
