/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks rows of the dictionaries, and caches them. */
#pragma once

#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"
#include "profile/profile.h"
#include "server/store/sqlite/conn.h"

enum sq_table { SQ_SERIES, SQ_MAPPINGS, SQ_FUNCTIONS, SQ_FRAMES, SQ_STACKS, SQ_BLOCKS, SQ_TABLES };

/* A frame: itself, or the frames that stand for it since symbols arrived. */
struct sq_frame {
	u64 id;
	u32 first, n; /* of sq_cache.reals */
};

struct sq_stack {
	u64 id;
	u32 stack; /* in the cache's profile */
};

/* Rows as they were loaded, interned in one profile. n: the number of a row. */
struct sq_cache {
	struct profile *profile; /* owned */
	struct map functions;	 /* n → id in the profile */
	vec(u64) function_ids;	 /* by id in the profile */
	struct map frames;	 /* n → position in: */
	vec(struct sq_frame) frame_list;
	vec(u32) reals;	   /* frames of the profile */
	struct map stacks; /* n → position in: */
	vec(struct sq_stack) stack_list;
	struct map stack_ids; /* id → position */
	struct map series;    /* n → id */
	u64 naming;	      /* struct sq's, of the snapshot that all of it was read in */
};

/* ---- under cache_lock ---- */

/* Before something is loaded: empties a cache that is too large, or has names of another time. */
int sq_cache_trim(struct sq *s, u64 naming);
void sq_cache_deinit(struct sq_cache *c);
/* The id of a stack or series: -ENOENT, or -EBADMSG for a damaged row. */
int sq_stack_id(struct sq *s, struct sq_conn *c, u32 n, u64 *ret);
int sq_series_id(struct sq *s, struct sq_conn *c, u32 n, u64 *ret);

/* ---- without ---- */

/* Adds the labels of a series to a profile; -ENOENT, or -EBADMSG for a damaged row. */
int sq_series_resource(struct sq_conn *c, u32 n, struct profile *into, u64 *ret_id,
		       u32 *ret_resource);
/*
 * Whether the index of ids (SQL_INDEX_*) agrees that the row has this number. A row's id does not
 * cover its number, so this is how a number that the disk has changed shows.
 */
bool sq_number_is_right(struct sq_conn *c, enum sq_statement index, u64 id, s64 n);
/* Under write_lock: 0 if the row matches its id. -EBADMSG if not: the store will be repaired. */
int sq_check_row(struct sq *s, enum sq_table table, s64 n, u64 id);
/* The sum in front of the list in the column `named`: of the frame's id and the list. */
u64 sq_named_sum(u64 id, const void *list, size_t size);
