/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: the rows of one function, read from its instructions.
 *
 * The function's control-flow graph is followed from its first instruction, where the ABI says
 * where the caller's registers are. Every instruction gets the one state that holds on all ways to
 * it; where ways disagree there is no row. Calls are taken to return until a way says otherwise.
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
	} part[2];   /* the second is where its cold parts went, or empty */
	bool bounds; /* a symbol says where it ends: what is in there belongs to it */
};

struct code_row {
	u64 pc;
	struct unwind_rule rule;
};

struct code_rows {
	vec(struct code_row) list; /* rising pc in each part */
	size_t n_first;		   /* of part[0] */
	u64 reached_end;	   /* of part[0]: behind the last instruction that was followed */
	bool sane;		   /* every return finds the stack as the ABI wants it */
	bool returns;		   /* there was one, or a jump to another function */
};

/* Replaces ret's rows. -ENOMEM; -ENOENT when the file does not have the bytes. */
int code_flow(struct elf_file *elf, struct disasm *d, const struct code_func *f,
	      struct code_rows *ret);
