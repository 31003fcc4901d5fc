/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of Go's .gopclntab that unwinding needs (src/runtime/symtab.go
 * and runtime2.go of each release).
 *
 *	header	magic u32, 0 0, minLC u8, ptrSize u8, nfunc, nfiles, [textStart,] offsets of:
 *		funcnametab, cutab, filetab, pctab, functab
 *	functab	nfunc × (entry, offset of _func), and the last function's end; entries are u32 from
 *		runtime.text (1.18 on), absolute u64 before
 *	1.15	magic … ptrSize, nfunc, then the functab; every offset is from the header
 *	_func	entry, nameoff i32, args i32, deferreturn u32, pcsp u32 …, funcID u8, flag u8
 */
#pragma once

#include "elf/elf.h"

enum gotab_flag { GO_FLAG_TOP_FRAME = 1, GO_FLAG_SP_WRITE = 2, GO_FLAG_ASM = 4 };

struct gotab {
	struct buf names;
	struct buf pctab;
	struct buf functab; /* from the functab on, _funcs too */
	u64 text;	    /* svma that entries count from; 0 when they are absolute */
	u32 n;
	u8 quantum;    /* of pc deltas */
	u8 functab_at; /* what _funcs' offsets count from is so far before the functab */
	bool v115;     /* 1.2 to 1.15: _func has no cuOffset and no flag */
	bool v116;     /* 1.17 and before: entries are absolute */
	bool v120;     /* 1.20 on: _func has startLine */
};

struct go_func {
	u64 start; /* svma */
	u64 end;
	const char *name; /* borrowed; "" when it has none */
	u32 pcsp;
	u8 flag;
};

/* -ENOENT none, -EINVAL damaged. */
int gotab_open(struct elf_file *elf, u64 exec_lo, u64 exec_hi, struct gotab *ret);
u64 gotab_start(const struct gotab *t, u32 i); /* i = n: the last one's end */
/* The last function with start <= svma, or 0. */
u32 gotab_find(const struct gotab *t, u64 svma);
bool gotab_func(const struct gotab *t, u32 i, struct go_func *ret);

/* Walks a pcsp table: *ret_value holds from the last *pc up to the new one. */
struct gopcsp {
	struct buf b;
	u64 pc;
	s64 value;
	u8 quantum;
	bool started;
};
bool gopcsp_init(const struct gotab *t, const struct go_func *f, struct gopcsp *ret);
bool gopcsp_next(struct gopcsp *p);
