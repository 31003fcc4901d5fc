/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store/block.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/varint.h"

enum { COLUMN_SERIES, COLUMN_TIME, COLUMN_COUNT, COLUMN_VALUE, N_COLUMNS };

void block_parts_deinit(struct block_parts *p)
{
	str_deinit(&p->series);
	str_deinit(&p->stacks);
	str_deinit(&p->body);
}

void block_sums_deinit(struct block_sums *s)
{
	vec_deinit(&s->sums);
}

int block_compress(struct ZSTD_CCtx_s *zstd, const struct str *in, int level, struct str *ret)
{
	size_t max = ZSTD_compressBound(in->n), n;
	_cleanup_free_ u8 *out = malloc(max);

	if (in->failed || !out)
		return -ENOMEM;
	n = zstd ? ZSTD_compressCCtx(zstd, out, max, in->data, in->n, level)
		 : ZSTD_compress(out, max, in->data, in->n, level);
	if (ZSTD_isError(n))
		return -ENOMEM;
	return str_append(ret, out, n);
}

int block_decompress(struct ZSTD_DCtx_s *zstd, const u8 *in, size_t n_in, u8 **ret, size_t *ret_n)
{
	unsigned long long size = ZSTD_getFrameContentSize(in, n_in);
	_cleanup_free_ u8 *out = NULL;
	size_t n;

	if (size > BLOCK_MAX_BYTES) /* also for a frame without a size, or no frame */
		return -EBADMSG;
	out = malloc(size + 1);
	if (!out)
		return -ENOMEM;
	n = zstd ? ZSTD_decompressDCtx(zstd, out, size, in, n_in)
		 : ZSTD_decompress(out, size, in, n_in);
	if (n != size)
		return -EBADMSG;
	*ret = take_ptr(out);
	*ret_n = size;
	return 0;
}

/* ---- writing ---- */

struct builder {
	struct str columns[N_COLUMNS];
	struct block_sums *series; /* borrowed: of all rows to come, by number */
	struct block_sums stacks;
	u64 time_unit;
	s64 value_unit;
	struct block_row last; /* pending: the encoder adds equal rows to it */
	bool any;
	u32 series_at, time; /* of the previous row */
	u64 rows, samples;
	u32 first_ms, last_ms;
};

static void builder_deinit(struct builder *b)
{
	for (size_t i = 0; i < N_COLUMNS; i++)
		str_deinit(&b->columns[i]);
	block_sums_deinit(&b->stacks);
}

static struct block_sum *find_sum(struct block_sums *s, u32 number)
{
	size_t low = 0, high = s->sums.n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (s->sums.data[mid].number < number)
			low = mid + 1;
		else
			high = mid;
	}
	return &s->sums.data[low];
}

static void add_to_sum(struct block_sum *s, const struct block_row *r)
{
	if (!s->rows || r->time_ms < s->first_ms)
		s->first_ms = r->time_ms;
	if (!s->rows || r->time_ms > s->last_ms)
		s->last_ms = r->time_ms;
	s->rows++;
	s->count += r->count;
	s->value = block_add_clamped(s->value, r->value);
}

/* Encodes b->last. */
static int flush_row(struct builder *b)
{
	const struct block_row *r = &b->last;
	struct block_sum *series = find_sum(b->series, r->series), *stack;
	u32 at = (u32)(series - b->series->sums.data), time = r->time_ms / (u32)b->time_unit;
	bool new_stack;

	stack = b->stacks.sums.n ? &b->stacks.sums.data[b->stacks.sums.n - 1] : NULL;
	new_stack = !stack || stack->number != r->stack;
	if (new_stack) {
		if (vec_push(&b->stacks.sums, (struct block_sum){.number = r->stack}) < 0)
			return -ENOMEM;
		stack = &b->stacks.sums.data[b->stacks.sums.n - 1];
	}
	varint_put(&b->columns[COLUMN_SERIES], new_stack ? at : at - b->series_at);
	varint_put(&b->columns[COLUMN_TIME],
		   new_stack || at != b->series_at ? time : time - b->time);
	varint_put(&b->columns[COLUMN_COUNT], r->count);
	if (!b->value_unit)
		varint_put_signed(&b->columns[COLUMN_VALUE], r->value);
	b->series_at = at;
	b->time = time;
	add_to_sum(series, r);
	add_to_sum(stack, r);
	if (!b->rows || r->time_ms < b->first_ms)
		b->first_ms = r->time_ms;
	b->last_ms = MAX(b->last_ms, r->time_ms);
	b->rows++;
	b->samples += r->count;
	return b->rows > BLOCK_MAX_ROWS ? -E2BIG : 0;
}

static int add_row(struct builder *b, const struct block_row *r)
{
	struct block_row *last = &b->last;
	int res = 0;

	if (b->any && last->stack == r->stack && last->series == r->series &&
	    last->time_ms == r->time_ms) {
		last->count += r->count;
		last->value = block_add_clamped(last->value, r->value);
		return 0;
	}
	if (b->any)
		res = flush_row(b);
	b->last = *r;
	b->any = true;
	return res;
}

static void put_sums(struct block_sums *s, bool times, struct str *out)
{
	u32 number = 0;

	varint_put(out, s->sums.n);
	vec_foreach (&s->sums, e) {
		varint_put(out, e->number - number);
		number = e->number;
	}
	vec_foreach (&s->sums, e)
		varint_put(out, e->rows);
	vec_foreach (&s->sums, e)
		varint_put(out, e->count);
	vec_foreach (&s->sums, e)
		varint_put_signed(out, e->value);
	if (!times)
		return;
	vec_foreach (&s->sums, e) {
		varint_put(out, e->first_ms);
		varint_put(out, e->last_ms - e->first_ms);
	}
}

static int finish_block(struct builder *b, struct ZSTD_CCtx_s *zstd, int level,
			struct block_parts *ret)
{
	_cleanup_str_ struct str series = {}, stacks = {}, body = {};
	int r = b->any ? flush_row(b) : -EINVAL;

	if (r < 0)
		return r;
	put_sums(b->series, true, &series);
	put_sums(&b->stacks, false, &stacks);
	varint_put(&body, b->rows);
	varint_put(&body, b->time_unit);
	varint_put_signed(&body, b->value_unit);
	for (size_t i = 0; i < N_COLUMNS; i++) {
		if (b->columns[i].failed)
			return -ENOMEM;
		varint_put(&body, b->columns[i].n);
		str_append(&body, b->columns[i].data, b->columns[i].n);
	}
	if (body.n > BLOCK_MAX_BYTES || stacks.n > BLOCK_MAX_BYTES || series.n > BLOCK_MAX_BYTES)
		return -E2BIG;
	r = block_compress(zstd, &series, level, &ret->series);
	if (r == 0)
		r = block_compress(zstd, &stacks, level, &ret->stacks);
	if (r == 0)
		r = block_compress(zstd, &body, level, &ret->body);
	ret->rows = b->rows;
	ret->samples = b->samples;
	ret->first_ms = b->first_ms;
	ret->last_ms = b->last_ms;
	return r;
}

static u64 gcd(u64 a, u64 b)
{
	while (b) {
		u64 rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static int compare_numbers(const void *a, const void *b)
{
	const struct block_sum *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* Sorts by number, removes duplicates, and clears the sums. */
static void make_distinct(struct block_sums *s)
{
	size_t n = 0;

	if (s->sums.n)
		qsort(s->sums.data, s->sums.n, sizeof(*s->sums.data), compare_numbers);
	for (size_t i = 0; i < s->sums.n; i++)
		if (!n || s->sums.data[n - 1].number != s->sums.data[i].number)
			s->sums.data[n++] = (struct block_sum){.number = s->sums.data[i].number};
	s->sums.n = n;
}

/* The value of one sample if it is the same in all rows, else 0. */
static s64 common_value(const struct block_row *rows, size_t n)
{
	s64 unit = rows[0].count ? rows[0].value / (s64)rows[0].count : 0, product;

	for (size_t i = 0; i < n; i++)
		if (rows[i].count > INT64_MAX ||
		    __builtin_mul_overflow((s64)rows[i].count, unit, &product) ||
		    product != rows[i].value)
			return 0;
	return unit;
}

int block_encode(struct ZSTD_CCtx_s *zstd, const struct block_row *rows, size_t n, int level,
		 struct block_parts *ret)
{
	_cleanup_block_sums_ struct block_sums series = {};
	__attribute__((cleanup(builder_deinit))) struct builder b = {.series = &series};
	int r = 0;

	if (!n)
		return -EINVAL;
	for (size_t i = 0; i < n && r == 0; i++) {
		b.time_unit = gcd(b.time_unit, rows[i].time_ms);
		if (!i || rows[i].series != rows[i - 1].series)
			r = vec_push(&series.sums, (struct block_sum){.number = rows[i].series});
	}
	b.time_unit = MAX(b.time_unit, 1ULL);
	b.value_unit = common_value(rows, n);
	make_distinct(&series);
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_row(&b, &rows[i]);
	return r < 0 ? r : finish_block(&b, zstd, level, ret);
}

/* ---- reading ---- */

static bool read_numbers(struct buf *b, struct block_sums *s, u64 n)
{
	u64 number = 0;

	for (u64 i = 0; i < n; i++) {
		u64 delta;

		if (!varint_get(b, &delta) || delta > UINT32_MAX || (i && !delta))
			return false;
		number += delta;
		if (number > UINT32_MAX)
			return false;
		s->sums.data[i] = (struct block_sum){.number = (u32)number};
	}
	s->sums.n = n;
	return true;
}

static bool read_sums(struct buf *b, struct block_sums *s, bool times)
{
	vec_foreach (&s->sums, e)
		if (!varint_get_u32(b, &e->rows))
			return false;
	vec_foreach (&s->sums, e)
		if (!varint_get(b, &e->count))
			return false;
	vec_foreach (&s->sums, e)
		if (!varint_get_signed(b, &e->value))
			return false;
	if (!times)
		return true;
	vec_foreach (&s->sums, e) {
		u32 length;

		if (!varint_get_u32(b, &e->first_ms) || !varint_get_u32(b, &length) ||
		    __builtin_add_overflow(e->first_ms, length, &e->last_ms))
			return false;
	}
	return true;
}

static int read_part(struct ZSTD_DCtx_s *zstd, const u8 *data, size_t n, bool times,
		     struct block_sums *s)
{
	_cleanup_free_ u8 *plain = NULL;
	size_t n_plain;
	struct buf b;
	u64 count;
	int r = block_decompress(zstd, data, n, &plain, &n_plain);

	vec_clear(&s->sums);
	if (r < 0)
		return r;
	b = buf_of(plain, n_plain);
	/* An entry has at least four bytes. */
	if (!varint_get(&b, &count) || count > buf_left(&b) / 4)
		return -EBADMSG;
	if (vec_reserve(&s->sums, count) < 0)
		return -ENOMEM;
	if (read_numbers(&b, s, count) && read_sums(&b, s, times))
		return 0;
	vec_clear(&s->sums);
	return -EBADMSG;
}

int block_read_series(struct ZSTD_DCtx_s *zstd, const u8 *data, size_t n, struct block_sums *s)
{
	return read_part(zstd, data, n, true, s);
}

int block_read_stacks(struct ZSTD_DCtx_s *zstd, const u8 *data, size_t n, struct block_sums *s)
{
	return read_part(zstd, data, n, false, s);
}

void block_close(struct block_cursor *c)
{
	block_sums_deinit(&c->series);
	block_sums_deinit(&c->stacks);
	free(c->data);
	c->data = NULL;
}

int block_open(struct ZSTD_DCtx_s *zstd, const u8 *series, size_t n_series, const u8 *stacks,
	       size_t n_stacks, const u8 *body, size_t n_body, struct block_cursor *ret)
{
	struct block_cursor c = {};
	size_t n_plain = 0;
	struct buf b;
	u64 size;
	int r = block_read_series(zstd, series, n_series, &c.series);

	if (r == 0)
		r = block_read_stacks(zstd, stacks, n_stacks, &c.stacks);
	if (r == 0)
		r = block_decompress(zstd, body, n_body, &c.data, &n_plain);
	b = buf_of(c.data, n_plain);
	if (r == 0 &&
	    (!varint_get(&b, &c.rows_left) || !varint_get(&b, &c.time_unit) || !c.time_unit ||
	     c.time_unit > UINT32_MAX || !varint_get_signed(&b, &c.value_unit)))
		r = -EBADMSG;
	for (size_t i = 0; i < N_COLUMNS && r == 0; i++)
		if (!varint_get(&b, &size) || !buf_take(&b, size, &c.columns[i]))
			r = -EBADMSG;
	if (r < 0) {
		block_close(&c);
		return r;
	}
	c.stack = SIZE_MAX;
	*ret = c;
	return 0;
}

int block_next(struct block_cursor *c)
{
	u32 series, time, ms;
	u64 count;
	s64 value;
	bool new_stack = !c->left;

	if (!c->rows_left)
		return 0;
	if (new_stack) {
		c->stack++;
		if (c->stack >= c->stacks.sums.n || !c->stacks.sums.data[c->stack].rows)
			return -EBADMSG;
		c->left = c->stacks.sums.data[c->stack].rows;
		c->series_at = 0;
	}
	if (!varint_get_u32(&c->columns[COLUMN_SERIES], &series) ||
	    !varint_get_u32(&c->columns[COLUMN_TIME], &time) ||
	    !varint_get(&c->columns[COLUMN_COUNT], &count))
		return -EBADMSG;
	if (!new_stack && !series && __builtin_add_overflow(c->time, time, &time))
		return -EBADMSG;
	if (__builtin_add_overflow(c->series_at, series, &series) || series >= c->series.sums.n ||
	    __builtin_mul_overflow(time, (u32)c->time_unit, &ms))
		return -EBADMSG;
	if (c->value_unit) {
		if (__builtin_mul_overflow(c->value_unit, count, &value))
			return -EBADMSG;
	} else if (!varint_get_signed(&c->columns[COLUMN_VALUE], &value)) {
		return -EBADMSG;
	}
	c->series_at = series;
	c->time = time;
	c->left--;
	c->rows_left--;
	c->row = (struct block_row){.stack = c->stacks.sums.data[c->stack].number,
				    .series = c->series.sums.data[series].number,
				    .time_ms = ms,
				    .count = count,
				    .value = value};
	return 1;
}

/* ---- merging ---- */

/* A heap of cursors, sorted by their current rows. */
struct heap {
	struct run {
		struct block_cursor *cursor;
		struct block_row row; /* shifted and rounded */
		u32 shift;
	} * runs; /* owned */
	size_t n;
	u32 round_ms;
};

static bool row_less(const struct block_row *a, const struct block_row *b)
{
	if (a->stack != b->stack)
		return a->stack < b->stack;
	return a->series != b->series ? a->series < b->series : a->time_ms < b->time_ms;
}

static int advance_run(struct heap *h, struct run *run)
{
	int r = block_next(run->cursor);

	if (r <= 0)
		return r;
	run->row = run->cursor->row;
	if (__builtin_add_overflow(run->row.time_ms, run->shift, &run->row.time_ms))
		return -EBADMSG;
	run->row.time_ms -= run->row.time_ms % h->round_ms;
	return 1;
}

static void sift_down(struct heap *h, size_t i)
{
	struct run run = h->runs[i];

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= h->n)
			break;
		if (child + 1 < h->n && row_less(&h->runs[child + 1].row, &h->runs[child].row))
			child++;
		if (!row_less(&h->runs[child].row, &run.row))
			break;
		h->runs[i] = h->runs[child];
		i = child;
	}
	h->runs[i] = run;
}

static int merge_rows(struct heap *h, struct builder *b)
{
	int r;

	for (size_t i = h->n; i-- > 0;)
		sift_down(h, i);
	while (h->n) {
		r = add_row(b, &h->runs[0].row);
		if (r < 0)
			return r;
		r = advance_run(h, &h->runs[0]);
		if (r < 0)
			return r;
		if (r == 0)
			h->runs[0] = h->runs[--h->n];
		if (h->n)
			sift_down(h, 0);
	}
	return 0;
}

int block_merge(struct block_cursor *inputs, const u32 *shift, size_t n, u32 round_ms, int level,
		struct block_parts *ret)
{
	_cleanup_block_sums_ struct block_sums series = {};
	__attribute__((cleanup(builder_deinit))) struct builder b = {.series = &series};
	_cleanup_free_ struct run *runs = calloc(n + 1, sizeof(*runs));
	struct heap h = {.runs = runs, .round_ms = MAX(round_ms, 1u)};
	int r = runs ? 0 : -ENOMEM;

	b.time_unit = h.round_ms > 1 ? h.round_ms : 0;
	for (size_t i = 0; i < n && r == 0; i++) {
		if (h.round_ms == 1)
			b.time_unit = gcd(gcd(b.time_unit, inputs[i].time_unit), shift[i]);
		if (!i)
			b.value_unit = inputs[i].value_unit;
		else if (b.value_unit != inputs[i].value_unit)
			b.value_unit = 0;
		vec_foreach (&inputs[i].series.sums, s) {
			r = vec_push(&series.sums, *s);
			if (r < 0)
				break;
		}
		runs[h.n] = (struct run){.cursor = &inputs[i], .shift = shift[i]};
		if (r == 0)
			r = advance_run(&h, &runs[h.n]);
		h.n += r > 0;
		r = MIN(r, 0);
	}
	make_distinct(&series);
	if (r == 0)
		r = merge_rows(&h, &b);
	return r < 0 ? r : finish_block(&b, NULL, level, ret);
}
