/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, repairs and writes the file of spans. See spans.h. */
#include "server/store/sqlite/spans.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/store/sqlite/maintain.h"
#include "server/store/sqlite/repair.h"

#define LEVEL_NEW 1 /* of zstd; low, because new blocks are merged soon */
#define MAX_CHECKED_BYTES (256ULL << 20)
#define MAX_BAD_ROWS 10000 /* a repair ends after so many successive bad rows */

static const char schema[] =
	"PRAGMA application_id=1668639857;"
	"CREATE TABLE span_blocks(n INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL,"
	" hour INTEGER NOT NULL, thinned INTEGER NOT NULL, first INTEGER NOT NULL,"
	" last INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,"
	" sum INTEGER NOT NULL, filter BLOB NOT NULL, a BLOB NOT NULL, b BLOB NOT NULL);"
	/* The index covers all columns that the list needs, because rows are large. */
	"CREATE INDEX span_blocks_list ON span_blocks(kind,first,last,hour,thinned,rows,bytes);"
	"CREATE TABLE tokens(token BLOB PRIMARY KEY, ms INTEGER NOT NULL) WITHOUT ROWID;"
	"PRAGMA user_version=1;";

static int on_wal(void *arg, sqlite3 *db, const char *name, int pages)
{
	((struct sq_spans *)arg)->wal_pages = pages;
	return SQLITE_OK;
}

u64 sq_spans_bytes(const struct sq_spans *p)
{
	return sq_files_bytes(p->path);
}

/* ---- opening ---- */

static int create_schema(struct sq_spans *p, struct diag *reterr_diag)
{
	sqlite3 *db = p->writer->db;
	s64 version = 0;

	if (sq_number(p->writer, "PRAGMA user_version", &version) < 0)
		return sq_error(p->writer, p->path, reterr_diag);
	if (version > 1)
		return diag_set(reterr_diag, -EINVAL, "%s was written by a newer culprit", p->path);
	if (version == 1)
		return 0;
	if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_exec(db, schema, NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
		return sq_error(p->writer, p->path, reterr_diag);
	return 0;
}

static int check_pages(struct sq_spans *p, struct diag *reterr_diag)
{
	if (sq_spans_bytes(p) > MAX_CHECKED_BYTES ||
	    sq_pages_are_whole(p->writer, "PRAGMA quick_check(1)"))
		return 0;
	return diag_set(reterr_diag, -EBADMSG, "some of its pages are damaged");
}

static void close_file(struct sq_spans *p, bool keep_log)
{
	if (p->writer && keep_log)
		sqlite3_db_config(p->writer->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	sq_disconnect(p->writer);
	p->writer = NULL;
}

static int open_file(struct sq_spans *p, struct diag *reterr_diag)
{
	int r = sq_connect(p->path, true, reterr_diag, &p->writer);

	if (r == 0 && sqlite3_exec(p->writer->db,
				   "PRAGMA page_size=4096; PRAGMA auto_vacuum=INCREMENTAL;"
				   "PRAGMA journal_mode=WAL",
				   NULL, NULL, NULL) != SQLITE_OK)
		r = sq_error(p->writer, p->path, reterr_diag);
	if (r == 0)
		r = create_schema(p, reterr_diag);
	if (r == 0)
		r = check_pages(p, reterr_diag);
	if (r < 0) {
		close_file(p, true);
		return r;
	}
	sqlite3_wal_hook(p->writer->db, on_wal, p);
	if (pwrite(p->s->lock_fd, "11", 2, 0) != 2)
		log_debug("%s/lock cannot be written: %s", p->s->dir, strerror(errno));
	p->exists = true;
	return 0;
}

/* ---- a damaged file ---- */

static int copy_row(struct sq_spans *p, sqlite3_stmt *from)
{
	sqlite3_stmt *to = sq_get(p->writer, SQL_ADD_SPAN_BLOCK);

	if (!to)
		return -EIO;
	for (int i = 0; i < 11; i++)
		sqlite3_bind_value(to, i + 1, sqlite3_column_value(from, i));
	return sqlite3_step(to) == SQLITE_DONE ? 0 : -EIO;
}

/* Copies the rows whose checksums are right, as far as SQLite can read the file. */
static void copy_whole_rows(struct sq_spans *p, struct sq_conn *from)
{
	u32 bad = 0;

	for (s64 n = 1; bad < MAX_BAD_ROWS; n++) {
		sqlite3_stmt *st = sq_get(from, SQL_GET_SPAN_BLOCK);

		if (!st)
			return;
		sqlite3_bind_int64(st, 1, n);
		if (sqlite3_step(st) != SQLITE_ROW ||
		    sq_span_block_sum(st) != (u64)sqlite3_column_int64(st, 7)) {
			bad++;
			continue;
		}
		bad = 0;
		if (copy_row(p, st) < 0)
			return;
	}
}

static void move_aside(const struct sq_spans *p, const char *to)
{
	static const char *const parts[] = {"", "-wal", "-shm"};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		_cleanup_str_ struct str a = {}, b = {};

		str_printf(&a, "%s%s", p->path, parts[i]);
		str_printf(&b, "%s%s", to, parts[i]);
		rename(str_get(&a), str_get(&b));
	}
}

/* Replaces a damaged file by a new one with the whole rows. Renames the damaged file. */
static int renew_file(struct sq_spans *p, const char *why, struct diag *reterr_diag)
{
	_cleanup_str_ struct str to = {};
	struct sq_conn *from = NULL;
	int r;

	close_file(p, true);
	str_printf(&to, "%s.damaged-%llu", p->path, clock_epoch_ms() / 1000);
	log_warn("%s: %s; copying what is whole, the damaged file is kept as %s", p->path, why,
		 str_get(&to));
	move_aside(p, str_get(&to));
	r = open_file(p, reterr_diag);
	if (r == 0 && sq_connect_damaged(str_get(&to), NULL, &from) == 0) {
		if (sq_spans_begin(p, NULL) == 0) {
			copy_whole_rows(p, from);
			(void)sq_copy_tokens(from, p->writer, NULL);
			(void)sq_spans_end(p, 0, NULL);
		}
		sq_disconnect(from);
	}
	p->damaged++;
	p->broken = false;
	return r;
}

/* Moves the log aside: its old pages must not replace newer ones in the file. */
static void drop_stale_log(struct sq_spans *p)
{
	_cleanup_str_ struct str log = {}, index = {}, to = {};

	p->damaged++;
	log_warn("%s: its log has lost transactions", p->path);
	str_printf(&log, "%s-wal", p->path);
	str_printf(&index, "%s-shm", p->path);
	str_printf(&to, "%s.damaged-%llu-wal", p->path, clock_epoch_ms() / 1000);
	rename(str_get(&log), str_get(&to));
	unlink(str_get(&index));
}

/* Counts the files that were moved aside: while they are there, the store reports damage. */
static u64 count_aside(const struct sq_spans *p)
{
	DIR *d = opendir(p->s->dir);
	struct dirent *e;
	u64 n = 0;

	while (d && (e = readdir(d)))
		n += str_starts(e->d_name, SQ_SPANS_FILE ".damaged-") &&
		     !str_ends(e->d_name, "-shm");
	if (d)
		closedir(d);
	return n;
}

/* The directory's lock file has a byte for each database that has ever existed. */
static bool was_emptied(const struct sq_spans *p)
{
	struct stat lock, file;

	return fstat(p->s->lock_fd, &lock) == 0 && lock.st_size > 1 && stat(p->path, &file) == 0 &&
	       !file.st_size;
}

static int open_or_renew(struct sq_spans *p, struct diag *reterr_diag)
{
	enum sq_log log = sq_check_log(p->path);
	struct diag why = {};
	int r;

	if (was_emptied(p)) {
		r = diag_set(&why, -EBADMSG, "it is empty");
	} else if (log == SQ_LOG_SHORT) {
		r = diag_set(&why, -EBADMSG, "its log has lost transactions");
	} else {
		if (log != SQ_LOG_WHOLE)
			drop_stale_log(p);
		r = open_file(p, &why);
	}
	if (sq_is_damage(r))
		r = renew_file(p, why.text, &why);
	return r < 0 ? diag_set(reterr_diag, r, "%s", why.text) : 0;
}

int sq_spans_open(struct sq *s, struct diag *reterr_diag)
{
	struct sq_spans *p = calloc(1, sizeof(*p));
	_cleanup_str_ struct str path = {};

	if (!p)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	s->spans = p;
	p->s = s;
	p->max_bytes = s->limits.span_bytes;
	pthread_mutex_init(&p->write_lock, NULL);
	str_printf(&path, "%s/%s", s->dir, SQ_SPANS_FILE);
	p->path = strdup(str_get(&path));
	if (!p->path)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	p->damaged = count_aside(p);
	if (access(p->path, F_OK) < 0)
		return 0;
	return open_or_renew(p, reterr_diag);
}

void sq_spans_close(struct sq *s)
{
	if (!s->spans)
		return;
	close_file(s->spans, false);
	pthread_mutex_destroy(&s->spans->write_lock);
	free(s->spans->path);
	free(s->spans);
	s->spans = NULL;
}

/* ---- writing ---- */

static u64 block_sum(const struct sq_span_entry *e, const void *filter, size_t n_filter,
		     const void *a, size_t n_a, const void *b, size_t n_b)
{
	u64 parts[] = {e->kind,
		       e->hour,
		       e->thinned,
		       e->first_ms,
		       e->last_ms,
		       e->rows,
		       e->bytes,
		       hash_bytes(filter, n_filter),
		       hash_bytes(a, n_a),
		       hash_bytes(b, n_b)};

	return hash_bytes(parts, sizeof(parts));
}

u64 sq_span_block_sum(sqlite3_stmt *st)
{
	struct sq_span_entry e = {
		.kind = (u32)sqlite3_column_int64(st, 0),
		.hour = (u32)sqlite3_column_int64(st, 1),
		.thinned = (u32)sqlite3_column_int64(st, 2),
		.first_ms = (u64)sqlite3_column_int64(st, 3),
		.last_ms = (u64)sqlite3_column_int64(st, 4),
		.rows = (u64)sqlite3_column_int64(st, 5),
		.bytes = (u64)sqlite3_column_int64(st, 6),
	};
	const void *parts[3];
	size_t sizes[3];

	for (int i = 0; i < 3; i++) {
		parts[i] = sqlite3_column_blob(st, 8 + i);
		sizes[i] = (size_t)sqlite3_column_bytes(st, 8 + i);
		parts[i] = parts[i] ? parts[i] : "";
	}
	return block_sum(&e, parts[0], sizes[0], parts[1], sizes[1], parts[2], sizes[2]);
}

static int add_block(struct sq_spans *p, struct sq_span_entry *e, const struct span_filter *filter,
		     const struct str *a, const struct str *b, struct diag *reterr_diag)
{
	sqlite3_stmt *st = sq_get(p->writer, SQL_ADD_SPAN_BLOCK);
	int r = -EIO;

	if (st) {
		e->bytes = filter->n + a->n + b->n;
		sqlite3_bind_int64(st, 1, e->kind);
		sqlite3_bind_int64(st, 2, e->hour);
		sqlite3_bind_int64(st, 3, e->thinned);
		sqlite3_bind_int64(st, 4, (s64)e->first_ms);
		sqlite3_bind_int64(st, 5, (s64)e->last_ms);
		sqlite3_bind_int64(st, 6, (s64)e->rows);
		sqlite3_bind_int64(st, 7, (s64)e->bytes);
		sqlite3_bind_int64(st, 8,
				   (s64)block_sum(e, filter->bits, filter->n, str_get(a), a->n,
						  str_get(b), b->n));
		sqlite3_bind_blob(st, 9, filter->bits, (int)filter->n, SQLITE_STATIC);
		sqlite3_bind_blob(st, 10, str_get(a), (int)a->n, SQLITE_STATIC);
		sqlite3_bind_blob(st, 11, str_get(b), (int)b->n, SQLITE_STATIC);
		r = sqlite3_step(st) == SQLITE_DONE ? 0 : -EIO;
		if (r == 0)
			sqlite3_reset(st);
	}
	return r < 0 ? sq_error(p->writer, "cannot write spans", reterr_diag) : 0;
}

static void note_time(struct sq_span_entry *e, u64 ms)
{
	if (!e->rows || ms < e->first_ms)
		e->first_ms = ms;
	e->last_ms = MAX(e->last_ms, ms);
	e->rows++;
}

int sq_put_spans(struct sq_spans *p, const struct spans *s, const u32 *order, size_t n, u32 hour,
		 u32 thinned, int level, struct diag *reterr_diag)
{
	struct sq_span_entry e = {.kind = SQ_KIND_SPANS, .hour = hour, .thinned = thinned};
	_cleanup_free_ u32 *parts = reallocarray(NULL, n + 1, 2 * sizeof(*parts));
	_cleanup_str_ struct str a = {}, b = {};
	struct span_filter filter = {};
	size_t n_a = 0, n_b = 0;
	int r = parts ? span_filter_init(&filter, n) : -ENOMEM;

	for (size_t i = 0; i < n && r == 0; i++) {
		const struct span *of = &s->spans.data[order[i]];

		if (of->flags & SPAN_ROOT)
			parts[n_a++] = order[i];
		else
			parts[n + n_b++] = order[i];
		span_filter_add(&filter, of->trace_id);
		note_time(&e, of->start_ns / 1000000);
	}
	if (r == 0)
		r = span_part_encode(s, parts, n_a, level, &a);
	if (r == 0)
		r = span_part_encode(s, parts + n, n_b, level, &b);
	r = r < 0 ? diag_set(reterr_diag, r, "cannot write spans: %s", strerror(-r))
		  : add_block(p, &e, &filter, &a, &b, reterr_diag);
	span_filter_deinit(&filter);
	return r;
}

int sq_put_links(struct sq_spans *p, const struct store_links *l, const u32 *order, size_t n,
		 u32 hour, u32 thinned, int level, struct diag *reterr_diag)
{
	struct sq_span_entry e = {.kind = SQ_KIND_LINKS, .hour = hour, .thinned = thinned};
	_cleanup_str_ struct str a = {}, b = {};
	struct span_filter filter = {};
	int r = span_filter_init(&filter, n);

	for (size_t i = 0; i < n && r == 0; i++) {
		span_filter_add(&filter, l->links.data[order[i]].link.trace_id);
		note_time(&e, l->links.data[order[i]].time_ms);
	}
	if (r == 0)
		r = link_part_encode(l, order, n, level, &a);
	r = r < 0 ? diag_set(reterr_diag, r, "cannot write samples of spans: %s", strerror(-r))
		  : add_block(p, &e, &filter, &a, &b, reterr_diag);
	span_filter_deinit(&filter);
	return r;
}

int sq_spans_begin(struct sq_spans *p, struct diag *reterr_diag)
{
	return sq_run(p->writer, SQL_BEGIN_WRITE) < 0
		       ? sq_error(p->writer, "cannot begin to write", reterr_diag)
		       : 0;
}

int sq_spans_end(struct sq_spans *p, int r, struct diag *reterr_diag)
{
	sq_reset_all(p->writer);
	if (r == 0 && sq_run(p->writer, SQL_COMMIT) < 0)
		r = sq_error(p->writer, "cannot write", reterr_diag);
	if (r != 0) {
		sq_run(p->writer, SQL_ROLLBACK);
	} else if ((u64)p->wal_pages * SQ_PAGE > MIN(p->max_bytes / 16, 64ULL << 20)) {
		sq_truncate_log(p->writer);
	}
	return r;
}

/* Like sq_take_token(), but the spans and the links of one token are two batches. */
static int take_token(struct sq_spans *p, enum sq_kind kind, const u8 of[16],
		      struct diag *reterr_diag)
{
	u8 token[16];

	memcpy(token, of, sizeof(token));
	token[15] ^= kind == SQ_KIND_LINKS ? 0xff : 0;
	return sq_take_token(p->writer, token, reterr_diag);
}

struct batch {
	const struct spans *spans; /* either spans or links; the other is NULL */
	const struct store_links *links;
	u32 *order; /* owned; sorted by hour, then in the order of a block */
	size_t n;
};

static u64 hour_of(const struct batch *b, u32 at)
{
	return b->spans ? b->spans->spans.data[at].start_ns / 1000000 / BLOCK_HOUR_MS
			: b->links->links.data[at].time_ms / BLOCK_HOUR_MS;
}

static int compare_order(const void *x, const void *y, void *arg)
{
	const struct batch *b = arg;
	u32 i = *(const u32 *)x, k = *(const u32 *)y;
	u64 hour_i = hour_of(b, i), hour_k = hour_of(b, k);

	if (hour_i != hour_k)
		return hour_i < hour_k ? -1 : 1;
	return b->spans ? span_compare(&b->spans->spans.data[i], &b->spans->spans.data[k])
			: link_compare(&b->links->links.data[i], &b->links->links.data[k]);
}

static int write_batch(struct sq_spans *p, const struct batch *b, const u8 *token,
		       struct diag *reterr_diag)
{
	int r = sq_spans_begin(p, reterr_diag);
	size_t to;

	if (r == 0 && token)
		r = take_token(p, b->spans ? SQ_KIND_SPANS : SQ_KIND_LINKS, token, reterr_diag);
	for (size_t from = 0; from < b->n && r == 0; from = to) {
		u64 hour = hour_of(b, b->order[from]);

		for (to = from; to < b->n && to - from < SPAN_BLOCK_ROWS; to++)
			if (hour_of(b, b->order[to]) != hour)
				break;
		r = b->spans ? sq_put_spans(p, b->spans, b->order + from, to - from, (u32)hour, 0,
					    LEVEL_NEW, reterr_diag)
			     : sq_put_links(p, b->links, b->order + from, to - from, (u32)hour, 0,
					    LEVEL_NEW, reterr_diag);
	}
	r = sq_spans_end(p, r, reterr_diag);
	return MIN(r, 0);
}

static int make_room(struct sq_spans *p, struct diag *reterr_diag)
{
	int r = 0;

	if (sq_spans_bytes(p) > p->max_bytes - p->max_bytes / 16)
		r = sq_spans_make_smaller(p, reterr_diag);
	if (r == 0 && !sq_has_room(p->s))
		r = diag_set(reterr_diag, -ENOSPC,
			     "no space left for %s: free some, or use a smaller --spans-max-size",
			     p->path);
	return r;
}

static int write_sorted(struct sq_spans *p, struct batch *b, const u8 *token,
			struct diag *reterr_diag)
{
	struct diag why = {};
	int r = 0;

	if (sq_make_order(b->n, &b->order) < 0)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	qsort_r(b->order, b->n, sizeof(*b->order), compare_order, b);
	pthread_mutex_lock(&p->write_lock);
	if (!p->writer)
		r = open_file(p, &why);
	if (r == 0)
		r = p->broken ? -EBADMSG : make_room(p, &why);
	if (r == 0)
		r = write_batch(p, b, token, &why);
	if (sq_is_damage(r))
		p->broken = true;
	pthread_mutex_unlock(&p->write_lock);
	free(b->order);
	if (sq_is_damage(r))
		return diag_set(reterr_diag, -EAGAIN,
				"the store of spans is damaged and will be repaired: send it again "
				"later");
	return r < 0 ? diag_set(reterr_diag, r, "cannot store: %s",
				why.text[0] ? why.text : strerror(-r))
		     : 0;
}

int sq_write_spans(struct store *base, const struct spans *s, const u8 token[16],
		   struct diag *reterr_diag)
{
	struct batch b = {.spans = s, .n = s->spans.n};

	return s->spans.n ? write_sorted(sq_of(base)->spans, &b, token, reterr_diag) : 0;
}

int sq_write_links(struct sq *s, const struct store_links *l, const u8 token[16],
		   struct diag *reterr_diag)
{
	struct batch b = {.links = l, .n = l->links.n};

	return l->links.n ? write_sorted(s->spans, &b, token, reterr_diag) : 0;
}

/* ---- figures, maintenance ---- */

static u64 count_rows(struct sq_conn *c, enum sq_kind kind)
{
	s64 n = 0;

	return sq_number(c,
			 kind == SQ_KIND_SPANS
				 ? "SELECT ifnull(sum(rows),0) FROM span_blocks WHERE kind=0"
				 : "SELECT ifnull(sum(rows),0) FROM span_blocks WHERE kind=1",
			 &n) < 0
		       ? 0
		       : (u64)n;
}

void sq_spans_stats(struct sq *s, struct store_stats *ret)
{
	struct sq_spans *p = s->spans;
	struct sq_conn *c;

	ret->damaged += p->damaged;
	ret->evicted_spans = p->evicted;
	if (!p->exists || sq_connect(p->path, false, NULL, &c) < 0)
		return;
	ret->spans = count_rows(c, SQ_KIND_SPANS);
	ret->span_samples = count_rows(c, SQ_KIND_LINKS);
	ret->span_bytes = sq_spans_bytes(p);
	sq_disconnect(c);
}

int sq_spans_maintain(struct sq *s, u64 now_ms, struct diag *reterr_diag)
{
	struct sq_spans *p = s->spans;
	int r = 0;

	if (!p->exists)
		return 0;
	pthread_mutex_lock(&p->write_lock);
	if (p->broken)
		r = renew_file(p, "it is damaged", reterr_diag);
	pthread_mutex_unlock(&p->write_lock);
	if (r == 0)
		r = sq_spans_tidy(p, now_ms, reterr_diag);
	if (sq_is_damage(r)) {
		p->broken = true;
		r = 0;
	}
	return r;
}
