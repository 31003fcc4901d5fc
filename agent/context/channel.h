/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports back to processes that ask for it (Elastic's universal profiling integration, version 1).
 * Each process is told once how long it takes until samples are reported, and then which stacks
 * were sampled for which of its traces, as datagrams to a socket of the process.
 *
 * The receiver empties a queue of about eleven datagrams every 20 ms: at most ten are sent in that
 * time, and the others wait. Counts of the same trace and stack are added up while they wait. One
 * thread sends; all functions may be called by any other thread.
 */
#pragma once

#include "agent/context/context.h"

struct channels;

/*
 * Starts the sending thread. `delay_ms` is the delay that processes are told first, `host_id`
 * that of the profiles (copied). -ENOMEM, or an error of starting the thread.
 */
int channels_create(u32 delay_ms, const char *host_id, struct channels **ret);
/* Sends waiting reports for half a second more, then frees everything. */
void channels_destroy(struct channels *c);
/*
 * The process receives at this path (in its own mount namespace). Does nothing if the path is
 * unchanged and its socket is open.
 */
void channels_open(struct channels *c, u32 pid, const char *path);
/* The process has no channel any more; reports that wait are dropped. */
void channels_close(struct channels *c, u32 pid);
/* Reports are `ms` late. If this is more than processes were told, they are told again. */
void channels_late(struct channels *c, u32 ms);
/* Adds `count` samples to the reports of a process. Ignored if it has no channel. */
void channels_report(struct channels *c, u32 pid, const struct context_report *r, u64 count);
