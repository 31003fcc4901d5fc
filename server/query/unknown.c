/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of types and labels that the store does not have: an error that says which there are. An
 * empty selection is none, and what the store has at another time than that of the query is known.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/closest.h"
#include "base/map.h"
#include "server/query/plan.h"

#define NAMES_BYTES 150 /* of the diag's 256 */

/* Labels that every client may ask for: a store lacks those that no agent of it sends. */
static const char *const standard[] = {"service.name", "host.name", "process.runtime.name",
				       "thread.name"};

/* The names that all series of the store have, each once. */
struct names {
	struct store_series_set set;
	struct map seen; /* ids of strings */
	vec(const char *) list;
};

static void names_deinit(struct names *n)
{
	store_series_set_deinit(&n->set);
	map_deinit(&n->seen);
	vec_deinit(&n->list);
}

static int add_name(struct names *n, u32 string)
{
	int r;

	if (map_get(&n->seen, string))
		return 0;
	r = map_put(&n->seen, string, 1);
	return r < 0 ? r : vec_push(&n->list, profile_string(n->set.profile, string));
}

static int add_labels(struct names *n, u32 resource)
{
	const struct profile_resource *r = &n->set.profile->resources.data[resource];
	int e = 0;

	for (u32 i = 0; i < r->n && e == 0; i++)
		e = add_name(n, n->set.profile->labels.data[r->first + i].name);
	return e;
}

static int load_names(struct store *s, bool labels, struct names *ret, struct diag *reterr_diag)
{
	const struct store_filter all = {.to_ms = 1ULL << 62};
	int r = store_find_series(s, &all, &ret->set, reterr_diag);

	for (size_t i = 0; i < ret->set.series.n && r == 0; i++) {
		const struct store_found_series *e = &ret->set.series.data[i];

		r = labels ? add_labels(ret, e->resource) : add_name(ret, e->type);
	}
	return r;
}

/* 0 if the store has the name, or nothing at all. */
static int look_up(struct store *s, bool label, const char *name, struct diag *reterr_diag)
{
	__attribute__((cleanup(names_deinit))) struct names n = {};
	const char *what = label ? "label" : "type";
	_cleanup_str_ struct str there = {};
	int r = load_names(s, label, &n, reterr_diag);

	if (r < 0 || !n.list.n)
		return r;
	for (size_t i = 0; i < n.list.n; i++)
		if (label ? plan_label_is(name, n.list.data[i]) : !strcmp(name, n.list.data[i]))
			return 0;
	r = closest_append(&there, name, n.list.data, n.list.n, NAMES_BYTES);
	return r < 0 ? r
		     : diag_set(reterr_diag, -EINVAL, "the store has no %s '%.60s'; it has %s",
				what, name, str_get(&there));
}

int plan_check_label(struct store *s, const char *label, struct diag *reterr_diag)
{
	for (size_t i = 0; i < ARRAY_SIZE(standard); i++)
		if (plan_label_is(label, standard[i]))
			return 0;
	return look_up(s, true, label, reterr_diag);
}

int plan_check_names(const struct plan *p, struct store *s, const struct query *q,
		     struct diag *reterr_diag)
{
	int r = 0;

	if (p->series.n)
		return 0;
	if (q->type && !p->set.series.n)
		r = look_up(s, false, q->type, reterr_diag);
	for (size_t i = 0; i < q->matchers.n && r == 0; i++) {
		const struct query_matcher *m = &q->matchers.data[i];

		/* The others select series without the label. */
		if ((m->match == QUERY_EQUAL && *m->value) || m->match == QUERY_REGEX)
			r = plan_check_label(s, m->label, reterr_diag);
	}
	return r;
}

int plan_check_group(const struct plan *p, struct store *s, const char *label,
		     struct diag *reterr_diag)
{
	for (size_t i = 0; i < p->series.n; i++)
		if (*plan_label(p, &p->series.data[i], label))
			return 0;
	return plan_check_label(s, label, reterr_diag);
}
