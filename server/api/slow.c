/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /api/v1/slow: compares slow requests of an endpoint with typical ones (server/analyze), and
 * returns the two as a diff.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vocab.h"
#include "server/analyze/analyze.h"
#include "server/api/internal.h"

#define DEFAULT_ROWS 50

struct comparing {
	struct query q;
	struct query_requests all;
	struct analyze_request *requests; /* owned; the measured ones */
	struct analyze_sample *samples;	  /* owned */
	size_t n_requests, n_samples;
	size_t left_out;	/* requests of which nothing is known */
	struct profile *stacks; /* owned; of all samples, */
	u32 *ids;		/* owned; by sample */
	struct analyze_slow out;
	struct profile_tree *tree; /* owned */
	const char *note;	   /* why there is no result, or NULL */
};

static void comparing_deinit(struct comparing *s)
{
	query_deinit(&s->q);
	query_requests_deinit(&s->all);
	free(s->requests);
	free(s->samples);
	profile_destroy(s->stacks);
	free(s->ids);
	analyze_slow_deinit(&s->out);
	profile_tree_destroy(s->tree);
}

/* Takes the measured requests; ret_new: by request, its position among them, or PROFILE_NONE. */
static void take_measured(struct comparing *s, u32 *ret_new)
{
	for (size_t i = 0; i < s->all.requests.n; i++) {
		const struct request *e = &s->all.requests.data[i];

		ret_new[i] = e->measured ? (u32)s->n_requests : PROFILE_NONE;
		if (e->measured)
			s->requests[s->n_requests++] = (struct analyze_request){
				.duration_ns = s->all.set.spans.spans.data[e->span].duration_ns,
				.weight = e->stands_for};
	}
	s->left_out = s->all.requests.n - s->n_requests;
}

static int load_stacks(struct api_call *c, struct comparing *s)
{
	size_t n = s->all.samples.n;
	_cleanup_free_ u64 *ids = calloc(n + 1, sizeof(*ids));
	_cleanup_free_ u32 *measured = calloc(s->all.requests.n + 1, sizeof(*measured));
	int r;

	s->stacks = profile_create();
	s->ids = calloc(n + 1, sizeof(*s->ids));
	s->samples = calloc(n + 1, sizeof(*s->samples));
	s->requests = calloc(s->all.requests.n + 1, sizeof(*s->requests));
	if (!ids || !measured || !s->stacks || !s->ids || !s->samples || !s->requests)
		return -ENOMEM;
	take_measured(s, measured);
	for (size_t i = 0; i < n; i++)
		ids[i] = s->all.samples.data[i].stack;
	r = store_load_stacks(c->a->o.store, ids, n, s->stacks, s->ids, &c->d);
	for (size_t i = 0; i < n && r == 0; i++) {
		const struct request_sample *e = &s->all.samples.data[i];

		if (s->ids[i] == PROFILE_NONE)
			s->all.damaged = true;
		else if (measured[e->request] != PROFILE_NONE)
			s->samples[s->n_samples++] =
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

/* ---- the trees ---- */

/* Builds the tree of a cohort's samples, per request, from the profile with all stacks. */
static int cohort_tree(struct comparing *s, enum analyze_cohort cohort, double weight,
		       const struct profile_tree_options *o, struct profile_tree **ret)
{
	struct profile *p = s->stacks;
	_cleanup_free_ double *values = calloc(p->stacks.n + 1, sizeof(*values));
	int r = values ? 0 : -ENOMEM;

	p->n_samples = 0;
	for (size_t i = 0; i < s->n_samples && r == 0; i++) {
		const struct analyze_sample *e = &s->samples[i];
		const struct analyze_request *q = &s->requests[e->request];

		if (q->cohort == cohort)
			values[e->stack] += (double)e->value * q->weight / weight;
	}
	for (u32 i = 0; i < p->stacks.n && r == 0; i++) {
		s64 value = llround(values[i]);

		/*
		 * With a time, because profile_add_sample() looks up samples without a time by
		 * their stack.
		 */
		if (value)
			r = profile_add_sample(p, 1, PROFILE_NONE, i, &value);
	}
	return r < 0 ? r : profile_tree_build(p, o, ret);
}

static int make_tree(struct api_call *c, struct comparing *s)
{
	_cleanup_profile_tree_ struct profile_tree *slow = NULL, *middle = NULL, *all = NULL;
	struct profile_tree_options o = {.no_process = true};
	u64 max = 2000;
	int r = api_tree_options(c, &o);

	o.no_process = true;
	if (r == 0)
		r = api_number(c, "max_nodes", 1, API_MAX_NODES, &max);
	if (r == 0)
		r = profile_add_type(s->stacks, "value", vocab_unit(UNIT_COUNT));
	if (r == 0)
		r = cohort_tree(s, ANALYZE_MIDDLE, s->out.middle.weight, &o, &middle);
	if (r == 0)
		r = cohort_tree(s, ANALYZE_SLOW, s->out.slow.weight, &o, &slow);
	if (r == 0)
		r = profile_tree_diff(middle, slow, &all);
	return r < 0 ? r : api_tree_prune(all, max, &s->tree);
}

/* ---- the answer ---- */

static void put_group(struct json_writer *w, const char *name, const struct analyze_group *g)
{
	json_open_object(w, name);
	json_put_u64(w, "requests", g->requests);
	json_put_u64(w, "sampled", g->sampled);
	json_put_fixed(w, "stand_for", g->weight, 0);
	json_put_fixed(w, "from_ms", (double)g->from_ns / 1e6, 6);
	json_put_fixed(w, "to_ms", (double)g->to_ns / 1e6, 6);
	json_put_fixed(w, "value", g->value, 1);
	json_close(w);
}

static void put_row(struct json_writer *w, const struct analyze_slow *s,
		    const struct analyze_row *e)
{
	json_open_object(w, NULL);
	json_put_text(w, "name", strtab_get(&s->strings, e->name));
	json_put_text(w, "object", strtab_get(&s->strings, e->object));
	json_put_text(w, "kind", e->kind < FRAME_KIND_N ? vocab_frame_kind(e->kind)->name : "");
	json_put_fixed(w, "effect", e->effect, 1);
	json_put_fixed(w, "low", e->low, 1);
	json_put_fixed(w, "high", e->high, 1);
	json_put_fixed(w, "slow", e->slow, 1);
	json_put_fixed(w, "middle", e->middle, 1);
	json_put_fixed(w, "slow_self", e->slow_self, 1);
	json_put_fixed(w, "middle_self", e->middle_self, 1);
	json_put_fixed(w, "slow_running", e->slow_running, 6);
	json_put_fixed(w, "middle_running", e->middle_running, 6);
	json_put_bool(w, "explained", e->explained);
	json_close(w);
}

/* Too few requests or no samples is no error: the answer has a note with the reason. */
static int compare(struct api_call *c, struct comparing *s, const struct analyze_shares *shares)
{
	int r = analyze_cohorts(s->requests, s->n_requests, shares, &c->d);

	if (r == -ENODATA) {
		s->n_samples = 0;
		s->note = c->d.text;
		return 0;
	}
	if (r < 0)
		return r;
	if (!s->n_samples) {
		diag_set(&c->d, -ENODATA,
			 "no samples were taken in these %zu requests: take a longer range, and "
			 "see that the service publishes its spans to the agent (doc/context.md)",
			 s->n_requests);
		s->note = c->d.text;
	}
	return analyze_slow(s->stacks, s->requests, s->n_requests, s->samples, s->n_samples,
			    &s->out);
}

static void put_answer(struct json_writer *w, const struct comparing *s, u64 limit)
{
	json_open_object(w, NULL);
	json_put_u64(w, "from", s->q.from_ms);
	json_put_u64(w, "to", s->q.to_ms);
	json_put_text(w, "type", s->all.type);
	json_put_u64(w, "left_out", s->left_out);
	put_group(w, "slow", &s->out.slow);
	put_group(w, "middle", &s->out.middle);
	json_open_array(w, "rows");
	for (size_t i = 0; i < s->out.rows.n && i < limit; i++)
		put_row(w, &s->out, &s->out.rows.data[i]);
	json_close(w);
	json_put_bool(w, "damaged", s->all.damaged);
	if (s->note)
		json_put_text(w, "note", s->note);
	api_put_tree(w, s->tree);
	json_close(w);
}

static int slow(struct api_call *c)
{
	__attribute__((cleanup(comparing_deinit))) struct comparing s = {};
	struct analyze_shares shares = {.slow = 0.95, .middle_from = 0.25, .middle_to = 0.75};
	struct store_span_filter f;
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
	f = query_span_filter(&s.q);
	if (r == 0)
		r = query_requests(c->a->o.store, &s.q, &f, &s.all, &c->d);
	if (r == 0)
		r = query_mark_measured(c->a->o.store, &s.q, &s.all, &c->d);
	if (r == 0)
		r = load_stacks(c, &s);
	if (r == 0)
		r = compare(c, &s, &shares);
	if (r == 0)
		r = make_tree(c, &s);
	if (r == 0)
		put_answer(&c->json, &s, limit);
	return r;
}

const struct api_route api_slow_routes[] = {
	{"GET", "/api/v1/slow", NET_ROLE_READ, API_STYLE_JSON, slow},
	{},
};
