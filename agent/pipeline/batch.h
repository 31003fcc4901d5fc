/* SPDX-License-Identifier: Apache-2.0 */
/* Putting samples and stacks into a batch; reading it needs only pipeline.h. */
#pragma once

#include "agent/pipeline/internal.h"

/* No room for a stack or an entry that is not there yet. */
bool batch_is_full(const struct pipeline_batch *b);
struct pipeline_batch *batch_new(const struct pipeline *p);
/* Of a known id: nothing changes. Binaries of its frames are held. 0, -ENOMEM, -E2BIG,
 * -ENOBUFS: the batch is full. */
int batch_add_stack(struct pipeline_batch *b, struct procman *procman, u64 id, const u64 *frames,
		    u32 n, u32 stop, bool kernel);
/* What threads said, by its id; of a known id nothing changes. `partial`: some were left out. */
int batch_add_attributes(struct pipeline_batch *b, u32 pid, u64 id,
			 const struct context_label *labels, u32 n, bool partial);
/* Is the set there? */
bool batch_has_attributes(const struct pipeline_batch *b, u32 pid, u64 id);
/* The same set in another batch. */
int batch_copy_attributes(struct pipeline_batch *to, const struct pipeline_batch *from, u32 pid,
			  u64 id);
/* Which set it is; partial also when it is not there. */
u32 batch_attributes(const struct pipeline_batch *b, u32 pid, u64 id, bool *ret_partial);
/* Adds e->count and e->value to the entry of equal key; its index. */
int batch_count(struct pipeline_batch *b, const struct pipeline_entry *e, u32 *ret_index);
