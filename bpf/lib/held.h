/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether a sampled thread holds a lock for which others wait. A thread that begins to wait tells
 * the owner's entry for which lock, and where its memory shows who has it (bpf/prog/owner.h). A
 * sample of the owner looks there again, and whether the others still wait: so neither a lock that
 * was passed on nor waiters that have given up are told.
 */
#pragma once

#include "bpf/lib/threads.h"

/* A thread that waits for the same lock again so soon has waited all the time. */
#define HELD_GAP_NS 200000

/* Whether the thread `tid` waits for the lock, which `owner` had when it began. */
static __always_inline bool waits_for(__u32 tid, __u32 tgid, __u64 lock, __u32 owner)
{
	const struct thread *w = bpf_map_lookup_elem(&threads, &tid);

	return w && w->tgid == tgid && !w->running && w->state && !w->woken_ns && w->lock == lock &&
	       w->owner == owner;
}

/* Whether one of the threads that the entry names still waits. */
static __always_inline bool held_is_wanted(const struct thread *t, __u32 tid)
{
	for (int i = 0; i < HELD_WAITERS; i++)
		if (t->held.waiters[i] && waits_for(t->held.waiters[i], t->tgid, t->held.lock, tid))
			return true;
	return false;
}

/*
 * The lock that the current thread `tid` holds and for which others wait; 0: none is known. A
 * function of its own: the stacks of programs have no room for it.
 */
__noinline __u64 held_now(__u32 tid)
{
	struct thread *t = config.has_threads ? bpf_map_lookup_elem(&threads, &tid) : NULL;
	__u64 lock = t ? *(volatile __u64 *)&t->held.lock : 0, word = 0;
	__u32 taken = 1;

	if (!t || !lock)
		return 0;
	if (bpf_probe_read_user(&word, sizeof(word), (const void *)t->held.at) < 0 ||
	    (t->held.taken_at &&
	     bpf_probe_read_user(&taken, sizeof(taken), (const void *)t->held.taken_at) < 0))
		return 0;
	if (!taken || (word ^ t->held.is) & t->held.mask) {
		t->held.lock = 0;
		return 0;
	}
	return held_is_wanted(t, tid) ? lock : 0;
}

/* The part of a time from `begin` to `end`, which counts as `value`, that is after `since`. */
static __always_inline __s64 part_since(__s64 value, __u64 begin, __u64 end, __u64 since)
{
	if (since <= begin)
		return value;
	if (since >= end)
		return 0;
	if ((__u64)value == end - begin)
		return (__s64)(end - since);
	return (__s64)((__u64)value * (((end - since) << 16) / (end - begin)) >> 16);
}
