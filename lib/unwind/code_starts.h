/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: where functions begin, in files that do not say it by CFI.
 *
 *	symbols		.symtab, .dynsym, minidebuginfo: functions, with their size
 *	builtins	V8's, by their table, where symbols leave them out
 *	calls		targets of direct calls, when there is no .symtab
 *	prologues	after what ends or fills up the code before
 */
#pragma once

#include "base/buf.h"
#include "base/vec.h"
#include "elf/elf.h"

struct code_symbol {
	u64 start;
	u64 end;    /* = start: not said */
	u32 parent; /* + 1: this is a cold part of that function; 0 = it is not */
	u32 cold;   /* + 1: its cold part */
};

struct code_starts {
	vec(struct code_symbol) symbols; /* by start, one each */
	vec(u64) calls;			 /* rising; only when there is no .symtab */
	bool all_symbols;		 /* .symtab is there */
	bool v8, v8_builtins;		 /* symbols of V8's are; those of its builtins are */
};

/*
 * -ENOMEM only. `mini` may be NULL. Addresses outside of [lo, hi) are left out. `scan`: without a
 * .symtab, all of the code is read for calls.
 */
int code_starts_read(struct code_starts *x, struct elf_file *elf, struct elf_file *mini, u64 lo,
		     u64 hi, bool scan);
void code_starts_deinit(struct code_starts *x);
/* The sized symbol that covers pc, or NULL. */
const struct code_symbol *code_starts_find(const struct code_starts *x, u64 pc);
/* The next symbol's start behind pc, or ~0; the last unsized one's at or before it, or 0; and the
 * end of what sized ones lie before it. */
void code_starts_around(const struct code_starts *x, u64 pc, u64 *ret_start, u64 *ret_floor,
			u64 *ret_next);
/*
 * Adds the starts in [svma, svma + left(code)) that bytes tell, rising, to ret. What `calls` has is
 * believed when the bytes before it agree.
 */
typedef vec(u64) code_addresses;
int code_starts_scan(const struct code_starts *x, u16 e_machine, struct buf code, u64 svma,
		     code_addresses *ret);
