/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns counted raw stacks into a profile with names, lines and inlined functions. Only sampled
 * addresses are looked up, each once per binary; an address without a name stays binary + address.
 */
#pragma once

#include "agent/pipeline/pipeline.h"
#include "base/budget.h"
#include "profile/profile.h"

struct symbolizer;

struct symbolizer_options {
	bool inlines;
	bool runtime_frames; /* show interpreter loops, too */
	bool no_times;	     /* samples have no times, also where the batch has them */
	bool waker_labels;   /* who ended a wait is told by labels, not by notes in the stack */
	bool one_profile;    /* profiles of allocations have the types of all three, and add up */
	bool leave_self;     /* samples of culprit itself are left out: profile_quality.self */
	bool leave_files;    /* code of files with a build-id gets no names: the server has them */
	const char *cache_dir;	     /* or NULL; both copied */
	const char *debuginfod_urls; /* or NULL */
	/* Sections larger than this are not read. Caps cached debug data: this much in total, a
	 * quarter of it between profiles. 0: no bound on sections, and a small cache. */
	u64 max_section;
	struct budget *budget; /* borrowed, or NULL; a file that does not fit in it is not read */
	/* Returns the resource of an entry. NULL: entries have none. */
	int (*resource)(void *arg, const struct pipeline_entry *e, struct profile *p, u32 *ret);
	void *arg;
};

struct symbolizer_stats {
	u64 frames;   /* looked up, over all samples */
	u64 unnamed;  /* of these, frames without a name */
	u64 left_out; /* times that the names of a file did not fit in memory */
	/* Left out since the start, with options.leave_self. */
	struct pipeline_counts self;
	u64 self_processes;
	/* Memory after the last profile: names, what they are read from, and the kernel's. */
	u64 names_bytes, sources_bytes, kernel_bytes;
	bool kernel_hidden; /* kallsyms shows no addresses: see kernel.kptr_restrict */
};

/* One symbolizer makes many profiles and remembers all lookups. */
int symbolizer_create(const struct symbolizer_options *o, struct symbolizer **ret);
void symbolizer_destroy(struct symbolizer *s);
DEFINE_CLEANUP(symbolizer, struct symbolizer *, symbolizer_destroy)
#define _cleanup_symbolizer_ _cleanup_(symbolizer)
/*
 * A profile for each source of the batch; NULL for a source other than the first that has no
 * samples. Values are the number of samples, and what they stand for. Samples before from_ns
 * (CLOCK_MONOTONIC) are left out, for which the batch needs their times; 0: none is. Reads the
 * batch only, and opens files of its own: may run beside the pipeline's thread. -ENOMEM: there are
 * none.
 */
int symbolizer_profiles(struct symbolizer *s, const struct pipeline_batch *b, u64 from_ns,
			struct profile *ret[SAMPLER_MAX_SOURCES]);
/* An event of a batch, as it is shown. */
struct symbolizer_event {
	u32 entry;   /* of the batch */
	u64 time_ns; /* since the epoch */
	s64 value;
};
#define SYMBOLIZER_MAX_LABELS 4
/*
 * Adds a sample for each of these events to a profile with one value type. All have these labels
 * (at most SYMBOLIZER_MAX_LABELS) besides their own. As symbolizer_profiles() else. On failure the
 * profile may have some of the samples.
 */
int symbolizer_add(struct symbolizer *s, const struct pipeline_batch *b,
		   const struct symbolizer_event *events, size_t n,
		   const struct context_label *labels, u32 n_labels, struct profile *into);
/* A stack of a batch, and the image of its process, by which generated code has names. */
struct symbolizer_stack {
	u64 id, image;
};
/*
 * Adds stacks by themselves to a profile; ret: the id of each there. `answers` are those of the
 * batch, which may still be recorded: the pipeline's thread calls it then. -ENOMEM: `ret` is not
 * set.
 */
int symbolizer_stacks(struct symbolizer *s, const struct pipeline_batch *b,
		      const struct runtime_answers *answers, const struct symbolizer_stack *stacks,
		      size_t n, struct profile *into, u32 *ret);
/* From now on addresses that have no name yet get none. Any thread. */
void symbolizer_hurry(struct symbolizer *s);
/*
 * Frees memory: first the sources of names, then the names of binaries that the last batch did not
 * use, then all. False: nothing is left.
 */
bool symbolizer_shed(struct symbolizer *s);
void symbolizer_stats(const struct symbolizer *s, struct symbolizer_stats *ret);
