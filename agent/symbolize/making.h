/* SPDX-License-Identifier: Apache-2.0 */
/* A profile under construction: for symbolize.c and labels.c. */
#pragma once

#include "agent/symbolize/internal.h"

#define ANY_SOURCE (~0u)

/* A profile under construction. */
struct making {
	struct symbolizer *s;
	const struct pipeline_batch *batch;
	const struct runtime_answers *answers; /* of the batch's frames of runtimes */
	u32 source;  /* index of the source of its samples, or ANY_SOURCE */
	u64 from_ns; /* events before it are left out */
	/* The batch's, or `own`, where some of its events are left out. */
	const struct pipeline_entry *entries;
	size_t n_entries;
	struct pipeline_entry *own;    /* owned */
	struct pipeline_counts counts; /* of the source's samples that are in the profile */
	struct profile *profile;
	struct map frames;    /* raw user frame → index into chains */
	struct map kernel;    /* kernel address → frame id */
	struct map modules;   /* string id of a module → mapping id */
	struct map perf_maps; /* image → struct perf_map * */
	struct map jitdumps;  /* image → struct jitdump * */
	u64 time_ns;	      /* of the first sample of the current entry */
	vec(u32) chains;      /* {n, frame ids innermost first} … */
	vec(u32) stack;	      /* the current stack */
	struct symbol_chain chain;
	u64 unnamed;	/* frames in `stack` without a name */
	bool is_traced; /* the current stack begins with frames of its own recording */
	bool of_script; /* it is that of an event of a script, and may begin anywhere */
	u32 wait;	/* enum wait of the current entry */
	/* Labels that all samples have besides their own. */
	const struct context_label *labels;
	u32 n_labels;
};

/* Who ended a wait if it was no thread. */
#define WAKER_TIMER "a timer"
#define WAKER_INTERRUPT "an interrupt"

/* The symbolizer begins a profile of what is in the batch. -ENOMEM. */
int making_begin(struct making *m);
/*
 * Reads the names of all addresses of files in these stacks; `used` has a flag for each stack of
 * the batch.
 */
int making_look_up(struct making *m, const bool *used);
/* Appends a stack of the batch, of a process with this image, to m->stack. */
int making_append_stack(struct making *m, u64 id, u64 image);
void making_end(struct making *m);
/* Whether the entry is of culprit itself. */
static inline bool making_is_self(const struct making *m, const struct pipeline_entry *e)
{
	return map_get(&m->batch->own, e->key.pid);
}

/* Adds the thread of an entry, with its resource and the labels of its work: labels.c. */
int making_thread(struct making *m, const struct pipeline_entry *e, u32 *ret);

/* ---- leave_out.c ---- */

/* What entries come to with the events since from_ns alone. Nobody knows when others were lost. */
int making_leave_out_events(struct making *m);
/* Leaves out what culprit itself did, and counts it. */
int making_leave_out_self(struct making *m);

/* ---- values.c ---- */

#define MAKING_VALUES 6 /* the most */

/* Adds a text to the profile's strings. */
int making_text(struct profile *p, const char *text, u32 *ret);
/*
 * Adds the sample types: the number of samples and the one or two values that they stand for; those
 * of a memory profile as Go's own has them.
 */
int making_types(struct making *m);
/* Sets the values of samples of an entry, in the order of making_types(). */
void making_values(const struct making *m, const struct pipeline_key *key, s64 count, s64 value,
		   s64 bytes, s64 ret[MAKING_VALUES]);
