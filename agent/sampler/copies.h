/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of stacks, put together from the COPY records that come before a DEFERRED record, for each
 * source, level and CPU. At most `max` are kept at a time: if the ends of many are lost, those that
 * have begun are given up.
 */
#pragma once

#include "abi/sample.h"
#include "agent/sampler/sampler.h"
#include "base/types.h"

struct copies {
	struct sampler_copy *all; /* owned; by source, level and CPU */
	u32 n_sources, n_cpus;
	u32 n, max; /* that have a buffer */
	u8 *spare;  /* owned: the buffer of the copy that was used last */
	u64 n_given_up;
};

/* 0 or -ENOMEM. */
int copies_init(struct copies *c, u32 n_sources, u32 n_cpus);
void copies_deinit(struct copies *c);
/* Adds a page. */
void copies_take(struct copies *c, const struct record_copy *record);
/* What a source has sent at a level on a CPU; NULL: there is no such source, level or CPU. */
struct sampler_copy *copies_get(struct copies *c, u32 source, u32 level, u32 cpu);
/* The copy was used. */
void copies_drop(struct copies *c, struct sampler_copy *copy);
