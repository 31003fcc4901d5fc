/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block: samples of one service and type within one hour, sorted by stack, series and time, as
 * columns in three parts. doc/format/block.md has the layout. Stacks and series are dense numbers
 * of the database that has the block, not ids.
 *
 *	series	sums and times by series
 *	stacks	sums by stack
 *	body	by row: series, time, count, value
 *
 * The sums by stack and by series are parts of their own, so that a query over a whole block reads
 * no rows. Times are relative to the block's base. The base is the block's hour, or a longer period
 * once maintenance has rounded the times to that period.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"
#include "base/types.h"
#include "base/vec.h"

#define BLOCK_MAX_ROWS (1u << 20)
#define BLOCK_MAX_BYTES (64u << 20) /* of a part, decompressed */
#define BLOCK_HOUR_MS 3600000ULL

struct block_row {
	u32 stack, series;
	u32 time_ms; /* since the base */
	u64 count;
	s64 value;
};

struct block_sum {
	u32 number; /* of the series or stack */
	u32 rows;
	u64 count;
	s64 value;
	u32 first_ms, last_ms; /* of series only; since the base */
};

struct block_sums {
	vec(struct block_sum) sums; /* by number */
};

struct block_parts {
	struct str series, stacks, body;
	u64 rows, samples;
	u32 first_ms, last_ms; /* since the base */
};

/*
 * Appends a zstd frame. `zstd` compresses any number; NULL: one is made, which takes longer than
 * compressing what a small request brings.
 */
struct ZSTD_CCtx_s;
int block_compress(struct ZSTD_CCtx_s *zstd, const struct str *in, int level, struct str *ret);
/*
 * A decompressor of libzstd, which the functions below use for any number of blocks. NULL: they
 * make one for each call, which takes longer than reading a small block.
 */
struct ZSTD_DCtx_s;
/*
 * -EBADMSG unless `in` is a zstd frame of at most BLOCK_MAX_BYTES. *ret is owned by the caller.
 */
int block_decompress(struct ZSTD_DCtx_s *zstd, const u8 *in, size_t n_in, u8 **ret, size_t *ret_n);

static inline s64 block_add_clamped(s64 a, s64 b)
{
	s64 sum;

	if (__builtin_add_overflow(a, b, &sum))
		return a < 0 ? INT64_MIN : INT64_MAX;
	return sum;
}

void block_parts_deinit(struct block_parts *p);
#define _cleanup_block_parts_ __attribute__((cleanup(block_parts_deinit)))
void block_sums_deinit(struct block_sums *s);
#define _cleanup_block_sums_ __attribute__((cleanup(block_sums_deinit)))

/* Rows must be sorted; equal rows are added up. level: zstd's. -ENOMEM, -E2BIG. */
int block_encode(struct ZSTD_CCtx_s *zstd, const struct block_row *rows, size_t n, int level,
		 struct block_parts *ret);

/*
 * Replaces *s, which may be that of another block: its memory is used again. -EBADMSG for damage,
 * which leaves it empty.
 */
int block_read_series(struct ZSTD_DCtx_s *zstd, const u8 *data, size_t n, struct block_sums *s);
int block_read_stacks(struct ZSTD_DCtx_s *zstd, const u8 *data, size_t n, struct block_sums *s);

/* Iterates over the rows of a block. */
struct block_cursor {
	struct block_sums series, stacks;
	u8 *data; /* owned */
	struct buf columns[4];
	u64 time_unit;
	s64 value_unit;
	size_t stack; /* position of the current stack */
	u32 left;     /* rows of that stack to come */
	u32 series_at, time;
	u64 rows_left;
	struct block_row row; /* the current row */
};

int block_open(struct ZSTD_DCtx_s *zstd, const u8 *series, size_t n_series, const u8 *stacks,
	       size_t n_stacks, const u8 *body, size_t n_body, struct block_cursor *ret);
/* 1: c->row is the next row; 0 at the end; -EBADMSG for damage. */
int block_next(struct block_cursor *c);
void block_close(struct block_cursor *c);

/*
 * Merges blocks into one. Adds shift[i] ms to the times of input i, and then rounds them down to a
 * multiple of round_ms (1 = times as they are).
 */
int block_merge(struct block_cursor *inputs, const u32 *shift, size_t n, u32 round_ms, int level,
		struct block_parts *ret);
