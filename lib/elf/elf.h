/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ELF file that may be hostile: sections, segments, build-id. Reading goes through libelf with
 * pread (never mmap: a file that is truncated while we look must not kill us), every size is
 * bounded by the file's, and what is inconsistent is an error with a diag, not a crash.
 *
 * 64-bit little-endian x86-64 and arm64 files only; others are -ENOTSUP.
 */
#pragma once

#include <libelf.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/diag.h"
#include "base/types.h"

#define ELF_MAX_SEGMENTS 256
#define ELF_MAX_BUILD_ID 64
/* A section's decompressed bytes may not be more than this. */
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
	void *image; /* owned, when from memory */
	u64 size;
	u16 machine;
	u16 type; /* ET_EXEC, ET_DYN, … */
	u64 entry;
	struct elf_segment *segments; /* owned; those that are loaded, ELF_MAX_SEGMENTS at most */
	u32 n_segments;
	u8 build_id[ELF_MAX_BUILD_ID];
	u32 build_id_n;		 /* 0 = none */
	struct elf_cache *cache; /* owned: decompressed sections */
	u64 max_memory;		 /* 0, or no section is read that would make it more: -E2BIG */
};

/* Takes `fd`, even on failure. -ENOEXEC: not ELF; -ENOTSUP: class or machine; -EINVAL: damaged. */
int elf_file_open(int fd, struct diag *reterr_diag, struct elf_file **ret);
/* Copies the image. */
int elf_file_open_memory(const void *image, size_t n, struct diag *reterr_diag,
			 struct elf_file **ret);
/* The same file once more, for another thread: nothing is shared. */
int elf_file_open_again(const struct elf_file *f, struct elf_file **ret);
void elf_file_destroy(struct elf_file *f);
DEFINE_CLEANUP(elf_file, struct elf_file *, elf_file_destroy)
#define _cleanup_elf_file_ _cleanup_(elf_file)

/*
 * A section by name, decompressed (SHF_COMPRESSED, and .zdebug_* when .debug_* is asked for). The
 * bytes are borrowed until elf_file_destroy(). -ENOENT, -EINVAL, -E2BIG. Either ret may be NULL.
 */
int elf_file_section(struct elf_file *f, const char *name, struct elf_section *ret_section,
		     struct buf *ret_bytes);
/* The bytes in the file for [svma, svma + n), through the segments; borrowed as above. */
int elf_file_bytes(struct elf_file *f, u64 svma, size_t n, struct buf *ret_bytes);
/* The same with a PIE's or a library's pointers relocated for a bias of 0 (RELA only). */
int elf_file_relocated(struct elf_file *f, u64 svma, size_t n, struct buf *ret_bytes);
/* Copies up to n bytes from svma on, as far as its segment reaches in the file, and keeps nothing.
 * How many, or -ENOENT when there are none, or a negative errno. */
ssize_t elf_file_copy(struct elf_file *f, u64 svma, size_t n, void *ret);
/* Bytes that are kept of it so far. */
size_t elf_file_memory(const struct elf_file *f);
bool elf_file_svma_of_foff(const struct elf_file *f, u64 foff, u64 *ret_svma);
/* The ELF file inside .gnu_debugdata (xz), decompressed; at most 256 MiB. -ENOENT when none. */
int elf_file_minidebuginfo(struct elf_file *f, struct elf_file **ret);
