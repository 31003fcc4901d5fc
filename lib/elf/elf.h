/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ELF file that may be hostile: sections, segments, build-id. Bytes are read with pread, never
 * mmap (a file that is truncated during a read must not kill the reader). Every size is bounded by
 * the size of the file, and an inconsistency is an error with a diag.
 *
 * Only 64-bit little-endian files for x86-64 and arm64 are supported; others are -ENOTSUP.
 */
#pragma once

#include <libelf.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/diag.h"
#include "base/types.h"

#define ELF_MAX_SEGMENTS 256
#define ELF_MAX_BUILD_ID 64
/* The largest size that a section may have after decompression, in bytes. */
#define ELF_MAX_SECTION_BYTES (2ULL << 30)

struct elf_segment { /* PT_LOAD */
	u64 svma;
	u64 foff;
	u64 filesz;
	u64 memsz;
	u32 flags; /* PF_X … */
	u32 pad;
};

struct elf_section {
	const char *name; /* borrowed from the file */
	u64 svma;
	u64 foff;
	u64 size; /* in memory, decompressed */
	u32 type;
	u32 flags;
	u32 index;
};

struct elf_file {
	Elf *elf;    /* owned */
	int fd;	     /* owned, -1 when from memory */
	void *image; /* owned; NULL unless opened from memory */
	u64 size;
	u16 machine;
	u16 type; /* ET_EXEC, ET_DYN, … */
	u64 entry;
	struct elf_segment *segments; /* owned; PT_LOAD only, at most ELF_MAX_SEGMENTS */
	u32 n_segments;
	u8 build_id[ELF_MAX_BUILD_ID];
	u32 build_id_n;		 /* 0 = none */
	struct elf_cache *cache; /* owned; the bytes of sections */
	u64 max_memory;		 /* sections that would exceed it fail with -E2BIG; 0: no limit */
	struct diag damage;	 /* the first in a section that readers found, or "" */
	struct elf_file *outer;	 /* borrowed; the file whose .gnu_debugdata this is, or NULL */
};

/*
 * Takes ownership of `fd`, also on failure. -ENOEXEC: not ELF; -ENOTSUP: another class or machine;
 * -EINVAL: damaged.
 */
int elf_file_open(int fd, struct diag *reterr_diag, struct elf_file **ret);
/* As elf_file_open(), from a copy of the image. */
int elf_file_open_memory(const void *image, size_t n, struct diag *reterr_diag,
			 struct elf_file **ret);
/* Opens the same file again for another thread. The two objects share nothing. */
int elf_file_open_again(const struct elf_file *f, struct elf_file **ret);
void elf_file_destroy(struct elf_file *f);
DEFINE_CLEANUP(elf_file, struct elf_file *, elf_file_destroy)
#define _cleanup_elf_file_ _cleanup_(elf_file)

/*
 * Finds a section by name and decompresses it (SHF_COMPRESSED, and .zdebug_* for the name
 * .debug_*). The bytes are borrowed until elf_file_destroy(). -ENOENT, -EINVAL, -E2BIG. Either ret
 * may be NULL.
 */
int elf_file_section(struct elf_file *f, const char *name, struct elf_section *ret_section,
		     struct buf *ret_bytes);
/* Returns the bytes of [svma, svma + n) in the file, found by segments; borrowed as above. */
int elf_file_bytes(struct elf_file *f, u64 svma, size_t n, struct buf *ret_bytes);
/*
 * As elf_file_bytes(), with the pointers of a PIE or library relocated for a bias of 0 (RELA only).
 */
int elf_file_relocated(struct elf_file *f, u64 svma, size_t n, struct buf *ret_bytes);
/*
 * Copies up to n bytes from svma on, as far as its segment has bytes in the file, and caches
 * nothing. Returns the number of bytes, -ENOENT if there are none, or a negative errno.
 */
ssize_t elf_file_copy(struct elf_file *f, u64 svma, size_t n, void *ret);
/*
 * Frees what was read of the file: all bytes that functions above have returned are gone. They are
 * read again when needed.
 */
void elf_file_forget(struct elf_file *f);
/* Bytes of memory that the file's cache uses. */
size_t elf_file_memory(const struct elf_file *f);
/* Converts a file offset to an svma by the segments. False: no segment contains it. */
bool elf_file_svma_of_foff(const struct elf_file *f, u64 foff, u64 *ret_svma);
/*
 * Opens the ELF file in .gnu_debugdata (xz, at most 256 MiB). -ENOENT: the section is missing. Its
 * damage is f's: destroy it before f.
 */
int elf_file_minidebuginfo(struct elf_file *f, struct elf_file **ret);
/*
 * Every reader of a section calls it where the section is damaged, whatever it does then. The first
 * damage of a file is kept, "SECTION: TEXT at offset 0x…" (in the section, decompressed), and
 * logged. Returns -EINVAL.
 */
int elf_file_damaged(struct elf_file *f, const char *section, u64 offset, const char *text);
