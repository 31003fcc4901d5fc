/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Samples of threads of armed processes while they work for a span, by a clock of each CPU. It
 * ticks at the rate of the process that asks for the most samples; others take each n-th tick.
 */
#define SAMPLE_SECTION "perf_event"
#define SAMPLE_CONTEXT struct bpf_perf_event_data
#define SAMPLE_RESULT 0
#define SAMPLE_WANTS wants
#define SAMPLE_CONCERNS has_span

#include "bpf/lib/kernel.h"

struct scratch;
static __attribute__((always_inline)) bool wants(struct scratch *s, struct task_struct *task,
						 __u32 tgid);

#include "bpf/lib/armed.h"
#include "bpf/prog/sample.h"

static __always_inline bool wants(struct scratch *s, struct task_struct *task, __u32 tgid)
{
	const struct armed_process *a = armed_get(tgid);
	__u32 ticks;

	if (!a || !(a->flags & ARMED_ON_CPU))
		return false;
	ticks = a->ticks;
	return ticks < 2 || s->counters[COUNTER_EVENTS] % ticks == 0;
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	return sample_event(ctx, &ctx->regs, (__s64)ctx->sample_period);
}
