/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces as trees: which span a sample belongs to, and which request of which service that was.
 *
 * A request is a service's entry (SPAN_ROOT) with all spans of the service below it. A sample of a
 * span that the store does not have (not sent yet, thinned out, of an agent that says only the
 * trace) is of the trace's request to that service, when there is only one.
 */
#pragma once

#include "base/map.h"
#include "server/store/store.h"

/* More are not looked at in one question: of more a share is taken, by trace id. */
#define QUERY_MAX_TRACES 20000u

struct trace_ids {
	u8 (*ids)[16]; /* owned; sorted, each once */
	size_t n;
};
void trace_ids_deinit(struct trace_ids *t);
#define _cleanup_trace_ids_ __attribute__((cleanup(trace_ids_deinit)))
int trace_ids_of_spans(const struct spans *s, struct trace_ids *ret);
int trace_ids_of_links(const struct store_links *l, struct trace_ids *ret);
/* Leaves a share of at most `max`: how many bits of store_has_share(), of which it had some. */
u32 trace_ids_sample(struct trace_ids *t, size_t max, u32 bits);

struct trace_set {
	struct spans spans; /* by trace and start */
	u32 *request_of;    /* owned; by span: its request's entry, or PROFILE_NONE */
	struct map by_id;   /* hash of trace and span id → position */
};

/* All spans of the traces; ids sorted. service: only its own, NULL = of all. */
int trace_set_load(struct store *s, const u8 (*ids)[16], size_t n, const char *service,
		   struct trace_set *ret, struct diag *reterr_diag);
void trace_set_deinit(struct trace_set *t);
#define _cleanup_trace_set_ __attribute__((cleanup(trace_set_deinit)))
/* Positions, or PROFILE_NONE. */
u32 trace_set_span(const struct trace_set *t, const u8 trace_id[16], const u8 span_id[8]);
u32 trace_set_request(const struct trace_set *t, const struct profile_link *l, const char *service);
u32 trace_set_parent(const struct trace_set *t, u32 span);
/* Whether a span is the other or below it. */
bool trace_set_is_below(const struct trace_set *t, u32 span, u32 other);
