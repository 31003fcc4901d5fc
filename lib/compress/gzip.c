/* SPDX-License-Identifier: Apache-2.0 */
#include "compress/compress.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "base/quota.h"

#define WINDOW_ZLIB 15
#define WINDOW_GZIP (15 + 16) /* zlib.h: + 16 selects the framing of gzip */

bool gzip_is(const u8 *data, size_t n)
{
	return n >= 3 && data[0] == 0x1f && data[1] == 0x8b && data[2] == 8;
}

static void cleanup_inflate(z_stream *z)
{
	inflateEnd(z);
}

static void cleanup_deflate(z_stream *z)
{
	deflateEnd(z);
}

/*
 * Inflates the stream into `out` until a member ends or the input runs out. `data` is the begin of
 * the input.
 */
static int inflate_member(z_stream *z, const u8 *data, u64 limit, struct str *out,
			  struct diag *reterr_diag)
{
	u8 chunk[64 << 10];
	int z_r, r;

	do {
		r = quota_check(reterr_diag);
		if (r < 0)
			return r;
		z->next_out = chunk;
		z->avail_out = sizeof(chunk);
		z_r = inflate(z, Z_NO_FLUSH);
		if (z_r == Z_MEM_ERROR)
			return diag_set(reterr_diag, -ENOMEM, "out of memory");
		if (z_r != Z_OK && z_r != Z_STREAM_END)
			return diag_set_at(reterr_diag, -EBADMSG, (u64)(z->next_in - data),
					   "damaged or cut off compressed data: %s",
					   z->msg ? z->msg : "it ends too early");
		if (out->n + (sizeof(chunk) - z->avail_out) > limit)
			return diag_set(reterr_diag, -EFBIG, "more than %llu MiB when decompressed",
					limit >> 20);
		if (str_append(out, chunk, sizeof(chunk) - z->avail_out) < 0)
			return diag_set(reterr_diag, -ENOMEM, "out of memory");
	} while (z_r != Z_STREAM_END);
	return 0;
}

/* `window` selects the framing. */
static int inflate_all(int window, const u8 *data, size_t n, u64 limit, struct str *out,
		       struct diag *reterr_diag)
{
	__attribute__((cleanup(cleanup_inflate))) z_stream z = {};
	int r;

	/* avail_in has 32 bits. 4 GiB of compressed data exceed every limit anyway. */
	if (n > UINT_MAX)
		return diag_set(reterr_diag, -EFBIG, "more than 4 GiB of compressed data");
	if (inflateInit2(&z, window) != Z_OK)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	z.next_in = (u8 *)data;
	z.avail_in = (uInt)n;
	do {
		r = inflate_member(&z, data, limit, out, reterr_diag);
		if (r < 0)
			return r;
	} while (window == WINDOW_GZIP && gzip_is(z.next_in, z.avail_in) &&
		 inflateReset(&z) == Z_OK);
	return 0;
}

int gzip_inflate(const u8 *data, size_t n, u64 limit, struct str *out, struct diag *reterr_diag)
{
	return inflate_all(WINDOW_GZIP, data, n, limit, out, reterr_diag);
}

int zlib_inflate(const u8 *data, size_t n, u64 limit, struct str *out, struct diag *reterr_diag)
{
	return inflate_all(WINDOW_ZLIB, data, n, limit, out, reterr_diag);
}

int gzip_deflate(const void *data, size_t n, struct str *out)
{
	__attribute__((cleanup(cleanup_deflate))) z_stream z = {};
	const u8 *in = data;
	u8 chunk[64 << 10];
	int r = Z_OK, why;

	if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, WINDOW_GZIP, 8,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	while (r != Z_STREAM_END) {
		size_t part = MIN(n, (size_t)1 << 30);

		why = quota_check(NULL);
		if (why < 0)
			return why;
		if (!z.avail_in) {
			z.next_in = (u8 *)in;
			z.avail_in = (uInt)part;
			in += part;
			n -= part;
		}
		z.next_out = chunk;
		z.avail_out = sizeof(chunk);
		r = deflate(&z, n ? Z_NO_FLUSH : Z_FINISH);
		if (r == Z_STREAM_ERROR)
			return -EINVAL;
		if (str_append(out, chunk, sizeof(chunk) - z.avail_out) < 0)
			return -ENOMEM;
	}
	return 0;
}

int zlib_inflate_exactly(struct buf in, u8 *out, size_t out_n, struct diag *reterr_diag)
{
	z_stream z = {.next_in = (Bytef *)in.pos, .next_out = out};
	u64 in_left = buf_left(&in), out_left = out_n;
	int r;

	if (inflateInit(&z) != Z_OK)
		return -ENOMEM;
	do {
		u32 in_part = (u32)MIN(in_left, 1ULL << 30);
		u32 out_part = (u32)MIN(out_left, 1ULL << 30);

		z.avail_in = in_part;
		z.avail_out = out_part;
		r = inflate(&z, Z_NO_FLUSH);
		in_left -= in_part - z.avail_in;
		out_left -= out_part - z.avail_out;
	} while (r == Z_OK && (in_left || out_left));
	if (r != Z_STREAM_END || out_left)
		r = r == Z_MEM_ERROR
			    ? -ENOMEM
			    : diag_set_at(reterr_diag, -EINVAL, (u64)(z.next_in - in.start),
					  "damaged zlib data: %s", z.msg ? z.msg : "a wrong size");
	else
		r = 0;
	inflateEnd(&z);
	return r;
}
