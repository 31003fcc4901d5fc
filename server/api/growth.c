/* SPDX-License-Identifier: Apache-2.0 */
/* GET /api/v1/growth: which sites make the memory of a service grow, and how sure that is. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/vocab.h"
#include "server/analyze/analyze.h"
#include "server/api/internal.h"

#define DEFAULT_BUCKETS 60
#define DEFAULT_ROWS 50
#define DEFAULT_WARMUP_S 120
#define MAX_FRAMES 512 /* of a stack in the answer */

struct growth {
	struct query q;
	struct query_growth data;
	struct analyze_growth found;
	struct analyze_instance *instances; /* owned */
	u8 *whole;			    /* owned; by instance and bucket */
	u64 *samples;			    /* owned; by site */
	struct analyze_cell *cells;	    /* owned */
	double *values;			    /* owned; of a row, by bucket */
	u64 limit, warmup_s;
	struct api_exactness exact;
};

static void growth_deinit(struct growth *g)
{
	query_deinit(&g->q);
	query_growth_deinit(&g->data);
	analyze_growth_deinit(&g->found);
	free(g->instances);
	free(g->whole);
	free(g->samples);
	free(g->cells);
	free(g->values);
}

/* Ends the range now, because not all of the present second has arrived. 0: a default step. */
static u64 fit_step(struct growth *g, u64 step)
{
	u64 range, now = clock_epoch_ms();

	g->q.to_ms = MAX(MIN(g->q.to_ms, now + 1), g->q.from_ms + 1);
	range = g->q.to_ms - g->q.from_ms;
	if (!step)
		step = MAX(range / DEFAULT_BUCKETS, 1000ULL);
	step = MAX(step, (range + QUERY_GROWTH_BUCKETS - 1) / QUERY_GROWTH_BUCKETS);
	return MIN(step, range);
}

static int read_parameters(struct api_call *c, struct growth *g, u64 *ret_step_ms)
{
	u64 step = 0;
	int r = api_query(c, "", &g->q);

	g->limit = DEFAULT_ROWS;
	g->warmup_s = DEFAULT_WARMUP_S;
	if (r == 0)
		r = api_number(c, "limit", 1, 1000, &g->limit);
	if (r == 0)
		r = api_number(c, "warmup", 0, 86400, &g->warmup_s);
	if (r == 0)
		r = api_number(c, "step", 1, 1ULL << 40, &step);
	if (r == 0)
		*ret_step_ms = fit_step(g, step);
	return r;
}

/*
 * Which buckets of an instance count. The first of a new instance and the last of one that has
 * ended may be parts of a bucket; so may both ends of values that add up.
 */
static void count_instance(const struct growth *g, const struct query_instance *e,
			   struct analyze_instance *ret, u8 *whole)
{
	const struct query_growth *d = &g->data;
	u64 warm = (g->warmup_s * 1000 + d->step_ms - 1) / d->step_ms;

	ret->whole = whole;
	ret->begin = e->begin;
	ret->end = e->end;
	ret->first = e->begin;
	if (e->is_new)
		ret->first = (u32)MIN(e->begin + MAX(warm, 1ULL), (u64)d->n_buckets);
	else if (!d->states)
		ret->first = MIN(e->begin + 1, d->n_buckets);
	for (u32 b = e->begin; b < e->end; b++)
		whole[b] = !d->states || e->reported[b] == QUERY_WHOLE;
	if (e->is_young)
		memset(whole, 0, d->n_buckets);
	if (e->end > e->begin && (e->has_ended || !d->states))
		whole[e->end - 1] = 0;
}

static int find_exactness(struct api_call *c, struct growth *g)
{
	char name[STORE_TYPE_BYTES] = "";

	(void)sscanf(g->data.type, "%*[^:]:%31[^:]", name);
	return api_exactness(c, &g->q, name, &g->exact);
}

static int analyze(struct growth *g)
{
	struct query_growth *d = &g->data;
	struct analyze_growing of = {.step_s = (double)d->step_ms / 1000,
				     .n_buckets = d->n_buckets,
				     .n_instances = (u32)d->instances.n,
				     .n_sites = (u32)d->sites.n,
				     .n_cells = d->cells.n,
				     .over_time = !d->states};

	of.instances = g->instances = calloc(d->instances.n + 1, sizeof(*g->instances));
	of.cells = g->cells = calloc(d->cells.n + 1, sizeof(*g->cells));
	of.samples = g->samples = calloc(d->sites.n + 1, sizeof(*g->samples));
	g->whole = calloc(d->instances.n + 1, MAX(d->n_buckets, 1u));
	g->values = calloc(MAX(d->n_buckets, 1u), sizeof(*g->values));
	if (!of.instances || !of.cells || !of.samples || !g->whole || !g->values)
		return -ENOMEM;
	for (size_t i = 0; i < d->instances.n; i++)
		count_instance(g, &d->instances.data[i], &g->instances[i],
			       g->whole + i * d->n_buckets);
	for (size_t i = 0; i < d->sites.n; i++)
		g->samples[i] = d->sites.data[i].samples;
	for (size_t i = 0; i < d->cells.n; i++) {
		const struct query_cell *e = &d->cells.data[i];

		g->cells[i] = (struct analyze_cell){e->instance, e->site, e->values};
	}
	return analyze_growth(&of, &g->found);
}

/* ---- the answer ---- */

static void put_rate(struct json_writer *w, const struct growth *g, const struct analyze_site *s)
{
	json_put_fixed(w, "slope", s->rate.slope, 3);
	json_put_fixed(w, "low", s->rate.low / g->exact.factor, 3);
	if (!g->exact.no_maximum)
		json_put_fixed(w, "high", s->rate.high * g->exact.factor, 3);
	json_put_fixed(w, "first", s->first, 0);
	json_put_fixed(w, "last", s->last, 0);
	json_put_fixed(w, "grew", s->grew, 4);
	json_put_bool(w, "only_grows", s->only_grows);
	json_put_bool(w, "sure", s->sure);
}

static void put_frame(struct json_writer *w, const struct profile *p, u32 id)
{
	const struct profile_frame *f = &p->frames.data[id];
	_cleanup_str_ struct str scratch = {};
	const char *file = "";

	if (f->function != PROFILE_NONE)
		file = profile_string(p, p->functions.data[f->function].file);
	json_put_text(w, "name", profile_frame_name(p, id, &scratch));
	if (f->mapping != PROFILE_NONE)
		json_put_text(w, "object", profile_string(p, p->mappings.data[f->mapping].path));
	json_put_text(w, "kind", f->kind < FRAME_KIND_N ? vocab_frame_kind(f->kind)->name : "");
	if (*file)
		json_put_text(w, "file", file);
	if (f->line)
		json_put_u64(w, "line", f->line);
}

static void put_stack(struct json_writer *w, const struct profile *p, const struct query_site *s)
{
	const struct profile_stack *k;

	json_open_array(w, "frames");
	if (s->stack != PROFILE_NONE) {
		k = &p->stacks.data[s->stack];
		for (u32 i = 0; i < k->n && i < MAX_FRAMES; i++) {
			json_open_object(w, NULL);
			put_frame(w, p, p->stack_frames.data[k->first + i]);
			json_close(w);
		}
	}
	json_close(w);
	if (s->own < MAX_FRAMES)
		json_put_u64(w, "own", s->own);
}

static bool reported(const struct query_growth *d, u32 bucket)
{
	for (size_t i = 0; i < d->instances.n; i++)
		if (d->instances.data[i].reported[bucket])
			return true;
	return false;
}

/* By bucket; null: nothing was reported then. */
static void put_values(struct json_writer *w, const char *key, const struct query_growth *d,
		       const double *values)
{
	json_open_array(w, key);
	for (u32 b = 0; b < d->n_buckets; b++) {
		if (reported(d, b))
			json_put_fixed(w, NULL, values[b], 0);
		else
			json_put_null(w, NULL);
	}
	json_close(w);
}

static void put_row(struct json_writer *w, const struct growth *g, const struct analyze_site *s)
{
	const struct query_growth *d = &g->data;
	const struct query_site *site = &d->sites.data[s->site];

	memset(g->values, 0, d->n_buckets * sizeof(*g->values));
	for (size_t i = 0; i < d->cells.n; i++)
		for (u32 b = 0; b < d->n_buckets && d->cells.data[i].site == s->site; b++)
			g->values[b] += d->cells.data[i].values[b];
	json_open_object(w, NULL);
	put_rate(w, g, s);
	json_put_u64(w, "chains", site->chains);
	json_put_u64(w, "samples", site->samples);
	put_stack(w, d->profile, site);
	put_values(w, "values", d, g->values);
	json_close(w);
}

static void put_instances(struct json_writer *w, const struct growth *g)
{
	u64 all = 0, fresh = 0, ended = 0;

	vec_foreach (&g->data.instances, e) {
		all += !e->is_young;
		fresh += !e->is_young && e->is_new;
		ended += !e->is_young && e->has_ended;
	}
	json_open_object(w, "instances");
	json_put_u64(w, "all", all);
	json_put_u64(w, "used", g->found.used);
	json_put_u64(w, "new", fresh);
	json_put_u64(w, "ended", ended);
	json_put_bool(w, "merged", g->data.merged);
	json_close(w);
}

static void put_answer(struct json_writer *w, const struct growth *g)
{
	const struct query_growth *d = &g->data;
	struct store_type t;
	char note[96];

	(void)store_type_parse(d->type, &t);
	json_open_object(w, NULL);
	json_put_u64(w, "from", d->from_ms);
	json_put_u64(w, "to", d->from_ms + d->n_buckets * d->step_ms);
	json_put_text(w, "type", d->type);
	json_put_text(w, "unit", t.unit);
	json_put_text(w, "adds", d->states ? "at_moment" : "over_time");
	json_put_u64(w, "step", d->step_ms);
	json_put_u64(w, "warmup", g->warmup_s);
	json_put_u64(w, "periods", g->found.points);
	json_put_u64(w, "needed", ANALYZE_GROWTH_POINTS);
	put_instances(w, g);
	put_values(w, "totals", d, d->totals);
	if (g->found.used) {
		json_open_object(w, "all");
		put_rate(w, g, &g->found.all);
		json_close(w);
	} else {
		snprintf(note, sizeof(note), "not enough data: %u of %u periods", g->found.points,
			 ANALYZE_GROWTH_POINTS);
		json_put_text(w, "note", note);
	}
	json_put_u64(w, "sites", d->sites.n);
	json_put_u64(w, "left_out", d->left_out);
	json_open_array(w, "rows");
	for (u32 i = 0; i < g->found.n_sites && i < g->limit; i++)
		put_row(w, g, &g->found.sites[i]);
	json_close(w);
	json_put_bool(w, "damaged", d->damaged);
	api_put_limited(w, d->limited);
	json_close(w);
}

static int growth(struct api_call *c)
{
	__attribute__((cleanup(growth_deinit))) struct growth g = {};
	u64 step_ms = 0;
	int r = read_parameters(c, &g, &step_ms);

	if (r == 0)
		r = query_growth(c->a->o.store, &g.q, step_ms, &g.data, &c->d);
	if (r == 0)
		r = analyze(&g);
	if (r == 0)
		r = find_exactness(c, &g);
	if (r == 0)
		put_answer(&c->json, &g);
	return r;
}

/* ---- of one service, for the overview ---- */

/* Less is no finding, however sure: in the range, of the memory at its end and in bytes. */
#define LEAST_GROWTH 0.02
#define LEAST_BYTES (1 << 20)

static void put_site(struct json_writer *w, const struct growth *g)
{
	const struct analyze_site *s = g->found.n_sites ? &g->found.sites[0] : NULL;
	const struct query_site *site = s ? &g->data.sites.data[s->site] : NULL;
	const struct profile *p = g->data.profile;

	if (!s || !s->sure || site->stack == PROFILE_NONE || site->own == PROFILE_NONE)
		return;
	json_open_object(w, "where");
	put_frame(w, p, p->stack_frames.data[p->stacks.data[site->stack].first + site->own]);
	json_put_fixed(w, "slope", s->rate.slope, 3);
	json_close(w);
}

int api_put_growth_finding(struct api_call *c, struct query *q, const char *service)
{
	__attribute__((cleanup(growth_deinit))) struct growth g = {.q = *q,
								   .warmup_s = DEFAULT_WARMUP_S};
	const struct analyze_site *all = &g.found.all;
	double seconds;
	u64 step_ms;
	int r;

	*q = (struct query){};
	step_ms = fit_step(&g, 0);
	seconds = (double)(g.q.to_ms - g.q.from_ms) / 1000;
	r = query_growth(c->a->o.store, &g.q, step_ms, &g.data, &c->d);
	if (r == 0)
		r = analyze(&g);
	if (r < 0 || !g.found.used || !all->sure || !(all->rate.low > 0) ||
	    all->rate.slope * seconds < MAX(LEAST_GROWTH * all->last, (double)LEAST_BYTES))
		return r;
	json_open_object(&c->json, NULL);
	json_put_text(&c->json, "kind", "growth");
	json_put_text(&c->json, "service", service);
	json_put_text(&c->json, "type", g.data.type);
	json_put_u64(&c->json, "periods", g.found.points);
	json_put_fixed(&c->json, "slope", all->rate.slope, 3);
	json_put_fixed(&c->json, "low", all->rate.low, 3);
	json_put_fixed(&c->json, "high", all->rate.high, 3);
	json_put_fixed(&c->json, "last", all->last, 0);
	put_site(&c->json, &g);
	json_close(&c->json);
	return 0;
}

const struct api_route api_growth_routes[] = {
	{"GET", "/api/v1/growth", NET_ROLE_READ, API_STYLE_JSON, growth},
	{},
};
