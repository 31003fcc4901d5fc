/* SPDX-License-Identifier: GPL-2.0-only */
/* Stacks for tracepoints of tracefs. */
#define SAMPLE_SECTION "tracepoint"
#define SAMPLE_CONTEXT void
#define SAMPLE_RESULT 1
#define TRACE_TYPE BPF_PROG_TYPE_TRACEPOINT
#include "bpf/prog/trace.h"

SEC("tracepoint")
int sample(void *ctx)
{
	return trace_event(ctx, NULL);
}
