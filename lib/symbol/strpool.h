/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interned strings that never move: u32 id ↔ pointer, both valid until strpool_deinit(). A string
 * lies in a chunk of 64 KiB; its id is where.
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
/* The id of the text, cut at STRPOOL_MAX_STRING; NULL has the id 0. -ENOMEM, -E2BIG. */
int strpool_add(struct strpool *p, const char *text, u32 *ret);
/* NULL for 0. */
const char *strpool_get(const struct strpool *p, u32 id);
