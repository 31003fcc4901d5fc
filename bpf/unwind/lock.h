/* SPDX-License-Identifier: GPL-2.0-only */
/* What the readers of runtimes' locks share; they run where a thread leaves its CPU. */
#pragma once

#include "bpf/lib/task.h"
#include "bpf/lib/threads.h"
#include "bpf/unwind/runtime.h"

/* User space's data about the current task's locks; NULL: they are not known (yet). */
static __always_inline const struct runtime_lock *lock_process(struct task_struct *task, __u32 tgid,
							       __u32 id)
{
	struct runtime_key key = {tgid, id};
	const struct runtime_lock *p = bpf_map_lookup_elem(&runtime_locks, &key);
	struct mm_struct *mm = p ? task_read(task, mm) : NULL;
	const struct process_entry *known =
		mm ? task_process(task, tgid, task_read(mm, start_stack)) : NULL;

	return known && p->image == known->image ? p : NULL;
}
