/* SPDX-License-Identifier: Apache-2.0 */
/* Private to lib/disasm. */
#pragma once

#include "disasm/disasm.h"

struct disasm_x86;

/* The two decoders; see disasm_create(), disasm_one() and disasm_padding(). */
int disasm_x86_create(struct disasm_x86 **ret);
void disasm_x86_destroy(struct disasm_x86 *x);
bool disasm_x86_one(struct disasm_x86 *x, struct buf code, u64 svma, struct disasm_insn *ret);
u32 disasm_x86_padding(struct buf code);
bool disasm_arm64_one(struct buf code, u64 svma, struct disasm_insn *ret);

static inline void disasm_add(struct disasm_insn *i, enum disasm_op op, enum disasm_reg reg,
			      enum disasm_reg base, s64 off)
{
	if (i->n == DISASM_MAX_EFFECTS)
		return; /* no instruction has more */
	if (off < INT32_MIN || off > INT32_MAX)
		op = DISASM_UNKNOWN;
	i->effects[i->n++] = (struct disasm_effect){
		.op = (u8)op, .reg = (u8)reg, .base = (u8)base, .off = (s32)off};
}
