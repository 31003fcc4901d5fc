/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the rings of all CPUs and orders their events by time.
 *
 * Each ring is ordered. But ring A may receive an event after it was read that is older than an
 * event read from ring B later. So a round reads all rings and returns only events from before its
 * start; the others wait for the next round.
 */
#pragma once

#include "agent/procman/ring.h"
#include "agent/procman/sideband.h"

struct event_ref {
	u64 time_ns;
	u64 offset; /* offset in round.bytes */
	u32 n;
	u32 ring;
};

struct round {
	vec(struct ring) rings;
	ring_bytes bytes;
	vec(struct event_ref) events; /* sorted */
	size_t next;		      /* index of the first event that was not returned */
};

void round_deinit(struct round *b);
/*
 * Reads all rings. Adds losses to *lost, and rings with unreadable records to *damaged. -ENOMEM:
 * nothing was read; the records stay in the rings.
 */
int round_fill(struct round *b, u64 *lost, u64 *damaged);
/* Returns the next event up to until_ns (inclusive), borrowed until the next round_fill(). */
bool round_next(struct round *b, u64 until_ns, struct event_ref *ret_event, const u8 **ret_bytes);
/* Whether there are events that were read but not returned. */
static inline bool round_pending(const struct round *b)
{
	return b->next < b->events.n;
}
