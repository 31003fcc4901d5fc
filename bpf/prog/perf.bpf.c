/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Samples of perf events: a clock of the CPU, a counter of the PMU, or a software event of the
 * kernel such as a page fault. Each sample stands for the period since the sample before it: so
 * many nanoseconds, cycles or faults.
 */
#define SAMPLE_SECTION "perf_event"
#define SAMPLE_CONTEXT struct bpf_perf_event_data
#define SAMPLE_RESULT 0
#include "bpf/prog/sample.h"

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	return sample_event(ctx, &ctx->regs, (__s64)ctx->sample_period);
}
