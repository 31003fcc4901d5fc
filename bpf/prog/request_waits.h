/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What threads of armed processes did for their spans, from one switch to the next: when each ran,
 * was blocked, and waited for a CPU (struct record_interval). Together the intervals of a thread
 * tell the exact time of each of its spans. Waits of at least a floor are also samples with their
 * stacks, and of shorter ones some, which stand for the others (bpf/lib/line.h). The budget of
 * walks raises the floor.
 *
 *	sched_switch    the thread leaves: on_switch notes the time and the state
 *	sched_waking    on_waking notes when what it waited for has happened, and who did it
 *	sched_switch    the thread is chosen again: on_switch hands the interval to `sample`
 *	SCHED_RESUMED   it runs: `sample` reads its span, sends the interval, and walks its stack
 *
 * In between the thread is in the kernel, so that its span is still that of the wait. All this is
 * apart from the accounting of bpf/prog/sched.h, which is for all threads.
 *
 * A source defines before it includes this file, besides what bpf/prog/sample.h asks for,
 * SCHED_RESUMED and SCHED_ATOMIC as for bpf/prog/sched.h.
 */
#pragma once

#define SAMPLE_FINISH finish_walk
#define SAMPLE_WANTS(s, task, tgid) true
#define SAMPLE_CONCERNS tell_interval

#include "bpf/lib/kernel.h"

struct scratch;
static __attribute__((always_inline)) void finish_walk(struct scratch *s);
static __attribute__((always_inline)) bool tell_interval(struct scratch *s);

#ifdef SCHED_ATOMIC
#include "bpf/lib/known_stack.h"
#define SAMPLE_KERNEL_STACK(s, ctx) emit_known_stack(ctx)
#endif
#include "bpf/lib/armed.h"
#include "bpf/lib/line.h"
#include "bpf/lib/threads.h"
#include "bpf/lib/wait.h"
#include "bpf/lib/walk_budget.h"
#include "bpf/prog/sample.h"

#include "bpf/prog/interrupt.h"
#include "bpf/prog/lock_owner.h" /* after sample.h, whose macros are defined above */

#define RING_CHECKS 64 /* one interval in so many looks how full the ring is */

/* By tid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct armed_thread);
} armed_threads SEC(".maps");

struct interval_times {
	__u64 ran_ns, left_ns, woken_ns, now_ns;
};

/* The interval that has just ended on this CPU, and the CPU's budget. */
struct ended {
	struct interval_times at;
	__u64 floor_ns;	  /* ~0: its wait is not walked however long it is */
	__u64 stands_for; /* its wait, in ns */
	__u32 tid;	  /* 0: none */
	__u32 state;
	__u64 switched_ns; /* the CPU's last switch */
	struct walk_budget budget;
	struct interrupt interrupt; /* that wakes a thread */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ended);
} ended SEC(".maps");

static __always_inline struct ended *ended_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ended, &zero);
}

/* A function of its own: an entry takes a part of a program's stack. */
__noinline int add_thread(__u32 tid, __u64 start_time, __u64 armed_ns, __u64 ran_ns)
{
	struct armed_thread fresh = {
		.start_time = start_time,
		.armed_ns = armed_ns,
		.ran_ns = ran_ns,
		.running = 1,
	};

	return (int)bpf_map_update_elem(&armed_threads, &tid, &fresh, BPF_ANY);
}

/* The entry of a thread that was heard of since its process was armed; else NULL. */
static __always_inline struct armed_thread *get_thread(struct task_struct *task, __u64 armed_ns)
{
	__u32 tid = (__u32)task->pid;
	struct armed_thread *t = bpf_map_lookup_elem(&armed_threads, &tid);

	return t && t->start_time == task->start_time && t->armed_ns == armed_ns ? t : NULL;
}

/* The state in which `prev` has left: 0 if it could have run on. */
static __always_inline __u32 state_of(struct task_struct *prev, __u64 preempted, __u64 prev_state)
{
	if (preempted)
		return 0;
	return config.has_prev_state ? (__u32)prev_state : task_state(prev);
}

/* Of a thread; without `c` it has no span. */
static __always_inline void send_interval(struct scratch *s, const struct interval_times *e,
					  __u32 pid, __u32 tid, __u32 wait, __u32 number,
					  const struct sample_context *c)
{
	struct record_interval *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	__u64 flags = BPF_RB_NO_WAKEUP;

	if (!r) {
		count(s, COUNTER_LOST_INTERVAL);
		return;
	}
	r->type = RECORD_INTERVAL;
	r->source = (__u16)config.source;
	r->wait = wait;
	r->pid = pid;
	r->tid = tid;
	r->ran_ns = e->ran_ns;
	r->left_ns = e->left_ns;
	r->woken_ns = e->woken_ns;
	r->now_ns = e->now_ns;
	r->trace_id[0] = c ? c->trace_id[0] : 0;
	r->trace_id[1] = c ? c->trace_id[1] : 0;
	r->span_id = c ? c->span_id : 0;
	r->number = number;
	r->pad = 0;
	if (s->counters[COUNTER_INTERVALS] % RING_CHECKS == 0 &&
	    ring_fuller_than(config.ring_bytes / 4))
		flags = BPF_RB_FORCE_WAKEUP;
	bpf_ringbuf_submit(r, flags);
	count(s, COUNTER_INTERVALS);
}

/* A thread has ended: it ran for its last span until now at most. */
static __always_inline void send_end(struct ended *e, struct task_struct *task,
				     const struct armed_thread *t, __u64 now)
{
	struct scratch *s = scratch_get();

	if (!s || !t->told_span || !t->running)
		return;
	e->at.ran_ns = t->ran_ns;
	e->at.left_ns = e->at.woken_ns = e->at.now_ns = now;
	send_interval(s, &e->at, (__u32)task->tgid, (__u32)task->pid, WAIT_OTHER, t->number + 1,
		      NULL);
}

/* The id by which its process knows the current thread. Others look for it by that. */
static __always_inline void note_own_id(struct armed_thread *t, struct task_struct *task,
					__u32 tgid, __u32 tid)
{
	__u64 key;

	t->own_id = task_own_id(task);
	key = thread_key(tgid, t->own_id);
	if (t->own_id != tid)
		bpf_map_update_elem(&thread_ids, &key, &tid, BPF_ANY);
}

static __always_inline void forget_own_id(const struct armed_thread *t, __u32 tgid, __u32 tid)
{
	__u64 key = thread_key(tgid, t->own_id);

	if (t->own_id && t->own_id != tid)
		bpf_map_delete_elem(&thread_ids, &key);
}

/*
 * Notes for which lock the current thread is about to wait, and who has it; `word` is the futex. An
 * owner counts only if it is another thread of the process. A function of its own: the stack of
 * sched_switch's program has no room for all of this.
 */
__noinline int note_lock(__u64 word)
{
	struct task_struct *task = task_current();
	__u32 tid = (__u32)task_read(task, pid), tgid = (__u32)task_read(task, tgid), owner;
	struct armed_thread *t = bpf_map_lookup_elem(&armed_threads, &tid), *other;
	struct held held = {};

	if (!t)
		return 0;
	owner = lock_find(task, tgid, tid, t->own_id, word, &held);
	t->lock = held.lock;
	other = owner && owner != tid ? bpf_map_lookup_elem(&armed_threads, &owner) : NULL;
	/* No two processes were armed at the same nanosecond. */
	t->owner = other && other->armed_ns == t->armed_ns ? owner : 0;
	return 0;
}

/* Looks at what the current thread is about to wait for. */
static __always_inline void note_call(struct armed_thread *t, struct task_struct *task)
{
	struct syscall call = {.nr = -1};

	if (task_syscall(task, &call) < 0)
		return;
	t->no_socket =
		call.nr == NR_futex || call.nr == NR_clock_nanosleep || call.nr == NR_nanosleep;
	if (call.nr == NR_futex)
		note_lock(call.arg0);
}

/* When the thread became runnable, which is when it left if it could have run on. */
static __always_inline __u64 runnable_since(const struct armed_thread *t)
{
	/* A wake-up that came while it was about to leave is not in the entry. */
	return t->state && t->woken_ns ? t->woken_ns : t->left_ns;
}

/*
 * Some switches are not heard of, because threads of a sandbox's own agent are hidden: the thread
 * was chosen after one of these, so at the CPU's last known switch at the earliest.
 */
static __always_inline void note_missed(const struct ended *e, struct armed_thread *t)
{
	if (t->missed.now_ns)
		t->number++;
	t->missed.ran_ns = t->ran_ns;
	t->missed.left_ns = t->left_ns;
	t->missed.woken_ns = runnable_since(t);
	t->missed.now_ns = later(e->switched_ns, t->missed.woken_ns);
	t->ran_ns = t->missed.now_ns;
}

static __always_inline void leave_cpu(struct ended *e, struct task_struct *task, __u32 state,
				      __u64 now)
{
	const struct armed_process *a = armed_get((__u32)task->tgid);
	__u32 tid = (__u32)task->pid;
	struct armed_thread *t;
	__u64 armed_ns;
	bool walks;

	if (!a)
		return;
	armed_ns = a->armed_ns;
	walks = a->flags & ARMED_OFF_CPU;
	t = get_thread(task, armed_ns);
	if (state & STATE_DEAD) {
		if (t) {
			send_end(e, task, t, now);
			forget_own_id(t, (__u32)task->tgid, tid);
			bpf_map_delete_elem(&armed_threads, &tid);
		}
		return;
	}
	if (!t) {
		/* It has run since then, or a switch would have been heard. */
		if (add_thread(tid, task->start_time, armed_ns, later(task->start_time, armed_ns)) <
		    0)
			return;
		t = bpf_map_lookup_elem(&armed_threads, &tid);
		if (!t)
			return;
	}
	if (!t->running)
		note_missed(e, t);
	t->running = 0;
	t->state = state;
	t->woken_ns = 0;
	t->left_ns = now;
	t->has_waker = 0;
	t->no_socket = 0;
	t->lock = 0;
	t->owner = 0;
	if (!t->own_id)
		note_own_id(t, task, (__u32)task->tgid, tid);
	if (state && walks)
		note_call(t, task);
}

static __always_inline void take_cpu(struct ended *e, struct task_struct *task, __u64 now)
{
	const struct armed_process *a = armed_get((__u32)task->tgid);
	struct armed_thread *t;
	__u64 armed_ns;

	if (!a)
		return;
	armed_ns = a->armed_ns;
	t = get_thread(task, armed_ns);
	if (!t) {
		add_thread((__u32)task->pid, task->start_time, armed_ns, now);
		return;
	}
	if (t->running) {
		/* It left without being heard: the intervals do not follow each other here. */
		t->number++;
		t->ran_ns = now;
		return;
	}
	e->at.ran_ns = t->ran_ns;
	e->at.left_ns = t->left_ns;
	e->at.woken_ns = runnable_since(t);
	e->at.now_ns = now;
	e->state = t->state;
	e->floor_ns = a->flags & ARMED_OFF_CPU ? a->floor_ns : ~0ULL;
	e->tid = (__u32)task->pid;
	t->running = 1;
	t->ran_ns = now;
}

/* The interval was not sent, because its thread was not heard of again. */
static __always_inline void skip_interval(struct ended *e)
{
	struct armed_thread *t = bpf_map_lookup_elem(&armed_threads, &e->tid);

	if (t)
		t->number++;
	e->tid = 0;
}

/* The arguments are preempt, prev and next; since Linux 5.18 also prev's state. */
SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1],
			   *next = (struct task_struct *)ctx[2];
	struct ended *e = ended_get();
	__u64 now = bpf_ktime_get_ns();

	if (!e)
		return 0;
	if (e->tid)
		skip_interval(e);
	leave_cpu(e, prev, state_of(prev, ctx[0], config.has_prev_state ? ctx[3] : 0), now);
	e->switched_ns = now;
	take_cpu(e, next, now);
	return 0;
}

/*
 * Whether an interrupt wakes the thread. What runs on a stack of its own is an interrupt, unless it
 * receives what the current thread has just sent to this machine. Only its stack tells that, and to
 * read the stack takes microseconds: so not where the thread does not wait for a socket, or the
 * current one has not called the kernel.
 */
static __always_inline bool woken_by_interrupt(const struct armed_thread *t, struct ended *e,
					       void *ctx)
{
	struct task_struct *task = task_current();
	struct syscall call = {};
	bool apart, known;

	if (!(__u32)bpf_get_current_pid_tgid())
		return true; /* the idle task wakes nobody */
	apart = is_apart(&e->interrupt, task, ctx);
	known = !(task_read(task, flags) & PF_KTHREAD) && task_syscall(task, &call) == 0;
	if (apart && (t->no_socket || (known && call.nr < 0)))
		return true;
	if (!apart && known)
		return call.nr < 0;
	return is_interrupt(&e->interrupt, ctx);
}

/* Notes who wakes the thread: the current one, or what interrupts it. */
static __always_inline void note_waker(struct armed_thread *t, void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct ended *e = ended_get();

	if (!e)
		return;
	t->waker_pid = 0;
	t->waker_tid = 0;
	t->has_waker = 1;
	if (woken_by_interrupt(t, e, ctx))
		return;
	t->waker_pid = (__u32)(id >> 32);
	t->waker_tid = (__u32)id;
	bpf_get_current_comm(t->waker, sizeof(t->waker));
}

SEC("tp_btf/sched_waking")
int on_waking(__u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	const struct armed_process *a = armed_get((__u32)task->tgid);
	struct armed_thread *t = a ? get_thread(task, a->armed_ns) : NULL;

	if (!t || t->running || !t->state || t->woken_ns)
		return 0;
	t->woken_ns = bpf_ktime_get_ns();
	/* What is not walked tells no waker. */
	if (a->flags & ARMED_OFF_CPU &&
	    t->woken_ns - t->left_ns >= earlier(a->floor_ns, t->waits.point_ns))
		note_waker(t, ctx);
	return 0;
}

/* The interval before, which was not heard to end: its span is taken for that of the next. */
static __always_inline void send_missed(struct scratch *s, struct armed_thread *t)
{
	const struct interval_times at = {t->missed.ran_ns, t->missed.left_ns, t->missed.woken_ns,
					  t->missed.now_ns};

	t->missed.now_ns = 0;
	send_interval(s, &at, s->out.sample.pid, s->out.sample.tid, WAIT_OTHER, ++t->number,
		      &s->out.sample.context);
}

/* Sends the interval if a span has a part in it. Whether the wait is walked. */
static __always_inline bool tell_interval(struct scratch *s)
{
	struct ended *e = ended_get();
	struct armed_thread *t = bpf_map_lookup_elem(&armed_threads, &s->out.sample.tid);
	bool span = has_span(s);
	__u32 wait;

	if (!e || !t)
		return false;
	if (!span && !t->told_span) {
		t->missed.now_ns = 0;
		return false;
	}
	if (t->missed.now_ns)
		send_missed(s, t);
	t->told_span = span;
	t->number++;
	wait = wait_category(task_current(), e->state, s->syscall_nr, s->first.WAIT_ARG0);
	s->out.sample.wait = wait;
	send_interval(s, &e->at, s->out.sample.pid, s->out.sample.tid, wait, t->number,
		      &s->out.sample.context);
	if (!span || e->floor_ns == ~0ULL)
		return false;
	e->stands_for = line_choose(&t->waits, e->at.now_ns - e->at.left_ns,
				    later(e->floor_ns, e->budget.threshold_ns));
	return e->stands_for;
}

/* The part of what the wait stands for that `ns` of it are. */
static __always_inline __s64 part_of_wait(const struct ended *e, __u64 ns)
{
	__u64 all = e->at.now_ns - e->at.left_ns;

	/* Only waits shorter than a floor of 1 s stand for others: the product fits. */
	return (__s64)(e->stands_for == all ? ns : ns * e->stands_for / all);
}

/* Tells who ended the wait of the sample, which comes next. */
static __always_inline void send_waker(struct scratch *s, const struct armed_thread *t)
{
	struct record_waker *w = bpf_ringbuf_reserve(&ring, sizeof(*w), 0);

	if (!w)
		return;
	w->type = RECORD_WAKER;
	w->source = (__u16)config.source;
	w->woken_tid = s->out.sample.tid;
	w->woken_ns = t->woken_ns;
	w->pid = t->waker_pid;
	w->tid = t->waker_tid;
	__builtin_memcpy(w->comm, t->waker, sizeof(w->comm));
	bpf_ringbuf_submit(w, BPF_RB_NO_WAKEUP);
}

static __always_inline void finish_walk(struct scratch *s)
{
	struct record_sample *r = &s->out.sample;
	struct armed_thread *t = bpf_map_lookup_elem(&armed_threads, &r->tid);
	struct ended *e = ended_get();

	if (!e || !t)
		return;
	r->value = part_of_wait(e, e->at.woken_ns - e->at.left_ns);
	r->queued = part_of_wait(e, e->at.now_ns - e->at.woken_ns);
	r->woken_ns = e->state ? e->at.woken_ns : 0;
	wait_find_object(task_current(), r->wait, s->syscall_nr, s->first.WAIT_ARG0, &r->object);
	object_of_lock(&r->object, t->lock, t->owner);
	if (t->has_waker && r->woken_ns == t->woken_ns)
		send_waker(s, t);
	budget_adjust(&e->budget, s);
}

SEC(SCHED_RESUMED)
int sample(SAMPLE_CONTEXT *ctx)
{
	struct ended *e = ended_get();

	if (!e || !e->tid || e->tid != (__u32)bpf_get_current_pid_tgid())
		return 0;
	e->tid = 0;
	budget_window(&e->budget, e->at.now_ns);
	return sample_event(ctx, NULL, 0);
}
