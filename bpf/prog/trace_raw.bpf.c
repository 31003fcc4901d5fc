/* SPDX-License-Identifier: GPL-2.0-only */
/* Stacks for raw tracepoints, and for actions that user space runs: BEGIN, END, interval. */
#define SAMPLE_SECTION "raw_tracepoint"
#define SAMPLE_CONTEXT struct bpf_raw_tracepoint_args
#define SAMPLE_RESULT 0
#define TRACE_TYPE BPF_PROG_TYPE_RAW_TRACEPOINT
#include "bpf/prog/trace.h"

SEC("raw_tracepoint")
int sample(struct bpf_raw_tracepoint_args *ctx)
{
	return trace_event(ctx, NULL);
}
