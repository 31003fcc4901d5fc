/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time ledger of a request: what each thread that worked for it did, from the intervals of the
 * scheduler alone (struct record_interval), clipped to the request. Pure functions.
 *
 *	     ran          left     woken  now = ran of the next
 *	──────┴─ running ──┴─ blocked ─┴─ runnable ─┴─ running ──
 *	span: ?            known ─────────────────known         ?
 *
 * While a thread is in the kernel its span does not change. While it runs, the span is known where
 * the run begins and ends, and at each sample on the CPU. Where it changes in between, the
 * request's own begin and end tell when, for the first and the last thread that worked for it;
 * else the middle between the two moments that are known.
 *
 * What no interval accounts for, while the request went on, is state CAPTURE_UNKNOWN: a lost
 * interval, or time in which no thread had its trace.
 */
#pragma once

#include "abi/sample.h"
#include "base/types.h"
#include "base/vec.h"

#define CAPTURE_UNKNOWN WAIT_N /* a state besides enum wait */

/* A moment at which the span of a running thread is known. */
struct ledger_point {
	u64 time_ns; /* CLOCK_MONOTONIC, as all times here */
	u64 trace_id[2], span_id;
};

/* A thread that had the request's trace at some time. */
struct ledger_thread {
	u32 pid, tid;
	const struct record_interval *intervals; /* of this thread, in their order; borrowed */
	size_t n_intervals;
	const struct ledger_point *points; /* in their order; borrowed */
	size_t n_points;
	/* What it does now; NULL: not known, and nothing is known after the last interval. */
	const struct armed_thread *now;
};

static inline bool same_trace(const u64 a[2], const u64 b[2])
{
	return a[0] == b[0] && a[1] == b[1];
}

struct ledger_request {
	u64 trace_id[2], span_id;
	u64 start_ns, end_ns;
};

/* What a thread did for a span. */
struct ledger_piece {
	u64 span_id;
	u64 start_ns, end_ns;
	u32 pid, tid;
	/* enum wait: WAIT_RUNNING, WAIT_RUNNABLE, what it was blocked by; or CAPTURE_UNKNOWN */
	u32 state;
	u32 pad;
};

struct ledger {
	vec(struct ledger_piece) pieces;
};

/*
 * Appends the pieces of a request. Those of one thread do not overlap; those that are unknown,
 * which have the first thread's id, overlap none. -ENOMEM.
 */
int ledger_add(struct ledger *l, const struct ledger_request *q,
	       const struct ledger_thread *threads, size_t n);
void ledger_deinit(struct ledger *l);
