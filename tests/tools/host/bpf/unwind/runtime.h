/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for bpf/unwind/runtime.h where a walker of bpf/unwind is compiled for the host: the
 * same functions over a stopped process instead of the current one. The includer provides
 *
 *	int host_read(void *to, __u32 n, __u64 avma)	0 or negative
 */
#pragma once

#include "abi/runtime.h"
#include "abi/sample.h"

static int host_read(void *to, __u32 n, __u64 avma);

struct walk_env {
	int unused;
};

static inline const void *walk_line(struct walk_env *env, __u32 line)
{
	(void)env;
	(void)line;
	return NULL;
}

static inline long walk_read(struct walk_env *env, void *to, __u32 n, __u64 avma)
{
	(void)env;
	return host_read(to, n, avma);
}

static inline __u64 walk_strip(struct walk_env *env, __u64 pc)
{
	(void)env;
	return pc;
}

static inline bool walk_in_time(struct walk_env *env)
{
	(void)env;
	return false;
}

#include "abi/walk.h"

static struct walk_row host_row;

walk_inline struct walk_row *walk_row_at(struct walk_env *env, const struct walk *w, __u64 pc)
{
	(void)env;
	(void)w;
	(void)pc;
	return &host_row;
}

/* ---- BPF ---- */

#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value) *name
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline static __attribute__((noinline))
#define BPF_MAP_TYPE_PERCPU_ARRAY 6

/* Each map of a walker is an array of one value: its scratch space. */
#define bpf_map_lookup_elem(map, key)                                                              \
	({                                                                                         \
		static __typeof__(*(map)->value) value_;                                           \
		(void)(key);                                                                       \
		&value_;                                                                           \
	})
#define bpf_probe_read_user(to, n, from) host_read(to, n, (__u64)(from))

/* ---- what a walker uses ---- */

#define HOST_MAX_RETURNS 1024

struct scratch {
	struct {
		struct record_sample sample;
	} out;
	struct walk walk;
	__u64 frames[SAMPLE_MAX_FRAMES + 2];
	struct runtime_process process;
	/* Where each return address was found that the walk has followed, and what it was. */
	struct {
		__u64 at, pc;
	} returns[HOST_MAX_RETURNS];
	__u32 n_returns;
};

static struct scratch host_scratch;

static inline struct scratch *scratch_get(void)
{
	return &host_scratch;
}

static inline void native_push(struct scratch *s, __u64 frame)
{
	if (s->walk.n < SAMPLE_MAX_FRAMES)
		s->frames[s->walk.n++] = frame;
}

static inline const struct runtime_process *runtime_process(struct scratch *s, __u32 id)
{
	(void)id;
	return &s->process;
}

/* Of one sample, which here is all: the process stays the same. */
static inline struct runtime_walk *runtime_state(struct scratch *s, __u32 id)
{
	static struct runtime_walk state;

	(void)s;
	(void)id;
	return &state;
}

static inline bool runtime_push(struct scratch *s, __u32 id, __u64 address, __u64 where)
{
	if (s->walk.n + 2 > SAMPLE_MAX_FRAMES)
		return false;
	native_push(s, WORD_RUNTIME | (__u64)id << WORD_RUNTIME_SHIFT |
			       (address & WORD_RUNTIME_ADDRESS));
	native_push(s, where);
	return true;
}

static inline bool runtime_push_own(struct scratch *s, __u32 id)
{
	return runtime_push(s, id, 0, 0);
}

static inline int runtime_return(struct scratch *s, __u64 pc, __u64 sp, __u64 fp)
{
	struct walk_env env = {};

	if (s->n_returns < HOST_MAX_RETURNS) {
		s->returns[s->n_returns].at = sp - 8;
		s->returns[s->n_returns++].pc = pc;
	}
	s->walk.regs.bx = 0;
	return walk_return(&env, &s->walk, pc, sp, fp);
}
