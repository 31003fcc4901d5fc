/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwind rows of files on disk, doc/format/unwind-cache.md: a file is parsed once on a machine.
 *
 * An entry has the rules of a file and the rows of the pages that somebody has needed so far. Rows
 * of a new page go to a temporary file at once, so that memory holds 24 bytes a page;
 * row_entry_save() makes that file the entry. Rows and rules pass the checks of agent/parser when
 * they are read.
 *
 * One thread at a time may use a cache and its entries, but for row_cache_stats().
 */
#pragma once

#include "abi/unwind.h"
#include "base/cachedir.h"
#include "base/vec.h"
#include "elf/key.h"
#include "unwind/version.h"

/* What rows depend on. Without holes: it is compared and written as bytes. */
struct row_key {
	struct elf_key file;
	struct elf_key debug; /* all 0: there is no debug file */
	u64 max_section;
	char version[UNWIND_VERSION_BYTES];
	u32 disassembler;
	u32 reserved; /* 0 */
};

struct row_page {
	u64 page; /* svma >> UNWIND_PAGE_SHIFT */
	u64 hash; /* XXH3-64 of its rows */
	u32 at;	  /* where its rows are in the file, in units of 4 bytes */
	u32 n_rows;
};

typedef vec(struct unwind_rule) unwind_rules;

struct row_cache {
	struct cachedir *dir;	   /* owned */
	u64 hits, misses, damaged; /* atomic: pages; pages; entries and pages */
	u64 open_bytes;		   /* of the rows in files that entries have open */
};

struct row_entry {
	struct row_cache *cache; /* borrowed */
	struct row_key key;
	vec(struct row_page) pages; /* sorted; their rows are in `fd` */
	int fd;			    /* owned; -1: no rows yet */
	u64 end;		    /* of the rows */
	struct cachedir_new new;    /* fd -1: nothing is new; else its fd is `fd`, above */
	u64 open_bytes;		    /* its part of those of the cache */
	bool broken;		    /* nothing more is written */
	bool damaged;		    /* the log has a line about it */
	char name[CACHEDIR_NAME_BYTES];
};

/* `path` is the folder. -EPERM: others may write to it; or the error of a system call. */
int row_cache_open(const char *path, struct row_cache *ret);
void row_cache_close(struct row_cache *c);
/* Fills the key but for the two files. */
void row_key_init(struct row_key *k, u64 size, u64 max_section);

/*
 * Opens the entry of a key, empty if there is none that can be used, and appends the rules that its
 * rows refer to, to *rules, which is empty. -ENOMEM.
 */
int row_entry_open(struct row_cache *c, const struct row_key *key, unwind_rules *rules,
		   struct row_entry **ret);
/* The rows of a page are there: their number, or 0. */
u32 row_entry_find(const struct row_entry *e, u64 page);
/*
 * Reads the n rows of a page, which row_entry_find() has returned, and checks them against the
 * number of rules. -EBADMSG: they are damaged, and are forgotten.
 */
int row_entry_read(struct row_entry *e, u64 page, u32 n_rules, u32 *ret_rows, u32 n);
/* Adds the rows of a page. What cannot be written is not kept. */
void row_entry_add(struct row_entry *e, u64 page, const u32 *rows, u32 n);
/* Pages that are not saved. */
bool row_entry_is_new(const struct row_entry *e);
/* Replaces the entry on disk; `rules` are all rules so far. */
void row_entry_save(struct row_entry *e, const struct unwind_rule *rules, u32 n_rules);
/* Forgets what is not saved, and keeps nothing from now on. */
void row_entry_stop(struct row_entry *e);
/* Drops what is not saved. NULL is fine. */
void row_entry_close(struct row_entry *e);
