/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executable mappings of a process, as a sorted array that processes share until one changes.
 *
 * What changes is first gathered in an overlay, a small sorted array of its own in which a later
 * mapping replaces what it overlaps, and then either laid over the set in one pass, which makes a
 * new set, or, when they are few and nobody shares the set, put into it one by one. So a fork costs
 * nothing, a batch of k events on n mappings O(n + k²) with a small k², and a single event the move
 * of at most n mappings (100,000: 4 MB).
 */
#pragma once

#include "agent/procman/procman.h"
#include "base/vec.h"

/* An overlay of more is laid over the set before the batch is at its end. */
#define OVERLAY_MAX 1024

/* More changes than this are laid over the whole set. */
#define CHANGES_MAX 8

/* Sorted, not overlapping, neighbours merged; a reference to the binary of each. */
typedef vec(struct procman_mapping) overlay;

struct mapping_set { /* never changed while it is shared */
	u32 refs;
	u64 id; /* of this content, never used again */
	overlay m;
};

/* NULL is the empty set; get and put take it. */
struct mapping_set *mapping_set_get(struct mapping_set *s);
void mapping_set_put(struct mapping_set *s);

/*
 * Takes the reference to m.binary, also on failure (-ENOMEM, and the overlay is as it was). Adding
 * at the end is O(1), elsewhere what is behind moves.
 */
int overlay_add(overlay *o, struct procman_mapping m);
void overlay_clear(overlay *o);
void overlay_deinit(overlay *o);

/*
 * The base with the overlay laid over it, or the base itself with one more reference when that
 * makes no difference. At most `max` mappings, lowest first; those left out are added to *dropped.
 */
int mapping_set_apply(struct mapping_set *base, const overlay *o, u64 id, u32 max,
		      struct mapping_set **ret, u64 *dropped);
bool mapping_set_same(const struct mapping_set *a, const struct mapping_set *b);
/*
 * Changes a set in place, which then has the id given unless nothing was new. False: that cannot be
 * (shared, empty, too many changes, or little room); nothing was done.
 */
bool mapping_set_change(struct mapping_set *s, const overlay *o, u64 id, u32 max);
/* A copy in which `to` takes the place of every PROCMAN_ANON binary. */
int mapping_set_replace_anon(const struct mapping_set *base, struct procman_binary *to, u64 id,
			     struct mapping_set **ret);
const struct procman_mapping *mapping_find(const struct procman_mapping *m, u32 n, u64 avma);
