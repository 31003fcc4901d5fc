/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Analyses as pure functions: they read a profile's stacks and nothing else.
 *
 * Slow against fast: analyze_slow() compares, per request, the requests for one thing whose
 * duration is above a percentile with the requests of the middle percentiles. A function's effect
 * is the mean cost of the function (with its callees) in a slow request, minus its mean cost in a
 * middle request.
 *
 * All callers of the guilty function have its effect, too, so effect alone would put main() first.
 * A function is `explained` if one of its callees has nearly all of its effect, and the callee is
 * rarer in middle requests by at least half: then the peculiarity of slow requests begins further
 * down. Rows are sorted by effect, unexplained functions first. Of functions with equal effects the
 * one nearest to the root is first: the code path that only slow requests take begins there. The
 * callees on that path come after it, even if a callee has a little more effect because other
 * functions call it, too. Intervals are of the mean over requests, normal (Welch's): they say how
 * certain an effect is, not where in the code it is.
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
	double weight; /* how many requests this one stands for */
	enum analyze_cohort cohort;
};

struct analyze_sample {
	u32 request; /* position */
	u32 stack;   /* of the profile */
	s64 value;
};

struct analyze_shares {
	double slow;		       /* slow requests are above this percentile: 0.95 */
	double middle_from, middle_to; /* 0.25, 0.75 */
};

struct analyze_group {
	u64 requests;	    /* requests of the cohort */
	u64 sampled;	    /* requests of the cohort that have samples */
	double weight;	    /* requests for which those of the cohort stand */
	u64 from_ns, to_ns; /* durations, inclusive */
	double value;	    /* mean over requests, of all samples */
};

struct analyze_row {
	u32 name, object; /* string ids */
	u8 kind;
	bool explained;
	double slow, middle; /* means per request, callees included */
	double slow_self, middle_self;
	double effect, low, high; /* and its 95 % interval */
	double rank; /* sort key of rows: the effect, or an explained caller's if smaller */
	double slow_running, middle_running; /* share of requests that have the function */
	double depth; /* mean, from the root, over its samples in slow requests */
};

struct analyze_slow {
	struct strtab strings;
	struct analyze_group slow, middle;
	vec(struct analyze_row) rows;
};

/*
 * Sets the cohorts. -ENODATA and a diag if a cohort has fewer than two requests: then there is no
 * interval. Requests as long as the percentile itself are not slow, so that of equal requests none
 * is.
 */
int analyze_cohorts(struct analyze_request *requests, size_t n, const struct analyze_shares *shares,
		    struct diag *reterr_diag);
/* samples: sorted by request. */
int analyze_slow(const struct profile *p, const struct analyze_request *requests, size_t n_requests,
		 const struct analyze_sample *samples, size_t n_samples, struct analyze_slow *ret);
void analyze_slow_deinit(struct analyze_slow *s);
/* The 97.5 % quantile of Student's t distribution. */
double analyze_t(double degrees);
