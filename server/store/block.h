/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block: samples of one service and type within one hour, sorted by stack, series and time, as
 * columns. Stacks and series are dense numbers of the database that holds it, not ids.
 *
 *	series	n, then by series: number, rows, count, value, first and last time
 *	stacks	n, then by stack: number, rows, count, value
 *	body	by row: series (position in the list), time, count, value
 *
 * Sums by stack and by series stand apart, so that what asks for a whole block reads no rows.
 * Numbers are LEB128, differences to the number before where they only grow; each column has its
 * length before it. Times are in units of `time_unit` from base_ms on. With a value_unit other than
 * 0 all values are count * value_unit and have no column. Each part is zstd-compressed by itself.
 */
#pragma once

#include "base/buf.h"
#include "base/str.h"
#include "base/types.h"
#include "base/vec.h"

#define BLOCK_MAX_ROWS (1u << 20)
#define BLOCK_MAX_BYTES (64u << 20) /* a part, decompressed */
#define BLOCK_HOUR_MS 3600000ULL

struct block_row {
	u32 stack, series;
	u32 time_ms; /* from base_ms on */
	u64 count;
	s64 value;
};

struct block_sum {
	u32 number; /* of the series or stack */
	u32 rows;
	u64 count;
	s64 value;
	u32 first_ms, last_ms; /* series only; from base_ms on */
};

struct block_sums {
	vec(struct block_sum) sums; /* by number */
};

struct block_parts {
	struct str series, stacks, body;
	/* Known when it is made. */
	u64 rows, samples;
	u32 first_ms, last_ms; /* from base_ms on */
};

/* Appends a zstd frame. */
int block_compress(const struct str *in, int level, struct str *ret);
/* -EBADMSG unless it is a zstd frame of at most BLOCK_MAX_BYTES. *ret is owned by the caller. */
int block_decompress(const u8 *in, size_t n_in, u8 **ret, size_t *ret_n);

void block_parts_deinit(struct block_parts *p);
#define _cleanup_block_parts_ __attribute__((cleanup(block_parts_deinit)))
void block_sums_deinit(struct block_sums *s);
#define _cleanup_block_sums_ __attribute__((cleanup(block_sums_deinit)))

/* Rows sorted, as above; equal ones are added up. level: zstd's. 0 or -ENOMEM, -E2BIG. */
int block_encode(const struct block_row *rows, size_t n, int level, struct block_parts *ret);

/* -EBADMSG for what is no block. */
int block_read_series(const u8 *data, size_t n, struct block_sums *ret);
int block_read_stacks(const u8 *data, size_t n, struct block_sums *ret);

/* Walks the rows of a block; needs its sums. */
struct block_cursor {
	struct block_sums series, stacks;
	u8 *data; /* owned */
	struct buf columns[4];
	u64 time_unit;
	s64 value_unit;
	size_t stack; /* position of the current one */
	u32 left;     /* rows of it to come */
	u32 series_at, time;
	u64 rows_left;
	struct block_row row; /* the current one */
};

int block_open(const u8 *series, size_t n_series, const u8 *stacks, size_t n_stacks, const u8 *body,
	       size_t n_body, struct block_cursor *ret);
/* 1 and c->row, 0 at the end, -EBADMSG for damage. */
int block_next(struct block_cursor *c);
void block_close(struct block_cursor *c);

/*
 * One block of several. shift[i] ms (may be 0) are added to the times of input i, then they are
 * rounded down to round_ms (1 = as they are).
 */
int block_merge(struct block_cursor *inputs, const u32 *shift, size_t n, u32 round_ms, int level,
		struct block_parts *ret);
