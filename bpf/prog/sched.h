/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waits of threads: the time from the moment that a thread leaves its CPU to the moment that it
 * runs again, with the stack at which it waited.
 *
 *	sched_switch    the thread leaves: on_switch notes the time and the state
 *	sched_waking    what it waits for has happened, and from here on it waits for a CPU:
 *			on_waking knows how long it was blocked; `waker` walks the stack of the
 *			thread that wakes it
 *	sched_switch    the thread is chosen again: on_switch knows how long it was runnable
 *	SCHED_RESUMED   it runs: `sample` walks its stack, which is still that of the wait
 *
 * The walks come after the wait because only then is its length known. Which times become samples
 * is chosen by bpf/lib/line.h, with a threshold that follows the time that the CPU's walks take
 * (bpf/lib/walk_budget.h).
 *
 * Threads that sleep for long, or when the recording ends, are sent by `asleep`.
 *
 * A source defines before it includes this file, besides what bpf/prog/sample.h asks for,
 *
 *	SCHED_RESUMED	the section of `sample`
 *	SCHED_WAKERS	if its programs can also be attached to sched_waking
 *	SCHED_ATOMIC	if the kernel has atomic operations that return the old value (Linux 5.12)
 */
#pragma once

#define SAMPLE_FINISH finish_walk
#define SAMPLE_WANTS wants

#include "bpf/lib/kernel.h"

struct scratch;
static __attribute__((always_inline)) void finish_walk(struct scratch *s);
static __attribute__((always_inline)) bool wants(struct scratch *s, struct task_struct *task,
						 __u32 tgid);

#ifdef SCHED_ATOMIC
#include "bpf/lib/known_stack.h"
#define SAMPLE_KERNEL_STACK(s, ctx) emit_known_stack(ctx)
#endif
#include "bpf/lib/held.h"
#include "bpf/lib/line.h"
#include "bpf/lib/threads.h"
#include "bpf/lib/wait.h"
#include "bpf/lib/walk_budget.h"
#include "bpf/prog/sample.h"

#include "bpf/prog/interrupt.h"
#include "bpf/prog/owner.h" /* after sample.h, whose macros are defined above */

#define STILL_MIN_NS 5000000000 /* a thread that sleeps so long is told before it wakes */

/* The wait that has just ended on this CPU, the wake-up that goes on, and the CPU's budget. */
struct ended {
	__u64 blocked_ns, queued_ns;
	__u64 woken_ns;
	__u64 lock;
	__u32 tid; /* 0: none */
	__u32 state;
	__u32 owner;
	__u32 pad;
	__u32 wakes_tid; /* whom the current thread wakes, if `waker` shall walk its stack */
	__u32 is_waker;	 /* the walk that goes on is that of `waker` */
	__u64 wakes_ns;
	struct interrupt interrupt; /* that wakes `wakes_tid` */
	__u64 switched_ns;	    /* the CPU's last switch */
	struct walk_budget budget;
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

/* Sends time of a thread that belongs to no stack. Not inline: the record is half of a stack. */
static __noinline void emit_rest(struct task_struct *task, __u64 ns, enum wait wait)
{
	struct record_sample r = {
		.type = RECORD_SAMPLE,
		.source = (__u16)config.source,
		.cpu = bpf_get_smp_processor_id(),
		.time_ns = bpf_ktime_get_ns(),
		.pid = (__u32)BPF_CORE_READ(task, tgid),
		.tid = (__u32)BPF_CORE_READ(task, pid),
		.value = (__s64)ns,
		.wait = wait,
	};
	struct scratch *s = scratch_get();

	if (!ns || !s)
		return;
	bpf_core_read_str(r.comm, sizeof(r.comm), &task->comm);
	count(s, COUNTER_EVENTS);
	if (bpf_ringbuf_output(&ring, &r, sizeof(r), 0) < 0)
		count(s, COUNTER_LOST_SAMPLE);
	else
		count(s, COUNTER_SAMPLES);
}

/* The thread is over, or the recording: sends what is in no sample. */
static __always_inline void emit_rests(struct task_struct *task, struct thread *t)
{
	emit_rest(task, t->blocked.rest_ns, WAIT_OTHER);
	emit_rest(task, t->queued.rest_ns, WAIT_RUNNABLE);
	if (config.whole_time)
		emit_rest(task, t->ran_ns, WAIT_RUNNING);
}

static __always_inline bool is_followed(const struct task_struct *task)
{
	return task->pid && !(config.skip_kthreads && task->flags & PF_KTHREAD);
}

/* The state in which `prev` has left: 0 if it could have run on. */
static __always_inline __u32 state_of(struct task_struct *prev, __u64 preempted, __u64 prev_state)
{
	if (preempted)
		return 0;
	return config.has_prev_state ? (__u32)prev_state : task_state(prev);
}

/*
 * Some switches are not heard of (the kernel passes over a program that is already running on the
 * CPU; threads of a sandbox's own agent may be hidden). Then a wait ends without a sample: it took
 * until the CPU's last known switch, at most.
 */
static __always_inline void end_unheard(struct thread *t, __u64 switched, __u64 begin)
{
	__u64 from = later(later(t->since_ns, t->woken_ns), begin);

	t->blocked.rest_ns += t->chosen_ns;
	t->chosen_ns = 0;
	t->woken_ns = 0;
	t->since_ns = from;
	if (begin && switched > from) {
		t->blocked.rest_ns += switched - from;
		t->since_ns = switched;
	}
}

/* Notes the lock for which the current thread is about to wait; before, it waited for `last`. */
static __always_inline void find_lock(struct task_struct *task, __u64 last)
{
	struct syscall call = {.nr = -1};

	if (task_syscall(task, &call) == 0 && call.nr == NR_futex)
		note_lock(call.arg0, last);
}

static __always_inline void leave_cpu(struct task_struct *task, __u32 state, __u64 now,
				      __u64 switched, __u64 begin)
{
	__u32 tid = (__u32)task->pid;
	struct thread *t = thread_get(tid, task->start_time, 1, begin);
	__u64 last;

	if (!t)
		return;
	if (!t->running)
		end_unheard(t, switched, begin);
	if (begin)
		t->ran_ns += now - later(t->since_ns, begin);
	t->is_wanted = filter_pass(task, (__u32)task->tgid);
	if (state & STATE_DEAD) {
		if (begin && t->is_wanted)
			emit_rests(task, t);
		thread_forget(t, tid);
		return;
	}
	t->running = 0;
	t->is_new = 0;
	t->state = state;
	t->woken_ns = 0;
	t->chosen_ns = 0;
	t->since_ns = now;
	t->left_ns = now;
	t->tgid = (__u32)task->tgid;
	last = t->lock;
	t->lock = 0;
	t->owner = 0;
	if (!t->own_id)
		thread_name(task, t, tid);
	if (state && t->is_wanted && begin)
		find_lock(task, last);
}

/* The time for which `ns` of a thread stands in a sample; 0: it is in none. */
static __always_inline __u64 choose(const struct ended *e, struct thread_line *l, __u64 ns)
{
	return line_choose(l, ns, e->budget.threshold_ns);
}

static __always_inline void take_cpu(struct ended *e, struct task_struct *task, __u64 now,
				     __u64 begin)
{
	__u32 tid = (__u32)task->pid;
	struct thread *t = thread_get(tid, task->start_time, 0, begin);
	__u64 from;
	bool is_new;

	if (!t)
		return;
	if (t->running)
		end_unheard(t, now, begin);
	is_new = t->is_new;
	t->is_new = 0;
	/* A wake-up that came while the thread was about to leave is not in the entry. */
	from = later(later(t->since_ns, t->woken_ns), begin);
	e->blocked_ns = t->chosen_ns;
	e->woken_ns = t->woken_ns;
	t->chosen_ns = 0;
	t->ended_ns = t->woken_ns;
	t->woken_ns = 0;
	t->running = 1;
	t->since_ns = now;
	if (!begin)
		return;
	budget_window(&e->budget, now);
	if (is_new && task->start_time >= begin) {
		/* Its first wait has no stack, and does not end in schedule(). */
		t->queued.rest_ns += now - from;
		return;
	}
	e->queued_ns = choose(e, &t->queued, now - from);
	e->state = t->state;
	e->lock = t->lock;
	e->owner = t->owner;
	e->tid = t->is_wanted && (e->blocked_ns || e->queued_ns) ? tid : 0;
}

/* The chosen wait did not become a sample, because its thread was not heard of again. */
static __always_inline void put_back(struct ended *e)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &e->tid);

	if (t) {
		t->blocked.rest_ns += e->blocked_ns;
		t->queued.rest_ns += e->queued_ns;
	}
	e->tid = 0;
}

/* The arguments are preempt, prev and next; since Linux 5.18 also prev's state. */
SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1],
			   *next = (struct task_struct *)ctx[2];
	struct span_of_time span = recorded();
	__u64 now = bpf_ktime_get_ns();
	struct ended *e = ended_get();

	if (!e || span.end)
		return 0;
	if (e->tid)
		put_back(e);
	if (is_followed(prev))
		leave_cpu(prev, state_of(prev, ctx[0], config.has_prev_state ? ctx[3] : 0), now,
			  e->switched_ns, span.begin);
	e->switched_ns = now;
	if (is_followed(next))
		take_cpu(e, next, now, span.begin);
	return 0;
}

SEC("tp_btf/sched_waking")
int on_waking(__u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	struct span_of_time span = recorded();
	struct ended *e = ended_get();
	__u32 tid = (__u32)task->pid;
	struct thread *t;
	__u64 slept;

	if (!e)
		return 0;
	e->wakes_tid = 0;
	if (span.end || !is_followed(task))
		return 0;
	t = thread_get(tid, task->start_time, 0, span.begin);
	if (!t || t->running || !t->state || t->woken_ns)
		return 0;
	t->woken_ns = bpf_ktime_get_ns();
	t->is_new = 0;
	slept = t->woken_ns - later(since_exchange(t, t->woken_ns), span.begin);
	if (!span.begin)
		return 0;
	t->chosen_ns = choose(e, &t->blocked, (__s64)slept > 0 ? slept : 0);
	if (config.wakers && t->chosen_ns && t->is_wanted) {
		e->wakes_tid = tid;
		e->wakes_ns = t->woken_ns;
	}
	return 0;
}

/* Whose wait ends must pass the filters, but not the waker. */
static __always_inline bool wants(struct scratch *s, struct task_struct *task, __u32 tgid)
{
	struct ended *e = ended_get();

	return (e && e->is_waker) || is_wanted(s, task, tgid);
}

/* The parts of the current thread's wait in which others waited for a lock that it holds. */
static __always_inline void find_held(struct record_sample *r)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &r->tid);
	__u64 begin, since;

	if (!t || !t->held.lock)
		return;
	r->holds = held_now(r->tid);
	if (!r->holds)
		return;
	since = t->held.since_ns;
	begin = t->left_ns;
	if (r->woken_ns) {
		/* Of a long wait a part may have been told before. */
		if (r->woken_ns - begin >= STILL_MIN_NS && r->woken_ns > (__u64)r->value)
			begin = r->woken_ns - (__u64)r->value;
		r->held_value = part_since(r->value, begin, r->woken_ns, since);
		begin = r->woken_ns;
	}
	r->held_queued = part_since(r->queued, begin, r->time_ns, since);
}

static __always_inline void finish_walk(struct scratch *s)
{
	struct record_sample *r = &s->out.sample;
	struct ended *e = ended_get();

	if (!e)
		return;
	if (e->is_waker) {
		r->wait = SAMPLE_WAKES;
		r->queued = 0;
		r->woken_ns = e->wakes_ns;
		r->woken_tid = e->wakes_tid;
		e->is_waker = 0;
	} else {
		r->queued = (__s64)e->queued_ns;
		r->woken_ns = e->woken_ns;
		r->wait =
			wait_category(task_current(), e->state, s->syscall_nr, s->first.WAIT_ARG0);
		wait_find_object(task_current(), r->wait, s->syscall_nr, s->first.WAIT_ARG0,
				 &r->object);
		object_of_lock(&r->object, e->lock, e->owner);
		find_held(r);
	}
	budget_adjust(&e->budget, s);
}

SEC(SCHED_RESUMED)
int sample(SAMPLE_CONTEXT *ctx)
{
	struct ended *e = ended_get();

	if (!e || !e->tid || e->tid != (__u32)bpf_get_current_pid_tgid())
		return 0;
	e->tid = 0;
	e->is_waker = 0;
	return sample_event(ctx, NULL, (__s64)e->blocked_ns);
}

#ifdef SCHED_WAKERS

static __always_inline __u64 emit_interrupt_stack(struct ended *e)
{
	struct record_stack *head = &e->interrupt.head;
	struct scratch *s = scratch_get();
	__u64 hash = 0;

	if (!s || !head->n)
		return 0;
	for (__u64 i = 0; i < INTERRUPT_FRAMES && i < head->n; i++)
		hash = walk_mix(hash, e->interrupt.frames[i]);
	head->type = RECORD_STACK;
	head->flags = RECORD_KERNEL;
	head->stop = STOP_COMPLETE;
	head->id = hash ? hash : 1;
	emit_stack(s, head, head->n, INTERRUPT_FRAMES);
	return head->id;
}

/* Tells that an interrupt woke the thread. */
static __always_inline void emit_interrupt(struct ended *e)
{
	__u64 stack = emit_interrupt_stack(e);
	struct record_sample *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);

	if (!r)
		return;
	*r = (struct record_sample){
		.type = RECORD_SAMPLE,
		.source = (__u16)config.source,
		.cpu = bpf_get_smp_processor_id(),
		.wait = SAMPLE_WAKES,
		.woken_tid = e->wakes_tid,
		.woken_ns = e->wakes_ns,
		.time_ns = e->wakes_ns,
		.kernel_stack = stack,
	};
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/* Runs after on_waking, which has decided. */
SEC("raw_tracepoint/sched_waking")
int waker(struct bpf_raw_tracepoint_args *ctx)
{
	struct ended *e = ended_get();

	if (!e || !e->wakes_tid)
		return 0;
	if (is_interrupt(&e->interrupt, ctx)) {
		emit_interrupt(e);
		return 0;
	}
	e->is_waker = 1;
	return sample_event(ctx, NULL, 0);
}

#endif

/* ---- threads that sleep ---- */

/* As filter_pass(), for a thread that is not the current one; a cgroup is not checked. */
static __always_inline bool passes(struct task_struct *task, __u32 tgid)
{
	if (!tgid || !is_followed(task) || config.filter_cgroups)
		return false;
	if (config.filter_pids && !bpf_map_lookup_elem(&filter_pids, &tgid))
		return false;
	if (config.filter_uids) {
		__u32 uid = BPF_CORE_READ(task, cred, uid.val);

		if (!bpf_map_lookup_elem(&filter_uids, &uid))
			return false;
	}
	if (config.filter_comms) {
		struct filter_comm key;

		__builtin_memset(&key, 0, sizeof(key));
		bpf_core_read_str(key.comm, sizeof(key.comm), &task->group_leader->comm);
		if (!bpf_map_lookup_elem(&filter_comms, &key))
			return false;
	}
	return true;
}

static __always_inline __u64 emit_stack_of(struct scratch *s, struct task_struct *task)
{
	long bytes = bpf_get_task_stack(task, s->kernel.frames, SAMPLE_MAX_KERNEL_FRAMES * 8, 0);

	return bytes > 0 ? emit_kernel_frames(s, bytes) : 0;
}

/*
 * The same as find_held() for a thread that sleeps until after `to`. What it has, it keeps while it
 * sleeps; its memory cannot be read here.
 */
static __always_inline void find_kept(struct record_sample *r, const struct thread *t, __u64 to)
{
	__u64 since = t->held.since_ns, from = to - (__u64)r->value;

	if (!t->held.lock || since < t->left_ns || !held_is_wanted(t, r->tid))
		return;
	r->holds = t->held.lock;
	r->held_value = part_since(r->value, from, to, since);
}

/* Sends a thread that sleeps at `to`. User space reads its memory. */
static __always_inline void emit_asleep(struct scratch *s, struct task_struct *task, __u64 blocked,
					__u64 queued, const struct thread *t, __u64 to)
{
	struct record_deferred *d = &s->out;
	struct syscall call = {.nr = -1};
	int stop = STOP_REGS_LOST;

	count(s, COUNTER_EVENTS);
	fill_sample(&d->sample, task, (__u32)task->tgid, (__s64)blocked);
	d->sample.queued = (__s64)queued;
	if (config.kernel_stacks)
		d->sample.kernel_stack = emit_stack_of(s, task);
	if (config.user_stacks && task->mm) {
		d->sample.start_stack = BPF_CORE_READ(task, mm, start_stack);
		regs_init(&d->regs, task);
		stop = task_entry_regs(task, &d->regs, &call);
		d->regs.exact = call.nr < 0;
	}
	d->sample.wait = wait_category(task, t->state, call.nr, d->regs.WAIT_ARG0);
	wait_find_object(task, d->sample.wait, call.nr, d->regs.WAIT_ARG0, &d->sample.object);
	object_of_lock(&d->sample.object, t->lock, t->owner);
	if (!queued)
		find_kept(&d->sample, t, to);
	d->stop = stop == WALK_GO ? STOP_UNKNOWN_PROCESS : (__u32)stop;
	d->n_copies = 0;
	d->level = 0;
	d->start_time = task->start_time;
	d->switches = task_switches(task);
	d->sample.type = stop == WALK_GO ? RECORD_ASLEEP : RECORD_SAMPLE;
	if (bpf_ringbuf_output(&ring, d, stop == WALK_GO ? sizeof(*d) : sizeof(d->sample), 0) < 0)
		count(s, COUNTER_LOST_SAMPLE);
	else
		count(s, COUNTER_SAMPLES);
}

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

#define STILL_MAX_S 45

/*
 * Tells how long a thread has slept by now, so that whoever looks need not wait for its end: after
 * 5, 15 and 35 seconds, and then each minute. Threads that began together do not stay together.
 */
static __always_inline void tell_sleeper(struct scratch *s, struct task_struct *task,
					 struct thread *t, __u64 begin)
{
	__u64 now = bpf_ktime_get_ns(), old = t->since_ns, from = later(old, begin);
	__u64 gap = from - later(t->left_ns, begin) + STILL_MIN_NS;
	__u64 most = (STILL_MAX_S + (__u32)task->pid % 32) * 1000000000ULL;

	if (t->running || !t->state || t->woken_ns || now < from + (gap < most ? gap : most))
		return;
	if (since_replace(t, old, now))
		emit_asleep(s, task, now - from, 0, t, now);
}

/*
 * User space runs this program for each thread every few seconds, and when the recording has ended.
 * Then the entries are as they were at the end; a thread without one has slept all the time.
 */
SEC("iter/task")
int asleep(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct span_of_time span = recorded();
	__u32 own = config.own_state;
	struct scratch *s = bpf_map_lookup_elem(&scratch, &own);
	__u64 from, woken, blocked;
	struct thread *t;
	__u32 tid;

	if (!task || !s || !span.begin || (span.end && task->start_time > span.end) ||
	    !passes(task, (__u32)task->tgid))
		return 0;
	tid = (__u32)task->pid;
	t = thread_get(tid, task->start_time, !task_state(task), span.begin);
	if (!t || task_state(task) & STATE_DEAD)
		return 0;
	/* It may have a lock, and not have left its CPU yet. */
	t->tgid = (__u32)task->tgid;
	if (!t->own_id)
		thread_name(task, t, tid);
	if (!span.end) {
		tell_sleeper(s, task, t, span.begin);
		bpf_seq_write(ctx->meta->seq, "", 1);
		return 0;
	}
	from = later(t->since_ns, span.begin);
	if (t->running) {
		t->ran_ns += span.end - from;
	} else {
		woken = t->woken_ns ? later(t->woken_ns, from) : t->state ? span.end : from;
		/* What is blocked no longer has been chosen or left out. */
		blocked = t->woken_ns ? t->chosen_ns : woken - from;
		emit_asleep(s, task, blocked, span.end - woken, t, span.end);
	}
	emit_rests(task, t);
	bpf_seq_write(ctx->meta->seq, "", 1);
	return 0;
}
