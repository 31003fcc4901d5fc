/* SPDX-License-Identifier: Apache-2.0 */
/* Copies stacks from the profile of an engine's cache into another profile. */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "server/store/private.h"

/* The arrays have ids of `into` plus 1, by id of `from`; 0 = not copied yet. */
struct copy {
	const struct profile *from;
	struct profile *into;
	u32 *mappings, *functions, *frames, *stacks; /* owned */
	vec(u32) scratch;
};

static void copy_deinit(struct copy *c)
{
	free(c->mappings);
	free(c->functions);
	free(c->frames);
	free(c->stacks);
	vec_deinit(&c->scratch);
}

static int copy_string(struct copy *c, u32 id, u32 *ret)
{
	return profile_add_string(c->into, strtab_get(&c->from->strings, id),
				  c->from->strings.lengths[id], ret);
}

static int copy_mapping(struct copy *c, u32 id, u32 *ret)
{
	struct profile_mapping m = c->from->mappings.data[id];
	u32 copied;
	int r = 0;

	if (!c->mappings[id]) {
		r = copy_string(c, m.path, &m.path);
		if (r == 0)
			r = copy_string(c, m.build_id, &m.build_id);
		if (r == 0)
			r = profile_add_mapping(c->into, &m, &copied);
		if (r == 0)
			c->mappings[id] = copied + 1;
	}
	*ret = c->mappings[id] - 1;
	return r;
}

static int copy_function(struct copy *c, u32 id, u32 *ret)
{
	struct profile_function f = c->from->functions.data[id];
	u32 copied;
	int r = 0;

	if (!c->functions[id]) {
		r = copy_string(c, f.name, &f.name);
		if (r == 0)
			r = copy_string(c, f.system_name, &f.system_name);
		if (r == 0)
			r = copy_string(c, f.file, &f.file);
		if (r == 0)
			r = profile_add_function(c->into, &f, &copied);
		if (r == 0)
			c->functions[id] = copied + 1;
	}
	*ret = c->functions[id] - 1;
	return r;
}

static int copy_frame(struct copy *c, u32 id, u32 *ret)
{
	struct profile_frame f = c->from->frames.data[id];
	u32 copied;
	int r = 0;

	if (!c->frames[id]) {
		if (f.mapping != PROFILE_NONE)
			r = copy_mapping(c, f.mapping, &f.mapping);
		if (r == 0 && f.function != PROFILE_NONE)
			r = copy_function(c, f.function, &f.function);
		if (r == 0)
			r = profile_add_frame(c->into, &f, &copied);
		if (r == 0)
			c->frames[id] = copied + 1;
	}
	*ret = c->frames[id] - 1;
	return r;
}

static int copy_stack(struct copy *c, u32 id, u32 *ret)
{
	const struct profile_stack *s = &c->from->stacks.data[id];
	int r = 0;

	/* A question about many services has the same stack many times. */
	if (c->stacks[id]) {
		*ret = c->stacks[id] - 1;
		return 0;
	}
	vec_clear(&c->scratch);
	r = vec_reserve(&c->scratch, s->n);
	for (u32 i = 0; i < s->n && r == 0; i++)
		r = copy_frame(c, c->from->stack_frames.data[s->first + i], &c->scratch.data[i]);
	if (r == 0)
		r = profile_add_stack(c->into, c->scratch.data, s->n, ret);
	if (r == 0)
		c->stacks[id] = *ret + 1;
	return r;
}

int store_copy_stacks(const struct profile *from, struct profile *into, u32 *stacks, size_t n)
{
	__attribute__((cleanup(copy_deinit))) struct copy c = {.from = from, .into = into};
	int r = 0;

	c.mappings = calloc(from->mappings.n + 1, sizeof(u32));
	c.functions = calloc(from->functions.n + 1, sizeof(u32));
	c.frames = calloc(from->frames.n + 1, sizeof(u32));
	c.stacks = calloc(from->stacks.n + 1, sizeof(u32));
	if (!c.mappings || !c.functions || !c.frames || !c.stacks)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++)
		if (stacks[i] != PROFILE_NONE)
			r = copy_stack(&c, stacks[i], &stacks[i]);
	return r;
}
