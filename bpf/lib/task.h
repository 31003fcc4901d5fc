/* SPDX-License-Identifier: GPL-2.0-only */
/* The user registers of the current task, from wherever this kernel keeps them. */
#pragma once

#include "bpf/lib/maps.h"

#if defined(__TARGET_ARCH_x86)

#define USER32_CS 0x23
#define NR_EXECVE 59
#define NR_EXECVEAT 322

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

/*
 * A saved pt_regs of user mode: WALK_GO, or why it cannot be walked. The number of the system call
 * through ret_syscall, negative outside of any.
 */
static __always_inline int regs_from_kernel_stack(struct walk_regs *w, const void *at,
						  __s32 *ret_syscall)
{
	struct pt_regs p;

	if (bpf_probe_read_kernel(&p, sizeof(p), at) < 0 || !(p.cs & 3))
		return STOP_REGS_LOST;
	if (p.cs == USER32_CS)
		return STOP_COMPAT;
	regs_take(w, &p);
	/* In a system call the pc is behind the instruction; -1 marks every other entry. */
	w->exact = p.orig_ax == ~0UL;
	*ret_syscall = (__s32)p.orig_ax;
	return WALK_GO;
}

static __always_inline int regs_from_context(struct walk_regs *w, const bpf_user_pt_regs_t *p)
{
	if (p->cs == USER32_CS)
		return STOP_COMPAT;
	regs_take(w, p);
	w->exact = 1;
	return WALK_GO;
}

/* TOP_OF_KERNEL_STACK_PADDING (arch/x86/include/asm/thread_info.h) with FRED, since 6.9. */
static __always_inline __u64 regs_stack_padding(void)
{
	return config.has_fred ? 16 : 0;
}

#elif defined(__TARGET_ARCH_arm64)

#define NR_EXECVE 221
#define NR_EXECVEAT 281
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

static __always_inline int regs_from_kernel_stack(struct walk_regs *w, const void *at,
						  __s32 *ret_syscall)
{
	const struct pt_regs *p = at;
	struct user_pt_regs u;

	if (bpf_probe_read_kernel(&u, sizeof(u), at) < 0 || !regs_are_user(&u))
		return STOP_REGS_LOST;
	for (int i = 0; i < 31; i++)
		w->r[i] = u.regs[i];
	*ret_syscall = BPF_CORE_READ(p, syscallno);
	w->exact = *ret_syscall == -1;
	return regs_take(w, u.pc, u.sp, u.pstate);
}

static __always_inline int regs_from_context(struct walk_regs *w, const bpf_user_pt_regs_t *p)
{
	/* The context may only be read at constant offsets. */
#pragma unroll
	for (int i = 0; i < 31; i++)
		w->r[i] = p->regs[i];
	w->exact = 1;
	return regs_take(w, p->pc, p->sp, p->pstate);
}

static __always_inline __u64 regs_stack_padding(void)
{
	return 0;
}

#endif

/* The user registers of `task`, the current one, which has an mm: WALK_GO, or a stop reason. */
static __always_inline int task_user_regs(struct task_struct *task, const bpf_user_pt_regs_t *ctx,
					  struct walk_regs *ret, __s32 *ret_syscall)
{
	const char *at;

	ret->bx = 0;
	*ret_syscall = -1;
	if (regs_are_user(ctx))
		return regs_from_context(ret, ctx);
	if (config.has_task_pt_regs) {
		at = (const char *)bpf_task_pt_regs(bpf_get_current_task_btf());
	} else {
		at = BPF_CORE_READ(task, stack);
		at += config.thread_size - regs_stack_padding() -
		      bpf_core_type_size(struct pt_regs);
	}
	return regs_from_kernel_stack(ret, at, ret_syscall);
}

/*
 * In execve() the old stack goes away before the new one can be run on: between the two a thread
 * has no user stack at all. The registers are still the old program's then, the memory is not.
 */
static __always_inline bool task_between_images(const struct walk_regs *regs, __s32 syscall_nr)
{
	__u64 word;

	return (syscall_nr == NR_EXECVE || syscall_nr == NR_EXECVEAT) &&
	       bpf_probe_read_user(&word, sizeof(word), (const void *)regs->sp) < 0;
}
