/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/clock.h"
#include "server/store/sqlite/sqlite.h"

#define BUSY_MS 5000
#define TRUNCATE_MS 500

static const char *const statement_texts[] = {
#define SQ_TEXT(name, text) text,
	SQ_STATEMENTS(SQ_TEXT)
#undef SQ_TEXT
};

/*
 * synchronous=NORMAL: an acknowledged commit is in the page cache and survives the death of the
 * process. A power failure may lose the last commits but does not damage the file; FULL would flush
 * the disk for every batch.
 */
static const char setup[] = "PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0;"
			    "PRAGMA journal_size_limit=16777216; PRAGMA cache_size=-8192;"
			    "PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF;"
			    "PRAGMA cell_size_check=ON;";
/* There may be a reader for each request; the system caches the file, too. */
static const char setup_reader[] = "PRAGMA cache_size=-2048;";
_Static_assert(SQ_READER_BYTES == 2048 << 10, "the size above");

int sq_error(struct sq_conn *c, const char *what, struct diag *reterr_diag)
{
	int code = c->db ? sqlite3_errcode(c->db) : SQLITE_NOMEM;
	int error = c->db ? sqlite3_system_errno(c->db) : 0;
	const char *text = c->db ? sqlite3_errmsg(c->db) : "out of memory";
	int r = -EIO;

	c->full = code == SQLITE_FULL;
	switch (code & 0xff) {
	case SQLITE_FULL:
		r = -ENOSPC;
		break;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_CONSTRAINT: /* the engine breaks a constraint only if an index is damaged */
		r = -EBADMSG;
		break;
	case SQLITE_NOMEM:
		r = -ENOMEM;
		break;
	case SQLITE_BUSY:
		r = -EBUSY;
		break;
	case SQLITE_READONLY:
	case SQLITE_PERM:
		r = -EACCES;
		break;
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
		if (error == ENOSPC || error == EDQUOT || error == EFBIG)
			r = -ENOSPC;
		else if (code == SQLITE_IOERR_SHORT_READ || code == SQLITE_IOERR_CORRUPTFS)
			r = -EBADMSG;
		break;
	default:
		break;
	}
	if (r == -ENOSPC)
		return diag_set(reterr_diag, r,
				"%s: no space left for %s: free some, or use a smaller --max-size",
				what, sqlite3_db_filename(c->db, "main"));
	return diag_set(reterr_diag, r, "%s: %s%s%s", what, text, error ? ": " : "",
			error ? strerror(error) : "");
}

void sq_disconnect(struct sq_conn *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < SQL_N; i++)
		sqlite3_finalize(c->statements[i]);
	sqlite3_close(c->db);
	ZSTD_freeDCtx(c->zstd);
	ZSTD_freeCCtx(c->compressor);
	free(c);
}

/* The setup already reads the file, and fails if the file is shorter than it should be. */
static int allow_damage(struct sq_conn *c)
{
	return sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) == SQLITE_OK &&
			       sqlite3_db_config(c->db, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1, NULL) ==
				       SQLITE_OK
		       ? 0
		       : -EIO;
}

static int connect_to(const char *path, int flags, bool damaged, struct diag *reterr_diag,
		      struct sq_conn **ret)
{
	QUOTA_PAUSED; /* a pool may keep it */
	struct sq_conn *c = calloc(1, sizeof(*c));
	int r = 0;

	if (c) {
		c->zstd = ZSTD_createDCtx();
		c->compressor = ZSTD_createCCtx();
	}
	if (!c || !c->zstd || !c->compressor) {
		sq_disconnect(c);
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	}
	/* Set the timeout before the setup: another connection locks the file while it closes. */
	flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
	if (sqlite3_open_v2(path, &c->db, flags, NULL) != SQLITE_OK ||
	    sqlite3_busy_timeout(c->db, BUSY_MS) != SQLITE_OK || (damaged && allow_damage(c) < 0) ||
	    sqlite3_exec(c->db, setup, NULL, NULL, NULL) != SQLITE_OK ||
	    (!(flags & SQLITE_OPEN_CREATE) &&
	     sqlite3_exec(c->db, setup_reader, NULL, NULL, NULL) != SQLITE_OK))
		r = sq_error(c, path, reterr_diag);
	if (r < 0) {
		sq_disconnect(c);
		return r;
	}
	*ret = c;
	return 0;
}

int sq_connect(const char *path, bool writer, struct diag *reterr_diag, struct sq_conn **ret)
{
	return connect_to(path, writer ? SQLITE_OPEN_CREATE : 0, false, reterr_diag, ret);
}

int sq_connect_damaged(const char *path, struct diag *reterr_diag, struct sq_conn **ret)
{
	return connect_to(path, 0, true, reterr_diag, ret);
}

void sq_truncate_log(struct sq_conn *c)
{
	sqlite3_busy_timeout(c->db, TRUNCATE_MS);
	sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	sqlite3_busy_timeout(c->db, BUSY_MS);
}

sqlite3_stmt *sq_get(struct sq_conn *c, enum sq_statement which)
{
	sqlite3_stmt **st = &c->statements[which];

	if (*st)
		sqlite3_reset(*st);
	else
		sqlite3_prepare_v3(c->db, statement_texts[which], -1, SQLITE_PREPARE_PERSISTENT, st,
				   NULL);
	return *st;
}

int sq_run(struct sq_conn *c, enum sq_statement which)
{
	sqlite3_stmt *st = sq_get(c, which);
	int r = st ? sqlite3_step(st) : SQLITE_ERROR;

	if (st)
		sqlite3_reset(st);
	return r == SQLITE_DONE || r == SQLITE_ROW ? 0 : -EIO;
}

void sq_reset_all(struct sq_conn *c)
{
	for (size_t i = 0; i < SQL_N; i++)
		if (c->statements[i])
			sqlite3_reset(c->statements[i]);
}

int sq_number(struct sq_conn *c, const char *text, s64 *ret)
{
	sqlite3_stmt *st;
	int r;

	if (sqlite3_prepare_v2(c->db, text, -1, &st, NULL) != SQLITE_OK)
		return -EIO;
	r = sqlite3_step(st);
	if (r == SQLITE_ROW)
		*ret = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return r == SQLITE_ROW ? 0 : -EIO;
}

bool sq_pages_are_whole(struct sq_conn *c, const char *check)
{
	sqlite3_stmt *st = NULL;
	bool whole = false;

	if (sqlite3_prepare_v2(c->db, check, -1, &st, NULL) == SQLITE_OK &&
	    sqlite3_step(st) == SQLITE_ROW)
		whole = !strcmp((const char *)sqlite3_column_text(st, 0), "ok");
	sqlite3_finalize(st);
	return whole;
}

u64 sq_hash_column(sqlite3_stmt *st, int at)
{
	const void *data = sqlite3_column_blob(st, at);

	return hash_bytes(data ? data : "", (size_t)sqlite3_column_bytes(st, at));
}

int sq_take_token(struct sq_conn *c, const u8 token[16], struct diag *reterr_diag)
{
	sqlite3_stmt *st = sq_get(c, SQL_FIND_TOKEN);
	int r;

	if (!st)
		return sq_error(c, "cannot read", reterr_diag);
	sqlite3_bind_blob(st, 1, token, 16, SQLITE_STATIC);
	r = sqlite3_step(st);
	sqlite3_reset(st);
	if (r == SQLITE_ROW)
		return 1;
	st = r == SQLITE_DONE ? sq_get(c, SQL_ADD_TOKEN) : NULL;
	if (!st)
		return sq_error(c, "cannot read", reterr_diag);
	sqlite3_bind_blob(st, 1, token, 16, SQLITE_STATIC);
	sqlite3_bind_int64(st, 2, (s64)clock_epoch_ms());
	r = sqlite3_step(st);
	sqlite3_reset(st);
	return r == SQLITE_DONE ? 0 : sq_error(c, "cannot write a token", reterr_diag);
}

int sq_reader_get(struct sq *s, struct diag *reterr_diag, struct sq_conn **ret)
{
	struct sq_conn *c;
	u32 generation;
	int r;

	if (!quota_take(SQ_READER_BYTES))
		return quota_why(reterr_diag);
	pthread_mutex_lock(&s->pool_lock);
	c = s->pool;
	if (c) {
		s->pool = c->next;
		s->n_pool--;
	}
	generation = s->generation;
	pthread_mutex_unlock(&s->pool_lock);
	if (!c) {
		r = sq_connect(s->path, false, reterr_diag, &c);
		if (r < 0) {
			quota_give(SQ_READER_BYTES);
			return r;
		}
		c->generation = generation;
	}
	*ret = c;
	return 0;
}

void sq_reader_put(struct sq *s, struct sq_conn *c)
{
	sq_reset_all(c);
	quota_give(SQ_READER_BYTES);
	pthread_mutex_lock(&s->pool_lock);
	if (s->n_pool < SQ_MAX_READERS && c->generation == s->generation) {
		c->next = s->pool;
		s->pool = c;
		s->n_pool++;
		c = NULL;
	}
	pthread_mutex_unlock(&s->pool_lock);
	sq_disconnect(c);
}
