/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of allocations: what allocators have handed out by stack, and what of it lives.
 *
 *	samples of objects ─→ tallies of the period, by process and stack: alloc_space and
 *			      alloc_objects
 *	frees of them	   ─→ the objects that live, at the end of a period: inuse_space and
 *			      inuse_objects
 *
 * agent/alloc opens and closes the probes. A process that is probed all the time is known
 * completely: its tallies are exact but for sampling, and its live objects are those that were
 * allocated since the recording began. Of one that is probed in windows, a sample waits for the
 * report of its window, which says how far it is to be scaled; what lives is unknown and left out.
 * unfreed_space is known of both: of the objects that were allocated in the first nine tenths of a
 * window (or of the period), those that were not freed by its end.
 *
 * The pipeline's thread calls all functions.
 */
#pragma once

#include "agent/pipeline/internal.h"

/* Without a source "alloc", nothing is ever recorded. 0 or a negative errno with a diag. */
int pipeline_alloc_create(struct pipeline *p, const struct pipeline_options *o,
			  struct diag *reterr_diag);
void pipeline_alloc_destroy(struct pipeline *p);
/* `arg` is the pipeline. */
extern const struct procman_listener alloc_listener;
/* What was allocated until now does not count. */
void alloc_begin(struct pipeline *p);

/* A sample of the source, which has an object in its `object`; the stacks are in p->batch. */
void alloc_take(struct pipeline *p, const struct record_sample *s);
/* Such a sample has arrived; its stack will be known later. */
void alloc_expect(struct pipeline *p, const struct record_sample *s);
void alloc_freed(struct pipeline *p, const struct record_freed *record);
/* Handles windows that are over; call it often. */
void alloc_tick(struct pipeline *p);
/* Removes all probes. */
void alloc_stop(struct pipeline *p);
/* Counts the period that ends at time_ns in p->batch. */
void alloc_count(struct pipeline *p, u64 time_ns);
void alloc_get_stats(const struct pipeline *p, struct pipeline_alloc_stats *ret);
