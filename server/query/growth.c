/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_growth(): first all stacks of the range are loaded and become sites, then a scan by time
 * adds up what each instance has of each site. If there are too many sites for that, those that
 * gained least from the first fifth of the range to the last are one, so that sums stay right.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/quota.h"
#include "base/str.h"
#include "server/analyze/analyze.h"
#include "server/query/plan.h"
#include "server/query/query.h"

#define MAX_CELLS 20000 /* of QUERY_GROWTH_BUCKETS doubles each: 38 MB */
#define MAX_INSTANCES 400
#define MIN_SITES 40
#define MAX_SITES 2000
/*
 * So long a process of an agent has no label of its own (server/ingest/threads.c); twice as long if
 * reports are late.
 */
#define YOUNG_MS 30000
#define FEW_ROWS 20000
#define MANY_ROWS 200000

#define UNFREED_TYPE "memory:unfreed_space:bytes:unfreed_space:bytes"
#define ALLOCATED_TYPE "memory:alloc_space:bytes:alloc_space:bytes"

/* The labels of which each instance has its own values; first those of a service of a host. */
static const char *const instance_labels[] = {
	"service.name", "host.name",	      "service.instance.id", "process.pid", "container.id",
	"k8s.pod.uid",	"k8s.namespace.name", "k8s.pod.name",	     "instance",    "pod",
	"hostname",	"namespace",
};

/* A stack of the store in the range. */
struct stack {
	u64 id;
	u32 in_profile; /* or PROFILE_NONE */
	u32 site;
	u64 count;
	double gain;
};

struct growing {
	struct store *store;
	const struct query *q;
	struct plan plan;
	struct store_filter f;
	struct query_growth out;
	vec(struct stack) stacks;
	struct map by_id;     /* store's id → index in `stacks` */
	struct map instances; /* series id → index */
	struct map groups;    /* series id → plan_group(); empty: processes are not told apart */
	struct map states;    /* of the present bucket: group → the most states of a series */
	struct strtab names;  /* of instances and sites, while they are made */
	size_t n_labels;      /* of instance_labels, that tell instances apart */
	struct map cells;     /* instance << 32 | site → index */
	vec(double) gains;    /* by site */
	u32 others;	      /* the site for those that are left out, or PROFILE_NONE */
	struct diag *diag;
};

void query_growth_deinit(struct query_growth *g)
{
	vec_foreach (&g->instances, e)
		free(e->reported);
	vec_foreach (&g->cells, e)
		free(e->values);
	vec_deinit(&g->sites);
	vec_deinit(&g->instances);
	vec_deinit(&g->cells);
	free(g->totals);
	profile_destroy(g->profile);
	*g = (struct query_growth){};
}

static void growing_deinit(struct growing *w)
{
	plan_deinit(&w->plan);
	query_growth_deinit(&w->out);
	vec_deinit(&w->stacks);
	vec_deinit(&w->gains);
	map_deinit(&w->by_id);
	map_deinit(&w->instances);
	map_deinit(&w->groups);
	map_deinit(&w->states);
	map_deinit(&w->cells);
	strtab_deinit(&w->names);
}

/* ---- stacks and sites ---- */

/* All stacks of the range; the length of a bucket becomes at least the resolution of samples. */
static int find_stacks(struct growing *w)
{
	_cleanup_store_rows_ struct store_rows rows = {};
	u64 *step = &w->out.step_ms;
	int r = store_scan(w->store, &w->f, STORE_BY_STACK, 0, &rows, w->diag);

	w->out.damaged |= rows.damaged;
	if (r == 0 && rows.resolution_ms > *step)
		*step = (rows.resolution_ms + *step - 1) / *step * *step;
	for (size_t i = 0; i < rows.rows.n && r == 0; i++) {
		struct stack s = {.id = rows.rows.data[i].stack,
				  .in_profile = PROFILE_NONE,
				  .site = PROFILE_NONE,
				  .count = rows.rows.data[i].count};

		r = map_put(&w->by_id, s.id, w->stacks.n);
		if (r == 0)
			r = vec_push(&w->stacks, s);
	}
	return r;
}

static int load_stacks(struct growing *w)
{
	_cleanup_free_ u64 *ids = calloc(w->stacks.n + 1, sizeof(*ids));
	_cleanup_free_ u32 *stacks = calloc(w->stacks.n + 1, sizeof(*stacks));
	int r;

	w->out.profile = profile_create();
	if (!ids || !stacks || !w->out.profile)
		return -ENOMEM;
	for (size_t i = 0; i < w->stacks.n; i++)
		ids[i] = w->stacks.data[i].id;
	r = store_load_stacks(w->store, ids, w->stacks.n, w->out.profile, stacks, w->diag);
	for (size_t i = 0; i < w->stacks.n && r == 0; i++)
		w->stacks.data[i].in_profile = stacks[i];
	return r;
}

/* The key of a stack's site: its own frame by name, file and line, or by binary and address. */
static void site_key(const struct profile *p, u32 stack, struct str *key)
{
	u32 own = analyze_own_frame(p, stack);
	const struct profile_frame *f;
	_cleanup_str_ struct str scratch = {};
	const char *object = "";

	if (own == PROFILE_NONE)
		return;
	f = &p->frames.data[p->stack_frames.data[p->stacks.data[stack].first + own]];
	if (f->mapping != PROFILE_NONE)
		object = profile_basename(profile_string(p, p->mappings.data[f->mapping].path));
	str_printf(key, "%u\n%u\n%s\n", f->kind, f->line, object);
	if (f->function != PROFILE_NONE)
		str_puts(key, profile_string(p, p->functions.data[f->function].file));
	str_putc(key, '\n');
	str_puts(key, profile_frame_name(p, p->stack_frames.data[p->stacks.data[stack].first + own],
					 &scratch));
}

static int site_of(struct growing *w, struct stack *s)
{
	const struct profile *p = w->out.profile;
	struct query_site new = {.stack = s->in_profile, .own = PROFILE_NONE};
	_cleanup_str_ struct str key = {};
	size_t before = w->names.n;
	u32 id;
	int r;

	str_putc(&key, '.');
	if (s->in_profile != PROFILE_NONE)
		site_key(p, s->in_profile, &key);
	r = key.failed ? -ENOMEM : strtab_add(&w->names, key.data, key.n, &id);
	if (r < 0)
		return r;
	s->site = id - 1;
	if (w->names.n == before)
		return 0;
	r = vec_push(&w->out.sites, new);
	return r < 0 ? r : vec_push(&w->gains, 0);
}

static int make_sites(struct growing *w)
{
	_cleanup_query_stacks_ struct query_stacks *predicate = NULL;
	bool some = plan_selects_stacks(w->q);
	int r = plan_predicate(w->q, &predicate, w->diag);

	if (r == 0)
		r = find_stacks(w);
	if (r == 0)
		r = load_stacks(w);
	if (r == 0 && some)
		r = query_stacks_profile(predicate, w->out.profile);
	for (size_t i = 0; i < w->stacks.n && r >= 0; i++) {
		struct stack *s = &w->stacks.data[i];

		r = 1;
		if (some)
			r = s->in_profile == PROFILE_NONE
				    ? 0
				    : query_stacks_match(predicate, s->in_profile, w->diag);
		if (r > 0)
			r = site_of(w, s);
	}
	return MIN(r, 0);
}

/* ---- what gained most ---- */

static int add_gains(struct growing *w, u64 from_ms, u64 to_ms, double sign)
{
	struct store_filter f = w->f;
	_cleanup_store_rows_ struct store_rows rows = {};
	int r;

	f.from_ms = from_ms;
	f.to_ms = to_ms;
	r = store_scan(w->store, &f, STORE_BY_STACK | (w->out.states ? STORE_BY_SERIES : 0), 0,
		       &rows, w->diag);
	if (r == 0 && w->out.states)
		plan_take_means(&rows, NULL);
	for (size_t i = 0; i < rows.rows.n && r == 0; i++) {
		const u64 *at = map_get(&w->by_id, rows.rows.data[i].stack);

		if (at)
			w->stacks.data[*at].gain += sign * (double)rows.rows.data[i].value;
	}
	return r;
}

static int find_gains(struct growing *w)
{
	u64 fifth = (w->f.to_ms - w->f.from_ms) / 5 + 1;
	int r = w->out.states ? add_gains(w, w->f.to_ms - fifth, w->f.to_ms, 1)
			      : add_gains(w, w->f.from_ms, w->f.to_ms, 1);

	if (r == 0 && w->out.states)
		r = add_gains(w, w->f.from_ms, w->f.from_ms + fifth, -1);
	for (size_t pass = 0; pass < 2 && r == 0; pass++)
		vec_foreach (&w->stacks, s) {
			struct query_site *e =
				s->site == PROFILE_NONE ? NULL : &w->out.sites.data[s->site];

			if (!e)
				continue;
			/* In the first pass `gains` is that of the site's best stack. */
			if (!pass) {
				e->samples += s->count;
				if (!e->chains++ || s->gain > w->gains.data[s->site]) {
					w->gains.data[s->site] = s->gain;
					e->stack = s->in_profile;
				}
			} else {
				w->gains.data[s->site] += s->gain;
			}
		}
	vec_foreach (&w->out.sites, e)
		if (e->stack != PROFILE_NONE)
			e->own = analyze_own_frame(w->out.profile, e->stack);
	return r;
}

static int compare_gains(const void *a, const void *b, void *gains)
{
	double x = ((const double *)gains)[*(const u32 *)a];
	double y = ((const double *)gains)[*(const u32 *)b];

	return x != y ? (x > y ? -1 : 1) : 0;
}

/* Makes one site of those that gained least. */
static int leave_out(struct growing *w, size_t max)
{
	size_t n = w->out.sites.n;
	_cleanup_free_ u32 *order = calloc(n + 1, sizeof(*order));
	_cleanup_free_ u32 *new = calloc(n + 1, sizeof(*new));
	vec(struct query_site) kept = {};
	int r = order && new ? 0 : -ENOMEM;

	w->others = PROFILE_NONE;
	if (n <= max || r < 0)
		return r;
	for (u32 i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), compare_gains, w->gains.data);
	for (u32 i = 0; i < n && r == 0; i++) {
		new[order[i]] = MIN(i, (u32)max);
		if (i < max)
			r = vec_push(&kept, w->out.sites.data[order[i]]);
	}
	if (r == 0)
		r = vec_push(&kept,
			     (struct query_site){.stack = PROFILE_NONE, .own = PROFILE_NONE});
	if (r < 0) {
		vec_deinit(&kept);
		return r;
	}
	w->out.left_out = n - max;
	w->others = (u32)max;
	for (size_t i = max; i < n; i++) {
		kept.data[max].chains += w->out.sites.data[order[i]].chains;
		kept.data[max].samples += w->out.sites.data[order[i]].samples;
	}
	vec_foreach (&w->stacks, s)
		s->site = s->site == PROFILE_NONE ? PROFILE_NONE : new[s->site];
	vec_deinit(&w->out.sites);
	w->out.sites.data = kept.data;
	w->out.sites.n = kept.n;
	w->out.sites.cap = kept.cap;
	return 0;
}

/* ---- instances ---- */

static void instance_key(const struct plan *plan, const struct store_found_series *s,
			 size_t n_labels, struct str *key)
{
	for (size_t i = 0; i < n_labels; i++) {
		const char *value = plan_label(plan, s, instance_labels[i]);

		str_append(key, value, strlen(value) + 1);
	}
}

static int add_instance(struct growing *w, const struct store_found_series *s, size_t n_labels)
{
	_cleanup_str_ struct str key = {};
	size_t before = w->names.n;
	u32 id;
	int r;

	instance_key(&w->plan, s, n_labels, &key);
	r = key.failed ? -ENOMEM : strtab_add(&w->names, key.data, key.n, &id);
	if (r == 0 && w->names.n > before) {
		struct query_instance e = {.reported = calloc(w->out.n_buckets + 1, 1)};

		r = e.reported ? vec_push(&w->out.instances, e) : -ENOMEM;
		if (r < 0)
			free(e.reported);
	}
	return r < 0 ? r : map_put(&w->instances, s->id, id - 1);
}

/*
 * An agent's processes are told apart once they have lived for a while: what has no process then is
 * of several young ones, one after the other.
 */
static int mark_young(struct growing *w)
{
	struct map with_pid = {};
	int r = 0;

	for (u32 pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < w->plan.series.n && r == 0; i++) {
			const struct store_found_series *s = &w->plan.series.data[i];
			u64 group = *map_get(&w->groups, s->id);
			bool has_pid = *plan_label(&w->plan, s, PLAN_PID) != '\0';

			if (!pass && has_pid)
				r = map_put(&with_pid, group, 1);
			else if (pass && !has_pid && map_get(&with_pid, group))
				w->out.instances.data[*map_get(&w->instances, s->id)].is_young =
					true;
		}
	if (!with_pid.n)
		map_clear(&w->groups);
	map_deinit(&with_pid);
	return r;
}

/* By so many labels, that is of processes, or of services of a host, or of services. */
static int make_instances_by(struct growing *w, size_t n_labels)
{
	bool has_pid = false;
	int r;

	w->n_labels = n_labels;
	vec_foreach (&w->out.instances, e)
		free(e->reported);
	vec_clear(&w->out.instances);
	map_clear(&w->instances);
	map_clear(&w->groups);
	strtab_deinit(&w->names);
	w->names = (struct strtab){};
	r = strtab_init(&w->names);
	for (size_t i = 0; i < w->plan.series.n && r == 0; i++) {
		const struct store_found_series *s = &w->plan.series.data[i];

		r = add_instance(w, s, n_labels);
		if (r == 0 && n_labels == ARRAY_SIZE(instance_labels))
			r = map_put(&w->groups, s->id, plan_group(&w->plan, s, &has_pid));
	}
	return r;
}

static int make_instances(struct growing *w)
{
	int r = make_instances_by(w, ARRAY_SIZE(instance_labels));

	if (r == 0 && w->out.instances.n <= MAX_INSTANCES)
		return mark_young(w);
	w->out.merged = true;
	for (size_t n = 2; n && r == 0 && w->out.instances.n > MAX_INSTANCES; n--)
		r = make_instances_by(w, n);
	if (r == 0 && w->out.instances.n > MAX_INSTANCES)
		return diag_set(w->diag, -E2BIG,
				"%zu services have this type: select fewer than %d",
				w->out.instances.n, MAX_INSTANCES);
	return r;
}

/* ---- values ---- */

static double *cell(struct growing *w, u32 instance, u32 site)
{
	u64 key = (u64)instance << 32 | site;
	const u64 *at = map_get(&w->cells, key);
	struct query_cell e = {instance, site, NULL};

	if (at)
		return w->out.cells.data[*at].values;
	e.values = calloc(w->out.n_buckets, sizeof(*e.values));
	if (!e.values || map_put(&w->cells, key, w->out.cells.n) < 0 ||
	    vec_push(&w->out.cells, e) < 0) {
		free(e.values);
		return NULL;
	}
	return e.values;
}

/*
 * The rows of one series and bucket, which add up `states` states; `of` of them are in the bucket:
 * a process that began or ended in it has a part of its value.
 */
static int take_series(struct growing *w, const struct store_row *rows, size_t n, u64 states,
		       u64 of)
{
	u64 b = (rows->time_ms - w->out.from_ms) / w->out.step_ms;
	const u64 *instance = map_get(&w->instances, rows->series);
	struct query_instance *e;

	if (!instance || rows->time_ms < w->out.from_ms || b >= w->out.n_buckets)
		return 0;
	e = &w->out.instances.data[*instance];
	e->reported[b] =
		MAX(e->reported[b], (u8)(states < of || e->is_young ? QUERY_IN_PART : QUERY_WHOLE));
	for (size_t i = 0; i < n; i++) {
		const u64 *at = map_get(&w->by_id, rows[i].stack);
		u32 site = at ? w->stacks.data[*at].site : PROFILE_NONE;
		double value = (double)rows[i].value / (double)of, *values;

		if (site == PROFILE_NONE)
			continue;
		values = cell(w, (u32)*instance, site);
		if (!values)
			return -ENOMEM;
		values[b] += value;
		w->out.totals[b] += value;
	}
	return 0;
}

/* Notes how many states each group has in the bucket that begins at row `i`. */
static int count_states(struct growing *w, const struct store_rows *rows, size_t i)
{
	u64 time_ms = rows->rows.data[i].time_ms, states;
	int r = 0;

	map_clear(&w->states);
	for (size_t end; i < rows->rows.n && rows->rows.data[i].time_ms == time_ms && r == 0;
	     i = end) {
		const u64 *group = map_get(&w->groups, rows->rows.data[i].series), *most;

		end = plan_states(rows, i, &states);
		most = group ? map_get(&w->states, *group) : NULL;
		if (group && (!most || states > *most))
			r = map_put(&w->states, *group, states);
	}
	return r;
}

static int take_rows(struct growing *w, const struct store_rows *rows)
{
	u64 states = 1;
	int r = 0;

	for (size_t i = 0, end; i < rows->rows.n && r == 0; i = end) {
		const struct store_row *row = &rows->rows.data[i];
		const u64 *group = map_get(&w->groups, row->series), *most = NULL;

		if (w->out.states && w->groups.n && (!i || row[-1].time_ms != row->time_ms))
			r = count_states(w, rows, i);
		end = plan_states(rows, i, &states);
		if (!w->out.states)
			states = 1;
		if (group && w->out.states)
			most = map_get(&w->states, *group);
		if (r == 0)
			r = take_series(w, row, end - i, states, most ? *most : states);
	}
	return r;
}

static int scan_buckets(struct growing *w)
{
	struct store_filter f = w->f;
	u64 n = MAX(60000 / w->out.step_ms, 1ULL);
	int r = 0;

	for (u32 b = 0; b < w->out.n_buckets && r == 0;) {
		_cleanup_store_rows_ struct store_rows rows = {};

		n = MIN(n, (u64)w->out.n_buckets - b);
		f.from_ms = w->out.from_ms + b * w->out.step_ms;
		f.to_ms = f.from_ms + n * w->out.step_ms;
		r = quota_check(w->diag);
		if (r == 0)
			r = store_scan(w->store, &f,
				       STORE_BY_TIME | STORE_BY_SERIES | STORE_BY_STACK,
				       w->out.step_ms, &rows, w->diag);
		if (r == 0)
			r = take_rows(w, &rows);
		w->out.damaged |= rows.damaged;
		b += (u32)n;
		if (rows.rows.n < FEW_ROWS)
			n *= 2;
		else if (rows.rows.n > MANY_ROWS)
			n = MAX(n / 2, 1ULL);
	}
	return r;
}

/* ---- who was there ---- */

static int see_series(struct growing *w, const struct plan *plan, struct map *ret)
{
	int r = 0;

	for (size_t i = 0; i < plan->series.n && r == 0; i++) {
		_cleanup_str_ struct str key = {};
		u32 id;

		instance_key(plan, &plan->series.data[i], w->n_labels, &key);
		r = key.failed ? -ENOMEM : 0;
		if (r == 0 && strtab_find(&w->names, key.data, key.n, &id))
			r = map_put(ret, plan->series.data[i].id, id - 1);
	}
	return r;
}

/*
 * A process that frees all that it allocates has no value of unfreed_space, nor has one of which no
 * leak was drawn; that it was there, alloc_space tells. Else a leak of which little is drawn would
 * seem to have begun and ended with its first and last sample.
 */
static int see_allocating(struct growing *w)
{
	_cleanup_store_rows_ struct store_rows rows = {};
	struct query q = *w->q;
	struct store_filter f;
	struct map seen = {};
	struct plan plan;
	int r;

	if (strcmp(w->plan.type, UNFREED_TYPE) != 0)
		return 0;
	q.type = (char *)ALLOCATED_TYPE; /* borrowed */
	q.strict = false;
	r = plan_init(&plan, w->store, &q, PLAN_ONE_TYPE | PLAN_SERIES, w->diag);
	f = plan_filter(&plan, &q);
	if (r == 0)
		r = see_series(w, &plan, &seen);
	if (r == 0)
		r = store_scan(w->store, &f, STORE_BY_TIME | STORE_BY_SERIES, w->out.step_ms, &rows,
			       w->diag);
	w->out.damaged |= rows.damaged;
	for (size_t i = 0; i < rows.rows.n && r == 0; i++) {
		const struct store_row *row = &rows.rows.data[i];
		u64 b = (row->time_ms - w->out.from_ms) / w->out.step_ms;
		const u64 *at = map_get(&seen, row->series);
		struct query_instance *e = at ? &w->out.instances.data[*at] : NULL;

		if (e && row->time_ms >= w->out.from_ms && b < w->out.n_buckets)
			e->reported[b] = MAX(e->reported[b],
					     (u8)(e->is_young ? QUERY_IN_PART : QUERY_WHOLE));
	}
	map_deinit(&seen);
	plan_deinit(&plan);
	return r;
}

/* The most buckets from one report to the next. */
static u32 usual_gap(const struct query_instance *e)
{
	u32 gap = 1, last = e->begin;

	for (u32 b = e->begin; b < e->end; b++)
		if (e->reported[b]) {
			gap = MAX(gap, b - last);
			last = b;
		}
	return gap;
}

/* Those that are there all the time do not all report in the same bucket, nor in each. */
static void find_ends(struct query_growth *g, bool are_told_apart)
{
	u32 first = g->n_buckets, young = are_told_apart ? (u32)(2 * YOUNG_MS / g->step_ms) + 1 : 0;

	vec_foreach (&g->instances, e) {
		e->begin = g->n_buckets;
		for (u32 b = g->n_buckets; b-- > 0;)
			if (e->reported[b]) {
				e->end = MAX(e->end, b + 1);
				e->begin = b;
			}
		first = MIN(first, e->begin);
	}
	vec_foreach (&g->instances, e) {
		u32 gap = usual_gap(e);

		e->is_new = e->begin > first + gap + young;
		e->has_ended = e->end + gap <= g->n_buckets;
	}
}

static int set_buckets(struct growing *w)
{
	struct query_growth *g = &w->out;
	u64 n = (w->f.to_ms - w->f.from_ms) / g->step_ms;

	if (!n || n > QUERY_GROWTH_BUCKETS)
		return diag_set(w->diag, -EINVAL,
				"the range must be between one and %d steps of %llu ms long",
				QUERY_GROWTH_BUCKETS, (unsigned long long)g->step_ms);
	g->n_buckets = (u32)n;
	g->totals = calloc(n, sizeof(*g->totals));
	return g->totals ? 0 : -ENOMEM;
}

static int fill(struct growing *w)
{
	size_t n;
	int r = strtab_init(&w->names);

	w->f = plan_filter(&w->plan, w->q);
	w->out.from_ms = w->q->from_ms;
	w->out.states = store_type_is_state(w->plan.type);
	snprintf(w->out.type, sizeof(w->out.type), "%s", w->plan.type);
	if (r == 0)
		r = set_buckets(w);
	free(w->out.totals);
	w->out.totals = NULL;
	if (r == 0)
		r = make_sites(w);
	if (r == 0 && w->q->strict && !w->stacks.n)
		r = query_check_type(w->store, w->q, w->diag);
	/* Buckets may be longer now. */
	if (r == 0)
		r = set_buckets(w);
	if (r == 0)
		r = make_instances(w);
	if (r == 0)
		r = find_gains(w);
	n = MAX_CELLS / MAX(w->out.instances.n, 1UL);
	if (r == 0)
		r = leave_out(w, MIN(MAX(n, (size_t)MIN_SITES), (size_t)MAX_SITES));
	if (r == 0)
		r = scan_buckets(w);
	if (r == 0)
		r = see_allocating(w);
	find_ends(&w->out, w->groups.n);
	w->out.damaged |= w->plan.set.damaged;
	w->out.limited = plan_limited(&w->plan);
	if (r == 0)
		w->out.limited |= query_limited(w->out.profile);
	return r;
}

int query_growth(struct store *s, const struct query *q, u64 step_ms, struct query_growth *ret,
		 struct diag *reterr_diag)
{
	__attribute__((cleanup(growing_deinit))) struct growing w = {
		.store = s, .q = q, .diag = reterr_diag, .out = {.step_ms = step_ms}};
	int r = step_ms ? 0 : -EINVAL;

	if (r == 0)
		r = plan_init(&w.plan, s, q, PLAN_ONE_TYPE | PLAN_SERIES, reterr_diag);
	if (r == 0)
		r = fill(&w);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot answer: %s", strerror(-r));
	*ret = w.out;
	w.out = (struct query_growth){};
	return 0;
}
