/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/answers.h"

#include <string.h>

void answers_deinit(struct answers *a)
{
	strpool_deinit(&a->pool);
	vec_deinit(&a->frames);
	vec_deinit(&a->list);
	map_deinit(&a->by_svma);
	*a = (struct answers){};
}

int answers_get(const struct answers *a, u64 svma, struct symbol_chain *ret)
{
	const u64 *index = map_get(&a->by_svma, svma);
	const struct answer *x;

	if (!index)
		return -EAGAIN;
	x = &a->list.data[*index];
	if (!x->n)
		return -ENOENT;
	for (u32 i = 0; i < x->n; i++) {
		const struct answer_frame *f = &a->frames.data[x->first + i];

		ret->frames[i] = (struct symbol_frame){
			.name = strpool_get(&a->pool, f->name),
			.system_name = strpool_get(&a->pool, f->system_name),
			.file = strpool_get(&a->pool, f->file),
			.line = f->line,
			.column = f->column,
			.start_line = f->start_line,
			.inlined = f->inlined,
		};
	}
	ret->n = x->n;
	return 0;
}

static int add_frame(struct answers *a, const struct symbol_frame *f)
{
	struct answer_frame x = {
		.line = f->line,
		.start_line = f->start_line,
		.column = f->column > 0xffff ? 0 : (u16)f->column,
		.inlined = f->inlined,
	};
	int r = strpool_add(&a->pool, f->name, &x.name);

	if (r == 0)
		r = strpool_add(&a->pool, f->system_name, &x.system_name);
	if (r == 0)
		r = strpool_add(&a->pool, f->file, &x.file);
	return r < 0 ? r : vec_push(&a->frames, x);
}

int answers_put(struct answers *a, u64 svma, const struct symbol_chain *chain, bool transient)
{
	struct answer x = {
		.svma = svma, .first = (u32)a->frames.n, .n = chain->n, .transient = transient};
	int r;

	/* The two largest addresses are not valid keys of a map. No code is there. */
	if (svma >= MAP_GONE_KEY || a->frames.n > 0x7fffffff)
		return -E2BIG;
	for (u32 i = 0; i < chain->n; i++) {
		r = add_frame(a, &chain->frames[i]);
		if (r < 0) {
			a->frames.n = x.first;
			return r;
		}
	}
	r = vec_push(&a->list, x);
	return r < 0 ? r : map_put(&a->by_svma, svma, a->list.n - 1);
}

size_t answers_memory(const struct answers *a)
{
	return a->pool.chunks.n * 65536 + a->pool.index_cap * sizeof(u32) +
	       a->frames.cap * sizeof(*a->frames.data) + a->list.cap * sizeof(*a->list.data) +
	       a->by_svma.cap * sizeof(struct map_slot);
}
