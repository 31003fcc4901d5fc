/* SPDX-License-Identifier: Apache-2.0 */
/* Files in which processes tell about the code that they make: perf maps and jitdumps. */
#pragma once

#include "base/types.h"

enum jitfile {
	JITFILE_MAP,  /* /tmp/perf-PID.map, as the process sees /tmp and its own pid */
	JITFILE_DUMP, /* jit-PID.dump, which it maps as if it were code to say where it is */
	JITFILE_N
};

struct procman_process;

/*
 * A file of a process; it must belong to the process's user or root. A descriptor, or negative
 * errno.
 */
int jitfile_open(enum jitfile which, const struct procman_process *proc);
