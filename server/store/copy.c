/* SPDX-License-Identifier: Apache-2.0 */
/* Copies stacks from the profile of an engine's cache into another profile. */
#include <errno.h>
#include <string.h>

#include "server/store/private.h"

void store_copy_deinit(struct store_copy *c)
{
	vec_deinit(&c->mappings);
	vec_deinit(&c->functions);
	vec_deinit(&c->frames);
	vec_deinit(&c->stacks);
	vec_deinit(&c->scratch);
}

static int copy_string(struct store_copy *c, u32 id, u32 *ret)
{
	return profile_add_string(c->into, strtab_get(&c->from->strings, id),
				  c->from->strings.lengths[id], ret);
}

static int copy_mapping(struct store_copy *c, u32 id, u32 *ret)
{
	struct profile_mapping m = c->from->mappings.data[id];
	u32 copied;
	int r = 0;

	if (!c->mappings.data[id]) {
		r = copy_string(c, m.path, &m.path);
		if (r == 0)
			r = copy_string(c, m.build_id, &m.build_id);
		if (r == 0)
			r = profile_add_mapping(c->into, &m, &copied);
		if (r == 0)
			c->mappings.data[id] = copied + 1;
	}
	*ret = c->mappings.data[id] - 1;
	return r;
}

static int copy_function(struct store_copy *c, u32 id, u32 *ret)
{
	struct profile_function f = c->from->functions.data[id];
	u32 copied;
	int r = 0;

	if (!c->functions.data[id]) {
		r = copy_string(c, f.name, &f.name);
		if (r == 0)
			r = copy_string(c, f.system_name, &f.system_name);
		if (r == 0)
			r = copy_string(c, f.file, &f.file);
		if (r == 0)
			r = profile_add_function(c->into, &f, &copied);
		if (r == 0)
			c->functions.data[id] = copied + 1;
	}
	*ret = c->functions.data[id] - 1;
	return r;
}

static int copy_frame(struct store_copy *c, u32 id)
{
	struct profile_frame f = c->from->frames.data[id];
	u32 copied;
	int r = 0;

	if (f.mapping != PROFILE_NONE)
		r = copy_mapping(c, f.mapping, &f.mapping);
	if (r == 0 && f.function != PROFILE_NONE)
		r = copy_function(c, f.function, &f.function);
	if (r == 0)
		r = profile_add_frame(c->into, &f, &copied);
	if (r == 0)
		c->frames.data[id] = copied + 1;
	return r;
}

static int copy_stack(struct store_copy *c, u32 id, u32 *ret)
{
	const struct profile_stack *s = &c->from->stacks.data[id];
	const u32 *frames = c->from->stack_frames.data + s->first;
	int r = 0;

	/* A question about many services has the same stack many times. */
	if (c->stacks.data[id]) {
		*ret = c->stacks.data[id] - 1;
		return 0;
	}
	r = vec_reserve(&c->scratch, s->n);
	for (u32 i = 0; i < s->n && r == 0; i++) {
		if (!c->frames.data[frames[i]])
			r = copy_frame(c, frames[i]);
		c->scratch.data[i] = c->frames.data[frames[i]] - 1;
	}
	if (r == 0)
		r = profile_add_stack(c->into, c->scratch.data, s->n, ret);
	if (r == 0)
		c->stacks.data[id] = *ret + 1;
	return r;
}

/* Makes room for ids below n. */
static int make_room(struct store_copied *v, size_t n)
{
	if (n <= v->n)
		return 0;
	if (vec_reserve(v, n) < 0)
		return -ENOMEM;
	memset(v->data + v->n, 0, (n - v->n) * sizeof(*v->data));
	v->n = n;
	return 0;
}

int store_copy_more(struct store_copy *c, const struct profile *from, u32 *stacks, size_t n)
{
	int r = 0;

	c->from = from;
	if (make_room(&c->mappings, from->mappings.n) < 0 ||
	    make_room(&c->functions, from->functions.n) < 0 ||
	    make_room(&c->frames, from->frames.n) < 0 || make_room(&c->stacks, from->stacks.n) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++)
		if (stacks[i] != PROFILE_NONE)
			r = copy_stack(c, stacks[i], &stacks[i]);
	return r;
}

int store_copy_stacks(const struct profile *from, struct profile *into, u32 *stacks, size_t n)
{
	_cleanup_store_copy_ struct store_copy c = {.into = into};

	return store_copy_more(&c, from, stacks, n);
}
