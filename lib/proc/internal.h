/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "proc/proc.h"

/* Reads /proc/PID/WHAT into text[cap]; a longer file is cut. -ESRCH: the process does not exist. */
int proc_read_text(u32 pid, const char *what, char *text, size_t cap, size_t *ret_n);
/* As proc_maps_read(), from an open file. */
int proc_maps_read_fd(int fd, u32 flags, proc_mapping_fn *fn, void *arg);
/*
 * A line without its newline; line[n] is writable. 0 goes on; any other value ends the reading and
 * becomes its result.
 */
typedef int proc_line_fn(void *arg, char *line, size_t n);
/* Passes each line of a file of /proc to fn; lines above PROC_MAX_LINE are cut. -ESRCH: empty. */
int proc_lines_read(int fd, proc_line_fn *fn, void *arg);
