/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests, and the samples that were taken in them. When there are more than QUERY_MAX_TRACES
 * traces, a query takes a share of them by trace id, and a store may have thinned traces out.
 * `stands_for` says how many requests a request stands for, so weighted sums cover all of them.
 */
#pragma once

#include "server/query/traces.h"

struct query;

struct request {
	u32 span;      /* in query_requests.set */
	bool measured; /* see query_mark_measured() */
	double stands_for;
	u64 count; /* samples, and their value; of states the mean of the reports in the request */
	s64 value;
};

struct request_sample {
	u32 request; /* index in `requests` */
	u32 pad;
	u64 stack; /* id in the store */
	u64 count;
	s64 value;
};

struct query_requests {
	struct trace_set set;
	vec(struct request) requests;	    /* sorted by trace and start */
	vec(struct request_sample) samples; /* sorted by request, then stack */
	char type[STORE_TYPE_BYTES];	    /* "" if there are no samples */
	u32 bits; /* 1 / 2^bits of the traces were looked at; 0: all of them */
	bool damaged;
};

/*
 * The requests that the filter selects, with the samples that the query's type, matchers and
 * predicate over stacks select, those of query.also included. Without a type: CPU time, else the
 * type with most samples.
 */
int query_requests(struct store *s, const struct query *q, const struct store_span_filter *f,
		   struct query_requests *ret, struct diag *reterr_diag);
void query_requests_deinit(struct query_requests *r);
#define _cleanup_query_requests_ __attribute__((cleanup(query_requests_deinit)))

/*
 * Sets `measured` of each request: a measured request without samples took less than sampling sees,
 * and of any other request without samples nothing is known. Measured is a request during which its
 * service was sampled with this type on its host: at most a minute before the first or after the
 * last sample that the query selects there. A gap between these two is not seen.
 *
 * The host matters only where the service's spans and samples name hosts alike (host.name): in a
 * container, a span names the container, and a sample the machine. A request of a type whose values
 * are states is measured only if a state was reported in it.
 */
int query_mark_measured(struct store *s, const struct query *q, struct query_requests *r,
			struct diag *reterr_diag);

/*
 * Sorts the requests by service, endpoint and duration. Positions in `samples` are invalid
 * afterwards.
 */
void query_requests_by_endpoint(struct query_requests *r);
/* After that: where the requests of the endpoint of the one at `first` end. */
size_t query_requests_endpoint_end(const struct query_requests *r, size_t first);
/* The duration in ns that a share of n requests, sorted by duration, does not exceed. */
u64 query_requests_percentile(const struct query_requests *r, size_t first, size_t n, double share);

/* The best type, by store_type_is_better(); "" when there are no links. */
void query_choose_type(const struct store_links *l, char ret[STORE_TYPE_BYTES]);
