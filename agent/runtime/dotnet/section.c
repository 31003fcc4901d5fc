/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CoreCLR's range sections (src/coreclr/vm/codeman.h): .NET 8 and later have a tree of them, whose
 * root is the first entry of the exported table g_dacTable. Earlier versions have a list. Not all
 * of those export the table, so the word that points to the list is searched for in the binary's
 * data.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/dotnet/dotnet.h"
#include "base/cleanup.h"

#define MAX_DATA (4ULL << 20)
#define MAX_READS 8192 /* of words of the tree, 256 at a time */
#define LEVEL_WORDS (1U << DOTNET_LEVEL_BITS)
#define SECTION_WORDS (DOTNET_SECTION_BYTES / 8)

/* Offset of the code manager's pointer in a range section of the list. */
#define LIST_MANAGER 0x10

/* ---- one range section ---- */

static bool plausible(u64 p)
{
	return p >= 4096 && p < 1ULL << 56 && !(p & 7);
}

static bool take_section(const struct dotnet_reader *r, const u64 *words, struct dotnet_range *ret)
{
	u32 flags = (u32)words[r->p.section_flags / 8];

	*ret = (struct dotnet_range){.begin = words[0], .end = words[1]};
	if (ret->begin >= ret->end)
		return false;
	if (flags & DOTNET_SECTION_CODE_HEAP)
		ret->heap = words[r->p.heap / 8];
	else if (!(r->p.flags & DOTNET_LIST) || flags & DOTNET_SECTION_READY_LIST)
		ret->module = words[r->p.module / 8];
	return true;
}

static int read_section(const struct dotnet_reader *r, u64 at, struct dotnet_range *ret,
			u64 *ret_next)
{
	u64 words[SECTION_WORDS];

	if (!plausible(at) || runtime_read(r->m, at, words, sizeof(words)) < 0)
		return -EFAULT;
	*ret_next = words[r->p.next / 8];
	return take_section(r, words, ret) ? 0 : -EINVAL;
}

/* ---- the list ---- */

/* The length of the list that starts at `at`; 0: it is no list of range sections. */
static u32 list_length(const struct dotnet_reader *r, u64 at)
{
	const struct dotnet_learned *l = r->l;
	u64 words[SECTION_WORDS], table, before = ~0ULL;
	bool failed = false;
	u32 n = 0;

	for (; at && n < DOTNET_MAX_LIST; n++) {
		if (!plausible(at) || runtime_read(r->m, at, words, sizeof(words)) < 0)
			return 0;
		/* sorted, the highest address first */
		if (words[0] >= words[1] || words[1] > before || words[0] & 7 ||
		    words[r->p.section_flags / 8] << 32 >> 35 ||
		    !plausible(words[LIST_MANAGER / 8]))
			return 0;
		table = runtime_u64(r->m, words[LIST_MANAGER / 8], &failed) - r->t->bias;
		if (failed || table < l->image_start || table >= l->image_end)
			return 0;
		before = words[0];
		at = words[r->p.next / 8];
	}
	return n;
}

/* Searches the binary's data for the word that points to the longest list. */
static u64 search_list(const struct dotnet_reader *r)
{
	u64 start = r->l->data_start, n = MIN(r->l->data_end - start, MAX_DATA) / 8, found = 0;
	_cleanup_free_ u64 *words = malloc(n * 8 + 8);
	u32 longest = 1;

	if (!words || runtime_read(r->m, start + r->t->bias, words, n * 8) < 0)
		return 0;
	for (u64 i = 0; i < n; i++) {
		u64 svma = words[i] - r->t->bias;
		u32 length;

		if (!plausible(words[i]) || (svma >= r->l->image_start && svma < r->l->image_end))
			continue;
		length = list_length(r, words[i]);
		if (length <= longest)
			continue;
		longest = length;
		found = start + i * 8;
	}
	return found;
}

static int each_of_list(const struct dotnet_reader *r,
			int (*fn)(void *arg, const struct dotnet_range *range), void *arg)
{
	bool failed = false;
	u64 at = runtime_u64(r->m, r->p.ranges, &failed);
	struct dotnet_range range;
	int e = failed ? -EFAULT : 0;

	for (u32 i = 0; e == 0 && at && i < DOTNET_MAX_LIST; i++) {
		e = read_section(r, at, &range, &at);
		if (e == 0)
			e = fn(arg, &range);
	}
	return e;
}

/* ---- the tree ---- */

/* The range sections at an address of the lowest level, which may be shared by several of them. */
static int each_fragment(const struct dotnet_reader *r, u64 at, u64 first, u64 last,
			 int (*fn)(void *arg, const struct dotnet_range *range), void *arg)
{
	struct dotnet_range range;
	u64 fragment[4], next;
	int e = 0;

	at &= ~1ULL;
	for (u32 i = 0; e == 0 && at && i < DOTNET_MAX_FRAGMENTS; i++) {
		if (!plausible(at) || runtime_read(r->m, at, fragment, sizeof(fragment)) < 0)
			return -EFAULT;
		if (fragment[1] <= last && fragment[2] > first &&
		    read_section(r, fragment[3], &range, &next) == 0)
			e = fn(arg, &range);
		at = fragment[0] & ~1ULL;
	}
	return e;
}

struct tree {
	const struct dotnet_reader *r;
	int (*fn)(void *arg, const struct dotnet_range *range);
	void *arg;
	u32 n_reads;
	u64 last; /* the begin of the section passed last: many leaves share one */
};

static int each_new(void *arg, const struct dotnet_range *range)
{
	struct tree *tree = arg;

	if (range->begin == tree->last)
		return 0;
	tree->last = range->begin;
	return tree->fn(tree->arg, range);
}

static int each_of_level(struct tree *tree, u64 at, u32 level, u64 base)
{
	u32 shift = DOTNET_LEAF_BITS + DOTNET_LEVEL_BITS * (level - 1);
	u64 words[LEVEL_WORDS];
	int e = 0;

	if (!plausible(at) || ++tree->n_reads > MAX_READS)
		return -EFAULT;
	if (runtime_read(tree->r->m, at, words, sizeof(words)) < 0)
		return -EFAULT;
	for (u64 i = 0; e == 0 && i < LEVEL_WORDS; i++) {
		u64 from = base | i << shift;

		if (!(words[i] & ~1ULL))
			continue;
		if (level > 1)
			e = each_of_level(tree, words[i] & ~1ULL, level - 1, from);
		else
			e = each_fragment(tree->r, words[i], from, from + (1ULL << shift) - 1,
					  each_new, tree);
	}
	return e;
}

int dotnet_each_range(const struct dotnet_reader *r,
		      int (*fn)(void *arg, const struct dotnet_range *range), void *arg)
{
	struct tree tree = {.r = r, .fn = fn, .arg = arg};

	if (r->p.flags & DOTNET_LIST)
		return each_of_list(r, fn, arg);
	return each_of_level(&tree, r->p.ranges, DOTNET_LEVELS, 0);
}

/* ---- lookup ---- */

struct lookup {
	u64 avma;
	struct dotnet_range range;
};

static int is_at(void *arg, const struct dotnet_range *range)
{
	struct lookup *lookup = arg;

	if (lookup->avma < range->begin || lookup->avma >= range->end)
		return 0;
	lookup->range = *range;
	return 1;
}

int dotnet_find_range(const struct dotnet_reader *r, u64 avma, struct dotnet_range *ret)
{
	struct lookup lookup = {.avma = avma};
	u64 at = r->p.ranges;
	bool failed = false;
	int e;

	if (r->p.flags & DOTNET_LIST) {
		e = each_of_list(r, is_at, &lookup);
	} else {
		for (u32 level = DOTNET_LEVELS; level && at && !failed; level--) {
			u32 shift = DOTNET_LEAF_BITS + DOTNET_LEVEL_BITS * (level - 1);

			at = runtime_u64(r->m, at + (avma >> shift & (LEVEL_WORDS - 1)) * 8,
					 &failed) &
			     ~1ULL;
		}
		e = failed ? -EFAULT : each_fragment(r, at, avma, avma, is_at, &lookup);
	}
	if (e == 1)
		*ret = lookup.range;
	return e == 1 ? 0 : e < 0 ? e : -ENOENT;
}

/* ---- a process ---- */

static int find_list(struct dotnet_reader *r)
{
	struct dotnet_found *found = r->l->found;

	if (!found->list)
		found->list = search_list(r);
	if (!found->list)
		return -EAGAIN;
	r->p.ranges = found->list + r->t->bias;
	return 0;
}

static int find_tree(struct dotnet_reader *r)
{
	bool failed = false;

	r->p.ranges = runtime_u64(r->m, r->l->table + r->t->bias, &failed);
	return failed || !plausible(r->p.ranges) ? -EAGAIN : 0;
}

int dotnet_reader_init(const struct runtime_target *t, const struct dotnet_learned *l,
		       struct dotnet_reader *ret)
{
	const struct dotnet_layout *o = l->layout;

	*ret = (struct dotnet_reader){
		.t = t,
		.m = &t->memory,
		.l = l,
		.p = {.flags = (u16)((o->list ? DOTNET_LIST : 0) |
				     (o->pointers ? DOTNET_POINTERS : 0)),
		      .next = o->next,
		      .section_flags = o->section_flags,
		      .heap = o->heap,
		      .module = o->module,
		      .info = l->found->info,
		      .composite = o->composite,
		      .functions = l->found->functions,
		      .n_functions = (u16)(l->found->functions + 8)},
	};
	return o->list ? find_list(ret) : find_tree(ret);
}
