/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the current thread has waited for, from its system call and the file that the call is about.
 * The thread is still in the kernel where it waited.
 */
#pragma once

#include "bpf/lib/scratch.h"
#include "bpf/lib/task.h"
#include <bpf/bpf_endian.h>

/* include/linux/sched.h: bits of a thread's state. */
#define STATE_STOPPED 0x0004
#define STATE_TRACED 0x0008
#define STATE_DEAD 0x0080

#if defined(__TARGET_ARCH_x86)
#define WAIT_ARG0 r[5]
#define WAIT_ARG1 r[4]
/* arch/x86/entry/syscalls/syscall_64.tbl */
enum {
	NR_read = 0,
	NR_write = 1,
	NR_poll = 7,
	NR_pread = 17,
	NR_pwrite = 18,
	NR_readv = 19,
	NR_writev = 20,
	NR_select = 23,
	NR_msync = 26,
	NR_pause = 34,
	NR_nanosleep = 35,
	NR_sendfile = 40,
	NR_connect = 42,
	NR_accept = 43,
	NR_sendto = 44,
	NR_recvfrom = 45,
	NR_sendmsg = 46,
	NR_recvmsg = 47,
	NR_wait4 = 61,
	NR_fcntl = 72,
	NR_flock = 73,
	NR_fsync = 74,
	NR_fdatasync = 75,
	NR_futex = 202,
	NR_io_getevents = 208,
	NR_clock_nanosleep = 230,
	NR_epoll_wait = 232,
	NR_waitid = 247,
	NR_pselect = 270,
	NR_ppoll = 271,
	NR_splice = 275,
	NR_epoll_pwait = 281,
	NR_accept4 = 288,
	NR_preadv = 295,
	NR_pwritev = 296,
	NR_recvmmsg = 299,
	NR_sendmmsg = 307,
};
#else
#define WAIT_ARG0 r[0]
#define WAIT_ARG1 r[1]
/* include/uapi/asm-generic/unistd.h; negative: arm64 does not have the call */
enum {
	NR_read = 63,
	NR_write = 64,
	NR_poll = -10,
	NR_pread = 67,
	NR_pwrite = 68,
	NR_readv = 65,
	NR_writev = 66,
	NR_select = -11,
	NR_msync = 227,
	NR_pause = -12,
	NR_nanosleep = 101,
	NR_sendfile = 71,
	NR_connect = 203,
	NR_accept = 202,
	NR_sendto = 206,
	NR_recvfrom = 207,
	NR_sendmsg = 211,
	NR_recvmsg = 212,
	NR_wait4 = 260,
	NR_fcntl = 25,
	NR_flock = 32,
	NR_fsync = 82,
	NR_fdatasync = 83,
	NR_futex = 98,
	NR_io_getevents = 4,
	NR_clock_nanosleep = 115,
	NR_epoll_wait = -13,
	NR_waitid = 95,
	NR_pselect = 72,
	NR_ppoll = 73,
	NR_splice = 76,
	NR_epoll_pwait = 22,
	NR_accept4 = 242,
	NR_preadv = 69,
	NR_pwritev = 70,
	NR_recvmmsg = 243,
	NR_sendmmsg = 269,
};
#endif
/* The same number everywhere. */
enum { NR_io_uring_enter = 426, NR_epoll_pwait2 = 441, NR_futex_waitv = 449, NR_futex_wait = 455 };

/* The state that a thread had when it left its CPU. `state` was __state before Linux 5.14. */
struct task_struct___old {
	volatile long state;
} __attribute__((preserve_access_index));
struct task_struct___new {
	unsigned int __state;
} __attribute__((preserve_access_index));

static __always_inline __u32 task_state(const struct task_struct *task)
{
	const struct task_struct___new *t = (const void *)task;

	if (bpf_core_field_exists(t->__state))
		return BPF_CORE_READ(t, __state);
	return (__u32)BPF_CORE_READ((const struct task_struct___old *)(const void *)task, state);
}

/* How often the thread has left its CPU. */
static __always_inline __u64 task_switches(const struct task_struct *task)
{
	return BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw);
}

/* What a file is: a category of the wait for it. */
static __always_inline enum wait wait_of_mode(__u32 mode)
{
	switch (mode & 0170000) {
	case 0140000:
		return WAIT_NETWORK;
	case 0010000:
	case 0020000:
		return WAIT_PIPE;
	case 0100000:
	case 0060000:
	case 0040000:
		return WAIT_DISK;
	default:
		return WAIT_OTHER;
	}
}

static __always_inline struct file *task_file(struct task_struct *task, __u64 number)
{
	struct file **files = BPF_CORE_READ(task, files, fdt, fd);
	__u32 max = BPF_CORE_READ(task, files, fdt, max_fds);
	struct file *f = NULL;

	if (number >= max || bpf_probe_read_kernel(&f, sizeof(f), files + number) < 0)
		return NULL;
	return f;
}

static __always_inline enum wait wait_of_file(struct task_struct *task, __u64 number)
{
	struct file *f = task_file(task, number);

	return f ? wait_of_mode(BPF_CORE_READ(f, f_inode, i_mode)) : WAIT_OTHER;
}

/* ---- the object ---- */

#define AF_INET 2
#define AF_INET6 10

static __always_inline void object_of_socket(struct file *f, struct wait_object *ret)
{
	struct socket *socket = BPF_CORE_READ(f, private_data);
	struct sock *sk;
	__u16 family;

	if (wait_of_mode(BPF_CORE_READ(f, f_inode, i_mode)) != WAIT_NETWORK)
		return;
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family == AF_INET) {
		ret->kind = WAIT_OBJECT_INET;
		ret->address[0] = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	} else if (family == AF_INET6) {
		ret->kind = WAIT_OBJECT_INET6;
		bpf_core_read(ret->address, 16, &sk->__sk_common.skc_v6_daddr);
	} else {
		return;
	}
	ret->port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
}

/* What was found out about the lock when the wait began. */
static __always_inline void object_of_lock(struct wait_object *o, __u64 lock, __u32 owner)
{
	if (o->kind != WAIT_OBJECT_LOCK || !lock)
		return;
	o->address[0] = lock;
	o->owner = owner;
}

/* The first of an epoll's files that are ready. */
static __always_inline struct file *ready_file(struct file *epoll)
{
	struct eventpoll *ep = BPF_CORE_READ(epoll, private_data);
	struct list_head *head = &ep->rdllist, *first;

	if (!bpf_core_type_exists(struct eventpoll) || !bpf_core_field_exists(struct epitem, ffd))
		return NULL;
	first = BPF_CORE_READ(ep, rdllist.next);
	if (!first || first == head)
		return NULL;
	return BPF_CORE_READ(
		(struct epitem *)((char *)first - bpf_core_field_offset(struct epitem, rdllink)),
		ffd.file);
}

/* What the current thread has waited for in the system call `nr`. */
static __always_inline void wait_find_object(struct task_struct *task, enum wait wait, __s32 nr,
					     __u64 arg0, struct wait_object *ret)
{
	struct file *f = NULL;

	if (wait == WAIT_LOCK && nr == NR_futex) {
		ret->kind = WAIT_OBJECT_LOCK;
		ret->address[0] = arg0;
	} else if (wait == WAIT_NETWORK) {
		f = task_file(task, arg0);
	} else if (nr == NR_epoll_wait || nr == NR_epoll_pwait || nr == NR_epoll_pwait2) {
		f = task_file(task, arg0);
		f = f ? ready_file(f) : NULL;
	}
	if (f)
		object_of_socket(f, ret);
}

/* Of a thread in the system call `nr`, whose first argument is `arg0`. */
static __always_inline enum wait wait_of_syscall(struct task_struct *task, __s32 nr, __u64 arg0)
{
	switch (nr) {
	case NR_futex:
	case NR_futex_waitv:
	case NR_futex_wait:
	case NR_flock:
	case NR_fcntl:
		return WAIT_LOCK;
	case NR_nanosleep:
	case NR_clock_nanosleep:
		return WAIT_SLEEP;
	case NR_poll:
	case NR_ppoll:
	case NR_select:
	case NR_pselect:
	case NR_epoll_wait:
	case NR_epoll_pwait:
	case NR_epoll_pwait2:
	case NR_io_uring_enter:
		return WAIT_POLL;
	case NR_wait4:
	case NR_waitid:
		return WAIT_CHILD;
	case NR_connect:
	case NR_accept:
	case NR_accept4:
	case NR_sendto:
	case NR_sendmsg:
	case NR_sendmmsg:
	case NR_recvfrom:
	case NR_recvmsg:
	case NR_recvmmsg:
		return WAIT_NETWORK;
	case NR_fsync:
	case NR_fdatasync:
	case NR_msync:
	case NR_io_getevents:
		return WAIT_DISK;
	case NR_read:
	case NR_write:
	case NR_readv:
	case NR_writev:
	case NR_pread:
	case NR_pwrite:
	case NR_preadv:
	case NR_pwritev:
	case NR_sendfile:
	case NR_splice:
		return wait_of_file(task, arg0);
	default:
		return WAIT_OTHER;
	}
}

/*
 * Of the current task, which left its CPU in `state`. `nr`: its system call, negative if it was in
 * none: then it waited for memory, or in a kernel thread for its work.
 */
static __always_inline enum wait wait_category(struct task_struct *task, __u32 state, __s32 nr,
					       __u64 arg0)
{
	enum wait w;

	if (state & (STATE_STOPPED | STATE_TRACED))
		return WAIT_STOPPED;
	if (!state)
		return WAIT_RUNNABLE;
	if (nr < 0)
		return task_read(task, flags) & PF_KTHREAD ? WAIT_OTHER : WAIT_FAULT;
	w = wait_of_syscall(task, nr, arg0);
	/* A file that is not in memory yet, say of execve() or open(). */
	return w == WAIT_OTHER && BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait) ? WAIT_DISK : w;
}
