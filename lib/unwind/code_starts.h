/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lib/unwind: function starts in files without CFI, found by
 *
 *	symbols		functions of .symtab, .dynsym and minidebuginfo, with their sizes
 *	builtins	V8's table of its builtins, if the symbols omit them
 *	calls		targets of direct calls, if there is no .symtab
 *	prologues	after the end of other code, or after padding
 */
#pragma once

#include "base/buf.h"
#include "base/vec.h"
#include "elf/elf.h"

struct code_symbol {
	u64 start;
	u64 end;    /* = start: unknown */
	u32 parent; /* index + 1 of the function that this symbol is a cold part of; 0: none */
	u32 cold;   /* index + 1 of the cold part of this function; 0: there is none */
};

struct code_starts {
	vec(struct code_symbol) symbols; /* sorted by start, one symbol per start */
	vec(u64) calls;			 /* rising; filled only if there is no .symtab */
	bool all_symbols;		 /* the file has a .symtab */
	bool v8, v8_builtins;		 /* there are symbols of V8; of its builtins */
};

/*
 * Fills *x from a file and its minidebuginfo, `mini`, which may be NULL. Addresses outside [lo, hi)
 * (svma) are ignored. With `scan`, all code is searched for calls if there is no .symtab. Fails
 * with -ENOMEM only.
 */
int code_starts_read(struct code_starts *x, struct elf_file *elf, struct elf_file *mini, u64 lo,
		     u64 hi, bool scan);
void code_starts_deinit(struct code_starts *x);
/* Returns the symbol with a size that covers pc, or NULL; borrowed from *x. */
const struct code_symbol *code_starts_find(const struct code_starts *x, u64 pc);
/*
 * *ret_start: start of the last symbol without a size at or before pc, or 0. *ret_floor: end of the
 * last symbol with a size before pc, or 0. *ret_next: start of the next symbol after pc, or ~0.
 */
void code_starts_around(const struct code_starts *x, u64 pc, u64 *ret_start, u64 *ret_floor,
			u64 *ret_next);
/*
 * Appends to *ret, in rising order, the function starts that the bytes of `code`, which is at svma,
 * reveal. A target in `calls` counts if the bytes before it agree. Fails with -ENOMEM only.
 */
typedef vec(u64) code_addresses;
int code_starts_scan(const struct code_starts *x, u16 e_machine, struct buf code, u64 svma,
		     code_addresses *ret);
