/* SPDX-License-Identifier: Apache-2.0 */
/* Decompression of foreign bytes: at most `limit` bytes of output, and all of it or an error. */
#pragma once

#include "base/buf.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"

#define GZIP_LIMIT_BYTES (4ULL << 30)

bool gzip_is(const u8 *data, size_t n);
/* Inflates all members. -EFBIG: more than `limit` bytes; -EBADMSG: damaged or cut off. */
int gzip_inflate(const u8 *data, size_t n, u64 limit, struct str *out, struct diag *reterr_diag);
/* The same of one stream in zlib's framing. */
int zlib_inflate(const u8 *data, size_t n, u64 limit, struct str *out, struct diag *reterr_diag);
int gzip_deflate(const void *data, size_t n, struct str *out);

bool zstd_is(const u8 *data, size_t n);
/*
 * Inflates all frames; errors as above. Refuses windows above 8 MiB, the format's recommended
 * limit.
 */
int zstd_inflate(const u8 *data, size_t n, u64 limit, struct str *out, struct diag *reterr_diag);

/* A stream that arrives in parts, and may have no end: what `perf record -z` writes. */
struct zstd_stream;
int zstd_stream_create(struct zstd_stream **ret);
void zstd_stream_destroy(struct zstd_stream *s);
/* Appends what the next part yields. Errors as of zstd_inflate(), but no part is cut off. */
int zstd_stream_inflate(struct zstd_stream *s, const u8 *data, size_t n, u64 limit, struct str *out,
			struct diag *reterr_diag);

/*
 * Inflate a whole stream (zlib's framing, or zstd frames) into `out`. -EINVAL: it is damaged, or it
 * does not have exactly out_n bytes. zstd does not say where: the diag has the stream's offset.
 */
int zlib_inflate_exactly(struct buf in, u8 *out, size_t out_n, struct diag *reterr_diag);
int zstd_inflate_exactly(struct buf in, u8 *out, size_t out_n, struct diag *reterr_diag);
/* Inflates an .xz file into malloc'ed memory. -E2BIG above `max` bytes, -EINVAL: damaged. */
int xz_inflate(struct buf in, size_t max, void **ret, size_t *ret_n, struct diag *reterr_diag);
