/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces as trees: the span that a sample belongs to, and that span's request.
 *
 * A request is an entry span of a service (SPAN_ROOT) with all spans of the service below it. The
 * store may not have a sample's span: it was not sent yet, was thinned out, or the agent knows only
 * the trace. Then the sample belongs to the trace's request to the service, if there is just one.
 */
#pragma once

#include "base/map.h"
#include "server/store/store.h"

/* The most traces in one query. Of more traces the query takes a share, by trace id. */
#define QUERY_MAX_TRACES 20000u

struct trace_ids {
	u8 (*ids)[16]; /* owned; sorted, without duplicates */
	size_t n;
};
void trace_ids_deinit(struct trace_ids *t);
#define _cleanup_trace_ids_ __attribute__((cleanup(trace_ids_deinit)))
/* The distinct trace ids of spans or links. -ENOMEM. */
int trace_ids_of_spans(const struct spans *s, struct trace_ids *ret);
int trace_ids_of_links(const struct store_links *l, struct trace_ids *ret);
/*
 * Keeps a share of at most `max` traces. `bits` and the returned share are those of
 * store_has_share().
 */
u32 trace_ids_sample(struct trace_ids *t, size_t max, u32 bits);

struct trace_set {
	struct spans spans; /* by trace and start */
	u32 *request_of;    /* owned; by span: entry span of its request, or PROFILE_NONE */
	struct map by_id;   /* hash of trace and span id → index */
};

/* Appends the samples of a link to rows, with a key in place of the time. */
int link_rows_add(struct store_rows *rows, u64 key, const struct store_link *l);
/*
 * Merges such rows by key, series and stack. Of a type whose values are states, a key's values are
 * the mean of the states that were reported with it, and not their sum.
 */
void link_rows_merge(struct store_rows *rows, const char *type);

/*
 * What the samples of each link waited for (enum wait): of a type of waits by the label of their
 * series, of CPU time WAIT_RUNNING, of other types WAIT_NONE.
 */
int query_link_waits(struct store *s, const struct store_links *l, u8 *ret,
		     struct diag *reterr_diag);

/*
 * Loads the spans of the traces. ids: sorted. service: loads only this service's spans; NULL = all.
 */
int trace_set_load(struct store *s, const u8 (*ids)[16], size_t n, const char *service,
		   struct trace_set *ret, struct diag *reterr_diag);
void trace_set_deinit(struct trace_set *t);
#define _cleanup_trace_set_ __attribute__((cleanup(trace_set_deinit)))
/* Indexes in spans, or PROFILE_NONE. */
u32 trace_set_span(const struct trace_set *t, const u8 trace_id[16], const u8 span_id[8]);
u32 trace_set_request(const struct trace_set *t, const struct profile_link *l, const char *service);
u32 trace_set_parent(const struct trace_set *t, u32 span);
/* Whether a span is `other` or below it. */
bool trace_set_is_below(const struct trace_set *t, u32 span, u32 other);
