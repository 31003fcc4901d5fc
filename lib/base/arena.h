/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator with a limit that frees everything at once. Decoders of foreign bytes use it,
 * because a few bytes of input may ask for much memory. No lock: one thread at a time.
 */
#pragma once

#include "base/types.h"

struct arena_chunk;

struct arena {
	struct arena_chunk *chunks; /* owned */
	size_t left;		    /* in the first chunk */
	u64 used, limit;	    /* bytes allocated with malloc() */
};

#define ARENA_INIT(limit_bytes)                                                                    \
	{                                                                                          \
		.limit = (limit_bytes)                                                             \
	}

/* n bytes aligned for any type, not initialized; NULL above the limit or out of memory. */
void *arena_alloc(struct arena *a, size_t n);
/* n * size zeroed bytes, checked for overflow. */
void *arena_calloc(struct arena *a, size_t n, size_t size);
/* Frees all allocations. */
void arena_deinit(struct arena *a);
#define _cleanup_arena_ __attribute__((cleanup(arena_deinit)))
