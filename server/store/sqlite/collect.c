/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes the rows of dictionaries that no block refers to any more. Marks from the blocks down
 * (series and stacks, then frames, then functions and mappings) and sweeps in small transactions.
 *
 * Batches are written meanwhile. Only rows that existed when marking began (below the limit) are
 * swept. A writer marks every row that it looks up, with a frame those that stand for it, under
 * write_lock, and the rows that it adds are above the limit; so no row is swept to which a batch
 * refers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/varint.h"
#include "server/store/sqlite/maintain.h"
#include "server/store/sqlite/scan.h"

#define SWEEP_ROWS 5000
#define MARK_ROWS 20000
/* A collection is worth its cost once a tenth of the rows of samples is gone. */
#define WORTH(evicted, rows) ((evicted) > (rows) / 10)

void sq_mark(struct sq *s, enum sq_table table, u64 n)
{
	struct sq_marks *m = &s->marks[table];

	if (m->bits && n < (u64)m->limit)
		m->bits[n / 8] |= (u8)(1 << n % 8);
}

static void stop_marking(struct sq *s)
{
	for (size_t i = 0; i < SQ_TABLES; i++) {
		free(s->marks[i].bits);
		s->marks[i] = (struct sq_marks){};
	}
}

/* From here on writers mark rows. Empty their map of ids, so that they look up every row again. */
static int start_marking(struct sq *s)
{
	int r = 0;

	pthread_mutex_lock(&s->write_lock);
	for (size_t i = 0; i < SQ_BLOCKS && r == 0; i++) {
		s->marks[i].limit = s->next[i];
		s->marks[i].bits = calloc((size_t)s->next[i] / 8 + 1, 1);
		r = s->marks[i].bits ? 0 : -ENOMEM;
	}
	if (r == 0)
		sq_forget_ids(s);
	else
		stop_marking(s);
	pthread_mutex_unlock(&s->write_lock);
	return r;
}

static int mark_sums(struct sq_view *v, s64 n, enum sq_part part)
{
	_cleanup_block_sums_ struct block_sums sums = {};
	const u8 *data;
	size_t size;
	int r = sq_read_part(v->s, v->c, n, part, &data, &size);

	if (r == 0)
		r = part == SQ_PART_STACKS ? block_read_stacks(v->c->zstd, data, size, &sums)
					   : block_read_series(v->c->zstd, data, size, &sums);
	if (r < 0)
		return r;
	pthread_mutex_lock(&v->s->write_lock);
	vec_foreach (&sums.sums, e)
		sq_mark(v->s, part == SQ_PART_STACKS ? SQ_STACKS : SQ_SERIES, e->number);
	pthread_mutex_unlock(&v->s->write_lock);
	return 0;
}

/* Fails if a block cannot be read: the block may refer to any row. */
static int mark_blocks(struct sq *s, struct diag *reterr_diag)
{
	static const struct store_filter all = {.to_ms = ~0ULL};
	_cleanup_sq_view_ struct sq_view v = {};
	int r = sq_view_open(s, &all, reterr_diag, &v);

	for (size_t i = 0; r == 0 && i < v.entries.n; i++) {
		r = mark_sums(&v, v.entries.data[i].n, SQ_PART_STACKS);
		if (r == 0)
			r = mark_sums(&v, v.entries.data[i].n, SQ_PART_SERIES);
	}
	return r;
}

/* Marks the rows in a list of numbers. sum: a checksum precedes the list. */
static void mark_list(struct sq *s, enum sq_table table, sqlite3_stmt *st, int column, bool sum)
{
	const u8 *data = sqlite3_column_blob(st, column);
	struct buf b = buf_of(data, data ? (size_t)sqlite3_column_bytes(st, column) : 0);
	u64 n;

	if (sum && !buf_u64(&b, &n))
		return;
	while (buf_left(&b) && varint_get(&b, &n))
		sq_mark(s, table, n);
}

/* Marks what a row of a table refers to: after its number, the columns of mark_from(). */
static void mark_row(struct sq *s, enum sq_table table, sqlite3_stmt *st)
{
	if (table == SQ_STACKS) {
		mark_list(s, SQ_FRAMES, st, 1, false);
		return;
	}
	sq_mark(s, SQ_FUNCTIONS, (u64)sqlite3_column_int64(st, 1));
	sq_mark(s, SQ_MAPPINGS, (u64)sqlite3_column_int64(st, 2));
}

/* Under write_lock: marks what up to MARK_ROWS rows after number *at refer to. */
static int mark_some(struct sq *s, enum sq_table table, s64 *at, bool *ret_more,
		     struct diag *reterr_diag)
{
	sqlite3_stmt *st = NULL;
	u32 n = 0;
	int r = sqlite3_prepare_v2(
		s->writer->db,
		table == SQ_STACKS ? "SELECT n,frames FROM stacks WHERE n>? ORDER BY n"
				   : "SELECT n,function,mapping FROM frames WHERE n>? ORDER BY n",
		-1, &st, NULL);

	if (r == SQLITE_OK)
		r = sqlite3_bind_int64(st, 1, *at);
	while ((r == SQLITE_OK || r == SQLITE_ROW) && n < MARK_ROWS) {
		r = sqlite3_step(st);
		if (r != SQLITE_ROW)
			break;
		mark_row(s, table, st);
		*at = sqlite3_column_int64(st, 0);
		n++;
	}
	*ret_more = r == SQLITE_ROW;
	r = r == SQLITE_DONE || r == SQLITE_ROW ? 0
						: sq_error(s->writer, "cannot read", reterr_diag);
	sqlite3_finalize(st);
	return r;
}

/*
 * Marks what the rows of a table refer to, some rows at a time, so that writers do not wait for
 * long. A row that a writer adds meanwhile comes later, and its writer marks what it refers to.
 */
static int mark_from(struct sq *s, enum sq_table table, struct diag *reterr_diag)
{
	bool more = true;
	s64 at = 0;
	int r = 0;

	while (r == 0 && more) {
		pthread_mutex_lock(&s->write_lock);
		r = mark_some(s, table, &at, &more, reterr_diag);
		pthread_mutex_unlock(&s->write_lock);
	}
	return r;
}

/* Marks the frames that late symbols added: named frames refer to them, stacks do not. */
static int mark_named(struct sq *s, struct diag *reterr_diag)
{
	sqlite3_stmt *st = NULL;
	int r;

	pthread_mutex_lock(&s->write_lock);
	r = sqlite3_prepare_v2(s->writer->db, "SELECT n,named FROM frames WHERE named IS NOT NULL",
			       -1, &st, NULL);
	while (r == SQLITE_OK || r == SQLITE_ROW) {
		u64 n;

		r = sqlite3_step(st);
		if (r != SQLITE_ROW)
			break;
		n = (u64)sqlite3_column_int64(st, 0);
		if (n >= (u64)s->marks[SQ_FRAMES].limit ||
		    s->marks[SQ_FRAMES].bits[n / 8] >> n % 8 & 1)
			mark_list(s, SQ_FRAMES, st, 1, true);
	}
	r = r == SQLITE_DONE ? 0 : sq_error(s->writer, "cannot read", reterr_diag);
	sqlite3_finalize(st);
	pthread_mutex_unlock(&s->write_lock);
	return r;
}

int sq_mark_named(struct sq *s, s64 n, struct diag *reterr_diag)
{
	sqlite3_stmt *st;
	int r;

	if (!s->marks[SQ_FRAMES].bits)
		return 0;
	st = sq_get(s->writer, SQL_NAMED_OF_FRAME);
	if (!st)
		return sq_error(s->writer, "cannot read", reterr_diag);
	sqlite3_bind_int64(st, 1, n);
	r = sqlite3_step(st);
	if (r == SQLITE_ROW)
		mark_list(s, SQ_FRAMES, st, 0, true);
	r = r == SQLITE_ROW || r == SQLITE_DONE ? 0
						: sq_error(s->writer, "cannot read", reterr_diag);
	sqlite3_reset(st);
	return r;
}

/* In a transaction: deletes up to SWEEP_ROWS unmarked rows from *at on. */
static int sweep_some(struct sq *s, enum sq_table table, sqlite3_stmt *del, s64 *at,
		      struct diag *reterr_diag)
{
	const struct sq_marks *m = &s->marks[table];
	u32 n = 0;

	for (; *at < m->limit && n < SWEEP_ROWS; ++*at) {
		if (m->bits[*at / 8] >> *at % 8 & 1)
			continue;
		sqlite3_reset(del);
		sqlite3_bind_int64(del, 1, *at);
		if (sqlite3_step(del) != SQLITE_DONE)
			return sq_error(s->writer, "cannot sweep", reterr_diag);
		n++;
	}
	return 0;
}

static int sweep_table(struct sq *s, enum sq_table table, struct diag *reterr_diag)
{
	s64 at = 1;
	int r = 0;

	while (r == 0 && at < s->marks[table].limit) {
		_cleanup_sq_change_ struct sq_change none = {};
		_cleanup_str_ struct str text = {};
		sqlite3_stmt *del = NULL;

		str_printf(&text, "DELETE FROM %s WHERE n=?", sq_table_names[table]);
		pthread_mutex_lock(&s->write_lock);
		r = sq_begin(s, reterr_diag);
		if (r == 0 &&
		    sqlite3_prepare_v2(s->writer->db, str_get(&text), -1, &del, NULL) != SQLITE_OK)
			r = sq_error(s->writer, "cannot sweep", reterr_diag);
		if (r == 0)
			r = sweep_some(s, table, del, &at, reterr_diag);
		sqlite3_finalize(del);
		r = sq_end(s, r, &none, reterr_diag);
		pthread_mutex_unlock(&s->write_lock);
	}
	return r;
}

static int mark_and_sweep(struct sq *s, struct diag *reterr_diag)
{
	int r = mark_blocks(s, reterr_diag);

	if (r == 0)
		r = sweep_table(s, SQ_STACKS, reterr_diag);
	if (r == 0)
		r = sweep_table(s, SQ_SERIES, reterr_diag);
	if (r == 0)
		r = mark_from(s, SQ_STACKS, reterr_diag);
	if (r == 0)
		r = mark_named(s, reterr_diag);
	if (r == 0)
		r = sweep_table(s, SQ_FRAMES, reterr_diag);
	if (r == 0)
		r = mark_from(s, SQ_FRAMES, reterr_diag);
	if (r == 0)
		r = sweep_table(s, SQ_FUNCTIONS, reterr_diag);
	return r < 0 ? r : sweep_table(s, SQ_MAPPINGS, reterr_diag);
}

int sq_collect_dictionaries(struct sq *s, struct diag *reterr_diag)
{
	u64 rows = 0;
	int r;

	pthread_rwlock_rdlock(&s->list_lock);
	vec_foreach (&s->entries, e)
		rows += e->rows;
	pthread_rwlock_unlock(&s->list_lock);
	if (!WORTH(s->evicted_since_gc, rows))
		return 0;
	r = start_marking(s);
	if (r < 0)
		return diag_set(reterr_diag, r, "out of memory");
	r = mark_and_sweep(s, reterr_diag);
	pthread_mutex_lock(&s->write_lock);
	stop_marking(s);
	pthread_mutex_unlock(&s->write_lock);
	s->evicted_since_gc = 0;
	return sq_is_damage(r) ? 0 : r;
}
