/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Most of a thread's stack is that of the walk before: a walk that comes to where an earlier one
 * was goes on as that one did, as long as it reads the same.
 *
 * What a step does follows from the registers pc, sp and fp, from the row of pc, and from the words
 * that it reads: the return address, and the frame pointer if the frame has saved it. A step is
 * kept if nothing else decides it, with the row that the row cache keeps too (struct walk_row says
 * why such a row stays right). A kept step is taken again if the registers are equal and the words
 * in memory are equal, so it gives what walk_step() would give. It needs no look-up: the steps of a
 * walk lie next to each other, where the rows are spread over the row cache.
 *
 * Each CPU keeps KNOWN_WALKS_PER_CPU walks, by thread id; threads that share an entry replace each
 * other's walk. A walk that had to make more than FEW_STEPS steps itself lets a later one take the
 * place of the kept one: one in LEARN_WALK_ONE_OF, because to keep a step costs as much as to make
 * it. doc/design/0020-known-walks.md has the reasons and the figures.
 */
#pragma once

#include "bpf/unwind/native.h"

#define LEARN_WALK_ONE_OF 8
#define FEW_STEPS 6 /* the frames at the top of a stack change with each walk */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* the values begin at a page */
	__uint(max_entries, KNOWN_WALKS_PER_CPU);
	__type(key, __u32);
	__type(value, struct known_walk);
} known_walks SEC(".maps");

static __always_inline struct known_walk *known_get(const struct scratch *s)
{
	__u32 tid = s->out.sample.tid;
	__u32 slot = bpf_get_smp_processor_id() * KNOWN_WALKS_PER_CPU + tid % KNOWN_WALKS_PER_CPU;

	return bpf_map_lookup_elem(&known_walks, &slot);
}

/* Where `sp` may be in known_walk.at; stack pointers of callers are multiples of 16. */
static __always_inline __u32 known_slot(__u32 sp)
{
	return sp / 16 % KNOWN_STEPS;
}

/* Decides what the walk that begins does. */
static __always_inline void known_begin(struct scratch *s)
{
	struct known_walk *k = known_get(s);

	if (!k || SAMPLE_LEVELS > 1 || s->own_row)
		return;
	if (k->mappings_id == s->walk.mappings_id && k->n && !k->is_stale)
		s->known = KNOWN_FOLLOW;
	else if (!k->n || !(bpf_get_prandom_u32() % LEARN_WALK_ONE_OF))
		s->known = KNOWN_LEARN;
	else if (k->mappings_id == s->walk.mappings_id)
		s->known = KNOWN_FOLLOW;
	if (s->known != KNOWN_LEARN)
		return;
	k->mappings_id = s->walk.mappings_id;
	k->n = 0;
	k->is_stale = 0;
	__builtin_memset(k->at, 0, sizeof(k->at));
}

/* Whether nothing but pc, sp, fp and memory decides the next step. */
static __always_inline bool known_is_plain(const struct walk_regs *r)
{
	return !(r->full | r->bx | r->exact);
}

/* Whether memory has what the earlier walk has read to come to `to`. */
static __always_inline bool known_reads(struct scratch *s, const struct known_step *to, __u64 sp)
{
	struct walk_env env = {s, NULL}; /* walk_strip() looks up no row */
	const __u64 *words = window_at(&s->window, 16, sp + (__u64)(__s64)to->ra_at - 8);
	__u64 fp;

	if (!words || walk_strip(&env, words[1]) != to->pc)
		return false;
	if (!to->fp_at)
		return true;
	fp = words[0];
	if (to->fp_at != to->ra_at - 8 &&
	    walk_read(&env, &fp, sizeof(fp), sp + (__u64)(__s64)to->fp_at) < 0)
		return false;
	return fp == to->fp;
}

/* Goes on from the step with index `i`, whose registers the walk has, as far as memory is equal. */
__noinline int known_follow(__u32 i)
{
	struct scratch *s = scratch_get();
	const struct known_walk *k = s ? known_get(s) : NULL;
	const struct known_step *to;
	__u32 from = i;

	if (!k)
		return 0;
	for (__u64 n = 0; n < KNOWN_STEPS; n++) {
		to = &k->steps[walk_bound(i + 1, KNOWN_STEPS - 1)];
		if (i + 1 >= k->n || s->walk.n >= SAMPLE_MAX_FRAMES ||
		    !known_reads(s, to, k->base + to->sp))
			break;
		native_push(s, k->steps[walk_bound(i, KNOWN_STEPS - 1)].frame);
		i++;
	}
	if (i == from)
		return 0;
	to = &k->steps[walk_bound(i, KNOWN_STEPS - 1)];
	s->walk.regs.pc = to->pc;
	s->walk.regs.sp = k->base + to->sp;
	s->walk.regs.fp = to->fp;
	s->followed += i - from;
	return 0;
}

/* Goes on as an earlier walk did, if one was here. */
static __always_inline void known_try(struct scratch *s, const struct known_walk *k)
{
	const struct walk_regs *r = &s->walk.regs;
	const struct known_step *step;
	__u64 sp = r->sp - k->base;
	__u32 i;

	if (s->known != KNOWN_FOLLOW || !known_is_plain(r) || sp > ~0u)
		return;
	i = k->at[known_slot((__u32)sp)];
	step = &k->steps[walk_bound(i, KNOWN_STEPS - 1)];
	if (step->sp == (__u32)sp && step->pc == r->pc && step->fp == r->fp)
		known_follow(i);
}

/*
 * Where the step by `row` from `before` to the current registers has read pc and fp. False: other
 * things decided it too.
 */
static __always_inline bool known_describe(const struct scratch *s, const struct walk_row *row,
					   struct known_step *to)
{
	const struct walk_regs *r = &s->walk.regs;
	const struct unwind_rule *rule = &row->rule;
	__s64 ra_at = -8, fp_at = -16;

	if (!s->before.is_plain || !known_is_plain(r) || row->pc != s->before.pc - 1 ||
	    row->mappings_id != s->walk.mappings_id)
		return false;
	if (rule->cfa_op == UNWIND_CFA_REG || rule->cfa_op == UNWIND_CFA_PLT) {
		if (rule->ra_op != UNWIND_RA_CFA)
			return false;
		ra_at = rule->ra_off;
		if (rule->fp_op == UNWIND_FP_SAME)
			fp_at = 0;
		else if (rule->fp_op == UNWIND_FP_CFA)
			fp_at = rule->fp_off;
		else
			fp_at = (__s64)(s->before.fp + (__u64)(__s64)rule->fp_off - r->sp);
		if (!fp_at && rule->fp_op != UNWIND_FP_SAME)
			return false;
	} else if (rule->cfa_op != UNWIND_CFA_FP) {
		return false;
	}
	to->ra_at = (__s16)ra_at;
	to->fp_at = (__s16)fp_at;
	return to->ra_at == ra_at && to->fp_at == fp_at;
}

/* Keeps the step that was made from s->before. */
__noinline int known_learn(void)
{
	struct scratch *s = scratch_get();
	struct row_cache *cache = row_cache_get();
	struct known_walk *k = s ? known_get(s) : NULL;
	struct known_step *from, *to;
	__u32 n, last;

	if (!k || !cache)
		return 0;

	struct walk_env env = {s, cache};
	struct known_step step = {.pc = s->walk.regs.pc, .fp = s->walk.regs.fp};
	__u64 sp;

	n = k->n;
	if (!known_describe(s, walk_row_at(&env, &s->walk, s->before.pc - 1), &step)) {
		/* What follows does not continue the kept steps. */
		s->known = n ? KNOWN_NOT : KNOWN_LEARN;
		return 0;
	}
	if (!n) {
		k->base = s->before.sp;
		k->at[0] = 0;
		from = &k->steps[0];
		from->pc = s->before.pc;
		from->fp = s->before.fp;
		from->sp = 0;
		n = 1;
	}
	sp = s->walk.regs.sp - k->base;
	last = s->walk.n - 1;
	if (n >= KNOWN_STEPS || sp > ~0u) {
		s->known = KNOWN_NOT;
		return 0;
	}
	from = &k->steps[walk_bound(n - 1, KNOWN_STEPS - 1)];
	from->frame = s->user.frames[walk_bound(last, SAMPLE_MAX_FRAMES - 1)];
	step.sp = (__u32)sp;
	to = &k->steps[walk_bound(n, KNOWN_STEPS - 1)];
	*to = step;
	k->at[known_slot(step.sp)] = (__u8)n;
	k->n = n + 1;
	return 0;
}

/* Before a step of the walk. */
static __always_inline void known_before(struct scratch *s, const struct known_walk *k)
{
	known_try(s, k);
	if (s->known != KNOWN_LEARN)
		return;
	s->before.pc = s->walk.regs.pc;
	s->before.sp = s->walk.regs.sp;
	s->before.fp = s->walk.regs.fp;
	s->before.is_plain = known_is_plain(&s->walk.regs);
}

/* After a step that has found a caller. */
static __always_inline void known_after(struct scratch *s)
{
	if (s->known == KNOWN_LEARN)
		known_learn();
}

/* The walk is over, or goes on in another program. */
static __always_inline void known_end(struct scratch *s, struct known_walk *k)
{
	if (s->known == KNOWN_FOLLOW)
		k->is_stale = s->walk.n - s->followed > FEW_STEPS;
}
