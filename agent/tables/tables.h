/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the maps that unwinding reads: the arena of abi/unwind.h, with the mapping slices of
 * processes and the unwind pages of binaries, within a byte budget.
 *
 * The arena consists of chunks of 4 MiB, each an mmapped BPF array; filling it needs plain stores.
 * Freed lines become usable after a grace period, because a program on another CPU may still be
 * reading them; a walk takes microseconds, the period is far longer. Empty chunks are closed.
 *
 * Above the budget the pages that were loaded first are evicted, one batch in a grace period;
 * deferred walks load them again when needed. One thread calls all functions; another thread builds
 * rows (loader.h).
 */
#pragma once

#include "abi/unwind.h"
#include "agent/parser/parser.h"
#include "agent/procman/procman.h"
#include "base/budget.h"
#include "base/stat.h"
#include "base/types.h"
#include "elf/elf.h"

struct tables;

struct tables_options {
	struct parsers *parsers; /* borrowed */
	int arena_fd;		 /* the array of maps; borrowed */
	int processes_fd;	 /* the process hash; borrowed */
	u64 budget_bytes;	 /* of chunks; one chunk is always open */
	u64 max_section;	 /* larger sections of files are not read; 0: no limit */
	struct budget *budget;	 /* borrowed, or NULL: as loader_set_budget() */
	const char *cache_dir;	 /* as loader_set_cache(); NULL: none */
	/* Returns the runtime (enum runtime_id) whose code a mapping contains. NULL: none. */
	u32 (*runtime_of)(void *arg, const struct procman_process *p,
			  const struct procman_mapping *m);
	void *arg;
};

struct tables_stats {
	u64 chunk_bytes; /* BPF memory of the arena */
	u64 used_bytes;	 /* of that, allocated lines */
	u64 binaries;
	u64 pages_loaded;
	u64 pages_evicted;
	u64 rows;
	u64 row_bytes; /* packed pages */
	u64 rules;
	u64 slices;
	u64 no_room;	    /* times that BPF's map had no room for a process */
	u64 no_memory;	    /* times that the budget had no room */
	u64 files_given_up; /* the three as in struct loader_stats */
	u64 parser_cpu_ns;
	u64 parser_bytes;
	u64 cache_hits, cache_misses, cache_damaged; /* as in struct loader_stats */
};

/*
 * Starts the loader and opens the first chunk. The maps and the budget are borrowed until
 * tables_destroy(). A negative errno.
 */
int tables_create(const struct tables_options *o, struct tables **ret);
void tables_destroy(struct tables *t);
/*
 * Writes the mappings of new and changed processes, and removes those of processes that are gone;
 * `arg` is the tables.
 */
extern const struct procman_listener tables_listener;
/* Handles a changed process, as the listener does. -ENOSPC: the budget is used up. */
int tables_update_process(struct tables *t, const struct procman_process *p);
/* The same if BPF does not know the process: there may be room for it by now. */
int tables_retry_process(struct tables *t, const struct procman_process *p);
/* Unmarks the mappings of a file: it is no runtime's. runtime_of() returns so from now on. */
void tables_unmark(struct tables *t, u32 file_id);
/* Sets the index where BPF finds the process's context (abi/context.h); 0: it has none. */
void tables_set_context(struct tables *t, const struct procman_process *p, u32 index);
/*
 * Loads the page with svma, in another thread; tables_take() publishes it. 0: it is loaded;
 * -EINPROGRESS: it will be loaded; -EALREADY: it was requested before; -ENOENT: there is no such
 * page.
 */
int tables_load_page(struct tables *t, struct procman_binary *b, u64 svma);
/*
 * Loads all pages of a binary in the background, once: for code whose walks the host cannot finish.
 * 0 or a negative errno.
 */
int tables_load_binary(struct tables *t, struct procman_binary *b);
/* Readable when tables_take() has pages. */
int tables_fd(const struct tables *t);
/*
 * Publishes finished pages to BPF. Returns their number. With `wait`, waits for one if pages are
 * being loaded.
 */
u32 tables_take(struct tables *t, bool wait);
/* Whether pages are being loaded. */
bool tables_busy(const struct tables *t);
/* Whether background loading runs without pauses. */
void tables_hurry(struct tables *t, bool hurry);
/* The 64 bytes of a line, or NULL: walk_line() on the host. */
const void *tables_line(const struct tables *t, u32 line);

/* References the current mappings of a process, for walks on the host. 0 or a negative errno. */
struct slice;
int tables_slice_get(struct tables *t, const struct procman_process *p, struct slice **ret);
void tables_slice_put(struct tables *t, struct slice *s);
/* Returns the arena line of the slice's mappings, and their number. */
u32 tables_slice_line(const struct slice *s, u32 *ret_n);
/* Returns the file id and the svma of an address; 0: it is in no known file. */
u32 tables_slice_file(const struct tables *t, const struct slice *s, u64 avma, u64 *ret_svma);
/* As loader_trim(). */
u32 tables_trim(struct tables *t, u64 idle_ns);
/* As loader_set_tight(). */
void tables_set_tight(struct tables *t, bool tight);
void tables_stats(const struct tables *t, struct tables_stats *ret);
extern const struct stat_field tables_stat_fields[];
