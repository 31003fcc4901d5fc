/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings of GET /api/v1/overview: what is wrong now. A finding is something that chance does
 * not explain; of what is uncertain nothing is said:
 *
 *	slow	the mean slow request (above p95) takes at least SLOW_TIMES as long as a typical
 *		one; the function is named if the 95 % interval of its effect is above 0
 *	errors	the 95 % interval of the share of failed requests is above ERRORS_LOW
 *	lock	several threads wait for one lock that a thread has, LOCK_SHARE of the time on
 *		average
 *	cpu	a service takes CPU_TIMES as much CPU as in the same time before, and chance is no
 *		reason
 *	growth	memory of a service grows (growth.c)
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/vocab.h"
#include "profile/table.h"
#include "server/api/compare.h"
#include "server/api/overview.h"
#include "server/api/own.h"

#define SLOW_ENDPOINTS 3 /* that are compared: two queries each */
#define ERRORS_LOW 0.01
#define ERRORS_LEAST 3
#define LOCK_SHARE 0.1
#define LOCK_LEAST 20 /* samples */
#define CPU_TIMES 1.5
#define CPU_CORES 0.05
#define CPU_Z 3.3
#define MOST_GROWING 5 /* services, those with the most memory */
#define MOST_OF_A_KIND 5

/* ---- slow requests ---- */

static double ns_of(const char *type)
{
	double seconds = store_type_cpu_seconds(type);

	return seconds > 0 ? 1e9 * seconds : 1;
}

/* Compares by one type. ret_ns: the effect of the first function, if it is certain; else 0. */
static int compare_by(struct overview *o, const struct overview_endpoint *e, const char *type,
		      struct api_slow *s, double *ret_ns)
{
	static const struct analyze_shares shares = {
		.slow = 0.95, .middle_from = 0.25, .middle_to = 0.75};
	int r = overview_ask(o, type, e->service, &s->q);

	*ret_ns = 0;
	s->q.spans.of = QUERY_OF_REQUESTS;
	s->q.spans.service = strdup(e->service);
	s->q.spans.endpoint = strdup(e->name);
	if (r == 0 && (!s->q.spans.service || !s->q.spans.endpoint))
		r = -ENOMEM;
	if (r == 0)
		r = api_slow_compare(o->c, &shares, s);
	if (r == 0 && !s->note && s->of.out.rows.n && s->of.out.rows.data[0].low > 0)
		*ret_ns = s->of.out.rows.data[0].effect * ns_of(type);
	return r;
}

static bool is_managed(const struct analyze_row *row)
{
	return row->kind < FRAME_KIND_N &&
	       vocab_frame_kind(row->kind)->class == FRAME_CLASS_MANAGED;
}

/*
 * Of the functions with nearly the effect of the first: the innermost of the program itself, whose
 * line is known. Below an interpreter that is one of the program that it runs. Else the first.
 */
static const struct analyze_row *own_row(struct own *own, const struct analyze_slow *s)
{
	const struct analyze_row *first = &s->rows.data[0], *best = NULL;

	vec_foreach (&s->rows, row) {
		if (row->effect < 0.9 * first->effect || row->low <= 0 || !row->file ||
		    !row->line ||
		    !own_is(own, row->kind, strtab_get(&s->strings, row->name),
			    strtab_get(&s->strings, row->file),
			    strtab_get(&s->strings, row->object)))
			continue;
		if (!best || is_managed(row) > is_managed(best) ||
		    (is_managed(row) == is_managed(best) && row->depth > best->depth))
			best = row;
	}
	return best ? best : first;
}

static void put_ms(struct json_writer *w, const char *key, double ns)
{
	json_put_fixed(w, key, ns / 1e6, 6);
}

static void put_cause(struct json_writer *w, struct own *own, const struct api_slow *s,
		      const char *of)
{
	const struct analyze_row *row = own_row(own, &s->of.out);
	double ns = ns_of(s->all.type);

	json_open_object(w, NULL);
	json_put_text(w, "of", of);
	json_put_text(w, "name", strtab_get(&s->of.out.strings, row->name));
	if (row->file)
		json_put_text(w, "file", strtab_get(&s->of.out.strings, row->file));
	if (row->line)
		json_put_u64(w, "line", row->line);
	put_ms(w, "ms", row->effect * ns);
	put_ms(w, "low_ms", row->low * ns);
	put_ms(w, "high_ms", row->high * ns);
	json_close(w);
}

static void open_finding(struct json_writer *w, const char *kind, const char *service)
{
	json_open_object(w, NULL);
	json_put_text(w, "kind", kind);
	json_put_text(w, "service", service);
}

/* By CPU time and by waits, the larger effect first. */
static void put_causes(struct json_writer *w, struct own *own, const struct api_slow *run,
		       double run_ns, const struct api_slow *wait, double wait_ns)
{
	const struct analyze_slow *of = run_ns > 0 ? &run->of.out : &wait->of.out;

	/* Of the requests that were compared. */
	if (run_ns > 0 || wait_ns > 0)
		put_ms(w, "extra_ms", of->slow.mean_ns - of->middle.mean_ns);
	json_open_array(w, "causes");
	if (wait_ns > run_ns)
		put_cause(w, own, wait, "waiting");
	if (run_ns > 0)
		put_cause(w, own, run, "cpu");
	if (wait_ns > 0 && wait_ns <= run_ns)
		put_cause(w, own, wait, "waiting");
	json_close(w);
}

static int put_slow(struct overview *o, const struct overview_endpoint *e)
{
	struct json_writer *w = &o->c->json;
	_cleanup_slow_ struct api_slow run = {}, wait = {};
	_cleanup_own_ struct own *own = NULL;
	double run_ns = 0, wait_ns = 0;
	int r = *o->cpu ? compare_by(o, e, o->cpu, &run, &run_ns) : 0;

	if (r == 0 && *o->waits)
		r = compare_by(o, e, o->waits, &wait, &wait_ns);
	if (r == 0)
		r = own_create(&own);
	if (r < 0)
		return overview_leave_out(o, r, "why requests are slow");
	open_finding(w, "slow", e->service);
	json_put_text(w, "endpoint", e->name);
	json_put_fixed(w, "requests", e->requests, 0);
	put_ms(w, "p50_ms", (double)e->p50_ns);
	put_ms(w, "p95_ms", (double)e->p95_ns);
	put_ms(w, "p99_ms", (double)e->p99_ns);
	put_causes(w, own, &run, run_ns, &wait, wait_ns);
	json_close(w);
	return 0;
}

static int put_all_slow(struct overview *o)
{
	size_t n = 0;
	bool go = true;
	int r = 0;

	for (size_t i = 0; i < o->endpoints.n && r == 0 && go; i++) {
		if (!(o->endpoints.data[i].extra_ns > 0))
			break;
		if (n++ == SLOW_ENDPOINTS)
			return vec_push(&o->left, "slow requests of further endpoints");
		r = overview_may_begin(o, "why requests are slow", &go);
		if (r == 0 && go)
			r = put_slow(o, &o->endpoints.data[i]);
	}
	return r;
}

static void put_all_errors(struct overview *o)
{
	struct json_writer *w = &o->c->json;
	size_t n = 0;

	for (size_t i = 0; i < o->endpoints.n && n < MOST_OF_A_KIND; i++) {
		const struct overview_endpoint *e = &o->endpoints.data[i];
		double low = 0, high = 0;

		/* Of requests that are stored: the others are not known one by one. */
		if (e->errors < ERRORS_LEAST ||
		    !profile_share_interval(e->errors / e->requests, e->seen, &low, &high) ||
		    low <= ERRORS_LOW)
			continue;
		n++;
		open_finding(w, "errors", e->service);
		json_put_text(w, "endpoint", e->name);
		json_put_fixed(w, "requests", e->requests, 0);
		json_put_fixed(w, "errors", e->errors, 0);
		json_close(w);
	}
}

/* ---- locks ---- */

/* Adds up the lines, by service, lock and thread, of one lock, which begin at `first`. */
static int put_lock(struct overview *o, const struct query_lines *l, size_t first)
{
	const char *labels = l->lines.data[first].labels, *lock = labels + strlen(labels) + 1;
	size_t n = strlen(labels) + strlen(lock) + 2, threads = 0;
	u64 samples = 0, length = o->q.to_ms - o->q.from_ms;
	s64 value = 0;

	for (size_t i = 0; i < l->lines.n; i++) {
		if (memcmp(l->lines.data[i].labels, labels, n) != 0)
			continue;
		/* It was put with its first line. */
		if (i < first)
			return 0;
		threads++;
		overview_sum_line(&l->lines.data[i], &samples, &value);
	}
	if (threads < 2 || samples < LOCK_LEAST ||
	    (double)value < LOCK_SHARE * 1e6 * (double)length)
		return 0;
	open_finding(&o->c->json, "lock", labels);
	json_put_text(&o->c->json, "lock", lock);
	json_put_u64(&o->c->json, "threads", threads);
	json_put_u64(&o->c->json, "samples", samples);
	put_ms(&o->c->json, "waited_ms", (double)value);
	json_close(&o->c->json);
	return 1;
}

static int put_all_locks(struct overview *o)
{
	static const char *const by[] = {"service.name", "lock", "thread.name", "thread.id"};
	__attribute__((cleanup(query_lines_deinit))) struct query_lines l = {};
	_cleanup_query_ struct query q = {};
	int found = 0, r = overview_ask(o, o->waits, NULL, &q);

	if (r == 0)
		r = overview_match(&q, "lock", QUERY_NOT_EQUAL, "");
	/* Nobody has a condition variable, at which threads of a pool wait for work. */
	if (r == 0)
		r = overview_match(&q, "owner", QUERY_NOT_EQUAL, "");
	if (r == 0)
		r = overview_sums(o, &q, by, ARRAY_SIZE(by), &l);
	if (r < 0)
		return overview_leave_out(o, r, "locks");
	/* Lines are in the order of their sums: the heaviest locks are among the first. */
	for (size_t i = 0; i < MIN(l.lines.n, (size_t)50) && found < MOST_OF_A_KIND; i++)
		found += put_lock(o, &l, i);
	return 0;
}

/* ---- changes ---- */

static void put_all_cpu(struct overview *o)
{
	struct json_writer *w = &o->c->json;
	double ms = (double)(o->q.to_ms - o->q.from_ms), seconds = store_type_cpu_seconds(o->cpu);
	size_t n = 0;

	for (size_t i = 0; i < o->services.n && n < MOST_OF_A_KIND && o->before && *o->cpu; i++) {
		const struct overview_service *s = &o->services.data[i];
		double more = (double)(s->value - s->before) * seconds / ms * 1000;
		double samples = (double)(s->samples + s->before_samples);

		if (!s->before_samples || more < CPU_CORES ||
		    (double)s->value < CPU_TIMES * (double)s->before ||
		    (double)(s->samples - s->before_samples) < CPU_Z * sqrt(samples))
			continue;
		n++;
		open_finding(w, "cpu", s->name);
		json_put_s64(w, "value", s->value);
		json_put_s64(w, "before", s->before);
		json_close(w);
	}
}

static int put_growth_of(struct overview *o, const char *type)
{
	static const char *const by[] = {"service.name"};
	__attribute__((cleanup(query_lines_deinit))) struct query_lines l = {};
	_cleanup_query_ struct query q = {};
	bool go = true;
	int r = overview_ask(o, type, NULL, &q);

	if (r == 0)
		r = overview_sums(o, &q, by, 1, &l);
	for (size_t i = 0; i < l.lines.n && r == 0 && go; i++) {
		_cleanup_query_ struct query one = {};

		if (i == MOST_GROWING)
			return vec_push(&o->left, "memory of further services");
		r = overview_may_begin(o, "memory", &go);
		if (r == 0 && go)
			r = overview_ask(o, type, l.lines.data[i].labels, &one);
		if (r == 0 && go)
			r = api_put_growth_finding(o->c, &one, l.lines.data[i].labels);
	}
	return overview_leave_out(o, r, "memory");
}

static int put_all_growth(struct overview *o)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(o->states) && r == 0 && *o->states[i]; i++)
		r = put_growth_of(o, o->states[i]);
	return r;
}

int overview_put_findings(struct overview *o)
{
	bool go = true;
	int r;

	json_open_array(&o->c->json, "findings");
	r = put_all_slow(o);
	put_all_errors(o);
	put_all_cpu(o);
	if (r == 0 && *o->waits)
		r = overview_may_begin(o, "locks", &go);
	if (r == 0 && *o->waits && go)
		r = put_all_locks(o);
	if (r == 0)
		r = put_all_growth(o);
	json_close(&o->c->json);
	return r;
}
