/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds unwind rows in a thread of its own, so that whoever reads samples does not wait for it:
 * the first page of a large library takes some 50 ms.
 *
 *	owner ── jobs: (file, page), urgent ones first ─→ worker (lib/base/worker.h)
 *	owner ←─ pages: packed lines and new rules ────── worker
 *
 * A file belongs to the worker while jobs of it are under way and to the owner when there are none;
 * what goes over the two queues belongs to who takes it. Nothing else is shared but `closed`, a
 * hint not to begin what nobody wants any more. All functions are the owner's.
 */
#pragma once

#include "abi/unwind.h"
#include "base/budget.h"
#include "base/types.h"
#include "elf/elf.h"

struct loader;
struct loader_file;

/* What is asked for by another line comes first. */
enum loader_urgency {
	LOADER_NOW,   /* somebody waits for it */
	LOADER_SOON,  /* somebody will wait for it */
	LOADER_LATER, /* nobody does: the worker rests 1.5 times as long as each page took */
	LOADER_N
};

struct loader_page {
	void *user;	     /* of loader_open() */
	u64 page;	     /* as it was asked for: svma >> UNWIND_PAGE_SHIFT */
	int error;	     /* negative errno: no such page, no memory; -EEXIST: see below */
	u32 n_rows, n_lines; /* 0 with an error */
	void *lines;	     /* owned: n_lines of UNWIND_LINE_BYTES, as unwind_page_pack() does */
	u32 n_rules;
	struct unwind_rule *rules; /* owned: those that came with this page, after all before */
};
void loader_page_deinit(struct loader_page *p);

/*
 * Debug files, whose .debug_frame is used where the file itself says nothing, are looked for by
 * build-id below `debug_root`; -1: our own root. It is borrowed.
 */
int loader_create(int debug_root, struct loader **ret);
/* Borrowed: what has no room in it is not built, -ENOBUFS. Before the first page. */
void loader_set_budget(struct loader *l, struct budget *b);
/* Sections larger than this are not read; 0: any are. Before the first file. */
void loader_set_max_section(struct loader *l, u64 bytes);
/*
 * Gives back what files were read into that nothing was asked of for so long. They are read again
 * when something is. How many it were.
 */
u32 loader_trim(struct loader *l, u64 idle_ns);
/* Whether this is done as soon as nothing more is asked of a file. */
void loader_set_tight(struct loader *l, bool tight);
/* Drops what is under way. All files must have been closed. */
void loader_destroy(struct loader *l);
/* Readable when there is something to take. */
int loader_fd(const struct loader *l);
/* `elf` is opened a second time: it stays the caller's. */
int loader_open(struct loader *l, const struct elf_file *elf, void *user, struct loader_file **ret);
/* Nothing of it is given out any more. */
void loader_close(struct loader_file *f);
/*
 * One page will come back for each; with -EEXIST and no rows, if it need not be now and has
 * been built before. -ENOMEM: not for all of them.
 */
int loader_ask(struct loader_file *f, const u64 *pages, u32 n, enum loader_urgency urgency);
/* Has fn(arg) called by the worker, before any page, and then done(arg) by loader_take(). */
int loader_call(struct loader *l, void (*fn)(void *arg), void (*done)(void *arg), void *arg);
/* Is anything under way? */
bool loader_busy(const struct loader *l);
/* Whether LOADER_LATER means with rests; at first not. */
void loader_set_gentle(struct loader *l, bool gentle);
/* True: a page, now the caller's. `wait`: if there is none, for one that is under way. */
bool loader_take(struct loader *l, bool wait, struct loader_page *ret);
