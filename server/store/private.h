/* SPDX-License-Identifier: Apache-2.0 */
/* What engines share beside store.h: how ids are made, and the labels of a series. */
#pragma once

#include "base/types.h"
#include "profile/profile.h"
#include "server/store/store.h"

#define STORE_SERVICE_LABEL "service.name"
#define STORE_THREAD_LABEL "thread.name"
/* The two above among them; what a resource has beyond that is left out. */
#define STORE_MAX_LABELS PROFILE_MAX_LABELS

/* What is hashed: strings by hash_bytes(). All of it is set, there is no padding. */
struct store_function_key {
	u64 name, system_name, file;
	u64 start_line;
};

struct store_frame_key {
	u64 path, build_id; /* 0 = no mapping */
	u64 address;	    /* 0 when store_frame_has_address() says no */
	u64 function;	    /* id, or 0 */
	u32 line, column;
	u32 kind, flags;
};

struct store_label {
	const char *name, *value; /* borrowed */
};

u64 store_id(const void *data, size_t n);
u64 store_function_id(const struct store_function_key *k);
u64 store_frame_id(const struct store_frame_key *k);
u64 store_stack_id(const u64 *frames, size_t n);
bool store_frame_has_address(const struct profile_frame *f);

/* Sorted by name: the resource's, with service.name and thread.name. How many. */
size_t store_series_labels(const struct profile *p, const struct store_series *s,
			   struct store_label ret[STORE_MAX_LABELS]);
u64 store_series_id(const struct store_label *labels, size_t n);

/* For store_ops.find_stacks, by scan and load_stacks. */
int store_find_stacks(struct store *s, const char *service,
		      bool (*accept)(void *userdata, const char *name), void *userdata,
		      struct store_ids *ret, struct diag *reterr_diag);

/* stacks: ids in `from`, or PROFILE_NONE, which stays; become ids in `into`. */
int store_copy_stacks(const struct profile *from, struct profile *into, u32 *stacks, size_t n);

/* By trace, span, type, series, stack and time; equal ones become one. */
void store_links_order(struct store_links *l);
/* ---- filters, after the engine has done what it can (spans.c) ---- */

/* Sorted by trace, start and span; one that is there twice is one. */
void store_spans_order(struct spans *s);
bool store_span_matches(const struct store_span_filter *f, const struct spans *s,
			const struct span *e);
bool store_has_trace(const u8 (*traces)[16], size_t n, const u8 trace_id[16]);
/* Takes out what lies from `first` on and is not accepted, with its attributes. */
void store_spans_filter(struct spans *s, size_t first, size_t first_attribute,
			const struct store_span_filter *f);
bool store_has_id(const u64 *ids, size_t n, u64 id);
/* The error of a question about spans, with its text. */
int store_spans_failed(int r, const struct diag *why, struct diag *reterr_diag);
/* Keeps the slowest `limit`, slowest first. */
int store_spans_slowest(struct spans *s, size_t limit);
/* What an engine's find_spans() gives for r and what it has found: in order, or the slowest. */
int store_spans_answer(int r, struct spans *taken, size_t limit, const struct diag *why,
		       struct spans *ret, struct diag *reterr_diag);

extern const struct store_ops store_sqlite, store_clickhouse;
