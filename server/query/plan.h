/* SPDX-License-Identifier: Apache-2.0 */
/* The first step of every query: the series and the type that it selects. */
#pragma once

#include "server/query/query.h"
#include "server/query/stacks.h"

struct plan {
	struct store_series_set set;	       /* PLAN_SERIES: all of type and service in range */
	vec(struct store_found_series) series; /* matching series, by id, once per type */
	vec(u64) ids;			       /* ids of `series`, sorted, each once */
	struct map types;	     /* string id in `set` → struct store_type *, owned */
	char type[STORE_TYPE_BYTES]; /* "" if nothing matches */
	const char *service;	     /* borrowed from the query; NULL = several */
	bool running; /* CPU time of a sum with waits: its series have the label wait="running" */
	bool all;     /* the plan selects all series of the service, or all series */
};

/* Flags: what a plan is for. */
enum plan_for {
	PLAN_ONE_TYPE = 1, /* q->type, or the best type in the range by store_type_is_better() */
	/* `set` and `series`. Without it they are empty if selectors select all of a service. */
	PLAN_SERIES = 2,
};

/* Resolves the selectors of `q`. flags: of enum plan_for. */
int plan_init(struct plan *p, struct store *s, const struct query *q, u32 flags,
	      struct diag *reterr_diag);
/* As plan_init(), for series of any type; without matchers it looks up nothing. */
int plan_init_series(struct plan *p, struct store *s, const struct query *q,
		     struct diag *reterr_diag);
/* Whether the plan has the series of this id. */
bool plan_has_series(const struct plan *p, u64 id);
void plan_deinit(struct plan *p);
#define _cleanup_plan_ __attribute__((cleanup(plan_deinit)))
/* The filter for a scan; its ids are borrowed from the plan. */
struct store_filter plan_filter(const struct plan *p, const struct query *q);
/*
 * The value of a label by its name, also with '_' for '.'; "" if the series has no such label.
 * Borrowed from the plan.
 */
const char *plan_label(const struct plan *p, const struct store_found_series *s, const char *name);

/* Whether `asked` names the label: "service_name" matches "service.name". */
bool plan_label_is(const char *asked, const char *name);

/* ---- names that the store does not have (unknown.c); see query.strict ---- */

/* The type and the labels of the matchers, if a plan that has looked up series selects nothing. */
int plan_check_names(const struct plan *p, struct store *s, const struct query *q,
		     struct diag *reterr_diag);
/* A label whose values group the series of the plan. */
int plan_check_group(const struct plan *p, struct store *s, const char *label,
		     struct diag *reterr_diag);
int plan_check_label(struct store *s, const char *label, struct diag *reterr_diag);

/* ---- limits (limited.c): enum profile_limited ---- */

/* Of the series among which the labels of the query select or group. */
u32 plan_limited(const struct plan *p);
/* Of an answer's threads and stacks. */
u32 query_limited(const struct profile *p);

/* Whether q->stacks or q->call_site selects stacks. */
bool plan_selects_stacks(const struct query *q);
/* The predicate of both. */
int plan_predicate(const struct query *q, struct query_stacks **ret, struct diag *reterr_diag);
/* Sets ret_match[i] to whether the query selects the stack ids[i]. */
int plan_match_stacks(struct store *s, const struct query *q, const u64 *ids, size_t n,
		      u8 *ret_match, struct diag *reterr_diag);
/*
 * The ids of the filter's stacks that the query selects. If it selects all, this does nothing and
 * *ret_any is false.
 */
int plan_stacks(struct store *s, const struct query *q, const struct store_filter *f,
		struct store_ids *ret, bool *ret_any, bool *ret_damaged, struct diag *reterr_diag);

/*
 * For rows by time, series and stack of a type whose values are states (store_type_is_state()): the
 * end of the rows with the time and series of the row `first`, and how many states these rows add
 * up. That is the largest count of any stack, because a stack counts once per state. The number of
 * different times is no substitute: the store rounds old times.
 */
size_t plan_states(const struct store_rows *rows, size_t first, u64 *ret_states);
/*
 * Scans the samples of the filter one millisecond after the other, in slices of the range that have
 * a bounded number of rows.
 */
int plan_scan_slices(const struct plan *p, struct store *s, const struct store_filter *f, u32 by,
		     int (*take)(void *arg, const struct store_rows *rows), void *arg,
		     bool *damaged, struct diag *reterr_diag);
/*
 * Divides the values of such rows by the number of states that they add up, and multiplies them by
 * the weights of their series; NULL = 1.
 */
void plan_take_means(struct store_rows *rows, const struct map *weights);

/* ---- processes that were there for a part of the range (weights.c) ---- */

#define PLAN_PID "process.pid"

/*
 * A key of the labels that the series of all processes of a service on a host share; *has_pid
 * becomes true if this one is of a process.
 */
u64 plan_group(const struct plan *p, const struct store_found_series *s, bool *has_pid);
/* The share of the filter's range that each series has, for plan_weight(); empty: all of it. */
int plan_weigh(struct store *s, const struct query *q, const struct store_filter *f,
	       struct map *ret, struct diag *reterr_diag);
double plan_weight(const struct map *weights, u64 series);
