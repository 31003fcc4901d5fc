/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions that walk/walk.h needs, over the arena's maps and the current process's memory. */
#pragma once

#include "bpf/lib/scratch.h"

struct walk_env {
	struct scratch *s;
	struct row_cache *cache;
};

static __always_inline const void *walk_line(struct walk_env *env, __u32 line)
{
	__u32 chunk = line >> LINES_PER_CHUNK_SHIFT, index = line & (LINES_PER_CHUNK - 1);
	void *map = bpf_map_lookup_elem(&arena, &chunk);

	return map ? bpf_map_lookup_elem(map, &index) : NULL;
}

/*
 * Two words of the window at avma. If avma is not in the window, the window moves there first.
 * NULL: the window cannot move there (too near the end of the stack), or avma is not aligned.
 */
static __always_inline const __u64 *window_at(struct window *w, __u32 n, __u64 avma)
{
	__u64 off = avma - w->start;
	__u32 i;

	if (off > WINDOW_WORDS * 8 - n || !w->start) {
		w->start = 0;
		/* This read fails where less than a window is left up to the end of the stack. */
		if (bpf_probe_read_user(w->words, sizeof(w->words), (const void *)avma) < 0)
			return NULL;
		w->start = avma;
		off = 0;
	}
	if (off & 7)
		return NULL;
	i = (__u32)off / 8;
	asm volatile("" : "+r"(i));
	i &= WINDOW_WORDS - 1;
	return i <= WINDOW_WORDS - 2 ? &w->words[i] : NULL;
}

static __always_inline long walk_read(struct walk_env *env, void *to, __u32 n, __u64 avma)
{
	if (n <= 16) {
		const __u64 *words = window_at(&env->s->window, 16, avma);

		if (words) {
			__u64 *out = to;

			out[0] = words[0];
			if (n == 16)
				out[1] = words[1];
			return 0;
		}
	}
	return bpf_probe_read_user(to, n, (const void *)avma);
}

static __always_inline __u64 walk_strip(struct walk_env *env, __u64 pc)
{
	return pc & ~config.pac_mask;
}

/*
 * The cache's slot for a row, or the sample's own slot if another sample uses the cache.
 * Branchless, so that the verifier follows one path.
 */
walk_inline struct walk_row *walk_row_at(struct walk_env *env, const struct walk *w, __u64 pc)
{
	__u64 hash = (pc ^ w->mappings_id << 32) * 0x9fb21c651e98df25ULL;
	__u32 own = SAMPLE_LEVELS > 1 ? ~0u : env->s->own_row;
	/* Maps the hash's upper bits to a number below CACHE_ROWS - OWN_ROWS. */
	__u32 row = OWN_ROWS + (__u32)((hash >> 32) * (CACHE_ROWS - OWN_ROWS) >> 32);

	return &env->cache->rows[walk_bound((row & ~own) | (env->s->row & own), CACHE_ROWS - 1)];
}

static __always_inline bool walk_in_time(struct walk_env *env)
{
	return bpf_ktime_get_ns() - env->s->out.sample.time_ns < UNWIND_GRACE_NS / 2;
}

static __always_inline void native_push(struct scratch *s, __u64 frame)
{
	__u32 n = s->walk.n;

	s->user.frames[walk_bound(n, SAMPLE_MAX_FRAMES - 1)] = frame;
	s->walk.hash = walk_mix(s->walk.hash, frame);
	s->walk.n = n + 1;
}

/* Moves to the caller on the other stack. A global function: the verifier checks it once. */
__noinline int native_switch(void)
{
	struct scratch *s = scratch_get();

	if (!s)
		return STOP_UNSUPPORTED;

	struct walk_env env = {s, row_cache_get()};

	if (!env.cache)
		return STOP_UNSUPPORTED;
	s->stop = (__u32)walk_switch(&env, &s->walk);
	return s->stop == (__u32)WALK_GO;
}
