/* SPDX-License-Identifier: Apache-2.0 */
/* query_series(): sums or means per step; with small steps and a predicate it yields a heat map. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "server/query/plan.h"
#include "server/query/query.h"

#define MAX_POINTS 11000
#define MEANS_SLICE_MS 3600000

static const u64 no_ids[1];

void query_lines_deinit(struct query_lines *l)
{
	vec_foreach (&l->lines, e) {
		free(e->labels);
		vec_deinit(&e->points);
	}
	vec_deinit(&l->lines);
}

struct grouping {
	const struct plan *plan;
	const char *const *names;
	size_t n_names;
	struct strtab keys; /* id - 1 is the index of the line */
	struct map lines;   /* series id → index of the line */
	struct query_lines out;
};

static void grouping_deinit(struct grouping *g)
{
	strtab_deinit(&g->keys);
	map_deinit(&g->lines);
	query_lines_deinit(&g->out);
}

static int add_line(struct grouping *g, const char *key, size_t n)
{
	struct query_line l = {.labels = malloc(n + 1)};

	if (!l.labels)
		return -ENOMEM;
	memcpy(l.labels, key, n);
	l.labels[n] = '\0';
	if (vec_push(&g->out.lines, l) < 0) {
		free(l.labels);
		return -ENOMEM;
	}
	return 0;
}

/* The line that a series belongs to. */
static int group_series(struct grouping *g, const struct store_found_series *s)
{
	_cleanup_str_ struct str key = {};
	size_t before = g->keys.n;
	u32 id;
	int r;

	for (size_t i = 0; i < g->n_names; i++) {
		const char *value = plan_label(g->plan, s, g->names[i]);

		str_append(&key, value, strlen(value) + 1);
	}
	/* A non-empty key: "" always has an id. */
	str_putc(&key, '.');
	if (key.failed)
		return -ENOMEM;
	r = strtab_add(&g->keys, key.data, key.n, &id);
	if (r == 0 && g->keys.n > before)
		r = add_line(g, key.data, key.n - 1);
	return r < 0 ? r : map_put(&g->lines, s->id, id - 1);
}

static int add_point(struct query_line *l, const struct store_row *row)
{
	struct query_point *last = l->points.n ? &l->points.data[l->points.n - 1] : NULL;
	struct query_point p = {.time_ms = row->time_ms, .count = row->count, .value = row->value};

	if (!last || last->time_ms != row->time_ms)
		return vec_push(&l->points, p);
	last->count += row->count;
	return __builtin_add_overflow(last->value, row->value, &last->value) ? -ERANGE : 0;
}

static int add_rows(struct grouping *g, const struct store_rows *rows)
{
	for (size_t i = 0; i < rows->rows.n; i++) {
		const struct store_row *row = &rows->rows.data[i];
		u64 *line = map_get(&g->lines, row->series);
		int r = 0;

		if (g->n_names && line)
			r = add_point(&g->out.lines.data[*line], row);
		else if (!g->n_names)
			r = add_point(&g->out.lines.data[0], row);
		if (r < 0)
			return r;
	}
	return 0;
}

static u64 total(const struct query_line *l)
{
	u64 sum = 0;

	for (size_t i = 0; i < l->points.n; i++) {
		s64 v = l->points.data[i].value;

		sum += v < 0 ? -(u64)v : (u64)v;
	}
	return sum;
}

static int compare_totals(const void *a, const void *b)
{
	u64 x = total(a), y = total(b);

	return x > y ? -1 : x < y;
}

/* Drops lines without points and sorts the others by total. */
static void order_lines(struct query_lines *l)
{
	size_t n = 0;

	vec_foreach (&l->lines, e) {
		if (e->points.n) {
			l->lines.data[n++] = *e;
		} else {
			free(e->labels);
			vec_deinit(&e->points);
		}
	}
	l->lines.n = n;
	if (n)
		qsort(l->lines.data, n, sizeof(*l->lines.data), compare_totals);
}

/* Scans again with a larger step if the samples turn out to be coarser. */
static int scan_steps(struct store *s, const struct store_filter *f, u32 by, u64 *step_ms,
		      struct store_rows *ret, struct diag *reterr_diag)
{
	int r = store_scan(s, f, by, *step_ms, ret, reterr_diag);

	if (r < 0 || ret->resolution_ms <= *step_ms)
		return r;
	*step_ms = (ret->resolution_ms + *step_ms - 1) / *step_ms * *step_ms;
	store_rows_deinit(ret);
	*ret = (struct store_rows){};
	return store_scan(s, f, by, *step_ms, ret, reterr_diag);
}

static int compare_ids(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static bool has_stack(const struct store_filter *f, u64 id)
{
	return !f->stacks || bsearch(&id, f->stacks, f->n_stacks, sizeof(id), compare_ids);
}

/* Merges the rows of each series and step into one: the mean of the stacks of the filter. */
static int take_means(struct store_rows *rows, const struct store_filter *f)
{
	struct store_row *data = rows->rows.data;
	size_t n = 0, end;
	u64 states;

	for (size_t first = 0; first < rows->rows.n; first = end) {
		struct store_row mean = data[first];
		bool any = false;

		end = plan_states(rows, first, &states);
		mean.value = 0;
		for (size_t i = first; i < end; i++) {
			if (!has_stack(f, data[i].stack))
				continue;
			any = true;
			if (__builtin_add_overflow(mean.value, data[i].value, &mean.value))
				return -ERANGE;
		}
		mean.count = states;
		mean.value /= (s64)states;
		if (any)
			data[n++] = mean;
	}
	rows->rows.n = n;
	return 0;
}

/*
 * Scans one hour or one step at a time, whichever is longer: there are many rows by stack. It scans
 * all stacks, because a stack that the filter selects may be missing in some states.
 */
static int add_means(struct grouping *g, struct store *s, const struct store_filter *f, u64 step_ms,
		     bool *damaged, struct diag *reterr_diag)
{
	u64 slice_ms = (MEANS_SLICE_MS + step_ms - 1) / step_ms * step_ms;
	struct store_filter slice = *f;
	int r = 0;

	slice.stacks = NULL;
	slice.n_stacks = 0;
	for (; slice.from_ms < f->to_ms && r == 0; slice.from_ms = slice.to_ms) {
		struct store_rows rows = {};

		slice.to_ms = MIN(slice.from_ms + slice_ms, f->to_ms);
		r = store_scan(s, &slice, STORE_BY_TIME | STORE_BY_SERIES | STORE_BY_STACK, step_ms,
			       &rows, reterr_diag);
		if (r == 0)
			r = take_means(&rows, f);
		if (r == 0)
			r = add_rows(g, &rows);
		*damaged |= rows.damaged;
		store_rows_deinit(&rows);
	}
	return r;
}

static int fill_series(struct grouping *g, struct store *s, const struct query *q, u64 step_ms,
		       struct diag *reterr_diag)
{
	struct store_filter f = plan_filter(g->plan, q);
	struct store_rows rows = {};
	struct store_ids stacks = {};
	bool any = false, damaged = false;
	int r = 0;

	for (size_t i = 0; i < g->plan->series.n && r == 0; i++)
		if (g->n_names)
			r = group_series(g, &g->plan->series.data[i]);
	if (r == 0 && !g->n_names)
		r = add_line(g, "", 0);
	if (r == 0)
		r = plan_stacks(s, q, &f, &stacks, &any, &damaged, reterr_diag);
	if (any) {
		f.stacks = stacks.ids.data ? stacks.ids.data : no_ids;
		f.n_stacks = stacks.ids.n;
	}
	if (r == 0)
		r = scan_steps(s, &f, STORE_BY_TIME | (g->n_names ? STORE_BY_SERIES : 0), &step_ms,
			       &rows, reterr_diag);
	if (r == 0 && store_type_is_state(g->plan->type))
		r = add_means(g, s, &f, step_ms, &damaged, reterr_diag);
	else if (r == 0)
		r = add_rows(g, &rows);
	g->out.step_ms = step_ms;
	g->out.states = store_type_is_state(g->plan->type);
	g->out.damaged = damaged || rows.damaged || g->plan->set.damaged;
	order_lines(&g->out);
	store_rows_deinit(&rows);
	vec_deinit(&stacks.ids);
	return r;
}

int query_series(struct store *s, const struct query *q, u64 step_ms, const char *const *group_by,
		 size_t n_group_by, struct query_lines *ret, struct diag *reterr_diag)
{
	_cleanup_plan_ struct plan plan = {};
	__attribute__((cleanup(grouping_deinit))) struct grouping g = {
		.plan = &plan, .names = group_by, .n_names = n_group_by};
	int r;

	if (!step_ms || q->from_ms >= q->to_ms || (q->to_ms - q->from_ms) / step_ms > MAX_POINTS)
		return diag_set(reterr_diag, -EINVAL,
				"the range must be between one and %d steps long", MAX_POINTS);
	r = plan_init(&plan, s, q, true, reterr_diag);
	if (r == 0)
		r = strtab_init(&g.keys);
	if (r == 0)
		r = fill_series(&g, s, q, step_ms, reterr_diag);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot answer: %s", strerror(-r));
	*ret = g.out;
	g.out = (struct query_lines){};
	return 0;
}
