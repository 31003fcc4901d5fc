/* SPDX-License-Identifier: Apache-2.0 */
/* Putting samples and stacks into a batch; reading it needs only pipeline.h. */
#pragma once

#include "agent/pipeline/pipeline.h"

struct pipeline_batch *batch_new(const struct pipeline *p);
/* Of a known id: nothing changes. Binaries of its frames are held. 0, -ENOMEM or -E2BIG. */
int batch_add_stack(struct pipeline_batch *b, struct procman *procman, u64 id, const u64 *frames,
		    u32 n, u32 stop, bool kernel);
/* Adds e->count to the entry of equal key; its index. */
int batch_count(struct pipeline_batch *b, const struct pipeline_entry *e, u32 *ret_index);
