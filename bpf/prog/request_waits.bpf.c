/* SPDX-License-Identifier: GPL-2.0-only */
/* Intervals of threads of armed processes, on kernels that have the tracepoint sched_exit_tp. */
#define SAMPLE_SECTION "raw_tracepoint"
#define SAMPLE_CONTEXT struct bpf_raw_tracepoint_args
#define SAMPLE_RESULT 0
#define SCHED_RESUMED "raw_tracepoint/sched_exit_tp"
#define SCHED_ATOMIC
#include "bpf/prog/request_waits.h"
