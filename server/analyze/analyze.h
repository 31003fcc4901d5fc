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
#include "base/str.h"
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
	double mean_ns;	    /* duration */
	double value;	    /* mean over requests, of all samples */
};

struct analyze_row {
	u32 name, object; /* string ids */
	u32 file, line;	  /* the file, 0: not known; its line with the most time in slow requests */
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

/*
 * Snapshots: stacks of a thread, taken again and again while it works on a part of a trace, its
 * segment. Two estimates of how long each call took (snapshots.c):
 *
 * analyze_skywalking() is SkyWalking's own, to the last millisecond, quirks included: the time
 * between two snapshots that follow each other belongs to the calls that both have. What a leaf
 * does between two snapshots with different leaves is its caller's, so leaves are too short, and a
 * lost snapshot costs two periods. Snapshots of several segments with one number are one.
 *
 * analyze_unbiased() gives each snapshot half of the time to its neighbours, and to the first and
 * the last the time to the ends of the segment. Times add up to those of the ranges.
 */
struct analyze_snapshot {
	u32 segment;
	u32 sequence; /* counts the segment's snapshots, also those that were lost */
	u64 time_ns;
	s64 value;    /* analyze_sum() */
	u32 first, n; /* in analyze_snapshots.frames, from the root */
};

struct analyze_snapshots {
	vec(struct analyze_snapshot) list;
	vec(u32) frames; /* equal numbers are equal frames */
};
void analyze_snapshots_deinit(struct analyze_snapshots *s);
#define _cleanup_snapshots_ __attribute__((cleanup(analyze_snapshots_deinit)))

/* Of one segment; from inclusive, to inclusive for analyze_skywalking() only. */
struct analyze_range {
	u32 segment;
	u64 from_ns, to_ns;
};
struct analyze_ranges {
	vec(struct analyze_range) list;
};

/* Stands for time of a segment in which no snapshot was taken. */
#define ANALYZE_NOT_SAMPLED (~0u)

/* A function with its callers. */
struct analyze_call {
	u32 id, parent; /* of its tree, from 1 in breadth-first order; parent 0: the tree's root */
	u32 frame;	/* or ANALYZE_NOT_SAMPLED */
	u64 count;	/* snapshots with the call */
	s64 total_ns, self_ns;
};

struct analyze_calls {
	vec(struct analyze_call) rows; /* tree by tree; the root frames are the trees' */
	u64 found;		       /* analyze_skywalking(): snapshots, lost ones included */
};
void analyze_calls_deinit(struct analyze_calls *c);
#define _cleanup_calls_ __attribute__((cleanup(analyze_calls_deinit)))

#define ANALYZE_SKYWALKING_MAX 12000 /* of SkyWalking's own configuration */

/* Takes at most `max` snapshots for a range; found > max: it has left some out. */
int analyze_skywalking(const struct analyze_snapshots *s, const struct analyze_range *ranges,
		       size_t n_ranges, u64 max, struct analyze_calls *ret);
/* What SkyWalking says when it has left some out; else nothing is appended. */
void analyze_skywalking_tip(const struct analyze_calls *c, u64 max, struct str *out);
/*
 * extents: begin and end of each segment, one each. An end of a segment that is farther from the
 * nearest snapshot than reach_ns, twice the usual gap, is ANALYZE_NOT_SAMPLED but for a quarter of
 * reach_ns, because agents begin when a request has already taken a while. ~0: the ends belong to
 * the snapshots whatever their length.
 */
int analyze_unbiased(const struct analyze_snapshots *s, const struct analyze_range *extents,
		     size_t n_extents, const struct analyze_range *ranges, size_t n_ranges,
		     u64 reach_ns, struct analyze_calls *ret);
/*
 * Adds up the values: equal stacks with equal values are not one, as they are in SkyWalking's
 * analysis of its eBPF profiles.
 */
int analyze_sum(const struct analyze_snapshots *s, struct analyze_calls *ret);
/* The median time between snapshots of one segment that follow each other; 0: there are none. */
int analyze_usual_gap(const struct analyze_snapshots *s, u64 *ret_ns);
/* Appends what is left of the range without the children, which may be in any order and overlap. */
int analyze_without(const struct analyze_range *range, const struct analyze_range *children,
		    size_t n_children, struct analyze_ranges *ret);

/*
 * Calls of several threads and requests as one tree (merge.c). Each thread of each request is
 * estimated by itself, so that times of two threads never meet; here equal paths of frames add up.
 * Columns keep apart what is compared: groups of requests, estimates.
 */
#define ANALYZE_COLUMNS 4

struct analyze_sums {
	u64 count, requests; /* requests: that have the call */
	s64 total_ns, self_ns;
	u32 last; /* request + 1 */
};

struct analyze_merged_call {
	u32 parent; /* index + 1 of the caller, which stands before; 0: none */
	u32 frame;  /* or ANALYZE_NOT_SAMPLED */
	struct analyze_sums of[ANALYZE_COLUMNS];
};

/* How long a call waited for the owner of a lock, or until somebody woke it. */
enum analyze_whom { ANALYZE_OWNER, ANALYZE_WAKER };
struct analyze_blame {
	u32 call, who; /* who: a string id of the caller's */
	u8 whom, column;
	u16 pad;
	u32 others; /* analyze_sort_blames(): how many the call has besides; in the first only */
	s64 ns;
};

struct analyze_merged {
	vec(struct analyze_merged_call) calls;
	vec(struct analyze_blame) blames;
	struct map by_frame; /* parent and frame → index in calls */
	struct map by_whom;  /* hash → index in blames */
	u64 found;	     /* the most of analyze_calls.found */
};
void analyze_merged_deinit(struct analyze_merged *m);
#define _cleanup_merged_ __attribute__((cleanup(analyze_merged_deinit)))

/* Adds the calls of one thread. All of one request and column must be added one after another. */
int analyze_merge(struct analyze_merged *m, const struct analyze_calls *c, u32 column, u32 request);
/* Adds to all calls of a stack, from the root, that analyze_merge() has added. */
int analyze_add_blame(struct analyze_merged *m, const u32 *frames, size_t n, u32 column,
		      enum analyze_whom whom, u32 who, s64 ns);
/* Keeps of each call, column and kind the one that it waited for longest, by call. */
void analyze_sort_blames(struct analyze_merged *m);

/*
 * Growth (growth.c): how fast each site of a service grows, by least squares over the means of
 * buckets of time. Slopes are sums over instances, and slopes of sites add up to that of all.
 *
 * An instance is a process, or what one series stands for. A new one grows while it warms up, and
 * one that ends takes its memory with it: neither is a leak. So each instance has a slope of its
 * own, without its first buckets, and counts as long as it is there.
 *
 * Residuals of memory depend on one another (a garbage collector's sawtooth, a step that stays), so
 * the interval is that of fewer points: n (1 - r) / (1 + r), with r the correlation of residuals
 * that follow each other.
 */
#define ANALYZE_GROWTH_POINTS 8 /* of an instance; with fewer it has no slope */

struct analyze_rate {
	double slope, low, high; /* per second, and its 95 % interval */
	double sure;		 /* the lower end of its 99.9 % interval */
	double variance, degrees;
};

/*
 * The slope of n points by least squares; times in seconds, ascending. False with fewer than
 * ANALYZE_GROWTH_POINTS.
 */
bool analyze_slope(const double *times, const double *values, size_t n, struct analyze_rate *ret);
/* The mean of n rates that follow each other, behind which are so many samples; the same. */
bool analyze_mean(const double *rates, size_t n, u64 samples, struct analyze_rate *ret);

struct analyze_instance {
	u32 begin, end;	 /* it lived in these buckets, half-open */
	u32 first;	 /* its slope begins with this bucket, after its warm-up */
	const u8 *whole; /* by bucket: it was there all the time */
};

struct analyze_cell {
	u32 instance, site;
	const double *values; /* by bucket: the mean of a state; else the sum */
};

struct analyze_growing {
	double step_s;
	u32 n_buckets, n_instances, n_sites;
	bool over_time; /* values add up: rates are means, and not slopes */
	const struct analyze_instance *instances;
	const struct analyze_cell *cells; /* by instance, of each site at most once */
	size_t n_cells;
	const u64 *samples; /* by site; if over_time */
};

struct analyze_site {
	u32 site;
	struct analyze_rate rate;
	double first, last; /* the value in the first and in the last bucket that counts */
	double grew;	    /* share of buckets in which it was more than in the one before */
	bool only_grows; /* it never fell from its maximum by more than noise, but grew by more */
	bool sure; /* only_grows, or rate.sure > 0: chance is no cause, of many sites either */
};

struct analyze_growth {
	struct analyze_site all;
	struct analyze_site *sites; /* owned; surest first: by `sure`, then by `low` */
	u32 n_sites;
	u32 used;   /* instances that have a slope */
	u32 points; /* buckets that count, of the instance with the most */
};

/* If no instance has enough points, `used` is 0 and there are no sites. -ENOMEM. */
int analyze_growth(const struct analyze_growing *g, struct analyze_growth *ret);
void analyze_growth_deinit(struct analyze_growth *g);

/*
 * The position, leaf first, of the frame of a stack that allocates by its own code (own.c): the
 * innermost that is not of the kernel, an allocator, a C or C++ library, or an interpreter. Of a
 * stack without one the innermost code, else the leaf; PROFILE_NONE of an empty stack.
 */
u32 analyze_own_frame(const struct profile *p, u32 stack);
