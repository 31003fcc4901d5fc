/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The programs of a walk: walk_native, and one for each language runtime. bpf/prog/sample.h says
 * how they follow each other. What includes this file defines SAMPLE_SECTION, SAMPLE_CONTEXT and
 * SAMPLE_RESULT as there, and may define
 *
 *	WALK_JUMP	(ctx, s, slot) runs the next program; not defined: a tail call
 *	WALK_FAILED	(ctx) goes on after a tail call that failed; not defined: nothing does
 *	MAX_JUMPS	the most tail calls of a walk; not defined: all that the kernel allows
 */
#pragma once

#include "bpf/lib/scratch.h"
#include "bpf/lib/task.h"
#include "bpf/unwind/known_walk.h"
#include "bpf/unwind/runtime.h"

#define FRAMES_PER_CALL 8
#define FRAMES_PER_STEP 16
/*
 * Below the kernel's 33, because some kernels count one jump more or less and the jump to `finish`
 * must not fail.
 */
#ifndef MAX_JUMPS
#define MAX_JUMPS 32
#endif

/* Releases what the sample has used. */
static __always_inline void sample_done(struct scratch *s)
{
	row_cache_release(s);
	scratch_release(s);
}

/* Begins a walk with the registers that the caller sets. */
static __always_inline void walk_begin(struct scratch *s)
{
	s->walk.have_mapping = 0;
	s->walk.native = 0;
	s->runtimes = 0;
	s->runtime_frames = 0;
	s->jumps = 0;
	s->context = 0;
	s->image = 0;
	s->window.start = 0;
	s->walk.n = 0;
	s->walk.hash = 0;
	s->known = KNOWN_NOT;
	s->followed = 0;
}

/* Finds what is known about the process: WALK_GO, or a stop reason. */
static __always_inline int walk_find_process(struct scratch *s, struct task_struct *task)
{
	const struct process_entry *p =
		task_process(task, s->out.sample.pid, s->out.sample.start_stack);

	if (!p)
		return STOP_UNKNOWN_PROCESS;
	s->image = p->image;
	s->walk.mappings_id = p->mappings_id;
	s->walk.slice = p->slice;
	s->walk.n_mappings = p->n;
	s->context = p->context;
	if (!p->n)
		return STOP_NO_MAPPING;
	known_begin(s);
	return WALK_GO;
}

/* The programs of a walk, by enum runtime_id (RUNTIME_NONE: walk_native); then `finish`. */
#define SLOT_FINISH RUNTIME_N

#ifndef WALK_FAILED
#define WALK_FAILED(ctx)
#endif

#ifndef WALK_JUMP
#define WALK_JUMP jump

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, RUNTIME_N + 1);
	__type(key, __u32);
	__type(value, __u32);
} walkers SEC(".maps");

static __always_inline void jump(SAMPLE_CONTEXT *ctx, struct scratch *s, __u32 slot)
{
	s->jumps++;
	bpf_tail_call(ctx, &walkers, slot);
	/* User space loads a runtime's walker when a process needs it; the host goes on. */
	s->stop = STOP_NOT_LOADED;
	bpf_tail_call(ctx, &walkers, SLOT_FINISH);
	/* Unreachable. Without this call, a failed jump would end all samples of this CPU. */
	sample_done(s);
	WALK_FAILED(ctx);
}

#endif

/* Ends this program's part of a walk: jumps to the next program. */
static __always_inline int leave(SAMPLE_CONTEXT *ctx, struct scratch *s)
{
	__u32 slot = SLOT_FINISH;

	if ((int)s->stop == WALK_ELSEWHERE && s->jumps < MAX_JUMPS - 1)
		slot = walk_runtime(&s->walk);
	else if ((int)s->stop == WALK_ELSEWHERE)
		s->stop = STOP_CHANGES;
	else if ((int)s->stop == WALK_GO)
		s->stop = STOP_TOO_DEEP;
	WALK_JUMP(ctx, s, slot);
	return SAMPLE_RESULT;
}

/* The argument of a walk's rounds; no pointer is NULL. */
struct walking {
	struct scratch *s;
	struct row_cache *cache;
	struct known_walk *known;
};

/* Walks up to `n` frames; false: this program's part of the walk is over. */
static __always_inline bool walk_some(const struct walking *w, __u32 own, __u64 n)
{
	for (__u64 i = 0; i < n; i++) {
		if (own == RUNTIME_NONE)
			known_before(w->s, w->known);
		if (!walk_one(w->s, w->cache, own))
			return w->s->stop == (__u32)WALK_SWITCH && native_switch();
		if (own == RUNTIME_NONE)
			known_after(w->s);
	}
	return true;
}

/* Everything that a walk needs; false: impossible, each CPU has it. */
static __always_inline bool walking_get(struct walking *w)
{
	w->s = scratch_get();
	w->cache = row_cache_get();
	w->known = w->s ? known_get(w->s) : NULL;
	return w->s && w->cache && w->known;
}

/*
 * A call with its return costs as much as half a frame (15 ns with the mitigations of a Zen 4), so
 * each round of bpf_loop() walks several frames. A native frame in a runtime's mapping takes two
 * steps.
 */
#define WALKER(id, name)                                                                           \
	static long name##_some(__u32 i, void *arg)                                                \
	{                                                                                          \
		struct walking *w = arg;                                                           \
                                                                                                   \
		return !walk_some(w, id, FRAMES_PER_CALL);                                         \
	}                                                                                          \
                                                                                                   \
	SEC(SAMPLE_SECTION)                                                                        \
	int walk_##name(SAMPLE_CONTEXT *ctx)                                                       \
	{                                                                                          \
		struct walking w;                                                                  \
                                                                                                   \
		if (!walking_get(&w))                                                              \
			return SAMPLE_RESULT;                                                      \
		bpf_loop(2 * SAMPLE_MAX_FRAMES / FRAMES_PER_CALL + 1, name##_some, &w, 0);         \
		known_end(w.s, w.known);                                                           \
		return leave(ctx, w.s);                                                            \
	}

WALKER(RUNTIME_NONE, native)
#define RUNTIME(id, name, ...) WALKER(RUNTIME_##id, name)
#include "abi/tbl/runtime.tbl"
#undef RUNTIME

#ifndef SAMPLE_ALONE

#define STEPPER(id, name)                                                                          \
	SEC(SAMPLE_SECTION)                                                                        \
	int step_##name(SAMPLE_CONTEXT *ctx)                                                       \
	{                                                                                          \
		struct walking w;                                                                  \
                                                                                                   \
		if (!walking_get(&w))                                                              \
			return SAMPLE_RESULT;                                                      \
		if (walk_some(&w, id, FRAMES_PER_STEP) && w.s->jumps < MAX_JUMPS - 1) {            \
			WALK_JUMP(ctx, w.s, id);                                                   \
			return SAMPLE_RESULT;                                                      \
		}                                                                                  \
		known_end(w.s, w.known);                                                           \
		return leave(ctx, w.s);                                                            \
	}

STEPPER(RUNTIME_NONE, native)
#define RUNTIME(id, name, ...) STEPPER(RUNTIME_##id, name)
#include "abi/tbl/runtime.tbl"
#undef RUNTIME

#endif
