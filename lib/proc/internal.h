/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/types.h"

/* Reads /proc/PID/WHAT whole; what does not fit is cut. -ESRCH: there is no such process. */
int proc_read_text(u32 pid, const char *what, char *text, size_t cap, size_t *ret_n);
