/* SPDX-License-Identifier: Apache-2.0 */
/* culprit trace --syscalls. */
#pragma once

#include <stdio.h>

#include "cli/options.h"

struct trace_syscalls_arguments {
	bool on, summary, errors;
	const char *only, *by;
};
extern const struct option trace_syscalls_options[];
/* Whether there is an option that only --syscalls has. */
bool trace_syscalls_given(const struct trace_syscalls_arguments *a);

struct trace_syscalls_target {
	u32 pid;	 /* 0: none */
	char **command;	 /* or NULL. Without both, the whole machine */
	double slower_s; /* 0: all calls */
	u64 seconds;	 /* 0: no limit */
	bool json, quiet, verbose;
	FILE *out; /* borrowed */
};
/*
 * Appends the script that counts calls by name and stack, of `pid`, which runs `command` later if
 * that is set. TRACE_SYSCALLS_COMPAT is a map of how many calls it left out, of 32-bit programs.
 */
#define TRACE_SYSCALLS_COMPAT "compat"
struct diag;
struct str;
int trace_syscalls_script(const struct trace_syscalls_arguments *a,
			  const struct trace_syscalls_target *t, struct str *out, struct diag *d);
/* Returns the exit status: that of the command, if there is one. */
int trace_syscalls(const struct trace_syscalls_arguments *a, const struct trace_syscalls_target *t);
