/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's stacks of waits are few, and walking one takes most of a sample's time. So a walk
 * that would find what an earlier one found is not made again.
 *
 * Where a walk goes next follows from the return address that it found last and from where it found
 * it. So two walks that start at the same place, on stacks that hold the same return addresses at
 * the same distances, find the same. Which of the words the walk has read as return addresses is
 * not known: some of the addresses may be there more than once, left by calls that are over. All of
 * them are compared. So a walk may be made in vain, but none is left out wrongly.
 *
 * The kernel leaves a gap of random size on the stack of each system call
 * (CONFIG_RANDOMIZE_KSTACK_OFFSET), in the frame of do_syscall_64(): below the gap the distances
 * from the program's context are equal, above it the distances from the stack's begin. On arm64,
 * where more frames are above it, stacks are compared only with those that have an equal gap.
 */
#pragma once

#include "bpf/lib/emit.h"
#include "bpf/lib/task.h"

#define STACK_WORDS 256 /* a power of two; larger stacks are always walked */
#define COMPARED_WORDS 40
#if defined(__TARGET_ARCH_x86)
/* The user's registers, the return address of do_syscall_64(), and some that it has saved. */
#define WORDS_ABOVE_GAP 24
#else
#define WORDS_ABOVE_GAP 0
#endif
#define STACK_SETS 16
#define STACKS_PER_SET 4
/* Learning takes a third of a walk's time, and is wasted on stacks that do not come again. */
#define LEARN_ONE_OF 8 /* walks */
#define FRAME_PAIRS 128
/*
 * The frames of the program itself and of what calls it are between the stack pointer and the
 * program's context, and are equal in all of its walks.
 */
#define OWN_FRAMES 3

struct known_stack {
	__u64 id;      /* 0: none */
	__u32 n_words; /* on the stack, from the context on */
	__u32 n;       /* that are compared */
	__u64 words[COMPARED_WORDS];
	__u16 at[COMPARED_WORDS]; /* their indices from the context on, ascending */
};

struct known_stacks {
	__u64 context;		  /* an address on the current stack */
	__u64 words[STACK_WORDS]; /* of the current stack, from the context on */
	/*
	 * The frames of the last walk: each in one of two places, by its hash, as frame << 16 |
	 * the number of the walk.
	 */
	__u64 frames[FRAME_PAIRS][2];
	__u64 n_walks;
	__u32 next[STACK_SETS]; /* the entry of each set that is replaced next */
	struct known_stack sets[STACK_SETS][STACKS_PER_SET];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct known_stacks);
} known_stacks SEC(".maps");

/*
 * Returns the number of words; 0: there are more, `ctx` is not on the current thread's stack, or it
 * is not known where the kernel's code is.
 */
static __always_inline __u32 read_stack(struct known_stacks *k, struct task_struct *task, void *ctx)
{
	__u64 bytes;

	if (!config.code[CODE_ANY][1])
		return 0;
	k->context = (__u64)ctx; /* makes a number of the pointer */
	bytes = (__u64)task_read(task, stack) + config.thread_size - *(volatile __u64 *)&k->context;
	if (bytes > sizeof(k->words) ||
	    bpf_probe_read_kernel(k->words, bytes, (void *)*(volatile __u64 *)&k->context) < 0)
		return 0;
	return (__u32)bytes / 8;
}

static __always_inline bool is_same(const struct known_stacks *k, const struct known_stack *s,
				    __u32 n_words)
{
	if (!s->id)
		return false;
	for (__u32 i = 0; i < COMPARED_WORDS && i < s->n; i++) {
		__u32 at = s->at[i];

		if (at + WORDS_ABOVE_GAP >= s->n_words)
			at += n_words - s->n_words;
		if (at >= n_words || k->words[at % STACK_WORDS] != s->words[i])
			return false;
	}
	return true;
}

struct learning {
	struct known_stacks *k;
	struct known_stack *to;
	const struct scratch *s;
	__u32 next;    /* the frame that is looked for on the stack */
	bool too_many; /* frames of one hash */
};

/* Differs from walk to walk, so that a stack with too many frames of one hash is learned later. */
static __always_inline __u32 frame_pair(const struct known_stacks *k, __u64 frame)
{
	return (__u32)(walk_mix(k->n_walks, frame) % FRAME_PAIRS);
}

static __always_inline __u64 frame_mark(const struct known_stacks *k, __u64 frame)
{
	return frame << 16 | (__u16)k->n_walks;
}

/* Of the frame with index i. */
static long note_frame(__u32 i, void *arg)
{
	struct learning *l = arg;
	__u64 frame, mark, *pair;

	if (i >= SAMPLE_MAX_KERNEL_FRAMES)
		return 1;
	frame = l->s->kernel.frames[i];
	mark = frame_mark(l->k, frame);
	pair = l->k->frames[frame_pair(l->k, frame)];
	if ((__u16)pair[0] != (__u16)mark || pair[0] == mark)
		pair[0] = mark;
	else if ((__u16)pair[1] != (__u16)mark || pair[1] == mark)
		pair[1] = mark;
	else
		l->too_many = true;
	return 0;
}

/* Takes the word of the stack with index i. */
static long learn_word(__u32 i, void *arg)
{
	struct learning *l = arg;
	__u32 at = i % STACK_WORDS, next = l->next, n = l->to->n;
	__u64 word = l->k->words[at], mark = frame_mark(l->k, word);
	const __u64 *pair = l->k->frames[frame_pair(l->k, word)];

	if (word < config.code[CODE_ANY][0] || word >= config.code[CODE_ANY][1])
		return 0;
	if (next < SAMPLE_MAX_KERNEL_FRAMES && l->s->kernel.frames[next] == word)
		l->next = next + 1;
	if (pair[0] != mark && pair[1] != mark)
		return 0;
	l->to->n = n + 1;
	if (n >= COMPARED_WORDS)
		return 1;
	l->to->words[n] = word;
	l->to->at[n] = (__u16)at;
	return 0;
}

/*
 * Keeps in `to` what later stacks are compared with. The stack was read, and s->kernel has the
 * frames of its walk. Each must be on the stack, but for those of the program itself: a function
 * tracer replaces return addresses, and the kernel tells frames that are not there.
 */
static __always_inline void learn_stack(struct known_stacks *k, struct known_stack *to,
					__u32 n_words, const struct scratch *s)
{
	struct learning l = {k, to, s, OWN_FRAMES};
	__u32 n = s->kernel.head.n;

	to->id = 0;
	to->n = 0;
	k->n_walks++;
	bpf_loop(n, note_frame, &l, 0);
	bpf_loop(n_words, learn_word, &l, 0);
	if (l.too_many || to->n > COMPARED_WORDS || l.next != n ||
	    s->kernel.head.stop != STOP_COMPLETE)
		return;
	to->n_words = n_words;
	to->id = s->kernel.head.id;
}

/*
 * Sends the kernel's stack and returns its id, as emit_kernel_stack(). A function of its own, which
 * the verifier reads apart from its callers.
 */
__noinline __u64 emit_known_stack(SAMPLE_CONTEXT *ctx)
{
	__u32 zero = 0, n_words, set, i;
	struct known_stacks *k = bpf_map_lookup_elem(&known_stacks, &zero);
	struct task_struct *task = task_current();
	struct syscall call = {.nr = -1};
	struct scratch *s = scratch_get();
	__u64 id;

	if (!k || !s)
		return 0; /* impossible: each CPU has them */
	n_words = read_stack(k, task, ctx);
	if (!n_words)
		return emit_kernel_stack(s, ctx);
	task_syscall(task, &call);
	set = (call.nr >= 0 ? (__u32)call.nr : n_words) % STACK_SETS;
	for (i = 0; i < STACKS_PER_SET; i++) {
		id = k->sets[set][i].id;
		if (!is_same(k, &k->sets[set][i], n_words))
			continue;
		if (was_sent(id))
			return id;
		break;
	}
	id = emit_kernel_stack(s, ctx);
	if (!id || bpf_get_prandom_u32() % LEARN_ONE_OF)
		return id;
	if (i == STACKS_PER_SET)
		i = k->next[set]++;
	learn_stack(k, &k->sets[set][i % STACKS_PER_SET], n_words, s);
	return id;
}
