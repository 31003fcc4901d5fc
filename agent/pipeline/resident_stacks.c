/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stacks of the ledger. They are in a batch of its own, because a page may be resident for many
 * periods. A stack with frames of a runtime refers to names, which are those of one batch: it is
 * copied with its names, under an id that is a hash of what they are in the other batch.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pipeline/batch.h"
#include "agent/pipeline/resident_ledger.h"
#include "base/log.h"

struct stacks { /* a batch, and the names to which its stacks refer */
	struct pipeline_batch *batch;
	struct runtime_answers *answers;
};

static bool has_names(const struct pipeline_batch *b, const struct pipeline_stack *s)
{
	for (u32 i = 0; i < s->n && !s->kernel; i++)
		if (b->frames.data[s->first + i] > WORD_RUNTIME)
			return true;
	return false;
}

/* `words` has room for a stack. -ENOENT: `from` has no such stack. */
static int copy_stack(struct procman *procman, struct stacks to, struct stacks from, u64 id,
		      u64 *words, u64 *ret_id)
{
	const struct pipeline_stack *s = pipeline_stack(from.batch, id);
	u64 key[2], new_id;
	u32 name;
	int r = 0;

	if (!s)
		return -ENOENT;
	if (!has_names(from.batch, s)) {
		r = batch_add_stack(to.batch, procman, id, &from.batch->frames.data[s->first], s->n,
				    s->stop, s->kernel);
		if (r == 0)
			*ret_id = id;
		return r;
	}
	for (u32 i = 0; i < s->n && r == 0; i++) {
		words[i] = from.batch->frames.data[s->first + i];
		if (words[i] <= WORD_RUNTIME)
			continue;
		r = runtime_answers_copy(to.answers, from.answers, (u32)words[i], &name);
		if (r == 0)
			words[i] = (words[i] & ~WORD_RUNTIME_ADDRESS) | name;
	}
	if (r < 0)
		return r;
	key[0] = hash_bytes(words, s->n * sizeof(*words));
	key[1] = s->stop;
	new_id = hash_bytes(key, sizeof(key)) >> 1 | 1;
	r = batch_add_stack(to.batch, procman, new_id, words, s->n, s->stop, false);
	if (r == 0)
		*ret_id = new_id;
	return r;
}

static struct stacks kept(struct resident *r)
{
	return (struct stacks){r->kept, &r->answers};
}

/* The names of the previous batch were taken with it. */
static struct stacks recorded(struct pipeline *p)
{
	return (struct stacks){p->batch, p->batch == p->before ? &p->batch->answers
							       : runtimes_answers(p->runtimes)};
}

static int keep_stack(struct pipeline *p, u64 id, u64 *ret_id)
{
	struct resident *r = p->resident;
	const u64 *known = id ? map_get(&r->kept_ids, id) : NULL;
	int e;

	if (!id || known) {
		*ret_id = known ? *known : 0;
		return 0;
	}
	e = copy_stack(p->procman, kept(r), recorded(p), id, r->words, ret_id);
	return e < 0 ? e : map_put(&r->kept_ids, id, *ret_id);
}

static int add_owner(struct resident *r, const struct owner *o, u32 *ret)
{
	u64 h = hash_bytes(o, sizeof(*o)) >> 1;
	const u64 *at;
	int e;

	for (;; h++) {
		at = map_get(&r->owner_index, h);
		if (!at)
			break;
		if (memcmp(&r->owners.data[*at], o, sizeof(*o)) == 0) {
			*ret = (u32)*at + OWNER_FIRST;
			return 0;
		}
	}
	if (r->owners.n >= MAX_OWNERS)
		return -E2BIG;
	e = vec_push(&r->owners, *o);
	if (e == 0)
		e = map_put(&r->owner_index, h, r->owners.n - 1);
	if (e == 0)
		*ret = (u32)r->owners.n - 1 + OWNER_FIRST;
	return e;
}

u32 resident_owner(struct pipeline *p, const struct record_sample *s)
{
	struct resident *r = p->resident;
	struct owner o = {};
	u32 owner = OWNER_NONE;
	int e = keep_stack(p, s->kernel_stack, &o.kernel_stack);

	if (e == 0)
		e = keep_stack(p, s->user_stack, &o.user_stack);
	if (e == 0 && (o.kernel_stack || o.user_stack))
		e = add_owner(r, &o, &owner);
	r->stats.unkept += e < 0;
	return owner;
}

u64 resident_stack(struct pipeline *p, u64 id)
{
	struct resident *r = p->resident;
	u64 copy = 0;

	if (id && copy_stack(p->procman, recorded(p), kept(r), id, r->words, &copy) < 0)
		log_warn_rarely("out of memory: stacks are shown as lost");
	return id && !copy ? id : copy; /* one that is not there is shown as lost */
}

/* ---- tidying ---- */

struct tidying {
	struct resident fresh; /* owners and stacks only */
	u32 *renamed;	       /* by the old owner: the new one; 0: not needed yet */
};

static int rename_owner(struct pipeline *p, struct tidying *t, u32 owner, u32 *ret)
{
	struct resident *r = p->resident;
	struct owner *o, copy = {};
	int e = 0;

	if (owner < OWNER_FIRST) {
		*ret = owner;
		return 0;
	}
	if (t->renamed[owner - OWNER_FIRST]) {
		*ret = t->renamed[owner - OWNER_FIRST];
		return 0;
	}
	o = &r->owners.data[owner - OWNER_FIRST];
	if (o->kernel_stack)
		e = copy_stack(p->procman, kept(&t->fresh), kept(r), o->kernel_stack, r->words,
			       &copy.kernel_stack);
	if (e == 0 && o->user_stack)
		e = copy_stack(p->procman, kept(&t->fresh), kept(r), o->user_stack, r->words,
			       &copy.user_stack);
	if (e == 0)
		e = add_owner(&t->fresh, &copy, ret);
	if (e == 0)
		t->renamed[owner - OWNER_FIRST] = *ret;
	return e;
}

/* Copies what living pages refer to. Their owners change at once, so a failure loses owners. */
static void copy_needed(struct pipeline *p, struct tidying *t)
{
	map_foreach (&p->resident->processes, slot) {
		struct followed *f = (struct followed *)slot->value;

		map_foreach (&f->pages, page) {
			u32 owner = OWNER_NONE;

			if (rename_owner(p, t, page_owner(page->value), &owner) < 0)
				p->resident->stats.unkept++;
			page->value = (u64)owner << PAGE_OWNER_SHIFT |
				      (page->value & ((1ULL << PAGE_OWNER_SHIFT) - 1));
		}
		vec_clear(&f->held);
	}
}

void resident_tidy_stacks(struct pipeline *p)
{
	struct resident *r = p->resident;
	struct tidying *t;

	if (pipeline_batch_bytes(r->kept) <= r->kept_max || r->ticks)
		return;
	t = calloc(1, sizeof(*t));
	if (!t)
		return;
	t->fresh.kept = batch_new(p);
	t->fresh.answers = runtimes_new_answers(p->runtimes);
	t->renamed = calloc(r->owners.n + 1, sizeof(*t->renamed));
	if (t->fresh.kept && t->renamed) {
		copy_needed(p, t);
		pipeline_give_back(p, r->kept);
		runtime_answers_deinit(&r->answers);
		vec_deinit(&r->owners);
		map_deinit(&r->owner_index);
		r->kept = t->fresh.kept;
		r->answers = t->fresh.answers;
		r->owners.data = t->fresh.owners.data;
		r->owners.n = t->fresh.owners.n;
		r->owners.cap = t->fresh.owners.cap;
		r->owner_index = t->fresh.owner_index;
		map_clear(&r->kept_ids);
		/* What is needed may be more than that. */
		r->kept_max = MAX(r->kept_max, 2 * pipeline_batch_bytes(r->kept));
	} else {
		pipeline_give_back(p, t->fresh.kept);
	}
	free(t->renamed);
	free(t);
}
