/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads of user memory by programs that walk the stack of another thread, which sleeps. Included
 * before anything that reads, this file redirects the reads: the code that reads is the same.
 *
 * A read may sleep until a page is in memory, and then the thread may have woken. Whoever uses what
 * was read checks afterwards that it has not.
 */
#pragma once

#include "bpf/lib/maps.h"

extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *task) __ksym;

/* The walk under way, and its result. User space has it mapped. */
struct sleeper_walk sleeper = {};

/* As bpf_probe_read_user(). */
static __always_inline long sleeper_read(void *to, __u32 n, const void *from)
{
	struct task_struct *task = bpf_task_from_pid((__s32)sleeper.tid);
	long r;

	if (!task)
		return -1;
	r = bpf_copy_from_user_task(to, n, from, task, 0);
	bpf_task_release(task);
	return r;
}

#define bpf_probe_read_user sleeper_read
