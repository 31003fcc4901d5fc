/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Not a source yet: tests load this object, to keep the walkers loadable in programs of this type.
 */
#define SAMPLE_SECTION "kprobe"
#define SAMPLE_CONTEXT struct pt_regs
#define SAMPLE_RESULT 1
#include "bpf/prog/sample.h"

SEC("kprobe")
int sample(struct pt_regs *ctx)
{
	return sample_event(ctx, NULL, 1);
}
