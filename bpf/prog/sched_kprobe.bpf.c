/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waits of threads on older kernels: finish_task_switch() is the first function that a thread runs
 * after a wait. User space attaches `sample` to it, because compilers rename it.
 */
#define SAMPLE_SECTION "kprobe"
#define SAMPLE_CONTEXT struct pt_regs
#define SAMPLE_RESULT 0
#define SCHED_RESUMED "kprobe"
#include "bpf/prog/sched.h"
