/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/strpool.h"

#include <string.h>

#include "base/map.h"

#define CHUNK 65536U

void strpool_deinit(struct strpool *p)
{
	vec_foreach (&p->chunks, c)
		free(*c);
	vec_deinit(&p->chunks);
	free(p->index);
	*p = (struct strpool){};
}

const char *strpool_get(const struct strpool *p, u32 id)
{
	return id ? p->chunks.data[id >> 16] + (id & 0xffff) : NULL;
}

static u64 hash_of(const char *text, size_t n)
{
	return hash_bytes(text, n);
}

static int grow_index(struct strpool *p)
{
	size_t cap = p->index_cap ? p->index_cap * 2 : 256;
	u32 *index = calloc(cap, sizeof(*index));

	if (!index)
		return -ENOMEM;
	for (size_t i = 0; i < p->index_cap; i++) {
		const char *text = strpool_get(p, p->index[i]);
		size_t slot;

		if (!text)
			continue;
		slot = hash_of(text, strlen(text)) & (cap - 1);
		while (index[slot])
			slot = (slot + 1) & (cap - 1);
		index[slot] = p->index[i];
	}
	free(p->index);
	p->index = index;
	p->index_cap = cap;
	return 0;
}

static int store_text(struct strpool *p, const char *text, size_t n, u32 *ret)
{
	char *chunk;

	if (!p->chunks.n || p->used + n + 1 > CHUNK) {
		if (p->chunks.n >= STRPOOL_MAX_CHUNKS)
			return -E2BIG;
		chunk = malloc(CHUNK);
		if (!chunk)
			return -ENOMEM;
		if (vec_push(&p->chunks, chunk) < 0) {
			free(chunk);
			return -ENOMEM;
		}
		/* Skips offset 0: no string has id 0. */
		p->used = p->chunks.n == 1;
	}
	chunk = p->chunks.data[p->chunks.n - 1];
	memcpy(chunk + p->used, text, n);
	chunk[p->used + n] = 0;
	*ret = (u32)(p->chunks.n - 1) << 16 | p->used;
	p->used += (u32)n + 1;
	return 0;
}

int strpool_add(struct strpool *p, const char *text, u32 *ret)
{
	size_t n, slot;
	u32 id;
	int r;

	if (!text) {
		*ret = 0;
		return 0;
	}
	n = strnlen(text, STRPOOL_MAX_STRING);
	if ((p->n + 1) * 4 > p->index_cap * 3) {
		r = grow_index(p);
		if (r < 0)
			return r;
	}
	for (slot = hash_of(text, n) & (p->index_cap - 1); p->index[slot];
	     slot = (slot + 1) & (p->index_cap - 1)) {
		const char *known = strpool_get(p, p->index[slot]);

		if (strncmp(known, text, n) == 0 && !known[n]) {
			*ret = p->index[slot];
			return 0;
		}
	}
	r = store_text(p, text, n, &id);
	if (r < 0)
		return r;
	p->index[slot] = id;
	p->n++;
	*ret = id;
	return 0;
}
