/* SPDX-License-Identifier: Apache-2.0 */
/* Finishing on the host, from registers and a copy of the stack, what BPF could not walk. */
#pragma once

#include "agent/pipeline/pipeline.h"

struct deferred_walk {
	const struct record_deferred *record;
	const struct sampler_copy *copy;
	u64 *frames; /* SAMPLE_MAX_FRAMES; the first n are walked already */
	u32 n;
	u32 stop;
};

/*
 * Walks on from the record's registers; unwind pages that are missing are loaded on the way, for
 * this walk and for BPF, and mappings that BPF did not know are looked for. Sets walk->stop, adds
 * to walk->n.
 */
void deferred_finish(struct pipeline *p, struct deferred_walk *walk);
/* The id that BPF would have given to the stack. */
u64 deferred_stack_id(const struct deferred_walk *walk);
