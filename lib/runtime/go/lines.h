/* SPDX-License-Identifier: Apache-2.0 */
/* Function names, lines and inlined calls out of a Go binary's .gopclntab, stripped or not. */
#pragma once

#include "base/types.h"
#include "elf/elf.h"

struct go_lines;

/* Texts are borrowed from the file; NULL or 0: unknown. */
struct go_frame {
	const char *name; /* with its package and receiver */
	const char *file;
	u32 line;
	u32 start_line; /* of the function */
	u64 low;	/* svma of the function's code; 0 if it is inlined */
	bool inlined;
};

/*
 * `elf` is borrowed until go_lines_close(). -ENOENT: the file has no table; -ENOTSUP: the layout of
 * the table is unknown; -EINVAL: it is damaged, or the address of the code is unknown; -ENOMEM.
 */
int go_lines_open(struct elf_file *elf, struct go_lines **ret);
void go_lines_close(struct go_lines *l);
/*
 * Writes the functions at an svma, innermost first, at most max > 0; the outermost is always
 * included. Without `inlines`, only the outermost, with the line of the address; without `lines`,
 * no file and line. -ENOENT: the svma is not in Go's code; -ENODATA: it is between two functions.
 */
int go_lines_lookup(const struct go_lines *l, u64 svma, bool inlines, bool lines, u32 max,
		    struct go_frame *ret, u32 *ret_n);
/*
 * Of an svma in code that was inlined: where the inlined functions were called, innermost first, in
 * the function that has their code. Returns their number, at most max.
 */
u32 go_lines_calls(const struct go_lines *l, u64 svma, u32 max, u64 *ret);
