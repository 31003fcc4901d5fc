/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans and samples with spans of the SQLite engine: a file of its own, DIR/spans.db, so that its
 * size is apart from the samples' and neither can push the other out. It is made when the first
 * span comes.
 *
 * One table of blocks (span_block.h), each of one kind and hour: of spans, what services were asked
 * for in part a and all other spans in part b; of samples part a. A block is found by its times,
 * and by a Bloom filter of its traces. Readers have a connection and a transaction of their own,
 * which reads the list, too: they need no lock.
 *
 *	write_lock	the writer's connection; all that changes something
 */
#pragma once

#include "server/store/span_block.h"
#include "server/store/sqlite/sqlite.h"

#define SQ_SPANS_FILE "spans.db"

enum sq_kind { SQ_KIND_SPANS, SQ_KIND_LINKS };

/* A row of the table, without its parts. */
struct sq_span_entry {
	s64 n;
	u32 kind, hour;
	u32 thinned; /* how often */
	u64 first_ms, last_ms, rows, bytes;
};

struct sq_spans {
	struct sq *s;
	char *path; /* owned */
	u64 max_bytes;
	pthread_mutex_t write_lock;
	struct sq_conn *writer; /* NULL until the first span */
	int wal_pages;
	_Atomic bool exists, broken;
	_Atomic u64 damaged, evicted;
};

/* ---- spans.c ---- */

int sq_spans_open(struct sq *s, struct diag *reterr_diag);
void sq_spans_close(struct sq *s);
/* Under write_lock; the transaction is begun. Rows of one kind and hour, by position. */
int sq_put_spans(struct sq_spans *p, const struct spans *s, const u32 *order, size_t n, u32 hour,
		 u32 thinned, int level, struct diag *reterr_diag);
int sq_put_links(struct sq_spans *p, const struct store_links *l, const u32 *order, size_t n,
		 u32 hour, u32 thinned, int level, struct diag *reterr_diag);
int sq_spans_begin(struct sq_spans *p, struct diag *reterr_diag);
/* Commits when r is 0, else rolls back; r, or what went wrong. */
int sq_spans_end(struct sq_spans *p, int r, struct diag *reterr_diag);
int sq_write_spans(struct store *base, const struct spans *s, const u8 token[16],
		   struct diag *reterr_diag);
/* Before the samples themselves: who dies in between is sent them again. */
int sq_write_links(struct sq *s, const struct store_links *l, const u8 token[16],
		   struct diag *reterr_diag);
u64 sq_spans_bytes(const struct sq_spans *p);
void sq_spans_stats(struct sq *s, struct store_stats *ret);

/* ---- spans_read.c ---- */

struct sq_span_list {
	vec(struct sq_span_entry) list;
};
void sq_span_list_deinit(struct sq_span_list *l);
#define _cleanup_sq_span_list_ __attribute__((cleanup(sq_span_list_deinit)))
/* Blocks of a kind that may have something of these times, by hour. */
int sq_list_span_blocks(struct sq_conn *c, enum sq_kind kind, u64 from_ms, u64 to_ms,
			struct sq_span_list *ret, struct diag *reterr_diag);
enum { SQ_ROOTS = 1, SQ_REST = 2 };
/* Adds a block's content; 1 when its filter has none of the traces (or NULL). -EBADMSG: damage. */
int sq_read_spans(struct sq_conn *c, s64 n, u32 parts, const u8 (*traces)[16], size_t n_traces,
		  struct spans *into);
int sq_read_links(struct sq_conn *c, s64 n, const u8 (*traces)[16], size_t n_traces,
		  struct store_links *into);
int sq_find_spans(struct store *base, const struct store_span_filter *f, struct spans *ret,
		  struct diag *reterr_diag);
int sq_find_links(struct store *base, const struct store_link_filter *f, struct store_links *ret,
		  struct diag *reterr_diag);
/* What all of a row is; 0 is never one. */
u64 sq_span_block_sum(sqlite3_stmt *get);

int sq_spans_maintain(struct sq *s, u64 now_ms, struct diag *reterr_diag);

/* ---- spans_maintain.c ---- */

/* Drops what is old, merges, gives space back. */
int sq_spans_tidy(struct sq_spans *p, u64 now_ms, struct diag *reterr_diag);
/* Under write_lock: until the files are as small as they may be. */
int sq_spans_make_smaller(struct sq_spans *p, struct diag *reterr_diag);

/* ---- thin.c ---- */

/* Under write_lock: of an hour's ordinary traces a quarter of those that are there stays. */
int sq_thin_hour(struct sq_spans *p, u32 hour, u32 thinned, struct diag *reterr_diag);
