/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to a store, the same for every engine: which series and which stacks are resolved
 * here to ids, the engine scans, and what comes back is a profile or numbers by time.
 *
 * Labels have OpenTelemetry's names ("service.name"). Where a selector is written in the way of
 * Prometheus, which knows no dots, an underscore stands for a dot as well ("service_name").
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"
#include "base/vec.h"
#include "profile/profile.h"
#include "server/query/requests.h"
#include "server/store/store.h"

enum query_match {
	QUERY_EQUAL,
	QUERY_NOT_EQUAL,
	QUERY_REGEX, /* POSIX extended, of the whole value */
	QUERY_NOT_REGEX,
};

struct query_matcher {
	char *label, *value; /* owned */
	enum query_match match;
};

/*
 * Bounded: 64 matchers, 4 KiB of text. `stacks` is a predicate over frames, leaf to root:
 *
 *	fn="handle"			a frame of this name is in the stack
 *	fn~"json.*" under fn="handle"	... and has one of the other above it, nearer to the root
 *	fn=... and not fn=... or (...)
 */
enum query_of {
	QUERY_OF_ALL,
	QUERY_OF_TRACE,
	QUERY_OF_SPAN,	   /* without those below it */
	QUERY_OF_CHILDREN, /* with them, in every service */
	QUERY_OF_REQUESTS, /* those that the rest says */
};

/* Only samples of spans: which ones. */
struct query_spans {
	enum query_of of;
	u8 trace_id[16], span_id[8];
	char *service, *endpoint; /* owned; NULL = any */
	u64 min_ns, max_ns;
	u8 statuses;
};

struct query {
	u64 from_ms, to_ms;
	char *type; /* owned; NULL = the type of most samples */
	vec(struct query_matcher) matchers;
	char *stacks; /* owned; NULL = all */
	/* query_profile(): a thread for each series, not one for each service, which is faster. */
	bool by_series;
	char *group_by; /* owned; query_profile(): or a thread for each value of this label */
	struct query_spans spans; /* query_profile() only: then a thread for each service */
};

void query_deinit(struct query *q);
#define _cleanup_query_ __attribute__((cleanup(query_deinit)))
/* `{service_name="shop", host.name=~"web-.*"}`, with a type before the brace or not. */
int query_parse_selector(struct query *q, const char *text, struct diag *reterr_diag);

/*
 * All samples as one profile: a thread per service (comm: service.name, its resource holds that
 * label), or with q->by_series one per series (thread.name and resource as stored), or with
 * q->group_by one per value of that label, in the same way as for services. `max_stacks`
 * (0 = no limit) keeps the heaviest; what is left out is one stack of one frame that says so, never
 * nothing; so are stacks that the disk has lost. Times: the range asked for. quality: of the
 * samples behind the values, as far as their frames tell; nobody has kept how many were lost.
 */
int query_profile(struct store *s, const struct query *q, size_t max_stacks, struct profile **ret,
		  struct diag *reterr_diag);

/* The requests that q->spans means, for query_requests(). Borrowed from the query. */
struct store_span_filter query_span_filter(const struct query *q);

struct query_point {
	u64 time_ms;
	u64 count;
	s64 value;
};

struct query_line {
	char *labels; /* owned; the values of group_by, each ended by a 0 byte */
	vec(struct query_point) points;
};

struct query_lines {
	vec(struct query_line) lines; /* by total, falling */
	u64 step_ms;		      /* as asked, or coarser where samples are */
	bool damaged;
};

/* Sums by time; a line for each combination of the values of group_by. At most 11,000 points. */
int query_series(struct store *s, const struct query *q, u64 step_ms, const char *const *group_by,
		 size_t n_group_by, struct query_lines *ret, struct diag *reterr_diag);
void query_lines_deinit(struct query_lines *l);

/* What labels or values there are for the query; with how many series each has. Sorted. */
struct query_name {
	char *name; /* owned */
	u64 n_series;
	u64 last_ms;
};

struct query_names {
	vec(struct query_name) names;
};

int query_label_names(struct store *s, const struct query *q, struct query_names *ret,
		      struct diag *reterr_diag);
int query_label_values(struct store *s, const struct query *q, const char *label,
		       struct query_names *ret, struct diag *reterr_diag);
/* The types of value that there are. */
int query_types(struct store *s, const struct query *q, struct query_names *ret,
		struct diag *reterr_diag);
void query_names_deinit(struct query_names *n);
