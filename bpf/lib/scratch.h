/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of a sample while a program makes it, and what each CPU keeps from sample to sample.
 *
 * Each source is a BPF object of its own (bpf/prog), and has its own scratch space on each CPU: a
 * clock tick that interrupts a scheduler event works in another scratch space, and neither sample
 * is lost. For programs that the kernel can preempt, or that can interrupt themselves,
 * SAMPLE_LEVELS is the number of samples that can be under way on a CPU at once.
 *
 * The walkers' own maps of buffers (python_buffers, hotspot_scratch) have one entry for each
 * source, CPU and level; scratch_level() is the key.
 *
 * All sources share the row cache, because their stacks share frames. But samples that are under
 * way at the same time do not share rows: a sample that interrupts another sample on its CPU has a
 * single row of its own, and so has each sample of a program that can be preempted.
 */
#pragma once

#include "bpf/lib/maps.h"

struct walk_env;
static __always_inline const void *walk_line(struct walk_env *env, __u32 line);
static __always_inline long walk_read(struct walk_env *env, void *to, __u32 n, __u64 avma);
static __always_inline __u64 walk_strip(struct walk_env *env, __u64 pc);
static __always_inline bool walk_in_time(struct walk_env *env);

#include "walk/walk.h"

/*
 * The number of samples of one source that can be under way on a CPU; a source may define another
 * number. SAMPLE_ALONE instead: one sample at a time on all CPUs, which may change its CPU.
 */
#ifndef SAMPLE_LEVELS
#define SAMPLE_LEVELS 1
#endif
_Static_assert(SAMPLE_LEVELS <= SAMPLE_MAX_LEVELS, "SAMPLE_MAX_LEVELS");

/*
 * The part of the stack that the walk read last. A walk reads upwards, a word or two per frame, and
 * a call of the helper costs as much as two frames. 128 words hold several frames of most programs:
 * with 64 words a sample of 32 frames of 144 bytes costs a quarter more, with 256 words the same.
 */
#define WINDOW_WORDS 128
struct window {
	__u64 start; /* avma of words[0]; 0: empty */
	__u64 words[WINDOW_WORDS];
};

/* The ids that a label of a thread can contain. */
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
 * Attributes of the thread, in the layout of the ring's record. The readers place OpenTelemetry's
 * record so that its attributes are in `bytes`. Its head, which BPF uses up first, shares memory
 * with the head of the ring's record.
 */
#define GATHERED_HASHED 32 /* bytes that one round of the hash takes */
struct gathered {
	__u64 last; /* mark of the set that BPF sent last, as in `seen` */
	__u16 n;    /* bytes */
	__u16 form; /* enum attributes_form */
	__u16 left_out;
	__u16 ahead; /* bytes of the last OpenTelemetry record */
	union {
		struct {
			__u64 pad[2];
			struct record_attributes head;
		};
		struct {
			__u64 otel_at; /* value of the thread's pointer variable */
			__u32 pad2;    /* CONTEXT_OTEL_BEHIND */
			struct context_otel_record otel;
		};
	};
	__u8 bytes[ATTRIBUTES_MAX_BYTES + GATHERED_HASHED] __attribute__((aligned(8)));
	/* For labels: memory of the process that never changes, and texts of the current label. */
	__u64 fixed, n_fixed;
	__u64 name[(ATTRIBUTE_MAX_NAME + 1) / 8], id[4];
	struct text_at ids[LABEL_IDS];
	volatile __u64 bucket;	/* number of a Go map's bucket */
} __attribute__((aligned(64))); /* most samples touch two cache lines */
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

/* A text in memory that never changes. The key is the address, the length and mappings_id. */
#define FIXED_TEXTS 64
struct fixed_text {
	__u64 mappings_id, at, n; /* n is 0: the entry is empty */
	__u64 text[(ATTRIBUTE_MAX_NAME + 1) / 8];
};

/* The address of a thread's vector of blocks of thread-local variables (the DTV). */
#define VECTORS 64
struct vector_at {
	__u64 began; /* start time of the thread; 0: the entry is empty */
	__u64 tp, mappings_id;
	__u64 at, n; /* address of the vector, and the number of its blocks */
	__u32 tid, pad[5];
} __attribute__((aligned(64)));

/* The number of walks that BPF deferred in the current 100 ms. */
struct defer_budget {
	__u64 tick;
	__u32 samples;
	__u32 strayed; /* samples with DEFER_WHOLE */
};

/* A walk that was made, for later ones: bpf/unwind/known_walk.h. */
#define KNOWN_WALKS_PER_CPU 16
#define KNOWN_STEPS 64 /* a power of two, at most 256 */

struct known_step {
	__u64 pc, fp; /* the registers before the step */
	__u64 frame;  /* what the step has found */
	__u32 sp;     /* the third register, from known_walk.base on */
	/* Where pc and fp were read, from sp on; fp_at 0: fp was not changed. */
	__s16 ra_at, fp_at;
};

struct known_walk {
	__u64 mappings_id;
	__u64 base; /* of the stack pointers: that of the first step */
	__u32 n;    /* steps; the last one has no frame yet */
	__u32 is_stale;
	__u8 at[KNOWN_STEPS]; /* the index of the step with an sp, see known_slot() */
	struct known_step steps[KNOWN_STEPS];
};

/* What a walk does with the known one. */
enum known {
	KNOWN_NOT,
	KNOWN_FOLLOW,
	KNOWN_LEARN,
};

/* The state of one sample. Counters, budgets and caches live from sample to sample. */
struct scratch {
	/* User space reads these: the counters by enum counter, and the largest limit that the
	 * budget has set since `limit_epoch` began, see note_limit(). */
	__u64 counters[COUNTER_N];
	__u64 limit, limit_epoch;
	struct defer_budget budget;
	__u32 runtimes;	      /* bits by enum runtime_id: runtimes whose state is initialised */
	__u32 runtime_frames; /* the stack has runtime frames */
	__u32 jumps;	      /* tail calls of this sample */
	__u32 context;	      /* index of the process's struct context_process, or 0 */
	__u32 stop;	      /* the walk's result so far: enum stop_reason or WALK_GO */
	__u32 own_row;	      /* all ones: the sample uses only rows[row] of the row cache; or 0 */
	__u32 row;
	__s32 syscall_nr;	/* the thread's system call, or negative */
	__u64 users;		/* samples that use this state: 1, or more while two samples race */
	__u64 owner;		/* the sampled task, if SAMPLE_LEVELS > 1 */
	__u64 image;		/* process_entry.image; 0: the process is unknown */
	struct walk_regs first; /* the registers at the start of the walk */
	struct walk walk;
	struct window window;
	__u32 known;	/* enum known */
	__u32 followed; /* steps of the known walk that this one has taken */
	struct {
		__u64 pc, sp, fp;
		__u64 is_plain;
	} before; /* KNOWN_LEARN: the registers before the current step */
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
 * SAMPLE_LEVELS entries for each possible CPU; user space sets the size at load. Not a per-CPU
 * array, because the kernel limits its values to 32 KiB. BPF_F_MMAPABLE makes the values begin at a
 * page.
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
#ifdef SAMPLE_ALONE
	__u32 cpu = 0; /* the only one */
#else
	__u32 cpu = bpf_get_smp_processor_id();
#endif

	return bpf_map_lookup_elem(&scratch, &cpu);
}

/* Takes the scratch space for a sample; NULL: an unfinished sample of this source uses it. */
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

/*
 * The state of the current task's sample; before scratch_take() the CPU's first state, for
 * counters.
 */
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
 * Takes a free state. Kernels before 5.12 have no atomic operation that returns the old value, so
 * each sample increments `users` and then reads it: a sample that is not alone goes on to the next
 * state. Two samples that race may both leave a free state, but never both keep one.
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

/* The current sample's level among the source's samples on this CPU, from 0 on. */
static __always_inline __u32 scratch_level(void)
{
	struct scratch *s = SAMPLE_LEVELS > 1 ? scratch_get() : NULL;

	return s ? s->row % SAMPLE_MAX_LEVELS : 0;
}

/*
 * Notes how far the budget limits what becomes a sample: by the time below which waits share
 * samples, or by the number of events of which one is a sample.
 */
static __always_inline void note_limit(struct scratch *s, __u64 limit)
{
	__u64 epoch = control_epoch();

	if (s->limit_epoch == epoch && s->limit >= limit)
		return;
	s->limit = limit;
	s->limit_epoch = epoch;
}

static __always_inline void count(struct scratch *s, enum counter counter)
{
	s->counters[counter]++;
}

/* Rows of recent lookups, direct-mapped: most frames are those of the sample before. */
#define ROWS_BITS 10
#define CACHE_ROWS (1u << ROWS_BITS)
#define OWN_ROWS (SAMPLER_MAX_SOURCES * SAMPLE_MAX_LEVELS)

struct row_cache {
	/* OWN_ROWS rows, one for each sample that can be under way, then rows by hash. */
	struct walk_row rows[CACHE_ROWS] __attribute__((aligned(64)));
	__u64 taken; /* a sample that is under way uses the rows by hash */
};

/* One cache for each CPU. The values begin at a page, so each row is one cache line. */
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

/* Decides whether the sample may use the rows by hash, until row_cache_release(). */
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
