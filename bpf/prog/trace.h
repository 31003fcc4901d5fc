/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Walks the stacks of an event of a tracing program, between the two halves of its action
 * (abi/trace.h). There is one object for each type of program, because tail calls join programs of
 * one type. It defines SAMPLE_SECTION, SAMPLE_CONTEXT, SAMPLE_RESULT and
 *
 *	TRACE_TYPE	enum bpf_prog_type of its programs
 *
 * and its program calls trace_event(). No sample is sent: the second half knows what to do with the
 * ids of the stacks. Two of the tail calls of a walk are those from and to the halves.
 *
 * A task has one walk at a time. If an interrupt's action wants a stack during a walk of the same
 * object in the same task, it gets none, and the event is counted as nested.
 */
#pragma once

#define SAMPLE_WANTS(s, task, tgid) true
#define SAMPLE_TAKES_KERNEL(s) trace_wants(TRACE_WANTS_KERNEL)
/* The span is found by what is known of the process, as the stack is. */
#define SAMPLE_TAKES_USER(s)                                                                       \
	(config.user_stacks && trace_wants(TRACE_WANTS_USER | TRACE_WANTS_SPAN))
#define SAMPLE_TAKES_CONTEXT(s) trace_wants(TRACE_WANTS_SPAN)
#define SAMPLE_AFTER_CALL(s) trace_wants(TRACE_AFTER_CALL)
#define SAMPLE_FINISH trace_name_walk
#define SAMPLE_EMIT trace_take_ids
#define SAMPLE_AFTER trace_go_on
/* The second half releases what the first one has taken. */
#define WALK_FAILED trace_go_on
/* The attributes of a thread have no name in the language. */
#define CONTEXT_NO_ATTRIBUTES
#define MAX_JUMPS 30

#include "bpf/lib/maps.h"

#include "abi/trace.h"

struct scratch;
static __always_inline bool trace_wants(__u32 what);
static __always_inline void trace_name_walk(struct scratch *s);
static __always_inline void trace_take_ids(struct scratch *s, bool deferred);
static __always_inline void trace_go_on(void *ctx);

#include "bpf/prog/sample.h"

/* Actions that are under way; all objects and all programs of a script share them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACE_LEVELS);
	__type(key, __u32);
	__type(value, struct trace_stacks);
} trace_stacks SEC(".maps");

/* User space enters this object's program and the second halves. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, TRACE_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} trace_slots SEC(".maps");

/* The action of the current task that waits for its stacks. NULL: it has none, impossible. */
static __always_inline struct trace_stacks *trace_current(void)
{
	__u32 first = bpf_get_smp_processor_id() * TRACE_LEVELS;
	__u64 owner = bpf_get_current_task() + TRACE_TYPE;

	for (__u64 i = 0; i < TRACE_LEVELS; i++) {
		__u32 index = first + i;
		struct trace_stacks *t = bpf_map_lookup_elem(&trace_stacks, &index);

		if (t && t->owner == owner)
			return t;
	}
	return NULL;
}

static __always_inline bool trace_wants(__u32 what)
{
	const struct trace_stacks *t = trace_current();

	return t && t->wants & what;
}

/* For a walk that the host finishes: the name under which it will be known. */
static __always_inline void trace_name_walk(struct scratch *s)
{
	s->out.sample.value =
		(__s64)((__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32() | 1);
}

static __always_inline void trace_take_ids(struct scratch *s, bool deferred)
{
	struct trace_stacks *t = trace_current();

	if (t) {
		t->kernel = s->out.sample.kernel_stack;
		t->user = deferred ? (__u64)s->out.sample.value : s->out.sample.user_stack;
		t->trace_id[0] = s->out.sample.context.trace_id[0];
		t->trace_id[1] = s->out.sample.context.trace_id[1];
		t->span_id = s->out.sample.context.span_id;
	}
	/* An empty record that is thrown away wakes the reader. */
	if (ring_needs_reader(s)) {
		void *nothing = bpf_ringbuf_reserve(&ring, sizeof(__u64), 0);

		if (nothing)
			bpf_ringbuf_discard(nothing, BPF_RB_FORCE_WAKEUP);
	}
	count(s, COUNTER_SAMPLES);
}

static __always_inline void trace_go_on(void *ctx)
{
	const struct trace_stacks *t = trace_current();

	if (t)
		bpf_tail_call(ctx, &trace_slots, t->next);
}

/* Whether this task's walk is under way: below the interrupt whose action this is. */
static __always_inline bool trace_is_nested(void)
{
#if SAMPLE_LEVELS > 1
	struct scratch *s = scratch_get();

	if (s && s->owner == bpf_get_current_task()) {
		count(s, COUNTER_NESTED);
		return true;
	}
#endif
	return false;
}

/* The registers of the event, or NULL, as for begin_sample(). */
static __always_inline int trace_event(SAMPLE_CONTEXT *ctx, const bpf_user_pt_regs_t *regs)
{
	struct trace_stacks *t = trace_current();
	struct scratch *s;

	if (!t)
		return SAMPLE_RESULT;
	t->kernel = t->user = 0;
	t->trace_id[0] = t->trace_id[1] = t->span_id = 0;
	s = trace_is_nested() ? NULL : begin_sample(ctx, regs, 0);
	if (s && (int)s->stop == WALK_GO && !trace_wants(TRACE_WANTS_USER)) {
		trace_take_ids(s, false);
		sample_done(s);
	} else if (s) {
		jump(ctx, s, (int)s->stop == WALK_GO ? RUNTIME_NONE : SLOT_FINISH);
	}
	trace_go_on(ctx);
	return SAMPLE_RESULT;
}
