/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries of Pyroscope that return stacks. Its flame graph is a list of levels, from the root down.
 * Each bar of a level is four numbers: the distance to the bar left of it, total, self and name. A
 * diff has seven: three for each side, and the name.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pb.h"
#include "base/text.h"
#include "compress/compress.h"
#include "server/api/querier.h"

#define PPROF_BYTES (1ULL << 30)
#define DOT_NODES 100
#define MAX_PROFILES 1000 /* in a selector; each is a scan */

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

/*
 * Ids stay the same. 0, which no frame has, becomes the id of the root. Clients know removed nodes
 * by Pyroscope's name for them.
 */
static char **names(struct graph *g)
{
	char **list = arena_calloc(g->a, g->t->strings.n + 1, sizeof(*list));

	for (u32 i = 1; list && i < g->t->strings.n; i++) {
		const char *name = strtab_get(&g->t->strings, i);

		if (!strcmp(name, api_other))
			name = QUERIER_OTHER;
		list[i] = querier_text(g->a, name, strlen(name));
		if (!list[i])
			return NULL;
	}
	if (list)
		list[0] = (char *)"total";
	return list;
}

/* ---- selectors ---- */

int querier_call_site(const Pyroscope__StackTraceSelector *s, struct arena *a, struct query *q)
{
	char **list;

	if (!s || s->go_pgo || !s->n_call_site)
		return 0;
	list = arena_calloc(a, s->n_call_site, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_call_site; i++)
		list[i] = s->call_site[i]->name;
	q->call_site = list;
	q->n_call_site = s->n_call_site;
	return 0;
}

static int compare_bytes(const void *a, const void *b, void *n)
{
	return memcmp(a, b, *(const size_t *)n);
}

/* Decodes ids of `size` bytes, and sorts them. what: "a trace". */
static int read_ids(struct api_call *c, const char *what, char *const *ids, size_t n, size_t size,
		    struct arena *a, u8 **ret)
{
	u8 *list = arena_calloc(a, n + 1, size);

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (!text_unhex(ids[i], size, list + i * size))
			return diag_set(&c->d, -EINVAL, "%.40s: %s id is %zu hex digits", ids[i],
					what, 2 * size);
	qsort_r(list, n, size, compare_bytes, &size);
	*ret = list;
	return 0;
}

/* Samples of listed spans, or of listed traces. */
static int select_spans(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
			struct arena *a, struct query_spans *s)
{
	u8 *list = NULL;
	int r;

	s->of = QUERY_OF_LISTED;
	s->n_spans = in->n_span_selector;
	s->n_traces = in->n_trace_id_selector;
	if (s->n_spans) {
		r = read_ids(c, "a span", in->span_selector, s->n_spans, 8, a, &list);
		s->spans = (const u8(*)[8])list;
	} else {
		r = read_ids(c, "a trace", in->trace_id_selector, s->n_traces, 16, a, &list);
		s->traces = (const u8(*)[16])list;
	}
	return r;
}

static int select_profiles(struct api_call *c, char *const *ids, size_t n, struct arena *a,
			   struct query *q)
{
	struct query_moment *list = arena_calloc(a, n + 1, sizeof(*list));

	if (!list)
		return -ENOMEM;
	if (n > MAX_PROFILES)
		return diag_set(&c->d, -EINVAL, "at most %d profile ids", MAX_PROFILES);
	for (size_t i = 0; i < n; i++)
		if (!querier_parse_id(ids[i], &list[i]))
			return diag_set(&c->d, -EINVAL, "%.40s: a profile id is a UUID", ids[i]);
	q->moments = list;
	q->n_moments = n;
	return 0;
}

/*
 * A request of any of the calls that return stacks, as one of SelectMergeStacktraces. The ids of
 * the query are in the arena.
 */
static int read_selection(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
			  struct arena *a, struct query *q)
{
	int r = 0;

	if (!!in->n_span_selector + !!in->n_trace_id_selector + !!in->n_profile_id_selector > 1)
		return diag_set(&c->d, -EINVAL,
				"select by spans, by traces or by profiles, one of them");
	if (in->n_span_selector || in->n_trace_id_selector)
		r = select_spans(c, in, a, &q->spans);
	if (r == 0 && in->n_profile_id_selector)
		r = select_profiles(c, in->profile_id_selector, in->n_profile_id_selector, a, q);
	if (r == 0)
		r = querier_call_site(in->stack_trace_selector, a, q);
	return r < 0 ? r
		     : querier_query(c, in->profile_typeid, in->label_selector, in->start, in->end,
				     q);
}

/* ---- what requests ask for ---- */

static int get_tree(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
		    struct arena *a, struct profile_tree **ret)
{
	const struct profile_tree_options o = {.no_process = true};
	_cleanup_query_ struct query q = {};
	_cleanup_profile_ struct profile *p = NULL;
	int r = read_selection(c, in, a, &q);

	if (r == 0)
		r = query_profile(c->a->o.store, &q, API_MAX_STACKS, &p, &c->d);
	return r < 0 ? r : profile_tree_build(p, &o, ret);
}

/* Pyroscope counts the root among the nodes of a diff only. */
static int prune(struct api_call *c, const struct profile_tree *t, s64 asked,
		 struct profile_tree **ret)
{
	bool root = !t->has_base;

	if (asked < 0 || asked > QUERIER_MAX_NODES)
		return diag_set(&c->d, -EINVAL, "maxNodes: 0 for %d, or up to %d",
				QUERIER_DEFAULT_NODES, QUERIER_MAX_NODES);
	return api_tree_prune(t, (asked ? (size_t)asked : QUERIER_DEFAULT_NODES) + root, ret);
}

int querier_graph_of(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
		     struct arena *a, Pyroscope__FlameGraph *ret)
{
	_cleanup_profile_tree_ struct profile_tree *all = NULL, *t = NULL;
	struct graph g = {.a = a, .width = 4};
	int r = get_tree(c, in, a, &all);

	if (r == 0)
		r = prune(c, all, in->max_nodes, &t);
	g.t = t;
	if (r == 0)
		r = build_levels(&g);
	if (r < 0)
		return r;
	ret->names = names(&g);
	ret->n_names = t->strings.n;
	ret->levels = g.levels;
	ret->n_levels = n_levels(&g);
	ret->total = t->nodes.data[0].total;
	ret->max_self = g.max_self;
	return ret->names ? 0 : -ENOMEM;
}

int querier_diff_of(struct api_call *c, const Pyroscope__DiffRequest *in, struct arena *a,
		    Pyroscope__FlameGraphDiff *ret)
{
	_cleanup_profile_tree_ struct profile_tree *left = NULL, *right = NULL;
	_cleanup_profile_tree_ struct profile_tree *all = NULL, *t = NULL;
	struct graph g = {.a = a, .width = 7};
	int r = 0;

	if (!in->left || !in->right)
		return diag_set(&c->d, -EINVAL, "a diff has a left and a right side");
	r = get_tree(c, in->left, a, &left);
	if (r == 0)
		r = get_tree(c, in->right, a, &right);
	if (r == 0)
		r = profile_tree_diff(left, right, &all);
	if (r == 0)
		r = prune(c, all, MAX(in->left->max_nodes, in->right->max_nodes), &t);
	g.t = t;
	if (r == 0)
		r = build_levels(&g);
	if (r < 0)
		return r;
	ret->names = names(&g);
	ret->n_names = t->strings.n;
	ret->levels = g.levels;
	ret->n_levels = n_levels(&g);
	ret->leftticks = t->nodes.data[0].base_total;
	ret->rightticks = t->nodes.data[0].total;
	ret->total = ret->leftticks + ret->rightticks;
	ret->max_self = g.max_self;
	return ret->names ? 0 : -ENOMEM;
}

int querier_dot_of(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
		   struct str *out)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	_cleanup_profile_tree_ struct profile_tree *t = NULL;
	const char *unit = in->profile_typeid;
	char text[64];
	int r = get_tree(c, in, &a, &t);

	/* The third part of the type. */
	for (u32 i = 0; i < 2; i++)
		unit += strcspn(unit, ":") + (unit[strcspn(unit, ":")] == ':');
	snprintf(text, sizeof(text), "%.*s", (int)strcspn(unit, ":"), unit);
	return r < 0 ? r
		     : querier_dot(t, in->max_nodes > 0 ? (size_t)in->max_nodes : DOT_NODES, text,
				   out);
}

/* ---- trees ---- */

static void put_varint(struct str *out, u64 v)
{
	for (; v >= 0x80; v >>= 7)
		str_putc(out, (char)(v | 0x80));
	str_putc(out, (char)v);
}

/* Pyroscope's bytes: name, self and number of children of each node, parents first. */
static int tree_bytes(const struct profile_tree *t, struct str *out)
{
	_cleanup_free_ u32 *children = calloc(t->nodes.n + 1, sizeof(*children));

	if (!children)
		return -ENOMEM;
	for (size_t i = 1; i < t->nodes.n; i++)
		children[t->nodes.data[i].parent]++;
	for (size_t i = 0; i < t->nodes.n && t->nodes.n > 1; i++) {
		const struct profile_node *n = &t->nodes.data[i];
		const char *name = i ? strtab_get(&t->strings, n->name) : "";

		if (!strcmp(name, api_other))
			name = QUERIER_OTHER;
		put_varint(out, strlen(name));
		str_append(out, name, strlen(name));
		put_varint(out, n->self > 0 ? (u64)n->self : 0);
		put_varint(out, children[i]);
	}
	return out->failed ? -ENOMEM : 0;
}

static int get_tree_bytes(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
			  struct arena *a, struct str *out)
{
	_cleanup_profile_tree_ struct profile_tree *all = NULL, *t = NULL;
	int r = get_tree(c, in, a, &all);

	if (r == 0)
		r = prune(c, all, in->max_nodes, &t);
	return r < 0 ? r : tree_bytes(t, out);
}

/* ---- pprof ---- */

/*
 * For Go's profile-guided optimisation: keeps the locations next to the leaf; aggregate_callees
 * drops the leaf's line. Inlined frames belong to the location of the frame that holds them.
 */
static int cut_for_pgo(struct profile *p, const Pyroscope__GoPGO *pgo)
{
	int r = 0;

	for (size_t i = 0; i < p->stacks.n && r == 0; i++) {
		struct profile_stack *s = &p->stacks.data[i];
		u32 *frames = p->stack_frames.data + s->first, n = 0, locations = 0;
		struct profile_frame leaf;

		while (n < s->n && locations < pgo->keep_locations)
			locations += !(p->frames.data[frames[n++]].flags & PROFILE_FRAME_INLINED);
		if (pgo->keep_locations)
			s->n = n;
		if (!pgo->aggregate_callees || !s->n)
			continue;
		leaf = p->frames.data[frames[0]];
		leaf.line = leaf.column = 0;
		r = profile_add_frame(p, &leaf, &frames[0]);
	}
	return r;
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

static int get_pprof(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
		     struct arena *a, Pprof__Profile **ret)
{
	_cleanup_query_ struct query q = {};
	_cleanup_profile_ struct profile *p = NULL;
	int r = read_selection(c, in, a, &q);

	if (r == 0)
		r = query_profile(c->a->o.store, &q, API_MAX_STACKS, &p, &c->d);
	if (r == 0 && in->stack_trace_selector && in->stack_trace_selector->go_pgo)
		r = cut_for_pgo(p, in->stack_trace_selector->go_pgo);
	else if (r == 0 && in->max_nodes > 0)
		r = querier_cut(p, (size_t)in->max_nodes);
	return r < 0 ? r : pprof_message(c, p, a, ret);
}

static int answer_tree(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
		       struct arena *a)
{
	Pyroscope__SelectMergeStacktracesResponse out =
		PYROSCOPE__SELECT_MERGE_STACKTRACES_RESPONSE__INIT;
	_cleanup_str_ struct str bytes = {};
	int r = get_tree_bytes(c, in, a, &bytes);

	out.tree.data = (u8 *)str_get(&bytes);
	out.tree.len = bytes.n;
	return r < 0 ? r : querier_answer(c, &out.base);
}

static int answer_dot(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in)
{
	Pyroscope__SelectMergeStacktracesResponse out =
		PYROSCOPE__SELECT_MERGE_STACKTRACES_RESPONSE__INIT;
	_cleanup_str_ struct str text = {};
	int r = querier_dot_of(c, in, &text);

	out.dot = (char *)str_get(&text);
	return r < 0 ? r : querier_answer(c, &out.base);
}

static int answer_graph(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
			struct arena *a)
{
	Pyroscope__SelectMergeStacktracesResponse out =
		PYROSCOPE__SELECT_MERGE_STACKTRACES_RESPONSE__INIT;
	Pyroscope__FlameGraph flame = PYROSCOPE__FLAME_GRAPH__INIT;
	int r = querier_graph_of(c, in, a, &flame);

	out.flamegraph = &flame;
	return r < 0 ? r : querier_answer(c, &out.base);
}

static int answer_pprof(struct api_call *c, const Pyroscope__SelectMergeStacktracesRequest *in,
			struct arena *a)
{
	Pyroscope__SelectMergeStacktracesResponse out =
		PYROSCOPE__SELECT_MERGE_STACKTRACES_RESPONSE__INIT;
	Pyroscope__PprofProfile pprof = PYROSCOPE__PPROF_PROFILE__INIT;
	int r = get_pprof(c, in, a, &pprof.profile);

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
	if (in->async && in->async->type != PYROSCOPE__ASYNC_QUERY_TYPE__ASYNC_QUERY_TYPE_DISABLED)
		return diag_set(&c->d, -ENOSYS,
				"async: this server answers a query in the same call");
	switch (in->format) {
	case PYROSCOPE__PROFILE_FORMAT__PROFILE_FORMAT_PPROF:
		return answer_pprof(c, in, &a);
	case PYROSCOPE__PROFILE_FORMAT__PROFILE_FORMAT_TREE:
		return answer_tree(c, in, &a);
	case PYROSCOPE__PROFILE_FORMAT__PROFILE_FORMAT_DOT:
		return answer_dot(c, in);
	default:
		return answer_graph(c, in, &a);
	}
}

/* The older name of what SelectMergeStacktraces does with a selector of spans. */
int querier_span_profile(struct api_call *c)
{
	Pyroscope__SelectMergeStacktracesRequest q =
		PYROSCOPE__SELECT_MERGE_STACKTRACES_REQUEST__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	Pyroscope__SelectMergeSpanProfileRequest *in = NULL;
	int r = querier_request(c, &pyroscope__select_merge_span_profile_request__descriptor, &a,
				&in);

	if (r < 0)
		return r;
	q.profile_typeid = in->profile_typeid;
	q.label_selector = in->label_selector;
	q.start = in->start;
	q.end = in->end;
	q.max_nodes = in->max_nodes;
	q.n_span_selector = in->n_span_selector;
	q.span_selector = in->span_selector;
	/* The numbers of the fields that both answers have are the same. */
	if (in->format == PYROSCOPE__PROFILE_FORMAT__PROFILE_FORMAT_TREE)
		return answer_tree(c, &q, &a);
	return answer_graph(c, &q, &a);
}

int querier_profile(struct api_call *c)
{
	Pyroscope__SelectMergeStacktracesRequest q =
		PYROSCOPE__SELECT_MERGE_STACKTRACES_REQUEST__INIT;
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	Pyroscope__SelectMergeProfileRequest *in = NULL;
	Pprof__Profile *m = NULL;
	int r = querier_request(c, &pyroscope__select_merge_profile_request__descriptor, &a, &in);

	if (r < 0)
		return r;
	q.profile_typeid = in->profile_typeid;
	q.label_selector = in->label_selector;
	q.start = in->start;
	q.end = in->end;
	q.max_nodes = in->max_nodes;
	q.stack_trace_selector = in->stack_trace_selector;
	q.n_profile_id_selector = in->n_profile_id_selector;
	q.profile_id_selector = in->profile_id_selector;
	q.n_trace_id_selector = in->n_trace_id_selector;
	q.trace_id_selector = in->trace_id_selector;
	r = get_pprof(c, &q, &a, &m);
	return r < 0 ? r : querier_answer(c, &m->base);
}

int querier_diff(struct api_call *c)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(QUERIER_ANSWER_BYTES);
	Pyroscope__FlameGraphDiff flame = PYROSCOPE__FLAME_GRAPH_DIFF__INIT;
	Pyroscope__DiffResponse out = PYROSCOPE__DIFF_RESPONSE__INIT;
	Pyroscope__DiffRequest *in = NULL;
	int r = querier_request(c, &pyroscope__diff_request__descriptor, &a, &in);

	if (r == 0)
		r = querier_diff_of(c, in, &a, &flame);
	out.flamegraph = &flame;
	return r < 0 ? r : querier_answer(c, &out.base);
}
