/* SPDX-License-Identifier: Apache-2.0 */
/* One CPU's side-band events: a perf event that counts nothing, and its ring. */
#pragma once

#include "base/types.h"
#include "base/vec.h"

struct perf_event_mmap_page;

struct ring {
	int fd; /* owned */
	u32 cpu;
	struct perf_event_mmap_page *page; /* owned, followed by the data */
	u64 size;			   /* of the data, a power of two */
	/* the kernel can be asked for the number of dropped events */
	bool counts_lost;
	u64 lost;	/* dropped so far, as far as known */
	u64 enabled_ns; /* of ring_is_dead() */
};

typedef vec(u8) ring_bytes;

/* -ENODEV: the CPU is not online. */
int ring_open(u32 cpu, u32 size, u32 wakeup_bytes, struct ring *ret);
void ring_close(struct ring *ring);
/*
 * Appends all pending records and frees their space in the ring. Adds newly reported losses to
 * *lost. -EIO: the state of the ring was invalid; it was emptied, which counts as a loss.
 */
int ring_take(struct ring *ring, ring_bytes *bytes, u64 *lost);
/*
 * Whether the event has not been enabled since the last call: its CPU went offline, after which the
 * kernel does not revive it.
 */
bool ring_is_dead(struct ring *ring);
/* Call it when a lost record was read from this ring. */
void ring_note_lost(struct ring *ring, u64 n, u64 *lost);
