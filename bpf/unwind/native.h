/* SPDX-License-Identifier: GPL-2.0-only */
/* The walker of abi/walk.h over the arena's maps and the current process's memory. */
#pragma once

#include "bpf/lib/maps.h"

/*
 * The stack as it was last read: a walk reads upwards, a word or two a frame, and a call of the
 * helper costs as much as two frames. 128 words hold several frames of most programs; with 64
 * a sample of 32 frames of 144 bytes costs a quarter more, with 256 the same.
 */
#define WINDOW_WORDS 128
struct window {
	__u64 start; /* avma of words[0]; 0 = empty */
	__u64 words[WINDOW_WORDS];
};

struct walk_env {
	struct window *window;
	struct walk_row *rows;
	const __u64 *began_ns;
};

static __always_inline const void *walk_line(struct walk_env *env, __u32 line)
{
	__u32 chunk = line >> LINES_PER_CHUNK_SHIFT, index = line & (LINES_PER_CHUNK - 1);
	void *map = bpf_map_lookup_elem(&arena, &chunk);

	return map ? bpf_map_lookup_elem(map, &index) : NULL;
}

/* Words of the window at avma, filled from there on if they are not in it; NULL when it cannot. */
static __always_inline const __u64 *window_at(struct window *w, __u32 n, __u64 avma)
{
	__u64 off = avma - w->start;
	__u32 i;

	if (off > WINDOW_WORDS * 8 - n || !w->start) {
		w->start = 0;
		/* Near the end of the stack there is less than a window. */
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
		const __u64 *words = window_at(env->window, 16, avma);

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

static __always_inline bool walk_in_time(struct walk_env *env)
{
	return bpf_ktime_get_ns() - *env->began_ns < UNWIND_GRACE_NS / 2;
}

#include "abi/walk.h"

/* Rows that were found lately, direct-mapped: most frames are those of the sample before. */
#define ROWS_BITS 10

walk_inline struct walk_row *walk_row_at(struct walk_env *env, const struct walk *w, __u64 pc)
{
	__u64 hash = (pc ^ w->mappings_id << 32) * 0x9fb21c651e98df25ULL;

	return &env->rows[walk_bound(hash >> (64 - ROWS_BITS), (1u << ROWS_BITS) - 1)];
}

/*
 * What the thread says of its work, as it goes to the ring. OpenTelemetry's record is read so that
 * its attributes come to be where they belong, and its head, which is taken first, where ours will
 * be.
 */
/* What a label can stand for. */
enum label_id {
	LABEL_NO_ID,
	LABEL_TRACE,
	LABEL_SPAN_HEX,
	LABEL_SPAN_DECIMAL,
	LABEL_ROOT,
};
#define LABEL_IDS 8 /* a power of two */
struct text_at {
	__u64 at, n;
};

#define GATHERED_HASHED 32 /* bytes at once */
struct gathered {
	__u64 last; /* mark of the set that was the last one, as in `seen` */
	__u16 n;    /* bytes */
	__u16 form; /* enum attributes_form */
	__u16 left_out;
	__u16 ahead; /* bytes of the last record */
	union {
		struct {
			__u64 pad[2];
			struct record_attributes head;
		};
		struct {
			__u64 otel_at; /* what the thread's variable says */
			__u32 pad2;    /* CONTEXT_OTEL_BEHIND */
			struct context_otel_record otel;
		};
	};
	__u8 bytes[ATTRIBUTES_MAX_BYTES + GATHERED_HASHED] __attribute__((aligned(8)));
	/* Of labels: memory of the process that never changes, and texts of one. */
	__u64 fixed, n_fixed;
	__u64 name[(ATTRIBUTE_MAX_NAME + 1) / 8], id[4];
	struct text_at ids[LABEL_IDS];
	volatile __u64 bucket;	/* of a Go map */
} __attribute__((aligned(64))); /* of most samples two lines are touched */
_Static_assert(__builtin_offsetof(struct gathered, otel) + sizeof(struct context_otel_record) ==
		       __builtin_offsetof(struct gathered, bytes),
	       "the record's attributes");
_Static_assert(__builtin_offsetof(struct gathered, otel) -
			       __builtin_offsetof(struct gathered, otel_at) ==
		       CONTEXT_OTEL_BEHIND,
	       "libculprit-context's record");
_Static_assert(__builtin_offsetof(struct gathered, head) + sizeof(struct record_attributes) ==
		       __builtin_offsetof(struct gathered, bytes),
	       "record_attributes");

/* A text in memory that never changes, by address and the id of the process's mappings. */
#define FIXED_TEXTS 64
struct fixed_text {
	__u64 mappings_id, at, n; /* n is 0: none */
	__u64 text[(ATTRIBUTE_MAX_NAME + 1) / 8];
};

/* Where a thread has its vector of blocks of thread-local variables. */
#define VECTORS 64
struct vector_at {
	__u64 began; /* the thread, 0: none */
	__u64 tp, mappings_id;
	__u64 at, n; /* where, and of how many blocks */
	__u32 tid, pad[5];
} __attribute__((aligned(64)));

/* What was deferred in the current 100 ms. */
struct defer_budget {
	__u64 tick;
	__u32 samples;
	__u32 strayed; /* of the samples */
};

/* What a CPU keeps, and what a sample needs while it is made. */
struct scratch {
	__u64 counters[COUNTER_N]; /* enum counter; first, so that user space finds them */
	struct defer_budget budget;
	__u32 runtimes;	      /* bits by enum runtime_id: whose runtime_state() is this sample's */
	__u32 runtime_frames; /* there are some in the stack */
	__u32 jumps;	      /* between programs, in this sample */
	__u32 context;	      /* index of the process's struct context_process, or 0 */
	__u32 stop;	      /* the walk's result so far: enum stop_reason or WALK_GO */
	__u32 busy;	      /* set while in use: a program that interrupts must not touch it */
	struct walk_regs first; /* where the walk began */
	struct walk walk;
	struct window window;
	struct record_deferred out;
	struct runtime_walk runtime[RUNTIME_N];
	struct {
		struct record_stack head;
		__u64 frames[SAMPLE_MAX_FRAMES];
	} user;
	struct {
		struct record_stack head;
		__u64 frames[SAMPLE_MAX_KERNEL_FRAMES + 1];
	} kernel;
	struct gathered gathered;
	struct fixed_text texts[FIXED_TEXTS];
	struct vector_at vectors[VECTORS];
	struct walk_row rows[1 << ROWS_BITS] __attribute__((aligned(64)));
};

/*
 * By CPU, one for each that can be, set at load. Not a per-CPU array: its values have at most
 * 32 KiB. Those of an array that can be mapped begin at a page, so each row is one cache line.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline struct scratch *scratch_get(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&scratch, &cpu);
}

static __always_inline void native_push(struct scratch *s, __u64 frame)
{
	__u32 n = s->walk.n;

	s->user.frames[walk_bound(n, SAMPLE_MAX_FRAMES - 1)] = frame;
	s->walk.hash = walk_mix(s->walk.hash, frame);
	s->walk.n = n + 1;
}

/* Moves on to the other stack. A function of its own, so that it is verified once. */
__noinline int native_switch(void)
{
	struct scratch *s = scratch_get();

	if (!s)
		return STOP_UNSUPPORTED;

	struct walk_env env = {&s->window, s->rows, &s->out.sample.time_ns};

	s->stop = (__u32)walk_switch(&env, &s->walk);
	return s->stop == (__u32)WALK_GO;
}
