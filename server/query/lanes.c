/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_lanes(): first the sums of all series choose the threads, then a scan of their samples, one
 * by one, puts each wait where it was. A sample of value v and time t is a wait from t - v to t; n
 * samples of one series and millisecond are n such waits of v / n. What stands for several short
 * waits is spread over the time that it stands for, and a clock's sample over its period.
 */
#include "server/query/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/quota.h"
#include "base/str.h"
#include "server/query/plan.h"

#define MAX_COLUMNS 2000
/* How far after the range a wait may end that is shown. */
#define MIN_LATER_MS 60000ULL
#define MAX_LATER_MS 3600000ULL
#define NS_PER_MS 1000000

struct series_lane {
	size_t lane;
	enum wait wait;
};

/* One type: its series, and what they are. */
struct part {
	struct query q; /* members are borrowed */
	struct plan plan;
	struct map lanes; /* series id → index in `of` */
	vec(struct series_lane) of;
	struct store_filter f; /* its ids are borrowed from `plan` and `stacks` */
	struct store_ids stacks;
};

struct laying {
	struct store *store;
	const struct query *q;
	struct query_lanes *out;
	struct strtab keys; /* id - 1 is the index of the lane */
	struct part parts[2];
	size_t n_parts;
	u64 later_ms; /* the end of the scan */
	struct diag *diag;
};

static void lane_clear(struct query_lane *e)
{
	free(e->service);
	free(e->thread);
	free(e->id);
	free(e->process);
	free(e->until);
	for (u32 w = 0; w < WAIT_N; w++)
		free(e->columns[w]);
}

void query_lanes_deinit(struct query_lanes *l)
{
	vec_foreach (&l->lanes, e)
		lane_clear(e);
	vec_deinit(&l->lanes);
}

static void laying_deinit(struct laying *y)
{
	for (size_t i = 0; i < y->n_parts; i++) {
		plan_deinit(&y->parts[i].plan);
		map_deinit(&y->parts[i].lanes);
		vec_deinit(&y->parts[i].of);
		vec_deinit(&y->parts[i].stacks.ids);
	}
	strtab_deinit(&y->keys);
}

/* ---- which threads there are ---- */

static int add_lane(struct query_lanes *out, const char *const names[4])
{
	struct query_lane e = {.service = strdup(names[0]),
			       .thread = strdup(names[1]),
			       .id = strdup(names[2]),
			       .process = strdup(names[3])};

	if (e.service && e.thread && e.id && e.process && vec_push(&out->lanes, e) == 0)
		return 0;
	lane_clear(&e);
	return -ENOMEM;
}

/* The lane of a series, which is new if none has its names. */
static int find_lane(struct laying *y, const struct plan *plan, const struct store_found_series *s,
		     size_t *ret)
{
	const char *names[4] = {
		plan_label(plan, s, "service.name"), plan_label(plan, s, "thread.name"),
		plan_label(plan, s, "thread.id"), plan_label(plan, s, "process.pid")};
	_cleanup_str_ struct str key = {};
	size_t before = y->keys.n;
	u32 id;
	int r;

	for (size_t i = 0; i < 3; i++)
		str_append(&key, names[i], strlen(names[i]) + 1);
	if (key.failed)
		return -ENOMEM;
	r = strtab_add(&y->keys, key.data, key.n, &id);
	if (r == 0 && y->keys.n > before)
		r = add_lane(y->out, names);
	*ret = id - 1;
	return r;
}

/* What the thread does of whom this series is; a program may call something else "wait". */
static enum wait wait_of(const struct part *p, const struct store_found_series *s)
{
	const char *name = plan_label(&p->plan, s, PROFILE_WAIT);
	enum wait w = vocab_wait_by_name(name, strlen(name));

	return w ? w : WAIT_OTHER;
}

static int add_series(struct laying *y, struct part *p)
{
	int r = 0;

	for (size_t i = 0; i < p->plan.series.n && r == 0; i++) {
		const struct store_found_series *s = &p->plan.series.data[i];
		struct series_lane e = {.wait = wait_of(p, s)};

		r = find_lane(y, &p->plan, s, &e.lane);
		if (r == 0)
			r = map_put(&p->lanes, s->id, p->of.n);
		if (r == 0)
			r = vec_push(&p->of, e);
	}
	return r;
}

static int add_sums(struct laying *y, struct part *p)
{
	_cleanup_store_rows_ struct store_rows rows = {};
	int r = store_scan(y->store, &p->f, STORE_BY_SERIES, 0, &rows, y->diag);

	for (size_t i = 0; i < rows.rows.n && r == 0; i++) {
		const u64 *at = map_get(&p->lanes, rows.rows.data[i].series);
		const struct series_lane *e = at ? &p->of.data[*at] : NULL;

		if (e && __builtin_add_overflow(y->out->lanes.data[e->lane].sums[e->wait],
						rows.rows.data[i].value,
						&y->out->lanes.data[e->lane].sums[e->wait]))
			r = -ERANGE;
	}
	y->out->damaged |= rows.damaged || p->plan.set.damaged;
	y->out->limited |= plan_limited(&p->plan);
	return r;
}

static int make_filter(struct laying *y, struct part *p)
{
	static const u64 no_ids[1];
	bool any = false;
	int r;

	p->f = plan_filter(&p->plan, &p->q);
	r = plan_stacks(y->store, &p->q, &p->f, &p->stacks, &any, &y->out->damaged, y->diag);
	if (any) {
		p->f.stacks = p->stacks.ids.data ? p->stacks.ids.data : no_ids;
		p->f.n_stacks = p->stacks.ids.n;
	}
	return r;
}

static int prepare(struct laying *y, struct part *p, char *type)
{
	int r;

	p->q = *y->q;
	p->q.type = type;
	p->q.also = NULL;
	/* Time on a CPU is that of the category "running". */
	p->q.whole_time = true;
	p->q.to_ms = y->later_ms;
	/* A range without samples of one of the types is no error. */
	p->q.strict = y->q->strict && !y->q->also;
	r = plan_init(&p->plan, y->store, &p->q, PLAN_ONE_TYPE | PLAN_SERIES, y->diag);
	if (r == 0 && store_type_is_state(p->plan.type))
		return diag_set(y->diag, -EINVAL, "values of %s are no time", p->plan.type);
	if (r == 0)
		r = make_filter(y, p);
	return r == 0 ? add_series(y, p) : r;
}

static u64 name_key(const struct query_lane *e)
{
	u64 names[2] = {hash_bytes(e->service, strlen(e->service)),
			hash_bytes(e->thread, strlen(e->thread))};

	return hash_bytes(names, sizeof(names)) >> 1;
}

#define SEVERAL ~0ULL

/* A thread's first time is without its id (server/ingest/threads.c): it joins the rest. */
static int join_first_times(struct laying *y)
{
	struct map by_name = {}; /* → the only lane with this name and an id, or SEVERAL */
	int r = 0;

	for (size_t i = 0; i < y->out->lanes.n && r == 0; i++) {
		u64 key = name_key(&y->out->lanes.data[i]);

		if (*y->out->lanes.data[i].id)
			r = map_put(&by_name, key, map_get(&by_name, key) ? SEVERAL : i);
	}
	for (size_t i = 0; i < y->n_parts && r == 0; i++)
		vec_foreach (&y->parts[i].of, e) {
			const struct query_lane *lane = &y->out->lanes.data[e->lane];
			const u64 *only = *lane->id ? NULL : map_get(&by_name, name_key(lane));

			if (only && *only != SEVERAL)
				e->lane = *only;
			y->out->lanes.data[e->lane].used = true;
		}
	map_deinit(&by_name);
	return r;
}

/* ---- which of them are shown ---- */

static s64 waited(const struct query_lane *e)
{
	s64 sum = 0;

	for (u32 w = 0; w < WAIT_N; w++)
		if (w != WAIT_RUNNING && w != WAIT_IDLE)
			sum += e->sums[w];
	return sum;
}

static int compare_lanes(const void *a, const void *b)
{
	const struct query_lane *x = a, *y = b;
	s64 v = waited(x), w = waited(y);
	int r = strcmp(x->service, y->service);

	if (v != w)
		return v > w ? -1 : 1;
	if (x->sums[WAIT_RUNNING] != y->sums[WAIT_RUNNING])
		return x->sums[WAIT_RUNNING] > y->sums[WAIT_RUNNING] ? -1 : 1;
	r = r ? r : strcmp(x->thread, y->thread);
	return r ? r : strcmp(x->id, y->id);
}

static bool is_found(const struct query_lane *e, const char *text)
{
	return !text || !*text || strcasestr(e->thread, text) || strcasestr(e->service, text) ||
	       !strcmp(e->id, text) || !strcmp(e->process, text);
}

/* Marks the lanes of the answer. */
static int choose(struct laying *y, const char *find, size_t max, u8 *chosen)
{
	struct query_lanes *out = y->out;
	_cleanup_free_ const struct query_lane **order = calloc(out->lanes.n + 1, sizeof(*order));
	size_t n = 0;

	if (!order)
		return -ENOMEM;
	vec_foreach (&out->lanes, e) {
		out->n_threads += e->used;
		if (e->used && is_found(e, find))
			order[n++] = e;
	}
	out->n_found = n;
	for (size_t k = 0; k < MIN(max, n); k++) {
		/* A few of many: no need to sort the rest. */
		for (size_t i = k + 1; i < n; i++)
			if (compare_lanes(order[i], order[k]) < 0) {
				const struct query_lane *swap = order[k];

				order[k] = order[i];
				order[i] = swap;
			}
		chosen[order[k] - out->lanes.data] = 1;
	}
	return 0;
}

/* ---- their time ---- */

static int lay(struct query_lanes *out, const struct query *q, struct query_lane *e, enum wait w,
	       const struct store_row *row, u64 resolution_ms)
{
	double to = (double)((s64)row->time_ms - (s64)q->from_ms) + (double)resolution_ms;
	double each = (double)row->value / (double)MAX(row->count, 1ULL) / NS_PER_MS;
	double from = to - MAX(each, (double)resolution_ms);
	double end = (double)(out->n_columns * out->column_ms);

	if (to <= 0 || from >= end || row->value <= 0)
		return 0;
	if (!e->columns[w])
		e->columns[w] = calloc(out->n_columns, sizeof(*e->columns[w]));
	if (!e->columns[w])
		return -ENOMEM;
	for (size_t k = (size_t)(MAX(from, 0.0) / (double)out->column_ms); k < out->n_columns;
	     k++) {
		double a = MAX(from, (double)(k * out->column_ms));
		double b = MIN(to, (double)((k + 1) * out->column_ms));

		if (a >= to)
			break;
		e->columns[w][k] += (s64)((double)row->value * (b - a) / (to - from) + 0.5);
		if (to > (double)((k + 1) * out->column_ms))
			e->until[k] = MAX(e->until[k], row->time_ms + resolution_ms);
	}
	return 0;
}

struct taking {
	struct laying *y;
	struct part *part;
};

static int take_rows(void *arg, const struct store_rows *rows)
{
	struct taking *t = arg;
	struct query_lanes *out = t->y->out;
	int r = 0;

	for (size_t i = 0; i < rows->rows.n && r == 0; i++) {
		const struct store_row *row = &rows->rows.data[i];
		const u64 *at = map_get(&t->part->lanes, row->series);
		const struct series_lane *e = at ? &t->part->of.data[*at] : NULL;

		if (e && out->lanes.data[e->lane].until)
			r = lay(out, t->y->q, &out->lanes.data[e->lane], e->wait, row,
				MAX(rows->resolution_ms, 1ULL));
	}
	return r;
}

static int compare_ids(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static int scan_part(struct laying *y, struct part *p)
{
	struct store_filter f = p->f;
	_cleanup_free_ u64 *ids = calloc(p->plan.series.n + 1, sizeof(*ids));
	struct taking t = {y, p};
	size_t n = 0;

	if (!ids)
		return -ENOMEM;
	for (size_t i = 0; i < p->plan.series.n; i++)
		if (y->out->lanes.data[p->of.data[i].lane].until)
			ids[n++] = p->plan.series.data[i].id;
	if (!n)
		return 0;
	qsort(ids, n, sizeof(*ids), compare_ids);
	f.series = ids;
	f.n_series = n;
	return plan_scan_slices(&p->plan, y->store, &f, STORE_BY_TIME | STORE_BY_SERIES, take_rows,
				&t, &y->out->damaged, y->diag);
}

/* Leaves the chosen lanes, with columns to be filled. */
static int clear_others(struct query_lanes *out, const u8 *chosen)
{
	int r = 0;

	for (size_t i = 0; i < out->lanes.n && r == 0; i++) {
		struct query_lane *e = &out->lanes.data[i];

		memset(e->sums, 0, sizeof(e->sums));
		if (!chosen[i])
			continue;
		e->until = calloc(out->n_columns, sizeof(*e->until));
		r = e->until ? 0 : -ENOMEM;
	}
	return r;
}

/* Adds up the columns; a thread without any is not there. */
static void finish(struct query_lanes *out)
{
	size_t n = 0;

	for (size_t i = 0; i < out->lanes.n; i++) {
		struct query_lane *e = &out->lanes.data[i];
		bool any = false;

		for (u32 w = 0; w < WAIT_N; w++)
			for (size_t k = 0; e->columns[w] && k < out->n_columns; k++) {
				e->sums[w] += e->columns[w][k];
				any = true;
			}
		if (any) {
			struct query_lane keep = *e;

			out->lanes.data[n++] = keep;
		} else {
			lane_clear(e);
		}
	}
	out->lanes.n = n;
	if (n)
		qsort(out->lanes.data, n, sizeof(*out->lanes.data), compare_lanes);
}

static int lay_all(struct laying *y, const char *find, size_t max)
{
	_cleanup_free_ u8 *chosen = NULL;
	int r = 0;

	y->n_parts = y->q->also ? 2 : 1;
	for (size_t i = 0; i < y->n_parts && r == 0; i++)
		r = prepare(y, &y->parts[i], i ? y->q->also : y->q->type);
	if (r == 0)
		r = join_first_times(y);
	for (size_t i = 0; i < y->n_parts && r == 0; i++)
		r = add_sums(y, &y->parts[i]);
	chosen = calloc(y->out->lanes.n + 1, 1);
	if (r == 0 && !chosen)
		r = -ENOMEM;
	if (r == 0)
		r = choose(y, find, max, chosen);
	if (r == 0)
		r = clear_others(y->out, chosen);
	for (size_t i = 0; i < y->n_parts && r == 0; i++)
		r = scan_part(y, &y->parts[i]);
	if (r == 0)
		finish(y->out);
	return r;
}

int query_lanes(struct store *s, const struct query *q, u64 column_ms, const char *find, size_t max,
		struct query_lanes *ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(query_lanes_deinit))) struct query_lanes out = {.column_ms =
										       column_ms};
	__attribute__((cleanup(laying_deinit))) struct laying y = {
		.store = s, .q = q, .out = &out, .diag = reterr_diag};
	u64 length = q->to_ms > q->from_ms ? q->to_ms - q->from_ms : 0;
	int r;

	if (!column_ms || !length || (length + column_ms - 1) / column_ms > MAX_COLUMNS)
		return diag_set(reterr_diag, -EINVAL,
				"the range must be between one and %d columns long", MAX_COLUMNS);
	out.n_columns = (length + column_ms - 1) / column_ms;
	y.later_ms = q->to_ms + MIN(MAX(length, MIN_LATER_MS), MAX_LATER_MS);
	r = strtab_init(&y.keys);
	if (r == 0)
		r = lay_all(&y, find, max);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot answer: %s", strerror(-r));
	*ret = out;
	out = (struct query_lanes){};
	return 0;
}
