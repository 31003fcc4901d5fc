/* SPDX-License-Identifier: Apache-2.0 */
/* struct alloc and what its files share: alloc.c, alloc_count.c. */
#pragma once

#include "agent/alloc/alloc.h"
#include "agent/pipeline/alloc.h"
#include "agent/pipeline/owners.h"
#include "agent/pipeline/passing.h"

#define OWNER_UNKNOWN (~0U) /* its stack is lost, or not known yet */

struct bounded { /* a value, and between which bounds it is; HUGE_VAL: unknown */
	double value, low, high;
};

/*
 * How many independent draws a sum is of. What was seen in one window is one draw at most: a burst
 * of calls is in it, or is not.
 */
struct draws {
	u32 window;		   /* the last one */
	double here, sum, squares; /* values of that window, of those before, and their squares */
};

/* What is counted of an owner in a process and period. Bytes and objects are those of all calls
 * for which samples stand. */
struct tally {
	u32 owner;
	u32 samples; /* that are counted in `space` */
	u32 unfreed_samples;
	bool sampled;	       /* some sample stands for more than itself */
	double space, objects; /* while it was probed all the time */
	double windows_objects;
	u32 windows_samples;
	struct bounded windows; /* bytes */
	struct draws draws;
	struct bounded
		unfreed; /* bytes of windows, and for a process without windows of the period */
	struct draws unfreed_draws;
};

/* A sample of a window that is not over yet. */
struct waiting {
	u32 window, owner, tid;
	u64 bytes, objects, time_ns;
	u64 id;		/* of the object if it is followed, else 0 */
	bool in_flight; /* it may be freed at once, see mark_in_flight() */
};

/* A sampled object that lives. */
struct object {
	u64 image, address, time_ns;
	u64 bytes, objects; /* for which it stands; bytes of all of them */
	u32 owner, window, pid;
};

#define KEPT_REPORTS 8

/* What probes have taken of a thread's time, over the last windows. */
struct slowed {
	u32 tid;
	double traps_ns, walks_ns;
};

struct allocating { /* a process image */
	u64 image;
	u32 pid;
	char comm[SAMPLE_COMM_BYTES];
	bool ended;
	bool windowed; /* not all its life was probed: its live objects are unknown */
	bool always;   /* it is probed all the time now */
	u64 always_ns; /* since then, if it was probed in windows before */
	vec(struct tally) tallies;
	struct map by_owner; /* owner → index of tallies */
	vec(struct waiting) waiting;
	struct alloc_report reports[KEPT_REPORTS]; /* the last ones, for walks that end late */
	u32 n_reports;
	u64 covered_ns, probed_ns; /* in this period: for which windows stand, and their own time */
	double slowed_of_ns;	   /* length of these windows */
	vec(struct slowed) slowed;
	struct draws draws; /* of all that was seen in windows in this period */
	u64 until_ns;	    /* until which windows stand */
	u64 end_ns;	    /* of the process, or 0 */
};

struct alloc {
	u32 source; /* that of alloc_space; the next two are virtual */
	u32 live_source, unfreed_source;
	struct allocs *allocs; /* owned; NULL until the begin */
	struct alloc_options options;
	struct map sites; /* file id → struct alloc_sites *, owned; NULL: it has no allocator */
	struct map parts; /* hash of image and file id → 1: it is probed */
	struct map processes;	/* image → struct allocating *, owned */
	struct passing passing; /* only processes that pass are probed */
	struct map refused;	/* image → pid, of those that do not pass, or not yet */
	u64 looked_ns;		/* when they were looked at again */
	struct map objects;	/* id → struct object *, owned */
	struct owners owners;
	u32 keep;     /* log2 of the number of sampled objects of which one is followed */
	u64 began_ns; /* the period */
	bool stopped;
	struct pipeline_alloc_stats stats;
};

/* ---- alloc.c ---- */

void alloc_forget_object(struct pipeline *p, u64 id);
/* Makes the object unknown to BPF. */
void alloc_drop_object(struct pipeline *p, u64 id);

/* ---- alloc_count.c ---- */

/* Counts a sample of a process that is probed all the time. */
void alloc_add(struct allocating *f, u32 owner, const struct object *o);
/* A window is over: its samples are counted. Takes *r. */
void alloc_report(struct pipeline *p, struct allocating *f, struct alloc_report *r);
/* A sample of a window. */
void alloc_wait(struct pipeline *p, struct allocating *f, const struct waiting *w);
/* What of a process that has been probed all the time was not freed until then. */
void alloc_count_unfreed(struct pipeline *p, struct allocating *f, u64 end_ns);
void alloc_count_process(struct pipeline *p, struct allocating *f, u64 time_ns);
