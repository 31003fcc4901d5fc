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

/* Walks the stack of a sample of which BPF has walked nothing, and counts it. */
void records_walk(struct pipeline *p, const struct record_deferred *d,
		  const struct sampler_copy *copy);
/* Adds the stack of a walk that is done, and counts its sample; a deferred_done. */
void records_count_walk(struct pipeline *p, const struct deferred_walk *walk);
