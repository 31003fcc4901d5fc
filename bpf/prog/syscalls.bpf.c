/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * System calls of chosen threads, or of all: `culprit trace --syscalls`.
 *
 * A thread that is followed has an entry in `threads`, which only this thread writes while it
 * lives. A call's begin fills the entry, its end counts it or sends it. A new thread has its entry
 * before its first instruction, and an entry ends with its thread. So nothing depends on how fast
 * user space is; what does not fit into the ring is counted.
 *
 * sys_exit also runs in a new thread, and in one whose call began before it was followed: those
 * have no call in their entry.
 */
#include "bpf/lib/kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <linux/bpf.h>
#include <stddef.h>

#include "abi/syscalls.h"

char LICENSE[] SEC("license") = "GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct thread_info___calls {
	unsigned long flags;
	unsigned int status;
};
struct task_struct___calls {
	struct thread_info___calls thread_info;
	int exit_code;
};
struct kernel_siginfo {
	int si_signo;
	int si_code;
};
#pragma clang attribute pop

const volatile struct syscalls_config config = {};

/* By thread id: threads that are followed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct syscalls_call);
} threads SEC(".maps");

/* One entry that remains zero: the beginning of each thread's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syscalls_call);
} empty SEC(".maps");

/* By number of call. User space writes it before the programs run. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SYSCALLS_MAX);
	__type(key, __u32);
	__type(value, struct syscalls_plan);
} plans SEC(".maps");

/* By number of call: every call that has returned. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SYSCALLS_MAX);
	__type(key, __u32);
	__type(value, struct syscalls_stats);
} totals SEC(".maps");

/* The same by process. What finds no place is counted as SYSCALLS_LOST_PROCESS. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct syscalls_key);
	__type(value, struct syscalls_stats);
} by_process SEC(".maps");

/* Zeros: the beginning of an entry of by_process. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syscalls_stats);
} no_stats SEC(".maps");

struct comm {
	char text[16];
};
/* By process id: the names of processes that have ended. The oldest go first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct comm);
} names SEC(".maps");

/* Calls by number whose thread ended in the call: exit(), and what a signal killed. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SYSCALLS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} unreturned SEC(".maps");

/* By enum syscalls_lost. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SYSCALLS_LOST_N);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* Records to user space, which looks every few milliseconds; when half full, it is woken. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

static __always_inline void count_lost(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&lost, &reason);

	if (n)
		++*n;
}

static __always_inline struct syscalls_call *find_thread(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline struct syscalls_call *add_thread(__u32 tid)
{
	__u32 zero = 0;
	const struct syscalls_call *none = bpf_map_lookup_elem(&empty, &zero);

	if (!none || bpf_map_update_elem(&threads, &tid, none, BPF_NOEXIST) < 0)
		count_lost(SYSCALLS_LOST_THREAD);
	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline void send(struct syscalls_call *c)
{
	__u64 size = SYSCALLS_HEAD_BYTES, flags = BPF_RB_NO_WAKEUP;

	if (c->n == 1)
		size = SYSCALLS_HEAD_BYTES + sizeof(struct syscalls_piece);
	else if (c->n > 1)
		size = sizeof(*c);
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > 8 << 20)
		flags = BPF_RB_FORCE_WAKEUP;
	bpf_get_current_comm(c->comm, sizeof(c->comm));
	if (bpf_ringbuf_output(&ring, c, size, flags) < 0)
		count_lost(SYSCALLS_LOST_RECORD);
}

/* ---- memory ---- */

static __always_inline __u64 argument(const struct syscalls_call *c, __u32 i)
{
	return i < 6 ? c->args[i] : 0;
}

static __always_inline __u64 count_elements(const struct syscalls_call *c,
					    const struct syscalls_plan_piece *p)
{
	__u32 n = 0;

	switch (p->count) {
	case SYSCALLS_BY_NEXT:
		return argument(c, p->argument + 1);
	case SYSCALLS_BY_RESULT:
		return (__u64)c->result;
	case SYSCALLS_BY_POINTED:
		if (bpf_probe_read_user(&n, sizeof(n), (const void *)argument(c, p->argument + 1)) <
		    0)
			return 0;
		return n;
	default:
		return 1;
	}
}

/*
 * `n`, at most `max`; `mask` has at least the bits of `max`. Old verifiers forget a limit when the
 * register is spilled, so the mask comes last.
 */
static __always_inline __u32 limited(__u64 n, __u32 max, __u32 mask)
{
	__u32 r = n > max ? max : (__u32)n;

	barrier_var(r);
	return r & mask;
}

static __always_inline void read_memory(struct syscalls_piece *to, const void *from, __u64 want)
{
	__u32 n = limited(want, SYSCALLS_PIECE_BYTES - 1, SYSCALLS_PIECE_BYTES - 1);

	to->n = bpf_probe_read_user(to->bytes, n, from) < 0 ? -1 : (__s32)n;
}

/* Words of a command, SYSCALLS_ARGV_BYTES each. */
static __always_inline void read_argv(struct syscalls_piece *to, const __u64 *from)
{
	__u64 word;

	to->n = 0;
	for (__u32 i = 0; i < SYSCALLS_ARGV; i++) {
		if (bpf_probe_read_user(&word, sizeof(word), from + i) < 0 || !word)
			return;
		to->bytes[i * SYSCALLS_ARGV_BYTES] = 0;
		bpf_probe_read_user_str(to->bytes + (__u64)i * SYSCALLS_ARGV_BYTES,
					SYSCALLS_ARGV_BYTES, (const void *)word);
		to->n = (__s32)((i + 1) * SYSCALLS_ARGV_BYTES);
	}
}

struct user_iovec {
	__u64 base, len;
};

/* The first bytes of the first buffer, behind `at` bytes of the piece. */
static __always_inline void read_first(struct syscalls_piece *to, const struct user_iovec *iov,
				       __u32 at, __u64 limit)
{
	__u64 base = iov->base;
	__u32 n = limited(iov->len < limit ? iov->len : limit, SYSCALLS_DATA, 63);

	if (bpf_probe_read_user(to->bytes + at, n, (const void *)base) == 0)
		to->n = (__s32)(at + n);
}

static __always_inline void read_iovec(struct syscalls_piece *to, const void *from, __u64 want,
				       __u64 limit)
{
	const __u32 room = SYSCALLS_IOVEC_N * sizeof(struct user_iovec);
	__u32 n = limited(want, SYSCALLS_IOVEC_N, 7);

	to->n = -1;
	if (!n || bpf_probe_read_user(to->bytes, n * (__u32)sizeof(struct user_iovec), from) < 0)
		return;
	to->n = room;
	read_first(to, (const struct user_iovec *)to->bytes, room, limit);
}

/* struct msghdr has its iovecs at 16, and their number at 24. */
static __always_inline void read_msghdr(struct syscalls_piece *to, const void *from, __u64 limit)
{
	const __u32 head = 56, room = head + sizeof(struct user_iovec);
	const struct user_iovec *first = (const struct user_iovec *)(to->bytes + head);
	__u64 iov = 0;

	to->n = -1;
	if (bpf_probe_read_user(to->bytes, head, from) < 0)
		return;
	to->n = (__s32)head;
	if (bpf_probe_read_user(&iov, sizeof(iov), (const char *)from + 16) < 0 ||
	    bpf_probe_read_user(to->bytes + head, sizeof(*first), (const void *)iov) < 0)
		return;
	to->n = (__s32)room;
	read_first(to, first, room, limit);
}

static __always_inline void read_piece(struct syscalls_call *c, struct syscalls_piece *to,
				       const struct syscalls_plan_piece *p)
{
	const void *from = (const void *)argument(c, p->argument);
	__u64 limit = p->at_end ? (__u64)c->result : SYSCALLS_DATA, n;

	to->n = -1;
	if (!from || (p->at_end && c->result < 0))
		return;
	switch (p->kind) {
	case SYSCALLS_STRING:
		to->n = (__s32)bpf_probe_read_user_str(to->bytes, SYSCALLS_PIECE_BYTES, from);
		break;
	case SYSCALLS_MEMORY:
		n = count_elements(c, p);
		limit = p->unit ? p->max / p->unit : 0u;
		if (n > limit)
			n = limit;
		read_memory(to, from, n * p->unit);
		break;
	case SYSCALLS_ARGV_STRINGS:
		read_argv(to, from);
		break;
	case SYSCALLS_IOVEC:
		read_iovec(to, from, argument(c, p->argument + 1), limit);
		break;
	case SYSCALLS_MSGHDR:
		read_msghdr(to, from, limit);
		break;
	}
}

/*
 * BPF cannot read a page that is not in memory. What could not be read at the begin is read at the
 * end: the kernel has read it meanwhile. Not so if the process has executed another program.
 */
static __always_inline bool is_time(const struct syscalls_call *c, bool is_piece_at_end, __s32 n,
				    bool at_end)
{
	return is_piece_at_end == at_end || (at_end && n < 0 && !(c->flags & SYSCALLS_EXECUTED));
}

static __always_inline void read_pieces(struct syscalls_call *c, bool at_end)
{
	const struct syscalls_plan *plan = bpf_map_lookup_elem(&plans, &c->slot);

	if (!plan)
		return;
	if (!at_end)
		c->n = plan->n;
		/* Before Linux 6.8 (10e14e9652bf) the verifier refuses some loops of this shape. */
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < SYSCALLS_PIECES; i++) {
		if (!at_end)
			c->pieces[i].n = -1;
		if (i < plan->n && is_time(c, plan->pieces[i].at_end, c->pieces[i].n, at_end))
			read_piece(c, &c->pieces[i], &plan->pieces[i]);
	}
}

static __always_inline void read_arguments(struct syscalls_call *c, const struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	struct pt_regs r;

	if (bpf_probe_read_kernel(&r, sizeof(r), regs) < 0)
		return;
	c->args[0] = r.di;
	c->args[1] = r.si;
	c->args[2] = r.dx;
	c->args[3] = r.r10;
	c->args[4] = r.r8;
	c->args[5] = r.r9;
	if (c->slot == SYSCALLS_COMPAT) {
		c->args[0] = (__u32)r.bx;
		c->args[1] = (__u32)r.cx;
		c->args[2] = (__u32)r.dx;
		c->args[3] = (__u32)r.si;
		c->args[4] = (__u32)r.di;
		c->args[5] = (__u32)r.bp;
	}
#else
	bpf_probe_read_kernel(c->args, sizeof(c->args), regs->regs);
	c->args[0] = BPF_CORE_READ(regs, orig_x0);
#endif
}

/* ---- calls ---- */

static __always_inline __u32 slot_of(__s64 nr)
{
	const struct task_struct___calls *task = (const void *)bpf_get_current_task();

#if defined(__TARGET_ARCH_x86)
	/* TS_COMPAT, arch/x86/include/asm/thread_info.h */
	if (BPF_CORE_READ(task, thread_info.status) & 2)
		return SYSCALLS_COMPAT;
#else
	/* TIF_32BIT, arch/arm64/include/asm/thread_info.h */
	if (BPF_CORE_READ(task, thread_info.flags) & 1 << 22)
		return SYSCALLS_COMPAT;
#endif
	return nr < 0 || nr >= SYSCALLS_UNKNOWN ? SYSCALLS_UNKNOWN : (__u32)nr;
}

SEC("raw_tracepoint/sys_enter")
int begin_call(struct bpf_raw_tracepoint_args *ctx)
{
	struct syscalls_call *c = find_thread();
	__u64 id = bpf_get_current_pid_tgid();
	const struct syscalls_plan *plan;
	__u32 slot;

	if (!c && config.all && id >> 32 != config.own_pid)
		c = add_thread((__u32)id);
	if (!c)
		return 0;
	slot = slot_of((__s64)ctx->args[1]);
	plan = bpf_map_lookup_elem(&plans, &slot);
	c->flags &= SYSCALLS_AT_EXEC;
	*(volatile __u64 *)&c->begin_ns = 0; /* until the entry is complete */
	if (!plan || !plan->wanted)
		return 0;
	c->type = SYSCALLS_CALL;
	c->flags |= SYSCALLS_IN_CALL;
	c->slot = slot;
	c->nr = (__s64)ctx->args[1];
	c->pid = id >> 32;
	c->tid = (__u32)id;
	if (!config.summary) {
		read_arguments(c, (const struct pt_regs *)ctx->args[0]);
		read_pieces(c, false);
	}
	c->begin_ns = bpf_ktime_get_ns();
	return 0;
}

/* A call that was under way when the thread began to be followed: the registers still tell it. */
static __always_inline void find_call(struct syscalls_call *c, const struct pt_regs *regs)
{
	__u64 id = bpf_get_current_pid_tgid();
	const struct syscalls_plan *plan;

#if defined(__TARGET_ARCH_x86)
	c->nr = (__s64)BPF_CORE_READ(regs, orig_ax);
#else
	c->nr = BPF_CORE_READ(regs, syscallno);
#endif
	c->slot = slot_of(c->nr);
	plan = bpf_map_lookup_elem(&plans, &c->slot);
	if (!plan || !plan->wanted)
		return;
	c->type = SYSCALLS_CALL;
	c->flags |= SYSCALLS_IN_CALL;
	c->pid = id >> 32;
	c->tid = (__u32)id;
	read_arguments(c, regs);
	read_pieces(c, false);
}

static __always_inline void add_call(struct syscalls_stats *s, __u64 ns, bool failed)
{
	__u32 b = syscalls_bucket(ns);

	s->calls++;
	s->errors += failed;
	s->total_ns += ns;
	if (!s->min_ns || ns < s->min_ns)
		s->min_ns = ns ?: 1;
	if (ns > s->max_ns)
		s->max_ns = ns;
	if (b < SYSCALLS_BUCKETS)
		s->buckets[b]++;
}

static __always_inline void add_to_process(const struct syscalls_call *c, __u64 ns, bool failed)
{
	struct syscalls_key key = {.pid = c->pid, .slot = c->slot};
	struct syscalls_stats *s = bpf_map_lookup_elem(&by_process, &key);
	__u32 zero = 0;

	if (!s) {
		s = bpf_map_lookup_elem(&no_stats, &zero);
		if (s)
			bpf_map_update_elem(&by_process, &key, s, BPF_NOEXIST);
		s = bpf_map_lookup_elem(&by_process, &key);
	}
	if (s)
		add_call(s, ns, failed);
	else
		count_lost(SYSCALLS_LOST_PROCESS);
}

SEC("raw_tracepoint/sys_exit")
int end_call(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 now = bpf_ktime_get_ns(), ns;
	struct syscalls_call *c = find_thread();
	struct syscalls_stats *s;
	__u32 slot;
	bool failed;

	if (!c || c->flags & SYSCALLS_AT_EXEC)
		return 0;
	if (c->flags & SYSCALLS_NO_BEGIN && !config.summary)
		find_call(c, (const struct pt_regs *)ctx->args[0]);
	if (!(c->flags & SYSCALLS_IN_CALL))
		return 0;
	c->flags &= ~SYSCALLS_IN_CALL;
	ns = c->flags & SYSCALLS_NO_BEGIN ? 0 : now - c->begin_ns;
	c->result = (__s64)ctx->args[1];
	/* A 32-bit call's result has 32 bits. MAX_ERRNO, include/linux/err.h */
	if (c->slot == SYSCALLS_COMPAT)
		c->result = (__s32)c->result;
	failed = c->result < 0 && c->result >= -4095;
	if ((config.errors && !failed) || ns < config.slower_ns)
		return 0;
	if (config.summary) {
		slot = c->slot;
		s = bpf_map_lookup_elem(&totals, &slot);
		if (s)
			add_call(s, ns, failed);
		if (config.by_process)
			add_to_process(c, ns, failed);
		return 0;
	}
	c->end_ns = now;
	read_pieces(c, true);
	send(c);
	c->flags &= ~SYSCALLS_NO_BEGIN;
	return 0;
}

/* ---- threads ---- */

/* The arguments are parent and child. The parent is the current task. */
SEC("raw_tracepoint/sched_process_fork")
int follow_thread(struct bpf_raw_tracepoint_args *ctx)
{
	const struct task_struct *child = (const struct task_struct *)ctx->args[1];
	const struct syscalls_call *c = find_thread();

	if (c && !(c->flags & SYSCALLS_AT_EXEC))
		add_thread((__u32)BPF_CORE_READ(child, pid));
	return 0;
}

/* The arguments are the task, its id before, and the program. A thread takes its process's id. */
SEC("raw_tracepoint/sched_process_exec")
int follow_exec(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 old = (__u32)ctx->args[1], tid = (__u32)bpf_get_current_pid_tgid();
	struct syscalls_call *c = bpf_map_lookup_elem(&threads, &old);

	if (!c)
		return 0;
	c->flags &= ~SYSCALLS_AT_EXEC;
	c->flags |= SYSCALLS_EXECUTED;
	if (old == tid)
		return 0;
	c->tid = tid;
	if (bpf_map_update_elem(&threads, &tid, c, BPF_ANY) < 0)
		count_lost(SYSCALLS_LOST_THREAD);
	bpf_map_delete_elem(&threads, &old);
	return 0;
}

static __always_inline void tell_unreturned(struct syscalls_call *c)
{
	__u32 slot = c->slot;
	__u64 *n = bpf_map_lookup_elem(&unreturned, &slot);

	if (n)
		++*n;
	if (config.summary || config.errors || config.slower_ns)
		return;
	c->flags |= SYSCALLS_NO_END;
	c->end_ns = bpf_ktime_get_ns();
	send(c);
}

SEC("raw_tracepoint/sched_process_exit")
int forget_thread(struct bpf_raw_tracepoint_args *ctx)
{
	const struct task_struct___calls *task = (const void *)ctx->args[0];
	struct syscalls_call *c = find_thread();
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)id, pid = id >> 32;
	struct comm comm = {};

	if (!c)
		return 0;
	if (c->flags & SYSCALLS_IN_CALL && !(c->flags & SYSCALLS_AT_EXEC))
		tell_unreturned(c);
	if (!config.summary && !(c->flags & SYSCALLS_AT_EXEC)) {
		c->type = SYSCALLS_EXIT;
		c->pid = pid;
		c->tid = tid;
		c->n = 0;
		c->end_ns = bpf_ktime_get_ns();
		c->args[0] = (__u64)BPF_CORE_READ(task, exit_code);
		send(c);
	}
	if (config.by_process && pid == tid) {
		bpf_get_current_comm(comm.text, sizeof(comm.text));
		bpf_map_update_elem(&names, &pid, &comm, BPF_ANY);
	}
	bpf_map_delete_elem(&threads, &tid);
	return 0;
}

/* The arguments are the number, struct kernel_siginfo, and what the process does about it. */
SEC("raw_tracepoint/signal_deliver")
int tell_signal(struct bpf_raw_tracepoint_args *ctx)
{
	const struct kernel_siginfo *info = (const void *)ctx->args[1];
	struct syscalls_call *c = find_thread();
	__u64 id = bpf_get_current_pid_tgid();

	if (!c || c->flags & (SYSCALLS_IN_CALL | SYSCALLS_AT_EXEC) || config.summary)
		return 0;
	c->type = SYSCALLS_SIGNAL;
	c->pid = id >> 32;
	c->tid = (__u32)id;
	c->n = 0;
	c->end_ns = bpf_ktime_get_ns();
	c->args[0] = ctx->args[0];
	c->args[1] = (__u64)BPF_CORE_READ(info, si_code);
	send(c);
	return 0;
}
