/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_functions(): sums per step by the function that ran, which is the leaf of the stack. The
 * heaviest functions have a line each. The last line is what the sum of all samples has beyond
 * these, so that the lines add up to query_series() whatever could not be told apart.
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
#define MAX_STACKS 200000 /* whose names are looked up */
#define SLICE_STEPS 16	  /* bounds the rows of one scan by time and stack */

struct weighed {
	u64 stack;
	s64 value;
};

/* Functions by the id of their name; id 0 is of none. */
struct functions {
	struct store *store;
	struct query q; /* of one type; borrowed */
	char *types[2];
	size_t n_types;
	vec(struct weighed) stacks; /* by id, each once */
	struct strtab names;
	struct map of_stack; /* id of a stack → id of a name */
	vec(s64) sums;	     /* by name */
	vec(u32) top;	     /* names, the heaviest first */
	vec(u64) ids;	     /* stacks of these, sorted */
	struct map lines;    /* id of a name → index of its line */
	struct query_lines out;
	struct diag *diag;
};

static void functions_deinit(struct functions *f)
{
	vec_deinit(&f->stacks);
	strtab_deinit(&f->names);
	map_deinit(&f->of_stack);
	vec_deinit(&f->sums);
	vec_deinit(&f->top);
	vec_deinit(&f->ids);
	map_deinit(&f->lines);
	query_lines_deinit(&f->out);
}

/* ---- which functions ---- */

static int compare_ids(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static int compare_stacks(const void *a, const void *b)
{
	const struct weighed *x = a, *y = b;

	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static int compare_values(const void *a, const void *b)
{
	const struct weighed *x = a, *y = b;

	if (x->value != y->value)
		return x->value > y->value ? -1 : 1;
	return compare_stacks(a, b);
}

/* Calls `take` for the rows of a scan of the stacks that the query selects, by one of the types. */
static int scan(struct functions *f, char *type, u32 by, u64 step_ms,
		int (*take)(struct functions *f, const struct store_rows *rows))
{
	_cleanup_store_rows_ struct store_rows rows = {};
	_cleanup_plan_ struct plan plan = {};
	struct store_ids stacks = {};
	struct query one = f->q;
	struct store_filter filter;
	static const u64 none[1];
	bool any = false;
	int r;

	one.type = type;
	r = plan_init(&plan, f->store, &one, PLAN_ONE_TYPE, f->diag);
	if (r < 0)
		return r;
	filter = plan_filter(&plan, &one);
	if (f->ids.n) {
		filter.stacks = f->ids.data;
		filter.n_stacks = f->ids.n;
	} else {
		r = plan_stacks(f->store, &one, &filter, &stacks, &any, &f->out.damaged, f->diag);
	}
	if (any) {
		filter.stacks = stacks.ids.data ? stacks.ids.data : none;
		filter.n_stacks = stacks.ids.n;
	}
	if (r == 0)
		r = store_scan(f->store, &filter, by, step_ms, &rows, f->diag);
	if (r == 0)
		r = take(f, &rows);
	f->out.damaged |= rows.damaged;
	vec_deinit(&stacks.ids);
	return r;
}

static int take_stacks(struct functions *f, const struct store_rows *rows)
{
	int r = 0;

	for (size_t i = 0; i < rows->rows.n && r == 0; i++)
		r = vec_push(&f->stacks,
			     (struct weighed){rows->rows.data[i].stack, rows->rows.data[i].value});
	return r;
}

/* One entry for each stack, the heaviest first, and no more than can be looked up. */
static int merge_stacks(struct functions *f)
{
	struct weighed *data = f->stacks.data;
	size_t n = 0;

	if (!f->stacks.n)
		return 0;
	qsort(data, f->stacks.n, sizeof(*data), compare_stacks);
	for (size_t i = 0; i < f->stacks.n; i++) {
		if (!n || data[n - 1].stack != data[i].stack)
			data[n++] = data[i];
		else if (__builtin_add_overflow(data[n - 1].value, data[i].value,
						&data[n - 1].value))
			return -ERANGE;
	}
	qsort(data, n, sizeof(*data), compare_values);
	f->stacks.n = MIN(n, (size_t)MAX_STACKS);
	return 0;
}

static int name_stack(struct functions *f, const struct profile *p, u32 stack,
		      const struct weighed *e, struct str *scratch)
{
	const struct profile_stack *s = &p->stacks.data[stack];
	const char *name =
		s->n ? profile_frame_name(p, p->stack_frames.data[s->first], scratch) : "[unknown]";
	u32 id = 0;
	int r = strtab_add(&f->names, name, strlen(name), &id);

	while (r == 0 && f->sums.n <= id)
		r = vec_push(&f->sums, 0);
	if (r == 0 && id)
		r = map_put(&f->of_stack, e->stack, id);
	if (r == 0 && __builtin_add_overflow(f->sums.data[id], e->value, &f->sums.data[id]))
		r = -ERANGE;
	return r;
}

static int name_stacks(struct functions *f)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_free_ u64 *ids = calloc(f->stacks.n + 1, sizeof(u64));
	_cleanup_free_ u32 *stacks = calloc(f->stacks.n + 1, sizeof(u32));
	_cleanup_str_ struct str scratch = {};
	int r = p && ids && stacks ? 0 : -ENOMEM;

	for (size_t i = 0; i < f->stacks.n && r == 0; i++)
		ids[i] = f->stacks.data[i].stack;
	if (r == 0)
		r = store_load_stacks(f->store, ids, f->stacks.n, p, stacks, f->diag);
	for (size_t i = 0; i < f->stacks.n && r == 0; i++) {
		if (i % 1000 == 0)
			r = quota_check(f->diag);
		if (r == 0 && stacks[i] != PROFILE_NONE)
			r = name_stack(f, p, stacks[i], &f->stacks.data[i], &scratch);
	}
	return r;
}

static bool is_heavier(const struct functions *f, u32 a, u32 b)
{
	s64 x = f->sums.data[a], y = f->sums.data[b];

	return x != y ? x > y : strcmp(strtab_get(&f->names, a), strtab_get(&f->names, b)) < 0;
}

/* Sorts each name into the few that are the heaviest so far. */
static int choose(struct functions *f, size_t most)
{
	int r = 0;

	for (u32 id = 1; id < f->sums.n && r == 0; id++) {
		size_t at = f->top.n;

		if (f->sums.data[id] <= 0)
			continue;
		while (at && is_heavier(f, id, f->top.data[at - 1]))
			at--;
		if (at >= most)
			continue;
		if (f->top.n < most)
			r = vec_push(&f->top, 0);
		if (r == 0) {
			memmove(&f->top.data[at + 1], &f->top.data[at],
				(f->top.n - 1 - at) * sizeof(u32));
			f->top.data[at] = id;
		}
	}
	for (size_t i = 0; i < f->top.n && r == 0; i++)
		r = map_put(&f->lines, f->top.data[i], i);
	map_foreach (&f->of_stack, e)
		if (r == 0 && map_get(&f->lines, e->value))
			r = vec_push(&f->ids, e->key);
	if (f->ids.n)
		qsort(f->ids.data, f->ids.n, sizeof(u64), compare_ids);
	return r;
}

/* ---- their sums per step ---- */

static int push_line(struct functions *f, const char *name)
{
	struct query_line l = {.labels = strdup(name)};
	int r = l.labels ? vec_push(&f->out.lines, l) : -ENOMEM;

	if (r < 0)
		free(l.labels);
	return r;
}

/* The point of a time, added at its place; most are the last. */
static struct query_point *point_at(struct query_line *l, u64 time_ms)
{
	size_t at = l->points.n;

	while (at && l->points.data[at - 1].time_ms > time_ms)
		at--;
	if (at && l->points.data[at - 1].time_ms == time_ms)
		return &l->points.data[at - 1];
	if (vec_push(&l->points, (struct query_point){}) < 0)
		return NULL;
	memmove(&l->points.data[at + 1], &l->points.data[at],
		(l->points.n - 1 - at) * sizeof(*l->points.data));
	l->points.data[at] = (struct query_point){.time_ms = time_ms};
	return &l->points.data[at];
}

static int take_points(struct functions *f, const struct store_rows *rows)
{
	for (size_t i = 0; i < rows->rows.n; i++) {
		const struct store_row *row = &rows->rows.data[i];
		u64 *name = map_get(&f->of_stack, row->stack);
		u64 *line = name ? map_get(&f->lines, *name) : NULL;
		struct query_point *p =
			line ? point_at(&f->out.lines.data[*line], row->time_ms) : NULL;

		if (line && !p)
			return -ENOMEM;
		if (!p)
			continue;
		p->count += row->count;
		if (__builtin_add_overflow(p->value, row->value, &p->value))
			return -ERANGE;
	}
	return 0;
}

static int scan_steps(struct functions *f, u64 step_ms)
{
	u64 from_ms = f->q.from_ms, to_ms = f->q.to_ms;
	int r = 0;

	vec_foreach (&f->out.lines, l)
		vec_clear(&l->points);
	for (u64 at = from_ms; at < to_ms && f->ids.n && r == 0; at += SLICE_STEPS * step_ms) {
		f->q.from_ms = at;
		f->q.to_ms = MIN(at + SLICE_STEPS * step_ms, to_ms);
		r = quota_check(f->diag);
		for (size_t i = 0; i < f->n_types && r == 0; i++)
			r = scan(f, f->types[i], STORE_BY_TIME | STORE_BY_STACK, step_ms,
				 take_points);
	}
	f->q.from_ms = from_ms;
	f->q.to_ms = to_ms;
	return r;
}

/* Appends what `whole` has beyond the lines. */
static int put_rest(struct functions *f, const struct query_lines *whole)
{
	size_t n = f->out.lines.n;
	int r = push_line(f, "");

	for (size_t i = 0; whole->lines.n && i < whole->lines.data[0].points.n && r == 0; i++) {
		struct query_point rest = whole->lines.data[0].points.data[i];

		for (size_t k = 0; k < n; k++) {
			const struct query_line *l = &f->out.lines.data[k];
			const struct query_point *p =
				l->points.n ? bsearch(&rest.time_ms, l->points.data, l->points.n,
						      sizeof(*p), compare_ids)
					    : NULL;

			rest.value -= p ? p->value : 0;
			rest.count -= p ? MIN(p->count, rest.count) : 0;
		}
		if (rest.value)
			r = vec_push(&f->out.lines.data[n].points, rest);
	}
	return r;
}

/* Samples may turn out to be coarser than the step: then all is scanned by theirs. */
static int fill(struct functions *f, const struct query *q, u64 step_ms)
{
	for (;;) {
		__attribute__((cleanup(query_lines_deinit))) struct query_lines whole = {};
		int r = scan_steps(f, step_ms);

		if (r == 0)
			r = query_series(f->store, q, step_ms, NULL, 0, &whole, f->diag);
		if (r == 0 && whole.states)
			r = diag_set(
				f->diag, -EINVAL,
				"values of this type are states, which have no sums by function");
		if (r < 0)
			return r;
		if (whole.step_ms > step_ms) {
			step_ms = whole.step_ms;
			continue;
		}
		f->out.step_ms = whole.step_ms;
		f->out.damaged |= whole.damaged;
		f->out.limited = whole.limited;
		return put_rest(f, &whole);
	}
}

int query_functions(struct store *s, const struct query *q, u64 step_ms, size_t most,
		    struct query_lines *ret, u64 *ret_others, struct diag *reterr_diag)
{
	__attribute__((cleanup(functions_deinit))) struct functions f = {
		.store = s, .q = *q, .types = {q->type, q->also}, .diag = reterr_diag};
	int r;

	if (!step_ms || q->from_ms >= q->to_ms || (q->to_ms - q->from_ms) / step_ms > MAX_POINTS)
		return diag_set(reterr_diag, -EINVAL,
				"the range must be between one and %d steps long", MAX_POINTS);
	r = strtab_init(&f.names);
	f.q.also = NULL;
	f.q.whole_time = q->also != NULL;
	f.n_types = q->also ? 2 : 1;
	for (size_t i = 0; i < f.n_types && r == 0; i++)
		r = scan(&f, f.types[i], STORE_BY_STACK, 0, take_stacks);
	if (r == 0)
		r = merge_stacks(&f);
	if (r == 0)
		r = name_stacks(&f);
	if (r == 0)
		r = choose(&f, most);
	for (size_t i = 0; i < f.top.n && r == 0; i++)
		r = push_line(&f, strtab_get(&f.names, f.top.data[i]));
	if (r == 0)
		r = fill(&f, q, step_ms);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot answer: %s", strerror(-r));
	*ret_others = f.names.n - 1 - f.top.n;
	*ret = f.out;
	f.out = (struct query_lines){};
	return 0;
}
