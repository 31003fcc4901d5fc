/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping the store within its size: retention, unreferenced rows, bytes on disk. */
#pragma once

#include "server/store/sqlite/sqlite.h"

/* ---- maintain.c ---- */

/* Evicts blocks and shrinks the file until it is small enough. Takes maintain_lock. */
int sq_make_smaller(struct sq *s, struct diag *reterr_diag);

/* ---- collect.c ---- */

/* Removes rows of dictionaries that no block refers to, once enough blocks were evicted. */
int sq_collect_dictionaries(struct sq *s, struct diag *reterr_diag);
/* Under write_lock: keeps a row to which the current transaction refers. */
void sq_mark(struct sq *s, enum sq_table table, u64 n);
/* The same for the frames that late symbols put in the place of frame n. */
int sq_mark_named(struct sq *s, s64 n, struct diag *reterr_diag);

/* ---- room.c ---- */

/* Returns the bytes on disk of a database and its log. */
u64 sq_files_bytes(const char *database);
/* Returns the bytes on disk of profiles.db and its log. */
u64 sq_bytes(const struct sq *s);
/* Whether blocks must be evicted before the next batch is written. */
bool sq_is_large(const struct sq *s);
/* Under write_lock: moves pages from the log to the file, as far as readers allow. */
void sq_checkpoint(struct sq *s);
/* Whether the file system has room for the next transactions and a checkpoint. */
bool sq_has_room(const struct sq *s);
/* Makes room for a batch that will be written, or fails with -ENOSPC. */
int sq_make_room(struct sq *s, struct diag *reterr_diag);
/*
 * Under write_lock, after SQLite reported a full disk: whether the disk is not full. A damaged page
 * can refer to a page number beyond the largest, for which SQLite has the same error.
 */
bool sq_is_no_page(const struct sq *s);
