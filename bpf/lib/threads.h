/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What each thread is doing, from one scheduler event to the next. No time is lost: what a thread
 * has run or waited is in its samples, or in its entry, whose rest is sent when the thread or the
 * recording ends.
 */
#pragma once

#include "bpf/lib/scratch.h"
#include "bpf/lib/task.h"

#define HELD_WAITERS 4

/*
 * A lock that the thread holds and for which others wait. It holds the lock as long as the word at
 * `at` is `is` in the bits of `mask`, and the 4 bytes at `taken_at` are not 0 (bpf/lib/held.h).
 */
struct held {
	__u64 lock; /* avma; 0: none is known */
	__u64 at, is, mask;
	__u64 taken_at;		     /* 0: there is no such word */
	__u64 since_ns;		     /* since when one of them has waited, as far as is known */
	__u32 waiters[HELD_WAITERS]; /* tids of those that came last; some may have gone */
	__u32 next;		     /* whose place the next one takes */
	__u32 pad;
};

struct thread {
	__u64 start_time; /* of the thread: its tid may be another's by now */
	__u64 since_ns;	  /* when it began to do what it does, or that was last told */
	__u64 left_ns;	  /* when it left its CPU */
	__u64 woken_ns;	  /* when it became runnable; 0: not since it left its CPU */
	__u64 ran_ns;	  /* it has run so long since its last sample */
	struct thread_line blocked, queued;
	__u64 chosen_ns; /* its wait stands for so much blocked time; 0: it is no sample */
	__u32 tgid;
	__u32 owner; /* the thread that held the lock for which it waits; 0: unknown */
	__u32 state; /* bits of task_struct.__state when it left; 0: it was preempted */
	__u8 running;
	__u8 is_new;	/* nothing was heard of it before the current event */
	__u8 is_wanted; /* the filters let it pass when it left, or it has not left yet */
	__u8 pad;
	__u32 own_id; /* by which its process knows it; 0: not read yet */
	__u32 pad2;
	__u64 ended_ns; /* when what it waited for last happened; 0: unknown */
	__u64 lock;	/* avma of the lock for which it waits; 0: unknown */
	struct held held;
};

/* By tid. User space sets the size at load: 1 if no source follows the scheduler. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

/*
 * The tids of threads in containers: tgid << 32 | the id by which the process itself knows the
 * thread. The same size as `threads`.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} thread_ids SEC(".maps");

/* The id by which the thread's process knows it; other than its tid in a PID namespace. */
static __always_inline __u32 task_own_id(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	int nr = 0;

	if (!level)
		return (__u32)BPF_CORE_READ(task, pid);
	bpf_probe_read_kernel(&nr, sizeof(nr),
			      (const char *)pid + bpf_core_field_offset(struct pid, numbers) +
				      (__u64)level * bpf_core_type_size(struct upid) +
				      bpf_core_field_offset(struct upid, nr));
	return (__u32)nr;
}

static __always_inline __u64 thread_key(__u32 tgid, __u32 id)
{
	return (__u64)tgid << 32 | id;
}

/* Before others look for the thread by the id that its process knows. */
static __always_inline void thread_name(struct task_struct *task, struct thread *t, __u32 tid)
{
	__u64 key;

	t->own_id = task_own_id(task);
	key = thread_key(t->tgid, t->own_id);
	if (t->own_id != tid)
		bpf_map_update_elem(&thread_ids, &key, &tid, BPF_ANY);
}

static __always_inline void thread_forget(const struct thread *t, __u32 tid)
{
	__u64 key = thread_key(t->tgid, t->own_id);

	if (t->own_id && t->own_id != tid)
		bpf_map_delete_elem(&thread_ids, &key);
	bpf_map_delete_elem(&threads, &tid);
}

/* The time that the recording covers; end: 0 while it goes on. begin is 0: it has not begun. */
struct span_of_time {
	__u64 begin, end;
};

static __always_inline struct span_of_time recorded(void)
{
	const volatile struct sampler_control *c = control_get();

	return c ? (struct span_of_time){c->began_ns, c->ended_ns} : (struct span_of_time){};
}

static __always_inline __u64 later(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

static __always_inline __u64 earlier(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/*
 * Adds an entry. A thread that is new here has been doing what it does since it started, or since
 * the recording began. A function of its own: an entry takes half of a program's stack.
 */
__noinline int thread_add(__u32 tid, __u64 start_time, __u32 running, __u64 begin)
{
	struct thread fresh = {
		.start_time = start_time,
		.since_ns = later(start_time, begin),
		.state = 1,
		.running = running != 0,
		.is_new = 1,
		.is_wanted = 1,
	};

	return (int)bpf_map_update_elem(&threads, &tid, &fresh, BPF_ANY);
}

/* The thread's entry; NULL: the map is full. */
static __always_inline struct thread *thread_get(__u32 tid, __u64 start_time, __u8 running,
						 __u64 begin)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);

	if (t && t->start_time == start_time)
		return t;
	if (thread_add(tid, start_time, running, begin) < 0)
		return NULL;
	return bpf_map_lookup_elem(&threads, &tid);
}

/*
 * `asleep` reads the entries of threads that other CPUs may wake at that moment. The one of the two
 * that changes `since_ns` first counts the time before. Without atomic operations, both may count
 * it if they meet within a few nanoseconds.
 */
#ifdef SCHED_ATOMIC
static __always_inline __u64 since_exchange(struct thread *t, __u64 now)
{
	return __sync_lock_test_and_set(&t->since_ns, now);
}

static __always_inline bool since_replace(struct thread *t, __u64 old, __u64 now)
{
	return __sync_val_compare_and_swap(&t->since_ns, old, now) == old;
}
#else
static __always_inline __u64 since_exchange(struct thread *t, __u64 now)
{
	__u64 old = t->since_ns;

	t->since_ns = now;
	return old;
}

static __always_inline bool since_replace(struct thread *t, __u64 old, __u64 now)
{
	if (t->woken_ns || t->since_ns != old)
		return false;
	t->since_ns = now;
	return true;
}
#endif

/* The time for which the current thread has run since its last sample, to which `now` belongs. */
static __always_inline __u64 thread_ran(struct task_struct *task, __u64 now)
{
	struct span_of_time span = recorded();
	struct thread *t;
	__u64 ran;

	if (!span.begin || span.end)
		return 0;
	t = thread_get((__u32)task_read(task, pid), task_read(task, start_time), 1, span.begin);
	if (!t || !t->running)
		return 0;
	ran = t->ran_ns + now - later(t->since_ns, span.begin);
	t->is_new = 0;
	t->ran_ns = 0;
	t->since_ns = now;
	return ran;
}
