/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks that are kept for longer than a period, for ledgers of memory: an owner is a pair of
 * stacks that a sample had. They are in a batch of their own. A stack with frames of a runtime
 * refers to names, which are those of one batch: it is copied with its names, under an id that is a
 * hash of what they are in the other batch.
 *
 * The pipeline's thread calls all functions.
 */
#pragma once

#include "agent/pipeline/internal.h"

struct owner { /* ids of stacks in owners.batch; 0: none */
	u64 kernel_stack, user_stack;
};

struct owners {
	struct pipeline_batch *batch; /* owned: the stacks */
	struct runtime_answers answers;
	struct map ids; /* id in the period's batch → id in `batch` */
	vec(struct owner) all;
	struct map owner_index; /* hash → all, chained by probing the next hash */
	u64 max_bytes;
	u64 words[SAMPLE_MAX_FRAMES];
};

/* *k is all zero. 0 or -ENOMEM; owners_deinit() either way. */
int owners_init(struct pipeline *p, struct owners *k);
void owners_deinit(struct pipeline *p, struct owners *k);
/*
 * The index in `all` for the stacks of a sample, whose batch is p->batch. -ENOENT: it has none,
 * or they were lost; -ENOMEM, -E2BIG, -ENOBUFS: there is no room.
 */
int owners_find(struct pipeline *p, struct owners *k, const struct record_sample *s, u32 *ret);
/* Copies a stack to p->batch. Returns its id there; 0: none. */
u64 owners_stack(struct pipeline *p, struct owners *k, u64 id);
/* Whether it has frames that are meaningful only in its process. */
bool owners_is_raw(const struct owners *k, u64 id);
/* The period's batch is about to be taken. */
void owners_end_period(struct owners *k);

/* ---- dropping owners that nothing refers to ---- */

struct owners_tidying;

/* Whether it is worth it. */
bool owners_is_full(const struct owners *k);
/* NULL: out of memory. */
struct owners_tidying *owners_tidy_begin(struct pipeline *p, struct owners *k);
/* Keeps an owner. Its new index, or a negative errno: it is lost. */
int owners_tidy_owner(struct pipeline *p, struct owners_tidying *t, u32 owner, u32 *ret);
/* Drops the others. */
void owners_tidy_end(struct pipeline *p, struct owners_tidying *t);
