/* SPDX-License-Identifier: Apache-2.0 */
/* Damage: finds what a log has lost, and copies what is whole into a new database. */
#pragma once

#include "server/store/sqlite/sqlite.h"

/* ---- log.c: whether the write-ahead log has all committed transactions ---- */

enum sq_log {
	SQ_LOG_WHOLE,
	SQ_LOG_SHORT, /* the end of the log is missing; the rest can be applied */
	SQ_LOG_STALE, /* the file is whole without the log, and newer than the rest of it */
	SQ_LOG_MIXED, /* the file is whole neither without the log nor with the rest of it */
};

enum sq_log sq_check_log(const char *path);

/* ---- repair.c ---- */

/* Before the store is opened: completes an interrupted repair and counts damaged files. */
int sq_finish_repair(struct sq *s, struct diag *reterr_diag);
/* Repairs a store that is not open: copies what can be read and keeps the damaged file. */
int sq_repair_closed(struct sq *s, enum sq_log log, const char *why, struct diag *reterr_diag);
/* Repairs an open store; the maintainer's thread calls this. */
int sq_repair(struct sq *s, struct diag *reterr_diag);

/* ---- salvage.c ---- */

/*
 * Copies what is whole of the database at s->path into a new one. names: also writes the names of
 * services and types from memory. ret_lost: how many places could not be read.
 */
int sq_salvage(struct sq *s, const char *to, bool names, u64 *ret_lost, struct diag *reterr_diag);
/* Copies the tokens of a damaged file. Returns how many reads broke off, or a negative errno. */
int sq_copy_tokens(struct sq_conn *from, struct sq_conn *to, struct diag *reterr_diag);
