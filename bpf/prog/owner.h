/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lock for which the current thread is about to wait, and the thread that has it: by the words
 * in which glibc keeps owners, and by the locks of runtimes (bpf/unwind/NAME_lock.h). The owner's
 * entry is told, too (bpf/lib/held.h).
 *
 * An owner counts only if it is another thread of the process. Locks keep the ids by which the
 * process knows its threads.
 */
#pragma once

#include "bpf/lib/held.h"
#include "bpf/lib/wait.h"
#include "bpf/unwind/hotspot_lock.h"
#include "bpf/unwind/python_lock.h"

#define MUTEX_TAKEN_AND_WANTED 2
#define FUTEX_WAITERS 0x80000000
#define FUTEX_TID_MASK 0x3fffffff

/*
 * A lock of glibc, of which `word` is the futex: the index of the word behind it that keeps its
 * owner, 0 if it looks like neither
 *
 *	a mutex		{lock, count, owner, …} (sysdeps/nptl/bits/struct_mutex.h). `lock` is 2, or,
 *			if it is robust or has priorities, the owner with FUTEX_WAITERS.
 *	a rwlock	{…, wrphase_futex, writers_futex, pad, pad, cur_writer, …}
 *			(struct_rwlock.h, 64 bits); threads wait for one of the two futexes
 */
static __always_inline __u32 glibc_owner(const __u32 w[5])
{
	if (w[2] && (w[0] == MUTEX_TAKEN_AND_WANTED ||
		     (w[0] & FUTEX_WAITERS && (w[0] & FUTEX_TID_MASK) == w[2])))
		return 2;
	if (!w[1] && !w[2] && w[3])
		return 3;
	if (!w[2] && !w[3] && w[4])
		return 4;
	return 0;
}

static __always_inline __u32 glibc_lock(__u64 word, struct held *ret)
{
	__u32 words[5] = {}, at, owner;

	ret->lock = word;
	if (bpf_probe_read_user(words, sizeof(words), (const void *)word) < 0)
		return 0;
	at = glibc_owner(words);
	owner = at == 2 ? words[2] : at == 3 ? words[3] : at == 4 ? words[4] : 0;
	ret->at = word + 4 * at;
	ret->is = owner;
	ret->mask = ~0U;
	return owner;
}

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
	__u32 id = t ? t->own_id : 0, owner = 0;
	struct held held = {};
	bool again;

	if (!t)
		return 0;
	if (!python_lock(task, tgid, id, word, &held, &owner) &&
	    !hotspot_lock(task, tgid, id, &held, &owner))
		owner = glibc_lock(word, &held);
	t->lock = held.lock;
	if (id != tid && owner) {
		__u64 key = thread_key(tgid, owner);
		const __u32 *outside = bpf_map_lookup_elem(&thread_ids, &key);

		owner = outside ? *outside : 0;
	}
	other = owner && owner != tid ? bpf_map_lookup_elem(&threads, &owner) : NULL;
	if (!other || other->tgid != tgid)
		return 0;
	/* It has waited for a time, and only looked at the lock meanwhile. */
	again = held.lock == last && bpf_ktime_get_ns() - t->ended_ns < HELD_GAP_NS;
	note_held(other, &held, tid, owner, again);
	t->owner = owner; /* not before: it would be one of those that wait already */
	return 0;
}
