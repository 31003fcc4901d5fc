/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits to be sent, in order, at most so many bytes of it: in memory, or, with a directory, in
 * a file each, which the next run finds. Past the bound the oldest goes.
 *
 * A file is NUMBER.spool: the header of spool.c and the bytes. It is written beside and renamed, so
 * that it is whole unless the machine itself stopped; its hash tells then. Not thread-safe.
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"

struct spool_item {
	struct spool_item *next;
	u64 number;
	u64 samples; /* in it */
	u64 lost;    /* that it tells of */
	size_t n;
	u8 *data; /* owned; NULL when it is in its file only */
	bool in_file;
};

struct spool {
	int dir; /* or -1 */
	int lock;
	u64 max_bytes, bytes; /* of all that is not done, what is taken out included */
	size_t n_items;
	u64 next_number;
	struct spool_item *first, **last; /* owned */
	u64 n_damaged;			  /* files of the last run, not read */
};

/* path: NULL for memory only. Takes up what the directory has. -EBUSY: another process has it. */
int spool_init(struct spool *s, const char *path, u64 max_bytes, struct diag *reterr_diag);
/* Forgets; files stay. */
void spool_deinit(struct spool *s);
/* Takes the data (malloc'd). -E2BIG: larger than the whole spool, and freed. */
int spool_push(struct spool *s, u8 *data, size_t n, u64 samples, u64 lost);
/* True while there is more than the bound allows: the oldest is to be dropped, by the caller. */
bool spool_is_over(const struct spool *s);
/* The first, out of the spool but not forgotten; NULL when there is none. */
struct spool_item *spool_take(struct spool *s);
/* Reads the item's data into memory; -EBADMSG when its file is damaged. Leaves `s` untouched. */
int spool_load(const struct spool *s, struct spool_item *item);
/* Where it was. */
void spool_put_back(struct spool *s, struct spool_item *item);
/* Forgets it, and removes its file. */
void spool_done(struct spool *s, struct spool_item *item);
/* Writes what is in memory only to files. 0, or the first error; -ENOTDIR without a directory. */
int spool_save(struct spool *s);
