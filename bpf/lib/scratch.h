/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of a sample while it is made, and what each CPU keeps from sample to sample.
 *
 * Each source is a BPF object of its own (bpf/prog), and has its own scratch space on each CPU: a
 * tick that interrupts a scheduler event works in another one, and neither loses anything. Where a
 * program can be preempted, or interrupts itself, SAMPLE_LEVELS says how many of its samples can be
 * under way on a CPU at once.
 *
 * A walker's buffers in a map of their own (python_buffers, hotspot_scratch) exist once for each
 * source, CPU and level: scratch_level() is the key.
 *
 * The row cache is shared by all sources, because their stacks share frames, but not by samples
 * that are under way at the same time: a sample that interrupts another one on its CPU has a single
 * row of its own, and so has each sample of a program that can be preempted.
 */
#pragma once

#include "bpf/lib/maps.h"

struct walk_env;
static __always_inline const void *walk_line(struct walk_env *env, __u32 line);
static __always_inline long walk_read(struct walk_env *env, void *to, __u32 n, __u64 avma);
static __always_inline __u64 walk_strip(struct walk_env *env, __u64 pc);
static __always_inline bool walk_in_time(struct walk_env *env);

#include "walk/walk.h"

/* How many samples of one source can be under way on a CPU; a source may say another number. */
#ifndef SAMPLE_LEVELS
#define SAMPLE_LEVELS 1
#endif
_Static_assert(SAMPLE_LEVELS <= SAMPLE_MAX_LEVELS, "SAMPLE_MAX_LEVELS");

/*
 * The part of the stack that was read last. A walk reads upwards, a word or two per frame, and a
 * call of the helper costs as much as two frames. 128 words hold several frames of most programs:
 * with 64 words a sample of 32 frames of 144 bytes costs a quarter more, with 256 the same.
 */
#define WINDOW_WORDS 128
struct window {
	__u64 start; /* avma of words[0]; 0 = empty */
	__u64 words[WINDOW_WORDS];
};

/* What a label of a thread can stand for. */
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

/*
 * Attributes of the thread, in the layout of the ring's record. OpenTelemetry's record is read so
 * that its attributes land in `bytes`; its head, which is used first, lies where the head of the
 * ring's record will be.
 */
#define GATHERED_HASHED 32 /* bytes that are hashed at once */
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

/* The address of a thread's vector of blocks of thread-local variables. */
#define VECTORS 64
struct vector_at {
	__u64 began; /* the thread, 0: none */
	__u64 tp, mappings_id;
	__u64 at, n; /* where, and of how many blocks */
	__u32 tid, pad[5];
} __attribute__((aligned(64)));

/* What was deferred within the current 100 ms. */
struct defer_budget {
	__u64 tick;
	__u32 samples;
	__u32 strayed; /* of the samples */
};

/* The state of one sample; counters and budgets are kept from sample to sample. */
struct scratch {
	__u64 counters[COUNTER_N]; /* enum counter; first, so that user space finds them */
	struct defer_budget budget;
	__u32 runtimes;	      /* bits by enum runtime_id: whose runtime_state() is this sample's */
	__u32 runtime_frames; /* there are some in the stack */
	__u32 jumps;	      /* between programs, in this sample */
	__u32 context;	      /* index of the process's struct context_process, or 0 */
	__u32 stop;	      /* the walk's result so far: enum stop_reason or WALK_GO */
	__u32 own_row;	      /* all ones: the sample has rows[row] of the row cache alone; or 0 */
	__u32 row;
	__s32 syscall_nr;	/* that the thread is in, or negative */
	__u64 users;		/* samples that use this state: 1, or more while two race for it */
	__u64 owner;		/* task whose sample it is, where a source has several levels */
	__u64 image;		/* as in struct process_entry; 0: the process is not known */
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
};

/*
 * SAMPLE_LEVELS for each CPU that can be, set at load. Not a per-CPU array: its values have at
 * most 32 KiB. Those of an array that can be mapped begin at a page.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

#if SAMPLE_LEVELS == 1

static __always_inline struct scratch *scratch_get(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&scratch, &cpu);
}

/* Takes the scratch space for a sample; NULL: an unfinished sample of this source has it. */
static __always_inline struct scratch *scratch_take(struct scratch *s)
{
	if (s->users)
		return NULL;
	s->users = 1;
	s->row = config.source * SAMPLE_MAX_LEVELS;
	return s;
}

static __always_inline void scratch_release(struct scratch *s)
{
	s->users = 0;
}

#else

/* The state of the current task's sample; before scratch_take() the first one, for counters. */
static __always_inline struct scratch *scratch_get(void)
{
	__u32 first = bpf_get_smp_processor_id() * SAMPLE_LEVELS;
	__u64 task = bpf_get_current_task();

	for (__u64 i = 0; i < SAMPLE_LEVELS; i++) {
		__u32 index = first + i;
		struct scratch *s = bpf_map_lookup_elem(&scratch, &index);

		if (s && s->owner == task)
			return s;
	}
	return bpf_map_lookup_elem(&scratch, &first);
}

/*
 * A free state. Kernels before 5.12 have no atomic operation that tells the old value, so each
 * adds itself and looks: whoever is not alone goes on to the next. Two that race may both leave a
 * free state, never both keep one.
 */
static __always_inline struct scratch *scratch_take(struct scratch *none)
{
	__u32 first = bpf_get_smp_processor_id() * SAMPLE_LEVELS;

	for (__u64 i = 0; i < SAMPLE_LEVELS; i++) {
		__u32 index = first + i;
		struct scratch *s = bpf_map_lookup_elem(&scratch, &index);

		if (!s)
			return NULL;
		__sync_fetch_and_add(&s->users, 1);
		if (*(volatile __u64 *)&s->users == 1) {
			s->owner = bpf_get_current_task();
			s->row = config.source * SAMPLE_MAX_LEVELS + i;
			return s;
		}
		__sync_fetch_and_add(&s->users, -1);
	}
	return NULL;
}

static __always_inline void scratch_release(struct scratch *s)
{
	s->owner = 0;
	__sync_fetch_and_add(&s->users, -1);
}

#endif

/* Which of the source's samples on this CPU the current one is, from 0 on. */
static __always_inline __u32 scratch_level(void)
{
	struct scratch *s = SAMPLE_LEVELS > 1 ? scratch_get() : NULL;

	return s ? s->row % SAMPLE_MAX_LEVELS : 0;
}

static __always_inline void count(struct scratch *s, enum counter counter)
{
	s->counters[counter]++;
}

/* Rows that were found lately, direct-mapped: most frames are those of the sample before. */
#define ROWS_BITS 10
#define CACHE_ROWS (1u << ROWS_BITS)
#define OWN_ROWS (SAMPLER_MAX_SOURCES * SAMPLE_MAX_LEVELS)

struct row_cache {
	/* A row for each sample that can be under way, then those by hash. */
	struct walk_row rows[CACHE_ROWS] __attribute__((aligned(64)));
	__u64 taken; /* a sample that is under way uses those by hash */
};

/* By CPU. Values begin at a page, so each row is one cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct row_cache);
} row_caches SEC(".maps");

static __always_inline struct row_cache *row_cache_get(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&row_caches, &cpu);
}

/* Decides whether the sample uses the rows by hash, until row_cache_release(). */
static __always_inline void row_cache_take(struct scratch *s)
{
	struct row_cache *c = row_cache_get();

	s->own_row = SAMPLE_LEVELS > 1 || !c || c->taken ? ~0u : 0;
	if (c && !s->own_row)
		c->taken = 1;
}

static __always_inline void row_cache_release(struct scratch *s)
{
	struct row_cache *c = row_cache_get();

	if (c && !s->own_row)
		c->taken = 0;
}
