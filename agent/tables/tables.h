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
 * through the deferred path. Belongs to one thread.
 */
#pragma once

#include "abi/unwind.h"
#include "agent/procman/procman.h"
#include "base/types.h"
#include "elf/elf.h"

struct tables;

struct tables_options {
	int arena_fd;	  /* the array of maps; borrowed */
	int processes_fd; /* the process hash; borrowed */
	u64 budget_bytes; /* for chunks; at least one is always there */
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
	u64 no_memory; /* times that something was left out because the budget is used up */
};

int tables_create(const struct tables_options *o, struct tables **ret);
void tables_destroy(struct tables *t);
/* Makes the process's mappings, as they are now, what BPF sees. */
int tables_update_process(struct tables *t, const struct procman_process *p);
void tables_remove_process(struct tables *t, const struct procman_process *p);
/* The binary's tables are dropped; no process maps it any more. */
void tables_remove_binary(struct tables *t, struct procman_binary *b);
/* Loads the page that holds svma. 0 also when it was there; -ENOENT when there is no such page. */
int tables_load_page(struct tables *t, struct procman_binary *b, u64 svma);
/*
 * Loads all pages of a binary that has no more than max_pages, once: for code whose walks cannot be
 * finished on the host. 0 or negative.
 */
int tables_load_binary(struct tables *t, struct procman_binary *b, u32 max_pages);
/*
 * The same for larger ones, by and by: the next n_pages of those that are not loaded yet. 1 while
 * there are more, 0 when that was all, or negative.
 */
int tables_load_more(struct tables *t, struct procman_binary *b, u32 n_pages);
/* The 64 bytes of a line, or NULL: what walk_line() is on the host. */
const void *tables_line(const struct tables *t, u32 line);
/*
 * The mappings of a process for a host walk, also of one that is gone; they hold until the next
 * call. 0 or negative.
 */
int tables_host_slice(struct tables *t, const struct procman_process *p, u32 *ret_line, u32 *ret_n);
void tables_stats(const struct tables *t, struct tables_stats *ret);
