/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What each thread is doing, from one scheduler event to the next. No time is lost: what a thread
 * has run or waited is in its samples, or in its entry, whose rest is sent when the thread or the
 * recording ends.
 */
#pragma once

#include "bpf/lib/scratch.h"
#include "bpf/lib/task.h"

/* Short times of a thread, laid end to end, with points on the line: see sched.bpf.c. */
struct thread_line {
	__u64 rest_ns;	/* since the last point */
	__u64 point_ns; /* until the next one; 0: not drawn yet */
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
};

/* By tid. User space sets the size at load: 1 if no source follows the scheduler. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

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

/*
 * The thread's entry. A thread that is new here has been doing what it does since it started, or
 * since the recording began. NULL: the map is full.
 */
static __always_inline struct thread *thread_get(__u32 tid, __u64 start_time, __u8 running,
						 __u64 begin)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);
	struct thread fresh = {
		.start_time = start_time,
		.since_ns = later(start_time, begin),
		.state = 1,
		.running = running,
		.is_new = 1,
		.is_wanted = 1,
	};

	if (t && t->start_time == start_time)
		return t;
	if (bpf_map_update_elem(&threads, &tid, &fresh, BPF_ANY) < 0)
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
