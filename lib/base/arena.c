/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* malloc() maps large chunks afresh, which costs more than decoding a small request. */
#define FIRST_CHUNK_BYTES ((u64)8 << 10)
#define CHUNK_BYTES ((u64)256 << 10)
#define ALIGN ((size_t)16)

struct arena_chunk {
	struct arena_chunk *next;
	size_t n; /* bytes of data */
	_Alignas(16) u8 data[];
};

void *arena_alloc(struct arena *a, size_t n)
{
	size_t want = (n + ALIGN - 1) & ~(ALIGN - 1);
	struct arena_chunk *c = a->chunks;

	if (want < n || want > a->limit)
		return NULL;
	if (!want)
		want = ALIGN;
	if (want > a->left) {
		u64 again = MAX(a->used, FIRST_CHUNK_BYTES);
		size_t bytes = MIN(again, CHUNK_BYTES);

		bytes = MAX(want, bytes);
		if (a->used + bytes > a->limit)
			bytes = want;
		if (a->used + bytes > a->limit)
			return NULL;
		c = malloc(sizeof(*c) + bytes);
		if (!c)
			return NULL;
		*c = (struct arena_chunk){.next = a->chunks, .n = bytes};
		a->chunks = c;
		a->left = bytes;
		a->used += bytes;
	}
	a->left -= want;
	return c->data + (c->n - a->left - want);
}

void *arena_calloc(struct arena *a, size_t n, size_t size)
{
	size_t bytes;
	void *p;

	if (__builtin_mul_overflow(n, size, &bytes))
		return NULL;
	p = arena_alloc(a, bytes);
	if (p)
		memset(p, 0, bytes);
	return p;
}

void arena_deinit(struct arena *a)
{
	while (a->chunks) {
		struct arena_chunk *next = a->chunks->next;

		free(a->chunks);
		a->chunks = next;
	}
	*a = (struct arena){.limit = a->limit};
}
