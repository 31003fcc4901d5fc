/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates the arena's lines: runs of 64-byte lines within chunks of 4 MiB. First fit in a sorted
 * list of free runs per chunk; freed runs become usable after UNWIND_GRACE_NS.
 */
#pragma once

#include "abi/unwind.h"
#include "base/types.h"
#include "base/vec.h"

struct lines_run {
	u32 first; /* index in the chunk */
	u32 n;
};

struct lines_part {
	int fd;			    /* owned; -1: not open */
	u8 *lines;		    /* mapped */
	vec(struct lines_run) free; /* sorted, no two adjacent */
	u32 n_free;
};

struct lines_resting {
	u32 line;
	u32 n;
	u64 since_ns;
};

struct lines {
	int outer_fd;		  /* borrowed */
	struct lines_part *parts; /* owned; UNWIND_MAX_CHUNKS */
	u32 n_parts;		  /* number of open chunks */
	u32 max_parts;
	u32 opening; /* chunk that a struct lines_spare is opening; UNWIND_MAX_CHUNKS: none */
	vec(struct lines_resting) resting; /* by time */
	u64 used_lines;
};

/*
 * A chunk that another thread opens before it is needed: adding a map to a map of maps waits until
 * all running BPF programs have ended, some 10 to 60 ms.
 */
struct lines_spare {
	struct lines *a; /* the other thread uses only its outer_fd */
	u32 index;
	struct lines_part part;
	int error;
};

/* `outer_fd` is the array of maps, borrowed. -ENOMEM. */
int lines_init(struct lines *a, int outer_fd, u64 budget_bytes);
void lines_deinit(struct lines *a);
/* Allocates a run of n lines, zeroed. -ENOSPC: the budget is used up; -E2BIG: more than a chunk. */
int lines_alloc(struct lines *a, u32 n, u32 *ret_line);
void lines_free(struct lines *a, u32 line, u32 n);
/* Makes runs usable whose grace period is over, and closes empty chunks. Call it now and then. */
void lines_tidy(struct lines *a);
/* Returns a chunk that should be opened now. NULL: there is enough room, or no more to be had. */
struct lines_spare *lines_spare_wanted(struct lines *a);
/* Opens the chunk. Any thread. */
void lines_spare_open(struct lines_spare *s);
/* Adds the chunk to the arena and frees `s`. The arena's thread. */
void lines_spare_done(struct lines_spare *s);
/* The memory of a run; NULL: the line is in no open chunk. */
void *lines_at(const struct lines *a, u32 line);
