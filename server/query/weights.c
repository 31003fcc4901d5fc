/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a range a process was there. Each series of states has the mean of its own reports;
 * of a process that was replaced that is the mean of a part of the range, and the sum over all
 * processes of a service would be what they never had at one time. An agent reports all processes
 * together, so a series counts with the share of the reports of its service on its host that have
 * it. Only series with the label process.pid have a weight: of other senders nobody knows which
 * reports belong together.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/query/plan.h"
#include "server/query/query.h"

#define SLOTS 200
#define ONE 1048576.0

/* The labels by which series of one service and host differ, of the same report. */
static bool is_of_process(const char *name)
{
	return !strcmp(name, PLAN_PID) || !strcmp(name, "memory");
}

u64 plan_group(const struct plan *p, const struct store_found_series *s, bool *has_pid)
{
	const struct profile *set = p->set.profile;
	const struct profile_resource *r = &set->resources.data[s->resource];
	u64 key = 1;

	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &set->labels.data[r->first + i];

		if (is_of_process(profile_string(set, l->name)))
			*has_pid |= !strcmp(profile_string(set, l->name), PLAN_PID);
		else
			key = hash_u64(key ^ ((u64)l->name << 32 | l->value));
	}
	return key >> 1;
}

struct group {
	u64 slots, last_ms;
};

struct weighing {
	struct map groups;  /* series id → index */
	struct map indexes; /* plan_group() → index */
	vec(struct group) list;
	struct map slots; /* series id → number of slots */
};

static void weighing_deinit(struct weighing *w)
{
	map_deinit(&w->groups);
	map_deinit(&w->indexes);
	map_deinit(&w->slots);
	vec_deinit(&w->list);
}

static int make_groups(struct weighing *w, const struct plan *p, bool *ret_any)
{
	int r = 0;

	*ret_any = false;
	for (size_t i = 0; i < p->series.n && r == 0; i++) {
		u64 key = plan_group(p, &p->series.data[i], ret_any);
		const u64 *at = map_get(&w->indexes, key);

		if (!at) {
			r = map_put(&w->indexes, key, w->list.n);
			if (r == 0)
				r = vec_push(&w->list, (struct group){});
		}
		if (r == 0)
			r = map_put(&w->groups, p->series.data[i].id, at ? *at : w->list.n - 1);
	}
	return r;
}

/* Counts the slots of time in which each series, and each group, has a report. */
static int count_slots(struct weighing *w, const struct store_rows *rows)
{
	int r = 0;

	for (size_t i = 0; i < rows->rows.n && r == 0; i++) {
		const struct store_row *row = &rows->rows.data[i];
		const u64 *at = map_get(&w->groups, row->series);
		u64 *n = map_get(&w->slots, row->series);
		struct group *g = at ? &w->list.data[*at] : NULL;

		if (!g)
			continue;
		if (!g->slots || g->last_ms != row->time_ms) {
			g->slots++;
			g->last_ms = row->time_ms;
		}
		if (n)
			(*n)++;
		else
			r = map_put(&w->slots, row->series, 1);
	}
	return r;
}

int plan_weigh(struct store *s, const struct query *q, const struct store_filter *f,
	       struct map *ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(weighing_deinit))) struct weighing w = {};
	_cleanup_store_rows_ struct store_rows rows = {};
	_cleanup_plan_ struct plan p = {};
	u64 step = MAX((f->to_ms - f->from_ms + SLOTS - 1) / SLOTS, 1ULL);
	bool any = false;
	int r = plan_init(&p, s, q, PLAN_ONE_TYPE | PLAN_SERIES, reterr_diag);

	if (r == 0)
		r = make_groups(&w, &p, &any);
	if (r < 0 || !any)
		return r;
	r = store_scan(s, f, STORE_BY_TIME | STORE_BY_SERIES, step, &rows, reterr_diag);
	if (r == 0)
		r = count_slots(&w, &rows);
	map_foreach (&w.slots, e) {
		const struct group *g = &w.list.data[*map_get(&w.groups, e->key)];

		if (r == 0)
			r = map_put(ret, e->key, (u64)((double)e->value / (double)g->slots * ONE));
	}
	return r;
}

double plan_weight(const struct map *weights, u64 series)
{
	const u64 *w = weights ? map_get(weights, series) : NULL;

	return w ? (double)*w / ONE : 1;
}
