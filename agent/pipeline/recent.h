/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recent past of a recording: its events (time, value, and through their entry the stack, the
 * thread and the span) for as long as a window. A batch counts what happened in a period; the ring
 * keeps the batches whose events are still in the window, and drops the oldest as time goes on.
 * Stacks, names of runtime frames and open files belong to a batch, so they live as long as its
 * events. Belongs to the pipeline's thread.
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
/* The i-th batch, oldest first; NULL behind the last. Borrowed until the next take. */
const struct pipeline_batch *recent_batch(const struct recent *r, size_t i);
/* The window ends where the last batch does and begins here (CLOCK_MONOTONIC); 0: before all. */
u64 recent_begin_ns(const struct recent *r);
/* Adds what the batches counted, also outside of the window, to what the pipeline counts. */
void recent_add_counts(const struct recent *r, struct pipeline_stats *stats);
/* Drops all batches. */
void recent_clear(struct recent *r);
