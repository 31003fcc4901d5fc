/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finishes walks on the host that BPF could not finish, from registers and a copy of the stack. A
 * walk that needs a page that is not loaded requests it, for itself and for BPF, and is parked with
 * the mappings of its process; later it continues where it stopped. Frames of runtimes are usually
 * outside of the copied stack, and their objects may have changed since: a note replaces them if
 * rows or frame pointers lead on, else the walk ends. If the thread still sleeps, BPF then walks
 * its stack again and reads these frames: most threads have none, and the programs load slowly.
 */
#pragma once

#include "agent/pipeline/internal.h"

struct deferred_walk {
	const struct record_deferred *record;
	const struct sampler_copy *copy;
	u64 *frames; /* SAMPLE_MAX_FRAMES; the first n have been walked */
	u32 n;
	u32 stop;
	u32 waker; /* who ended the wait, as in pipeline_key: later another wake-up is the last */

	/* The state of the walk; zero at first. */
	struct walk_regs regs;
	struct slice *slice; /* a reference, until the walk is done or deferred_drop() */
	u64 asked;	     /* pc whose page was requested last */
	u32 n_before;	     /* frames that BPF walked */
	bool begun, again;   /* `again`: with mappings that were read again */
	bool unread;	     /* it contains notes in place of frames of a runtime */
	bool walked;	     /* all that the host can; a walk of a sleeper may go on in BPF */
};

/*
 * Continues the walk from the record's registers, or from its state; reads mappings that BPF did
 * not know. True: walk->stop is set. False: the walk needs a page; call it again when tables_take()
 * has taken some.
 */
bool deferred_finish(struct pipeline *p, struct deferred_walk *walk);
/* Releases what an unfinished walk holds. */
void deferred_drop(struct pipeline *p, struct deferred_walk *walk);
/* Returns the id that BPF would have given to the stack. */
u64 deferred_stack_id(const struct deferred_walk *walk);

/* Called with a parked walk that is done. */
typedef void deferred_done(struct pipeline *p, const struct deferred_walk *walk);
/*
 * Copies a walk until its page is loaded. False: no memory, the limit p->parked_max is reached, or
 * no walks are parked any more (p->closing).
 */
bool deferred_park(struct pipeline *p, const struct deferred_walk *walk);
/* Continues parked walks. Call it when pages were loaded. */
void deferred_retry(struct pipeline *p, deferred_done *done);
/*
 * Ends a walk that cannot be parked at its current frame, and counts it: reading the ring does not
 * wait for a page.
 */
void deferred_give_up(struct pipeline *p, struct deferred_walk *walk);
/*
 * Finishes all parked walks; after max_ns they end at their current frame. Reads the rings
 * meanwhile. Not to be called from within sampler_drain().
 */
void deferred_finish_parked(struct pipeline *p, u64 max_ns, deferred_done *done);
/* Drops all parked walks without counting them. */
void deferred_drop_parked(struct pipeline *p);
