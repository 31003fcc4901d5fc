/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPython's GIL. A thread that wants it waits for the condition variable in the GIL's struct
 * (Python/ceval_gil.c: take_gil()), so the futex tells such a wait. The struct keeps the thread
 * state that had the GIL last, and whether any has it.
 */
#pragma once

#include "bpf/unwind/lock.h"

/*
 * The tid in the struct that glibc's pthread_self() returns (nptl/descr.h); 0: not known. Checked
 * with the current thread's own.
 */
#if defined(__TARGET_ARCH_x86)
#define PTHREAD_TID 720
#else
#define PTHREAD_TID 0
#endif

static __always_inline __u32 python_tid(struct task_struct *task, const struct python_lock *p,
					__u32 own_id, __u64 state)
{
	if (p->thread_native)
		return runtime_word32(state + p->thread_native);
	if (!PTHREAD_TID || runtime_word32(task_tls(task) + PTHREAD_TID) != own_id)
		return 0;
	return runtime_word32(runtime_word(state + p->thread_id) + PTHREAD_TID);
}

/*
 * Whether the futex is the GIL's, for which the current thread is about to wait; `own_id`: the id
 * by which its process knows it. *ret_owner stays as it is if nobody has the GIL.
 */
static __always_inline bool python_lock(struct task_struct *task, __u32 tgid, __u32 own_id,
					__u64 word, struct held *ret, __u32 *ret_owner)
{
	const struct runtime_lock *process = lock_process(task, tgid, RUNTIME_PYTHON);
	const struct python_lock *p;
	__u64 holder;

	if (!process)
		return false;
	p = (const struct python_lock *)process->room;
	if (word - p->gil - p->gil_cond >= PYTHON_COND_BYTES)
		return false;
	ret->lock = p->gil;
	holder = runtime_word(p->gil + p->gil_holder);
	if (!holder || !runtime_word32(p->gil + p->gil_locked))
		return true;
	*ret_owner = python_tid(task, p, own_id, holder);
	ret->at = p->gil + p->gil_holder;
	ret->is = holder;
	ret->mask = ~0ULL;
	ret->taken_at = p->gil + p->gil_locked;
	return true;
}
