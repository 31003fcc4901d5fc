/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls whose return is probed, by culprit or by others. While such a call runs, the kernel keeps
 * its return address, and the stack has that of the kernel's code for uprobes instead. The thread
 * itself is in that code when the call has returned and the probe runs.
 *
 * An instruction with a probe that the kernel cannot emulate is stepped: a copy of it runs
 * elsewhere.
 */
#pragma once

#include "bpf/unwind/native.h"

#ifdef __bpf__

#include "bpf/lib/task.h"

#define UPROBES_NESTED 64 /* the kernel's limit: MAX_URETPROBE_DEPTH */

#if defined(__TARGET_ARCH_x86)
#define UPROBE_RETURN_POPS 8
#define UPROBE_PUSHES 24 /* by the kernel's code, before its system call */
#else
#define UPROBE_RETURN_POPS 0
#define UPROBE_PUSHES 0
#endif

#define UPROBE_COPY_BYTES 128 /* the kernel's limit: UPROBE_XOL_SLOT_BYTES */

/* Replaces pc, which is in the copy of an instruction that is stepped. */
static __always_inline bool uprobe_real_instruction(struct scratch *s, const struct uprobe_task *u)
{
	__u64 copy = BPF_CORE_READ(u, xol_vaddr), done = s->walk.regs.pc - copy;

	if (!copy || !s->walk.regs.exact || done >= UPROBE_COPY_BYTES)
		return false;
	s->walk.regs.pc = BPF_CORE_READ(u, vaddr) + done;
	s->known = KNOWN_NOT;
	return true;
}

/*
 * Replaces pc, which is in code of the kernel for uprobes, by what the kernel keeps of the call or
 * of the instruction. False: it keeps nothing. A global function: the verifier checks it once.
 */
__noinline int uprobe_real_return(void)
{
	struct task_struct *task = task_current();
	struct scratch *s = scratch_get();
	const struct return_instance *ri;
	const struct uprobe_task *u;

	if (!s || !bpf_core_field_exists(task->utask))
		return false;
	u = BPF_CORE_READ(task, utask);
	if (u && uprobe_real_instruction(s, u))
		return true;
	ri = u ? BPF_CORE_READ(u, return_instances) : NULL;
	for (__u64 i = 0; ri && i < UPROBES_NESTED; i++) {
		__u64 sp = BPF_CORE_READ(ri, stack) + UPROBE_RETURN_POPS;

		if (sp - s->walk.regs.sp <= (s->walk.regs.exact ? UPROBE_PUSHES : 0)) {
			s->walk.regs.pc = BPF_CORE_READ(ri, orig_ret_vaddr);
			s->walk.regs.sp = sp;
			s->walk.regs.exact = 0;
			s->known = KNOWN_NOT;
			return true;
		}
		ri = BPF_CORE_READ(ri, next);
	}
	return false;
}

#else

/* Walks that are repeated on the host have real return addresses. */
static inline int uprobe_real_return(void)
{
	return false;
}

#endif
