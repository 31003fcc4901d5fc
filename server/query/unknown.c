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
				       "thread.name", PROFILE_SELF};

/* The types, or the names of labels, that the store has, each once. */
struct names {
	struct store_rows types;
	struct store_series_set set;
	struct map seen; /* ids of strings */
	vec(const char *) list;
};

static void names_deinit(struct names *n)
{
	store_rows_deinit(&n->types);
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

static int load_labels(struct store *s, const struct store_filter *all, struct names *ret,
		       struct diag *reterr_diag)
{
	int r = store_find_series(s, all, &ret->set, reterr_diag);

	for (size_t i = 0; i < ret->set.series.n && r == 0; i++)
		r = add_labels(ret, ret->set.series.data[i].resource);
	return r;
}

static int load_types(struct store *s, const struct store_filter *all, struct names *ret,
		      struct diag *reterr_diag)
{
	int r = store_scan(s, all, STORE_BY_TYPE | STORE_COUNTS, 0, &ret->types, reterr_diag);

	for (size_t i = 0; i < ret->types.rows.n && r == 0; i++)
		r = vec_push(&ret->list,
			     strtab_get(&ret->types.names, ret->types.rows.data[i].type));
	return r;
}

/* 0 if the store has the name, or nothing at all. */
static int look_up(struct store *s, bool label, const char *name, struct diag *reterr_diag)
{
	__attribute__((cleanup(names_deinit))) struct names n = {};
	const char *what = label ? "label" : "type";
	_cleanup_str_ struct str there = {};
	const struct store_filter all = {.to_ms = 1ULL << 62};
	int r = label ? load_labels(s, &all, &n, reterr_diag)
		      : load_types(s, &all, &n, reterr_diag);

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

/* Whether the range has samples of the type, whatever else the query selects. */
static int has_type(struct store *s, const struct query *q, struct diag *reterr_diag)
{
	const struct store_filter f = {.from_ms = q->from_ms, .to_ms = q->to_ms, .type = q->type};
	_cleanup_store_rows_ struct store_rows rows = {};
	int r = store_scan(s, &f, STORE_BY_TYPE | STORE_COUNTS, 0, &rows, reterr_diag);

	return r < 0 ? r : rows.rows.n > 0;
}

int query_check_type(struct store *s, const struct query *q, struct diag *reterr_diag)
{
	int r = q->type ? has_type(s, q, reterr_diag) : 1;

	return r ? MIN(r, 0) : look_up(s, false, q->type, reterr_diag);
}

int plan_check_names(const struct plan *p, struct store *s, const struct query *q,
		     struct diag *reterr_diag)
{
	int r = 0;

	if (p->series.n)
		return 0;
	if (!p->set.series.n)
		r = query_check_type(s, q, reterr_diag);
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
