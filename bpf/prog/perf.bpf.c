/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Samples of perf events: a clock of the CPU, a counter of the PMU, or a software event of the
 * kernel such as a page fault. Each sample stands for the period since the sample before it: so
 * many nanoseconds, cycles or faults. With config.whole_time it stands for what its thread has run
 * since the thread's last sample.
 */
#define SAMPLE_SECTION "perf_event"
#define SAMPLE_CONTEXT struct bpf_perf_event_data
#define SAMPLE_RESULT 0
#define SAMPLE_HOLDS held_now
#include "bpf/lib/held.h"
#include "bpf/lib/threads.h"
#include "bpf/prog/sample.h"

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	if (config.whole_time) {
		__u64 ran = thread_ran(task_current(), bpf_ktime_get_ns());

		return ran ? sample_event(ctx, &ctx->regs, (__s64)ran) : 0;
	}
	return sample_event(ctx, &ctx->regs, (__s64)ctx->sample_period);
}
