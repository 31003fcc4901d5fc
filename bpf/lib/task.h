/* SPDX-License-Identifier: GPL-2.0-only */
/* The user registers of the current task, from wherever this kernel keeps them. */
#pragma once

#include "bpf/lib/maps.h"

static __always_inline struct task_struct *task_current(void)
{
	return config.has_task_btf ? (void *)bpf_get_current_task_btf()
				   : (void *)bpf_get_current_task();
}

/*
 * Reads a field of the current task or of a struct to which the task points. If the verifier knows
 * the pointer's type, the access is a load. On older kernels it is a helper call, which costs as
 * much as a frame.
 */
#define task_read(p, field) (config.has_task_btf ? (p)->field : BPF_CORE_READ(p, field))

/* A mask of the word's bytes before the first NUL. */
static __always_inline __u64 comm_mask(__u64 word)
{
	__u64 nul = (word - 0x0101010101010101ULL) & ~word & 0x8080808080808080ULL;

	return ((nul & -nul) >> 7) - 1;
}

/* The thread's name, padded with NUL: not all kernels clear the bytes after the end of a name. */
static __always_inline void task_comm(const struct task_struct *task, char *ret_comm)
{
	__u64 *to = (__u64 *)ret_comm, mask;

	if (!config.has_task_btf) {
		to[0] = to[1] = 0;
		bpf_core_read_str(ret_comm, SAMPLE_COMM_BYTES, &task->comm);
		return;
	}
	to[0] = *(const __u64 *)&task->comm[0];
	to[1] = *(const __u64 *)&task->comm[8];
	mask = comm_mask(to[0]);
	to[1] &= ~mask ? 0 : comm_mask(to[1]);
	to[0] &= mask;
}

/* The number, arguments and result of the system call that a thread is in. */
struct syscall {
	__s32 nr; /* negative: the thread is in no system call */
	__u64 arg0, arg1, ret;
};

#if defined(__TARGET_ARCH_x86)

#define USER32_CS 0x23
#define NR_EXECVE 59
#define NR_EXECVEAT 322
#define NR_CLONE 56
#define NR_CLONE3 435
/* syscall */
#define SYSCALL_INSN 0x050f
typedef __u16 syscall_insn;

static __always_inline void regs_take(struct walk_regs *w, const struct pt_regs *p)
{
	/* DWARF order (System V ABI AMD64, figure 3.36). */
	w->r[0] = p->ax;
	w->r[1] = p->dx;
	w->r[2] = p->cx;
	w->r[3] = p->bx;
	w->r[4] = p->si;
	w->r[5] = p->di;
	w->r[6] = p->bp;
	w->r[7] = p->sp;
	w->r[8] = p->r8;
	w->r[9] = p->r9;
	w->r[10] = p->r10;
	w->r[11] = p->r11;
	w->r[12] = p->r12;
	w->r[13] = p->r13;
	w->r[14] = p->r14;
	w->r[15] = p->r15;
	w->pc = p->ip;
	w->sp = p->sp;
	w->fp = p->bp;
	w->full = 1;
}

static __always_inline bool regs_are_user(const bpf_user_pt_regs_t *p)
{
	return p->cs & 3;
}

/* Takes the registers of user mode from a saved pt_regs: WALK_GO, or a stop reason. */
static __always_inline int regs_from_kernel_stack(struct walk_regs *w, const void *at,
						  struct syscall *ret_syscall)
{
	struct pt_regs p;

	if (bpf_probe_read_kernel(&p, sizeof(p), at) < 0 || !(p.cs & 3))
		return STOP_REGS_LOST;
	if (p.cs == USER32_CS)
		return STOP_COMPAT;
	regs_take(w, &p);
	ret_syscall->nr = (__s32)p.orig_ax;
	ret_syscall->arg0 = p.di;
	ret_syscall->arg1 = p.si;
	ret_syscall->ret = p.ax;
	return WALK_GO;
}

static __always_inline int regs_from_context(struct walk_regs *w, const bpf_user_pt_regs_t *p)
{
	if (p->cs == USER32_CS)
		return STOP_COMPAT;
	regs_take(w, p);
	return WALK_GO;
}

#elif defined(__TARGET_ARCH_arm64)

#define NR_EXECVE 221
#define NR_EXECVEAT 281
#define NR_CLONE 220
#define NR_CLONE3 435
/* svc #0 */
#define SYSCALL_INSN 0xd4000001
typedef __u32 syscall_insn;
#define PSR_MODE_MASK 0x0f
#define PSR_MODE32_BIT 0x10

static __always_inline bool regs_are_user(const bpf_user_pt_regs_t *p)
{
	return (p->pstate & PSR_MODE_MASK) == 0;
}

static __always_inline int regs_take(struct walk_regs *w, __u64 pc, __u64 sp, __u64 pstate)
{
	if (pstate & PSR_MODE32_BIT)
		return STOP_COMPAT;
	w->r[31] = sp;
	w->pc = pc;
	w->sp = sp;
	w->fp = w->r[29];
	w->full = 1;
	return WALK_GO;
}

/*
 * The end of a saved pt_regs. The registers before it go to walk_regs directly: all 272 bytes would
 * not fit on the BPF stack.
 */
struct regs_tail {
	__u64 pc, pstate;
};
_Static_assert(sizeof(struct user_pt_regs) == 32 * 8 + sizeof(struct regs_tail), "user_pt_regs");

static __always_inline int regs_from_kernel_stack(struct walk_regs *w, const void *at,
						  struct syscall *ret_syscall)
{
	const struct pt_regs *p = at;
	struct regs_tail tail;

	if (bpf_probe_read_kernel(&tail, sizeof(tail), at + 32 * 8) < 0 ||
	    tail.pstate & PSR_MODE_MASK || bpf_probe_read_kernel(w->r, 32 * 8, at) < 0)
		return STOP_REGS_LOST;
	ret_syscall->nr = BPF_CORE_READ(p, syscallno);
	ret_syscall->arg0 = BPF_CORE_READ(p, orig_x0);
	ret_syscall->arg1 = w->r[1];
	ret_syscall->ret = w->r[0];
	return regs_take(w, tail.pc, w->r[31], tail.pstate);
}

static __always_inline int regs_from_context(struct walk_regs *w, const bpf_user_pt_regs_t *p)
{
	/* The verifier allows reads of the context at constant offsets only. */
#pragma unroll
	for (__u64 i = 0; i < 31; i++)
		w->r[i] = p->regs[i];
	return regs_take(w, p->pc, p->sp, p->pstate);
}

#endif

/*
 * In a system call the pc is after the syscall instruction, as a return address is after a call.
 * Not so if the kernel has since set the pc to the first instruction of a program or of a signal
 * handler.
 */
static __always_inline bool behind_syscall(__u64 pc)
{
	syscall_insn insn = 0;

	/*
	 * After an exec the page may not be in memory yet; the page of code that made a system call
	 * is.
	 */
	return bpf_probe_read_user(&insn, sizeof(insn), (const void *)(pc - sizeof(insn))) == 0 &&
	       insn == SYSCALL_INSN;
}

/*
 * Whether the thread is in clone() with a new stack on which it has not run yet: the new stack
 * holds data from the parent, not a return address. Only in a child is the result 0.
 */
static __always_inline bool is_newborn(const struct syscall *call)
{
	__u64 stack = call->arg1;

	if (call->ret || (call->nr != NR_CLONE && call->nr != NR_CLONE3))
		return false;
	/*
	 * clone_args.stack (include/uapi/linux/sched.h). The parent may have reused the memory
	 * already.
	 */
	if (call->nr == NR_CLONE3 &&
	    bpf_probe_read_user(&stack, sizeof(stack), (const void *)(call->arg0 + 40)) < 0)
		return true;
	return stack != 0;
}

static __always_inline __u64 task_tls(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return task_read(task, thread.fsbase);
#else
	return task_read(task, thread.uw.tp_value);
#endif
}

/* Sets the fields that do not come from the saved registers. */
static __always_inline void regs_init(struct walk_regs *ret, struct task_struct *task)
{
	ret->bx = 0;
	ret->newborn = 0;
	ret->exact = 1;
	ret->tls = task_tls(task);
}

/*
 * The user registers that the kernel saved for `task`, which has an mm and is in the kernel:
 * WALK_GO, or a stop reason.
 */
static __always_inline int task_entry_regs(struct task_struct *task, struct walk_regs *ret,
					   struct syscall *ret_syscall)
{
	const char *at;

	if (config.has_task_btf) {
		at = (const char *)bpf_task_pt_regs(task);
	} else {
		at = BPF_CORE_READ(task, stack);
		at += config.thread_size - bpf_core_type_size(struct pt_regs);
	}
	return regs_from_kernel_stack(ret, at, ret_syscall);
}

/* The system call that `task`, which is in the kernel, is in: its number and arguments, or -1. */
static __always_inline int task_syscall(struct task_struct *task, struct syscall *ret)
{
	const struct pt_regs *at =
		config.has_task_btf ? (const void *)bpf_task_pt_regs(task) : NULL;

	if (!at)
		return -1;
#if defined(__TARGET_ARCH_x86)
	ret->nr = (__s32)at->orig_ax;
	ret->arg0 = at->di;
#else
	ret->nr = BPF_CORE_READ(at, syscallno);
	ret->arg0 = BPF_CORE_READ(at, orig_x0);
#endif
	return 0;
}

/* The same for the current task. Sets *ret_syscall in a system call only. */
static __always_inline int task_saved_regs(struct task_struct *task, struct walk_regs *ret,
					   __s32 *ret_syscall)
{
	struct syscall call = {};
	int stop = task_entry_regs(task, ret, &call);

	if (stop != WALK_GO || call.nr < 0)
		return stop;
	*ret_syscall = call.nr;
	ret->exact = !behind_syscall(ret->pc);
	ret->newborn = is_newborn(&call);
	return WALK_GO;
}

/*
 * execve() frees the old stack before the new stack can be used: in between a thread has no user
 * stack. The registers are still those of the old program, but the memory is gone.
 */
static __always_inline bool task_between_images(const struct walk_regs *regs, __s32 syscall_nr)
{
	__u64 word;

	return (syscall_nr == NR_EXECVE || syscall_nr == NR_EXECVEAT) &&
	       bpf_probe_read_user(&word, sizeof(word), (const void *)regs->sp) < 0;
}

/*
 * What user space knows about the task's process, whose stack begins at `start_stack`. NULL:
 * nothing, or only about a program that the process executed before.
 */
static __always_inline const struct process_entry *task_process(struct task_struct *task,
								__u32 tgid, __u64 start_stack)
{
	const struct process_entry *p = bpf_map_lookup_elem(&processes, &tgid);

	if (!p || p->start_stack != start_stack ||
	    (p->exec_id && p->exec_id != task_read(task, self_exec_id)))
		return NULL;
	return p;
}
