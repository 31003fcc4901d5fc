/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the unwind rows of an ELF file, page by page, in the layout of abi/unwind.h.
 *
 * A source indexes the unwind information of a file once: .eh_frame by .eh_frame_hdr if that agrees
 * with it, else by a scan; .debug_frame of the file, its minidebuginfo or its debug file; Go's
 * .gopclntab. It then builds the rows of any 16 KiB page on demand. One thread at a time may use a
 * source.
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

/*
 * `elf` is borrowed and must outlive the source. Fails with -ENOMEM only: for a file without unwind
 * information all pages hold UNWIND_CFA_NONE.
 */
int unwind_source_create(struct elf_file *elf, struct unwind_source **ret);
/*
 * As unwind_source_create(), but ignores .eh_frame and the other tables, so that tests can compare
 * rows computed from code with them.
 */
int unwind_source_create_without_cfi(struct elf_file *elf, struct unwind_source **ret);
/* As unwind_source_create(), but computes no rows from instructions. */
int unwind_source_create_without_code(struct elf_file *elf, struct unwind_source **ret);
/*
 * Adds the .debug_frame of the separate debug file, for code that no other table covers. Call it
 * before the first page is built. `debug` is borrowed and must outlive the source. -ENOMEM only.
 */
int unwind_source_add_debug_file(struct unwind_source *s, struct elf_file *debug);
/*
 * Continues another source of the same file, which was destroyed: its rules keep their numbers.
 * Call it before the first page is built. -ENOMEM; -EINVAL: these are not rules of a source.
 */
int unwind_source_continue(struct unwind_source *s, const struct unwind_rule *rules, u32 n);
void unwind_source_destroy(struct unwind_source *s);
const struct unwind_source_info *unwind_source_info(const struct unwind_source *s);
/*
 * Builds the rows of page number `page` (first_page … first_page + n_pages - 1): at most
 * UNWIND_PAGE_BYTES rows, sorted, the first at offset 0, equal neighbours merged. New rules are
 * appended to those of the source.
 */
int unwind_source_rows(struct unwind_source *s, u64 page, u32 *ret_rows, u32 *ret_n);
/*
 * Returns all rules so far; rule 0 is UNWIND_CFA_NONE. Borrowed until the next
 * unwind_source_rows().
 */
const struct unwind_rule *unwind_source_rules(const struct unwind_source *s, u32 *ret_n);

/*
 * Returns the number of arena lines that a page of n rows takes; writes the page into such lines.
 */
u32 unwind_page_n_lines(u32 n_rows);
void unwind_page_pack(const u32 *rows, u32 n_rows, void *ret_lines);
/* The same in two steps: where rows belong in the lines; once they are there, the rest. */
u32 *unwind_page_body(void *lines, u32 n_rows);
void unwind_page_finish(void *lines, u32 n_rows);
/* Whether unwind_source_continue() takes these rules. */
bool unwind_rules_are_distinct(const struct unwind_rule *rules, u32 n);
