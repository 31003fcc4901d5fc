/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: a source and the page that it builds.
 *
 * Layers fill a page. Each layer fills what it knows of a range, and passes the gaps to the next:
 *
 *	.eh_frame → .gopclntab → .debug_frame (own, minidebuginfo's, debug file's) → code → none
 *
 * The code layer needs only sections and bytes: PLTs, the entry point, signal trampolines and
 * thread starts of libcs without CFI (gap.c), then functions whose rows the instructions reveal
 * (code.c).
 */
#pragma once

#include "unwind/code.h"
#include "unwind/fde_index.h"
#include "unwind/rules.h"
#include "unwind/unwind.h"

#define SOURCE_MAX_TABLES 4
#define SOURCE_MAX_PLTS 8
/*
 * Bytes of CFI programs that the building of one page may interpret: a limit for hostile files.
 * libc's densest page needs 4 KiB.
 */
#define SOURCE_PAGE_BUDGET (1u << 22)
/* Bytes read before and after a page, for patterns that cross its ends. */
#define SOURCE_CODE_MARGIN 64

struct source_plt {
	u64 start;
	u64 end;
	struct buf bytes; /* borrowed from the file; empty: the entries push nothing */
};

struct unwind_source {
	struct elf_file *elf;  /* borrowed */
	struct elf_file *mini; /* owned, or NULL */
	struct unwind_source_info info;
	struct rules rules;
	struct fde_index tables[SOURCE_MAX_TABLES];
	u32 n_tables;
	u32 n_eh_tables;			 /* tables of .eh_frame; they come before Go */
	struct go_table *go;			 /* owned, or NULL */
	struct source_plt plts[SOURCE_MAX_PLTS]; /* sorted by start */
	u32 n_plts;
	struct code_layer *layer; /* owned, or NULL */
	bool no_code;		  /* instructions are not analysed */
	bool is_loader;		  /* the file is glibc's ld.so: rbx is followed */
	u64 exec_lo, exec_hi;	  /* svma of all code */
	u64 entry_lo, entry_hi; /* the code at the entry point if no layer covers it, else empty */

	/* The page under construction. */
	u64 page_base;
	u64 budget;
	u32 *rows;
	u32 n_rows;
	u8 *code;      /* owned; the bytes of the page and its margins, from code_svma on */
	u64 code_page; /* base of the page that `code` is for, ~0 = none */
	u64 code_svma;
	u32 code_n;
};

/* Adds a row that holds from pc on. pcs rise within a page. */
void source_row(struct unwind_source *s, u64 pc, const struct unwind_rule *rule);
/*
 * Returns the file's bytes from pc on, which is in the page or its margins. False: there are none.
 */
bool source_code(struct unwind_source *s, u64 pc, struct buf *ret);
/* Fills s->plts. */
void source_find_plts(struct unwind_source *s);
/* The last layer. Fills all of [lo, hi), which lies in one page and in one gap. */
void source_fill_gap(struct unwind_source *s, u64 lo, u64 hi);
