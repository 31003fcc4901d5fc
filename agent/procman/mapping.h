/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executable mappings of a process, as a sorted array that processes share until one of them
 * changes.
 *
 * Changes are first collected in an overlay, a small sorted array in which a later mapping replaces
 * those that it overlaps. Then the overlay is applied to the set in one pass, which creates a new
 * set, or, if there are few changes and the set is not shared, the changes are inserted one by one.
 * So a fork costs nothing, a batch of k events on n mappings O(n + k²) with a small k², and a
 * single event moves at most n mappings (100,000: 4 MB).
 */
#pragma once

#include "agent/procman/procman.h"
#include "base/vec.h"

/* An overlay of this size is applied before the end of the batch. */
#define OVERLAY_MAX 1024

/* Larger overlays are applied in one pass. */
#define CHANGES_MAX 8

/* Sorted, not overlapping, adjacent ones merged; holds a reference to each binary. */
typedef vec(struct procman_mapping) overlay;

struct mapping_set { /* immutable while it is shared */
	u32 refs;
	u64 id; /* of this content; never reused */
	overlay m;
};

/* NULL is the empty set; get and put accept it. */
struct mapping_set *mapping_set_get(struct mapping_set *s);
void mapping_set_put(struct mapping_set *s);

/*
 * Takes the reference to m.binary, also on failure (-ENOMEM, the overlay is unchanged). Appending
 * is O(1); elsewhere the mappings after it are moved.
 */
int overlay_add(overlay *o, struct procman_mapping m);
void overlay_clear(overlay *o);
void overlay_deinit(overlay *o);

/*
 * Returns the base with the overlay applied, or another reference to the base if the overlay
 * changes nothing. At most `max` mappings, lowest first; the number of omitted ones is added to
 * *dropped.
 */
int mapping_set_apply(struct mapping_set *base, const overlay *o, u64 id, u32 max,
		      struct mapping_set **ret, u64 *dropped);
/* Whether two sets have equal mappings. */
bool mapping_set_same(const struct mapping_set *a, const struct mapping_set *b);
/*
 * Applies an overlay in place; the set gets the new id unless nothing changes. False: not possible
 * (shared, empty, too many changes, or little room), and nothing was done.
 */
bool mapping_set_change(struct mapping_set *s, const overlay *o, u64 id, u32 max);
/* Copies a set and replaces every PROCMAN_ANON binary by `to`. */
int mapping_set_replace_anon(const struct mapping_set *base, struct procman_binary *to, u64 id,
			     struct mapping_set **ret);
/* The mapping that contains avma, or NULL. */
const struct procman_mapping *mapping_find(const struct procman_mapping *m, u32 n, u64 avma);
