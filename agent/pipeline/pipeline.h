/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From events to counted stacks: procman, tables and the sampler in one loop.
 *
 *	procman (side-band) ─→ tables (maps that BPF reads)
 *	sampler (ring) ─→ stacks and sets of attributes by id
 *	              ├─→ samples counted by (thread, both stacks, span, attributes)
 *	              └─→ deferred samples, whose walks end here once their pages are loaded
 *
 * Side-band events are always handled before the ring, so that a process is known when its samples
 * arrive. One thread calls all functions, and pipeline_poll() in a loop; agent/symbolize turns the
 * result into a profile.
 */
#pragma once

#include "agent/alloc/alloc.h"
#include "agent/context/context.h"
#include "agent/pipeline/jitfile.h"
#include "agent/procman/procman.h"
#include "agent/runtime/runtime.h"
#include "agent/sampler/sampler.h"
#include "agent/tables/tables.h"
#include "base/diag.h"
#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"

/* Raw frames as in abi/sample.h, leaf first. */
struct pipeline_stack {
	u32 first; /* index into pipeline.frames */
	u16 n;
	u8 stop; /* enum stop_reason */
	bool kernel;
	bool raw;    /* has frames that are meaningful only in their process */
	bool unread; /* has notes in place of frames of a runtime */
};

/*
 * The key by which samples are counted. It is compared and hashed as bytes, so there is no padding.
 */
struct pipeline_key {
	u32 pid, tid;
	char comm[SAMPLE_COMM_BYTES]; /* name of the process */
	char thread_name[SAMPLE_COMM_BYTES];
	u64 image;		       /* of the process, 0 = unknown */
	u64 kernel_stack, user_stack;  /* ids, 0 = none */
	struct sample_context context; /* attributes: id of a set in the batch's `attributes` */
	u64 event_attributes;	       /* a set in the batch's `attributes` */
	u32 source;		       /* index of the batch's `sources` */
	u32 wait;		       /* enum wait */
	u64 waker; /* number of one of the batch's `wakers`, from 1 on; 0: none */
	struct wait_object object;
	u64 holds; /* as in record_sample */
};
_Static_assert(sizeof(struct pipeline_key) == 64 + sizeof(struct sample_context) + 4 * sizeof(u64) +
						      sizeof(struct wait_object),
	       "padding in pipeline_key");

/* Who ended a wait. Compared and hashed as bytes. */
struct pipeline_waker {
	char comm[SAMPLE_COMM_BYTES]; /* name of the thread */
	u32 pid, tid;		      /* 0: an interrupt */
	u64 kernel_stack, user_stack, image;
	u64 next; /* who ended the waker's own wait meanwhile: as pipeline_key.waker */
};
_Static_assert(sizeof(struct pipeline_waker) == SAMPLE_COMM_BYTES + 40, "padding");

/* The samples of one key: how many, and the sum of their values. */
struct pipeline_entry {
	struct pipeline_key key;
	u64 count;    /* samples */
	s64 value;    /* sum of the values, in the unit of the source's sample type */
	s64 bytes;    /* sum of the second values */
	u64 first_ns; /* CLOCK_MONOTONIC */
};

struct pipeline_event { /* kept only with options.keep_times */
	u64 time_ns;
	s64 value, bytes;
	u32 entry;
	u32 more; /* samples that it stands for, besides itself */
};

/* Counters of a batch. */
struct pipeline_counts {
	u64 samples;
	u64 user_samples;	 /* with a user stack */
	u64 truncated;		 /* user stacks not walked to the thread's entry */
	u64 unread;		 /* walked, but with frames of a runtime that could not be read */
	u64 deferred;		 /* walks finished on the host */
	u64 attributes_left_out; /* samples that lack some of their thread's attributes */
	u64 lost;		 /* samples that were dropped */
	u64 stops[STOP_N];
};

enum pipeline_choice {
	PIPELINE_LEAVE,
	PIPELINE_SAMPLE, /* and its children, until they have a choice of their own */
	PIPELINE_SAMPLE_ALONE,
};

struct pipeline_options {
	struct sampler_options sampler;
	/*
	 * Which processes are sampled, instead of sampler.pids: asked for each one when it is new,
	 * has called exec, or has changed otherwise. Called by the pipeline's thread, which reads
	 * no samples meanwhile. NULL: the sampler's options say it.
	 */
	enum pipeline_choice (*choose)(void *arg, const struct procman_process *p);
	void *choose_arg;
	struct parsers *parsers; /* borrowed */
	u64 memory_limit_bytes;	 /* for unwind tables; 0 = 256 MiB */
	struct budget *budget;	 /* of the process; borrowed, or NULL */
	bool tight_memory;	 /* the files that rows were built from are released at once */
	u64 max_section;	 /* larger sections of files are not read; 0: no limit */
	const char *cache_dir;	 /* of unwind rows; NULL: none */
	bool keep_times;
	bool task_ids; /* waits of tasks have the task's number */
	/* With sampler.requests: what a thread of an armed process did. Only armed processes are
	 * known to BPF. */
	void (*interval)(void *arg, const struct record_interval *i);
	/* A process was sampled, for the first time since the last reset or exec, or since more is
	 * known about runtimes: whoever needs facts about it must read them now, while it lives.
	 * False: call this again at its next sample. May be NULL. */
	bool (*process_seen)(void *arg, const struct procman_process *p, struct runtimes *r);
	/* As process_seen(), with jvm_arg, for a process whose runtime has the option `jvm_flag` of
	 * type bool; avma: of its value, 0: it cannot be found. NULL: nobody asks. */
	void (*jvm_seen)(void *arg, const struct procman_process *p, u64 avma);
	const char *jvm_flag; /* static */
	void *jvm_arg;
	/* A process has published attributes. May be NULL. */
	void (*process_said)(void *arg, const struct procman_process *p,
			     const struct context_label *labels, u32 n);
	void *arg;
};

/* Looks at tasks of runtimes that wait, since the start. */
struct tasks_stats {
	u64 processes; /* that are looked at now */
	u64 drawn;     /* tasks */
	u64 waiting;   /* of these, samples */
	u64 unread;    /* of these, changed while they were read, or damaged, or out of time */
	u64 failed;    /* looks at processes that told nothing */
	u64 ns;	       /* time that all this has taken */
	u64 kinds;     /* bits by enum task: those that were looked at */
};
extern const struct stat_field tasks_stat_fields[];

/* The ledger of resident memory, since the start. */
struct resident_stats {
	u64 processes, pages;	      /* that are followed now */
	u64 one_of;		      /* one of so many pages is */
	u64 known, walked, effective; /* of the last looks: see resident_stat_fields */
	u64 counted;		      /* processes in the last period */
	u64 looks, failed, late, unkept;
	u64 ns; /* time that looks have taken */
};
extern const struct stat_field resident_stat_fields[];

/* Memory profiles of runtimes, since the start. */
struct heap_stats {
	u64 processes; /* that are looked at now */
	u64 sites;     /* that they had at the last look */
	u64 counted;   /* processes in the last period */
	u64 looks, failed, torn, unkept, bytes;
	u64 ns; /* time that looks have taken */
};
extern const struct stat_field heap_stat_fields[];
#define PIPELINE_ALLOC_TOLD 8
/* How exactly the allocations of a process in the last period are known. */
struct pipeline_alloc_told {
	u32 pid;
	bool windowed;
	char comm[SAMPLE_COMM_BYTES];
	double coverage;  /* of the time, in windows */
	double low, high; /* bounds of its values, as a multiple of them */
};

/* The ledger of allocations, since the start. */
struct pipeline_alloc_stats {
	struct alloc_stats probes;
	u64 objects; /* sampled objects that live */
	u64 unkept;
	u32 n_told;
	struct pipeline_alloc_told told[PIPELINE_ALLOC_TOLD];
};
extern const struct stat_field pipeline_alloc_stat_fields[];

struct pipeline_stats {
	/* Sums of all sources of this batch; `lost` is since the start. */
	struct pipeline_counts counts;
	u64 processes; /* processes with samples */
	/* Since the start: the longest time that the ring was not read, and the reason (static). */
	u64 stall_ns;
	const char *stall_what;
	/* since the start: walks that ended at a missing page because too many others were
	 * parked */
	u64 given_up;
	struct sampler_stats sampler;
	struct tables_stats tables;
	struct procman_stats procman;
	struct runtimes_stats runtimes;
	struct contexts_stats contexts;
	struct tasks_stats tasks;
	struct resident_stats resident;
	struct heap_stats heap;
	struct pipeline_alloc_stats alloc;
};

/*
 * What was recorded in a period, for agent/symbolize in any thread: nothing in it changes any more.
 */
struct pipeline_batch {
	bool keep_times;
	u64 started_realtime_ns;
	u64 started_ns, ended_ns; /* CLOCK_MONOTONIC */
	struct sampler_source sources[SAMPLER_MAX_SOURCES];
	struct pipeline_counts counts[SAMPLER_MAX_SOURCES]; /* of each source */
	u32 n_sources;
	u32 n_sampled; /* the first ones; the others are what the pipeline makes of them */

	struct strtab attributes;  /* sets, see pipeline_attributes(); 0 is the empty one */
	struct map attributes_ids; /* hash of pid and id → set << 1 | some were omitted */
	/* As BPF sent them, except runtime frames, which were named when they arrived: one word,
	 * WORD_RUNTIME | runtime << 56 | id of an answer; runtime 0 marks the next frame as one of
	 * an interpreter. */
	vec(u64) frames;
	vec(struct pipeline_stack) stacks;
	struct map stack_index; /* id → stacks */
	struct runtime_answers answers;
	vec(struct pipeline_entry) entries;
	struct map entry_index; /* hash of the key → entries, chained by probing the next hash */
	vec(struct pipeline_event) events;
	vec(struct pipeline_waker) wakers;
	struct map waker_index; /* hash → wakers, as entry_index */
	u64 max_bytes;		/* limit on the bytes of all of the above, approximately; 0: none */
	struct map binaries;	/* file id → struct procman_binary *, a reference each */
	/* image → fd of the file, or -1; of processes with raw frames */
	struct map jit_files[JITFILE_N];
	struct map pids; /* pid → what of it was seen: see_process() */
	struct map own;	 /* pids of processes that culprit itself runs → 1 */
};

/* The counters of all sources together. */
struct pipeline_counts pipeline_sum(const struct pipeline_batch *b);
void pipeline_add_counts(struct pipeline_counts *sum, const struct pipeline_counts *c);
/* Takes samples out of a sum, with what their stacks are counted as. */
void pipeline_subtract_counts(struct pipeline_counts *sum, const struct pipeline_counts *c);
/* Returns a stack by id; NULL: its record was lost. */
const struct pipeline_stack *pipeline_stack(const struct pipeline_batch *b, u64 id);
/* Returns the number of attributes of a set; borrowed from the batch. */
u32 pipeline_attributes(const struct pipeline_batch *b, u32 set,
			struct context_label ret[CONTEXT_MAX_ATTRIBUTES]);

/* Of which sum of a memory profile the values of an entry are: objects, and as its bytes bytes. */
enum heap_part { HEAP_LIVE, HEAP_ALLOCATED };

struct pipeline;

/*
 * Creates all parts and loads the BPF programs; nothing is sampled yet. The options are borrowed
 * for the call, their budget until pipeline_destroy(). The diag says what failed.
 */
int pipeline_create(const struct pipeline_options *o, struct diag *reterr_diag,
		    struct pipeline **ret);
void pipeline_destroy(struct pipeline *p);
DEFINE_CLEANUP(pipeline, struct pipeline *, pipeline_destroy)
#define _cleanup_pipeline_ _cleanup_(pipeline)
/* Returns when counting has begun: up to half a second later, see warm_up(). */
int pipeline_start(struct pipeline *p, struct diag *reterr_diag);
/* The i-th source; NULL after the last one. Borrowed. */
const struct sampler_source *pipeline_source(const struct pipeline *p, u32 i);
/* The state of processes that publish spans; borrowed. */
struct contexts *pipeline_contexts(struct pipeline *p);
/*
 * With the source "heap": calls `say` for each process that runs a language runtime, with what the
 * last look found in it.
 */
void pipeline_heap_say(struct pipeline *p,
		       void (*say)(void *arg, u32 pid, const char *comm, const char *text),
		       void *arg);
/* The processes that the pipeline follows; borrowed. */
struct procman *pipeline_procman(struct pipeline *p);
/*
 * With options.sampler.requests: follows the threads of this process, while they carry a span, from
 * now on or with other values. -ESRCH: it is not alive; -E2BIG; -ENOMEM.
 */
int pipeline_arm(struct pipeline *p, u32 pid, const struct armed_process *a);
void pipeline_disarm(struct pipeline *p, u32 pid);
/* As options.process_seen(), for a process that was not sampled. */
bool pipeline_see(struct pipeline *p, const struct procman_process *proc);
/* Reads again what armed processes publish about themselves; call it every second or so. */
void pipeline_see_armed(struct pipeline *p);
/* Whether the image publishes spans. */
bool pipeline_publishes(const struct pipeline *p, u64 image);
/* As sampler_armed_thread() and sampler_set_hz(). */
int pipeline_armed_thread(struct pipeline *p, u32 tid, struct armed_thread *ret);
u64 pipeline_set_hz(struct pipeline *p, u64 hz);
/* Intervals of armed threads that had no room in the ring, since the start. */
u64 pipeline_lost_intervals(const struct pipeline *p);
/* With options.choose: asks again for each process, whose answer may be another one now. */
void pipeline_choose_again(struct pipeline *p);
/* Bytes of the parts of a batch that grow while it is recorded; of the one that is now. */
u64 pipeline_batch_bytes(const struct pipeline_batch *b);
u64 pipeline_bytes(const struct pipeline *p);
/* From now on the calling thread owns the pipeline, not the one that started it. */
void pipeline_adopt(struct pipeline *p);
/* Handles all pending events, then waits for more, at most timeout_ms. */
int pipeline_poll(struct pipeline *p, int timeout_ms);
/*
 * Gives back what unwind rows are read from, of files that nothing was needed of for so long; if
 * memory is short also what runtimes keep of scripts. How many files.
 */
u32 pipeline_trim(struct pipeline *p, u64 idle_ns, bool is_short);
/* Stops taking samples until it is called again with false; processes are still tracked. */
void pipeline_pause(struct pipeline *p, bool pause);
/* Stops recording. All events so far have been handled afterwards. */
void pipeline_stop(struct pipeline *p);
/*
 * Returns what was recorded since the start or the last call; recording continues with a new batch.
 * Parked walks are finished before. NULL: no memory, and nothing has changed.
 */
struct pipeline_batch *pipeline_take(struct pipeline *p);
/* When the batch began that pipeline_take() would return (CLOCK_MONOTONIC). */
u64 pipeline_batch_began_ns(const struct pipeline *p);
/* Frees a batch, in the pipeline's thread. Accepts NULL. */
void pipeline_give_back(struct pipeline *p, struct pipeline_batch *b);
/*
 * With options.sampler.traces. Stacks stay until pipeline_destroy(): pipeline_take() must not be
 * called after pipeline_start().
 */
/* As sampler_trace(). */
int pipeline_trace(const struct pipeline *p, u32 type, struct sampler_trace *ret);
/*
 * The id of a stack as it is now: that of the whole stack if the host has finished the walk. Reads
 * the ring, and waits for code that is being loaded, if the stack is not known yet.
 */
u64 pipeline_trace_id(struct pipeline *p, u64 id);
/* What is known so far, for symbolizer_stacks(); borrowed until the next call of any function. */
const struct pipeline_batch *pipeline_trace_batch(const struct pipeline *p);
const struct runtime_answers *pipeline_trace_answers(const struct pipeline *p);
/* The sum of counters of all sources. */
u64 pipeline_trace_lost(const struct pipeline *p, const enum counter *counters, u32 n);
/* The image of the process when it had its last new stack, or now; 0: unknown. */
u64 pipeline_trace_image(const struct pipeline *p, u32 pid);
/* Counters of this batch; `lost` and those of the parts are since the start. */
void pipeline_stats(struct pipeline *p, struct pipeline_stats *ret);
