/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gets unwind rows from a parser (agent/parser), in a thread of its own, so that the thread that
 * reads samples does not wait: the first page of a large library takes some 50 ms.
 *
 *	owner ── jobs: (file, page), urgent ones first ─→ worker (lib/base/worker.h) ─→ parser
 *	owner ←─ pages: packed lines and new rules ────── worker ←─ checked rows ────── process
 *
 * A file gets no more pages after two parsers ended over one of its pages, or one hung or lied.
 *
 * A file belongs to the worker while it has jobs, and to the owner otherwise; an object in a queue
 * belongs to the thread that takes it out. Only `closed` is shared, a hint not to start unwanted
 * jobs. The owner calls all functions.
 */
#pragma once

#include "abi/unwind.h"
#include "agent/parser/parser.h"
#include "base/budget.h"
#include "base/types.h"
#include "elf/elf.h"

struct loader;
struct loader_file;

/* Every urgency has a queue of its own; more urgent ones come first. */
enum loader_urgency {
	LOADER_NOW,   /* something waits for the page */
	LOADER_SOON,  /* something will wait for it */
	LOADER_LATER, /* nothing waits: the worker pauses 1.5 times as long as each page took */
	LOADER_N
};

struct loader_page {
	void *user; /* argument of loader_open() */
	u64 page;   /* argument of loader_ask(): svma >> UNWIND_PAGE_SHIFT */
	/* negative errno: no such page, no memory; -EEXIST: see loader_ask() */
	int error;
	u32 n_rows, n_lines; /* 0 after an error */
	/* owned: n_lines of UNWIND_LINE_BYTES, written by unwind_page_pack() */
	void *lines;
	u32 n_rules;
	struct unwind_rule *rules; /* owned: rules that are new with this page */
};
void loader_page_deinit(struct loader_page *p);

struct loader_stats {
	u64 files_given_up;			     /* a parser ended, hung or lied over them */
	u64 parser_cpu_ns;			     /* CPU time of parsers */
	u64 parser_bytes;			     /* memory of the parser's process */
	u64 cache_hits, cache_misses, cache_damaged; /* as in struct row_cache */
};

/*
 * Debug files provide .debug_frame for code that the file itself does not describe. They are
 * searched by build-id below `debug_root`, which is borrowed, as the parsers are; -1: culprit's own
 * root.
 */
int loader_create(int debug_root, struct parsers *parsers, struct loader **ret);
/* Borrowed. What does not fit in it is not built: -ENOBUFS. Call it before the first page. */
void loader_set_budget(struct loader *l, struct budget *b);
/*
 * Rows of files are kept in this folder, which rowcache.h describes. Call it before the first page.
 * -EPERM: others may write to it; or the error of a system call: there is no cache.
 */
int loader_set_cache(struct loader *l, const char *path);
/* Larger sections are not read; 0: no limit. Call it before the first file. */
void loader_set_max_section(struct loader *l, u64 bytes);
/*
 * Frees the sources of files that were not used for idle_ns. They are read again when needed.
 * Returns the number of files.
 */
u32 loader_trim(struct loader *l, u64 idle_ns);
/* Whether sources are freed as soon as a file has no jobs. */
void loader_set_tight(struct loader *l, bool tight);
/* Drops all jobs. All files must have been closed. */
void loader_destroy(struct loader *l);
/* Readable when loader_take() has a page. */
int loader_fd(const struct loader *l);
/* The loader keeps a copy of the descriptor, or of the image: `elf` stays with the caller. */
int loader_open(struct loader *l, const struct elf_file *elf, void *user, struct loader_file **ret);
/* Closes a file; its pages are not returned any more. */
void loader_close(struct loader_file *f);
/*
 * Requests pages. loader_take() returns one result for each; -EEXIST and no rows if the page is not
 * urgent and was built before. -ENOMEM: some were not requested.
 */
int loader_ask(struct loader_file *f, const u64 *pages, u32 n, enum loader_urgency urgency);
/* The worker calls fn(arg) before it builds more pages; loader_take() then calls done(arg). */
int loader_call(struct loader *l, void (*fn)(void *arg), void (*done)(void *arg), void *arg);
void loader_stats(const struct loader *l, struct loader_stats *ret);
/* Whether there are jobs. */
bool loader_busy(const struct loader *l);
/* Whether the worker pauses after LOADER_LATER pages; initially not. */
void loader_set_gentle(struct loader *l, bool gentle);
/* True: *ret is a page, which the caller frees. With `wait`, waits for one if there are jobs. */
bool loader_take(struct loader *l, bool wait, struct loader_page *ret);
