/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings of all CPUs, read together and put in the order of time.
 *
 * Each ring is in order; between rings we may read B before A, and miss what A gets meanwhile
 * though it is older than what B has. So a round reads all rings and gives out only what is not
 * younger than the round's begin; the rest waits for the next round.
 */
#pragma once

#include "agent/procman/record.h"
#include "agent/procman/ring.h"

struct event_ref {
	u64 time_ns;
	u64 offset; /* in batch.bytes */
	u32 n;
	u32 ring;
};

struct batch {
	vec(struct ring) rings;
	ring_bytes bytes;
	vec(struct event_ref) events; /* sorted */
	size_t next;		      /* the first that was not given out */
};

void batch_deinit(struct batch *b);
/*
 * Reads all rings. Adds to *lost what the kernel dropped, to *damaged the rings that had something
 * that cannot be read. -ENOMEM: nothing was read, it stays in the rings.
 */
int batch_fill(struct batch *b, u64 *lost, u64 *damaged);
/* The next event not younger than until_ns; borrowed until the next batch_fill(). */
bool batch_next(struct batch *b, u64 until_ns, struct event_ref *ret_event, const u8 **ret_bytes);
/* Is there anything that was read but not given out? */
static inline bool batch_pending(const struct batch *b)
{
	return b->next < b->events.n;
}
