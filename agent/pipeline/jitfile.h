/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the files in which processes describe the code that they generate: perf maps and jitdumps.
 */
#pragma once

#include "base/types.h"

enum jitfile {
	JITFILE_MAP,  /* /tmp/perf-PID.map, in the process's own mount and PID namespace */
	JITFILE_DUMP, /* jit-PID.dump; the process maps it as executable to announce its place */
	JITFILE_N
};

struct procman_process;

/*
 * A file of a process; it must belong to the process's user or root. A descriptor, or negative
 * errno.
 */
int jitfile_open(enum jitfile which, const struct procman_process *proc);
