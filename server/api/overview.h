/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two halves of GET /api/v1/overview share: overview.c, and findings.c, which has the
 * rules.
 */
#pragma once

#include "base/map.h"
#include "server/api/internal.h"

/* Of one service. The name is borrowed from `lines` or `requests`. */
struct overview_service {
	const char *name;
	u64 samples, before_samples;
	s64 value, before;
	double requests, errors;
	bool named; /* not only by its executable's name */
	bool long_lived;
};

/* Of one endpoint. */
struct overview_endpoint {
	const char *service, *name; /* borrowed from `requests` */
	double requests, errors;
	u64 seen; /* requests that are stored; each stands for some */
	u64 p50_ns, p95_ns, p99_ns;
	double extra_ns; /* of all slow requests together */
};

struct overview {
	struct api_call *c;
	struct query q;
	u64 limit, deadline_ns;
	bool self; /* culprit's own samples count */
	char cpu[STORE_TYPE_BYTES], waits[STORE_TYPE_BYTES], states[2][STORE_TYPE_BYTES];
	char type[STORE_TYPE_BYTES]; /* of the services' values: CPU time, or else the first type */
	u64 first_ms;		     /* of all that is stored; 0: nothing */
	struct query_lines lines, lines_before;
	struct query_requests requests;
	vec(struct overview_service) services;
	struct map by_name; /* hash of a name → index in `services`, until these are sorted */
	vec(struct overview_endpoint) endpoints;
	s64 self_value;
	u64 self_samples;
	bool before;		/* the time before is known */
	vec(const char *) left; /* what was not looked at; static texts */
	bool damaged;
};

/* A query for values of the type, of a service if there is one; without culprit's own. */
int overview_ask(const struct overview *o, const char *type, const char *service,
		 struct query *ret);
/* Adds a matcher of a label. -ENOMEM. */
int overview_match(struct query *q, const char *label, enum query_match match, const char *value);
/* Sums over the whole range of the query. */
int overview_sums(const struct overview *o, const struct query *q, const char *const *group_by,
		  size_t n, struct query_lines *ret);
void overview_sum_line(const struct query_line *l, u64 *ret_samples, s64 *ret_value);
/* Whether there is time for a part; if not, the answer names it. */
int overview_may_begin(struct overview *o, const char *part, bool *ret);
/* A part that was too much for the server is left out; other errors end the call. */
int overview_leave_out(struct overview *o, int r, const char *part);

/* Puts the array of findings (findings.c). */
int overview_put_findings(struct overview *o);
