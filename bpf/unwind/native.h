/* SPDX-License-Identifier: GPL-2.0-only */
/* The walker of abi/walk.h over the arena's maps and the current process's memory. */
#pragma once

#include "bpf/lib/maps.h"

struct walk_env {
	__u8 unused;
};

static __always_inline const void *walk_line(struct walk_env *env, __u32 line)
{
	__u32 chunk = line >> LINES_PER_CHUNK_SHIFT, index = line & (LINES_PER_CHUNK - 1);
	void *map = bpf_map_lookup_elem(&arena, &chunk);

	return map ? bpf_map_lookup_elem(map, &index) : NULL;
}

static __always_inline long walk_read(struct walk_env *env, void *to, __u32 n, __u64 avma)
{
	return bpf_probe_read_user(to, n, (const void *)avma);
}

static __always_inline __u64 walk_strip(struct walk_env *env, __u64 pc)
{
	return pc & ~config.pac_mask;
}

#include "abi/walk.h"

/* What a sample needs while it is made; too large for the stack. */
struct scratch {
	__u32 stop; /* the walk's result so far: enum stop_reason or WALK_GO */
	__u32 busy; /* set while in use: a program that interrupts must not touch it */
	struct walk walk;
	struct record_deferred out;
	struct {
		struct record_stack head;
		__u64 frames[SAMPLE_MAX_FRAMES];
	} user;
	struct {
		struct record_stack head;
		__u64 frames[SAMPLE_MAX_KERNEL_FRAMES + 1];
	} kernel;
};

/* One per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline struct scratch *scratch_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

static __always_inline void native_push(struct scratch *s, __u64 frame)
{
	__u32 n = s->walk.n;

	s->user.frames[walk_bound(n, SAMPLE_MAX_FRAMES - 1)] = frame;
	s->walk.hash = walk_mix(s->walk.hash, frame);
	s->walk.n = n + 1;
}

/* One frame; false when the walk is over and s->stop says why. */
static __always_inline bool native_step(struct scratch *s)
{
	struct walk_env env = {};
	__u64 frame;
	int stop;

	if (s->walk.n >= SAMPLE_MAX_FRAMES) {
		s->stop = STOP_TOO_DEEP;
		return false;
	}
	stop = walk_step(&env, &s->walk, &frame);
	s->stop = (__u32)stop;
	if (walk_can_resume(stop))
		return false;
	native_push(s, frame);
	return stop == WALK_GO;
}
