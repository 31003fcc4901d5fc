/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: where functions begin in files without CFI.
 *
 *	symbols		.symtab, .dynsym, minidebuginfo: functions with their sizes
 *	builtins	of V8, by their table, where symbols leave them out
 *	calls		targets of direct calls, when there is no .symtab
 *	prologues	behind the end of other code, or behind padding
 */
#pragma once

#include "base/buf.h"
#include "base/vec.h"
#include "elf/elf.h"

struct code_symbol {
	u64 start;
	u64 end;    /* = start: not known */
	u32 parent; /* index + 1 of the function that this is a cold part of; 0: it is none */
	u32 cold;   /* index + 1 of its cold part; 0: it has none */
};

struct code_starts {
	vec(struct code_symbol) symbols; /* by start, one each */
	vec(u64) calls;			 /* rising; only when there is no .symtab */
	bool all_symbols;		 /* the file has a .symtab */
	bool v8, v8_builtins;		 /* there are symbols of V8; of its builtins */
};

/*
 * Fills *x from a file and its minidebuginfo, `mini`, which may be NULL. Addresses outside of
 * [lo, hi), svma, are left out. With `scan` all code is searched for calls if there is no .symtab.
 * -ENOMEM only.
 */
int code_starts_read(struct code_starts *x, struct elf_file *elf, struct elf_file *mini, u64 lo,
		     u64 hi, bool scan);
void code_starts_deinit(struct code_starts *x);
/* The symbol with a size that covers pc, or NULL. Borrowed from *x. */
const struct code_symbol *code_starts_find(const struct code_starts *x, u64 pc);
/* *ret_start: start of the last symbol without a size at or before pc, or 0. *ret_floor: end of the
 * symbols before pc, or 0. *ret_next: start of the next symbol behind pc, or ~0. */
void code_starts_around(const struct code_starts *x, u64 pc, u64 *ret_start, u64 *ret_floor,
			u64 *ret_next);
/*
 * Appends to *ret, in rising order, the function starts that the bytes of `code`, which is at svma,
 * show. A target in `calls` counts if the bytes before it agree. -ENOMEM only.
 */
typedef vec(u64) code_addresses;
int code_starts_scan(const struct code_starts *x, u16 e_machine, struct buf code, u64 svma,
		     code_addresses *ret);
