/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of resident memory: for each page that is followed, the stack whose page fault brought
 * it. At the end of a period, each process's resident memory is counted by stack, as of that
 * moment; the sums are those of /proc/PID/smaps, by kind.
 *
 *	faults of followed pages ─→ page → owner (stacks), weight
 *	mremap, fork             ─→ other pages have the owner
 *	end of a period          ─→ a look at smaps and at the page table: pages that are not
 *				    resident any more are dropped, the others are counted
 *
 * Followed are pages whose address has a small hash (abi/resident.h): all, until they are too many;
 * then half of them, and so on. So BPF tells of each fault of a page that is followed, and the
 * owner of a page is never that of an earlier fault, whatever has released the page in between:
 * munmap, madvise, a truncated file, reclaim. What of a kind is known, was there before the
 * recording, or is unknown, is counted on the followed pages; what is known is split by the weights
 * of the faults whose stacks were walked.
 *
 * Invariants:
 * 1. A page is in the map of a process only if its hash is below the limit.
 * 2. Owners refer to stacks of the ledger's own batch, which outlives those of the periods.
 * 3. What a look yields for a process adds up to Rss, exactly.
 *
 * The pipeline's thread calls all functions.
 */
#pragma once

#include "agent/pipeline/internal.h"

/* Without a source "resident", nothing is ever followed. 0 or a negative errno. */
int pipeline_resident_create(struct pipeline *p, const struct pipeline_options *o);
void pipeline_resident_destroy(struct pipeline *p);
/* `arg` is the pipeline. */
extern const struct procman_listener resident_listener;
/* What is resident now and has no known stack was there before the recording. */
void resident_begin(struct pipeline *p);

/* A sample of the source: has pages in its `object`, and the stacks are in p->batch. */
void resident_take(struct pipeline *p, const struct record_sample *s);
/* Such a sample has arrived; its stack will be known later. */
void resident_expect(struct pipeline *p, const struct record_sample *s);
/* A fault of followed pages whose stack was not walked. */
void resident_pages(struct pipeline *p, const struct record_pages *r);
void resident_moved(struct pipeline *p, const struct record_moved *r);
/* Looks at processes that may end before the period does; call it often. */
void resident_tick(struct pipeline *p);
/* The recording has stopped: what is resident now will be counted. */
void resident_stop(struct pipeline *p);
/* Counts what is resident now in p->batch, as of time_ns. */
void resident_count(struct pipeline *p, u64 time_ns);
void resident_get_stats(const struct pipeline *p, struct resident_stats *ret);
