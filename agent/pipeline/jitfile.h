/* SPDX-License-Identifier: Apache-2.0 */
/* Files in which processes tell about the code that they make: perf maps. */
#pragma once

#include "base/types.h"

/*
 * /tmp/perf-PID.map of a process as that process sees /tmp and its own pid; it must belong to the
 * process's user or root. A descriptor, or negative errno.
 */
int jitfile_open_perf_map(u32 pid);
