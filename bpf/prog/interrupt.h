/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether the code that wakes a thread interrupts the current one, which then wakes nobody. */
#pragma once

#include "bpf/lib/scratch.h"
#include "bpf/lib/task.h"

#define INTERRUPT_FRAMES 48

struct interrupt {
	__u64 context; /* an address on the current stack */
	struct record_stack head;
	__u64 frames[INTERRUPT_FRAMES];
};

static __always_inline bool is_in(__u64 pc, enum kernel_code code)
{
	return pc >= config.code[code][0] && pc < config.code[code][1];
}

/*
 * Reads the stack of code that does not run on the stack of the current thread, up to where it
 * interrupts the thread. False: it interrupts nothing. The thread has sent to this machine itself,
 * and receives for the other side.
 */
static __always_inline bool read_interrupt(struct interrupt *e, void *ctx)
{
	long bytes = bpf_get_stack(ctx, e->frames, sizeof(e->frames), 0);
	__u32 n = bytes > 0 ? (__u32)bytes / 8 : 0;
	bool backlog = false;

	for (__u32 i = 0; i < INTERRUPT_FRAMES; i++) {
		__u64 pc = e->frames[i];

		if (i >= n || is_in(pc, CODE_INTERRUPT)) {
			n = i;
			break;
		}
		backlog |= is_in(pc, CODE_BACKLOG);
		if (backlog && is_in(pc, CODE_AFTER_SENDER))
			return false;
	}
	e->head.n = (__u16)n;
	return true;
}

/* Whether the current code, on whose stack `context` is, does not run on the thread's stack. */
static __always_inline bool is_apart(struct interrupt *e, struct task_struct *task, void *context)
{
	e->context = (__u64)context; /* makes a number of the pointer */
	return *(volatile __u64 *)&e->context - (__u64)task_read(task, stack) >= config.thread_size;
}

/*
 * Whether the current code interrupts the current thread. Interrupts, and what they leave to do at
 * once, have a stack of their own; an interrupt of user code may stay on the thread's stack, and
 * then the thread is in no system call. `context` is on the stack. Not inline, because `waker` has
 * no room on its stack for the variables; not used where nobody asks for wakers.
 */
static __noinline __attribute__((unused)) bool is_interrupt(struct interrupt *e, void *context)
{
	struct task_struct *task = task_current();
	struct syscall call = {.nr = -1};
	struct walk_regs *regs;
	struct scratch *s;

	e->head.n = 0;
	if (!(__u32)bpf_get_current_pid_tgid()) {
		read_interrupt(e, context);
		return true; /* the idle task wakes nobody */
	}
	if (is_apart(e, task, context))
		return read_interrupt(e, context);
	s = scratch_get();
	if (!s || s->users)
		return true; /* it interrupts a walk */
	if (task_read(task, flags) & PF_KTHREAD)
		return false;
	regs = &s->walk.regs;
	return task_entry_regs(task, regs, &call) == WALK_GO && call.nr < 0 &&
	       read_interrupt(e, context);
}
