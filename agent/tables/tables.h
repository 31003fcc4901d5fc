/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the maps that unwinding reads: the arena of abi/unwind.h, with the mapping slices of
 * processes and the unwind pages of binaries, under a byte budget.
 *
 * The arena is chunks of 4 MiB, each an mmapped BPF array; filling is plain stores. Freed lines
 * rest for a grace period before they are used again, because a program on another CPU may still
 * be walking over them; a walk takes microseconds, the period is far more. A chunk that is all
 * free is given back.
 *
 * Past the budget the pages that were loaded longest ago go first; what is needed comes back
 * through the deferred path. Belongs to one thread; rows are built in another (loader.h).
 */
#pragma once

#include "abi/unwind.h"
#include "agent/procman/procman.h"
#include "base/budget.h"
#include "base/stat.h"
#include "base/types.h"
#include "elf/elf.h"

struct tables;

struct tables_options {
	int arena_fd;	       /* the array of maps; borrowed */
	int processes_fd;      /* the process hash; borrowed */
	u64 budget_bytes;      /* for chunks; at least one is always there */
	u64 max_section;       /* files' sections that are larger are not read; 0: any are */
	struct budget *budget; /* borrowed, or NULL: as loader_set_budget() */
	/* The runtime (enum runtime_id) whose code a mapping holds. NULL: none. */
	u32 (*runtime_of)(void *arg, const struct procman_process *p,
			  const struct procman_mapping *m);
	void *arg;
};

struct tables_stats {
	u64 chunk_bytes; /* BPF memory of the arena */
	u64 used_bytes;	 /* of that, lines given out */
	u64 binaries;
	u64 pages_loaded;
	u64 pages_evicted;
	u64 rows;
	u64 row_bytes; /* pages as packed */
	u64 rules;
	u64 slices;
	u64 no_room;   /* times that a process had no room in the map of processes */
	u64 no_memory; /* times that something was left out because the budget is used up */
};

int tables_create(const struct tables_options *o, struct tables **ret);
void tables_destroy(struct tables *t);
/*
 * Writes the mappings of processes that are new or have changed, and removes what is gone; `arg` is
 * the tables.
 */
extern const struct procman_listener tables_listener;
/* What it does for a process that has changed. -ENOSPC: the budget is used up. */
int tables_update_process(struct tables *t, const struct procman_process *p);
/* The same if BPF does not know the process: there may be room for it by now. */
int tables_retry_process(struct tables *t, const struct procman_process *p);
/* The mappings of a file are no runtime's after all; runtime_of() says so from now on. */
void tables_unmark(struct tables *t, u32 file_id);
/* Where BPF finds how the process publishes (abi/context.h); 0: it does not. */
void tables_set_context(struct tables *t, const struct procman_process *p, u32 index);
/*
 * Has the page that holds svma loaded: by a thread of its own, which gives it to tables_take().
 * 0: it is there; -EINPROGRESS: it will be; -EALREADY: so it would have been without this call;
 * -ENOENT: there is no such page.
 */
int tables_load_page(struct tables *t, struct procman_binary *b, u64 svma);
/*
 * The same for all pages of a binary, once, without that anybody waits for them: for code whose
 * walks cannot be finished on the host. 0 or negative.
 */
int tables_load_binary(struct tables *t, struct procman_binary *b);
/* Readable when there is something to take. */
int tables_fd(const struct tables *t);
/*
 * Lets BPF see the pages that are ready; how many. `wait`: if none is, for one that is under way.
 */
u32 tables_take(struct tables *t, bool wait);
/* Is anything under way? */
bool tables_busy(const struct tables *t);
/* Whether what nobody waits for yet is loaded without rests. */
void tables_hurry(struct tables *t, bool hurry);
/* The 64 bytes of a line, or NULL: what walk_line() is on the host. */
const void *tables_line(const struct tables *t, u32 line);

/* The mappings of a process as they are now, for walks on the host; a reference. 0 or negative. */
struct slice;
int tables_slice_get(struct tables *t, const struct procman_process *p, struct slice **ret);
void tables_slice_put(struct tables *t, struct slice *s);
u32 tables_slice_line(const struct slice *s, u32 *ret_n);
/* Id and svma in the file that an address is in; 0: none that is known. */
u32 tables_slice_file(const struct tables *t, const struct slice *s, u64 avma, u64 *ret_svma);
/* As loader_trim(). */
u32 tables_trim(struct tables *t, u64 idle_ns);
void tables_set_tight(struct tables *t, bool tight);
void tables_stats(const struct tables *t, struct tables_stats *ret);
extern const struct stat_field tables_stat_fields[];
