/* SPDX-License-Identifier: GPL-2.0-only */
/* Intervals of threads of armed processes on older kernels: see sched_kprobe.bpf.c. */
#define SAMPLE_SECTION "kprobe"
#define SAMPLE_CONTEXT struct pt_regs
#define SAMPLE_RESULT 0
#define SCHED_RESUMED "kprobe"
#include "bpf/prog/request_waits.h"
