/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recent past of a recording: its events (time, value, and through their entry the stack, the
 * thread and the span) for as long as a window. A batch counts what happened in a period; the ring
 * keeps the batches whose events are still in the window, and drops older ones. Stacks, names of
 * runtime frames and open files belong to a batch, so they live as long as its events. Only the
 * pipeline's thread may call these functions.
 */
#pragma once

#include "agent/pipeline/pipeline.h"

struct recent;

/*
 * Keeps what `p` (borrowed) records: all of it with a window of 0; else at least the last
 * window_ns, for which the pipeline has to keep times. -ENOMEM.
 */
int recent_create(struct pipeline *p, u64 window_ns, struct recent **ret);
void recent_destroy(struct recent *r);
/* Takes the pipeline's batch when an eighth of the window has passed, and drops old batches. */
void recent_follow(struct recent *r);
/* Takes the pipeline's batch now. -ENOMEM: nothing has changed. */
int recent_take(struct recent *r);
/* The i-th batch, oldest first; NULL after the last one. Borrowed until the next take. */
const struct pipeline_batch *recent_batch(const struct recent *r, size_t i);
/* The start of the window (CLOCK_MONOTONIC), which ends with the last batch; 0: no limit. */
u64 recent_begin_ns(const struct recent *r);
/* Adds the counters of all batches, also outside of the window, to those of the pipeline. */
void recent_add_counts(const struct recent *r, struct pipeline_stats *stats);
/* Drops all batches. */
void recent_clear(struct recent *r);
