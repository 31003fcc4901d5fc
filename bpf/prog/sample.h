/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The body of every sampling program: on an event, it walks the stacks of the current task and
 * sends records to the ring (abi/sample.h). A source (bpf/prog/NAME.bpf.c) defines before it
 * includes this file
 *
 *	SAMPLE_SECTION	the section of its programs, which tells libbpf their type: "perf_event"
 *	SAMPLE_CONTEXT	the context type of these programs: struct bpf_perf_event_data
 *	SAMPLE_RESULT	what the programs return. If a program of type tracepoint or kprobe
 *			returns 0, the kernel drops the event for all listeners: perf(1) would
 *			count none.
 *	SAMPLE_FINISH	(s) completes the record when the walk is over; not defined if there is
 *			nothing to complete
 *	SAMPLE_KERNEL_STACK	(s, ctx) sends the kernel's stack and returns its id; not defined:
 *			emit_kernel_stack
 *	SAMPLE_WANTS	(s, task, tgid) tells whether the event is recorded; not defined: is_wanted
 *	SAMPLE_HOLDS	(tid) tells the lock that the thread holds and for which others wait; not
 *			defined: 0
 *	SAMPLE_CONCERNS	(s) tells, once the span is known, whether the stacks are walked; not
 *			defined: they are
 *	SAMPLE_TAKES_CONTEXT	(s) tells whether the span of the thread is read; not defined: it is
 *	SAMPLE_AFTER_CALL	(s) tells whether the registers of the event are those after a
 *			call: pc is a return address; not defined: pc is an instruction
 *	SAMPLE_TAKES_KERNEL, SAMPLE_TAKES_USER	(s) tell which stacks of the event are taken; not
 *			defined: the configuration does
 *	SAMPLE_EMIT	(s, deferred) sends the sample, or tells who waits for it; not defined: a
 *			sample that the host does not finish is sent
 *	SAMPLE_AFTER	(ctx) goes on when the sample is complete; not defined: nothing does
 *	SAMPLE_ATTRIBUTES	(s, ctx) reads and sends the event's own attributes
 *			(bpf/context/attributes.h); not defined if the source has none
 *
 * and then has one program that calls sample_event().
 *
 * The verifier reads a program as a whole, and at most a million instructions. So several programs
 * handle a sample, joined by tail calls (here: jumps), and each language runtime has a program of
 * its own:
 *
 *	the source's ─→ walk_native ─→ walk_python ⇄ walk_v8 … ─→ finish
 *
 * walk_native walks native frames only; walk_NAME walks frames of one runtime and native frames,
 * any number in any order. At a frame of another runtime, the walk jumps to that runtime's program.
 * The kernel allows 33 jumps per sample. All state is in the scratch space.
 *
 * walk_NAME needs bpf_loop() (Linux 5.17, commit e6f2dd0f8067). On older kernels user space loads
 * step_NAME instead: FRAMES_PER_STEP frames, then a jump to itself. So a walk has at most 496
 * frames there, fewer if runtimes alternate.
 */
#pragma once

#include "bpf/context/context.h"
#include "bpf/lib/emit.h"
#include "bpf/lib/filter.h"
#include "bpf/lib/task.h"
#include "bpf/prog/walk.h"

char LICENSE[] SEC("license") = "GPL";

#ifndef SAMPLE_WANTS
#define SAMPLE_WANTS is_wanted
#endif
#ifndef SAMPLE_KERNEL_STACK
#define SAMPLE_KERNEL_STACK emit_kernel_stack
#endif
#ifndef SAMPLE_HOLDS
#define SAMPLE_HOLDS(tid) 0
#endif
#ifndef SAMPLE_FINISH
#define SAMPLE_FINISH(s)
#endif
#ifndef SAMPLE_AFTER_CALL
#define SAMPLE_AFTER_CALL(s) false
#endif
#ifndef SAMPLE_TAKES_KERNEL
#define SAMPLE_TAKES_KERNEL(s) config.kernel_stacks
#endif
#ifndef SAMPLE_TAKES_USER
#define SAMPLE_TAKES_USER(s) config.user_stacks
#endif
#ifndef SAMPLE_TAKES_CONTEXT
#define SAMPLE_TAKES_CONTEXT(s) true
#endif
#ifndef SAMPLE_EMIT
#define SAMPLE_EMIT emit_unless_deferred
#endif
#ifndef SAMPLE_AFTER
#define SAMPLE_AFTER(ctx)
#endif

#define NO_USER_STACK (-2)

/* A function of its own: a copy of the registers would take a third of the program's stack. */
__noinline int saved_regs_apart(void)
{
	struct scratch *s = scratch_get();

	return s ? task_saved_regs(task_current(), &s->walk.regs, &s->syscall_nr) : STOP_REGS_LOST;
}

/* Begins the walk of the current process: WALK_GO, NO_USER_STACK, or a stop reason. */
static __always_inline int begin_walk(struct scratch *s, struct task_struct *task,
				      const bpf_user_pt_regs_t *regs, __u32 tgid)
{
	int stop;

	walk_begin(s);
	regs_init(&s->walk.regs, task);
	if (regs && regs_are_user(regs))
		stop = regs_from_context(&s->walk.regs, regs);
	else
		stop = saved_regs_apart();
	if (stop != WALK_GO)
		return stop;
	if (SAMPLE_AFTER_CALL(s))
		s->walk.regs.exact = 0;
	if (task_between_images(&s->walk.regs, s->syscall_nr))
		return NO_USER_STACK;
	s->first = s->walk.regs;
	return walk_find_process(s, task);
}

static __always_inline void emit_unless_deferred(struct scratch *s, bool deferred)
{
	if (!deferred)
		emit_sample(s);
}

static __always_inline void end_walk(struct scratch *s)
{
	enum defer defer = defer_how(s);

	if (defer == DEFER_WHOLE) {
		s->walk.regs = s->first;
		s->walk.n = 0;
		s->walk.hash = 0;
		s->walk.native = 0;
		s->runtime_frames = 0;
	}
	if (!defer && s->stop == STOP_NO_MAPPING && s->walk.n < SAMPLE_MAX_FRAMES)
		native_push(s, WORD_RAW | walk_pc(&s->walk.regs));
	s->out.sample.user_stack = emit_user_stack(s);
	SAMPLE_FINISH(s);
	SAMPLE_EMIT(s, defer && emit_deferred(s));
	sample_done(s);
}

/* Whether this source records the event. */
static __always_inline bool is_wanted(struct scratch *s, struct task_struct *task, __u32 tgid)
{
	if (!tgid) {
		count(s, COUNTER_FILTERED_IDLE);
		return false;
	}
	if ((config.skip_kthreads && task_read(task, flags) & PF_KTHREAD) ||
	    !filter_pass(task, tgid)) {
		count(s, COUNTER_FILTERED);
		return false;
	}
	return true;
}

static __always_inline void fill_sample(struct record_sample *out, struct task_struct *task,
					__u32 tgid, __s64 value)
{
	out->source = (__u16)config.source;
	out->cpu = bpf_get_smp_processor_id();
	out->time_ns = bpf_ktime_get_ns();
	out->pid = tgid;
	out->tid = task_read(task, pid);
	out->value = value;
	out->kernel_stack = 0;
	out->user_stack = 0;
	out->start_stack = 0;
	out->event_attributes = 0;
	out->queued = 0;
	out->woken_ns = 0;
	out->woken_tid = 0;
	out->object = (struct wait_object){};
	out->bytes = 0;
	out->later = 0;
	out->holds = 0;
	out->held_value = 0;
	out->held_queued = 0;
	out->wait = config.whole_time ? WAIT_RUNNING : WAIT_NONE;
	out->context = (struct sample_context){};
	task_comm(task, out->comm);
}

/*
 * Handles a sample up to the walk of the user stack. `regs` are the registers of the event, or NULL
 * if the program does not get any: then the event happened in the kernel. Returns the scratch space
 * if there is a user stack to walk, with WALK_GO or a stop reason in s->stop. Returns NULL if the
 * sample is already complete, or not wanted.
 */
static __always_inline struct scratch *begin_sample(void *ctx, const bpf_user_pt_regs_t *regs,
						    __s64 value)
{
	struct task_struct *task = task_current();
	__u32 tgid = task_read(task, tgid);
	struct scratch *s = scratch_get(), *taken;
	struct mm_struct *mm;

	if (!s)
		return NULL; /* impossible: each CPU has one */
	count(s, COUNTER_EVENTS);
	if (!SAMPLE_WANTS(s, task, tgid))
		return NULL;
	taken = scratch_take(s);
	if (!taken) {
		count(s, COUNTER_NESTED);
		return NULL;
	}
	s = taken;
	row_cache_take(s);
	fill_sample(&s->out.sample, task, tgid, value);
	s->out.sample.holds = SAMPLE_HOLDS(s->out.sample.tid);
	s->out.sample.held_value = s->out.sample.holds ? value : 0;
	s->syscall_nr = -1;
#ifdef SAMPLE_ATTRIBUTES
	SAMPLE_ATTRIBUTES(s, ctx);
#endif
#ifndef SAMPLE_CONCERNS
	if (SAMPLE_TAKES_KERNEL(s) && (!regs || !regs_are_user(regs)))
		s->out.sample.kernel_stack = SAMPLE_KERNEL_STACK(s, ctx);
#endif
	mm = task_read(task, mm);
	s->stop = (__u32)NO_USER_STACK;
	if (SAMPLE_TAKES_USER(s) && mm && !(task_read(task, flags) & PF_KTHREAD)) {
		s->out.sample.start_stack = task_read(mm, start_stack);
		s->stop = (__u32)begin_walk(s, task, regs, tgid);
		if (SAMPLE_TAKES_CONTEXT(s) && (s->context || config.has_obi) &&
		    s->stop != (__u32)NO_USER_STACK)
			context_read(s);
	}
#ifdef SAMPLE_CONCERNS
	if (!SAMPLE_CONCERNS(s)) {
		sample_done(s);
		return NULL;
	}
	if (SAMPLE_TAKES_KERNEL(s) && (!regs || !regs_are_user(regs)))
		s->out.sample.kernel_stack = SAMPLE_KERNEL_STACK(s, ctx);
#endif
	if (s->stop != (__u32)NO_USER_STACK)
		return s;
	SAMPLE_FINISH(s);
	SAMPLE_EMIT(s, false);
	sample_done(s);
	return NULL;
}

SEC(SAMPLE_SECTION)
int finish(SAMPLE_CONTEXT *ctx)
{
	struct scratch *s = scratch_get();

	if (s)
		end_walk(s);
	SAMPLE_AFTER(ctx);
	return SAMPLE_RESULT;
}

/*
 * Records the event for which the kernel called the program; `value` is what the event stands for.
 */
static __always_inline int sample_event(SAMPLE_CONTEXT *ctx, const bpf_user_pt_regs_t *regs,
					__s64 value)
{
	struct scratch *s = begin_sample(ctx, regs, value);

	if (s)
		jump(ctx, s, (int)s->stop == WALK_GO ? RUNTIME_NONE : SLOT_FINISH);
	return SAMPLE_RESULT;
}
