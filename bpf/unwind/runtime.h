/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Joins the native walker and the walkers of language runtimes: the functions that walkers use, and
 * the choice of the walker for a frame. A walker is `int NAME_walk(void)` in bpf/unwind/NAME.h, a
 * global function, which the verifier checks once and not at each call. abi/runtime.h lists a
 * walker's results.
 */
#pragma once

#include "abi/runtime_common.h"
#include "bpf/unwind/native.h"
#include "bpf/unwind/uprobe.h"

/* User space's data about this process's runtime; NULL: the runtime is not attached (yet). */
static __always_inline const struct runtime_process *runtime_process(struct scratch *s, __u32 id)
{
	struct runtime_key key = {s->out.sample.pid, id};
	const struct runtime_process *p = bpf_map_lookup_elem(&runtime_processes, &key);

	return p && p->image == s->image ? p : NULL;
}

static __always_inline const struct runtime_binary *runtime_binary(const struct runtime_process *p)
{
	__u32 slot = p->binary;

	return bpf_map_lookup_elem(&runtime_binaries, &slot);
}

/* The walker's state within one sample; zero at first. */
static __always_inline struct runtime_walk *runtime_state(struct scratch *s, __u32 id)
{
	if (id >= RUNTIME_N)
		id = 0;
	if (!(s->runtimes & 1U << id)) {
		s->runtimes |= 1U << id;
		__builtin_memset(&s->runtime[id], 0, sizeof(s->runtime[id]));
	}
	return &s->runtime[id];
}

/* A word of the process's memory; 0: it cannot be read. */
static __always_inline __u64 runtime_word(__u64 at)
{
	__u64 v = 0;

	return bpf_probe_read_user(&v, sizeof(v), (const void *)at) < 0 ? 0 : v;
}

/* 4 bytes of it, likewise. */
static __always_inline __u32 runtime_word32(__u64 at)
{
	__u32 v = 0;

	return bpf_probe_read_user(&v, sizeof(v), (const void *)at) < 0 ? 0 : v;
}

static __always_inline __u64 runtime_follow(const struct runtime_chain *c, __u64 p)
{
	if (!c->n)
		return 0;
	for (__u64 i = 0; i < RUNTIME_MAX_CHAIN; i++) {
		if (i >= c->n || !p)
			break;
		p = runtime_word(p + (__u64)c->off[i]);
	}
	return p;
}

/* Adds a runtime frame; false: the stack is full, so STOP_TOO_DEEP. */
static __always_inline bool runtime_push(struct scratch *s, __u32 id, __u64 address, __u64 where)
{
	/* The addresses are valid in one process only, so the stack's id includes the process. */
	if (!s->runtime_frames)
		s->walk.hash = walk_mix(s->walk.hash, s->out.sample.pid);
	s->runtime_frames = 1;
	if (s->walk.n + 2 > SAMPLE_MAX_FRAMES)
		return false;
	native_push(s, WORD_RUNTIME | (__u64)id << WORD_RUNTIME_SHIFT |
			       (address & WORD_RUNTIME_ADDRESS));
	native_push(s, where);
	return true;
}

/* Marks the next frame, a native frame, as the loop that ran the frames before the mark. */
static __always_inline bool runtime_push_own(struct scratch *s, __u32 id)
{
	return runtime_push(s, id, 0, 0);
}

/* Moves to the caller that a walker has found: WALK_GO or a stop reason. */
static __always_inline int runtime_return(struct scratch *s, __u64 pc, __u64 sp, __u64 fp)
{
	struct walk_env env = {s, NULL}; /* the functions below look up no row */

	s->walk.regs.bx = 0;
	return walk_return(&env, &s->walk, pc, sp, fp);
}

#define RUNTIME(id, name, ...) int name##_walk(void);
#include "abi/tbl/runtime.tbl"
#undef RUNTIME

/* `runtime` is a constant: each program has one walker. */
static __always_inline int runtime_walk(__u32 runtime)
{
	switch (runtime) {
#define RUNTIME(id, name, ...)                                                                     \
	case RUNTIME_##id:                                                                         \
		return name##_walk();
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	default:
		return RUNTIME_NATIVE;
	}
}

/*
 * The runtime that reserved the memory around pc, where no mapping is known (sets s->walk.mapping);
 * or RUNTIME_NONE. A function of its own: inline, each runtime would cost the verifier 80 000
 * instructions.
 */
__noinline int runtime_unmapped(void)
{
	struct scratch *s = scratch_get();
	__u64 pc;

	if (!s)
		return RUNTIME_NONE;
	pc = walk_pc(&s->walk.regs);
	for (__u64 id = 1; id < RUNTIME_N; id++) {
		const struct runtime_process *p = runtime_process(s, id);

		bool in = false;

		for (__u64 i = 0; p && i < RUNTIME_MAX_RESERVED; i++)
			in |= pc >= p->reserved[i].start && pc < p->reserved[i].end;
		if (!in)
			continue;
		s->walk.mapping = (struct unwind_mapping){
			.start = pc & ~4095ULL,
			.end = (pc & ~4095ULL) + 4096,
			.file = id << UNWIND_MAPPING_RUNTIME_SHIFT | UNWIND_MAPPING_FP |
				UNWIND_MAPPING_UNKNOWN,
		};
		s->walk.have_mapping = 1;
		return (int)id;
	}
	return RUNTIME_NONE;
}

/* Walks a native frame: WALK_GO, a stop reason, or WALK_RUNTIME: the frame is not native. */
static __always_inline int native_one(struct scratch *s, struct row_cache *cache)
{
	struct walk_env env = {s, cache};
	__u64 frame;
	int stop = walk_step(&env, &s->walk, &frame);

	if ((stop == STOP_NO_MAPPING || stop == STOP_NO_TABLE) && uprobe_real_return())
		return WALK_GO;
	if (stop == STOP_NO_MAPPING && runtime_unmapped())
		stop = WALK_RUNTIME;
	if (stop != WALK_RUNTIME && !walk_can_resume(stop))
		native_push(s, frame);
	return stop;
}

/* native_one() for the runtimes' programs: a call (15 ns) costs less than verifying it inline. */
__noinline int native_apart(void)
{
	struct scratch *s = scratch_get();
	struct row_cache *cache = row_cache_get();

	return s && cache ? native_one(s, cache) : STOP_UNSUPPORTED;
}

/*
 * Walks one frame, in the program of the runtime `own`, a constant. False: this program's part of
 * the walk is over, and s->stop is a stop reason, or WALK_SWITCH (the stack ends), or
 * WALK_ELSEWHERE (the walk continues in another runtime's program).
 */
static __always_inline bool walk_one(struct scratch *s, struct row_cache *cache, __u32 own)
{
	__u32 id;
	int stop;

	if (s->walk.n >= SAMPLE_MAX_FRAMES) {
		s->stop = STOP_TOO_DEEP;
		return false;
	}
	stop = own == RUNTIME_NONE ? native_one(s, cache) : native_apart();
	if (stop == WALK_RUNTIME) {
		id = walk_runtime(&s->walk);
		if (id == own)
			stop = runtime_walk(own);
		else
			stop = runtime_process(s, id) ? WALK_ELSEWHERE : RUNTIME_NATIVE;
		if (stop == RUNTIME_NATIVE)
			s->walk.native = 1;
		if (stop == RUNTIME_NATIVE || stop == RUNTIME_AGAIN)
			stop = WALK_GO;
	}
	s->stop = (__u32)stop;
	return stop == WALK_GO;
}

#include "bpf/walkers.h" /* bpf/meson.build makes this file from abi/tbl/runtime.tbl */
