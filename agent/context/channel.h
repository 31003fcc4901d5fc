/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way back to processes that asked for it (Elastic's universal profiling integration, version
 * 1): each is told once how long samples take to be reported, and then which stacks were seen for
 * which of its traces, as datagrams to a socket of its own.
 *
 * Its receiver empties a queue of some eleven datagrams every 20 ms: no more are sent in that time,
 * and what does not go out waits. Counts of one trace and stack add up while they wait. A thread
 * sends; all functions may be called by any other.
 */
#pragma once

#include "agent/context/context.h"

struct channels;

int channels_create(u32 delay_ms, const char *host_id, struct channels **ret);
/* Gives what waits half a second more. */
void channels_destroy(struct channels *c);
/*
 * The process receives at this path, as it sees it itself; told of again, nothing happens unless
 * the path is another or nobody listened there any more.
 */
void channels_open(struct channels *c, u32 pid, const char *path);
void channels_close(struct channels *c, u32 pid);
/* Reports are as late as that: if it is more than was said, all are told. */
void channels_late(struct channels *c, u32 ms);
void channels_report(struct channels *c, u32 pid, const struct context_report *r, u64 count);
