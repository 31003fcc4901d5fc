/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and the samples that were taken in them. Of more than QUERY_MAX_TRACES traces a share is
 * looked at, by trace id, and what a store thinned out is stood for by what it kept: `stands_for`
 * says how many requests one is here, so sums over requests are about all of them.
 */
#pragma once

#include "server/query/traces.h"

struct query;

struct request {
	u32 span; /* in query_requests.set */
	double stands_for;
	u64 count; /* samples in it, and their value */
	s64 value;
};

struct request_sample {
	u32 request; /* position */
	u32 pad;
	u64 stack; /* id in the store */
	u64 count;
	s64 value;
};

struct query_requests {
	struct trace_set set;
	vec(struct request) requests;	    /* by trace and start */
	vec(struct request_sample) samples; /* by request, then stack */
	char type[STORE_TYPE_BYTES];	    /* "" when there are no samples */
	bool damaged;
};

/*
 * The filter says which requests; of the query count type, matchers of series and the predicate
 * over stacks. Without a type: that of most samples.
 */
int query_requests(struct store *s, const struct query *q, const struct store_span_filter *f,
		   struct query_requests *ret, struct diag *reterr_diag);
void query_requests_deinit(struct query_requests *r);
#define _cleanup_query_requests_ __attribute__((cleanup(query_requests_deinit)))

/* Sorts them: by service, endpoint and duration; or the first n by duration, falling. Samples do
 * not belong to them any more then. */
void query_requests_by_endpoint(struct query_requests *r);
void query_requests_by_duration(struct query_requests *r, size_t n);
/* The duration in ns that `share` of the requests, sorted from `first` on, do not exceed. */
u64 query_requests_percentile(const struct query_requests *r, size_t first, size_t n, double share);

/* Of types of samples the one of most, in time rather than in numbers when both are as many. */
void query_choose_type(const struct store_links *l, char ret[STORE_TYPE_BYTES]);
