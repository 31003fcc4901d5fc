/* SPDX-License-Identifier: GPL-2.0-only */
/* Stacks for kprobes, uprobes and USDT probes, and their returns. */
#define SAMPLE_SECTION "kprobe"
#define SAMPLE_CONTEXT struct pt_regs
#define SAMPLE_RESULT 1
/* The kernel can preempt programs of uprobes. */
#define SAMPLE_LEVELS 4
#define TRACE_TYPE BPF_PROG_TYPE_KPROBE
#include "bpf/prog/trace.h"

SEC("kprobe")
int sample(struct pt_regs *ctx)
{
	return trace_event(ctx, (const bpf_user_pt_regs_t *)ctx);
}
