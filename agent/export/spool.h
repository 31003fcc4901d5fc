/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait to be sent, in order, with a limit on their bytes: in memory or, with a
 * directory, in one file each, which the next run of the agent sends. Above the limit the caller
 * drops the oldest.
 *
 * doc/format/spool.md describes the files. A file is written under a temporary name and renamed, so
 * that it is complete unless the machine crashed, which its hash detects. No lock: the caller
 * serializes all calls.
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"

struct spool_item {
	struct spool_item *next;
	u64 number;
	u64 samples; /* in it */
	u64 lost;    /* losses that the request reports */
	size_t n;
	u8 *data; /* owned; NULL if only the file has the data */
	bool in_file;
};

struct spool {
	int dir; /* or -1 */
	int lock;
	u64 max_bytes, bytes; /* limit; bytes of all items, including those taken out */
	size_t n_items;
	u64 next_number;
	struct spool_item *first, **last; /* owned */
	u64 n_damaged;			  /* damaged files of the last run, removed */
};

/* path: NULL: memory only. Lists the items in the directory. -EBUSY: another process uses it. */
int spool_init(struct spool *s, const char *path, u64 max_bytes, struct diag *reterr_diag);
/* Frees the memory; files stay. */
void spool_deinit(struct spool *s);
/*
 * Adds an item. Takes ownership of the malloc()ed data, also on failure. -E2BIG: larger than the
 * limit; -ENOMEM.
 */
int spool_push(struct spool *s, u8 *data, size_t n, u64 samples, u64 lost);
/* Whether the items exceed the limit; the caller then drops the oldest. */
bool spool_is_over(const struct spool *s);
/*
 * Takes the oldest item out of the spool; NULL if there is none. spool_put_back() or spool_done()
 * must follow.
 */
struct spool_item *spool_take(struct spool *s);
/* Reads the item's data into memory. -EBADMSG: damaged. Accesses only the item and its file. */
int spool_load(const struct spool *s, struct spool_item *item);
/* Puts the item back at its place. */
void spool_put_back(struct spool *s, struct spool_item *item);
/* Frees the item and removes its file. */
void spool_done(struct spool *s, struct spool_item *item);
/*
 * Writes items that are only in memory to files. 0 or the first error; -ENOTDIR: there is no
 * directory.
 */
int spool_save(struct spool *s);
