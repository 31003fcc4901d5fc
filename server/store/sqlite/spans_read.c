/* SPDX-License-Identifier: Apache-2.0 */
/* Reads spans and links. Each query has a connection of its own and one transaction. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/store/sqlite/spans.h"

#define FAR_MS (1ULL << 62)

void sq_span_list_deinit(struct sq_span_list *l)
{
	vec_deinit(&l->list);
}

int sq_list_span_blocks(struct sq_conn *c, enum sq_kind kind, u64 from_ms, u64 to_ms,
			struct sq_span_list *ret, struct diag *reterr_diag)
{
	sqlite3_stmt *st = sq_get(c, SQL_LIST_SPAN_BLOCKS);
	int step = SQLITE_ERROR, r = 0;

	if (!st)
		return sq_error(c, "cannot read", reterr_diag);
	sqlite3_bind_int64(st, 1, kind);
	sqlite3_bind_int64(st, 2, (s64)MIN(to_ms, FAR_MS));
	sqlite3_bind_int64(st, 3, (s64)MIN(from_ms, FAR_MS));
	while (r == 0 && (step = sqlite3_step(st)) == SQLITE_ROW)
		r = vec_push(&ret->list, (struct sq_span_entry){
						 .n = sqlite3_column_int64(st, 0),
						 .kind = (u32)sqlite3_column_int64(st, 1),
						 .hour = (u32)sqlite3_column_int64(st, 2),
						 .thinned = (u32)sqlite3_column_int64(st, 3),
						 .first_ms = (u64)sqlite3_column_int64(st, 4),
						 .last_ms = (u64)sqlite3_column_int64(st, 5),
						 .rows = (u64)sqlite3_column_int64(st, 6),
						 .bytes = (u64)sqlite3_column_int64(st, 7),
					 });
	if (r == 0 && step != SQLITE_DONE)
		r = sq_error(c, "cannot read", reterr_diag);
	sqlite3_reset(st);
	return r;
}

static bool may_have_traces(sqlite3_stmt *st, const u8 (*traces)[16], size_t n)
{
	const u8 *bits = sqlite3_column_blob(st, 8);
	size_t size = bits ? (size_t)sqlite3_column_bytes(st, 8) : 0;

	for (size_t i = 0; i < n; i++)
		if (span_filter_has(bits, size, traces[i]))
			return true;
	return !traces;
}

/* 0: the statement is at the row, and the row is whole. 1: the block has none of the traces. */
static int get_block(struct sq_conn *c, s64 n, const u8 (*traces)[16], size_t n_traces,
		     sqlite3_stmt **ret)
{
	sqlite3_stmt *st = sq_get(c, SQL_GET_SPAN_BLOCK);
	int r = SQLITE_ERROR;

	if (st) {
		sqlite3_bind_int64(st, 1, n);
		r = sqlite3_step(st);
	}
	if (r != SQLITE_ROW)
		return r == SQLITE_DONE ? -EBADMSG : sq_error(c, "cannot read", NULL);
	if (!may_have_traces(st, traces, n_traces))
		return 1;
	if (sq_span_block_sum(st) != (u64)sqlite3_column_int64(st, 7))
		return sqlite3_errcode(c->db) == SQLITE_NOMEM ? -ENOMEM : -EBADMSG;
	*ret = st;
	return 0;
}

int sq_read_spans(struct sq_conn *c, s64 n, u32 parts, const u8 (*traces)[16], size_t n_traces,
		  struct spans *into)
{
	sqlite3_stmt *st;
	int r = get_block(c, n, traces, n_traces, &st);

	for (int i = 0; i < 2 && r == 0; i++)
		if (parts >> i & 1)
			r = span_part_decode(sqlite3_column_blob(st, 9 + i),
					     (size_t)sqlite3_column_bytes(st, 9 + i), into);
	return r;
}

int sq_read_links(struct sq_conn *c, s64 n, const u8 (*traces)[16], size_t n_traces,
		  struct store_links *into)
{
	sqlite3_stmt *st;
	int r = get_block(c, n, traces, n_traces, &st);

	return r ? r
		 : link_part_decode(sqlite3_column_blob(st, 9), (size_t)sqlite3_column_bytes(st, 9),
				    into);
}

/* ---- queries ---- */

/* Begins a transaction on a new connection; NULL when there is no file yet. */
static int open_reader(struct sq_spans *p, struct sq_conn **ret, struct diag *reterr_diag)
{
	int r;

	*ret = NULL;
	if (!p->exists)
		return 0;
	r = sq_connect(p->path, false, reterr_diag, ret);
	if (r == 0 && sq_run(*ret, SQL_BEGIN) < 0)
		r = sq_error(*ret, "cannot read", reterr_diag);
	return r;
}

static void close_reader(struct sq_conn **c)
{
	if (*c)
		sq_run(*c, SQL_COMMIT);
	sq_disconnect(*c);
}
#define _cleanup_reader_ __attribute__((cleanup(close_reader)))

/* Leaves a damaged block out, and notes that in the answer. */
static int skip_damaged(struct sq_spans *p, int r, bool *damaged)
{
	if (!sq_is_damage(r))
		return MIN(r, 0);
	*damaged = true;
	p->damaged++;
	return 0;
}

static int find_spans(struct sq_spans *p, const struct store_span_filter *f, struct spans *out,
		      struct diag *reterr_diag)
{
	size_t max = f->limit ? MIN(f->limit * 2 + 4096, (size_t)STORE_MAX_SPANS) : STORE_MAX_SPANS;
	_cleanup_sq_span_list_ struct sq_span_list blocks = {};
	_cleanup_reader_ struct sq_conn *c = NULL;
	int r = open_reader(p, &c, reterr_diag);

	if (r == 0 && c)
		r = sq_list_span_blocks(c, SQ_KIND_SPANS, f->from_ms, f->to_ms, &blocks,
					reterr_diag);
	for (size_t i = 0; i < blocks.list.n && r == 0; i++) {
		size_t n = out->spans.n, at = out->attributes.n;

		r = sq_read_spans(c, blocks.list.data[i].n,
				  SQ_ROOTS | (f->roots || f->endpoint ? 0 : SQ_REST), f->traces,
				  f->n_traces, out);
		/* Drop the spans that were read from a block before its damage showed. */
		if (r < 0) {
			out->spans.n = n;
			out->attributes.n = at;
		}
		r = skip_damaged(p, r, &out->damaged);
		store_spans_filter(out, n, at, f);
		if (r == 0 && out->spans.n > max && f->limit)
			r = store_spans_slowest(out, f->limit);
		else if (r == 0 && out->spans.n > max)
			r = -E2BIG;
	}
	return r;
}

int sq_find_spans(struct store *base, const struct store_span_filter *f, struct spans *ret,
		  struct diag *reterr_diag)
{
	struct diag why = {};
	struct spans out;
	int r = spans_init(&out);

	if (r == 0)
		r = find_spans(sq_of(base)->spans, f, &out, &why);
	return store_spans_answer(r, &out, f->limit, &why, ret, reterr_diag);
}

static bool link_matches(const struct store_link_filter *f, const struct store_links *l,
			 const struct store_link *e)
{
	return e->time_ms >= f->from_ms && e->time_ms < f->to_ms &&
	       (!f->type || !strcmp(profile_string(l->profile, e->type), f->type)) &&
	       (!f->service || !strcmp(profile_string(l->profile, e->service), f->service)) &&
	       store_has_trace(f->traces, f->n_traces, e->link.trace_id) &&
	       store_has_id(f->stacks, f->n_stacks, e->stack);
}

static int find_links(struct sq_spans *p, const struct store_link_filter *f,
		      struct store_links *out, struct diag *reterr_diag)
{
	_cleanup_sq_span_list_ struct sq_span_list blocks = {};
	_cleanup_reader_ struct sq_conn *c = NULL;
	int r = open_reader(p, &c, reterr_diag);

	if (r == 0 && c)
		r = sq_list_span_blocks(c, SQ_KIND_LINKS, f->from_ms, f->to_ms, &blocks,
					reterr_diag);
	for (size_t i = 0; i < blocks.list.n && r == 0; i++) {
		size_t n = out->links.n, kept = n;

		r = sq_read_links(c, blocks.list.data[i].n, f->traces, f->n_traces, out);
		if (r < 0)
			out->links.n = n;
		r = skip_damaged(p, r, &out->damaged);
		for (; n < out->links.n; n++)
			if (link_matches(f, out, &out->links.data[n]))
				out->links.data[kept++] = out->links.data[n];
		out->links.n = kept;
		if (r == 0 && kept > STORE_MAX_LINKS)
			r = -E2BIG;
	}
	return r;
}

int sq_find_links(struct store *base, const struct store_link_filter *f, struct store_links *ret,
		  struct diag *reterr_diag)
{
	struct diag why = {};
	struct store_links out;
	int r = store_links_init(&out);

	if (r == 0)
		r = find_links(sq_of(base)->spans, f, &out, &why);
	if (r == 0) {
		store_links_order(&out);
		*ret = out;
		return 0;
	}
	store_links_deinit(&out);
	return store_spans_failed(r, &why, reterr_diag);
}
