/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts the stacks of a profile where api_tree_prune() cuts its tree, so that pprof data and a flame
 * graph of one maxNodes have the same nodes. Frames that are left are unchanged.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/quota.h"
#include "server/api/querier.h"

struct cutter {
	struct profile *p;	/* borrowed */
	struct profile_tree *t; /* owned; pruned */
	struct map children;	/* child_key() → node of t */
	u32 *names;		/* owned; by frame: its name in t, PROFILE_NONE = not asked yet */
	u32 other;		/* the frame that stands for removed ones */
	struct str scratch;
	vec(u32) frames; /* of the current stack */
};

static void cutter_deinit(struct cutter *c)
{
	profile_tree_destroy(c->t);
	map_deinit(&c->children);
	free(c->names);
	str_deinit(&c->scratch);
	vec_deinit(&c->frames);
}

/* A tree tells a kernel function from a user function of the same name. */
static u64 child_key(u32 parent, u32 name, u8 kind)
{
	return (u64)parent << 32 | (u64)name << 1 | (kind == FRAME_KERNEL);
}

static int add_other(struct profile *p, u32 *ret_frame)
{
	struct profile_function f = {};
	struct profile_frame frame = {.mapping = PROFILE_NONE, .kind = FRAME_UNKNOWN};
	int r = profile_add_string(p, QUERIER_OTHER, strlen(QUERIER_OTHER), &f.name);

	f.system_name = f.name;
	if (r == 0)
		r = profile_add_function(p, &f, &frame.function);
	return r < 0 ? r : profile_add_frame(p, &frame, ret_frame);
}

static int cutter_init(struct cutter *c)
{
	size_t n_frames = c->p->frames.n + 1;
	int r = 0;

	c->names = reallocarray(NULL, n_frames, sizeof(*c->names));
	if (!c->names)
		return -ENOMEM;
	memset(c->names, 0xff, n_frames * sizeof(*c->names));
	for (u32 i = 1; i < c->t->nodes.n && r == 0; i++) {
		const struct profile_node *n = &c->t->nodes.data[i];

		/* Only a node that stands for removed ones has no frame. */
		if (n->frame != PROFILE_NONE)
			r = map_put(&c->children, child_key(n->parent, n->name, n->kind), i);
	}
	return r < 0 ? r : add_other(c->p, &c->other);
}

static int name_of(struct cutter *c, u32 frame, u32 *ret)
{
	const char *name;
	int r = 0;

	if (c->names[frame] == PROFILE_NONE) {
		name = profile_frame_name(c->p, frame, &c->scratch);
		r = strtab_add(&c->t->strings, name, strlen(name), &c->names[frame]);
	}
	*ret = c->names[frame];
	return r;
}

/* How many of the stack's frames are removed, from the leaf on. */
static int count_removed(struct cutter *c, const struct profile_stack *s, u32 *ret)
{
	u32 node = 0, left = s->n;
	int r = quota_check(NULL);

	for (; left && r == 0; left--) {
		u32 name = 0, id = c->p->stack_frames.data[s->first + left - 1];
		const u64 *child;

		r = name_of(c, id, &name);
		child = map_get(&c->children, child_key(node, name, c->p->frames.data[id].kind));
		if (r < 0 || !child)
			break;
		node = (u32)*child;
	}
	*ret = left;
	return r;
}

static int cut_stack(struct cutter *c, u32 id, u32 *ret)
{
	const struct profile_stack s = c->p->stacks.data[id];
	u32 removed = 0;
	int r = count_removed(c, &s, &removed);

	*ret = id;
	if (r < 0 || !removed)
		return r;
	vec_clear(&c->frames);
	r = vec_push(&c->frames, c->other);
	for (u32 i = removed; i < s.n && r == 0; i++)
		r = vec_push(&c->frames, c->p->stack_frames.data[s.first + i]);
	return r < 0 ? r : profile_add_stack(c->p, c->frames.data, c->frames.n, ret);
}

static int cut_stacks(struct cutter *c)
{
	size_t n = c->p->stacks.n;
	_cleanup_free_ u32 *to = calloc(n + 1, sizeof(*to));
	int r = to ? 0 : -ENOMEM;

	for (u32 i = 0; i < n && r == 0; i++)
		r = cut_stack(c, i, &to[i]);
	for (size_t i = 0; i < c->p->n_samples && r == 0; i++) {
		struct profile_sample *s = (struct profile_sample *)profile_sample(c->p, i);

		s->stack = to[s->stack];
	}
	return r;
}

int querier_cut(struct profile *p, size_t max)
{
	static const struct profile_tree_options o = {.no_process = true};
	__attribute__((cleanup(cutter_deinit))) struct cutter c = {.p = p};
	_cleanup_profile_tree_ struct profile_tree *all = NULL;
	int r = profile_tree_build(p, &o, &all);

	/* The root is not one of Pyroscope's nodes. */
	if (r < 0 || all->nodes.n - 1 <= max)
		return r;
	r = api_tree_prune(all, max + 1, &c.t);
	if (r == 0)
		r = cutter_init(&c);
	return r < 0 ? r : cut_stacks(&c);
}
