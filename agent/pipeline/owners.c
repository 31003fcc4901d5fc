/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/owners.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pipeline/batch.h"
#include "base/log.h"

#define MAX_OWNERS (1U << 23)
#define KEPT_MAX_BYTES (16ULL << 20)

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

static struct stacks stacks_of(struct owners *k)
{
	return (struct stacks){k->batch, &k->answers};
}

/* The names of the previous batch were taken with it. */
static struct stacks recorded(struct pipeline *p)
{
	return (struct stacks){p->batch, p->batch == p->before ? &p->batch->answers
							       : runtimes_answers(p->runtimes)};
}

int owners_init(struct pipeline *p, struct owners *k)
{
	k->batch = batch_new(p);
	k->answers = runtimes_new_answers(p->runtimes);
	k->max_bytes = p->batch_max ? MIN(KEPT_MAX_BYTES, p->batch_max / 2) : KEPT_MAX_BYTES;
	return k->batch ? 0 : -ENOMEM;
}

void owners_deinit(struct pipeline *p, struct owners *k)
{
	vec_deinit(&k->all);
	map_deinit(&k->owner_index);
	map_deinit(&k->ids);
	runtime_answers_deinit(&k->answers);
	pipeline_give_back(p, k->batch);
}

static int keep_stack(struct pipeline *p, struct owners *k, u64 id, u64 *ret_id)
{
	const u64 *known = id ? map_get(&k->ids, id) : NULL;
	int r;

	if (!id || known) {
		*ret_id = known ? *known : 0;
		return 0;
	}
	r = copy_stack(p->procman, stacks_of(k), recorded(p), id, k->words, ret_id);
	return r < 0 ? r : map_put(&k->ids, id, *ret_id);
}

static int add_owner(struct owners *k, const struct owner *o, u32 *ret)
{
	u64 h = hash_bytes(o, sizeof(*o)) >> 1;
	const u64 *at;
	int r;

	for (;; h++) {
		at = map_get(&k->owner_index, h);
		if (!at)
			break;
		if (memcmp(&k->all.data[*at], o, sizeof(*o)) == 0) {
			*ret = (u32)*at;
			return 0;
		}
	}
	if (k->all.n >= MAX_OWNERS)
		return -E2BIG;
	r = vec_push(&k->all, *o);
	if (r == 0)
		r = map_put(&k->owner_index, h, k->all.n - 1);
	if (r == 0)
		*ret = (u32)k->all.n - 1;
	return r;
}

int owners_find(struct pipeline *p, struct owners *k, const struct record_sample *s, u32 *ret)
{
	struct owner o = {};
	int r = keep_stack(p, k, s->kernel_stack, &o.kernel_stack);

	if (r == 0)
		r = keep_stack(p, k, s->user_stack, &o.user_stack);
	if (r == 0 && !o.kernel_stack && !o.user_stack)
		r = -ENOENT;
	return r < 0 ? r : add_owner(k, &o, ret);
}

u64 owners_stack(struct pipeline *p, struct owners *k, u64 id)
{
	u64 copy = 0;

	if (id && copy_stack(p->procman, recorded(p), stacks_of(k), id, k->words, &copy) < 0)
		log_warn_rarely("out of memory: stacks are shown as lost");
	return id && !copy ? id : copy; /* one that is not there is shown as lost */
}

bool owners_is_raw(const struct owners *k, u64 id)
{
	const struct pipeline_stack *s = pipeline_stack(k->batch, id);

	return s && s->raw;
}

void owners_end_period(struct owners *k)
{
	map_clear(&k->ids);
}

/* ---- tidying ---- */

struct owners_tidying {
	struct owners fresh, *old;
	u32 *renamed; /* by the old owner: the new one + 1; 0: not needed yet */
};

bool owners_is_full(const struct owners *k)
{
	return pipeline_batch_bytes(k->batch) > k->max_bytes;
}

struct owners_tidying *owners_tidy_begin(struct pipeline *p, struct owners *k)
{
	struct owners_tidying *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->old = k;
	t->renamed = calloc(k->all.n + 1, sizeof(*t->renamed));
	if (owners_init(p, &t->fresh) == 0 && t->renamed)
		return t;
	owners_deinit(p, &t->fresh);
	free(t->renamed);
	free(t);
	return NULL;
}

int owners_tidy_owner(struct pipeline *p, struct owners_tidying *t, u32 owner, u32 *ret)
{
	const struct owner *o = &t->old->all.data[owner];
	struct owner copy = {};
	int r = 0;

	if (t->renamed[owner]) {
		*ret = t->renamed[owner] - 1;
		return 0;
	}
	if (o->kernel_stack)
		r = copy_stack(p->procman, stacks_of(&t->fresh), stacks_of(t->old), o->kernel_stack,
			       t->old->words, &copy.kernel_stack);
	if (r == 0 && o->user_stack)
		r = copy_stack(p->procman, stacks_of(&t->fresh), stacks_of(t->old), o->user_stack,
			       t->old->words, &copy.user_stack);
	if (r == 0)
		r = add_owner(&t->fresh, &copy, ret);
	if (r == 0)
		t->renamed[owner] = *ret + 1;
	return r;
}

void owners_tidy_end(struct pipeline *p, struct owners_tidying *t)
{
	struct owners *k = t->old;

	/* What is needed may be more than that. */
	t->fresh.max_bytes = MAX(k->max_bytes, 2 * pipeline_batch_bytes(t->fresh.batch));
	owners_deinit(p, k);
	*k = t->fresh;
	free(t->renamed);
	free(t);
}
