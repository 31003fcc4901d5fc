/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans and links (samples with their span) of the SQLite engine. Spans lie in a file of their own,
 * DIR/spans.db, with a size limit of its own, so that spans cannot displace samples, nor samples
 * spans. The first span creates the file.
 *
 * The file is a table of blocks (span_block.h), each of one kind and hour. A block of spans has the
 * entry spans of services in part a and all other spans in part b; a block of links has part a
 * only. Blocks are found by their times and by a Bloom filter of their traces. A reader needs no
 * lock, because it reads the list of blocks, too, in a transaction of its own connection.
 *
 *	write_lock	the writer's connection, and every transaction that changes something. Taken
 *			after sq.maintain_lock, and never together with the other locks of struct sq
 */
#pragma once

#include "server/store/span_block.h"
#include "server/store/sqlite/sqlite.h"

#define SQ_SPANS_FILE "spans.db"

enum sq_kind { SQ_KIND_SPANS, SQ_KIND_LINKS };

/* A row of the table without its parts. */
struct sq_span_entry {
	s64 n;
	u32 kind, hour;
	u32 thinned; /* how often it was thinned */
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
/* Under write_lock, in a transaction: adds a block of one hour. order: sorted positions in `s`. */
int sq_put_spans(struct sq_spans *p, const struct spans *s, const u32 *order, size_t n, u32 hour,
		 u32 thinned, int level, struct diag *reterr_diag);
int sq_put_links(struct sq_spans *p, const struct store_links *l, const u32 *order, size_t n,
		 u32 hour, u32 thinned, int level, struct diag *reterr_diag);
int sq_spans_begin(struct sq_spans *p, struct diag *reterr_diag);
/* Commits when r is 0, else rolls back. Returns r, or the error of the commit. */
int sq_spans_end(struct sq_spans *p, int r, struct diag *reterr_diag);
int sq_write_spans(struct store *base, const struct spans *s, const u8 token[16],
		   struct diag *reterr_diag);
/* Called before the samples are written: after a crash in between, the sender repeats both. */
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
/* Blocks of a kind that overlap the range of times, by hour. */
int sq_list_span_blocks(struct sq_conn *c, enum sq_kind kind, u64 from_ms, u64 to_ms,
			struct sq_span_list *ret, struct diag *reterr_diag);
enum { SQ_ROOTS = 1, SQ_REST = 2 }; /* parts a and b */
/* Adds a block's spans; 1 when it has none of the traces (NULL: any trace). -EBADMSG: damage. */
int sq_read_spans(struct sq_conn *c, s64 n, u32 parts, const u8 (*traces)[16], size_t n_traces,
		  struct spans *into);
int sq_read_links(struct sq_conn *c, s64 n, const u8 (*traces)[16], size_t n_traces,
		  struct store_links *into);
int sq_find_spans(struct store *base, const struct store_span_filter *f, struct spans *ret,
		  struct diag *reterr_diag);
int sq_find_links(struct store *base, const struct store_link_filter *f, struct store_links *ret,
		  struct diag *reterr_diag);
/* Returns the checksum of the current row of SQL_GET_SPAN_BLOCK. */
u64 sq_span_block_sum(sqlite3_stmt *st);

int sq_spans_maintain(struct sq *s, u64 now_ms, struct diag *reterr_diag);

/* ---- spans_maintain.c ---- */

/* Evicts old blocks, merges small ones, and shrinks the file. */
int sq_spans_tidy(struct sq_spans *p, u64 now_ms, struct diag *reterr_diag);
/* Under write_lock: thins and evicts until the file is small enough. */
int sq_spans_make_smaller(struct sq_spans *p, struct diag *reterr_diag);
/* Removes a block; the caller is in a transaction. */
int sq_remove_span_block(struct sq_spans *p, s64 n, struct diag *reterr_diag);
/* Allocates the positions 0 ... n - 1, which the caller owns. */
int sq_make_order(size_t n, u32 **ret);

/* ---- thin.c ---- */

/* Under write_lock: keeps a quarter of an hour's traces that are neither slow nor failed. */
int sq_thin_hour(struct sq_spans *p, u32 hour, u32 thinned, struct diag *reterr_diag);
