/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slow requests beside others, per request: a table of functions (server/analyze) and one tree with
 * both sides.
 */
#pragma once

#include "server/analyze/analyze.h"
#include "server/api/internal.h"

struct api_comparison {
	struct profile *stacks;		  /* borrowed; of all samples, gets samples of its own */
	struct analyze_request *requests; /* owned, as the next; in cohorts */
	struct analyze_sample *samples;	  /* by request */
	size_t n_requests, n_samples;
	struct analyze_slow out;   /* of analyze_slow(), before the tree is made */
	struct profile_tree *tree; /* owned */
};
void api_comparison_deinit(struct api_comparison *s);
#define _cleanup_comparison_ __attribute__((cleanup(api_comparison_deinit)))
/* Makes the tree, with the parameters of trees. */
int api_comparison_tree(struct api_call *c, struct api_comparison *s);
/* Puts the members slow, middle and rows, `limit` of these at most, and those of the tree. */
void api_comparison_put(struct json_writer *w, const struct api_comparison *s, u64 limit);

/* Slow requests to one endpoint beside typical ones (slow.c). */
struct api_slow {
	struct query q; /* owned, as the next: the caller's, of one endpoint */
	struct query_requests all;
	struct api_comparison of; /* its requests: the measured ones */
	size_t left_out;	  /* requests of which nothing is known */
	u32 *ids;		  /* owned; stacks by sample */
	const char *note;	  /* why there is no result, in the call's diag; or NULL */
};
void api_slow_deinit(struct api_slow *s);
#define _cleanup_slow_ __attribute__((cleanup(api_slow_deinit)))
/* Compares the requests of s->q; sets the other members. No tree is made. */
int api_slow_compare(struct api_call *c, const struct analyze_shares *shares, struct api_slow *s);
