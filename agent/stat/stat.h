/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of perf events of processes, a cgroup or the machine.
 *
 *	create (opened, not counting) → start → read … → destroy
 *
 * One thread. Functions that return int return 0 or a negative errno, and set the diag then.
 */
#pragma once

#include "base/diag.h"
#include "base/str.h"

enum stat_scope {
	STAT_MACHINE,
	STAT_PROCESS, /* with the threads and processes that it starts */
	STAT_COMMAND, /* the same, from the moment when it executes a program */
	STAT_CGROUP   /* with the cgroups below it */
};

struct stat_options {
	enum stat_scope scope;
	u32 pid;	    /* STAT_PROCESS, STAT_COMMAND */
	const char *cgroup; /* STAT_CGROUP: a path, also below /sys/fs/cgroup */
	const char *events; /* comma-separated; NULL: those that most ask for */
};

struct stat_value {
	const char *name; /* borrowed from the counters */
	bool is_supported;
	bool is_time; /* nanoseconds */
	/* As counted, and as it would be if it had been counted all the time. */
	double counted, scaled;
	double share; /* of the time during which it could count that it did count; 0: never */
};

struct stat_counters;

/* -ENOENT: an event is unknown; -ESRCH: the process is. */
int stat_create(const struct stat_options *o, struct diag *reterr_diag, struct stat_counters **ret);
/* Nothing to do for STAT_COMMAND. */
int stat_start(struct stat_counters *s);
u32 stat_count(const struct stat_counters *s);
/* Reads all values since the start: stat_count() of them. */
int stat_read(struct stat_counters *s, struct stat_value *ret);
/* NULL is fine. */
void stat_destroy(struct stat_counters *s);

/* ---- output ---- */

struct stat_times {
	double elapsed_s;     /* of the values */
	double at_s;	      /* since the start, for a part of the whole; 0: they are the whole */
	double user_s, sys_s; /* negative: unknown */
};
void stat_print_text(const struct stat_value *v, u32 n, const char *what,
		     const struct stat_times *t, struct str *out);
/* One object, one line. */
void stat_print_json(const struct stat_value *v, u32 n, const struct stat_times *t,
		     struct str *out);
