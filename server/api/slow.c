/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /api/v1/slow: compares slow requests of an endpoint with typical ones (server/analyze), and
 * returns the two as a diff.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/compare.h"

#define DEFAULT_ROWS 50

void api_slow_deinit(struct api_slow *s)
{
	query_deinit(&s->q);
	query_requests_deinit(&s->all);
	profile_destroy(s->of.stacks);
	api_comparison_deinit(&s->of);
	free(s->ids);
}

/* Takes the measured requests; ret_new: by request, its position among them, or PROFILE_NONE. */
static void take_measured(struct api_slow *s, u32 *ret_new)
{
	for (size_t i = 0; i < s->all.requests.n; i++) {
		const struct request *e = &s->all.requests.data[i];

		ret_new[i] = e->measured ? (u32)s->of.n_requests : PROFILE_NONE;
		if (e->measured)
			s->of.requests[s->of.n_requests++] = (struct analyze_request){
				.duration_ns = s->all.set.spans.spans.data[e->span].duration_ns,
				.weight = e->stands_for};
	}
	s->left_out = s->all.requests.n - s->of.n_requests;
}

static int load_stacks(struct api_call *c, struct api_slow *s)
{
	size_t n = s->all.samples.n;
	_cleanup_free_ u64 *ids = calloc(n + 1, sizeof(*ids));
	_cleanup_free_ u32 *measured = calloc(s->all.requests.n + 1, sizeof(*measured));
	int r;

	s->of.stacks = profile_create();
	s->ids = calloc(n + 1, sizeof(*s->ids));
	s->of.samples = calloc(n + 1, sizeof(*s->of.samples));
	s->of.requests = calloc(s->all.requests.n + 1, sizeof(*s->of.requests));
	if (!ids || !measured || !s->of.stacks || !s->ids || !s->of.samples || !s->of.requests)
		return -ENOMEM;
	take_measured(s, measured);
	for (size_t i = 0; i < n; i++)
		ids[i] = s->all.samples.data[i].stack;
	r = store_load_stacks(c->a->o.store, ids, n, s->of.stacks, s->ids, &c->d);
	for (size_t i = 0; i < n && r == 0; i++) {
		const struct request_sample *e = &s->all.samples.data[i];

		if (s->ids[i] == PROFILE_NONE)
			s->all.damaged = true;
		else if (measured[e->request] != PROFILE_NONE)
			s->of.samples[s->of.n_samples++] =
				(struct analyze_sample){measured[e->request], s->ids[i], e->value};
	}
	return r;
}

static int percent(struct api_call *c, const char *name, double *share)
{
	const char *text = net_parameter(c->r, name);
	char *end;
	double v;

	if (!text)
		return 0;
	v = strtod(text, &end);
	if (end == text || *end || !(v >= 0 && v <= 100))
		return diag_set(&c->d, -EINVAL, "%s: a percentile of 0 to 100", name);
	*share = v / 100;
	return 0;
}

/* ---- the answer ---- */

/* Too few requests or no samples is no error: the answer has a note with the reason. */
static int compare(struct api_call *c, struct api_slow *s, const struct analyze_shares *shares)
{
	int r = analyze_cohorts(s->of.requests, s->of.n_requests, shares, &c->d);

	if (r == -ENODATA) {
		s->of.n_samples = 0;
		s->note = c->d.text;
		return 0;
	}
	if (r < 0)
		return r;
	if (!s->of.n_samples) {
		diag_set(&c->d, -ENODATA,
			 "no samples were taken in these %zu requests: take a longer range, and "
			 "see that the service publishes its spans to the agent (doc/context.md)",
			 s->of.n_requests);
		s->note = c->d.text;
	}
	return analyze_slow(s->of.stacks, s->of.requests, s->of.n_requests, s->of.samples,
			    s->of.n_samples, &s->of.out);
}

int api_slow_compare(struct api_call *c, const struct analyze_shares *shares, struct api_slow *s)
{
	const struct store_span_filter f = query_span_filter(&s->q);
	int r = query_requests(c->a->o.store, &s->q, &f, &s->all, &c->d);

	if (r == 0)
		r = query_mark_measured(c->a->o.store, &s->q, &s->all, &c->d);
	if (r == 0)
		r = load_stacks(c, s);
	return r < 0 ? r : compare(c, s, shares);
}

/* Of a sum of two types both, as the page names it. */
static void put_type(struct json_writer *w, const struct api_slow *s)
{
	char both[2 * STORE_TYPE_BYTES];

	snprintf(both, sizeof(both), "%s%s%s", s->all.type, s->q.also ? "+" : "",
		 s->q.also ? s->q.also : "");
	json_put_text(w, "type", both);
}

static void put_answer(struct json_writer *w, const struct api_slow *s, u64 limit)
{
	json_open_object(w, NULL);
	json_put_u64(w, "from", s->q.from_ms);
	json_put_u64(w, "to", s->q.to_ms);
	put_type(w, s);
	json_put_u64(w, "left_out", s->left_out);
	api_comparison_put(w, &s->of, limit);
	json_put_bool(w, "damaged", s->all.damaged);
	if (s->note)
		json_put_text(w, "note", s->note);
	json_close(w);
}

static int slow(struct api_call *c)
{
	_cleanup_slow_ struct api_slow s = {};
	struct analyze_shares shares = {.slow = 0.95, .middle_from = 0.25, .middle_to = 0.75};
	u64 limit = DEFAULT_ROWS;
	int r = api_number(c, "limit", 1, 100000, &limit);

	if (r == 0)
		r = percent(c, "slow", &shares.slow);
	if (r == 0)
		r = percent(c, "middle_from", &shares.middle_from);
	if (r == 0)
		r = percent(c, "middle_to", &shares.middle_to);
	if (r == 0)
		r = api_query(c, "", &s.q);
	if (r == 0)
		r = api_requests(c, "", &s.q);
	if (r == 0 && !s.q.spans.endpoint)
		r = diag_set(&c->d, -EINVAL,
			     "slow and quick requests for what? ?endpoint=GET /buy");
	if (r == 0)
		r = api_slow_compare(c, &shares, &s);
	if (r == 0)
		r = api_comparison_tree(c, &s.of);
	if (r == 0)
		put_answer(&c->json, &s, limit);
	return r;
}

const struct api_route api_slow_routes[] = {
	{"GET", "/api/v1/slow", NET_ROLE_READ, API_STYLE_JSON, slow},
	{},
};
