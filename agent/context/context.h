/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the processes that publish their own attributes or the traces of their threads:
 * doc/context.md.
 *
 * This has two results. The readers in BPF (bpf/context) learn where a thread's record is; each
 * line of abi/tbl/context.tbl has a file here and one there. OpenTelemetry's process context is
 * read here and gives agent/identity the attributes of the process.
 *
 * Files and memory of processes are hostile: lengths and loops are bounded, nothing that was read
 * is used unchecked, and what BPF receives can only make it read the process's own memory. One
 * thread calls all functions, except contexts_report() and contexts_late().
 */
#pragma once

#include "abi/sample.h"
#include "agent/procman/procman.h"
#include "base/cleanup.h"
#include "base/stat.h"
#include "base/types.h"

struct contexts;

struct context_label {
	const char *name, *value; /* UTF-8, or claimed to be UTF-8 by the process */
};

/* Attributes of one sample. */
#define CONTEXT_MAX_ATTRIBUTES 32

#define CONTEXT_MAX_SOCKET 1025 /* bytes of a path, with its NUL */

/* A stack that was sampled for a trace, as Elastic's protocol encodes it. */
struct context_report {
	u8 trace_id[16];
	u8 root_id[8]; /* the local root span */
	u8 stack_id[16];
};

struct contexts_options {
	int processes_fd; /* BPF map: array of struct context_process; borrowed; -1: none */
	/* The process now uses this index of the map; 0: none. `n` processes have an index. May be
	 * NULL. */
	void (*told)(void *arg, const struct procman_process *p, u32 index, u32 n);
	/* A process has published attributes, or changed them. Borrowed for the call. May be
	 * NULL. */
	void (*said)(void *arg, const struct procman_process *p, const struct context_label *labels,
		     u32 n);
	void *arg;
};

/* Borrows options.processes_fd until contexts_destroy(). -ENOMEM. */
int contexts_create(const struct contexts_options *o, struct contexts **ret);
void contexts_destroy(struct contexts *c);
DEFINE_CLEANUP(contexts, struct contexts *, contexts_destroy)
#define _cleanup_contexts_ _cleanup_(contexts)

/*
 * Attaches processes that are new or have mapped a file, and forgets those that are gone; `arg` is
 * the contexts. A process that has ended is removed from BPF's map; its attributes remain known.
 */
extern const struct procman_listener contexts_listener;
/*
 * Call it when a process was sampled: from now on it is polled, because nothing signals that it
 * publishes. Attributes that it has published are passed to said() again.
 */
void contexts_see(struct contexts *c, const struct procman_process *p);
/*
 * Decodes the attributes that a thread of the process published, as clean UTF-8. Returns the number
 * of labels, borrowed until the next call. *ret_partial: some were omitted, because the number of
 * different labels of a process is bounded.
 */
u32 contexts_attributes(struct contexts *c, const struct procman_process *p,
			const struct record_attributes *head, const u8 *bytes,
			struct context_label ret[CONTEXT_MAX_ATTRIBUTES], bool *ret_partial);
/* Passes the lines of `culprit doctor -p` about a process to `line`. Needs no struct contexts. */
void contexts_describe(const struct procman_process *p, void (*line)(void *arg, const char *text),
		       void *arg);
/* Polls the processes that are due. Call it at contexts_due_ns() (CLOCK_MONOTONIC), or often. */
u64 contexts_due_ns(const struct contexts *c);
void contexts_retry(struct contexts *c, struct procman *pm);
/*
 * Switches correlation on: processes that ask which of their traces were sampled are told that
 * reports take delay_ms, and then get what is passed to contexts_report(), by any thread.
 */
int contexts_correlate(struct contexts *c, u32 delay_ms, const char *host_id);
/* Reports `count` samples of a stack to the process, if it has asked for reports. Any thread. */
void contexts_report(struct contexts *c, u32 pid, const struct context_report *r, u64 count);
/* The last reports took `ms`. */
void contexts_late(struct contexts *c, u32 ms);
struct contexts_stats {
	u64 in_map;  /* processes that publish, now */
	u64 no_room; /* times that BPF's map had no room for a process */
};

void contexts_get_stats(const struct contexts *c, struct contexts_stats *ret);
extern const struct stat_field contexts_stat_fields[];
