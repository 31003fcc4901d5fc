/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the numbers say, as pure functions: they read a profile's stacks and nothing else.
 *
 * Slow against fast: of the requests for one thing those above a percentile of duration are held
 * against the middle ones, per request. A function's effect is what it costs (with all that it
 * calls) in a slow request on average, less what it costs in a middle one.
 *
 * All callers of the guilty function have its effect, too, so effect alone would put main() first.
 * A function is `explained` when one that it calls has nearly all of its effect, and is rarer in
 * middle requests by at least half: what is peculiar to slow requests begins further down. Rows are
 * sorted by effect, those that are not explained first, of equals the one nearest to the root:
 * where the code path begins that only slow requests take. What that path calls comes behind it,
 * even if it is also called from elsewhere and so has a little more. Intervals are of the mean over
 * requests, normal (Welch's): they say how sure an effect is, not where it stands.
 */
#pragma once

#include "base/diag.h"
#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"
#include "profile/profile.h"

enum analyze_cohort { ANALYZE_OTHER, ANALYZE_MIDDLE, ANALYZE_SLOW };

struct analyze_request {
	u64 duration_ns;
	double weight; /* how many requests it stands for */
	enum analyze_cohort cohort;
};

struct analyze_sample {
	u32 request; /* position */
	u32 stack;   /* of the profile */
	s64 value;
};

struct analyze_shares {
	double slow;		       /* above this: 0.95 */
	double middle_from, middle_to; /* 0.25, 0.75 */
};

struct analyze_group {
	u64 requests;	    /* as they are here */
	double weight;	    /* as they were */
	u64 from_ns, to_ns; /* durations, inclusive */
	double value;	    /* mean of a request, all samples */
};

struct analyze_row {
	u32 name, object; /* string ids */
	u8 kind;
	bool explained;
	double slow, middle; /* mean of a request, with what it calls */
	double slow_self, middle_self;
	double effect, low, high; /* and its 95 % interval */
	double rank; /* what rows are sorted by: the effect, or a caller's that is a little less */
	double slow_running, middle_running; /* share of requests that have it at all */
	double depth; /* mean, from the root, over its samples in slow requests */
};

struct analyze_slow {
	struct strtab strings;
	struct analyze_group slow, middle;
	vec(struct analyze_row) rows;
};

/*
 * Sets the cohorts. -ENODATA and a diag when one has fewer than two requests: no interval can be
 * told then. Requests as long as the percentile's own are not slow, so that of equal ones none is.
 */
int analyze_cohorts(struct analyze_request *requests, size_t n, const struct analyze_shares *shares,
		    struct diag *reterr_diag);
/* samples: by request. */
int analyze_slow(const struct profile *p, const struct analyze_request *requests, size_t n_requests,
		 const struct analyze_sample *samples, size_t n_samples, struct analyze_slow *ret);
void analyze_slow_deinit(struct analyze_slow *s);
/* Student's t: the 97.5 % quantile. */
double analyze_t(double degrees);
