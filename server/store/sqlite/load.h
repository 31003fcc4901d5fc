/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks rows of the dictionaries, and caches them. */
#pragma once

#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"
#include "profile/profile.h"
#include "server/store/sqlite/conn.h"

enum sq_table { SQ_SERIES, SQ_MAPPINGS, SQ_FUNCTIONS, SQ_FRAMES, SQ_STACKS, SQ_BLOCKS, SQ_TABLES };

/* A loaded frame: one frame of the profile, or several if late symbols have named it. */
struct sq_frame {
	u64 id;
	u32 first, n; /* the range in sq_cache.reals */
};

struct sq_stack {
	u64 id, n;
	u32 stack; /* in the cache's profile */
};

/* The frames of the stack that is being loaded. */
struct sq_stack_frames {
	vec(u64) ids;	/* as the stack has them */
	vec(u32) reals; /* in the cache's profile */
	vec(u64) numbers;
};

/* Loaded rows, interned in one profile. n: the number of a row. */
struct sq_cache {
	struct profile *profile; /* owned */
	struct map functions;	 /* n → id in the profile */
	vec(u64) function_ids;	 /* by id in the profile */
	struct map frames;	 /* n → position in: */
	vec(struct sq_frame) frame_list;
	vec(u32) reals;	   /* frames of the profile */
	struct map stacks; /* n → position in: */
	vec(struct sq_stack) stack_list;
	size_t last_stack;    /* position of the stack that was looked up last */
	struct map stack_ids; /* id → position */
	struct map series;    /* n → id */
	struct sq_stack_frames scratch;
	u64 naming;  /* sq.naming of the snapshot from which all rows were read */
	u64 emptied; /* how often the cache was emptied: tells its profiles apart */
};

/* ---- the caller holds cache_lock ---- */

/* Empties the cache if it is too large or if frames were named since. Call it before loading. */
int sq_cache_trim(struct sq *s, u64 naming);
/* Whether sq_cache_trim() would empty it because of its size. */
bool sq_cache_is_full(const struct sq *s);
void sq_cache_deinit(struct sq_cache *c);
/* Returns the id of stack or series n. -ENOENT: no such row. -EBADMSG: the row is damaged. */
int sq_stack_id(struct sq *s, struct sq_conn *c, u32 n, u64 *ret);
int sq_series_id(struct sq *s, struct sq_conn *c, u32 n, u64 *ret);

/* ---- the caller does not hold cache_lock ---- */

/* Adds the labels of a series to a profile. -ENOENT: no such row. -EBADMSG: it is damaged. */
int sq_series_resource(struct sq_conn *c, u32 n, struct profile *into, u64 *ret_id,
		       u32 *ret_resource);
/*
 * Whether the index of ids (SQL_INDEX_*) agrees that the row has this number. The id is a hash of
 * the row without its number, so only the index reveals a damaged number.
 */
bool sq_number_is_right(struct sq_conn *c, enum sq_statement index, u64 id, s64 n);
/* Under write_lock: 0 if the row matches its id, else -EBADMSG; then the store will be repaired. */
int sq_check_row(struct sq *s, enum sq_table table, s64 n, u64 id);
/* Returns the checksum of a frame's id and its list; it precedes the list in column `named`. */
u64 sq_named_sum(u64 id, const void *list, size_t size);
