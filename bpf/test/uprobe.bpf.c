/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * No source yet: tests load and attach it, so that the walkers stay fit for a program that can be
 * preempted in the middle of a sample, by another task that has a sample made.
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
