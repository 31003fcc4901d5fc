/* SPDX-License-Identifier: GPL-2.0-only */
/* Stacks for perf events: profile, hardware, software, watchpoint. */
#define SAMPLE_SECTION "perf_event"
#define SAMPLE_CONTEXT struct bpf_perf_event_data
#define SAMPLE_RESULT 0
#define TRACE_TYPE BPF_PROG_TYPE_PERF_EVENT
#include "bpf/prog/trace.h"

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	return trace_event(ctx, &ctx->regs);
}
