/* SPDX-License-Identifier: Apache-2.0 */
#include "elf/decompress.h"

#include <elf.h>
#include <errno.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "elf/elf.h"

#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2
#endif

/*
 * The highest possible compression ratios: deflate codes 258 bytes in 2 bits; zstd codes a block of
 * 128 KiB with one repeated byte in 4 bytes. A header that claims more is false, and no memory is
 * allocated for it.
 */
#define ZLIB_MAX_RATIO 1032
#define ZSTD_MAX_RATIO 32768

int elf_compression_parse(struct buf head, bool zdebug, u64 raw_n, struct elf_compression *ret)
{
	struct elf_compression c = {.form = ELF_COMPRESSION_ZLIB};
	u64 align, ratio = ZLIB_MAX_RATIO;
	u32 type, reserved;
	struct buf magic;

	if (zdebug) {
		if (!buf_take(&head, 4, &magic) || memcmp(magic.pos, "ZLIB", 4))
			return -EINVAL;
		head.swap = true;
		if (!buf_u64(&head, &c.size))
			return -EINVAL;
		c.head_n = 12;
	} else {
		if (!buf_u32(&head, &type) || !buf_u32(&head, &reserved) ||
		    !buf_u64(&head, &c.size) || !buf_u64(&head, &align))
			return -EINVAL;
		if (type != ELFCOMPRESS_ZLIB && type != ELFCOMPRESS_ZSTD)
			return -ENOTSUP;
		if (type == ELFCOMPRESS_ZSTD) {
			c.form = ELF_COMPRESSION_ZSTD;
			ratio = ZSTD_MAX_RATIO;
		}
		c.head_n = sizeof(Elf64_Chdr);
	}
	if (c.size > ELF_MAX_SECTION_BYTES)
		return -E2BIG;
	if (c.size / ratio > raw_n)
		return -EINVAL;
	*ret = c;
	return 0;
}

static int inflate_all(struct buf in, u8 *out, u64 n)
{
	z_stream z = {.next_in = (Bytef *)in.pos, .next_out = out};
	u64 in_left = buf_left(&in), out_left = n;
	int r;

	if (inflateInit(&z) != Z_OK)
		return -ENOMEM;
	do {
		u32 in_n = (u32)MIN(in_left, 1ULL << 30), out_n = (u32)MIN(out_left, 1ULL << 30);

		z.avail_in = in_n;
		z.avail_out = out_n;
		r = inflate(&z, Z_NO_FLUSH);
		in_left -= in_n - z.avail_in;
		out_left -= out_n - z.avail_out;
	} while (r == Z_OK && (in_left || out_left));
	inflateEnd(&z);
	return r == Z_STREAM_END && !out_left ? 0 : r == Z_MEM_ERROR ? -ENOMEM : -EINVAL;
}

int elf_decompress(struct buf raw, const struct elf_compression *c, void **ret)
{
	_cleanup_free_ u8 *out = NULL;
	int r = 0;

	if (!buf_skip(&raw, c->head_n))
		return -EINVAL;
	out = malloc(c->size ? c->size : 1);
	if (!out)
		return -ENOMEM;
	if (c->form == ELF_COMPRESSION_ZLIB)
		r = inflate_all(raw, out, c->size);
	else if (ZSTD_decompress(out, c->size, raw.pos, buf_left(&raw)) != c->size)
		r = -EINVAL;
	if (r < 0)
		return r;
	*ret = take_ptr(out);
	return 0;
}

static int unxz_into(lzma_stream *z, size_t max, u8 **out, size_t *ret_n)
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

int elf_unxz(struct buf packed, size_t max, void **ret, size_t *ret_n)
{
	_cleanup_free_ u8 *out = NULL;
	lzma_stream z = LZMA_STREAM_INIT;
	size_t n = 0;
	int r;

	/* xz -9 needs 65 MiB. A dictionary of more than max bytes is never needed. */
	if (lzma_stream_decoder(&z, max + (1 << 20), 0) != LZMA_OK)
		return -ENOMEM;
	z.next_in = packed.pos;
	z.avail_in = buf_left(&packed);
	r = unxz_into(&z, max, &out, &n);
	lzma_end(&z);
	if (r < 0)
		return r;
	*ret_n = n;
	*ret = take_ptr(out);
	return 0;
}
