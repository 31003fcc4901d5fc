/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind rows out of ELF files: what abi/unwind.h lays out, built page by page.
 *
 * A source indexes a file's unwind information once (.eh_frame_hdr when it can be trusted, else a
 * scan of .eh_frame; .debug_frame of the file, its minidebuginfo or its debug file; Go's
 * .gopclntab) and then builds the rows of any 16 KiB page on demand. It belongs to one thread.
 */
#pragma once

#include "abi/unwind.h"
#include "base/types.h"
#include "elf/elf.h"

struct unwind_source;

struct unwind_source_info {
	u64 first_page; /* svma >> UNWIND_PAGE_SHIFT */
	u32 n_pages;	/* 0: the file has no executable segment */
	u64 n_fdes;
	const char *from; /* static text: ".eh_frame_hdr", ".eh_frame", ".gopclntab" … */
};

/* `elf` is borrowed and must outlive the source. -ENOMEM only: a file without information is a
 * source whose pages hold UNWIND_CFA_NONE. */
int unwind_source_create(struct elf_file *elf, struct unwind_source **ret);
/* The same, but what .eh_frame and the like say is not looked at: to hold what is read from code
 * against it. */
int unwind_source_create_without_cfi(struct elf_file *elf, struct unwind_source **ret);
/* The other way round: what only the instructions say is left out. */
int unwind_source_create_without_code(struct elf_file *elf, struct unwind_source **ret);
/* Adds the .debug_frame of the file's separate debug file, for code that nothing covers so far.
 * Before the first page is built; `debug` is borrowed and must outlive. -ENOMEM only. */
int unwind_source_add_debug_file(struct unwind_source *s, struct elf_file *debug);
/*
 * Goes on where another source of the same file was given up: its rules keep their numbers. Before
 * the first page. -ENOMEM, or -EINVAL when they are no source's rules.
 */
int unwind_source_continue(struct unwind_source *s, const struct unwind_rule *rules, u32 n);
void unwind_source_destroy(struct unwind_source *s);
const struct unwind_source_info *unwind_source_info(const struct unwind_source *s);
/*
 * The rows of page number `page` (of first_page … first_page + n_pages - 1), at most
 * UNWIND_PAGE_BYTES, sorted, the first at offset 0, equal neighbours merged. New rules are appended
 * to the source's.
 */
int unwind_source_rows(struct unwind_source *s, u64 page, u32 *ret_rows, u32 *ret_n);
/* All rules so far; rule 0 is UNWIND_CFA_NONE. Borrowed until the next unwind_source_rows(). */
const struct unwind_rule *unwind_source_rules(const struct unwind_source *s, u32 *ret_n);

/* Lines that a page of n rows takes in the arena, and writing them there. */
u32 unwind_page_n_lines(u32 n_rows);
void unwind_page_pack(const u32 *rows, u32 n_rows, void *ret_lines);
