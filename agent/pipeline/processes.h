/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pipeline does for each process: chooses the processes that are recorded, loads their
 * code in advance, and tells the other parts of those that were sampled.
 */
#pragma once

#include "agent/pipeline/internal.h"

/* Registers the listeners of all parts with procman. */
int processes_listen(struct pipeline *p);
/*
 * Whether samples of the process are recorded: with a filter by pid, the code of other processes is
 * not loaded. `arg` is the pipeline.
 */
bool processes_include(void *arg, const struct procman_process *proc);
/* Returns the process that had the pid at that time, or NULL. May read side-band events. */
struct procman_process *processes_find_at(struct pipeline *p, u32 pid, u64 time_ns);
/*
 * Opens the files that describe generated code; a process may write them after the first sample in
 * that code.
 */
void processes_hold_jit_files(struct pipeline *p, const struct procman_process *proc);
/* Reports a sampled process once per batch, image and set of mappings. proc: NULL if unknown. */
void processes_see(struct pipeline *p, u32 pid, const struct procman_process *proc);
/*
 * Takes what was learned about runtimes: attaches their processes, and reports those processes
 * again. `retry`: also attaches those that had not started. Whether there was anything to do.
 */
bool processes_take_runtimes(struct pipeline *p, bool retry);
