/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/vec.h"

u64 hash_bytes(const void *data, size_t n)
{
	return XXH3_64bits(data, n);
}

void map_deinit(struct map *m)
{
	free(m->slots);
	*m = (struct map){};
}

void map_clear(struct map *m)
{
	for (size_t i = 0; i < m->cap; i++)
		m->slots[i].key = MAP_EMPTY_KEY;
	m->n = m->used = 0;
}

u64 *map_get(const struct map *m, u64 key)
{
	if (!m->cap)
		return NULL;
	for (size_t i = hash_u64(key) & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
		if (m->slots[i].key == key)
			return &m->slots[i].value;
		if (m->slots[i].key == MAP_EMPTY_KEY)
			return NULL;
	}
}

static int map_resize(struct map *m)
{
	size_t cap = 16;
	struct map_slot *slots;

	while (cap < m->n * 2 + 2)
		cap *= 2;
	slots = reallocarray(NULL, cap, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < cap; i++)
		slots[i].key = MAP_EMPTY_KEY;
	map_foreach (m, s) {
		size_t i = hash_u64(s->key) & (cap - 1);

		while (slots[i].key != MAP_EMPTY_KEY)
			i = (i + 1) & (cap - 1);
		slots[i] = *s;
	}
	free(m->slots);
	m->slots = slots;
	m->cap = cap;
	m->used = m->n;
	return 0;
}

int map_put(struct map *m, u64 key, u64 value)
{
	u64 *v = map_get(m, key);
	size_t i;

	if (v) {
		*v = value;
		return 0;
	}
	if ((m->used + 1) * 4 > m->cap * 3) {
		int r = map_resize(m);

		if (r < 0)
			return r;
	}
	i = hash_u64(key) & (m->cap - 1);
	while (m->slots[i].key < MAP_GONE_KEY)
		i = (i + 1) & (m->cap - 1);
	if (m->slots[i].key == MAP_EMPTY_KEY)
		m->used++;
	m->slots[i] = (struct map_slot){key, value};
	m->n++;
	return 0;
}

bool map_del(struct map *m, u64 key, u64 *ret_value)
{
	u64 *v = map_get(m, key);

	if (!v)
		return false;
	if (ret_value)
		*ret_value = *v;
	container_of(v, struct map_slot, value)->key = MAP_GONE_KEY;
	m->n--;
	return true;
}

int strtab_init(struct strtab *t)
{
	u32 id;

	*t = (struct strtab){};
	return strtab_add(t, "", 0, &id);
}

void strtab_deinit(struct strtab *t)
{
	free(t->bytes);
	free(t->offsets);
	free(t->lengths);
	free(t->index);
	*t = (struct strtab){};
}

static int strtab_reindex(struct strtab *t)
{
	size_t cap = t->index_cap ? t->index_cap * 2 : 64;
	u32 *index = calloc(cap, sizeof(*index));

	if (!index)
		return -ENOMEM;
	for (size_t id = 0; id < t->n; id++) {
		u64 h = hash_bytes(t->bytes + t->offsets[id], t->lengths[id]);
		size_t i = h & (cap - 1);

		while (index[i])
			i = (i + 1) & (cap - 1);
		index[i] = (u32)id + 1;
	}
	free(t->index);
	t->index = index;
	t->index_cap = cap;
	return 0;
}

static int strtab_grow(struct strtab *t, size_t n)
{
	void *bytes = t->bytes;
	size_t cap = t->cap;
	int r = vec_grow_(&bytes, &t->cap_bytes, t->n_bytes + n + 1, 1);

	t->bytes = bytes;
	if (r < 0)
		return r;
	if (t->n < t->cap)
		return 0;
	void *offsets = t->offsets;

	r = vec_grow_(&offsets, &cap, t->n + 1, sizeof(*t->offsets));
	t->offsets = offsets;
	if (r < 0)
		return r;
	u32 *lengths = reallocarray(t->lengths, cap, sizeof(*lengths));

	if (!lengths)
		return -ENOMEM;
	t->lengths = lengths;
	t->cap = cap;
	return 0;
}

/* The place of the string in the index, or the empty place for it. */
static size_t strtab_place(const struct strtab *t, const char *s, size_t n)
{
	size_t i = hash_bytes(s, n) & (t->index_cap - 1);

	for (; t->index[i]; i = (i + 1) & (t->index_cap - 1)) {
		u32 id = t->index[i] - 1;

		if (t->lengths[id] == n && memcmp(t->bytes + t->offsets[id], s, n) == 0)
			break;
	}
	return i;
}

bool strtab_find(const struct strtab *t, const char *s, size_t n, u32 *ret_id)
{
	size_t i = strtab_place(t, s, n);

	if (!t->index[i])
		return false;
	*ret_id = t->index[i] - 1;
	return true;
}

int strtab_add(struct strtab *t, const char *s, size_t n, u32 *ret_id)
{
	size_t i;
	int r;

	if ((t->n + 1) * 2 > t->index_cap) {
		r = strtab_reindex(t);
		if (r < 0)
			return r;
	}
	i = strtab_place(t, s, n);
	if (t->index[i]) {
		*ret_id = t->index[i] - 1;
		return 0;
	}
	if (t->n_bytes + n + 1 > 0x7fffffff || t->n >= 0x7fffffff)
		return -E2BIG;
	r = strtab_grow(t, n);
	if (r < 0)
		return r;
	t->offsets[t->n] = (u32)t->n_bytes;
	t->lengths[t->n] = (u32)n;
	if (n)
		memcpy(t->bytes + t->n_bytes, s, n);
	t->bytes[t->n_bytes + n] = '\0';
	t->n_bytes += n + 1;
	t->index[i] = (u32)t->n + 1;
	*ret_id = (u32)t->n++;
	return 0;
}

const char *strtab_get(const struct strtab *t, u32 id)
{
	return id < t->n ? t->bytes + t->offsets[id] : "";
}

/* A smaller block; the old one if there is no memory for it. */
static void *shrink(void *block, size_t bytes)
{
	void *smaller = realloc(block, bytes ? bytes : 1);

	return smaller ? smaller : block;
}

void strtab_seal(struct strtab *t)
{
	free(t->index);
	free(t->lengths);
	t->index = t->lengths = NULL;
	t->index_cap = 0;
	t->bytes = shrink(t->bytes, t->n_bytes);
	t->offsets = shrink(t->offsets, t->n * sizeof(*t->offsets));
	t->cap_bytes = t->n_bytes;
	t->cap = t->n;
}
