/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From events to counted stacks: procman, tables and the sampler in one loop.
 *
 *	procman (side-band) ─→ tables (maps that BPF reads)
 *	sampler (ring) ─→ stacks and sets of attributes by id
 *	              ├─→ samples counted by (thread, both stacks, span, attributes)
 *	              └─→ deferred samples, walked to their end here, once their pages are there
 *
 * Side-band events are always handled before the ring, so that a process is known when its samples
 * come. Belongs to one thread, which calls pipeline_poll() in a loop; agent/symbolize turns the
 * result into a profile.
 */
#pragma once

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
	bool raw;    /* has frames that mean something in their process only */
	bool unread; /* has notes that frames of a runtime could not be read or named */
};

/* What samples are counted by. Compared and hashed as bytes, so there is no padding. */
struct pipeline_key {
	u32 pid, tid;
	char comm[SAMPLE_COMM_BYTES]; /* the process's */
	char thread_name[SAMPLE_COMM_BYTES];
	u64 image;		       /* of the process, 0 = not known */
	u64 kernel_stack, user_stack;  /* ids, 0 = none */
	struct sample_context context; /* attributes: id of a set in the batch's `attributes` */
	u64 event_attributes;	       /* a set in the batch's `attributes` */
	u64 source;		       /* index of the batch's `sources` */
};
_Static_assert(sizeof(struct pipeline_key) == 64 + sizeof(struct sample_context) + 2 * sizeof(u64),
	       "padding in pipeline_key");

/* Who did something where, how often, and what it came to. */
struct pipeline_entry {
	struct pipeline_key key;
	u64 count;    /* samples */
	s64 value;    /* their sum, in the unit of the source's sample type */
	u64 first_ns; /* CLOCK_MONOTONIC */
};

struct pipeline_event { /* kept only with options.keep_times */
	u64 time_ns;
	s64 value;
	u32 entry;
};

/* What was counted on the way. */
struct pipeline_counts {
	u64 samples;
	u64 user_samples;	 /* with a user stack */
	u64 truncated;		 /* of these, not walked to the thread's entry */
	u64 unread;		 /* walked, but frames of a runtime could not be read */
	u64 deferred;		 /* finished on the host */
	u64 attributes_left_out; /* samples that lack some of what their thread said of its work */
	u64 lost;		 /* samples that were dropped */
	u64 stops[STOP_N];
};

struct pipeline_options {
	struct sampler_options sampler;
	u64 memory_limit_bytes; /* for unwind tables; 0 = 256 MiB */
	struct budget *budget;	/* of the process; borrowed, or NULL */
	bool tight_memory;	/* what rows are read from goes at once */
	u64 max_section;	/* files' sections that are larger are not read; 0: any are */
	bool keep_times;
	/*
	 * A process has samples, the first since the last reset, exec, or since more is known of
	 * runtimes: whoever wants to know something of it asks now, while it lives. False: tell of
	 * it again with its next sample. May be NULL.
	 */
	bool (*process_seen)(void *arg, const struct procman_process *p, struct runtimes *r);
	/* It has said what it is. May be NULL. */
	void (*process_said)(void *arg, const struct procman_process *p,
			     const struct context_label *labels, u32 n);
	void *arg;
};

struct pipeline_stats {
	/* Of this batch, of all sources together; `lost` is since the start. */
	struct pipeline_counts counts;
	u64 processes; /* that samples came from */
	/* Since the start: the longest that the ring was not read, and for what (static). */
	u64 stall_ns;
	const char *stall_what;
	u64 given_up; /* since the start: walks that ended at a page, too many others waiting */
	struct sampler_stats sampler;
	struct tables_stats tables;
	struct procman_stats procman;
	struct runtimes_stats runtimes;
	struct contexts_stats contexts;
};

/*
 * What was recorded from one moment to another, to be named by agent/symbolize: in any thread, as
 * nothing in it changes any more.
 */
struct pipeline_batch {
	bool keep_times;
	u64 started_realtime_ns;
	u64 started_ns, ended_ns; /* CLOCK_MONOTONIC */
	struct sampler_source sources[SAMPLER_MAX_SOURCES];
	struct pipeline_counts counts[SAMPLER_MAX_SOURCES]; /* of each source */
	u32 n_sources;

	struct strtab attributes;  /* sets, see pipeline_attributes(); 0 is the empty one */
	struct map attributes_ids; /* of pid and id → set << 1 | some were left out */
	/*
	 * As BPF sent them, but for runtime frames, which were named when they came: one word,
	 * WORD_RUNTIME | runtime << 56 | id of an answer; runtime 0 marks the next frame as an
	 * interpreter's own.
	 */
	vec(u64) frames;
	vec(struct pipeline_stack) stacks;
	struct map stack_index; /* id → stacks */
	struct runtime_answers answers;
	vec(struct pipeline_entry) entries;
	struct map entry_index; /* hash of the key → entries, chained by probing the next hash */
	vec(struct pipeline_event) events;
	u64 max_bytes;	     /* of all above, about; 0: no limit */
	struct map binaries; /* file id → struct procman_binary *, a reference each */
	/* image → fd of the file, or -1; of processes with raw frames */
	struct map jit_files[JITFILE_N];
	struct map pids; /* pid → what of it was seen: see_process() */
};

/* What was counted of all sources together. */
struct pipeline_counts pipeline_sum(const struct pipeline_batch *b);
void pipeline_add_counts(struct pipeline_counts *sum, const struct pipeline_counts *c);
/* A stack by id; NULL when its record was lost. */
const struct pipeline_stack *pipeline_stack(const struct pipeline_batch *b, u64 id);
/* How many a set of attributes has; borrowed from the batch. */
u32 pipeline_attributes(const struct pipeline_batch *b, u32 set,
			struct context_label ret[CONTEXT_MAX_ATTRIBUTES]);

struct pipeline;

int pipeline_create(const struct pipeline_options *o, struct diag *reterr_diag,
		    struct pipeline **ret);
void pipeline_destroy(struct pipeline *p);
DEFINE_CLEANUP(pipeline, struct pipeline *, pipeline_destroy)
#define _cleanup_pipeline_ _cleanup_(pipeline)
/* Returns when counting has begun: up to half a second later, see warm_up(). */
int pipeline_start(struct pipeline *p, struct diag *reterr_diag);
/* The i-th source of its samples; NULL behind the last. Borrowed. */
const struct sampler_source *pipeline_source(const struct pipeline *p, u32 i);
/* What it knows of processes that publish spans; borrowed. */
struct contexts *pipeline_contexts(struct pipeline *p);
/* Whoever calls this reads it from now on, not who started it. */
void pipeline_adopt(struct pipeline *p);
/* Handles what there is and waits for more, at most timeout_ms. */
int pipeline_poll(struct pipeline *p, int timeout_ms);
/*
 * Gives back what unwind rows are read from, of files that nothing was needed of for so long; if
 * memory is short also what runtimes keep of scripts. How many files.
 */
u32 pipeline_trim(struct pipeline *p, u64 idle_ns, bool is_short);
/* No samples until it goes on; processes are followed meanwhile. */
void pipeline_pause(struct pipeline *p, bool pause);
/* No more events; what was recorded is all there. */
void pipeline_stop(struct pipeline *p);
/*
 * What was recorded since the start, or since this was called last; recording goes on, with a new
 * batch. Walks that wait are finished before. NULL: no memory, and all stays as it is.
 */
struct pipeline_batch *pipeline_take(struct pipeline *p);
/* When the batch began that pipeline_take() would return (CLOCK_MONOTONIC). */
u64 pipeline_batch_began_ns(const struct pipeline *p);
/* In the pipeline's thread. NULL is allowed. */
void pipeline_give_back(struct pipeline *p, struct pipeline_batch *b);
/* What was counted in this batch; `lost` and all that is the parts' own since the start. */
void pipeline_stats(struct pipeline *p, struct pipeline_stats *ret);
