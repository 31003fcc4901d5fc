/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done beside: old blocks go, small ones are merged, times of old ones are rounded.
 *
 * One thread calls this, and writers that need room; maintain_lock keeps them apart. Blocks are
 * merged outside of all other locks, from a reader's snapshot: nobody else removes blocks. The
 * writer's lock is held for one transaction at a time, which takes the merged ones out and puts the
 * new one in.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "server/store/sqlite/spans.h"

#define OPEN_HOUR_MS 300000ULL	 /* an hour may get late samples for so long */
#define TOKEN_MS (2 * 3600000LL) /* how long is "lately" */
#define MAX_INPUTS 64
#define MIN_INPUTS 8 /* of an hour that is not over, and of one level */
#define LEVEL_MERGED 3
#define BUDGET_NS 1500000000LL
#define EVICT_BLOCKS 64

static s64 now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ---- retention ---- */

static int remove_blocks(struct sq *s, const struct sq_entry *entries, size_t n,
			 struct diag *reterr_diag)
{
	_cleanup_sq_change_ struct sq_change c = {};
	u64 rows = 0;
	int r;

	pthread_mutex_lock(&s->write_lock);
	r = sq_begin(s, reterr_diag);
	for (size_t i = 0; i < n && r == 0; i++) {
		sqlite3_stmt *st = sq_get(s->writer, SQL_DEL_BLOCK);

		rows += entries[i].rows;
		if (!st || sqlite3_bind_int64(st, 1, entries[i].n) != SQLITE_OK ||
		    sqlite3_step(st) != SQLITE_DONE)
			r = sq_error(s->writer, "cannot remove a block", reterr_diag);
		if (r == 0)
			r = vec_push(&c.removed, entries[i].n);
	}
	if (r == 0)
		r = sq_commit(s, &c, reterr_diag);
	else
		sq_rollback(s);
	pthread_mutex_unlock(&s->write_lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&s->pool_lock);
	s->evicted_rows += rows;
	for (size_t i = 0; i < n; i++)
		map_del(&s->damaged, (u64)entries[i].n, NULL);
	pthread_mutex_unlock(&s->pool_lock);
	s->evicted_since_gc += rows;
	return 0;
}

static int compare_ages(const void *a, const void *b)
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

static int drop_old(struct sq *s, u64 now_ms, struct diag *reterr_diag)
{
	_cleanup_entries_ struct entries all = {}, old = {};
	u64 age_ms = s->limits.max_age_s * 1000, before = now_ms > age_ms ? now_ms - age_ms : 0;
	int r = copy_entries(s, &all);

	vec_foreach (&all.list, e)
		if (r == 0 && e->last_ms < before)
			r = vec_push(&old.list, *e);
	for (size_t i = 0; i < old.list.n && r == 0; i += EVICT_BLOCKS)
		r = remove_blocks(s, old.list.data + i, MIN(old.list.n - i, (size_t)EVICT_BLOCKS),
				  reterr_diag);
	return r;
}

/* Bytes of pages that hold something; what a write adds until the next call must fit, too. */
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
 * Drops the oldest blocks until the limit is kept, or an eighth of all rows is gone: then it is
 * time to see how much of the dictionaries goes with them.
 */
static int drop_oldest(struct sq *s, u64 limit, bool *ret_any, struct diag *reterr_diag)
{
	_cleanup_entries_ struct entries all = {};
	u64 used, unused, rows = 0;
	size_t at = 0;
	int r = copy_entries(s, &all);

	if (r == 0 && all.list.n)
		qsort(all.list.data, all.list.n, sizeof(*all.list.data), compare_ages);
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
		r = remove_blocks(s, all.list.data + at, n, reterr_diag);
		at += n;
	}
	*ret_any = at > 0;
	return r;
}

/*
 * Of max_bytes: blocks go until three quarters hold something, the file is cut to seven eighths, a
 * sixteenth is for the log. What is left is for what is written until the next call; a writer that
 * finds the whole used up does this itself (sq_make_smaller()).
 */
static int drop_beyond_size(struct sq *s, struct diag *reterr_diag)
{
	u64 limit = s->limits.max_bytes - MIN(s->limits.max_bytes / 4, 512ULL << 20), used, unused;
	bool more = true;
	int r;

	while ((r = used_bytes(s, &used, &unused)) == 0 && used > limit && more) {
		r = drop_oldest(s, limit, &more, reterr_diag);
		if (r == 0)
			r = sq_collect_dictionaries(s, reterr_diag);
		if (r < 0)
			break;
	}
	return r;
}

/* Pages that are moved at once: they go through the log, for which there may be little room. */
#define SHRINK_PAGES "256"

/* Gives free pages back to the file system when they are many. */
static int shrink(struct sq *s, s64 until_ns, struct diag *reterr_diag)
{
	u64 used, unused, before = ~0ULL;
	int r;

	while ((r = used_bytes(s, &used, &unused)) == 0 && unused && used + unused < before &&
	       now_ns() < until_ns) {
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

/* Samples of one service and type within what becomes one block, and how coarse their times get. */
struct merging {
	u64 resolution; /* ms; 1 = as they are */
	u64 from_hour;	/* first of the bucket */
	u64 level;
	bool open; /* more is expected */
};

/*
 * Where a block belongs: its hour, or the day when times are rounded to more than an hour. It goes
 * by the age of the whole bucket, so that all of it is rounded at once.
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
		/* The bucket's younger hours are not there yet. */
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

static bool one_bucket(const struct candidate *a, const struct candidate *b)
{
	return a->e.service == b->e.service && a->e.type == b->e.type &&
	       a->m.from_hour == b->m.from_hour && a->m.resolution == b->m.resolution &&
	       a->m.open == b->m.open && (!a->m.open || a->m.level == b->m.level);
}

/*
 * How many of a bucket (smallest first) to merge now; 0 for none. A large block is not written
 * again for the sake of a few small ones: each row is written a few times in its life, not always.
 */
static size_t choose(const struct candidate *c, size_t n)
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

		/* Damaged: it stays where it is, until it is too old. */
		if (sq_is_damage(r)) {
			sq_note_damage(s, c[i].e.n);
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
	if (r == 0)
		r = sq_commit(s, change, reterr_diag);
	else
		sq_rollback(s);
	pthread_mutex_unlock(&s->write_lock);
	return r;
}

static int merge(struct sq *s, const struct candidate *c, size_t n, struct diag *reterr_diag)
{
	_cleanup_sq_change_ struct sq_change change = {};
	_cleanup_block_parts_ struct block_parts parts = {};
	int r = merge_parts(s, c, n, &change, &parts);

	/* Whole by its checksum and still not to be read: leave all of them as they are. */
	if (sq_is_damage(r)) {
		for (size_t i = 0; i < n; i++)
			sq_note_damage(s, c[i].e.n);
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

/* One look at all buckets; *ret_done says whether anything was merged. */
static int merge_some(struct sq *s, u64 now_ms, s64 until_ns, bool *ret_done,
		      struct diag *reterr_diag)
{
	__attribute__((cleanup(candidates_deinit))) struct candidates c = {};
	size_t to;
	int r = find_candidates(s, now_ms, &c);

	*ret_done = false;
	for (size_t from = 0; from < c.list.n && r == 0 && now_ns() < until_ns; from = to) {
		size_t n;

		for (to = from + 1; to < c.list.n; to++)
			if (!one_bucket(&c.list.data[from], &c.list.data[to]))
				break;
		n = choose(&c.list.data[from], to - from);
		if (!n)
			continue;
		r = merge(s, &c.list.data[from], n, reterr_diag);
		*ret_done = true;
	}
	return r;
}

/* ---- all of it ---- */

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

/* Readers may have kept the log from being emptied when it should have been. */
static void empty_log(struct sq *s)
{
	pthread_mutex_lock(&s->write_lock);
	sq_checkpoint(s);
	pthread_mutex_unlock(&s->write_lock);
}

static int work(struct sq *s, u64 now_ms, struct diag *reterr_diag)
{
	s64 until = now_ns() + BUDGET_NS;
	bool more = true;
	int r;

	/* First what needs no room, then what makes some. */
	empty_log(s);
	r = drop_beyond_size(s, reterr_diag);
	if (r == 0)
		r = drop_old(s, now_ms, reterr_diag);
	if (r == 0)
		r = shrink(s, until, reterr_diag);
	if (r == 0)
		r = drop_tokens(s, now_ms, reterr_diag);
	while (r == 0 && more && now_ns() < until && sq_has_room(s))
		r = merge_some(s, now_ms, until, &more, reterr_diag);
	if (r == 0)
		r = sq_collect_dictionaries(s, reterr_diag);
	empty_log(s);
	return r;
}

int sq_make_smaller(struct sq *s, struct diag *reterr_diag)
{
	int r = 0;

	pthread_mutex_lock(&s->maintain_lock);
	if (sq_is_large(s)) {
		empty_log(s);
		r = drop_beyond_size(s, reterr_diag);
		if (r == 0)
			r = shrink(s, now_ns() + BUDGET_NS, reterr_diag);
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
		r = work(s, now_ms, reterr_diag);
	/* The next call repairs it. */
	if (sq_is_damage(r))
		s->broken = true;
	if (r == 0)
		r = sq_spans_maintain(s, now_ms, reterr_diag);
	pthread_mutex_unlock(&s->maintain_lock);
	return r;
}
