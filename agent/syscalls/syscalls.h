/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls of processes, without ptrace: a line for each call, or statistics.
 *
 *	create → follow a process or a command's pid → poll … → end → destroy
 *
 * One thread. Functions that return int return 0 or a negative errno, and set the diag then.
 */
#pragma once

#include <stdio.h>

#include "abi/syscalls.h"
#include "base/diag.h"
#include "base/str.h"

struct syscalls_options {
	bool all;	  /* follow every process; else those of syscalls_follow() */
	bool summary;	  /* statistics at the end; else a line for each call */
	bool by_process;  /* statistics of each process */
	bool errors;	  /* only calls that failed */
	u64 slower_ns;	  /* only calls that took at least this long */
	const char *only; /* names and %groups of calls, comma-separated; NULL: all */
	bool json;	  /* an object a line */
	bool verbose;	  /* print what the kernel says of programs that it refuses */
	FILE *out;	  /* borrowed */
};

struct syscalls;

/* The programs are attached, and follow nothing but with `all`. */
int syscalls_create(const struct syscalls_options *o, struct diag *reterr_diag,
		    struct syscalls **ret);
/*
 * Follows the threads of a process and all that they start. `at_exec`: not before the process
 * executes a program. -ESRCH: there is none.
 */
int syscalls_follow(struct syscalls *s, u32 pid, bool at_exec, struct diag *reterr_diag);
/* Prints calls, and waits up to wait_ms for some. 1: all threads that it follows have ended. */
int syscalls_poll(struct syscalls *s, int wait_ms);
/* Prints what is left: the calls that are under way, or the statistics. */
int syscalls_end(struct syscalls *s);
/* What was lost, one line for each reason, for people; nothing if nothing was. */
void syscalls_print_lost(const struct syscalls *s, struct str *out);
/* NULL is fine. */
void syscalls_destroy(struct syscalls *s);

/* ---- the decoder, which knows no kernel ---- */

/* Of calls by number, for this machine. */
struct syscalls_table;

int syscalls_table_create(struct syscalls_table **ret);
void syscalls_table_destroy(struct syscalls_table *t);
/* NULL: no call has the number. Static. */
const char *syscalls_name(u32 slot);
/* Marks the plans of the calls that a list names, such as "read,%file"; NULL names all. */
int syscalls_table_choose(struct syscalls_table *t, const char *only, struct diag *reterr_diag);
const struct syscalls_plan *syscalls_table_plan(const struct syscalls_table *t, u32 slot);
/* Appends a line, with its end. The record's content may be any bytes. */
void syscalls_print_text(const struct syscalls_table *t, const struct syscalls_call *c,
			 bool with_comm, struct str *out);
void syscalls_print_json(const struct syscalls_table *t, const struct syscalls_call *c,
			 struct str *out);
/* The duration that `share` (0 to 1) of the calls do not exceed, within a bucket's width. */
u64 syscalls_percentile(const struct syscalls_stats *s, double share);
