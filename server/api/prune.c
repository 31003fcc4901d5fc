/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/internal.h"

const char api_other[] = "[other]";

static s64 weight(const struct profile_node *n)
{
	return MAX(n->total, n->base_total);
}

static int by_falling_total(const void *a, const void *b)
{
	s64 x = *(const s64 *)a, y = *(const s64 *)b;

	return x > y ? -1 : x < y;
}

/*
 * Nodes that weigh more than *ret_least are kept, and the first *ret_ties of those that weigh
 * exactly as much. In this order parents come before their children.
 */
static int threshold(const struct profile_tree *t, size_t max, s64 *ret_least, size_t *ret_ties)
{
	s64 *all = calloc(t->nodes.n + 1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < t->nodes.n; i++)
		all[i] = weight(&t->nodes.data[i]);
	qsort(all, t->nodes.n, sizeof(*all), by_falling_total);
	*ret_least = all[max];
	*ret_ties = 0;
	for (size_t i = max; i > 0 && all[i - 1] == *ret_least; i--)
		++*ret_ties;
	free(all);
	return 0;
}

struct pruner {
	const struct profile_tree *from;
	struct profile_tree *to; /* owned */
	s64 least;
	size_t ties;
	u32 other; /* name */
};

static bool is_kept(struct pruner *w, const struct profile_node *n)
{
	if (weight(n) != w->least)
		return weight(n) > w->least;
	return w->ties ? w->ties-- > 0 : false;
}

/* The sum of a node's removed children. */
struct rest {
	s64 total, base_total;
};

static int push_other(struct pruner *w, u32 parent, const struct rest *rest)
{
	struct profile_node n = {.name = w->other,
				 .parent = parent,
				 .frame = PROFILE_NONE,
				 .self = rest->total,
				 .total = rest->total,
				 .base_self = rest->base_total,
				 .base_total = rest->base_total,
				 .kind = FRAME_NOTE,
				 .level = PROFILE_LEVEL_FRAME};

	return rest->total || rest->base_total ? vec_push(&w->to->nodes, n) : 0;
}

static int keep_node(struct pruner *w, u32 id, u32 parent, u32 *ret)
{
	struct profile_node n = w->from->nodes.data[id];
	const char *name = strtab_get(&w->from->strings, n.name);
	int r = strtab_add(&w->to->strings, name, strlen(name), &n.name);

	if (r < 0)
		return r;
	n.parent = parent;
	n.n_below = 0;
	*ret = (u32)w->to->nodes.n;
	return vec_push(&w->to->nodes, n);
}

/*
 * A kept node whose descendants are being copied: its ids in both trees, and the sum of its removed
 * children.
 */
struct open_node {
	u32 from, to;
	struct rest rest;
};

struct open_nodes {
	vec(struct open_node) list;
};

static int leave_node(struct pruner *w, struct open_nodes *open)
{
	struct open_node *o = &open->list.data[open->list.n - 1];
	int r = push_other(w, o->to, &o->rest);

	w->to->nodes.data[o->to].n_below = (u32)(w->to->nodes.n - o->to - 1);
	open->list.n--;
	return r;
}

static int walk_tree(struct pruner *w, struct open_nodes *open)
{
	const struct profile_node *nodes = w->from->nodes.data;
	int r = 0;

	for (u32 i = 0; i < w->from->nodes.n && r == 0;) {
		struct open_node o = {.from = i};

		while (r == 0 && open->list.n &&
		       i > open->list.data[open->list.n - 1].from +
				       nodes[open->list.data[open->list.n - 1].from].n_below)
			r = leave_node(w, open);
		if (r < 0)
			break;
		if (!is_kept(w, &nodes[i]) && i) {
			struct rest *rest = &open->list.data[open->list.n - 1].rest;

			rest->total += nodes[i].total;
			rest->base_total += nodes[i].base_total;
			i += nodes[i].n_below + 1;
			continue;
		}
		r = keep_node(w, i, open->list.n ? open->list.data[open->list.n - 1].to : 0, &o.to);
		if (r == 0)
			r = vec_push(&open->list, o);
		i++;
	}
	while (r == 0 && open->list.n)
		r = leave_node(w, open);
	return r;
}

int api_tree_prune(const struct profile_tree *t, size_t max, struct profile_tree **ret)
{
	_cleanup_profile_tree_ struct profile_tree *to = calloc(1, sizeof(*to));
	struct pruner w = {.from = t, .to = to, .least = INT64_MIN};
	struct open_nodes open = {};
	int r;

	if (!to)
		return -ENOMEM;
	r = strtab_init(&to->strings);
	if (r == 0)
		r = strtab_add(&to->strings, api_other, strlen(api_other), &w.other);
	if (r == 0 && t->nodes.n > max)
		r = threshold(t, max, &w.least, &w.ties);
	if (r == 0)
		r = walk_tree(&w, &open);
	vec_deinit(&open.list);
	if (r < 0)
		return r;
	to->depth = t->depth;
	to->has_base = t->has_base;
	*ret = take_ptr(to);
	return 0;
}
