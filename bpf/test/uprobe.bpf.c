/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Not a source yet: tests load and attach this object, to keep the walkers correct in a program
 * that the kernel can preempt in the middle of a sample, for another task that also takes a sample.
 */
#define SAMPLE_SECTION "kprobe"
#define SAMPLE_CONTEXT struct pt_regs
#define SAMPLE_RESULT 1
#define SAMPLE_LEVELS 4
#include "bpf/prog/sample.h"

SEC("uprobe")
int sample(struct pt_regs *ctx)
{
	return sample_event(ctx, (const bpf_user_pt_regs_t *)ctx, 1);
}
