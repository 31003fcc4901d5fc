/* SPDX-License-Identifier: Apache-2.0 */
/* What all questions begin with: which series are meant, and which type. */
#pragma once

#include "server/query/query.h"
#include "server/query/stacks.h"

struct plan {
	struct store_series_set set;	       /* all in range, of the type and service */
	vec(struct store_found_series) series; /* those that match, by id, of one type each once */
	vec(u64) ids;			       /* theirs, sorted, each once */
	char type[STORE_TYPE_BYTES];	       /* "" when there is nothing */
	const char *service;		       /* borrowed from the query; NULL = several */
	bool all;			       /* the service (or everything) as a whole is meant */
};

/* one_type: q->type, or the type of most samples. */
int plan_init(struct plan *p, struct store *s, const struct query *q, bool one_type,
	      struct diag *reterr_diag);
/* Only which series are meant, of any type; without matchers nothing is looked up. */
int plan_init_series(struct plan *p, struct store *s, const struct query *q,
		     struct diag *reterr_diag);
bool plan_has_series(const struct plan *p, u64 id);
void plan_deinit(struct plan *p);
#define _cleanup_plan_ __attribute__((cleanup(plan_deinit)))
struct store_filter plan_filter(const struct plan *p, const struct query *q);
/* A label by its name, or by its name with '_' for '.'; "" when the series has none. */
const char *plan_label(const struct plan *p, const struct store_found_series *s, const char *name);

/* Which of the stacks the predicate accepts. */
int plan_match_stacks(struct store *s, const char *predicate, const u64 *ids, size_t n,
		      u8 *ret_match, struct diag *reterr_diag);
/*
 * The stacks of the filter that pass q->stacks, as ids; into_profile gets all of them, too. With no
 * predicate nothing is done and *ret_any is false.
 */
int plan_stacks(struct store *s, const struct query *q, const struct store_filter *f,
		struct store_ids *ret, bool *ret_any, bool *ret_damaged, struct diag *reterr_diag);
