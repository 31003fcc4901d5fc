/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: the rows of one function, computed from its instructions.
 *
 * The function's control-flow graph is followed from its first instruction, where the ABI defines
 * the places of the caller's registers. Each instruction gets the state that holds on all paths to
 * it; where paths disagree there is no row. A call is assumed to return until a path shows that it
 * does not.
 */
#pragma once

#include "base/vec.h"
#include "disasm/disasm.h"
#include "elf/elf.h"
#include "unwind/unwind.h"

#define CODE_MAX_FUNC (256u << 10) /* bytes; longer functions are cut */

struct code_func {
	struct code_span {
		u64 start;
		u64 end;
	} part[2];   /* svma; the second part is the cold one, or empty */
	bool bounds; /* a symbol gives its size: all code in the bounds belongs to it */
};

struct code_row {
	u64 pc;
	struct unwind_rule rule;
};

struct code_rows {
	vec(struct code_row) list; /* rising pc in each part */
	size_t n_first;		   /* number of rows of part[0] */
	u64 reached_end;	   /* end of the last instruction of part[0] that was followed */
	bool sane;		   /* every return finds the stack as the ABI demands */
	bool returns;		   /* it has a return, or a jump to another function */
};

/*
 * Replaces the content of *ret by the rows of a function. -ENOMEM; -ENOENT: the function's bytes
 * are not in the file.
 */
int code_flow(struct elf_file *elf, struct disasm *d, const struct code_func *f,
	      struct code_rows *ret);
