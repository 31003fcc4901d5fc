/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/quota.h"
#include "compress/compress.h"

/* RFC 8878, 3.1.1.1.2: a decoder should support windows of 8 MiB. Larger ones only take memory. */
#define WINDOW_LOG_MAX 23

bool zstd_is(const u8 *data, size_t n)
{
	return n >= 4 && data[0] == 0x28 && data[1] == 0xb5 && data[2] == 0x2f && data[3] == 0xfd;
}

static void cleanup_dctx(ZSTD_DCtx **d)
{
	ZSTD_freeDCtx(*d);
}

static ZSTD_DCtx *create_context(void)
{
	ZSTD_DCtx *d = ZSTD_createDCtx();

	if (d && !ZSTD_isError(ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
		return d;
	ZSTD_freeDCtx(d);
	return NULL;
}

/* *ret_done: the input ends where a frame does. */
static int inflate(ZSTD_DCtx *d, const u8 *data, size_t n, u64 limit, struct str *out,
		   bool *ret_done, struct diag *reterr_diag)
{
	ZSTD_inBuffer in = {data, n, 0};
	char chunk[64 << 10];
	size_t left;
	int r;

	for (;;) {
		ZSTD_outBuffer part = {chunk, sizeof(chunk), 0};

		r = quota_check(reterr_diag);
		if (r < 0)
			return r;
		left = ZSTD_decompressStream(d, &part, &in);
		if (ZSTD_isError(left))
			return diag_set_at(reterr_diag, -EBADMSG, in.pos, "damaged zstd data: %s",
					   ZSTD_getErrorName(left));
		if (out->n + part.pos > limit)
			return diag_set(reterr_diag, -EFBIG, "more than %llu MiB when decompressed",
					limit >> 20);
		if (part.pos && str_append(out, chunk, part.pos) < 0)
			return diag_set(reterr_diag, -ENOMEM, "out of memory");
		*ret_done = in.pos == in.size && left == 0;
		if (*ret_done || (in.pos == in.size && part.pos < part.size))
			return 0;
	}
}

int zstd_inflate(const u8 *data, size_t n, u64 limit, struct str *out, struct diag *reterr_diag)
{
	_cleanup_(dctx) ZSTD_DCtx *d = create_context();
	bool done = false;
	int r;

	if (!d)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	r = inflate(d, data, n, limit, out, &done, reterr_diag);
	if (r == 0 && !done)
		return diag_set_at(reterr_diag, -EBADMSG, n, "the zstd data is cut off");
	return r;
}

struct zstd_stream {
	ZSTD_DCtx *context; /* owned */
};

int zstd_stream_create(struct zstd_stream **ret)
{
	struct zstd_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->context = create_context();
	if (!s->context) {
		free(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

void zstd_stream_destroy(struct zstd_stream *s)
{
	if (!s)
		return;
	ZSTD_freeDCtx(s->context);
	free(s);
}

int zstd_stream_inflate(struct zstd_stream *s, const u8 *data, size_t n, u64 limit, struct str *out,
			struct diag *reterr_diag)
{
	bool done;

	return inflate(s->context, data, n, limit, out, &done, reterr_diag);
}

int zstd_inflate_exactly(struct buf in, u8 *out, size_t out_n, struct diag *reterr_diag)
{
	size_t n = ZSTD_decompress(out, out_n, in.pos, buf_left(&in));

	if (n == out_n)
		return 0;
	return diag_set_at(reterr_diag, -EINVAL, buf_offset(&in), "damaged zstd data: %s",
			   ZSTD_isError(n) ? ZSTD_getErrorName(n) : "a wrong size");
}
