/* SPDX-License-Identifier: Apache-2.0 */
/* What writers have in common: the tree of a profile, or of its difference to a base. */
#include "format/internal.h"

static s64 scaled(s64 value, double factor)
{
	return __builtin_llround((double)value * factor);
}

/* Scales the base to the total of the other side; without a base or a total nothing is done. */
static void normalize_base(struct profile_tree *t)
{
	struct profile_node *root = &t->nodes.data[0];
	double factor;

	if (root->base_total <= 0 || root->total <= 0)
		return;
	factor = (double)root->total / (double)root->base_total;
	vec_foreach (&t->nodes, n)
		n->base_total = n->base_self = scaled(n->base_self, factor);
	for (size_t i = t->nodes.n - 1; i > 0; i--)
		t->nodes.data[t->nodes.data[i].parent].base_total += t->nodes.data[i].base_total;
}

int profile_tree_for_writer(const struct profile *p, const struct profile_write_options *o,
			    struct profile_tree **ret)
{
	_cleanup_profile_tree_ struct profile_tree *after = NULL, *before = NULL, *diff = NULL;
	struct profile_tree_options tree = o->tree;
	int r;

	tree.waits = true;
	r = profile_tree_build(p, &tree, &after);

	if (r < 0)
		return r;
	if (!o->base) {
		*ret = take_ptr(after);
		return 0;
	}
	r = profile_tree_build(o->base, &tree, &before);
	if (r == 0)
		r = profile_tree_diff(before, after, &diff);
	if (r < 0)
		return r;
	if (o->normalize)
		normalize_base(diff);
	*ret = take_ptr(diff);
	return 0;
}
