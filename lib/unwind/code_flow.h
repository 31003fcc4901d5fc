/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: the rows of one function, read from its instructions.
 *
 * The function's control-flow graph is followed from its first instruction, for which the ABI says
 * where the caller's registers are. Every instruction gets the one state that holds on all paths to
 * it; where paths disagree there is no row. Calls are assumed to return until a path shows that
 * they do not.
 */
#pragma once

#include "base/vec.h"
#include "disasm/disasm.h"
#include "elf/elf.h"
#include "unwind/unwind.h"

#define CODE_MAX_FUNC (256u << 10) /* bytes; what is longer is cut there */

struct code_func {
	struct code_span {
		u64 start;
		u64 end;
	} part[2];   /* svma; the second is the cold part, or empty */
	bool bounds; /* a symbol says where it ends: all code in there belongs to it */
};

struct code_row {
	u64 pc;
	struct unwind_rule rule;
};

struct code_rows {
	vec(struct code_row) list; /* rising pc in each part */
	size_t n_first;		   /* of part[0] */
	u64 reached_end;	   /* end of the last instruction of part[0] that was followed */
	bool sane;		   /* every return finds the stack as the ABI demands */
	bool returns;		   /* it has a return, or a jump to another function */
};

/* Replaces the rows in *ret by those of a function. -ENOMEM; -ENOENT: the file lacks its bytes. */
int code_flow(struct elf_file *elf, struct disasm *d, const struct code_func *f,
	      struct code_rows *ret);
