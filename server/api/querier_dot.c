/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree as a call graph in Graphviz' language: one node for each function, with its own value and
 * that of everything below it, and one edge for each pair of caller and callee. The functions with
 * the largest totals are kept. A dashed edge leads through functions that were removed.
 *
 * A recursive function counts once per stack.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "server/api/querier.h"

struct function {
	s64 self, total;
	u32 open;  /* frames of it on the path */
	u32 place; /* 1 = the largest total; 0 = removed */
};

struct edge {
	u32 from, to;
	s64 value;
	u32 open;
	bool through; /* removed functions */
};

struct call_graph {
	const struct profile_tree *t;
	struct function *functions; /* owned; by name id, like the others */
	vec(struct edge) edges;
	struct map known; /* from and to → index of the edge + 1 */
};

/* A node of the tree whose descendants are being visited. */
struct step {
	u32 node;
	u32 caller; /* the nearest function that was kept, this one or above; 0 = none */
	u32 edge;   /* index + 1 of the edge to it */
	bool through;
};

struct path {
	vec(struct step) steps;
};

static void call_graph_deinit(struct call_graph *g)
{
	free(g->functions);
	vec_deinit(&g->edges);
	map_deinit(&g->known);
}

static int find_edge(struct call_graph *g, u32 from, u32 to, u32 *ret)
{
	u64 key = (u64)from << 32 | to, *known = map_get(&g->known, key);
	int r = 0;

	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	r = vec_push(&g->edges, (struct edge){.from = from, .to = to});
	*ret = (u32)g->edges.n;
	return r < 0 ? r : map_put(&g->known, key, g->edges.n);
}

static void leave(struct call_graph *g, const struct step *s)
{
	g->functions[g->t->nodes.data[s->node].name].open--;
	if (s->edge)
		g->edges.data[s->edge - 1].open--;
}

/* Counts a node of a kept function for the edge from its caller. */
static int count_edge(struct call_graph *g, const struct profile_node *n, const struct step *above,
		      struct step *s)
{
	struct edge *e;
	int r;

	s->caller = above ? above->caller : 0;
	s->through = above && above->through;
	if (!g->functions[n->name].place) {
		s->through = s->caller != 0;
		return 0;
	}
	s->caller = n->name;
	s->through = false;
	if (!above || !above->caller)
		return 0;
	r = find_edge(g, above->caller, n->name, &s->edge);
	if (r < 0)
		return r;
	e = &g->edges.data[s->edge - 1];
	e->through |= above->through;
	if (!e->open++)
		e->value += n->total;
	return 0;
}

/* Visits the nodes with the path to each. First it adds up functions, then edges. */
static int walk(struct call_graph *g, bool edges)
{
	const struct profile_node *nodes = g->t->nodes.data;
	struct path path = {};
	int r = 0;

	for (u32 i = 1; i < g->t->nodes.n && r == 0; i++) {
		struct function *f = &g->functions[nodes[i].name];
		struct step s = {.node = i}, *above;

		while (path.steps.n && path.steps.data[path.steps.n - 1].node != nodes[i].parent)
			leave(g, &path.steps.data[--path.steps.n]);
		above = path.steps.n ? &path.steps.data[path.steps.n - 1] : NULL;
		if (edges)
			r = count_edge(g, &nodes[i], above, &s);
		else
			f->self += nodes[i].self;
		if (!f->open++ && !edges)
			f->total += nodes[i].total;
		if (r == 0)
			r = vec_push(&path.steps, s);
	}
	while (path.steps.n)
		leave(g, &path.steps.data[--path.steps.n]);
	vec_deinit(&path.steps);
	return r;
}

struct ranked {
	s64 total;
	u32 name;
};

static int compare_ranked(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->total != y->total)
		return x->total > y->total ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

/* Places the functions by their totals; ret: names by place - 1, owned. */
static int rank(struct call_graph *g, size_t max, struct ranked **ret, size_t *ret_n)
{
	struct ranked *list = calloc(g->t->strings.n + 1, sizeof(*list));
	size_t n = 0;

	if (!list)
		return -ENOMEM;
	for (u32 i = 0; i < g->t->strings.n; i++)
		if (g->functions[i].total)
			list[n++] = (struct ranked){g->functions[i].total, i};
	qsort(list, n, sizeof(*list), compare_ranked);
	n = MIN(n, max);
	for (size_t i = 0; i < n; i++)
		g->functions[list[i].name].place = (u32)i + 1;
	*ret = list;
	*ret_n = n;
	return 0;
}

static void put_share(struct str *out, s64 value, s64 all)
{
	str_printf(out, "%lld (%.2f%%)", (long long)value,
		   all ? 100 * (double)value / (double)all : 0);
}

static void put_graph(const struct call_graph *g, const struct ranked *list, size_t n,
		      const char *unit, struct str *out)
{
	s64 all = g->t->nodes.data[0].total;

	str_printf(out, "digraph {\nnode [shape=box]\nlabel=");
	{
		_cleanup_str_ struct str text = {};

		str_printf(&text, "total %lld %s; %zu of the functions", (long long)all, unit, n);
		text_append_json(out, str_get(&text));
	}
	str_putc(out, '\n');
	for (size_t i = 0; i < n; i++) {
		const struct function *f = &g->functions[list[i].name];

		/* A string of JSON is one of Graphviz' language, too. */
		str_printf(out, "N%zu [label=", i + 1);
		text_append_json(out, strtab_get(&g->t->strings, list[i].name));
		str_printf(out, " tooltip=\"self ");
		put_share(out, f->self, all);
		str_printf(out, ", total ");
		put_share(out, f->total, all);
		str_printf(out, "\"]\n");
	}
	for (size_t i = 0; i < g->edges.n; i++) {
		const struct edge *e = &g->edges.data[i];

		str_printf(out, "N%u -> N%u [label=\"", g->functions[e->from].place,
			   g->functions[e->to].place);
		put_share(out, e->value, all);
		str_printf(out, e->through ? "\" style=dashed]\n" : "\"]\n");
	}
	str_printf(out, "}\n");
}

int querier_dot(const struct profile_tree *t, size_t max, const char *unit, struct str *out)
{
	__attribute__((cleanup(call_graph_deinit))) struct call_graph g = {.t = t};
	_cleanup_free_ struct ranked *list = NULL;
	size_t n = 0;
	int r;

	if (t->nodes.n < 2)
		return 0;
	g.functions = calloc(t->strings.n + 1, sizeof(*g.functions));
	r = g.functions ? walk(&g, false) : -ENOMEM;
	if (r == 0)
		r = rank(&g, max, &list, &n);
	if (r == 0)
		r = walk(&g, true);
	if (r == 0)
		put_graph(&g, list, n, unit, out);
	return r == 0 && out->failed ? -ENOMEM : r;
}
