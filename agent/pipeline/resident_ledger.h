/* SPDX-License-Identifier: Apache-2.0 */
/* struct resident and what its files share: resident.c, resident_count.c. */
#pragma once

#include "abi/resident.h"
#include "agent/pipeline/owners.h"
#include "agent/pipeline/resident.h"

/*
 * What is known of a page: who owns it, the number of faults that this one stands for, and when it
 * was, in units of 4 µs, which only tells one fault of a page from another.
 *
 *	63      40 39    28 27     0
 *	| owner  | weight | stamp |
 */
#define PAGE_OWNER_SHIFT 40
#define PAGE_WEIGHT_SHIFT 28
#define PAGE_WEIGHT_MAX 0xfffU
#define PAGE_STAMP_MASK ((1U << PAGE_WEIGHT_SHIFT) - 1)

enum page_owner {
	OWNER_NONE,    /* a fault that was not walked */
	OWNER_PENDING, /* the walk goes on */
	OWNER_BEFORE,
	OWNER_MOVED,
	OWNER_FIRST, /* from here on: index of owners.all + OWNER_FIRST */
};

static inline u32 page_owner(u64 value)
{
	return (u32)(value >> PAGE_OWNER_SHIFT);
}

static inline u32 page_weight(u64 value)
{
	return value >> PAGE_WEIGHT_SHIFT & PAGE_WEIGHT_MAX;
}

/* A part of what a process has. */
struct held {
	u32 owner; /* OWNER_FIRST and above, or 0 */
	u8 kind;   /* enum resident_kind */
	u8 note;   /* enum resident_note */
	u64 bytes;
	u64 pages; /* that are followed, from which the bytes are estimated */
};

struct followed { /* an image of a process */
	u64 image;
	u32 pid;
	char comm[SAMPLE_COMM_BYTES];
	u64 forked_ns;	       /* the fork whose pages it has; 0: none */
	u64 parent;	       /* image */
	u64 last_fork_ns;      /* of its own children */
	struct map pages;      /* avma / page size → what is known of it */
	vec(struct held) held; /* of the last look */
	u64 round;	       /* of looks, to which that belongs */
	u64 looked_ns;
};

struct resident_round {		/* what the looks of a round found in all processes */
	u64 known, walked;	/* as in struct resident_stats */
	double bytes, variance; /* split by weights: see add_variance() */
};

struct resident {
	u32 source;
	u32 page_shift;
	bool all;   /* no filter but that by pid */
	bool begun; /* what was before is known */
	bool full;  /* there are too many pages */
	bool ticks; /* the processes may end before the period does */
	u64 began_ns, tick_ns, pruned_ns;
	u64 round; /* the last one in which a process was looked at */
	u64 seed, below;
	size_t n_pages, max_pages;
	struct map processes;	      /* image → struct followed *, owned */
	vec(struct followed *) ended; /* owned: of the last round of looks, without pages */
	struct owners owners;
	struct resident_round now;
	bool stopped; /* what is counted is that of the stop */
	struct resident_stats stats;
};

/* ---- resident.c ---- */

void resident_put(struct resident *r, struct followed *f, u64 page, u64 value);
static inline bool resident_follows(const struct resident *r, u64 page)
{
	return r->below >= RESIDENT_ALL || resident_hash(r->seed, page) < r->below;
}
void resident_free(struct resident *r, struct followed *f);

/* ---- resident_count.c ---- */

/* Pages that are resident now and of which nothing is known were there before. */
int resident_mark_before(struct pipeline *p, struct followed *f);
/* Looks at the process: drops pages that are not resident, and fills f->held. */
int resident_look_at(struct pipeline *p, struct followed *f);

/* Counts what the last look has found in p->batch. */
void resident_count_process(struct pipeline *p, const struct followed *f, u64 time_ns);
