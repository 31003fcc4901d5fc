/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes say what they are and which trace their threads work for, and how:
 * doc/context.md.
 *
 * Two things come of it. Readers in BPF (bpf/context) are told where a thread's record is, one file
 * here and there for each line of abi/tbl/context.tbl. And OpenTelemetry's process context, which
 * is read here: attributes of the process for agent/identity.
 *
 * Files and memory of the processes are hostile: lengths and loops are bounded, nothing that was
 * read is followed unchecked, and what BPF is told can only make it read the process's own memory.
 * Belongs to one thread.
 */
#pragma once

#include "abi/sample.h"
#include "agent/procman/procman.h"
#include "base/cleanup.h"
#include "base/stat.h"
#include "base/types.h"

struct contexts;

struct context_label {
	const char *name, *value; /* UTF-8, or what the process says is that */
};

/* Of one sample. */
#define CONTEXT_MAX_ATTRIBUTES 32

#define CONTEXT_MAX_SOCKET 1025 /* bytes of a path, with its end */

/* A stack that was seen for a trace, as Elastic's protocol tells it. */
struct context_report {
	u8 trace_id[16];
	u8 root_id[8]; /* the local root span */
	u8 stack_id[16];
};

struct contexts_options {
	int processes_fd; /* BPF map: array of struct context_process; borrowed; -1: none */
	/* The process's is the one at this index now, 0: none; n have one. May be NULL, as the
	 * next. */
	void (*told)(void *arg, const struct procman_process *p, u32 index, u32 n);
	/* A process has said what it is, or something else than before. Borrowed for the call. */
	void (*said)(void *arg, const struct procman_process *p, const struct context_label *labels,
		     u32 n);
	void *arg;
};

int contexts_create(const struct contexts_options *o, struct contexts **ret);
void contexts_destroy(struct contexts *c);
DEFINE_CLEANUP(contexts, struct contexts *, contexts_destroy)
#define _cleanup_contexts_ _cleanup_(contexts)

/* A process is new, or has mapped something. */
void contexts_update_process(struct contexts *c, const struct procman_process *p);
/*
 * It is sampled: from now on it is looked at now and then, as nothing tells when it publishes. What
 * it has said is told again.
 */
void contexts_see(struct contexts *c, const struct procman_process *p);
/*
 * What a thread of the process said of its work, as clean UTF-8: how many labels, borrowed until
 * the next call. Some may be left out, as there is a bound on how many there can be of a process.
 */
u32 contexts_attributes(struct contexts *c, const struct procman_process *p,
			const struct record_attributes *head, const u8 *bytes,
			struct context_label ret[CONTEXT_MAX_ATTRIBUTES], bool *ret_partial);
/* What `culprit doctor -p` says of a process: a line each. Needs none of the above. */
void contexts_describe(const struct procman_process *p, void (*line)(void *arg, const char *text),
		       void *arg);
/* Looks at those that are due; at contexts_due_ns() (CLOCK_MONOTONIC), or often. */
u64 contexts_due_ns(const struct contexts *c);
void contexts_retry(struct contexts *c, struct procman *pm);
/*
 * From now on processes that want to know which of their traces were sampled are told: that it
 * takes so long until they are, and then what contexts_report() says, by any thread.
 */
int contexts_correlate(struct contexts *c, u32 delay_ms, const char *host_id);
void contexts_report(struct contexts *c, u32 pid, const struct context_report *r, u64 count);
/* It took so long, this time. */
void contexts_late(struct contexts *c, u32 ms);
struct contexts_stats {
	u64 in_map;  /* processes that publish, now */
	u64 no_room; /* times that one had no room in BPF's map */
};

void contexts_get_stats(const struct contexts *c, struct contexts_stats *ret);
extern const struct stat_field contexts_stat_fields[];
/* Nothing of it runs any more: BPF forgets it. What it has said is still known. */
void contexts_end_process(struct contexts *c, const struct procman_process *p);
void contexts_remove_process(struct contexts *c, const struct procman_process *p);
void contexts_remove_binary(struct contexts *c, const struct procman_binary *b);
