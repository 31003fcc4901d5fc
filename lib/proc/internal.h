/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "proc/proc.h"

/* Reads /proc/PID/WHAT into text[cap]; a longer file is cut. -ESRCH: the process does not exist. */
int proc_read_text(u32 pid, const char *what, char *text, size_t cap, size_t *ret_n);
/* As proc_maps_read(), from an open file. */
int proc_maps_read_fd(int fd, u32 flags, proc_mapping_fn *fn, void *arg);
