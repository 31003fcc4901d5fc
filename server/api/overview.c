/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /api/v1/overview: the services of a range, and what is wrong with them now (findings.c).
 *
 * The time is bounded: after BUDGET_MS no further part begins, and the answer says what was not
 * looked at. Samples of culprit itself are in no sum and no finding unless they are asked for.
 */
#include "server/api/overview.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/vocab.h"

#define BUDGET_MS 3000
#define DEFAULT_LIMIT 100
#define SLOW_TIMES 3.0
#define SLOW_LEAST 5 /* slow requests */
#define SELF_LABEL "culprit.self"

static void overview_deinit(struct overview *o)
{
	query_deinit(&o->q);
	query_lines_deinit(&o->lines);
	query_lines_deinit(&o->lines_before);
	query_requests_deinit(&o->requests);
	vec_deinit(&o->services);
	map_deinit(&o->by_name);
	vec_deinit(&o->endpoints);
	vec_deinit(&o->left);
}

/* ---- questions ---- */

int overview_match(struct query *q, const char *label, enum query_match match, const char *value)
{
	struct query_matcher m = {.label = strdup(label), .value = strdup(value), .match = match};

	if (m.label && m.value && vec_push(&q->matchers, m) == 0)
		return 0;
	free(m.label);
	free(m.value);
	return -ENOMEM;
}

int overview_ask(const struct overview *o, const char *type, const char *service, struct query *ret)
{
	int r = 0;

	ret->from_ms = o->q.from_ms;
	ret->to_ms = o->q.to_ms;
	ret->type = strdup(type);
	if (!ret->type)
		r = -ENOMEM;
	if (r == 0 && !o->self)
		r = overview_match(ret, SELF_LABEL, QUERY_NOT_EQUAL, "true");
	if (r == 0 && service)
		r = overview_match(ret, "service.name", QUERY_EQUAL, service);
	return r;
}

int overview_sums(const struct overview *o, const struct query *q, const char *const *group_by,
		  size_t n, struct query_lines *ret)
{
	return query_series(o->c->a->o.store, q, q->to_ms - q->from_ms, group_by, n, ret, &o->c->d);
}

void overview_sum_line(const struct query_line *l, u64 *ret_samples, s64 *ret_value)
{
	vec_foreach (&l->points, p) {
		*ret_samples += p->count;
		*ret_value += p->value;
	}
}

int overview_may_begin(struct overview *o, const char *part, bool *ret)
{
	*ret = clock_ns(CLOCK_MONOTONIC) < o->deadline_ns;
	return *ret ? 0 : vec_push(&o->left, part);
}

int overview_leave_out(struct overview *o, int r, const char *part)
{
	return r == -E2BIG || r == -EOVERFLOW ? vec_push(&o->left, part) : r;
}

static void choose_types(struct overview *o, const struct query_names *types)
{
	const char *other = "";
	size_t n = 0;

	for (size_t i = 0; i < types->names.n; i++) {
		const char *type = types->names.data[i].name;
		struct store_type t;

		if (store_type_cpu_seconds(type) > 0 && !*o->cpu)
			snprintf(o->cpu, sizeof(o->cpu), "%s", type);
		if (store_type_has_waits(type) && !*o->waits)
			snprintf(o->waits, sizeof(o->waits), "%s", type);
		if (!*other && !store_type_is_state(type))
			other = type;
		if (n < ARRAY_SIZE(o->states) && store_type_is_state(type) &&
		    store_type_parse(type, &t) == 0 && !strcmp(t.unit, vocab_unit(UNIT_BYTES)))
			snprintf(o->states[n++], sizeof(o->states[0]), "%s", type);
	}
	snprintf(o->type, sizeof(o->type), "%s", *o->cpu ? o->cpu : other);
}

static int find_types(struct overview *o)
{
	__attribute__((cleanup(query_names_deinit))) struct query_names types = {};
	struct store_stats stats = {};
	int r = query_types(o->c->a->o.store, &o->q, &types, &o->c->d);

	if (r == 0)
		r = store_get_stats(o->c->a->o.store, &stats, &o->c->d);
	o->first_ms = stats.first_ms;
	choose_types(o, &types);
	return r;
}

/* ---- services ---- */

static struct overview_service *service_of(struct overview *o, const char *name)
{
	const u64 *at = map_get(&o->by_name, hash_bytes(name, strlen(name)) >> 1);
	struct overview_service *s = at ? &o->services.data[*at] : NULL;

	return s && !strcmp(s->name, name) ? s : NULL;
}

static int add_service(struct overview *o, const char *name, struct overview_service **ret)
{
	*ret = service_of(o, name);
	if (*ret)
		return 0;
	if (vec_push(&o->services, (struct overview_service){.name = name}) < 0 ||
	    map_put(&o->by_name, hash_bytes(name, strlen(name)) >> 1, o->services.n - 1) < 0)
		return -ENOMEM;
	*ret = &o->services.data[o->services.n - 1];
	return 0;
}

static int add_cpu(struct overview *o)
{
	static const char *const by[] = {"service.name"};
	_cleanup_query_ struct query q = {};
	int r = overview_ask(o, o->type, NULL, &q);

	if (r == 0)
		r = overview_sums(o, &q, by, 1, &o->lines);
	for (size_t i = 0; i < o->lines.lines.n && r == 0; i++) {
		struct overview_service *s;

		r = add_service(o, o->lines.lines.data[i].labels, &s);
		if (r == 0)
			overview_sum_line(&o->lines.lines.data[i], &s->samples, &s->value);
	}
	o->damaged |= o->lines.damaged;
	return r;
}

/* The same length of time, before the range: if it is stored from its beginning on. */
static int add_cpu_before(struct overview *o)
{
	static const char *const by[] = {"service.name"};
	_cleanup_query_ struct query q = {};
	u64 length = o->q.to_ms - o->q.from_ms;
	int r = overview_ask(o, o->type, NULL, &q);

	q.from_ms = o->q.from_ms > length ? o->q.from_ms - length : 0;
	q.to_ms = o->q.from_ms;
	o->before = r == 0 && o->first_ms && o->first_ms <= q.from_ms && q.to_ms > q.from_ms;
	if (!o->before)
		return r;
	r = overview_sums(o, &q, by, 1, &o->lines_before);
	vec_foreach (&o->lines_before.lines, line) {
		struct overview_service *s = service_of(o, line->labels);

		if (s)
			overview_sum_line(line, &s->before_samples, &s->before);
	}
	return r;
}

static int add_self(struct overview *o)
{
	__attribute__((cleanup(query_lines_deinit))) struct query_lines l = {};
	_cleanup_query_ struct query q = {.from_ms = o->q.from_ms, .to_ms = o->q.to_ms};
	int r = overview_match(&q, SELF_LABEL, QUERY_EQUAL, "true");

	q.type = strdup(o->type);
	if (r == 0 && q.type)
		r = overview_sums(o, &q, NULL, 0, &l);
	vec_foreach (&l.lines, line)
		overview_sum_line(line, &o->self_samples, &o->self_value);
	return q.type ? r : -ENOMEM;
}

/*
 * Agents call a process by its executable if nobody gave it a name; threads that live long have
 * process.pid (server/ingest/threads.c).
 */
static int find_names(struct overview *o)
{
	static const char *const by[] = {"service.name", "process.executable.name", "process.pid"};
	__attribute__((cleanup(query_sets_deinit))) struct query_sets sets = {};
	_cleanup_query_ struct query q = {};
	int r = overview_ask(o, o->type, NULL, &q);

	if (r == 0)
		r = query_label_sets(o->c->a->o.store, &q, by, 3, &sets, &o->c->d);
	vec_foreach (&sets.sets, set) {
		const char *name = *set, *executable = name + strlen(name) + 1,
			   *pid = executable + strlen(executable) + 1;
		struct overview_service *s = service_of(o, name);

		if (s) {
			s->named |= strcmp(name, executable) != 0 && *name;
			s->long_lived |= *pid != 0;
		}
	}
	return r;
}

static int compare_services(const void *a, const void *b)
{
	const struct overview_service *x = a, *y = b;

	if (x->value != y->value)
		return x->value > y->value ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int load_services(struct overview *o)
{
	int r = *o->type ? add_cpu(o) : 0;

	if (r == 0 && *o->type)
		r = find_names(o);
	if (r == 0 && *o->type)
		r = add_cpu_before(o);
	if (r == 0 && *o->type)
		r = add_self(o);
	return r;
}

/* ---- endpoints ---- */

/* Mean durations of those above p95 and of those from p25 to p75. */
static void find_tail(const struct overview *o, size_t first, size_t n, struct overview_endpoint *e)
{
	const struct span *spans = o->requests.set.spans.spans.data;
	u64 p25 = query_requests_percentile(&o->requests, first, n, 0.25),
	    p75 = query_requests_percentile(&o->requests, first, n, 0.75);
	double slow = 0, slow_ns = 0, typical = 0, typical_ns = 0;
	u64 seen = 0;

	for (size_t i = first; i < first + n; i++) {
		const struct request *q = &o->requests.requests.data[i];
		u64 ns = spans[q->span].duration_ns;

		if (ns > e->p95_ns) {
			seen++;
			slow += q->stands_for;
			slow_ns += (double)ns * q->stands_for;
		} else if (ns >= p25 && ns <= p75) {
			typical += q->stands_for;
			typical_ns += (double)ns * q->stands_for;
		}
	}
	if (seen >= SLOW_LEAST && typical > 0 &&
	    slow_ns / slow >= SLOW_TIMES * typical_ns / typical)
		e->extra_ns = slow_ns - slow * typical_ns / typical;
}

static size_t add_endpoint(struct overview *o, size_t first, struct overview_endpoint *e)
{
	const struct spans *set = &o->requests.set.spans;
	const struct span *of = &set->spans.data[o->requests.requests.data[first].span];
	size_t end = query_requests_endpoint_end(&o->requests, first);

	*e = (struct overview_endpoint){.service = spans_string(set, of->service),
					.name = spans_string(set, of->endpoint)};
	for (size_t i = first; i < end; i++) {
		const struct request *q = &o->requests.requests.data[i];

		e->requests += q->stands_for;
		e->errors += set->spans.data[q->span].status == SPAN_ERROR ? q->stands_for : 0;
	}
	e->seen = end - first;
	e->p50_ns = query_requests_percentile(&o->requests, first, end - first, 0.5);
	e->p95_ns = query_requests_percentile(&o->requests, first, end - first, 0.95);
	e->p99_ns = query_requests_percentile(&o->requests, first, end - first, 0.99);
	find_tail(o, first, end - first, e);
	return end;
}

static int compare_endpoints(const void *a, const void *b)
{
	const struct overview_endpoint *x = a, *y = b;

	if (x->extra_ns != y->extra_ns)
		return x->extra_ns > y->extra_ns ? -1 : 1;
	return x->requests > y->requests ? -1 : x->requests < y->requests;
}

/* Spans may be of services without samples of the type: they are services, too. */
static int load_endpoints(struct overview *o)
{
	_cleanup_query_ struct query q = {};
	struct store_span_filter f;
	int r = overview_ask(o, *o->type ? o->type : "none", NULL, &q);

	q.spans.of = QUERY_OF_REQUESTS;
	f = query_span_filter(&q);
	if (r == 0)
		r = query_requests(o->c->a->o.store, &q, &f, &o->requests, &o->c->d);
	if (r < 0)
		return overview_leave_out(o, r, "requests");
	query_requests_by_endpoint(&o->requests);
	for (size_t i = 0; i < o->requests.requests.n && r == 0;) {
		struct overview_endpoint e;
		struct overview_service *s;

		i = add_endpoint(o, i, &e);
		r = vec_push(&o->endpoints, e);
		if (r == 0)
			r = add_service(o, e.service, &s);
		if (r == 0) {
			s->requests += e.requests;
			s->errors += e.errors;
		}
	}
	if (o->endpoints.n)
		qsort(o->endpoints.data, o->endpoints.n, sizeof(*o->endpoints.data),
		      compare_endpoints);
	o->damaged |= o->requests.damaged;
	return r;
}

/* ---- the answer ---- */

/* A process that nobody named, and that is gone after a moment or takes next to nothing. */
static bool is_small(const struct overview_service *s, s64 all)
{
	return !s->named && s->requests == 0 && (!s->long_lived || s->value < all / 100);
}

static void put_service(struct json_writer *w, const struct overview *o,
			const struct overview_service *s)
{
	json_open_object(w, NULL);
	json_put_text(w, "service", s->name);
	json_put_s64(w, "value", s->value);
	json_put_u64(w, "samples", s->samples);
	if (o->before) {
		json_put_s64(w, "before", s->before);
		json_put_u64(w, "before_samples", s->before_samples);
	}
	json_put_fixed(w, "requests", s->requests, 0);
	json_put_fixed(w, "errors", s->errors, 0);
	json_close(w);
}

static void put_sum(struct json_writer *w, const char *key, u64 n, s64 value, u64 samples)
{
	json_open_object(w, key);
	json_put_u64(w, "processes", n);
	json_put_s64(w, "value", value);
	json_put_u64(w, "samples", samples);
	json_close(w);
}

static void put_services(struct overview *o)
{
	struct json_writer *w = &o->c->json;
	struct overview_service small = {}, all = {};
	u64 n_small = 0, n = 0;

	if (o->services.n)
		qsort(o->services.data, o->services.n, sizeof(*o->services.data), compare_services);
	vec_foreach (&o->services, s) {
		all.value += s->value;
		all.samples += s->samples;
	}
	json_open_array(w, "services");
	vec_foreach (&o->services, s) {
		if (is_small(s, all.value)) {
			n_small++;
			small.value += s->value;
			small.samples += s->samples;
		} else if (n++ < o->limit) {
			put_service(w, o, s);
		}
	}
	json_close(w);
	json_put_u64(w, "n_services", n);
	put_sum(w, "small", n_small, small.value, small.samples);
	put_sum(w, "all", o->services.n, all.value, all.samples);
	if (!o->self && o->self_samples)
		put_sum(w, "self", 1, o->self_value, o->self_samples);
}

static void put_checked(const struct overview *o)
{
	const struct {
		const char *kind;
		bool yes;
	} kinds[] = {{"slow", o->endpoints.n},
		     {"errors", o->endpoints.n},
		     {"cpu", o->before && *o->cpu},
		     {"lock", *o->waits},
		     {"growth", *o->states[0]}};

	json_open_array(&o->c->json, "checked");
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].yes)
			json_put_text(&o->c->json, NULL, kinds[i].kind);
	json_close(&o->c->json);
}

static int put_answer(struct overview *o)
{
	struct json_writer *w = &o->c->json;
	int r;

	json_open_object(w, NULL);
	json_put_u64(w, "from", o->q.from_ms);
	json_put_u64(w, "to", o->q.to_ms);
	json_put_text(w, "type", o->type);
	json_put_u64(w, "first", o->first_ms);
	r = overview_put_findings(o);
	put_services(o);
	put_checked(o);
	json_open_array(w, "not_computed");
	vec_foreach (&o->left, part)
		json_put_text(w, NULL, *part);
	json_close(w);
	json_put_bool(w, "damaged", o->damaged);
	json_close(w);
	return r;
}

static int overview(struct api_call *c)
{
	__attribute__((cleanup(overview_deinit))) struct overview o = {.c = c,
								       .limit = DEFAULT_LIMIT};
	bool go = true;
	int r = api_query(c, "", &o.q);

	o.deadline_ns = clock_ns(CLOCK_MONOTONIC) + BUDGET_MS * 1000000ULL;
	if (r == 0)
		r = api_number(c, "limit", 1, 1000, &o.limit);
	if (r == 0)
		r = api_flag(c, "with_culprit", &o.self);
	if (r == 0)
		r = find_types(&o);
	if (r == 0)
		r = load_services(&o);
	if (r == 0)
		r = overview_may_begin(&o, "requests", &go);
	if (r == 0 && go)
		r = load_endpoints(&o);
	return r < 0 ? r : put_answer(&o);
}

const struct api_route api_overview_routes[] = {
	{"GET", "/api/v1/overview", NET_ROLE_READ, API_STYLE_JSON, overview},
	{},
};
