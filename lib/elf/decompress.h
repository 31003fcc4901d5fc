/* SPDX-License-Identifier: Apache-2.0 */
/* Private to lib/elf: unpacks the bytes of sections whose headers may claim a false size. */
#pragma once

#include "base/buf.h"
#include "base/diag.h"

#define ELF_MAX_MINIDEBUGINFO_BYTES (256ULL << 20)

enum elf_compression_form { ELF_COMPRESSION_ZLIB, ELF_COMPRESSION_ZSTD };

struct elf_compression {
	enum elf_compression_form form;
	u32 head_n; /* bytes of the header before the stream */
	u64 size;   /* bytes after decompression */
};

/*
 * Reads the header of a compressed section that has raw_n bytes in the file: an Elf64_Chdr, or
 * "ZLIB" and a big-endian size. -EINVAL: damaged, or a size that raw_n bytes cannot hold; -E2BIG:
 * more than ELF_MAX_SECTION_BYTES; -ENOTSUP: another compression.
 */
int elf_compression_parse(struct buf head, bool zdebug, u64 raw_n, struct elf_compression *ret);
/*
 * Unpacks exactly c->size bytes into malloc()ed memory. -EINVAL and a diag: damaged, or the stream
 * has another size.
 */
int elf_decompress(struct buf raw, const struct elf_compression *c, void **ret,
		   struct diag *reterr_diag);
