/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maintenance of spans.db: evicts old blocks, merges the small ones of an hour, and keeps the file
 * within its size. Every step is a transaction under write_lock.
 *
 * To save space, the oldest hours are thinned first (thin.c). Once the hours that were thinned
 * MAX_THINNED times take more than half of the allowed size, the oldest hour is evicted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "server/store/sqlite/maintain.h"
#include "server/store/sqlite/spans.h"

#define OPEN_HOUR_MS 300000ULL	 /* late spans of an hour may arrive for this long after the hour */
#define TOKEN_MS (2 * 3600000LL) /* how long tokens are kept */
#define MIN_INPUTS 8
#define MAX_INPUTS 64
#define LEVEL_MERGED 3
#define MAX_THINNED 3
#define BUDGET_NS 1500000000ULL
#define FAR_MS (1ULL << 62)

static int list_all(struct sq_spans *p, enum sq_kind kind, struct sq_span_list *ret,
		    struct diag *reterr_diag)
{
	return sq_list_span_blocks(p->writer, kind, 0, FAR_MS, ret, reterr_diag);
}

int sq_make_order(size_t n, u32 **ret)
{
	u32 *order = reallocarray(NULL, n + 1, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		order[i] = (u32)i;
	*ret = order;
	return 0;
}

int sq_remove_span_block(struct sq_spans *p, s64 n, struct diag *reterr_diag)
{
	sqlite3_stmt *st = sq_get(p->writer, SQL_DEL_SPAN_BLOCK);

	if (!st || sqlite3_bind_int64(st, 1, n) != SQLITE_OK || sqlite3_step(st) != SQLITE_DONE)
		return sq_error(p->writer, "cannot remove spans", reterr_diag);
	sqlite3_reset(st);
	return 0;
}

/* ---- retention ---- */

static int evict_expired(struct sq_spans *p, u64 now_ms, struct diag *reterr_diag)
{
	u64 age = p->s->limits.max_age_s * 1000, before = now_ms > age ? now_ms - age : 0,
	    spans = 0, first_ms = ~0ULL, last_ms = 0;
	int r = sq_spans_begin(p, reterr_diag);
	sqlite3_stmt *st;

	for (u32 kind = 0; kind < 2 && r == 0; kind++) {
		_cleanup_sq_span_list_ struct sq_span_list all = {};

		r = list_all(p, kind, &all, reterr_diag);
		for (size_t i = 0; i < all.list.n && r == 0; i++) {
			if (all.list.data[i].last_ms >= before)
				continue;
			spans += kind == SQ_KIND_SPANS ? all.list.data[i].rows : 0;
			first_ms = MIN(first_ms, all.list.data[i].first_ms);
			last_ms = MAX(last_ms, all.list.data[i].last_ms);
			r = sq_remove_span_block(p, all.list.data[i].n, reterr_diag);
		}
	}
	st = r == 0 ? sq_get(p->writer, SQL_DEL_TOKENS) : NULL;
	if (st) {
		sqlite3_bind_int64(st, 1, (s64)now_ms - TOKEN_MS);
		if (sqlite3_step(st) != SQLITE_DONE)
			r = sq_error(p->writer, "cannot remove tokens", reterr_diag);
		sqlite3_reset(st);
	}
	r = sq_spans_end(p, r, reterr_diag);
	if (r == 0) {
		p->evicted += spans;
		store_note_evicted(&p->s->base, STORE_EVICT_SPANS_AGE, spans, first_ms, last_ms);
	}
	return r;
}

/* ---- merging ---- */

static int compare_entries(const void *a, const void *b)
{
	const struct sq_span_entry *x = a, *y = b;
	u64 keys[][2] = {{x->hour, y->hour},
			 {x->thinned, y->thinned},
			 {x->rows, y->rows},
			 {(u64)x->n, (u64)y->n}};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (keys[i][0] != keys[i][1])
			return keys[i][0] < keys[i][1] ? -1 : 1;
	return 0;
}

/* How many blocks of an hour, smallest first, to merge; 0 for none. */
static size_t choose_inputs(const struct sq_span_entry *e, size_t n, u64 now_ms)
{
	bool open = (e->hour + 1ULL) * BLOCK_HOUR_MS + OPEN_HOUR_MS > now_ms;
	u64 rows = 0;
	size_t k = 0;

	while (k < n && k < MAX_INPUTS && rows + e[k].rows <= SPAN_BLOCK_ROWS) {
		/* A large block is not rewritten for the sake of a few small ones. */
		if (k && e[k].rows > 4 * rows && k < MIN_INPUTS)
			break;
		rows += e[k++].rows;
	}
	return k < (open ? MIN_INPUTS : 2) ? 0 : k;
}

static int merge_spans(struct sq_spans *p, const struct sq_span_entry *e, size_t n,
		       struct diag *reterr_diag)
{
	_cleanup_spans_ struct spans all = {};
	_cleanup_free_ u32 *order = NULL;
	int r = spans_init(&all);

	for (size_t i = 0; i < n && r == 0; i++)
		r = sq_read_spans(p->writer, e[i].n, SQ_ROOTS | SQ_REST, NULL, 0, &all);
	if (r < 0)
		return r;
	store_spans_order(&all);
	r = sq_make_order(all.spans.n, &order);
	if (r < 0)
		return r;
	return sq_put_spans(p, &all, order, all.spans.n, e->hour, e->thinned, LEVEL_MERGED,
			    reterr_diag);
}

static int merge_links(struct sq_spans *p, const struct sq_span_entry *e, size_t n,
		       struct diag *reterr_diag)
{
	_cleanup_store_links_ struct store_links all = {};
	_cleanup_free_ u32 *order = NULL;
	int r = store_links_init(&all);

	for (size_t i = 0; i < n && r == 0; i++)
		r = sq_read_links(p->writer, e[i].n, NULL, 0, &all);
	if (r < 0)
		return r;
	store_links_order(&all);
	r = sq_make_order(all.links.n, &order);
	if (r < 0)
		return r;
	return sq_put_links(p, &all, order, all.links.n, e->hour, e->thinned, LEVEL_MERGED,
			    reterr_diag);
}

static int merge_blocks(struct sq_spans *p, const struct sq_span_entry *e, size_t n,
			struct diag *reterr_diag)
{
	int r = sq_spans_begin(p, reterr_diag);

	if (r == 0)
		r = e->kind == SQ_KIND_SPANS ? merge_spans(p, e, n, reterr_diag)
					     : merge_links(p, e, n, reterr_diag);
	for (size_t i = 0; i < n && r == 0; i++)
		r = sq_remove_span_block(p, e[i].n, reterr_diag);
	return sq_spans_end(p, r, reterr_diag);
}

static int merge_hours(struct sq_spans *p, enum sq_kind kind, u64 now_ms, u64 until_ns, bool *more,
		       struct diag *reterr_diag)
{
	_cleanup_sq_span_list_ struct sq_span_list all = {};
	size_t to;
	int r = list_all(p, kind, &all, reterr_diag);

	if (all.list.n)
		qsort(all.list.data, all.list.n, sizeof(*all.list.data), compare_entries);
	for (size_t from = 0; from < all.list.n && r == 0; from = to) {
		const struct sq_span_entry *e = &all.list.data[from];
		size_t n;

		for (to = from + 1; to < all.list.n; to++)
			if (all.list.data[to].hour != e->hour ||
			    all.list.data[to].thinned != e->thinned)
				break;
		n = choose_inputs(e, to - from, now_ms);
		if (!n || clock_ns(CLOCK_MONOTONIC) > until_ns)
			continue;
		r = merge_blocks(p, e, n, reterr_diag);
		*more = true;
		/* A damaged block stays. End this round, so that its merge is not repeated. */
		if (sq_is_damage(r)) {
			p->damaged++;
			*more = false;
			r = 0;
		}
	}
	return r;
}

/* ---- size ---- */

static int used_bytes(struct sq_spans *p, u64 *ret_used, u64 *ret_unused)
{
	s64 pages = 0, unused = 0;

	if (sq_number(p->writer, "PRAGMA page_count", &pages) < 0 ||
	    sq_number(p->writer, "PRAGMA freelist_count", &unused) < 0)
		return -EIO;
	*ret_used = (u64)(pages - unused) * SQ_PAGE;
	*ret_unused = (u64)unused * SQ_PAGE;
	return 0;
}

static int evict_hour(struct sq_spans *p, u32 hour, struct diag *reterr_diag)
{
	u64 spans = 0;
	int r = sq_spans_begin(p, reterr_diag);

	for (u32 kind = 0; kind < 2 && r == 0; kind++) {
		_cleanup_sq_span_list_ struct sq_span_list all = {};

		r = list_all(p, kind, &all, reterr_diag);
		for (size_t i = 0; i < all.list.n && r == 0; i++)
			if (all.list.data[i].hour == hour) {
				spans += kind == SQ_KIND_SPANS ? all.list.data[i].rows : 0;
				r = sq_remove_span_block(p, all.list.data[i].n, reterr_diag);
			}
	}
	r = sq_spans_end(p, r, reterr_diag);
	if (r == 0) {
		p->evicted += spans;
		store_note_evicted(&p->s->base, STORE_EVICT_SPANS_SIZE, spans, hour * BLOCK_HOUR_MS,
				   (hour + 1ULL) * BLOCK_HOUR_MS - 1);
	}
	return r;
}

/* How to reduce the size: thin an hour, or evict it. */
struct choice {
	bool any, thin;
	u32 hour, thinned;
};

static int choose_step(struct sq_spans *p, struct choice *ret, struct diag *reterr_diag)
{
	_cleanup_sq_span_list_ struct sq_span_list all = {};
	struct choice oldest = {}, thick = {};
	u64 thin_bytes = 0;
	int r = list_all(p, SQ_KIND_SPANS, &all, reterr_diag);

	if (r == 0)
		r = list_all(p, SQ_KIND_LINKS, &all, reterr_diag);
	for (size_t i = 0; i < all.list.n; i++) {
		const struct sq_span_entry *e = &all.list.data[i];

		if (!oldest.any || e->hour < oldest.hour)
			oldest = (struct choice){.any = true, .hour = e->hour};
		if (e->thinned >= MAX_THINNED)
			thin_bytes += e->bytes;
		else if (e->kind == SQ_KIND_SPANS &&
			 (!thick.any || e->hour < thick.hour ||
			  (e->hour == thick.hour && e->thinned < thick.thinned)))
			thick = (struct choice){true, true, e->hour, e->thinned};
	}
	*ret = thick.any && thin_bytes <= p->max_bytes / 2 ? thick : oldest;
	return r;
}

static void shrink_file(struct sq_spans *p)
{
	sqlite3_exec(p->writer->db, "PRAGMA incremental_vacuum", NULL, NULL, NULL);
	sq_truncate_log(p->writer);
}

int sq_spans_make_smaller(struct sq_spans *p, struct diag *reterr_diag)
{
	u64 limit = p->max_bytes - p->max_bytes / 4, used = 0, unused;
	int r = 0;

	while (r == 0 && (r = used_bytes(p, &used, &unused)) == 0 && used > limit) {
		struct choice c = {};

		r = choose_step(p, &c, reterr_diag);
		if (r == 0 && !c.any)
			break;
		if (r == 0)
			r = c.thin ? sq_thin_hour(p, c.hour, c.thinned + 1, reterr_diag)
				   : evict_hour(p, c.hour, reterr_diag);
		/* An hour that cannot be read cannot be thinned, but it can be evicted. */
		if (sq_is_damage(r) && c.thin)
			r = evict_hour(p, c.hour, reterr_diag);
	}
	if (r == 0)
		shrink_file(p);
	return r;
}

static int keep_size(struct sq_spans *p, struct diag *reterr_diag)
{
	u64 used = 0, unused = 0;
	int r = used_bytes(p, &used, &unused);

	if (r == 0 && used > p->max_bytes - p->max_bytes / 4)
		return sq_spans_make_smaller(p, reterr_diag);
	if (r == 0 &&
	    (unused > used / 4 + (4 << 20) || sq_spans_bytes(p) > p->max_bytes - p->max_bytes / 8))
		shrink_file(p);
	return r;
}

int sq_spans_tidy(struct sq_spans *p, u64 now_ms, struct diag *reterr_diag)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + BUDGET_NS;
	bool more = true;
	int r;

	pthread_mutex_lock(&p->write_lock);
	r = evict_expired(p, now_ms, reterr_diag);
	if (r == 0)
		r = keep_size(p, reterr_diag);
	while (r == 0 && more && clock_ns(CLOCK_MONOTONIC) < until && sq_has_room(p->s)) {
		more = false;
		r = merge_hours(p, SQ_KIND_SPANS, now_ms, until, &more, reterr_diag);
		if (r == 0)
			r = merge_hours(p, SQ_KIND_LINKS, now_ms, until, &more, reterr_diag);
		/* Let writers run between two steps. */
		pthread_mutex_unlock(&p->write_lock);
		pthread_mutex_lock(&p->write_lock);
	}
	if (r == 0)
		r = keep_size(p, reterr_diag);
	sqlite3_wal_checkpoint_v2(p->writer->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	pthread_mutex_unlock(&p->write_lock);
	return r;
}
