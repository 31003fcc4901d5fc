/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings of all CPUs, read together and put in the order of time.
 *
 * Each ring is in order; between rings we may read B before A, and miss what A gets meanwhile
 * though it is older than what B has. So a round reads all rings and gives out only what is not
 * younger than the round's begin; the rest waits for the next round.
 */
#pragma once

#include "agent/procman/ring.h"
#include "agent/procman/sideband.h"

struct event_ref {
	u64 time_ns;
	u64 offset; /* in round.bytes */
	u32 n;
	u32 ring;
};

struct round {
	vec(struct ring) rings;
	ring_bytes bytes;
	vec(struct event_ref) events; /* sorted */
	size_t next;		      /* the first that was not given out */
};

void round_deinit(struct round *b);
/*
 * Reads all rings. Adds to *lost what the kernel dropped, to *damaged the rings that had something
 * that cannot be read. -ENOMEM: nothing was read, it stays in the rings.
 */
int round_fill(struct round *b, u64 *lost, u64 *damaged);
/* The next event not younger than until_ns; borrowed until the next round_fill(). */
bool round_next(struct round *b, u64 until_ns, struct event_ref *ret_event, const u8 **ret_bytes);
/* Is there anything that was read but not given out? */
static inline bool round_pending(const struct round *b)
{
	return b->next < b->events.n;
}
