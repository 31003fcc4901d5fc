/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lock for which the current thread is about to wait, and who has it: by the words in which
 * glibc keeps owners, and by the locks of runtimes (bpf/unwind/NAME_lock.h). Locks keep the ids by
 * which the process knows its threads.
 */
#pragma once

#include "bpf/lib/threads.h"
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

/*
 * Finds the lock of the futex `word`, and where it keeps its owner. Returns the owner's tid; 0: it
 * is not known. `own_id` is the id by which the process knows the current thread `tid`.
 */
static __always_inline __u32 lock_find(struct task_struct *task, __u32 tgid, __u32 tid,
				       __u32 own_id, __u64 word, struct held *ret)
{
	const __u32 *outside;
	__u32 owner = 0;
	__u64 key;

	if (!python_lock(task, tgid, own_id, word, ret, &owner) &&
	    !hotspot_lock(task, tgid, own_id, ret, &owner))
		owner = glibc_lock(word, ret);
	if (own_id == tid || !owner)
		return owner;
	key = thread_key(tgid, owner);
	outside = bpf_map_lookup_elem(&thread_ids, &key);
	return outside ? *outside : 0;
}
