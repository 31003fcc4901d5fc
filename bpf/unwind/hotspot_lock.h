/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Java's monitors (`synchronized`). A thread that wants one says so in its JavaThread before it
 * waits, in a futex of its own (ObjectMonitor::enter()). The monitor keeps its owner
 *
 *	from 24 on	by a number, which the owner's JavaThread has as well
 *	before		by the address of its JavaThread; until the owner itself has seen the
 *			monitor, by an address on the owner's stack
 *
 * or, from 22 on, by a small number until the owner has seen the monitor: then it is not known.
 */
#pragma once

#include "bpf/unwind/lock.h"

#define HOTSPOT_THREADS 256   /* JavaThreads that are searched for an owner */
#define HOTSPOT_FIRST_OWNER 3 /* smaller ones are marks (objectMonitor.hpp) */

/* What all JavaThreads have as first word; it tells them from an address on a stack. */
static __always_inline __u32 hotspot_tid(const struct hotspot_lock *p, __u64 thread, __u64 class)
{
	if (!thread || !class || runtime_word(thread) != class)
		return 0;
	return runtime_word32(runtime_word(thread + p->thread_os) + p->os_id);
}

/* Whether the monitors' word `owner`, which is not a JavaThread's address, means this thread. */
static __always_inline bool hotspot_is_owner(const struct hotspot_lock *p, __u64 thread,
					     __u64 owner)
{
	__u64 base;

	if (p->owner_id)
		return runtime_word(thread + p->owner_id) == owner;
	base = runtime_word(thread + p->stack_base);
	return owner < base && base - owner <= runtime_word(thread + p->stack_size);
}

/* The thread of the process `tgid` that has a monitor whose word is `owner`; 0: not found. */
__noinline __u64 hotspot_search(__u32 tgid, __u64 owner)
{
	struct runtime_key key = {tgid, RUNTIME_HOTSPOT};
	const struct runtime_lock *process = bpf_map_lookup_elem(&runtime_locks, &key);
	const struct hotspot_lock *p;
	__u64 list, at;
	__u32 n;

	if (!process)
		return 0;
	p = (const struct hotspot_lock *)process->room;
	if (!p->threads || (!p->owner_id && !p->stack_base))
		return 0;
	list = runtime_word(p->threads);
	at = runtime_word(list + p->list_threads);
	n = runtime_word32(list + p->list_length);
	for (__u32 i = 0; i < HOTSPOT_THREADS; i++) {
		__u64 thread = i < n ? runtime_word(at + 8ULL * i) : 0;

		if (!thread)
			break;
		if (hotspot_is_owner(p, thread, owner))
			return thread;
	}
	return 0;
}

/*
 * Whether the current thread is about to wait for a monitor; `own_id`: the id by which its process
 * knows it. *ret_owner stays as it is if the owner is not known.
 */
static __always_inline bool hotspot_lock(struct task_struct *task, __u32 tgid, __u32 own_id,
					 struct held *ret, __u32 *ret_owner)
{
	const struct runtime_lock *process = lock_process(task, tgid, RUNTIME_HOTSPOT);
	const struct hotspot_lock *p;
	__u64 own, class, owner, thread;

	if (!process)
		return false;
	p = (const struct hotspot_lock *)process->room;
	own = runtime_follow(&p->thread, task_tls(task));
	class = runtime_word(own);
	if (hotspot_tid(p, own, class) != own_id)
		return false;
	ret->lock = runtime_word(own + p->thread_pending);
	if (!ret->lock)
		return false;
	owner = runtime_word(ret->lock + p->monitor_owner);
	if (owner < HOTSPOT_FIRST_OWNER)
		return true;
	thread = owner;
	if (p->owner_id || runtime_word(owner) != class)
		thread = hotspot_search(tgid, owner);
	if (thread == own)
		return false; /* it has the monitor, and waits for something else */
	*ret_owner = hotspot_tid(p, thread, class);
	ret->at = ret->lock + p->monitor_owner;
	ret->is = owner;
	ret->mask = ~0ULL;
	return true;
}
