/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Notes the lock for which the current thread is about to wait, and the thread that has it. The
 * owner's entry is told, too (bpf/lib/held.h). An owner counts only if it is another thread of the
 * process.
 */
#pragma once

#include "bpf/lib/held.h"
#include "bpf/prog/lock_owner.h"

/* The owner's entry: the thread `tid` waits for its lock; `again`: it has just done so before. */
static __always_inline void note_held(struct thread *t, const struct held *held, __u32 tid,
				      __u32 owner, bool again)
{
	bool goes_on = t->held.lock == held->lock && t->held.at == held->at &&
		       t->held.is == held->is && held_is_wanted(t, owner);
	__u32 place = t->held.next % HELD_WAITERS;

	for (__u32 i = 0; i < HELD_WAITERS; i++) {
		if (t->held.waiters[i] != tid)
			continue;
		place = i;
		goes_on |= t->held.lock == held->lock && again;
	}
	/* The owner may read meanwhile: without a lock the other words mean nothing. */
	*(volatile __u64 *)&t->held.lock = 0;
	if (!goes_on)
		t->held.since_ns = bpf_ktime_get_ns();
	t->held.at = held->at;
	t->held.is = held->is;
	t->held.mask = held->mask;
	t->held.taken_at = held->taken_at;
	t->held.next = place + 1;
	t->held.waiters[place % HELD_WAITERS] = tid;
	*(volatile __u64 *)&t->held.lock = held->lock;
}

/*
 * Notes for which lock the current thread is about to wait, and who has it; `word` is the futex,
 * `last` the lock for which it waited when it left its CPU last. A function of its own: the stack
 * of sched_switch's program has no room for all of this.
 */
__noinline int note_lock(__u64 word, __u64 last)
{
	struct task_struct *task = task_current();
	__u32 tid = (__u32)task_read(task, pid), tgid = (__u32)task_read(task, tgid);
	struct thread *t = bpf_map_lookup_elem(&threads, &tid), *other;
	struct held held = {};
	__u32 owner;
	bool again;

	if (!t)
		return 0;
	owner = lock_find(task, tgid, tid, t->own_id, word, &held);
	t->lock = held.lock;
	other = owner && owner != tid ? bpf_map_lookup_elem(&threads, &owner) : NULL;
	if (!other || other->tgid != tgid)
		return 0;
	/* It has waited for a time, and only looked at the lock meanwhile. */
	again = held.lock == last && bpf_ktime_get_ns() - t->ended_ns < HELD_GAP_NS;
	note_held(other, &held, tid, owner, again);
	t->owner = owner; /* not before: it would be one of those that wait already */
	return 0;
}
