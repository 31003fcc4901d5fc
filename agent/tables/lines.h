/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator over the arena's lines: runs of 64-byte lines within 4 MiB chunks. First fit over
 * a sorted list of free runs per chunk; freed runs rest for UNWIND_GRACE_NS first.
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
	int fd;			    /* owned; -1 = not there */
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
	u32 n_parts;		  /* chunks that are there */
	u32 max_parts;
	u32 opening; /* of a struct lines_spare that is under way; UNWIND_MAX_CHUNKS: none */
	vec(struct lines_resting) resting; /* by time */
	u64 used_lines;
};

/*
 * A chunk that is opened before it is needed, by another thread: the kernel makes whoever adds
 * a map to a map of maps wait for all programs that run, some 10 to 60 ms.
 */
struct lines_spare {
	struct lines *a; /* only its outer_fd is looked at by the other thread */
	u32 index;
	struct lines_part part;
	int error;
};

int lines_init(struct lines *a, int outer_fd, u64 budget_bytes);
void lines_deinit(struct lines *a);
/* A run of n lines, zeroed. -ENOSPC when the budget is used up, -E2BIG above a chunk. */
int lines_alloc(struct lines *a, u32 n, u32 *ret_line);
void lines_free(struct lines *a, u32 line, u32 n);
/* Returns rested runs to use and empty chunks to the kernel; called now and then. */
void lines_tidy(struct lines *a);
/* One that should be opened now, or NULL: there is room enough, or none to be had. */
struct lines_spare *lines_spare_wanted(struct lines *a);
/* In any thread. */
void lines_spare_open(struct lines_spare *s);
/* In the arena's own: takes the chunk over, and the spare. */
void lines_spare_done(struct lines_spare *s);
/* Memory of a run; NULL when the line was never given out. */
void *lines_at(const struct lines *a, u32 line);
