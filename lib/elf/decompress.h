/* SPDX-License-Identifier: Apache-2.0 */
/* Private to lib/elf: unpacking section bytes whose headers may lie about their size. */
#pragma once

#include "base/buf.h"

#define ELF_MAX_MINIDEBUGINFO_BYTES (256ULL << 20)

enum elf_compression_form { ELF_COMPRESSION_ZLIB, ELF_COMPRESSION_ZSTD };

struct elf_compression {
	enum elf_compression_form form;
	u32 head_n; /* bytes before the stream */
	u64 size;   /* decompressed */
};

/*
 * Reads the head of a section of raw_n bytes: an Elf64_Chdr, or "ZLIB" and a big-endian size.
 * -EINVAL damaged or a size that raw_n bytes cannot hold, -E2BIG above ELF_MAX_SECTION_BYTES,
 * -ENOTSUP another form.
 */
int elf_compression_parse(struct buf head, bool zdebug, u64 raw_n, struct elf_compression *ret);
/* Unpacks into malloc'ed memory of exactly c->size bytes; -EINVAL when the stream has another. */
int elf_decompress(struct buf raw, const struct elf_compression *c, void **ret);
/* Unpacks a whole .xz file; -E2BIG above max bytes. */
int elf_unxz(struct buf packed, size_t max, void **ret, size_t *ret_n);
