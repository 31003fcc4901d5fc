/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finishing on the host, from registers and a copy of the stack, what BPF could not walk. A walk
 * that comes to a page which is not loaded has it loaded, for itself and for BPF, and waits: it is
 * parked, with the mappings that its process had, and goes on where it stood. Frames of runtimes
 * lie outside of the copied stack as a rule and are of a moment that is past: a note stands for
 * them where rows or frame pointers lead on, else the walk ends.
 */
#pragma once

#include "agent/pipeline/internal.h"

struct deferred_walk {
	const struct record_deferred *record;
	const struct sampler_copy *copy;
	u64 *frames; /* SAMPLE_MAX_FRAMES; the first n are walked already */
	u32 n;
	u32 stop;

	/* Where it stands; zero at first. */
	struct walk_regs regs;
	struct slice *slice; /* a reference: until it is done, or deferred_drop() */
	u64 asked;	     /* pc whose page it asked for last */
	u32 n_before;	     /* frames that BPF walked */
	bool begun, again;   /* again: with mappings that were looked for */
	bool unread;	     /* there are notes in it that frames of a runtime could not be read */
};

/*
 * Walks on from the record's registers, or from where it stood; mappings that BPF did not know are
 * looked for. True: walk->stop is set. False: it waits for a page, and is to be called again when
 * tables_take() has taken any.
 */
bool deferred_finish(struct pipeline *p, struct deferred_walk *walk);
/* Gives back what a walk holds that is not done. */
void deferred_drop(struct pipeline *p, struct deferred_walk *walk);
/* The id that BPF would have given to the stack. */
u64 deferred_stack_id(const struct deferred_walk *walk);

/* Of a walk that was parked and is done now. */
typedef void deferred_done(struct pipeline *p, const struct deferred_walk *walk);
/*
 * Keeps all of a walk until its page is there. False: no memory, too much is kept (p->parked_max),
 * or nothing is kept any more (p->closing).
 */
bool deferred_park(struct pipeline *p, const struct deferred_walk *walk);
/* Some pages have come. */
void deferred_retry(struct pipeline *p, deferred_done *done);
/* One that is not kept ends where it stands, and is counted: the ring does not wait for a page. */
void deferred_give_up(struct pipeline *p, struct deferred_walk *walk);
/*
 * All that are kept, to their end; after max_ns they end where they stand. The rings are read
 * meanwhile. Not from within sampler_drain().
 */
void deferred_finish_parked(struct pipeline *p, u64 max_ns, deferred_done *done);
/* They never were. */
void deferred_drop_parked(struct pipeline *p);
