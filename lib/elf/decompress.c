/* SPDX-License-Identifier: Apache-2.0 */
#include "elf/decompress.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "compress/compress.h"
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

int elf_decompress(struct buf raw, const struct elf_compression *c, void **ret,
		   struct diag *reterr_diag)
{
	_cleanup_free_ u8 *out = NULL;
	int r;

	if (!buf_skip(&raw, c->head_n))
		return -EINVAL;
	out = malloc(c->size ? c->size : 1);
	if (!out)
		return -ENOMEM;
	if (c->form == ELF_COMPRESSION_ZLIB)
		r = zlib_inflate_exactly(raw, out, c->size, reterr_diag);
	else
		r = zstd_inflate_exactly(raw, out, c->size, reterr_diag);
	if (r < 0)
		return r;
	*ret = take_ptr(out);
	return 0;
}
