/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All requests that a task kept, together; of one endpoint with the parameter endpoint:
 *
 *	/api/v1/tasks/{id}/analysis	their calls as one tree, slow and ordinary requests apart
 *	/api/v1/tasks/{id}/difference	slow beside ordinary ones, per request
 *	/api/v1/tasks/{id}/times	how their times by state are distributed
 *
 * Slow are all that a threshold or an error has kept, ordinary those chosen at random (control). A
 * request counts if an agent has said that it sent what there is of it, or if something of it is
 * here: then a request without samples was too short for one. Of one that was kept without its
 * beginning the sums are too small, so that it is left out where requests are compared.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/compare.h"
#include "server/api/kept.h"

#define DEFAULT_ROWS 50

struct view {
	struct kept_list list;
	struct kept kept;
};

static void view_deinit(struct view *v)
{
	kept_deinit(&v->kept);
	kept_list_deinit(&v->list);
}
#define _cleanup_view_ __attribute__((cleanup(view_deinit)))

/* Reads the task, and loads the samples of its requests. */
static int view_load(struct api_call *c, struct view *v)
{
	bool exclude;
	int r = api_choice(c, "children", "include", "exclude", &exclude);

	if (r == 0)
		r = kept_list_read(c, TASKS_MAX_REQUESTS, &v->list);
	for (size_t i = 0; i < v->list.of.n && r == 0; i++) {
		const struct task_request *q = kept_list_at(&v->list, i);
		struct kept_asked asked = {.group = kept_group_of(q)};

		memcpy(asked.trace_id, q->trace_id, sizeof(asked.trace_id));
		memcpy(asked.span_id, q->span_id, sizeof(asked.span_id));
		r = vec_push(&v->kept.asked, asked);
	}
	if (r < 0)
		return r;
	v->kept.task = v->list.task.id;
	v->kept.service = v->list.task.spec.service;
	v->kept.from_ms = v->list.from_ms;
	v->kept.to_ms = v->list.to_ms;
	v->kept.children = !exclude;
	v->kept.by_request = true;
	return kept_load(c, &v->kept);
}

/* What is known of a request. */
enum known { KNOWN_NOTHING, KNOWN_PARTLY, KNOWN_ALL };

static enum known known_of(const struct task_request *q, bool found)
{
	return q->outcome == CONTROL_OUTCOME_PARTLY	     ? KNOWN_PARTLY
	       : q->outcome == CONTROL_OUTCOME_KEPT || found ? KNOWN_ALL
							     : KNOWN_NOTHING;
}

/* A request whose span the store has thinned out has no samples that could be found. */
static enum known known_at(const struct view *v, size_t i)
{
	const struct kept_asked *q = &v->kept.asked.data[i];

	return q->span == PROFILE_NONE ? KNOWN_NOTHING
				       : known_of(kept_list_at(&v->list, i), q->samples > 0);
}

static void put_task(struct json_writer *w, const struct kept_list *l)
{
	json_put_text(w, "task", l->task.id);
	json_put_u64(w, "from", l->from_ms);
	json_put_u64(w, "to", l->to_ms);
}

/* ---- calls ---- */

static void put_group(struct json_writer *w, const struct view *v, enum kept_group g,
		      const struct analyze_merged *m)
{
	u64 n[KNOWN_ALL + 1] = {}, sampled = 0;
	s64 total = 0;

	for (size_t i = 0; i < v->list.of.n; i++)
		if (v->kept.asked.data[i].group == g) {
			n[known_at(v, i)]++;
			sampled += v->kept.asked.data[i].samples > 0;
		}
	vec_foreach (&m->calls, e)
		total += e->parent ? 0 : e->of[g].total_ns;
	json_open_object(w, kept_group_names[g]);
	json_put_u64(w, "requests", n[KNOWN_ALL] + n[KNOWN_PARTLY]);
	json_put_u64(w, "sampled", sampled);
	json_put_u64(w, "partly", n[KNOWN_PARTLY]);
	json_put_u64(w, "left_out", n[KNOWN_NOTHING]);
	json_put_s64(w, "total_ns", total);
	json_close(w);
}

static int put_analysis(struct api_call *c, const struct view *v, struct kept_calls *calls)
{
	_cleanup_merged_ struct analyze_merged m = {};
	struct analyze_calls most = {};
	_cleanup_str_ struct str tip = {};
	struct json_writer *w = &c->json;
	bool snapshots = false;
	int r = kept_calls_merge(c, calls, &m);

	if (r < 0)
		return r;
	vec_foreach (&calls->threads, t)
		snapshots |= t->segment != KEPT_NO_SEQUENCE;
	most.found = m.found;
	analyze_skywalking_tip(&most, ANALYZE_SKYWALKING_MAX, &tip);
	json_open_object(w, NULL);
	put_task(w, &v->list);
	json_put_text(w, "type", v->kept.type);
	json_put_text(w, "children", v->kept.children ? "include" : "exclude");
	json_put_bool(w, "snapshots", snapshots);
	json_open_object(w, "groups");
	for (u32 g = 0; g < KEPT_GROUPS; g++)
		put_group(w, v, g, &m);
	json_close(w);
	kept_calls_put_merged(w, calls, &m);
	if (tip.n)
		json_put_text(w, "tip", str_get(&tip));
	json_put_bool(w, "damaged", v->kept.damaged);
	json_close(w);
	return 0;
}

int kept_view_analysis(struct api_call *c)
{
	_cleanup_view_ struct view v = {};
	_cleanup_kept_calls_ struct kept_calls calls = {};
	bool lines = true;
	int r = api_flag(c, "lines", &lines);

	if (r == 0)
		r = view_load(c, &v);
	if (r == 0)
		r = kept_calls_make(c, &v.kept, lines, &calls);
	return r < 0 ? r : put_analysis(c, &v, &calls);
}

/* ---- the difference ---- */

static int compare_samples(const void *a, const void *b)
{
	const struct analyze_sample *x = a, *y = b;

	if (x->request != y->request)
		return x->request < y->request ? -1 : 1;
	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* Takes the requests of which all is known; others are of no cohort and have no samples. */
static int take_requests(const struct view *v, struct api_comparison *s, u64 ret_n[KEPT_GROUPS],
			 u64 *ret_left_out)
{
	_cleanup_free_ u32 *at = calloc(v->list.of.n + 1, sizeof(*at));

	s->stacks = v->kept.stacks;
	s->requests = calloc(v->list.of.n + 1, sizeof(*s->requests));
	s->samples = calloc(v->kept.samples.n + 1, sizeof(*s->samples));
	if (!at || !s->requests || !s->samples)
		return -ENOMEM;
	for (size_t i = 0; i < v->list.of.n; i++) {
		enum kept_group g = v->kept.asked.data[i].group;

		at[i] = (u32)s->n_requests;
		if (known_at(v, i) != KNOWN_ALL) {
			at[i] = PROFILE_NONE;
			(*ret_left_out)++;
			continue;
		}
		ret_n[g]++;
		s->requests[s->n_requests++] = (struct analyze_request){
			.duration_ns = kept_list_at(&v->list, i)->duration_ns,
			.weight = 1,
			.cohort = g == KEPT_SLOW ? ANALYZE_SLOW : ANALYZE_MIDDLE};
	}
	vec_foreach (&v->kept.samples, e)
		if (at[e->request] != PROFILE_NONE && e->stack != PROFILE_NONE)
			s->samples[s->n_samples++] = (struct analyze_sample){
				at[e->request], e->stack, kept_link(&v->kept, e)->value};
	qsort(s->samples, s->n_samples, sizeof(*s->samples), compare_samples);
	return 0;
}

static const char *plural(u64 n)
{
	return n == 1 ? "" : "s";
}

/* Why there is no verdict, or none with an interval; else nothing. */
static void put_note(struct str *out, const u64 n[KEPT_GROUPS], size_t n_samples)
{
	if (!n[KEPT_SLOW])
		str_printf(out, "no slow request was kept yet");
	else if (!n[KEPT_CONTROL])
		str_printf(out,
			   "%llu slow request%s and no ordinary one to compare with. Give the "
			   "task a share of the other requests (control).",
			   n[KEPT_SLOW], plural(n[KEPT_SLOW]));
	else if (!n_samples)
		str_printf(out, "no samples were taken in these requests");
	else if (n[KEPT_SLOW] < 2 || n[KEPT_CONTROL] < 2)
		str_printf(out,
			   "%llu slow and %llu ordinary request%s: too few to tell a difference "
			   "from chance",
			   n[KEPT_SLOW], n[KEPT_CONTROL], plural(n[KEPT_CONTROL]));
}

int kept_view_difference(struct api_call *c)
{
	_cleanup_view_ struct view v = {};
	_cleanup_comparison_ struct api_comparison s = {};
	_cleanup_str_ struct str note = {};
	u64 limit = DEFAULT_ROWS, n[KEPT_GROUPS] = {}, left_out = 0;
	int r = api_number(c, "limit", 1, 100000, &limit);

	if (r == 0)
		r = view_load(c, &v);
	if (r == 0)
		r = take_requests(&v, &s, n, &left_out);
	if (r < 0)
		return r;
	put_note(&note, n, s.n_samples);
	/* Nothing is more than nothing: without either side there is no difference. */
	if (!n[KEPT_SLOW] || !n[KEPT_CONTROL])
		s.n_samples = 0;
	r = analyze_slow(s.stacks, s.requests, s.n_requests, s.samples, s.n_samples, &s.out);
	if (r == 0)
		r = api_comparison_tree(c, &s);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	put_task(&c->json, &v.list);
	json_put_text(&c->json, "type", v.kept.type);
	json_put_u64(&c->json, "left_out", left_out);
	api_comparison_put(&c->json, &s, limit);
	json_put_bool(&c->json, "damaged", v.kept.damaged);
	if (note.n)
		json_put_text(&c->json, "note", str_get(&note));
	json_close(&c->json);
	return note.failed ? -ENOMEM : 0;
}

/* ---- time by state ---- */

static int compare_u64(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* The least that a share of n values, which are sorted, do not exceed; n > 0. */
static u64 percentile(const u64 *ns, size_t n, u32 percent)
{
	return ns[(n * percent + 99) / 100 - 1];
}

/* Sorts ns. */
static void put_distribution(struct json_writer *w, const char *name, u64 *ns, size_t n)
{
	double sum = 0;

	qsort(ns, n, sizeof(*ns), compare_u64);
	for (size_t i = 0; i < n; i++)
		sum += (double)ns[i];
	json_open_object(w, name);
	json_put_fixed(w, "mean_ms", sum / (double)n / 1e6, 6);
	json_put_scaled(w, "p50_ms", percentile(ns, n, 50), 6);
	json_put_scaled(w, "p95_ms", percentile(ns, n, 95), 6);
	json_put_scaled(w, "max_ms", ns[n - 1], 6);
	json_close(w);
}

static u64 sum_of(const struct kept_ledger *l, u32 request)
{
	u64 sum = 0;

	for (u32 s = 1; s < kept_ledger_n_states(l); s++)
		sum += l->ns[request][s];
	return sum;
}

/* of: the requests of the group whose time is known; ns: room for as many. */
static void put_states(struct json_writer *w, const struct kept_list *list,
		       const struct kept_ledger *l, const u32 *of, size_t n, u64 *ns)
{
	json_open_object(w, "states");
	for (u32 s = 1; s < kept_ledger_n_states(l); s++) {
		bool any = false;

		for (size_t i = 0; i < n; i++) {
			ns[i] = l->ns[of[i]][s];
			any |= ns[i] != 0;
		}
		if (any)
			put_distribution(w, strtab_get(&l->states, s), ns, n);
	}
	json_close(w);
	for (size_t i = 0; i < n; i++)
		ns[i] = kept_list_at(list, of[i])->duration_ns;
	put_distribution(w, "wall", ns, n);
	for (size_t i = 0; i < n; i++) {
		u64 wall = kept_list_at(list, of[i])->duration_ns, sum = sum_of(l, of[i]);

		ns[i] = wall - MIN(wall, sum);
	}
	put_distribution(w, "rest", ns, n);
	for (size_t i = 0; i < n; i++) {
		u64 wall = kept_list_at(list, of[i])->duration_ns, sum = sum_of(l, of[i]);

		ns[i] = sum - MIN(wall, sum);
	}
	put_distribution(w, "overlap", ns, n);
}

static int put_times(struct json_writer *w, const struct kept_list *list,
		     const struct kept_ledger *l, enum kept_group g)
{
	_cleanup_free_ u32 *of = calloc(list->of.n + 1, sizeof(*of));
	_cleanup_free_ u64 *ns = calloc(list->of.n + 1, sizeof(*ns));
	u64 partly = 0, left_out = 0;
	size_t n = 0;

	if (!of || !ns)
		return -ENOMEM;
	for (u32 i = 0; i < list->of.n; i++) {
		const struct task_request *q = kept_list_at(list, i);

		if (kept_group_of(q) != g)
			continue;
		if (sum_of(l, i)) {
			of[n++] = i;
			partly += q->outcome == CONTROL_OUTCOME_PARTLY;
		} else {
			left_out++;
		}
	}
	json_open_object(w, kept_group_names[g]);
	json_put_u64(w, "requests", n);
	json_put_u64(w, "partly", partly);
	json_put_u64(w, "left_out", left_out);
	if (n)
		put_states(w, list, l, of, n, ns);
	json_close(w);
	return 0;
}

int kept_view_times(struct api_call *c)
{
	_cleanup_kept_list_ struct kept_list list = {};
	_cleanup_kept_ledger_ struct kept_ledger l = {};
	int r = kept_list_read(c, TASKS_MAX_REQUESTS, &list);

	if (r == 0)
		r = kept_ledger_fill(c, &list, &l);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	put_task(&c->json, &list);
	kept_list_put_endpoints(&c->json, &list);
	json_open_object(&c->json, "groups");
	for (u32 g = 0; g < KEPT_GROUPS && r == 0; g++)
		r = put_times(&c->json, &list, &l, g);
	json_close(&c->json);
	json_put_bool(&c->json, "damaged", l.damaged);
	json_close(&c->json);
	return r;
}
