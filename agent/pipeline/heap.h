/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory profiles that language runtimes keep of their own accord, as Go does: read from the memory
 * of the processes at the end of each period, which costs these nothing.
 *
 *	live objects	at that moment
 *	allocated	since the look at the end of the period before; what was allocated before
 *			the recording is not counted, nor what a process allocated since its last
 *			look when it ends
 *
 * A runtime samples allocations; the values are scaled to what all of them come to, as pprof does.
 *
 * The pipeline's thread calls all functions.
 */
#pragma once

#include "agent/pipeline/internal.h"

/* Without a source "heap", nothing is ever read. 0 or a negative errno. */
int pipeline_heap_create(struct pipeline *p, const struct pipeline_options *o);
void pipeline_heap_destroy(struct pipeline *p);
/* `arg` is the pipeline; comes after the runtimes'. */
extern const struct procman_listener heap_listener;
/* What is allocated from now on counts. */
void heap_begin(struct pipeline *p);
/* Notes that the process passes the filters; NULL: there is none. */
void heap_see(struct pipeline *p, const struct procman_process *proc);
/* Looks at processes that may end before the period does; call it often. */
void heap_tick(struct pipeline *p);
/* The recording has stopped: what there is now will be counted. */
void heap_stop(struct pipeline *p);
/* Counts in p->batch, as of time_ns. */
void heap_count(struct pipeline *p, u64 time_ns);
void heap_get_stats(const struct pipeline *p, struct heap_stats *ret);
