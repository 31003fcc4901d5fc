/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries, the same for every engine of the store: this code resolves selectors to ids of series
 * and stacks, the engine scans, and the result becomes a profile or a time series.
 *
 * Labels have OpenTelemetry's names ("service.name"). In selectors in the syntax of Prometheus,
 * which has no dots in names, an underscore matches a dot, too ("service_name").
 *
 * Functions return 0 or a negative errno; reterr_diag describes the error to the user. Results are
 * owned by the caller. Any thread.
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"
#include "base/vec.h"
#include "profile/profile.h"
#include "regex/regex.h"
#include "server/query/requests.h"
#include "server/store/store.h"

enum query_match {
	QUERY_EQUAL,
	QUERY_NOT_EQUAL,
	QUERY_REGEX, /* POSIX extended, must match the whole value */
	QUERY_NOT_REGEX,
};

struct query_matcher {
	char *label, *value; /* owned */
	enum query_match match;
};

/*
 * At most 64 matchers, 4 KiB of text. `stacks` is a predicate over frames, leaf to root:
 *
 *	fn="handle"			the stack has a frame with this name
 *	fn~"json.*" under fn="handle"	... and, nearer to the root, one with the other name
 *	fn=... and not fn=... or (...)
 */
enum query_of {
	QUERY_OF_ALL,
	QUERY_OF_TRACE,
	QUERY_OF_SPAN,	   /* without its children */
	QUERY_OF_CHILDREN, /* with its children, in every service */
	QUERY_OF_REQUESTS, /* requests that the other members select */
	QUERY_OF_LISTED,   /* spans or traces in the range, without other spans below them */
};

/* Selects samples of spans. */
struct query_spans {
	enum query_of of;
	u8 trace_id[16], span_id[8];
	/* QUERY_OF_LISTED: spans with these ids, or all of these traces; borrowed */
	const u8 (*spans)[8], (*traces)[16];
	size_t n_spans, n_traces;
	char *service, *endpoint; /* owned; NULL = any */
	u64 min_ns, max_ns;
	u8 statuses;
};

/* What one series had at one time: a profile, as Pyroscope counts profiles. */
struct query_moment {
	u64 series, time_ms;
};

struct query {
	u64 from_ms, to_ms;
	char *type; /* owned; NULL = CPU time, or if there is none the type with most samples */
	/*
	 * query_profile(), query_series(), query_requests(): values of this type are added to those
	 * of `type`, and the answer is of the type "wall": time on a CPU and time of waiting.
	 * Owned; NULL = none.
	 */
	char *also;
	bool whole_time; /* the queries for the two types of a sum */
	vec(struct query_matcher) matchers;
	char *stacks; /* owned; NULL = all */
	/* Stacks must begin with frames of these names; root first, borrowed. */
	char *const *call_site;
	size_t n_call_site;
	/* query_profile(): only these; borrowed. NULL = all */
	const struct query_moment *moments;
	size_t n_moments;
	/* query_profile(): one thread per series instead of the faster one thread per service. */
	bool by_series;
	char *group_by; /* owned; query_profile(): or one thread per value of this label */
	/*
	 * -EINVAL for a type or a label that the store does not have, now or at another time, and a
	 * diag that says which there are. Else the answer is empty.
	 */
	bool strict;
	struct query_spans spans; /* query_profile() only; gives one thread per service */
};

/* Frees the members. */
void query_deinit(struct query *q);
#define _cleanup_query_ __attribute__((cleanup(query_deinit)))
/* Parses `{service_name="shop", host.name=~"web-.*"}`, with an optional type before the brace. */
int query_parse_selector(struct query *q, const char *text, struct diag *reterr_diag);

/*
 * All selected samples as one profile: a thread per service (comm: service.name, which is also the
 * label of its resource), or with q->by_series a thread per series (thread.name and resource as
 * stored), or with q->group_by a thread per value of that label. Of waits a service or a value has
 * a thread for each category, which is its attribute "wait" (profile_wait()). `max_stacks` (0 = no
 * limit) keeps the heaviest stacks. One stack with a single explanatory frame replaces the other
 * stacks and the stacks that the disk has lost, so that the total is right. The profile's time is
 * the requested range. Its quality comes from the frames of the samples; the store does not keep
 * the number of lost samples. Values of states (live memory, goroutines) are means over the range,
 * series by series, and not sums.
 */
int query_profile(struct store *s, const struct query *q, size_t max_stacks, struct profile **ret,
		  struct diag *reterr_diag);

/*
 * The filter of the requests that q->spans selects, for query_requests(). Borrowed from the query.
 */
struct store_span_filter query_span_filter(const struct query *q);

/* For an empty answer: -EINVAL if the store has no samples of q->type at any time; see strict. */
int query_check_type(struct store *s, const struct query *q, struct diag *reterr_diag);

struct query_point {
	u64 time_ms;
	u64 count;
	s64 value;
};

struct query_line {
	char *labels; /* owned; the values of group_by, each ended by a NUL */
	vec(struct query_point) points;
};

struct query_lines {
	vec(struct query_line) lines; /* by total, descending */
	u64 step_ms;		      /* as requested, or coarser if the samples are */
	bool states;		      /* values are means of states, see query_series() */
	bool damaged;
	u32 limited; /* of enum profile_limited */
};

/*
 * Sums per step. For states (live memory, goroutines) the mean of each series in the step, and the
 * sum of these means. One line per combination of the values of group_by. At most 11,000 points.
 */
int query_series(struct store *s, const struct query *q, u64 step_ms, const char *const *group_by,
		 size_t n_group_by, struct query_lines *ret, struct diag *reterr_diag);
void query_lines_deinit(struct query_lines *l);
/*
 * Sums per step by the function that ran, the leaf of the stack: a line for each of the `most`
 * heaviest functions, then one with the name "" for all others, which is the rest of the sum of
 * query_series(). ret_others: how many functions that are. -EINVAL for a type of states.
 */
int query_functions(struct store *s, const struct query *q, u64 step_ms, size_t most,
		    struct query_lines *ret, u64 *ret_others, struct diag *reterr_diag);

/* ---- deploys (deploys.c) ---- */

/*
 * When services changed their version (label service.version), by their samples: a version is new
 * in the first step in which a service has samples of it after steps with other versions only.
 * When the version came that a range begins with is not known. A version that comes back after a
 * tenth of the range is told again: a rollback.
 */
struct query_deploy {
	/* Owned; before: the version with the most samples in the service's step before. */
	char *service, *version, *before;
	u64 time_ms; /* start of the step */
};

struct query_deploys {
	vec(struct query_deploy) list; /* by time, then service and version */
	u64 step_ms;		       /* how exact times are */
	bool damaged;
};

int query_deploys(struct store *s, const struct query *q, struct query_deploys *ret,
		  struct diag *reterr_diag);
void query_deploys_deinit(struct query_deploys *d);
#define _cleanup_query_deploys_ __attribute__((cleanup(query_deploys_deinit)))

/*
 * A moment, or what the samples of a span in one series have at one time.
 * Times of older samples are rounded (store.h): moments that are rounded to one time are one.
 */
struct query_point_of {
	size_t line; /* in struct query_points */
	struct query_moment at;
	struct profile_link link;
	u64 states; /* of a type whose values are states: `value` is the mean of so many; else 1 */
	s64 value;
};

struct query_points {
	vec(char *) lines;		   /* owned; the values of group_by, each ended by a NUL */
	vec(struct query_point_of) points; /* by time */
	/* The labels of all series. */
	struct store_series_set set;
	bool states; /* values are means of states */
	bool damaged;
};

#define QUERY_MAX_POINTS (1u << 20)

/*
 * The moments in the range, or with of_spans the spans that samples were taken in. -E2BIG above
 * QUERY_MAX_POINTS.
 */
int query_points(struct store *s, const struct query *q, bool of_spans, const char *const *group_by,
		 size_t n_group_by, struct query_points *ret, struct diag *reterr_diag);
void query_points_deinit(struct query_points *p);

/* What a thread did in each part of a range: it ran, or waited for something. */
struct query_lane {
	char *service, *thread, *id, *process; /* owned; "" = unknown */
	s64 sums[WAIT_N];		       /* in the range; by enum wait */
	s64 *columns[WAIT_N];		       /* owned; NULL: nothing of it */
	u64 *until;			       /* owned; ends of waits, see query_lanes() */
	bool used;			       /* it has samples */
};

struct query_lanes {
	vec(struct query_lane) lanes; /* who waited longest first, without waits for work */
	size_t n_threads;	      /* how many there are */
	size_t n_found;		      /* and with the text in their names */
	u64 column_ms;
	size_t n_columns;
	bool damaged;
	u32 limited; /* of enum profile_limited */
};

/*
 * A lane for each thread, which is a series' service.name, thread.name and thread.id; of a sum of
 * two types, both (struct query.also). Threads of one name without ids are one lane, which is that
 * of the thread with an id if only one has the name. A wait is stored with the time at which it
 * ended: here it is where it was, so the scan goes beyond the range for waits that end later, and
 * lane.until[i] is the end of the last wait that goes on after column i, ms since the epoch; 0:
 * none. `find`: a text in a name or id of the thread or its service, NULL = any. At most `max`
 * lanes.
 */
int query_lanes(struct store *s, const struct query *q, u64 column_ms, const char *find, size_t max,
		struct query_lanes *ret, struct diag *reterr_diag);
void query_lanes_deinit(struct query_lanes *l);

/* Who allocates: the function and line of analyze_own_frame(), whatever calls it. */
struct query_site {
	u32 stack;     /* of the profile: the one that gained most in the range; PROFILE_NONE: the
			 sites that are left out */
	u32 own;       /* position of the site's frame in it, leaf first; or PROFILE_NONE */
	size_t chains; /* how many stacks it has */
	u64 samples;
};

/* Whether an instance is in the reports of a bucket. */
enum query_reported { QUERY_UNREPORTED, QUERY_IN_PART, QUERY_WHOLE };

/* A process, or what series with the same labels of a process stand for. */
struct query_instance {
	u32 begin, end; /* the first bucket with a report, and the one after the last */
	bool is_new;	/* others had reports before its first */
	bool is_young;	/* several processes, each for its first moments: it has no growth */
	bool has_ended; /* it had no report at the end of the range */
	u8 *reported;	/* owned; enum query_reported by bucket */
};

struct query_cell {
	u32 instance, site;
	double *values; /* owned; by bucket: the mean of a state, else the sum */
};

struct query_growth {
	struct profile *profile; /* owned; the stacks of sites */
	char type[STORE_TYPE_BYTES];
	u64 from_ms, step_ms;
	u32 n_buckets;
	bool states;
	vec(struct query_site) sites;
	vec(struct query_instance) instances;
	vec(struct query_cell) cells;
	double *totals;	 /* owned; by bucket */
	size_t left_out; /* sites that are one: of a service with very many */
	bool merged;	 /* instances are services of a host, or services: too many processes */
	bool damaged;
	u32 limited; /* of enum profile_limited */
};

#define QUERY_GROWTH_BUCKETS 240

/*
 * What each site has in each bucket of the range, instance by instance; whole buckets only. Buckets
 * may become longer than step_ms, if samples are rounded to more. -EINVAL for a range of less than
 * one bucket, or more than QUERY_GROWTH_BUCKETS.
 */
int query_growth(struct store *s, const struct query *q, u64 step_ms, struct query_growth *ret,
		 struct diag *reterr_diag);
void query_growth_deinit(struct query_growth *g);

/* The number of samples that the query selects; of all types if it has none. */
int query_count(struct store *s, const struct query *q, u64 *ret_samples, struct diag *reterr_diag);

/*
 * The distinct values that series have for these labels, sorted; an absent label has "". Names of
 * all labels with n = 0: then ret->names has them.
 */
struct query_sets {
	vec(char *) names; /* owned */
	vec(char *) sets;  /* owned; the values, each ended by a NUL */
};

int query_label_sets(struct store *s, const struct query *q, const char *const *names, size_t n,
		     struct query_sets *ret, struct diag *reterr_diag);
void query_sets_deinit(struct query_sets *s);

/*
 * Labels of Pyroscope that no series stores, because they are parts of the type's name
 * (__profile_type__, __name__, __type__, __unit__, __period_type__, __period_unit__) or another
 * name of service.name. All queries know them.
 */
extern const char *const query_derived_labels[];
#define QUERY_N_DERIVED_LABELS 7
#define QUERY_PRIVATE_SERVICE "__service_name__"
/* The value of one that is a part of the type; NULL for other names. */
const char *query_type_label(const struct store_type *t, const char *type, const char *name);

/* Names of labels, values or types that match the query, sorted, each with its number of series. */
struct query_name {
	char *name; /* owned */
	u64 n_series;
	u64 last_ms;
};

struct query_names {
	vec(struct query_name) names;
	u32 limited; /* of enum profile_limited */
};

int query_label_names(struct store *s, const struct query *q, struct query_names *ret,
		      struct diag *reterr_diag);
int query_label_values(struct store *s, const struct query *q, const char *label,
		       struct query_names *ret, struct diag *reterr_diag);
/* The sample types. */
int query_types(struct store *s, const struct query *q, struct query_names *ret,
		struct diag *reterr_diag);
void query_names_deinit(struct query_names *n);
