/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries of Pyroscope that return stacks. Its flame graph is a list of levels, from the root down.
 * Each bar of a level is four numbers: the distance to the bar left of it, total, self and name. A
 * diff has seven: three for each side, and the name.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/pb.h"
#include "base/pbjson.h"
#include "compress/compress.h"
#include "server/api/querier.h"

#define PPROF_BYTES (1ULL << 30)

struct graph {
	struct arena *a;
	const struct profile_tree *t;
	u32 depth;
	u32 width; /* numbers a bar: 4 or 7 */
	Pyroscope__Level **levels;
	size_t *caps;
	/* For each depth and side: where the next child begins, and where the last bar ended. */
	s64 *next[2], *end[2];
	s64 max_self;
};

static int graph_init(struct graph *g)
{
	size_t n;

	/* The number of levels of the tree, which may be pruned. */
	g->depth = g->t->depth + 2;
	n = g->depth + 1;
	g->levels = arena_calloc(g->a, n, sizeof(*g->levels));
	g->caps = arena_calloc(g->a, n, sizeof(*g->caps));
	for (int i = 0; i < 2; i++) {
		g->next[i] = arena_calloc(g->a, n, sizeof(s64));
		g->end[i] = arena_calloc(g->a, n, sizeof(s64));
		if (!g->next[i] || !g->end[i])
			return -ENOMEM;
	}
	return g->levels && g->caps ? 0 : -ENOMEM;
}

static int push(struct graph *g, u32 depth, const s64 *values)
{
	Pyroscope__Level *l = g->levels[depth];
	size_t cap = g->caps[depth];

	if (!l) {
		l = arena_alloc(g->a, sizeof(*l));
		if (!l)
			return -ENOMEM;
		pyroscope__level__init(l);
		g->levels[depth] = l;
	}
	if (l->n_values + g->width > cap) {
		int64_t *more;

		cap = cap * 2 + 8 * g->width;
		more = arena_calloc(g->a, cap, sizeof(s64));
		if (!more)
			return -ENOMEM;
		if (l->n_values)
			memcpy(more, l->values, l->n_values * sizeof(s64));
		l->values = more;
		g->caps[depth] = cap;
	}
	memcpy(l->values + l->n_values, values, g->width * sizeof(s64));
	l->n_values += g->width;
	return 0;
}

/* The distance of a bar of one side to the end of the bar left of it. */
static s64 place_bar(struct graph *g, int side, u32 depth, s64 total, s64 self)
{
	s64 x = depth ? g->next[side][depth] : 0, gap = x - g->end[side][depth];

	g->next[side][depth] = x + total;
	g->end[side][depth] = x + total;
	g->next[side][depth + 1] = x + self;
	return gap;
}

static int add_node(struct graph *g, u32 id, u32 depth)
{
	const struct profile_node *n = &g->t->nodes.data[id];
	/* Pyroscope's clients expect their own name for the root. */
	s64 v[7], name = id ? (s64)n->name : 0;

	if (g->width == 4) {
		v[0] = place_bar(g, 0, depth, n->total, n->self);
		v[1] = n->total;
		v[2] = n->self;
		v[3] = name;
	} else {
		v[0] = place_bar(g, 0, depth, n->base_total, n->base_self);
		v[1] = n->base_total;
		v[2] = n->base_self;
		v[3] = place_bar(g, 1, depth, n->total, n->self);
		v[4] = n->total;
		v[5] = n->self;
		v[6] = name;
	}
	g->max_self = MAX(g->max_self, n->self);
	g->max_self = MAX(g->max_self, n->base_self);
	return push(g, depth, v);
}

static int build_levels(struct graph *g)
{
	const struct profile_node *nodes = g->t->nodes.data;
	_cleanup_free_ u32 *depths = calloc(g->t->nodes.n + 1, sizeof(*depths));
	int r = depths ? graph_init(g) : -ENOMEM;

	for (u32 i = 0; i < g->t->nodes.n && r == 0; i++) {
		depths[i] = i ? depths[nodes[i].parent] + 1 : 0;
		r = depths[i] + 1 < g->depth + 1 ? add_node(g, i, depths[i]) : -EINVAL;
	}
	return r;
}

static size_t n_levels(const struct graph *g)
{
	size_t n = 0;

	while (n <= g->depth && g->levels[n])
		n++;
	return n;
}

/* Ids stay the same. 0, which no frame has, becomes the id of the root. */
static char **names(struct graph *g)
{
	char **list = arena_calloc(g->a, g->t->strings.n + 1, sizeof(*list));

	for (u32 i = 0; list && i < g->t->strings.n; i++)
		list[i] = (char *)strtab_get(&g->t->strings, i);
	if (list)
		list[0] = (char *)"total";
	return list;
}

/* ---- requests ---- */

static int check_selectors(struct api_call *c, size_t profiles, size_t traces, size_t spans,
			   const Pyroscope__StackTraceSelector *s)
{
	if (profiles || traces || spans)
		return diag_set(&c->d, -ENOSYS,
				"profiles, traces and spans cannot be selected here yet");
	if (s && s->n_call_site)
		return diag_set(&c->d, -ENOSYS, "call sites cannot be selected here yet");
	return 0;
}

static int get_profile(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
		       struct profile **ret)
{
	_cleanup_query_ struct query q = {};
	int r = check_selectors(c, in->n_profile_id_selector, in->n_trace_id_selector,
				in->n_span_selector, in->stack_trace_selector);

	if (r == 0)
		r = querier_query(c, in->profile_typeid, in->label_selector, in->start, in->end,
				  &q);
	return r < 0 ? r : query_profile(c->a->o.store, &q, API_MAX_STACKS, ret, &c->d);
}

static int get_tree(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
		    struct profile_tree **ret)
{
	const struct profile_tree_options o = {.no_process = true};
	_cleanup_profile_ struct profile *p = NULL;
	int r = get_profile(c, in, &p);

	return r < 0 ? r : profile_tree_build(p, &o, ret);
}

static size_t max_nodes(s64 asked)
{
	return asked > 0 ? (size_t)MIN(asked, (s64)API_MAX_NODES) : QUERIER_DEFAULT_NODES;
}

/* Decodes the output of pprof_write() into a message, which is the answer. */
static int pprof_message(struct api_call *c, const struct profile *p, struct arena *a,
			 Pprof__Profile **ret)
{
	const struct profile_write_options o = {};
	_cleanup_str_ struct str packed = {}, plain = {};
	int r = profile_format_by_name("pprof")->write(p, &o, &packed, &c->d);

	if (r == 0)
		r = gzip_inflate((const u8 *)str_get(&packed), packed.n, PPROF_BYTES, &plain,
				 &c->d);
	if (r == 0)
		r = pb_unpack(&pprof__profile__descriptor, "pprof data",
			      (const u8 *)str_get(&plain), plain.n, a, (ProtobufCMessage **)ret,
			      &c->d);
	return r;
}

static int answer_graph(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
			struct arena *a)
{
	Pyroscope__SelectMergeStacktracesResponse out =
		PYROSCOPE__SELECT_MERGE_STACKTRACES_RESPONSE__INIT;
	Pyroscope__FlameGraph flame = PYROSCOPE__FLAME_GRAPH__INIT;
	_cleanup_profile_tree_ struct profile_tree *all = NULL, *t = NULL;
	struct graph g = {.a = a, .width = 4};
	int r = get_tree(c, in, &all);

	if (r == 0)
		r = api_tree_prune(all, max_nodes(in->max_nodes), &t);
	g.t = t;
	if (r == 0)
		r = build_levels(&g);
	if (r < 0)
		return r;
	flame.names = names(&g);
	flame.n_names = t->strings.n;
	flame.levels = g.levels;
	flame.n_levels = n_levels(&g);
	flame.total = t->nodes.data[0].total;
	flame.max_self = g.max_self;
	out.flamegraph = &flame;
	return flame.names ? querier_answer(c, &out.base) : -ENOMEM;
}

static int answer_pprof(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
			struct arena *a)
{
	Pyroscope__SelectMergeStacktracesResponse out =
		PYROSCOPE__SELECT_MERGE_STACKTRACES_RESPONSE__INIT;
	Pyroscope__PprofProfile pprof = PYROSCOPE__PPROF_PROFILE__INIT;
	_cleanup_profile_ struct profile *p = NULL;
	int r = get_profile(c, in, &p);

	if (r == 0)
		r = pprof_message(c, p, a, &pprof.profile);
	out.pprof = &pprof;
	return r < 0 ? r : querier_answer(c, &out.base);
}

int querier_stacktraces(struct api_call *c)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	Pyroscope__SelectMergeStacktracesRequest *in = NULL;
	int r = querier_request(c, &pyroscope__select_merge_stacktraces_request__descriptor, &a,
				&in);

	if (r < 0)
		return r;
	switch (in->format) {
	case PYROSCOPE__PROFILE_FORMAT__PROFILE_FORMAT_UNSPECIFIED:
	case PYROSCOPE__PROFILE_FORMAT__PROFILE_FORMAT_FLAMEGRAPH:
		return answer_graph(c, in, &a);
	case PYROSCOPE__PROFILE_FORMAT__PROFILE_FORMAT_PPROF:
		return answer_pprof(c, in, &a);
	default:
		return diag_set(&c->d, -ENOSYS, "formats here are flame graphs and pprof");
	}
}

int querier_profile(struct api_call *c)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	Pyroscope__SelectMergeProfileRequest *in = NULL;
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_query_ struct query q = {};
	Pprof__Profile *m = NULL;
	int r = querier_request(c, &pyroscope__select_merge_profile_request__descriptor, &a, &in);

	if (r == 0)
		r = check_selectors(c, in->n_profile_id_selector, in->n_trace_id_selector, 0,
				    in->stack_trace_selector);
	if (r == 0)
		r = querier_query(c, in->profile_typeid, in->label_selector, in->start, in->end,
				  &q);
	if (r == 0)
		r = query_profile(c->a->o.store, &q, API_MAX_STACKS, &p, &c->d);
	if (r == 0)
		r = pprof_message(c, p, &a, &m);
	return r < 0 ? r : querier_answer(c, &m->base);
}

int querier_diff(struct api_call *c)
{
	_cleanup_profile_tree_ struct profile_tree *left = NULL, *right = NULL;
	_cleanup_profile_tree_ struct profile_tree *all = NULL, *t = NULL;
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	Pyroscope__DiffResponse out = PYROSCOPE__DIFF_RESPONSE__INIT;
	Pyroscope__FlameGraphDiff flame = PYROSCOPE__FLAME_GRAPH_DIFF__INIT;
	struct graph g = {.a = &a, .width = 7};
	Pyroscope__DiffRequest *in = NULL;
	int r = querier_request(c, &pyroscope__diff_request__descriptor, &a, &in);

	if (r == 0 && (!in->left || !in->right))
		r = diag_set(&c->d, -EINVAL, "a diff has a left and a right side");
	if (r == 0)
		r = get_tree(c, in->left, &left);
	if (r == 0)
		r = get_tree(c, in->right, &right);
	if (r == 0)
		r = profile_tree_diff(left, right, &all);
	if (r == 0)
		r = api_tree_prune(all, max_nodes(in->left->max_nodes), &t);
	g.t = t;
	if (r == 0)
		r = build_levels(&g);
	if (r < 0)
		return r;
	flame.names = names(&g);
	flame.n_names = t->strings.n;
	flame.levels = g.levels;
	flame.n_levels = n_levels(&g);
	flame.leftticks = t->nodes.data[0].base_total;
	flame.rightticks = t->nodes.data[0].total;
	flame.total = flame.leftticks + flame.rightticks;
	flame.max_self = g.max_self;
	out.flamegraph = &flame;
	return flame.names ? querier_answer(c, &out.base) : -ENOMEM;
}
