/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interned strings that never move: ids and pointers stay valid until strpool_deinit(). Strings are
 * in chunks of 64 KiB; an id encodes chunk and offset. No lock: one thread at a time.
 */
#pragma once

#include "base/types.h"
#include "base/vec.h"

#define STRPOOL_MAX_STRING 16384U
#define STRPOOL_MAX_CHUNKS 65535U

struct strpool {
	vec(char *) chunks; /* owned */
	u32 used;	    /* bytes of the last one */
	u32 *index;	    /* owned; hash table of ids, 0 = empty */
	size_t index_cap, n;
};

void strpool_deinit(struct strpool *p);
/*
 * The id of the text, which is cut at STRPOOL_MAX_STRING; NULL has id 0. -ENOMEM; -E2BIG when all
 * chunks are used.
 */
int strpool_add(struct strpool *p, const char *text, u32 *ret);
/* The text of an id; NULL for id 0. */
const char *strpool_get(const struct strpool *p, u32 id);
