/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks that wait where no thread waits with them: goroutines, virtual threads. The kernel does not
 * see such waits, so the tasks of each process are looked at once in each period, at a moment that
 * is drawn at random. A task that waits then is counted as waiting for the whole period: each
 * moment has the same chance, so the expected sums are right. If there are many tasks, some are
 * drawn, and stand for the others.
 *
 * Their samples belong to no thread (tid 0).
 */
#pragma once

#include "agent/pipeline/deferred.h"

/* Reads nothing until processes are known; without a source of waits, never. 0 or -ENOMEM. */
int pipeline_tasks_create(struct pipeline *p, const struct pipeline_options *o);
void pipeline_tasks_destroy(struct pipeline *p);
/* `arg` is the pipeline; comes after the runtimes'. */
extern const struct procman_listener tasks_listener;
/* Looks at the processes whose moment has come. */
void tasks_look(struct pipeline *p);
/* When tasks_look() has work (CLOCK_MONOTONIC). */
u64 tasks_due_ns(const struct pipeline *p);
/* Time counts from now on. */
void tasks_begin(struct pipeline *p);
/* While paused, nothing is read and no time counts. */
void tasks_pause(struct pipeline *p, bool pause);
/* Whether a finished walk is of a task of the runtime itself, such as a worker of a collector. */
bool tasks_is_own(struct pipeline *p, const struct deferred_walk *walk);

/* Notes that the process passes the filters. */
void tasks_see(struct pipeline *p, const struct procman_process *proc);
void tasks_get_stats(const struct pipeline *p, struct tasks_stats *ret);
