/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/php/php.h"

#define MAX_ENTRIES 16384
#define MAX_BYTES (4u << 20)

struct php_cache *php_cache_create(void)
{
	struct php_cache *c = calloc(1, sizeof(*c));

	if (c && strtab_init(&c->texts) < 0) {
		free(c);
		return NULL;
	}
	return c;
}

void php_cache_destroy(struct php_cache *c)
{
	if (!c)
		return;
	strtab_deinit(&c->texts);
	map_deinit(&c->index);
	vec_deinit(&c->entries);
	free(c);
}

void php_cache_clear(struct php_cache *c)
{
	struct strtab texts;

	if (strtab_init(&texts) < 0)
		return;
	strtab_deinit(&c->texts);
	c->texts = texts;
	map_deinit(&c->index);
	c->index = (struct map){};
	vec_deinit(&c->entries);
}

/* All functions of a process with the same name, class and file have the same key. */
static u64 key_of(u64 image, u64 where)
{
	const u64 key[2] = {image, where & ~(u64)PHP_LINE_MASK};

	return hash_bytes(key, sizeof(key)) >> 1;
}

static const char *copy(struct arena *arena, const char *text)
{
	size_t n = strlen(text) + 1;
	char *to = arena_alloc(arena, n);

	return to ? memcpy(to, text, n) : NULL;
}

bool php_cache_get(const struct php_cache *c, u64 image, u64 where, struct runtime_names *ret)
{
	const u64 *known = map_get(&c->index, key_of(image, where));
	const struct php_cached *e = known ? &c->entries.data[*known] : NULL;
	struct runtime_frame f = {.line = (u32)where & PHP_LINE_MASK};

	if (!e)
		return false;
	f.function = copy(ret->arena, strtab_get(&c->texts, e->function));
	f.file = e->file ? copy(ret->arena, strtab_get(&c->texts, e->file)) : NULL;
	f.start_line = e->start_line;
	if (!f.function || (e->file && !f.file))
		return false;
	ret->n = 1;
	ret->frames[0] = f;
	return true;
}

void php_cache_put(struct php_cache *c, u64 image, u64 where, const struct runtime_names *names)
{
	const struct runtime_frame *f = &names->frames[0];
	struct php_cached e = {.start_line = f->start_line};

	if (c->entries.n >= MAX_ENTRIES || c->texts.n_bytes >= MAX_BYTES)
		php_cache_clear(c);
	if (strtab_add(&c->texts, f->function, strlen(f->function), &e.function) < 0 ||
	    (f->file && strtab_add(&c->texts, f->file, strlen(f->file), &e.file) < 0) ||
	    vec_push(&c->entries, e) < 0)
		return;
	(void)map_put(&c->index, key_of(image, where), c->entries.n - 1);
}
