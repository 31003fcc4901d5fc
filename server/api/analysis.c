/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /api/v1/requests/{trace_id}/analysis: how long the calls of a kept request took, thread by
 * thread or all threads and processes as one tree, by one of two estimates
 * (server/analyze/analyze.h).
 */
#include <errno.h>
#include <string.h>

#include "server/api/kept.h"

struct analysis {
	struct kept kept;
	struct kept_calls calls;
	bool compatible, by_line, merge;
	u64 found;
	size_t rows;
};

static void analysis_deinit(struct analysis *a)
{
	kept_calls_deinit(&a->calls);
	kept_deinit(&a->kept);
}

/* ---- parameters ---- */

static int read_parameters(struct api_call *c, struct analysis *a)
{
	const char *id = strstr(c->r->path, "/requests/") + strlen("/requests/");
	const char *span = net_parameter(c->r, "span"), *type = net_parameter(c->r, "type");
	struct kept_asked q = {.whole = !span || !*span};
	char trace[33] = "";
	bool exclude = false;
	int r;

	if (strcspn(id, "/") == 32)
		memcpy(trace, id, 32);
	if (!span_parse_id(trace, q.trace_id, 16))
		return diag_set(&c->d, -EINVAL, "a trace id has 32 hex digits");
	if (!q.whole && !span_parse_id(span, q.span_id, 8))
		return diag_set(&c->d, -EINVAL, "span: 16 hex digits");
	r = api_choice(c, "estimator", "unbiased", "skywalking", &a->compatible);
	if (r == 0)
		r = api_choice(c, "children", "include", "exclude", &exclude);
	if (r == 0)
		r = api_choice(c, "of", "threads", "trace", &a->merge);
	a->kept.children = !exclude;
	a->by_line = true;
	if (r == 0)
		r = api_flag(c, "lines", &a->by_line);
	snprintf(a->kept.type, sizeof(a->kept.type), "%s", type ? type : "");
	a->kept.task = net_parameter(c->r, "task");
	a->kept.to_ms = 1ULL << 62;
	return r < 0 ? r : vec_push(&a->kept.asked, q);
}

/* ---- the answer ---- */

static void put_hex(struct json_writer *w, const char *key, const u8 *id, size_t n)
{
	char text[33];

	text_hex(id, n, text);
	json_put_text(w, key, text);
}

static void put_rows(struct json_writer *w, const struct analysis *a,
		     const struct analyze_merged *m)
{
	size_t blame = 0;

	json_open_array(w, "rows");
	for (u32 i = 0; i < m->calls.n; i++) {
		json_open_object(w, NULL);
		json_put_u64(w, "id", i + 1);
		json_put_u64(w, "parent", m->calls.data[i].parent);
		kept_calls_put_frame(w, &a->calls, m->calls.data[i].frame);
		kept_calls_put_call(w, &a->calls, m, i, 0, &blame);
		json_close(w);
	}
	json_close(w);
}

/* t: the thread, or NULL for all. */
static void put_group(struct json_writer *w, const struct analysis *a, const struct kept_thread *t,
		      const struct analyze_merged *m)
{
	bool snapshots = false;
	s64 total = 0;
	u64 count = 0;

	vec_foreach (&m->calls, e)
		if (!e->parent) {
			total += e->of[0].total_ns;
			count += e->of[0].count;
		}
	vec_foreach (&a->calls.threads, e)
		snapshots |= (!t || e == t) && e->segment != KEPT_NO_SEQUENCE;
	json_open_object(w, NULL);
	json_put_text(w, "service", t ? t->service : "");
	json_put_text(w, "thread", t ? t->thread : "");
	json_put_bool(w, "snapshots", snapshots);
	if (t && snapshots)
		put_hex(w, "span_id", a->kept.segments.data[t->segment].span_id, 8);
	json_put_s64(w, "total_ns", total);
	json_put_u64(w, "count", count);
	put_rows(w, a, m);
	json_close(w);
}

static int close_group(struct api_call *c, struct analysis *a, const struct kept_thread *t,
		       struct analyze_merged *m)
{
	a->rows += m->calls.n;
	if (a->rows > API_MAX_NODES)
		return -E2BIG;
	analyze_sort_blames(m);
	if (m->calls.n)
		put_group(&c->json, a, t, m);
	a->found = MAX(a->found, m->found);
	return 0;
}

static int put_groups(struct api_call *c, struct analysis *a)
{
	_cleanup_merged_ struct analyze_merged all = {};
	int r = 0;

	json_open_array(&c->json, "groups");
	for (size_t i = 0; i < a->calls.threads.n && r == 0; i++) {
		_cleanup_merged_ struct analyze_merged one = {};
		const struct kept_thread *t = &a->calls.threads.data[i];

		r = kept_calls_merge_thread(c, &a->calls, t, a->compatible, 0,
					    a->merge ? &all : &one);
		if (r == 0 && !a->merge)
			r = close_group(c, a, t, &one);
	}
	if (r == 0 && a->merge)
		r = close_group(c, a, NULL, &all);
	json_close(&c->json);
	return r;
}

static int put_answer(struct api_call *c, struct analysis *a)
{
	const struct kept_asked *q = a->kept.asked.data;
	struct analyze_calls most = {};
	_cleanup_str_ struct str tip = {};
	int r;

	json_open_object(&c->json, NULL);
	put_hex(&c->json, "trace_id", q->trace_id, 16);
	if (!q->whole)
		put_hex(&c->json, "span_id", q->span_id, 8);
	json_put_text(&c->json, "type", a->kept.type);
	json_put_text(&c->json, "estimator", a->compatible ? "skywalking" : "unbiased");
	json_put_text(&c->json, "children", a->kept.children ? "include" : "exclude");
	r = put_groups(c, a);
	most.found = a->found;
	analyze_skywalking_tip(&most, ANALYZE_SKYWALKING_MAX, &tip);
	if (tip.n)
		json_put_text(&c->json, "tip", str_get(&tip));
	json_put_bool(&c->json, "damaged", a->kept.damaged);
	json_close(&c->json);
	return r;
}

static int analysis(struct api_call *c)
{
	__attribute__((cleanup(analysis_deinit))) struct analysis a = {};
	int r = read_parameters(c, &a);

	if (r == 0)
		r = kept_load(c, &a.kept);
	if (r == 0)
		r = kept_calls_make(c, &a.kept, a.by_line, &a.calls);
	return r < 0 ? r : put_answer(c, &a);
}

const struct api_route api_analysis_routes[] = {
	{"GET", "/api/v1/requests/{trace_id}/analysis", NET_ROLE_READ, API_STYLE_JSON, analysis},
	{},
};
