/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hash tables with open addressing and linear probing, which grow at a load of 3/4. No lock.
 *
 * struct map: u64 key → u64 value. Any key but MAP_EMPTY_KEY and MAP_GONE_KEY (the two largest).
 * struct strtab: interned byte strings → dense ids from 0; id 0 is always "". Strings are
 * NUL-terminated after their last byte and live as long as the table.
 */
#pragma once

#include "base/types.h"

#define MAP_EMPTY_KEY (~0ULL)
#define MAP_GONE_KEY (~0ULL - 1)

struct map_slot {
	u64 key;
	u64 value;
};

struct map {
	struct map_slot *slots; /* owned */
	size_t cap;		/* a power of two, or 0 */
	size_t n;		/* entries */
	size_t used;		/* entries and deleted entries */
};

void map_deinit(struct map *m);
void map_clear(struct map *m);
/* The value of a key, or NULL; borrowed until the next map_put(). */
u64 *map_get(const struct map *m, u64 key);
/* Adds a key or replaces its value. 0 or -ENOMEM. */
int map_put(struct map *m, u64 key, u64 value);
/* Deletes a key. Returns whether it existed; ret_value, unless NULL, receives its value. */
bool map_del(struct map *m, u64 key, u64 *ret_value);
#define map_foreach(m, it)                                                                         \
	for (struct map_slot *it = (m)->slots, *it##_end_ = it ? it + (m)->cap : it;               \
	     it != it##_end_; it++)                                                                \
		if (it->key < MAP_GONE_KEY)

struct strtab {
	char *bytes; /* owned; all strings, each with its NUL */
	size_t n_bytes, cap_bytes;
	u32 *offsets; /* owned; by id */
	u32 *lengths; /* owned; by id */
	size_t n, cap;
	u32 *index; /* owned; id + 1, 0 = empty */
	size_t index_cap;
};

int strtab_init(struct strtab *t);
void strtab_deinit(struct strtab *t);
/* The id of the string, which is added if new. -ENOMEM, -E2BIG (2 GiB in all). */
int strtab_add(struct strtab *t, const char *s, size_t n, u32 *ret_id);
/* Whether the table has the string; its id. */
bool strtab_find(const struct strtab *t, const char *s, size_t n, u32 *ret_id);
/* The string of an id, borrowed until the next add; "" for an unknown id. */
const char *strtab_get(const struct strtab *t, u32 id);

/* Gives back what only strtab_add() and strtab_find() need, which must not be called any more. */
void strtab_seal(struct strtab *t);

/* A fast 64-bit hash (XXH3). */
u64 hash_bytes(const void *data, size_t n);
static inline u64 hash_u64(u64 x)
{
	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
	return x ^ (x >> 32);
}
