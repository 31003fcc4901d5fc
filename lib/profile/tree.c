/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call tree. A builder grows a trie whose children are found through one hash map keyed
 * (parent node, label); a label is what makes two siblings different: the name, whether it is
 * kernel code, and the line when asked for. Flags and kinds other than kernel do not split a node,
 * so that a profile that came through a format without them compares equal. At the end the trie is
 * laid out in pre-order with sorted children.
 *
 * Nothing here recurses: stacks of a hostile file may be a million frames deep.
 */
#include "profile/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/quota.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vocab.h"
#include "profile/writer.h"

struct label {
	u32 name; /* in builder.strings */
	u32 line;
	bool kernel;
};

struct build_node {
	u32 label;
	u32 frame;
	u32 first_child, next_sibling; /* PROFILE_NONE at the end */
	s64 self, base_self;
	u8 kind, flags;
	u16 level;
};

struct builder {
	struct strtab strings;
	vec(struct label) labels;
	struct map label_ids[2]; /* by kernel: name << 32 | line → label */
	vec(struct build_node) nodes;
	struct map children; /* parent << 32 | label → node */
	struct map leaves;   /* stack << 32 | thread → node */
};

static void builder_deinit(struct builder *b)
{
	strtab_deinit(&b->strings);
	vec_deinit(&b->labels);
	map_deinit(&b->label_ids[0]);
	map_deinit(&b->label_ids[1]);
	vec_deinit(&b->nodes);
	map_deinit(&b->children);
	map_deinit(&b->leaves);
}
#define _cleanup_builder_ __attribute__((cleanup(builder_deinit)))

static int builder_label(struct builder *b, const char *name, bool kernel, u32 line, u32 *ret)
{
	struct label l = {.kernel = kernel, .line = line};
	int r = strtab_add(&b->strings, name, strlen(name), &l.name);
	u64 key = (u64)l.name << 32 | line, *known;

	if (r < 0)
		return r;
	known = map_get(&b->label_ids[kernel], key);
	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	if (map_put(&b->label_ids[kernel], key, b->labels.n) < 0 || vec_push(&b->labels, l) < 0)
		return -ENOMEM;
	*ret = (u32)b->labels.n - 1;
	return 0;
}

static int builder_init(struct builder *b)
{
	struct build_node root = {.frame = PROFILE_NONE,
				  .first_child = PROFILE_NONE,
				  .next_sibling = PROFILE_NONE,
				  .kind = FRAME_KIND_N,
				  .level = PROFILE_LEVEL_ROOT};
	int r = strtab_init(&b->strings);

	if (r == 0)
		r = builder_label(b, "all", false, 0, &root.label);
	if (r == 0)
		r = vec_push(&b->nodes, root);
	return r;
}

/* The child of `parent` that `like` describes, added if there is none yet. */
static int builder_child(struct builder *b, u32 parent, const struct build_node *like, u32 *ret)
{
	u64 key = (u64)parent << 32 | like->label, *known = map_get(&b->children, key);
	struct build_node node = *like;

	if (known) {
		struct build_node *n = &b->nodes.data[*known];

		n->flags &= like->flags;
		if (n->frame == PROFILE_NONE && like->frame != PROFILE_NONE) {
			n->frame = like->frame;
			n->kind = like->kind;
			n->level = like->level;
		}
		*ret = (u32)*known;
		return 0;
	}
	if (b->nodes.n >= PROFILE_NONE - 1)
		return -E2BIG;
	node.first_child = PROFILE_NONE;
	node.next_sibling = b->nodes.data[parent].first_child;
	if (map_put(&b->children, key, b->nodes.n) < 0 || vec_push(&b->nodes, node) < 0)
		return -ENOMEM;
	b->nodes.data[parent].first_child = (u32)b->nodes.n - 1;
	*ret = (u32)b->nodes.n - 1;
	return 0;
}

/* ---- laying it out ---- */

static __thread const struct builder *sort_builder; /* qsort's compare takes no argument */

static int compare_children(const void *a, const void *b)
{
	const struct builder *s = sort_builder;
	const struct label *x = &s->labels.data[s->nodes.data[*(const u32 *)a].label];
	const struct label *y = &s->labels.data[s->nodes.data[*(const u32 *)b].label];
	int r = strcmp(strtab_get(&s->strings, x->name), strtab_get(&s->strings, y->name));

	if (r == 0)
		r = (int)x->kernel - (int)y->kernel;
	if (r == 0)
		r = x->line < y->line ? -1 : x->line > y->line;
	return r;
}

struct pending {
	u32 node;   /* of the builder */
	u32 parent; /* of the tree */
	u32 depth;
};

typedef vec(struct pending) pending_vec;

/* Pushes the children last to first, so that they are popped in order. */
static int push_children(const struct builder *b, const struct pending *of, u32 parent,
			 pending_vec *stack)
{
	vec(u32) order = {};
	int r = 0;

	for (u32 c = b->nodes.data[of->node].first_child; c != PROFILE_NONE && r == 0;
	     c = b->nodes.data[c].next_sibling)
		r = vec_push(&order, c);
	if (r == 0 && order.n > 1) {
		sort_builder = b;
		qsort(order.data, order.n, sizeof(u32), compare_children);
	}
	for (size_t i = order.n; i > 0 && r == 0; i--) {
		struct pending next = {order.data[i - 1], parent, of->depth + 1};

		r = vec_push(stack, next);
	}
	vec_deinit(&order);
	return r;
}

static int emit_node(const struct builder *b, const struct pending *at, struct profile_tree *t)
{
	const struct build_node *n = &b->nodes.data[at->node];
	const struct label *l = &b->labels.data[n->label];
	struct profile_node out = {
		.name = l->name,
		.parent = at->parent,
		.frame = n->frame,
		.self = n->self,
		.total = n->self,
		.base_self = n->base_self,
		.base_total = n->base_self,
		.line = l->line,
		.kind = n->kind,
		.flags = n->flags,
		.level = n->level,
	};

	if (at->depth > t->depth)
		t->depth = at->depth;
	return vec_push(&t->nodes, out);
}

/* place[i]: where node i of the builder is in the tree. */
static int place_leaves(const struct builder *b, const u32 *place, struct profile_tree *t)
{
	int r = 0;

	map_foreach (&b->leaves, e)
		if (r == 0)
			r = map_put(&t->leaves, e->key, place[e->value]);
	return r;
}

/* Takes the builder's strings. */
static int builder_finish(struct builder *b, struct profile_tree **ret)
{
	_cleanup_profile_tree_ struct profile_tree *t = calloc(1, sizeof(*t));
	struct pending at = {.node = 0, .parent = PROFILE_NONE, .depth = 0};
	_cleanup_free_ u32 *place = calloc(b->nodes.n + 1, sizeof(u32));
	pending_vec stack = {};
	int r;

	if (!t || !place)
		return -ENOMEM;
	r = vec_push(&stack, at);
	while (stack.n && r == 0) {
		at = stack.data[--stack.n];
		place[at.node] = (u32)t->nodes.n;
		r = quota_check(NULL);
		if (r == 0)
			r = emit_node(b, &at, t);
		if (r == 0)
			r = push_children(b, &at, (u32)t->nodes.n - 1, &stack);
	}
	vec_deinit(&stack);
	if (r == 0)
		r = place_leaves(b, place, t);
	if (r < 0)
		return r;
	for (size_t i = t->nodes.n - 1; i > 0; i--) {
		const struct profile_node *n = &t->nodes.data[i];
		struct profile_node *parent = &t->nodes.data[n->parent];

		parent->n_below += n->n_below + 1;
		parent->total += n->total;
		parent->base_total += n->base_total;
	}
	t->strings = b->strings;
	b->strings = (struct strtab){};
	*ret = take_ptr(t);
	return 0;
}

void profile_tree_destroy(struct profile_tree *t)
{
	if (!t)
		return;
	strtab_deinit(&t->strings);
	vec_deinit(&t->nodes);
	map_deinit(&t->leaves);
	free(t);
}

/* ---- from a profile ---- */

const char *profile_frame_suffix(const struct profile_frame *f, bool annotate)
{
	const char *suffix = vocab_frame_kind(f->kind)->suffix;

	/*
	 * Kernel frames always have a suffix, because a kernel and a user function may have one
	 * name.
	 */
	if (f->kind == FRAME_KERNEL)
		return suffix;
	if (!annotate)
		return "";
	return f->flags & PROFILE_FRAME_INLINED ? "_[i]" : suffix;
}

bool profile_has_waits(const struct profile *p)
{
	for (u32 i = 0; i < p->threads.n; i++)
		if (profile_wait(p, i))
			return true;
	return false;
}

enum wait profile_wait_leaf(const struct profile *p, u32 thread,
			    const struct profile_tree_options *o)
{
	bool dropped = o->drop_kinds && o->drop_kinds[FRAME_WAIT];

	return o->waits && !dropped ? profile_wait(p, thread) : WAIT_NONE;
}

bool profile_frame_dropped(const struct profile_frame *f, const struct profile_tree_options *o)
{
	return (o->no_inline && (f->flags & PROFILE_FRAME_INLINED)) ||
	       (o->drop_kinds && f->kind < FRAME_KIND_N && o->drop_kinds[f->kind]);
}

struct from_profile {
	struct builder *b;
	const struct profile *p;
	const struct profile_tree_options *o;
	u32 *frame_labels; /* owned; by frame, PROFILE_NONE = not made yet */
	struct profile_head head;
	struct str scratch;
	vec(struct build_node) path; /* of the current sample, root first */
};

static void from_profile_deinit(struct from_profile *f)
{
	free(f->frame_labels);
	profile_head_deinit(&f->head);
	str_deinit(&f->scratch);
	vec_deinit(&f->path);
}

static int push_frame(struct from_profile *f, u32 id)
{
	const struct profile_frame *frame = &f->p->frames.data[id];
	u32 *label = &f->frame_labels[id];
	struct build_node node = {.frame = id,
				  .kind = frame->kind,
				  .flags = frame->flags,
				  .level = PROFILE_LEVEL_FRAME};
	int r = 0;

	if (profile_frame_dropped(frame, f->o))
		return 0;
	if (*label == PROFILE_NONE)
		r = builder_label(f->b, profile_frame_name(f->p, id, &f->scratch),
				  frame->kind == FRAME_KERNEL, f->o->by_line ? frame->line : 0,
				  label);
	node.label = *label;
	return r < 0 ? r : vec_push(&f->path, node);
}

static int push_wait(struct from_profile *f, u32 thread)
{
	enum wait wait = profile_wait_leaf(f->p, thread, f->o);
	struct build_node node = {
		.frame = PROFILE_NONE, .kind = FRAME_WAIT, .level = PROFILE_LEVEL_FRAME};
	int r;

	if (!wait)
		return 0;
	str_clear(&f->scratch);
	str_printf(&f->scratch, "[%s]", vocab_wait(wait)->name);
	r = builder_label(f->b, str_get(&f->scratch), false, 0, &node.label);
	return r < 0 ? r : vec_push(&f->path, node);
}

static int push_head(struct from_profile *f, u32 thread)
{
	int r = 0;

	profile_head_set(&f->head, f->p, thread, f->o);
	for (size_t i = 0; i < f->head.n && r == 0; i++) {
		struct build_node node = {
			.frame = PROFILE_NONE, .kind = FRAME_KIND_N, .level = f->head.level[i]};

		r = builder_label(f->b, str_get(&f->head.name[i]), false, 0, &node.label);
		if (r == 0)
			r = vec_push(&f->path, node);
	}
	return r;
}

static int insert_group(struct from_profile *f, const struct profile_group *g, s64 value)
{
	const struct profile_stack *s = &f->p->stacks.data[g->stack];
	const u32 *ids = s->n ? f->p->stack_frames.data + s->first : NULL;
	u32 at = 0;
	int r = quota_check(NULL);

	vec_clear(&f->path);
	if (r == 0)
		r = push_head(f, g->thread);
	for (u32 i = s->n; i > 0 && r == 0; i--)
		r = push_frame(f, ids[i - 1]);
	if (r == 0)
		r = push_wait(f, g->thread);
	for (size_t i = 0; i < f->path.n && r == 0; i++) {
		size_t j = f->o->inverted ? f->path.n - 1 - i : i;

		r = builder_child(f->b, at, &f->path.data[j], &at);
	}
	if (r == 0)
		f->b->nodes.data[at].self += value;
	if (r == 0 && f->o->leaves)
		r = map_put(&f->b->leaves, profile_leaf_key(g->stack, g->thread), at);
	return r;
}

int profile_tree_build(const struct profile *p, const struct profile_tree_options *o,
		       struct profile_tree **ret)
{
	static const struct profile_tree_options none = {};
	_cleanup_builder_ struct builder b = {};
	_cleanup_groups_ struct profile_groups groups = {};
	__attribute__((cleanup(from_profile_deinit))) struct from_profile f = {
		.b = &b, .p = p, .o = o ? o : &none};
	u32 type = p->default_type < p->n_types ? p->default_type : 0;
	int r = builder_init(&b);

	if (r == 0)
		r = profile_groups_build(p, false, &groups);
	if (r < 0)
		return r;
	f.frame_labels = reallocarray(NULL, p->frames.n + 1, sizeof(u32));
	if (!f.frame_labels)
		return -ENOMEM;
	memset(f.frame_labels, 0xff, (p->frames.n + 1) * sizeof(u32));
	for (size_t i = 0; i < groups.group.n && r == 0; i++)
		r = insert_group(&f, &groups.group.data[i],
				 groups.value.data[i * groups.n_types + type]);
	return r < 0 ? r : builder_finish(&b, ret);
}

/* ---- from two trees ---- */

/* Adds a tree, to the side that `base` says. at[] maps its nodes to those of the builder. */
static int insert_tree(struct builder *b, const struct profile_tree *t, bool base)
{
	_cleanup_free_ u32 *at = calloc(t->nodes.n + 1, sizeof(u32));
	int r = 0;

	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < t->nodes.n && r == 0; i++) {
		const struct profile_node *n = &t->nodes.data[i];
		struct build_node node = {.frame = base ? PROFILE_NONE : n->frame,
					  .kind = n->kind,
					  .flags = n->flags,
					  .level = n->level};

		r = quota_check(NULL);
		if (i > 0 && r == 0)
			r = builder_label(b, strtab_get(&t->strings, n->name),
					  n->kind == FRAME_KERNEL, n->line, &node.label);
		if (i > 0 && r == 0)
			r = builder_child(b, at[n->parent], &node, &at[i]);
		if (r < 0)
			break;
		if (base)
			b->nodes.data[at[i]].base_self += n->self;
		else
			b->nodes.data[at[i]].self += n->self;
	}
	return r;
}

int profile_tree_diff(const struct profile_tree *before, const struct profile_tree *after,
		      struct profile_tree **ret)
{
	_cleanup_builder_ struct builder b = {};
	int r = builder_init(&b);

	if (r == 0)
		r = insert_tree(&b, after, false);
	if (r == 0)
		r = insert_tree(&b, before, true);
	if (r == 0)
		r = builder_finish(&b, ret);
	if (r == 0)
		(*ret)->has_base = true;
	return r;
}
