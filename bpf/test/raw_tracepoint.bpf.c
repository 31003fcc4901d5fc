/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Not a source yet: tests load this object, to keep the walkers loadable in programs of this type.
 */
#define SAMPLE_SECTION "raw_tracepoint"
#define SAMPLE_CONTEXT struct bpf_raw_tracepoint_args
#define SAMPLE_RESULT 0
#include "bpf/prog/sample.h"

SEC("raw_tracepoint/sched_switch")
int sample(struct bpf_raw_tracepoint_args *ctx)
{
	return sample_event(ctx, NULL, 1);
}
