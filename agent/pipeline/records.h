/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts what the ring brings: the records of the sampler become stacks, sets of attributes and
 * entries of p->batch. During pipeline_take() p->before is the previous batch: samples of the old
 * epoch that arrive late are counted where their stacks are.
 */
#pragma once

#include "agent/pipeline/deferred.h"

/* The functions that take records; their argument is the pipeline. */
extern const struct sampler_ops records_ops;

/*
 * Names the runtime frames of a stack while their process lives. Returns the number of words. Sets
 * *unnamed if there was no room for a name.
 */
u32 records_name_frames(struct pipeline *p, u32 pid, const u64 *frames, u32 n, u64 *ret,
			bool *unnamed);
/* Walks the stack of a sample of which BPF has walked nothing, and counts it. */
void records_walk(struct pipeline *p, const struct record_deferred *d,
		  const struct sampler_copy *copy);
/* Counts a sample whose user stack is known: its frames, in words as BPF sends them. */
void records_count_frames(struct pipeline *p, const struct record_sample *s, const u64 *words,
			  u32 n, u32 stop);
/* Adds the stack of a walk that is done, and counts its sample; a deferred_done. */
void records_count_walk(struct pipeline *p, const struct deferred_walk *walk);
