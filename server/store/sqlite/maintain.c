/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maintenance: evicts old blocks, merges small ones, and rounds the times of old samples.
 *
 * The maintainer's thread calls this, and so do writers that need room; maintain_lock keeps them
 * apart. Blocks are merged from a reader's snapshot without any other lock, which is safe because
 * nobody else removes blocks. write_lock is held for one transaction at a time, which replaces the
 * inputs of a merge by its output.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "server/store/sqlite/maintain.h"
#include "server/store/sqlite/repair.h"
#include "server/store/sqlite/scan.h"
#include "server/store/sqlite/spans.h"

#define OPEN_HOUR_MS 300000ULL /* late samples of an hour may arrive for this long after the hour */
#define TOKEN_MS (2 * 3600000LL) /* how long tokens are kept */
#define MAX_INPUTS 64
#define MIN_INPUTS 8   /* blocks of the same level, while the hour is not over */
#define LEVEL_MERGED 3 /* of zstd */
#define BUDGET_NS 1500000000ULL
#define EVICT_BLOCKS 64 /* blocks in one transaction */

/* ---- retention ---- */

static int evict_blocks(struct sq *s, const struct sq_entry *entries, size_t n,
			enum store_eviction why, struct diag *reterr_diag)
{
	_cleanup_sq_change_ struct sq_change c = {};
	u64 rows = 0, first_ms = ~0ULL, last_ms = 0;
	int r;

	pthread_mutex_lock(&s->write_lock);
	r = sq_begin(s, reterr_diag);
	for (size_t i = 0; i < n && r == 0; i++) {
		sqlite3_stmt *st = sq_get(s->writer, SQL_DEL_BLOCK);

		rows += entries[i].rows;
		first_ms = MIN(first_ms, entries[i].first_ms);
		last_ms = MAX(last_ms, entries[i].last_ms);
		if (!st || sqlite3_bind_int64(st, 1, entries[i].n) != SQLITE_OK ||
		    sqlite3_step(st) != SQLITE_DONE)
			r = sq_error(s->writer, "cannot remove a block", reterr_diag);
		if (r == 0)
			r = vec_push(&c.removed, entries[i].n);
	}
	r = sq_end(s, r, &c, reterr_diag);
	pthread_mutex_unlock(&s->write_lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&s->pool_lock);
	s->evicted_rows += rows;
	for (size_t i = 0; i < n; i++)
		map_del(&s->damaged, (u64)entries[i].n, NULL);
	pthread_mutex_unlock(&s->pool_lock);
	s->evicted_since_gc += rows;
	store_note_evicted(&s->base, why, rows, first_ms, last_ms);
	s->names_to_sweep = true;
	return 0;
}

static int compare_last(const void *a, const void *b)
{
	const struct sq_entry *x = a, *y = b;

	if (x->last_ms != y->last_ms)
		return x->last_ms < y->last_ms ? -1 : 1;
	return x->n < y->n ? -1 : x->n > y->n;
}

struct entries {
	vec(struct sq_entry) list;
	u64 rows;
};

static void entries_deinit(struct entries *e)
{
	vec_deinit(&e->list);
}
#define _cleanup_entries_ __attribute__((cleanup(entries_deinit)))

static int copy_entries(struct sq *s, struct entries *ret)
{
	int r;

	pthread_rwlock_rdlock(&s->list_lock);
	r = vec_reserve(&ret->list, s->entries.n);
	vec_foreach (&s->entries, e)
		if (r == 0) {
			ret->list.data[ret->list.n++] = *e;
			ret->rows += e->rows;
		}
	pthread_rwlock_unlock(&s->list_lock);
	return r;
}

static int evict_expired(struct sq *s, u64 now_ms, struct diag *reterr_diag)
{
	_cleanup_entries_ struct entries all = {}, old = {};
	u64 age_ms = s->limits.max_age_s * 1000, before = now_ms > age_ms ? now_ms - age_ms : 0;
	int r = copy_entries(s, &all);

	vec_foreach (&all.list, e)
		if (r == 0 && e->last_ms < before)
			r = vec_push(&old.list, *e);
	for (size_t i = 0; i < old.list.n && r == 0; i += EVICT_BLOCKS)
		r = evict_blocks(s, old.list.data + i, MIN(old.list.n - i, (size_t)EVICT_BLOCKS),
				 STORE_EVICT_AGE, reterr_diag);
	return r;
}

/* Returns the bytes of pages in use and of free pages. */
static int used_bytes(struct sq *s, u64 *ret_used, u64 *ret_free)
{
	s64 size = 0, pages = 0, unused = 0;
	struct sq_conn *c;
	int r = sq_reader_get(s, NULL, &c);

	if (r < 0)
		return r;
	if (sq_number(c, "PRAGMA page_size", &size) < 0 ||
	    sq_number(c, "PRAGMA page_count", &pages) < 0 ||
	    sq_number(c, "PRAGMA freelist_count", &unused) < 0)
		r = -EIO;
	sq_reader_put(s, c);
	*ret_used = (u64)(pages - unused) * (u64)size;
	*ret_free = (u64)unused * (u64)size;
	return r;
}

/*
 * Evicts the oldest blocks until the size is within the limit or an eighth of all rows is evicted.
 * In the second case the caller collects the dictionaries first, which may free enough.
 */
static int evict_oldest(struct sq *s, u64 limit, bool *ret_any, struct diag *reterr_diag)
{
	_cleanup_entries_ struct entries all = {};
	u64 used, unused, rows = 0;
	size_t at = 0;
	int r = copy_entries(s, &all);

	if (r == 0 && all.list.n)
		qsort(all.list.data, all.list.n, sizeof(*all.list.data), compare_last);
	while (r == 0 && at < all.list.n && rows <= all.rows / 8) {
		u64 bytes = 0;
		size_t n = 0;

		r = used_bytes(s, &used, &unused);
		if (r < 0 || used <= limit)
			break;
		while (at + n < all.list.n && n < EVICT_BLOCKS && bytes < used - limit &&
		       rows <= all.rows / 8) {
			bytes += all.list.data[at + n].bytes;
			rows += all.list.data[at + n++].rows;
		}
		r = evict_blocks(s, all.list.data + at, n, STORE_EVICT_SIZE, reterr_diag);
		at += n;
	}
	*ret_any = at > 0;
	return r;
}

/*
 * How max_bytes is shared out: blocks are evicted until three quarters are in use, the file is cut
 * to seven eighths, and a sixteenth is for the log. The rest is for batches until the next call; a
 * writer that finds no space left evicts by itself (sq_make_smaller()).
 */
static int evict_beyond_size(struct sq *s, struct diag *reterr_diag)
{
	u64 limit = s->limits.max_bytes - MIN(s->limits.max_bytes / 4, 512ULL << 20), used, unused;
	bool more = true;
	int r;

	while ((r = used_bytes(s, &used, &unused)) == 0 && used > limit && more) {
		r = evict_oldest(s, limit, &more, reterr_diag);
		if (r == 0)
			r = sq_collect_dictionaries(s, reterr_diag);
		if (r < 0)
			break;
	}
	return r;
}

/* How many pages are moved at once. They go through the log, for which room may be short. */
#define SHRINK_PAGES "256"

/* Returns free pages to the file system when there are many. */
static int shrink_file(struct sq *s, u64 until_ns, struct diag *reterr_diag)
{
	u64 used, unused, before = ~0ULL;
	int r;

	while ((r = used_bytes(s, &used, &unused)) == 0 && unused && used + unused < before &&
	       clock_ns(CLOCK_MONOTONIC) < until_ns) {
		if (used + unused <=
			    s->limits.max_bytes - MIN(s->limits.max_bytes / 8, 256ULL << 20) &&
		    unused <= used / 4 + (4 << 20))
			break;
		before = used + unused;
		pthread_mutex_lock(&s->write_lock);
		if (sqlite3_exec(s->writer->db, "PRAGMA incremental_vacuum(" SHRINK_PAGES ")", NULL,
				 NULL, NULL) != SQLITE_OK)
			r = sq_error(s->writer, "cannot shrink", reterr_diag);
		sq_checkpoint(s);
		pthread_mutex_unlock(&s->write_lock);
		if (r < 0)
			break;
	}
	return r;
}

/* ---- merging ---- */

/* Where the samples of a block are merged to, and with which resolution. */
struct merging {
	u64 resolution; /* ms; 1 = times are not rounded */
	u64 from_hour;	/* the first hour of the bucket */
	u64 level;
	bool open; /* more samples are expected */
};

/*
 * The bucket of a block is its hour or, if the resolution exceeds an hour, the period of that
 * length around the hour. The end of the bucket decides about its age, so that all of the bucket is
 * rounded at once.
 */
static struct merging merging_of(const struct sq *s, const struct sq_entry *e, u64 now_ms)
{
	u64 end = (e->hour + 1ULL) * BLOCK_HOUR_MS;
	struct merging m = {.from_hour = e->hour, .level = e->level};

	m.open = end + OPEN_HOUR_MS > now_ms;
	m.resolution = MAX(now_ms > end ? store_resolution_ms(&s->limits, now_ms - end) : 1,
			   e->resolution);
	if (m.resolution > BLOCK_HOUR_MS) {
		u64 hours = m.resolution / BLOCK_HOUR_MS;

		m.from_hour = e->hour / hours * hours;
		end = (m.from_hour + hours) * BLOCK_HOUR_MS;
		/* The youngest hour of the bucket is not old enough for this resolution. */
		if (now_ms <= end || store_resolution_ms(&s->limits, now_ms - end) < m.resolution) {
			m.resolution = MAX(e->resolution, BLOCK_HOUR_MS);
			m.from_hour = e->hour;
		}
	}
	return m;
}

struct candidate {
	struct sq_entry e;
	struct merging m;
};

static int compare_candidates(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	u64 keys[][2] = {{x->e.service, y->e.service},
			 {x->e.type, y->e.type},
			 {x->m.from_hour, y->m.from_hour},
			 {x->m.resolution, y->m.resolution},
			 {x->m.open ? x->m.level : 0, y->m.open ? y->m.level : 0},
			 {x->e.rows, y->e.rows},
			 {(u64)x->e.n, (u64)y->e.n}};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (keys[i][0] != keys[i][1])
			return keys[i][0] < keys[i][1] ? -1 : 1;
	return 0;
}

static bool same_bucket(const struct candidate *a, const struct candidate *b)
{
	return a->e.service == b->e.service && a->e.type == b->e.type &&
	       a->m.from_hour == b->m.from_hour && a->m.resolution == b->m.resolution &&
	       a->m.open == b->m.open && (!a->m.open || a->m.level == b->m.level);
}

/*
 * How many blocks of a bucket, smallest first, to merge now; 0 for none. A large block is not
 * rewritten for the sake of a few small ones, so that each row is written only a few times.
 */
static size_t choose_inputs(const struct candidate *c, size_t n)
{
	u64 rows = 0;
	size_t k = 0;

	if (c[0].m.open && n < MIN_INPUTS)
		return 0;
	while (k < n && k < MAX_INPUTS && rows + c[k].e.rows <= BLOCK_MAX_ROWS) {
		bool rounds = c[k].m.resolution > c[k].e.resolution;

		if (k && !rounds && !c[0].m.open && c[k].e.rows > 4 * rows && k < MIN_INPUTS)
			break;
		rows += c[k++].e.rows;
	}
	if (k == 1 && c[0].m.resolution == c[0].e.resolution)
		return 0;
	return k;
}

static int open_inputs(struct sq *s, struct sq_conn *conn, const struct candidate *c, size_t n,
		       struct block_cursor *cursors, u32 *shift, struct sq_change *change,
		       size_t *ret_n)
{
	for (size_t i = 0; i < n; i++) {
		int r = sq_open_block(s, conn, c[i].e.n, &cursors[*ret_n]);

		/* A damaged block stays where it is until it is evicted. */
		if (sq_is_damage(r)) {
			sq_note_damaged_block(s, c[i].e.n);
			continue;
		}
		if (r < 0)
			return r;
		shift[(*ret_n)++] = (u32)((c[i].e.hour - c[i].m.from_hour) * BLOCK_HOUR_MS);
		r = vec_push(&change->removed, c[i].e.n);
		if (r < 0)
			return r;
	}
	return 0;
}

static int merge_parts(struct sq *s, const struct candidate *c, size_t n, struct sq_change *change,
		       struct block_parts *ret)
{
	_cleanup_free_ struct block_cursor *cursors = calloc(n, sizeof(*cursors));
	u32 shift[MAX_INPUTS];
	struct sq_conn *conn;
	size_t opened = 0;
	int r = cursors ? sq_reader_get(s, NULL, &conn) : -ENOMEM;

	if (r < 0)
		return r;
	r = open_inputs(s, conn, c, n, cursors, shift, change, &opened);
	if (r == 0 && opened)
		r = block_merge(cursors, shift, opened, (u32)c->m.resolution, LEVEL_MERGED, ret);
	for (size_t i = 0; i < opened; i++)
		block_close(&cursors[i]);
	sq_reader_put(s, conn);
	return r;
}

static int replace_blocks(struct sq *s, const struct candidate *c, const struct block_parts *p,
			  struct sq_change *change, struct diag *reterr_diag)
{
	struct sq_entry e = {.service = c->e.service,
			     .type = c->e.type,
			     .hour = (u32)c->m.from_hour,
			     .level = c->e.level + 1,
			     .resolution = c->m.resolution};
	int r;

	pthread_mutex_lock(&s->write_lock);
	r = sq_begin(s, reterr_diag);
	vec_foreach (&change->removed, n) {
		sqlite3_stmt *st = r == 0 ? sq_get(s->writer, SQL_DEL_BLOCK) : NULL;

		if (r == 0 && (!st || sqlite3_bind_int64(st, 1, *n) != SQLITE_OK ||
			       sqlite3_step(st) != SQLITE_DONE))
			r = sq_error(s->writer, "cannot merge blocks", reterr_diag);
	}
	if (r == 0)
		r = sq_add_block(s, &e, p, change, reterr_diag);
	r = sq_end(s, r, change, reterr_diag);
	pthread_mutex_unlock(&s->write_lock);
	return r;
}

static int merge_bucket(struct sq *s, const struct candidate *c, size_t n, struct diag *reterr_diag)
{
	_cleanup_sq_change_ struct sq_change change = {};
	_cleanup_block_parts_ struct block_parts parts = {};
	int r = merge_parts(s, c, n, &change, &parts);

	/* A block has the right checksum and still cannot be decoded: merge none of the blocks. */
	if (sq_is_damage(r)) {
		for (size_t i = 0; i < n; i++)
			sq_note_damaged_block(s, c[i].e.n);
		return 0;
	}
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot merge blocks: %s", strerror(-r));
	return parts.rows ? replace_blocks(s, c, &parts, &change, reterr_diag) : 0;
}

struct candidates {
	vec(struct candidate) list;
};

static void candidates_deinit(struct candidates *c)
{
	vec_deinit(&c->list);
}

static int find_candidates(struct sq *s, u64 now_ms, struct candidates *ret)
{
	_cleanup_entries_ struct entries all = {};
	int r = copy_entries(s, &all);

	vec_foreach (&all.list, e) {
		struct candidate c = {*e, merging_of(s, e, now_ms)};
		bool damaged;

		pthread_mutex_lock(&s->pool_lock);
		damaged = map_get(&s->damaged, (u64)e->n) != NULL;
		pthread_mutex_unlock(&s->pool_lock);
		if (r == 0 && !damaged)
			r = vec_push(&ret->list, c);
	}
	if (ret->list.n)
		qsort(ret->list.data, ret->list.n, sizeof(*ret->list.data), compare_candidates);
	return r;
}

/* Tries to merge each bucket once; *ret_done: whether any bucket was merged. */
static int merge_buckets(struct sq *s, u64 now_ms, u64 until_ns, bool *ret_done,
			 struct diag *reterr_diag)
{
	__attribute__((cleanup(candidates_deinit))) struct candidates c = {};
	size_t to;
	int r = find_candidates(s, now_ms, &c);

	*ret_done = false;
	for (size_t from = 0; from < c.list.n && r == 0 && clock_ns(CLOCK_MONOTONIC) < until_ns;
	     from = to) {
		size_t n;

		for (to = from + 1; to < c.list.n; to++)
			if (!same_bucket(&c.list.data[from], &c.list.data[to]))
				break;
		n = choose_inputs(&c.list.data[from], to - from);
		if (!n)
			continue;
		r = merge_bucket(s, &c.list.data[from], n, reterr_diag);
		*ret_done = true;
	}
	return r;
}

/* ---- all of maintenance ---- */

static int drop_tokens(struct sq *s, u64 now_ms, struct diag *reterr_diag)
{
	sqlite3_stmt *st;
	int r = 0;

	pthread_mutex_lock(&s->write_lock);
	st = sq_get(s->writer, SQL_DEL_TOKENS);
	if (!st || sqlite3_bind_int64(st, 1, (s64)now_ms - TOKEN_MS) != SQLITE_OK ||
	    sqlite3_step(st) != SQLITE_DONE)
		r = sq_error(s->writer, "cannot remove tokens", reterr_diag);
	if (st)
		sqlite3_reset(st);
	pthread_mutex_unlock(&s->write_lock);
	return r;
}

/* Readers may have kept the last checkpoint from emptying the log. */
static void empty_log(struct sq *s)
{
	pthread_mutex_lock(&s->write_lock);
	sq_checkpoint(s);
	pthread_mutex_unlock(&s->write_lock);
}

static int maintain_locked(struct sq *s, u64 now_ms, struct diag *reterr_diag)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + BUDGET_NS;
	bool more = true;
	int r;

	/* First the steps that need no disk space, then the steps that free disk space. */
	empty_log(s);
	r = evict_beyond_size(s, reterr_diag);
	if (r == 0)
		r = evict_expired(s, now_ms, reterr_diag);
	if (r == 0)
		r = shrink_file(s, until, reterr_diag);
	if (r == 0)
		r = drop_tokens(s, now_ms, reterr_diag);
	while (r == 0 && more && clock_ns(CLOCK_MONOTONIC) < until && sq_has_room(s))
		r = merge_buckets(s, now_ms, until, &more, reterr_diag);
	if (r == 0)
		r = sq_collect_dictionaries(s, reterr_diag);
	if (r == 0)
		r = sq_sweep_names(s, reterr_diag);
	empty_log(s);
	return r;
}

int sq_make_smaller(struct sq *s, struct diag *reterr_diag)
{
	int r = 0;

	pthread_mutex_lock(&s->maintain_lock);
	if (sq_is_large(s)) {
		empty_log(s);
		r = evict_beyond_size(s, reterr_diag);
		if (r == 0)
			r = shrink_file(s, clock_ns(CLOCK_MONOTONIC) + BUDGET_NS, reterr_diag);
		empty_log(s);
	}
	pthread_mutex_unlock(&s->maintain_lock);
	return r;
}

int sq_maintain(struct store *base, u64 now_ms, struct diag *reterr_diag)
{
	struct sq *s = sq_of(base);
	int r;

	pthread_mutex_lock(&s->maintain_lock);
	r = s->broken ? sq_repair(s, reterr_diag) : 0;
	if (r == 0)
		r = maintain_locked(s, now_ms, reterr_diag);
	/* The next call repairs the store. */
	if (sq_is_damage(r))
		s->broken = true;
	if (r == 0)
		r = sq_spans_maintain(s, now_ms, reterr_diag);
	pthread_mutex_unlock(&s->maintain_lock);
	return r;
}
