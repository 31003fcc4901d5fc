/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From counted raw stacks to a profile with names, lines and inlined functions. Only what was
 * sampled is looked up, each address of each binary once; what has no name stays binary + address.
 */
#pragma once

#include "agent/pipeline/pipeline.h"
#include "base/budget.h"
#include "profile/profile.h"

struct symbolizer;

struct symbolizer_options {
	bool inlines;
	bool runtime_frames; /* show the loops of interpreters, too */
	bool no_times;	     /* samples have no times, also where the batch has them */
	bool leave_files;    /* code of files with a build-id gets no names: the server has them */
	const char *cache_dir;	     /* or NULL; both copied */
	const char *debuginfod_urls; /* or NULL */
	/*
	 * Sections that are larger are not read, nor is more than this kept of all, or a quarter of
	 * it from one profile to the next; 0: no bound, and little is kept.
	 */
	u64 max_section;
	struct budget *budget; /* borrowed, or NULL: a file that has no room in it is left out */
	/* The resource of whom an entry is; NULL: none has one. */
	int (*resource)(void *arg, const struct pipeline_entry *e, struct profile *p, u32 *ret);
	void *arg;
};

struct symbolizer_stats {
	u64 frames;	    /* looked up, over all samples */
	u64 unnamed;	    /* of these, without a name */
	u64 left_out;	    /* times that a file's names had no room in memory */
	bool kernel_hidden; /* kallsyms shows no addresses: see kernel.kptr_restrict */
};

/* Reused for profile after profile: what was looked up stays known. */
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
/* From now on no more names are looked for: addresses stay what they are. Any thread. */
void symbolizer_hurry(struct symbolizer *s);
/*
 * Gives back memory: first what names are read from, then those of binaries that the last batch did
 * not have, then all. False: nothing is left.
 */
bool symbolizer_shed(struct symbolizer *s);
void symbolizer_stats(const struct symbolizer *s, struct symbolizer_stats *ret);
