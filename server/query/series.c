/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_series(): sums or means per step; with small steps and a predicate it yields a heat map.
 * query_points(): what these sums add up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/quota.h"
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

/* Lines of one total are sorted by their labels: without labels there is just one line. */
static int compare_totals(const void *a, const void *b, void *n_names)
{
	const char *p = ((const struct query_line *)a)->labels;
	const char *q = ((const struct query_line *)b)->labels;
	u64 x = total(a), y = total(b);
	int r = 0;

	if (x != y)
		return x > y ? -1 : 1;
	for (size_t i = 0; i < *(const size_t *)n_names && r == 0; i++) {
		r = strcmp(p, q);
		p += strlen(p) + 1;
		q += strlen(q) + 1;
	}
	return r;
}

/* Drops lines without points and sorts the others by total, the largest first. */
static void order_lines(struct query_lines *l, size_t n_names)
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
		qsort_r(l->lines.data, n, sizeof(*l->lines.data), compare_totals, &n_names);
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

/* Without names all series are one line. */
static int make_lines(struct grouping *g)
{
	int r = 0;

	for (size_t i = 0; i < g->plan->series.n && g->n_names && r == 0; i++)
		r = group_series(g, &g->plan->series.data[i]);
	return r == 0 && !g->n_names ? add_line(g, "", 0) : r;
}

static int fill_series(struct grouping *g, struct store *s, const struct query *q, u64 step_ms,
		       struct diag *reterr_diag)
{
	struct store_filter f = plan_filter(g->plan, q);
	struct store_rows rows = {};
	struct store_ids stacks = {};
	bool any = false, damaged = false;
	int r = make_lines(g);

	if (r == 0)
		r = plan_stacks(s, q, &f, &stacks, &any, &damaged, reterr_diag);
	if (any) {
		f.stacks = stacks.ids.data ? stacks.ids.data : no_ids;
		f.n_stacks = stacks.ids.n;
	}
	if (r == 0)
		r = scan_steps(s, &f, STORE_BY_TIME | (g->n_names ? STORE_BY_SERIES : 0), &step_ms,
			       &rows, reterr_diag);
	if (r == 0 && q->strict && !rows.rows.n)
		r = query_check_type(s, q, reterr_diag);
	if (r == 0 && store_type_is_state(g->plan->type))
		r = add_means(g, s, &f, step_ms, &damaged, reterr_diag);
	else if (r == 0)
		r = add_rows(g, &rows);
	g->out.step_ms = step_ms;
	g->out.states = store_type_is_state(g->plan->type);
	g->out.damaged = damaged || rows.damaged || g->plan->set.damaged;
	g->out.limited = plan_limited(g->plan);
	order_lines(&g->out, g->n_names);
	store_rows_deinit(&rows);
	vec_deinit(&stacks.ids);
	return r;
}

static int series_of_type(struct store *s, const struct query *q, u64 step_ms,
			  const char *const *group_by, size_t n_group_by, struct query_lines *ret,
			  struct diag *reterr_diag)
{
	_cleanup_plan_ struct plan plan = {};
	__attribute__((cleanup(grouping_deinit))) struct grouping g = {
		.plan = &plan, .names = group_by, .n_names = n_group_by};
	int r;

	if (!step_ms || q->from_ms >= q->to_ms || (q->to_ms - q->from_ms) / step_ms > MAX_POINTS)
		return diag_set(reterr_diag, -EINVAL,
				"the range must be between one and %d steps long", MAX_POINTS);
	r = plan_init(&plan, s, q, PLAN_ONE_TYPE | (n_group_by ? PLAN_SERIES : 0), reterr_diag);
	for (size_t i = 0; i < n_group_by && q->strict && r == 0; i++)
		r = plan_check_group(&plan, s, group_by[i], reterr_diag);
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

/* ---- the sum of two types ---- */

static size_t labels_length(const struct query_line *l, size_t n_group_by)
{
	size_t n = 0;

	for (size_t i = 0; i < n_group_by; i++)
		n += strlen(l->labels + n) + 1;
	return n;
}

/* Adds the points of `from`; those of both are sorted by time. */
static int add_points(struct query_line *to, const struct query_line *from)
{
	struct query_line sum = {};
	size_t i = 0, k = 0;
	int r = 0;

	while ((i < to->points.n || k < from->points.n) && r == 0) {
		bool first = k == from->points.n ||
			     (i < to->points.n &&
			      to->points.data[i].time_ms <= from->points.data[k].time_ms);
		const struct query_point *p =
			first ? &to->points.data[i++] : &from->points.data[k++];
		struct store_row row = {
			.time_ms = p->time_ms, .count = p->count, .value = p->value};

		r = add_point(&sum, &row);
	}
	vec_deinit(&to->points);
	to->points = sum.points;
	return r;
}

/* Moves the lines of `from` into `to`, where lines with the same labels become one. */
static int add_lines(struct query_lines *to, struct query_lines *from, size_t n_group_by)
{
	struct strtab keys = {};
	u32 id;
	int r = strtab_init(&keys);

	for (size_t i = 0; i < to->lines.n && r == 0; i++)
		r = strtab_add(&keys, to->lines.data[i].labels,
			       labels_length(&to->lines.data[i], n_group_by) + 1, &id);
	for (size_t i = 0; i < from->lines.n && r == 0; i++) {
		struct query_line *l = &from->lines.data[i];

		r = strtab_add(&keys, l->labels, labels_length(l, n_group_by) + 1, &id);
		if (r == 0 && id <= to->lines.n) {
			r = add_points(&to->lines.data[id - 1], l);
		} else if (r == 0) {
			r = vec_push(&to->lines, *l);
			if (r == 0)
				*l = (struct query_line){};
		}
	}
	strtab_deinit(&keys);
	to->damaged |= from->damaged;
	to->limited |= from->limited;
	if (r == 0)
		order_lines(to, n_group_by);
	return r;
}

int query_series(struct store *s, const struct query *q, u64 step_ms, const char *const *group_by,
		 size_t n_group_by, struct query_lines *ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(query_lines_deinit))) struct query_lines a = {}, b = {};
	struct query one = *q;
	int r;

	if (!q->also)
		return series_of_type(s, q, step_ms, group_by, n_group_by, ret, reterr_diag);
	one.also = NULL;
	one.whole_time = true;
	r = series_of_type(s, &one, step_ms, group_by, n_group_by, &a, reterr_diag);
	one.type = q->also;
	if (r == 0)
		r = series_of_type(s, &one, a.step_ms, group_by, n_group_by, &b, reterr_diag);
	if (r == 0 && b.step_ms > a.step_ms) {
		query_lines_deinit(&a);
		a = (struct query_lines){};
		one.type = q->type;
		r = series_of_type(s, &one, b.step_ms, group_by, n_group_by, &a, reterr_diag);
	}
	if (r == 0)
		r = add_lines(&a, &b, n_group_by);
	if (r < 0)
		return r;
	*ret = a;
	a = (struct query_lines){};
	return 0;
}

/* ---- points ---- */

/*
 * A scan by time has a row for each series and millisecond: it takes a slice of the range, of this
 * length at first, that has between these numbers of rows as far as the one before it tells.
 */
#define POINTS_SLICE_MS 300000ULL
#define POINTS_MAX_SLICE_MS 86400000ULL
#define POINTS_FEW_ROWS 20000
#define POINTS_MANY_ROWS 200000

void query_points_deinit(struct query_points *p)
{
	vec_foreach (&p->lines, e)
		free(*e);
	vec_deinit(&p->lines);
	vec_deinit(&p->points);
	store_series_set_deinit(&p->set);
	*p = (struct query_points){};
}

static int push_point(struct grouping *g, struct query_points *out, struct query_point_of *p)
{
	u64 *line = map_get(&g->lines, p->at.series);

	if (g->n_names && !line)
		return 0;
	if (out->points.n >= QUERY_MAX_POINTS)
		return -E2BIG;
	p->line = g->n_names ? *line : 0;
	return vec_push(&out->points, *p);
}

static int push_rows(struct grouping *g, const struct store_rows *rows, struct query_points *out)
{
	int r = 0;

	for (size_t i = 0; i < rows->rows.n && r == 0; i++) {
		const struct store_row *row = &rows->rows.data[i];
		struct query_point_of p = {.at = {row->series, row->time_ms},
					   .states = out->states ? row->count : 1,
					   .value = row->value};

		r = push_point(g, out, &p);
	}
	return r;
}

int plan_scan_slices(const struct plan *p, struct store *s, const struct store_filter *f, u32 by,
		     int (*take)(void *arg, const struct store_rows *rows), void *arg,
		     bool *damaged, struct diag *reterr_diag)
{
	u64 first_ms = f->to_ms, last_ms = 0, slice_ms = POINTS_SLICE_MS;
	struct store_filter slice = *f;
	int r = 0;

	for (size_t i = 0; i < p->series.n; i++) {
		first_ms = MIN(first_ms, p->series.data[i].first_ms);
		last_ms = MAX(last_ms, p->series.data[i].last_ms);
	}
	slice.from_ms = MAX(slice.from_ms, first_ms);
	for (; slice.from_ms < f->to_ms && slice.from_ms <= last_ms && r == 0;
	     slice.from_ms = slice.to_ms) {
		struct store_rows rows = {};

		slice.to_ms = MIN(slice.from_ms + slice_ms, f->to_ms);
		r = quota_check(reterr_diag);
		if (r == 0)
			r = store_scan(s, &slice, by, 1, &rows, reterr_diag);
		if (rows.rows.n < POINTS_FEW_ROWS)
			slice_ms = MIN(slice_ms * 2, POINTS_MAX_SLICE_MS);
		else if (rows.rows.n > POINTS_MANY_ROWS)
			slice_ms = MAX(slice_ms / 2, 1000ULL);
		if (r == 0)
			r = take(arg, &rows);
		*damaged |= rows.damaged;
		store_rows_deinit(&rows);
	}
	return r;
}

struct finding {
	struct grouping *g;
	const struct store_filter *f;
	struct query_points *out;
};

static int take_moments(void *arg, const struct store_rows *rows)
{
	struct finding *x = arg;
	/* Merging changes the array, which the caller frees, and its length, which is here. */
	struct store_rows merged = *rows;
	int r = x->out->states ? take_means(&merged, x->f) : 0;

	return r == 0 ? push_rows(x->g, &merged, x->out) : r;
}

static int find_moments(struct grouping *g, struct store *s, const struct store_filter *f,
			struct query_points *out, struct diag *reterr_diag)
{
	struct finding x = {g, f, out};
	struct store_filter all = *f;
	u32 by = STORE_BY_TIME | STORE_BY_SERIES;

	if (out->states) {
		by |= STORE_BY_STACK;
		all.stacks = NULL;
		all.n_stacks = 0;
	}
	return plan_scan_slices(g->plan, s, &all, by, take_moments, &x, &out->damaged, reterr_diag);
}

static int compare_points(const void *a, const void *b)
{
	const struct query_point_of *x = a, *y = b;

	if (x->at.time_ms != y->at.time_ms)
		return x->at.time_ms < y->at.time_ms ? -1 : 1;
	if (x->at.series != y->at.series)
		return x->at.series < y->at.series ? -1 : 1;
	return memcmp(&x->link, &y->link, sizeof(x->link));
}

/* Adds the values of all stacks of a span at one time. */
static int merge_points(struct query_points *out)
{
	struct query_point_of *data = out->points.data;
	size_t n = 0;

	if (out->points.n)
		qsort(data, out->points.n, sizeof(*data), compare_points);
	for (size_t i = 0; i < out->points.n; i++) {
		if (!n || compare_points(&data[n - 1], &data[i]) != 0)
			data[n++] = data[i];
		else if (__builtin_add_overflow(data[n - 1].value, data[i].value,
						&data[n - 1].value))
			return -ERANGE;
	}
	out->points.n = n;
	return 0;
}

static int find_span_points(struct grouping *g, struct store *s, const struct store_filter *f,
			    struct query_points *out, struct diag *reterr_diag)
{
	const struct store_link_filter links = {.from_ms = f->from_ms,
						.to_ms = f->to_ms,
						.type = f->type,
						.service = f->service,
						.stacks = f->stacks,
						.n_stacks = f->n_stacks};
	static const struct profile_link none;
	_cleanup_store_links_ struct store_links l = {};
	int r = store_find_links(s, &links, &l, reterr_diag);

	out->damaged |= l.damaged;
	for (size_t i = 0; i < l.links.n && r == 0; i++) {
		const struct store_link *e = &l.links.data[i];
		struct query_point_of p = {.at = {e->series, e->time_ms},
					   .link = e->link,
					   .states = 1,
					   .value = e->value};

		if (i % 1000 == 0)
			r = quota_check(reterr_diag);
		if (r == 0 && plan_has_series(g->plan, e->series) &&
		    memcmp(e->link.span_id, none.span_id, sizeof(none.span_id)) != 0)
			r = push_point(g, out, &p);
	}
	return r < 0 ? r : merge_points(out);
}

static int take_lines(struct grouping *g, struct query_points *out)
{
	int r = 0;

	vec_foreach (&g->out.lines, e) {
		if (r == 0)
			r = vec_push(&out->lines, e->labels);
		if (r == 0)
			e->labels = NULL;
	}
	return r;
}

static int fill_points(struct grouping *g, struct store *s, const struct query *q, bool of_spans,
		       struct query_points *out, struct diag *reterr_diag)
{
	struct store_filter f = plan_filter(g->plan, q);
	struct store_ids stacks = {};
	bool any = false;
	int r = make_lines(g);

	out->states = store_type_is_state(g->plan->type);
	if (r == 0)
		r = plan_stacks(s, q, &f, &stacks, &any, &out->damaged, reterr_diag);
	if (any) {
		f.stacks = stacks.ids.data ? stacks.ids.data : no_ids;
		f.n_stacks = stacks.ids.n;
	}
	if (r == 0)
		r = of_spans ? find_span_points(g, s, &f, out, reterr_diag)
			     : find_moments(g, s, &f, out, reterr_diag);
	vec_deinit(&stacks.ids);
	return r == 0 ? take_lines(g, out) : r;
}

int query_points(struct store *s, const struct query *q, bool of_spans, const char *const *group_by,
		 size_t n_group_by, struct query_points *ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(query_points_deinit))) struct query_points out = {};
	_cleanup_plan_ struct plan plan = {};
	__attribute__((cleanup(grouping_deinit))) struct grouping g = {
		.plan = &plan, .names = group_by, .n_names = n_group_by};
	int r = plan_init(&plan, s, q, PLAN_ONE_TYPE | PLAN_SERIES, reterr_diag);

	if (r == 0)
		r = strtab_init(&g.keys);
	if (r == 0)
		r = fill_points(&g, s, q, of_spans, &out, reterr_diag);
	if (r == -E2BIG)
		return diag_set(reterr_diag, r, "more than %u profiles: ask for a shorter range",
				QUERY_MAX_POINTS);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot answer: %s", strerror(-r));
	out.set = plan.set;
	plan.set = (struct store_series_set){};
	*ret = out;
	out = (struct query_points){};
	return 0;
}
