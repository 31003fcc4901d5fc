/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One look at the resident memory of a process: what /proc/PID/smaps says that it has, by kind, and
 * which of the pages that are followed are resident.
 *
 * The sums are those of Rss. Pages that have no memory of their own (the zero page, also the huge
 * one) are no part of it, and are left out. Memory of hugetlbfs is no part of it either.
 */
#pragma once

#include "abi/resident.h"
#include "base/types.h"

struct resident_look {
	u32 pid;
	u64 seed, below; /* as in sampler_control */
	/* Called for each page that is followed and resident; `page` is avma / page size. */
	void (*page)(void *arg, u64 page, enum resident_kind kind);
	void *arg;
	u64 bytes[RESIDENT_KINDS];	  /* of smaps */
	u64 hugetlb_bytes;		  /* mapped from hugetlbfs: size, not what is resident */
	u64 unseen_bytes[RESIDENT_KINDS]; /* likewise, of mappings too large to look at */
};

/* 0, -ESRCH: the process has no memory any more, or another negative errno. */
int resident_look(struct resident_look *l);
