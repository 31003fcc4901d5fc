/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is given back all at once, and never more of it than a limit: for what is built
 * from foreign bytes, where a few of them may ask for a lot.
 */
#pragma once

#include "base/types.h"

struct arena_chunk;

struct arena {
	struct arena_chunk *chunks; /* owned */
	size_t left;		    /* in the first chunk */
	u64 used, limit;	    /* bytes asked of malloc */
};

#define ARENA_INIT(limit_bytes)                                                                    \
	{                                                                                          \
		.limit = (limit_bytes)                                                             \
	}

/* Aligned for any type, content not set; NULL past the limit or when out of memory. */
void *arena_alloc(struct arena *a, size_t n);
/* As above, zeroed, with the multiplication checked. */
void *arena_calloc(struct arena *a, size_t n, size_t size);
void arena_deinit(struct arena *a);
#define _cleanup_arena_ __attribute__((cleanup(arena_deinit)))
