/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/types.h"

/* Reads /proc/PID/WHAT into text[cap]; a longer file is cut. -ESRCH: the process does not exist. */
int proc_read_text(u32 pid, const char *what, char *text, size_t cap, size_t *ret_n);
