/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long calls took, by snapshots of stacks (analyze.h).
 *
 * All estimates build a tree whose nodes are calls: a node is found by its parent and its frame,
 * and recursion is not folded. A stack is the path to its last node. A pair of snapshots shares the
 * nodes of the longest common beginning of their paths.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/analyze/analyze.h"

#define NOBODY (~0u)

struct node {
	u32 parent, frame;     /* parent: index, or NOBODY */
	u32 first, last, next; /* children, in the order in which they were found; a sibling */
	u32 depth;	       /* 1 = a root */
	u64 count;
	s64 total;
};

struct tree {
	struct map by_frame; /* parent and frame → index */
	vec(struct node) nodes;
	u32 first, last; /* roots */
};

static void tree_deinit(struct tree *t)
{
	map_deinit(&t->by_frame);
	vec_deinit(&t->nodes);
}
#define _cleanup_tree_ __attribute__((cleanup(tree_deinit)))
#define TREE_INIT                                                                                  \
	{                                                                                          \
		.first = NOBODY, .last = NOBODY                                                    \
	}

void analyze_snapshots_deinit(struct analyze_snapshots *s)
{
	vec_deinit(&s->list);
	vec_deinit(&s->frames);
}

void analyze_calls_deinit(struct analyze_calls *c)
{
	vec_deinit(&c->rows);
}

static int child_of(struct tree *t, u32 parent, u32 frame, u32 *ret)
{
	u64 key = (u64)(parent + 1) << 32 | frame;
	u64 *known = map_get(&t->by_frame, key);
	struct node new = {.parent = parent,
			   .frame = frame,
			   .first = NOBODY,
			   .last = NOBODY,
			   .next = NOBODY,
			   .depth = parent == NOBODY ? 1 : t->nodes.data[parent].depth + 1};
	u32 at = (u32)t->nodes.n, *first = &t->first, *last = &t->last;
	int r;

	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	r = map_put(&t->by_frame, key, at);
	if (r == 0)
		r = vec_push(&t->nodes, new);
	if (r < 0)
		return r;
	if (parent != NOBODY) {
		first = &t->nodes.data[parent].first;
		last = &t->nodes.data[parent].last;
	}
	if (*first == NOBODY)
		*first = at;
	else
		t->nodes.data[*last].next = at;
	*last = at;
	*ret = at;
	return 0;
}

/* Finds the last node of a stack; NOBODY for one without frames. */
static int path_of(struct tree *t, const struct analyze_snapshots *s,
		   const struct analyze_snapshot *e, u32 *ret)
{
	u32 at = NOBODY;
	int r = 0;

	for (u32 i = 0; i < e->n && r == 0; i++)
		r = child_of(t, at, s->frames.data[e->first + i], &at);
	*ret = at;
	return r;
}

static void add(struct tree *t, u32 leaf, u64 count, s64 total)
{
	for (; leaf != NOBODY; leaf = t->nodes.data[leaf].parent) {
		t->nodes.data[leaf].count += count;
		t->nodes.data[leaf].total += total;
	}
}

/* The last node that both paths have. */
static u32 common(const struct tree *t, u32 a, u32 b)
{
	while (a != b) {
		u32 depth_a = a == NOBODY ? 0 : t->nodes.data[a].depth;
		u32 depth_b = b == NOBODY ? 0 : t->nodes.data[b].depth;

		if (depth_a >= depth_b)
			a = t->nodes.data[a].parent;
		if (depth_b >= depth_a)
			b = t->nodes.data[b].parent;
	}
	return a;
}

/* ---- rows ---- */

static int put_node(const struct tree *t, u32 node, u32 id, u32 parent, struct analyze_calls *ret)
{
	const struct node *n = &t->nodes.data[node];
	struct analyze_call row = {.id = id,
				   .parent = parent,
				   .frame = n->frame,
				   .count = n->count,
				   .total_ns = n->total,
				   .self_ns = n->total};

	for (u32 c = n->first; c != NOBODY; c = t->nodes.data[c].next)
		row.self_ns -= t->nodes.data[c].total;
	return vec_push(&ret->rows, row);
}

/* order: room for the indexes of all nodes. */
static int put_tree(const struct tree *t, u32 root, u32 *order, struct analyze_calls *ret)
{
	size_t n = 0;
	int r;

	order[n++] = root;
	r = put_node(t, root, 1, 0, ret);
	for (size_t i = 0; i < n && r == 0; i++)
		for (u32 c = t->nodes.data[order[i]].first; c != NOBODY && r == 0;
		     c = t->nodes.data[c].next) {
			order[n++] = c;
			r = put_node(t, c, (u32)n, (u32)i + 1, ret);
		}
	return r;
}

static int put_trees(const struct tree *t, struct analyze_calls *ret)
{
	_cleanup_free_ u32 *order = calloc(t->nodes.n + 1, sizeof(*order));
	int r = order ? 0 : -ENOMEM;

	for (u32 root = t->first; root != NOBODY && r == 0; root = t->nodes.data[root].next)
		r = put_tree(t, root, order, ret);
	return r;
}

/* ---- SkyWalking's estimate ---- */

struct taken {
	u32 sequence;
	u32 at; /* in the snapshots */
	u32 leaf;
};
struct takens {
	vec(struct taken) list;
};

static int compare_taken(const void *a, const void *b)
{
	const struct taken *x = a, *y = b;

	if (x->sequence != y->sequence)
		return x->sequence < y->sequence ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

/* The numbers of the first snapshot in the range, and behind the last; false: there is none. */
static bool find_numbers(const struct analyze_snapshots *s, const struct analyze_range *r,
			 u64 *ret_lo, u64 *ret_hi)
{
	u64 lo = ~0ULL, hi = 0;

	for (size_t i = 0; i < s->list.n; i++) {
		const struct analyze_snapshot *e = &s->list.data[i];

		if (e->segment != r->segment || e->time_ns < r->from_ns || e->time_ns > r->to_ns)
			continue;
		lo = MIN(lo, (u64)e->sequence);
		hi = MAX(hi, (u64)e->sequence + 1);
	}
	*ret_lo = lo;
	*ret_hi = hi;
	return hi > 0;
}

/* Appends the range's snapshots with numbers that were not there before. */
static int take_range(const struct analyze_snapshots *s, const struct analyze_range *r, u64 max,
		      struct map *numbers, struct takens *all, u64 *found)
{
	size_t begin = all->list.n, kept = begin;
	u64 lo, hi;
	int e = 0;

	if (!find_numbers(s, r, &lo, &hi))
		return 0;
	*found += hi - lo;
	hi = MIN(hi, lo + max);
	for (size_t i = 0; i < s->list.n && e == 0; i++) {
		const struct analyze_snapshot *one = &s->list.data[i];

		if (one->segment == r->segment && one->sequence >= lo && one->sequence < hi)
			e = vec_push(&all->list, (struct taken){one->sequence, (u32)i, NOBODY});
	}
	if (e < 0 || all->list.n == begin)
		return e;
	qsort(all->list.data + begin, all->list.n - begin, sizeof(struct taken), compare_taken);
	for (size_t i = begin; i < all->list.n && e == 0; i++) {
		if (map_get(numbers, all->list.data[i].sequence))
			continue;
		e = map_put(numbers, all->list.data[i].sequence, 1);
		all->list.data[kept++] = all->list.data[i];
	}
	all->list.n = kept;
	return e;
}

static int build_compatible(const struct analyze_snapshots *s, struct takens *all, struct tree *t)
{
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; i < all->list.n && r == 0; i++) {
		struct taken *e = &all->list.data[i];

		r = path_of(t, s, &s->list.data[e->at], &e->leaf);
		if (r == 0 && e->leaf != NOBODY) {
			add(t, e->leaf, 1, 0);
			all->list.data[kept++] = *e;
		}
	}
	all->list.n = kept;
	if (r < 0 || !kept)
		return r;
	qsort(all->list.data, kept, sizeof(struct taken), compare_taken);
	for (size_t i = 1; i < kept; i++) {
		const struct taken *a = &all->list.data[i - 1], *b = &all->list.data[i];

		if (b->sequence - a->sequence == 1)
			add(t, common(t, a->leaf, b->leaf), 0,
			    (s64)(s->list.data[b->at].time_ns - s->list.data[a->at].time_ns));
	}
	return 0;
}

int analyze_skywalking(const struct analyze_snapshots *s, const struct analyze_range *ranges,
		       size_t n_ranges, u64 max, struct analyze_calls *ret)
{
	_cleanup_tree_ struct tree t = TREE_INIT;
	struct takens all = {};
	struct map numbers = {};
	int r = 0;

	for (size_t i = 0; i < n_ranges && r == 0; i++)
		r = take_range(s, &ranges[i], max, &numbers, &all, &ret->found);
	if (r == 0)
		r = build_compatible(s, &all, &t);
	if (r == 0)
		r = put_trees(&t, ret);
	map_deinit(&numbers);
	vec_deinit(&all.list);
	return r;
}

void analyze_skywalking_tip(const struct analyze_calls *c, u64 max, struct str *out)
{
	if (c->found > max)
		str_printf(out,
			   "Out of snapshot analyze limit, %llu snapshots found, but analysis "
			   "first %llu snapshots only.",
			   c->found, max);
}

/* ---- the unbiased estimate ---- */

static int compare_times(const void *a, const void *b)
{
	const struct analyze_snapshot *const *x = a, *const *y = b;

	if ((*x)->segment != (*y)->segment)
		return (*x)->segment < (*y)->segment ? -1 : 1;
	if ((*x)->time_ns != (*y)->time_ns)
		return (*x)->time_ns < (*y)->time_ns ? -1 : 1;
	return (*x)->sequence < (*y)->sequence ? -1 : (*x)->sequence > (*y)->sequence;
}

/* All snapshots by segment and time. The caller frees *ret. */
static int by_time(const struct analyze_snapshots *s, const struct analyze_snapshot ***ret)
{
	const struct analyze_snapshot **all = calloc(s->list.n + 1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < s->list.n; i++)
		all[i] = &s->list.data[i];
	if (s->list.n)
		qsort(all, s->list.n, sizeof(*all), compare_times);
	*ret = all;
	return 0;
}

static int compare_u64(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* The median time between two of n snapshots in a row, of the same segment. */
static int median_gap(const struct analyze_snapshot *const *list, size_t n, u64 *ret)
{
	_cleanup_free_ u64 *gaps = calloc(n + 1, sizeof(*gaps));
	size_t k = 0;

	if (!gaps)
		return -ENOMEM;
	for (size_t i = 1; i < n; i++)
		if (list[i]->segment == list[i - 1]->segment)
			gaps[k++] = list[i]->time_ns - list[i - 1]->time_ns;
	if (k)
		qsort(gaps, k, sizeof(*gaps), compare_u64);
	*ret = k ? gaps[k / 2] : 0;
	return 0;
}

int analyze_usual_gap(const struct analyze_snapshots *s, u64 *ret_ns)
{
	_cleanup_free_ const struct analyze_snapshot **all = NULL;
	int r = by_time(s, &all);

	return r < 0 ? r : median_gap(all, s->list.n, ret_ns);
}

static int compare_ranges(const void *a, const void *b)
{
	const struct analyze_range *x = a, *y = b;

	if (x->segment != y->segment)
		return x->segment < y->segment ? -1 : 1;
	return x->from_ns < y->from_ns ? -1 : x->from_ns > y->from_ns;
}

/* Ranges sorted, and merged where they overlap. */
static int merge_ranges(const struct analyze_range *ranges, size_t n, struct analyze_ranges *ret)
{
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		if (ranges[i].to_ns > ranges[i].from_ns)
			r = vec_push(&ret->list, ranges[i]);
	if (r < 0 || !ret->list.n)
		return r;
	qsort(ret->list.data, ret->list.n, sizeof(struct analyze_range), compare_ranges);
	for (size_t i = 1; i < ret->list.n; i++) {
		struct analyze_range *last = &ret->list.data[kept], *e = &ret->list.data[i];

		if (e->segment == last->segment && e->from_ns <= last->to_ns)
			last->to_ns = MAX(last->to_ns, e->to_ns);
		else
			ret->list.data[++kept] = *e;
	}
	ret->list.n = kept + 1;
	return 0;
}

/* How much of from..to is in the segment's ranges. */
static u64 overlap(const struct analyze_ranges *ranges, u32 segment, u64 from, u64 to)
{
	u64 sum = 0;

	for (size_t i = 0; i < ranges->list.n; i++) {
		const struct analyze_range *r = &ranges->list.data[i];
		u64 a = MAX(from, r->from_ns), b = MIN(to, r->to_ns);

		if (r->segment == segment && a < b)
			sum += b - a;
	}
	return sum;
}

static bool is_in(const struct analyze_ranges *ranges, u32 segment, u64 time_ns)
{
	return overlap(ranges, segment, time_ns, time_ns + 1) > 0;
}

struct unbiased {
	const struct analyze_snapshots *s;
	struct analyze_ranges ranges;
	u64 reach_ns;
	struct tree tree;
};

static int add_unsampled(struct unbiased *u, u64 ns)
{
	u32 node;
	int r = ns ? child_of(&u->tree, NOBODY, ANALYZE_NOT_SAMPLED, &node) : 0;

	if (r == 0 && ns)
		add(&u->tree, node, 0, (s64)ns);
	return r;
}

/* Gives the part of the segment between two times to a snapshot. */
static int give(struct unbiased *u, const struct analyze_snapshot *e, u64 from, u64 to)
{
	u64 ns = overlap(&u->ranges, e->segment, from, to);
	bool in = is_in(&u->ranges, e->segment, e->time_ns);
	u32 leaf = NOBODY;
	int r = ns || in ? path_of(&u->tree, u->s, e, &leaf) : 0;

	if (r == 0 && leaf == NOBODY)
		return add_unsampled(u, ns);
	if (r == 0)
		add(&u->tree, leaf, in, (s64)ns);
	return r;
}

static u64 middle(u64 a, u64 b)
{
	return a + (b - a) / 2;
}

static u64 clamp(u64 t, const struct analyze_range *extent)
{
	return MIN(MAX(t, extent->from_ns), MAX(extent->to_ns, extent->from_ns));
}

static int analyze_segment(struct unbiased *u, const struct analyze_range *extent,
			   const struct analyze_snapshot *const *list, size_t n)
{
	u64 from = extent->from_ns, to = MAX(extent->to_ns, from);
	int r;

	if (!n)
		return add_unsampled(u, overlap(&u->ranges, extent->segment, from, to));
	if (list[0]->time_ns > from && list[0]->time_ns - from > u->reach_ns)
		from = clamp(list[0]->time_ns - MIN(u->reach_ns / 4, list[0]->time_ns), extent);
	if (to > list[n - 1]->time_ns && to - list[n - 1]->time_ns > u->reach_ns)
		to = clamp(list[n - 1]->time_ns + u->reach_ns / 4, extent);
	r = add_unsampled(u, overlap(&u->ranges, extent->segment, extent->from_ns, from) +
				     overlap(&u->ranges, extent->segment, to, extent->to_ns));
	for (size_t i = 0; i < n && r == 0; i++) {
		u64 a = i ? middle(list[i - 1]->time_ns, list[i]->time_ns) : from;
		u64 b = i + 1 < n ? middle(list[i]->time_ns, list[i + 1]->time_ns) : to;

		r = give(u, list[i], clamp(a, extent), clamp(b, extent));
	}
	return r;
}

static int analyze_segments(struct unbiased *u, const struct analyze_range *extents, size_t n)
{
	_cleanup_free_ const struct analyze_snapshot **all = NULL;
	int r = by_time(u->s, &all);

	for (size_t i = 0; i < n && r == 0; i++) {
		size_t first = 0, end;

		while (first < u->s->list.n && all[first]->segment != extents[i].segment)
			first++;
		for (end = first; end < u->s->list.n; end++)
			if (all[end]->segment != extents[i].segment)
				break;
		r = analyze_segment(u, &extents[i], all + first, end - first);
	}
	return r;
}

int analyze_unbiased(const struct analyze_snapshots *s, const struct analyze_range *extents,
		     size_t n_extents, const struct analyze_range *ranges, size_t n_ranges,
		     u64 reach_ns, struct analyze_calls *ret)
{
	struct unbiased u = {.s = s, .reach_ns = reach_ns, .tree = TREE_INIT};
	int r = merge_ranges(ranges, n_ranges, &u.ranges);

	if (r == 0)
		r = analyze_segments(&u, extents, n_extents);
	if (r == 0)
		r = put_trees(&u.tree, ret);
	vec_deinit(&u.ranges.list);
	tree_deinit(&u.tree);
	return r;
}

/* ---- sums ---- */

int analyze_sum(const struct analyze_snapshots *s, struct analyze_calls *ret)
{
	_cleanup_tree_ struct tree t = TREE_INIT;
	int r = 0;

	for (size_t i = 0; i < s->list.n && r == 0; i++) {
		u32 leaf;

		r = path_of(&t, s, &s->list.data[i], &leaf);
		if (r == 0)
			add(&t, leaf, 1, s->list.data[i].value);
	}
	return r < 0 ? r : put_trees(&t, ret);
}

int analyze_without(const struct analyze_range *range, const struct analyze_range *children,
		    size_t n_children, struct analyze_ranges *ret)
{
	struct analyze_ranges merged = {};
	u64 at = range->from_ns;
	int r = merge_ranges(children, n_children, &merged);

	for (size_t i = 0; i < merged.list.n && r == 0; i++) {
		const struct analyze_range *c = &merged.list.data[i];

		if (c->segment != range->segment || c->to_ns <= at)
			continue;
		if (c->from_ns >= range->to_ns)
			break;
		if (c->from_ns > at)
			r = vec_push(&ret->list,
				     (struct analyze_range){range->segment, at, c->from_ns});
		at = c->to_ns;
	}
	if (r == 0 && at < range->to_ns)
		r = vec_push(&ret->list, (struct analyze_range){range->segment, at, range->to_ns});
	vec_deinit(&merged.list);
	return r;
}
