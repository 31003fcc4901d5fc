/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fields of kernel types that the programs read. CO-RE relocates each access by the running
 * kernel's BTF, so only names and types matter here, not offsets.
 */
#pragma once

#include <linux/types.h>
#include <stdbool.h>

#define PF_KTHREAD 0x00200000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct {
	void *pgd; /* of type pgd_t */
	unsigned long start_stack;
};

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
};
#else
struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};
#endif

/* The id of a thread in each PID namespace that knows it: numbers[level] in its own. */
struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct inode {
	unsigned short i_mode;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct in6_addr {
	unsigned char bytes[16];
};

struct sock_common {
	unsigned short skc_family;
	__be16 skc_dport;
	__be32 skc_daddr;
	struct in6_addr skc_v6_daddr;
};

struct sock {
	struct sock_common __sk_common;
};

struct socket {
	struct sock *sk;
};

struct list_head {
	struct list_head *next;
};

struct epoll_filefd {
	struct file *file;
};

struct epitem {
	struct list_head rdllink;
	struct epoll_filefd ffd;
};

struct eventpoll {
	struct list_head rdllist;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct cred {
	struct {
		unsigned int val;
	} uid;
};

struct gendisk {
	int major;
	int first_minor;
};

struct block_device {
	unsigned int bd_dev;
};

struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	struct block_device *part; /* a struct hd_struct before Linux 5.11 */
};

struct request___before_5_17 {
	struct gendisk *rq_disk;
};

struct sched_entity {
	unsigned long long exec_start, sum_exec_runtime;
};

struct sched_info {
	unsigned long long run_delay; /* ns that it waited for a CPU */
};

/* A call whose return is probed: where it would have returned. */
struct return_instance {
	unsigned long stack; /* the stack pointer when it began */
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};

struct uprobe_task {
	struct return_instance *return_instances;
	unsigned long vaddr;	 /* of the instruction that is stepped */
	unsigned long xol_vaddr; /* of its copy, which is run instead; 0: there is none */
};

struct task_struct {
	unsigned int flags;
	unsigned int in_iowait : 1;
	struct files_struct *files;
	const struct cred *cred;
	struct thread_struct thread;
	int pid;
	int tgid;
	unsigned long long start_time;
	struct pid *thread_pid;
	unsigned long long self_exec_id; /* u64 since Linux 5.7, commit d1e7fd6462ca */
	struct mm_struct *mm;
	struct task_struct *group_leader;
	void *stack;
	struct uprobe_task *utask;
	struct sched_entity se;
	struct sched_info sched_info;
	unsigned long nvcsw, nivcsw;
	char comm[16];
};

#pragma clang attribute pop

#if defined(__TARGET_ARCH_x86)

/* arch/x86/include/asm/ptrace.h; the layout is part of the user ABI. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
/* The first member of a perf_event program's context. */
typedef struct pt_regs bpf_user_pt_regs_t;

#elif defined(__TARGET_ARCH_arm64)

/* arch/arm64/include/uapi/asm/ptrace.h */
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
};
typedef struct user_pt_regs bpf_user_pt_regs_t;

/* arch/arm64/include/asm/ptrace.h: user_pt_regs, then these fields; CO-RE finds syscallno. */
struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
	__u64 orig_x0;
	__s32 syscallno;
} __attribute__((preserve_access_index));

#else
#error "x86-64 and arm64 only"
#endif

struct bpf_perf_event_data {
	bpf_user_pt_regs_t regs;
	__u64 sample_period;
	__u64 addr;
};
