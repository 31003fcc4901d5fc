/* SPDX-License-Identifier: GPL-2.0-only */
/* Samples of a tracepoint of the kernel: each stands for one event. */
#define SAMPLE_SECTION "tracepoint"
/* Fields of the event, which differ from one tracepoint to another and are not read. */
#define SAMPLE_CONTEXT void
#include "bpf/prog/sample.h"

SEC("tracepoint")
int sample(void *ctx)
{
	return sample_event(ctx, NULL, 1);
}
