/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <lzma.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "compress/compress.h"

static int inflate_into(lzma_stream *z, size_t max, u8 **out, size_t *ret_n)
{
	size_t cap = 0, n = 0;
	lzma_ret r;

	do {
		if (n == cap) {
			size_t more = cap ? cap * 2 : 1 << 16;
			u8 *p;

			if (cap == max)
				return -E2BIG;
			more = MIN(more, max);
			p = realloc(*out, more);
			if (!p)
				return -ENOMEM;
			*out = p;
			cap = more;
		}
		z->next_out = *out + n;
		z->avail_out = cap - n;
		r = lzma_code(z, LZMA_FINISH);
		n = cap - z->avail_out;
	} while (r == LZMA_OK);
	if (r != LZMA_STREAM_END)
		return r == LZMA_MEM_ERROR ? -ENOMEM : -EINVAL;
	*ret_n = n;
	return 0;
}

int xz_inflate(struct buf in, size_t max, void **ret, size_t *ret_n, struct diag *reterr_diag)
{
	_cleanup_free_ u8 *out = NULL;
	lzma_stream z = LZMA_STREAM_INIT;
	size_t n = 0;
	int r;

	/* xz -9 needs 65 MiB. A dictionary of more than max bytes is never needed. */
	if (lzma_stream_decoder(&z, max + (1 << 20), 0) != LZMA_OK)
		return -ENOMEM;
	z.next_in = in.pos;
	z.avail_in = buf_left(&in);
	r = inflate_into(&z, max, &out, &n);
	if (r == -EINVAL)
		diag_set_at(reterr_diag, r, (u64)(z.next_in - in.start), "damaged xz data");
	lzma_end(&z);
	if (r < 0)
		return r;
	*ret_n = n;
	*ret = take_ptr(out);
	return 0;
}
