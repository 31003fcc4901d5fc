/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind/fde_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HDR_UDATA4 0x03
#define HDR_DATAREL_SDATA4 0x3b

static s32 hdr_word(const struct fde_index *x, u32 i, u32 word)
{
	s32 v;

	memcpy(&v, x->hdr_table + (size_t)i * 8 + word * 4, sizeof(v));
	return v;
}

u64 fde_index_start(const struct fde_index *x, u32 i)
{
	return x->hdr_table ? x->hdr_svma + (u64)(s64)hdr_word(x, i, 0) : x->refs.data[i].start;
}

static u64 fde_offset(const struct fde_index *x, u32 i)
{
	return x->hdr_table ? x->hdr_svma + (u64)(s64)hdr_word(x, i, 1) - x->cfi.svma
			    : x->refs.data[i].offset;
}

int fde_index_get(struct fde_index *x, u32 i, struct cfi_fde *ret)
{
	struct cfi_fde fde;
	int r = cfi_fde_at(&x->cfi, fde_offset(x, i), &fde);

	if (r < 0)
		return r;
	if (fde.start != fde_index_start(x, i))
		return -EINVAL;
	if (i + 1 < x->n)
		fde.end = MIN(fde.end, fde_index_start(x, i + 1));
	*ret = fde;
	return 0;
}

u32 fde_index_find(const struct fde_index *x, u64 svma)
{
	u32 lo = 0, n = x->n;

	while (n > 1) {
		u32 half = n / 2;

		if (fde_index_start(x, lo + half) <= svma)
			lo += half;
		n -= half;
	}
	return lo;
}

/* Sets x->hdr_table if .eh_frame_hdr has the form that every linker writes. */
static bool hdr_open(struct fde_index *x, struct buf hdr, u64 hdr_svma)
{
	u8 version, frame_enc, count_enc, table_enc;
	u64 frame;
	u32 n;

	if (!buf_u8(&hdr, &version) || !buf_u8(&hdr, &frame_enc) || !buf_u8(&hdr, &count_enc) ||
	    !buf_u8(&hdr, &table_enc) || version != 1 || count_enc != HDR_UDATA4 ||
	    table_enc != HDR_DATAREL_SDATA4 ||
	    !cfi_pointer(&hdr, frame_enc, hdr_svma + 4, hdr_svma, &frame) || frame != x->cfi.svma ||
	    !buf_u32(&hdr, &n) || !n || n > buf_left(&hdr) / 8)
		return false;
	x->hdr_table = hdr.pos;
	x->hdr_svma = hdr_svma;
	x->n = n;
	return true;
}

/*
 * Checks every entry: a table that omits an FDE, or has a wrong one, would give wrong rows
 * silently.
 */
static bool hdr_agrees(struct fde_index *x, u64 lo, u64 hi)
{
	u64 offset = 0, at;
	u32 n = 0;

	while (cfi_next(&x->cfi, &offset, &at))
		n++;
	if (n != x->n)
		return false;
	for (u32 i = 0; i < n; i++) {
		struct cfi_fde fde;
		u64 start = fde_index_start(x, i);

		if (start < lo || start >= hi || (i && start <= fde_index_start(x, i - 1)) ||
		    cfi_fde_at(&x->cfi, fde_offset(x, i), &fde) < 0 || fde.start != start ||
		    fde.end == start)
			return false;
	}
	return true;
}

static int by_start(const void *a, const void *b)
{
	const struct fde_ref *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

static int scan_fdes(struct fde_index *x, u64 lo, u64 hi)
{
	u64 offset = 0, at;
	bool sorted = true;
	size_t n = 0;

	x->hdr_table = NULL;
	x->n = 0;
	while (cfi_next(&x->cfi, &offset, &at)) {
		struct cfi_fde fde;

		if (cfi_fde_at(&x->cfi, at, &fde) < 0 || fde.start == fde.end || fde.start < lo ||
		    fde.start >= hi)
			continue;
		if (x->refs.n && x->refs.data[x->refs.n - 1].start >= fde.start)
			sorted = false;
		if (vec_push(&x->refs, (struct fde_ref){.start = fde.start, .offset = (u32)at}) < 0)
			return -ENOMEM;
	}
	if (!sorted) {
		qsort(x->refs.data, x->refs.n, sizeof(*x->refs.data), by_start);
		/* If several FDEs have one start (folded or discarded copies), the first one is
		 * kept. */
		for (size_t i = 0; i < x->refs.n; i++)
			if (!n || x->refs.data[n - 1].start != x->refs.data[i].start)
				x->refs.data[n++] = x->refs.data[i];
		x->refs.n = n;
	}
	x->n = (u32)x->refs.n;
	return 0;
}

int fde_index_build(struct fde_index *x, struct buf hdr, u64 hdr_svma, u64 lo, u64 hi)
{
	if (hdr_open(x, hdr, hdr_svma) && hdr_agrees(x, lo, hi))
		return 0;
	return scan_fdes(x, lo, hi);
}

void fde_index_deinit(struct fde_index *x)
{
	vec_deinit(&x->refs);
}
