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
