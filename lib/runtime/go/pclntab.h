/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go's table of functions, .gopclntab (src/runtime/symtab.go, src/runtime/runtime2.go and
 * src/cmd/link/internal/ld/pcln.go of each release). Numbers without a type are u32.
 *
 *	header	magic, 0 u16, minLC u8, ptrSize u8, then u64: nfunc, nfiles, [textStart, 1.18 on,]
 *		and the offsets from here of funcnametab, cutab, filetab, pctab, functab
 *	functab	nfunc × {entry, offset of _func from functab}, then the last function's end; u32,
 *and entries count from runtime.text, since 1.18; absolute u64 before
 *	_func	entry (as in functab), nameOff, args, deferreturn, pcsp, pcfile, pcln, npcdata,
 *		[cuOffset, 1.16 on,] [startLine, 1.20 on,] funcID u8, flag u8, 0 u8, nfuncdata u8,
 *		npcdata × offset in pctab,
 *		nfuncdata × {offset from gofunc since 1.18, aligned u64 pointer before}
 *	pctab	tables of varints: {zigzag delta of the value, delta of pc / minLC}, from value -1
 *
 * Up to 1.15 the functab follows nfunc, the offset of filetab follows the functab, all offsets are
 * from the header, and a file's number is its index in filetab.
 */
#pragma once

#include "base/types.h"
#include "elf/elf.h"

/* Named after the first release with the layout. */
enum pclntab_version { GO_1_2, GO_1_16, GO_1_18, GO_1_20 };

/* Of struct go_func: the function is the first of its stack, gives sp a value, is assembly. */
enum go_func_flag { GO_FLAG_TOP_FRAME = 1, GO_FLAG_SP_WRITE = 2, GO_FLAG_ASM = 4 };

struct pclntab {
	struct elf_file *elf; /* borrowed */
	enum pclntab_version version;
	u8 quantum; /* bytes that a pc delta of 1 stands for */
	u32 n;	    /* functions */
	u64 svma;   /* of the header */
	u64 text;   /* svma that entries count from; 0: they are absolute, or it is not known */
	/* Borrowed from the file. Each reaches to the table's end: the header has no lengths. */
	struct buf names, cutab, filetab, pctab, functab;
	struct buf funcs; /* starts where offsets of _funcs count from */
};

struct go_func {
	u64 start, end; /* svma */
	u32 name;	/* for pclntab_name() */
	u32 pcsp, pcfile, pcln;
	u32 cu;		/* where the function's files begin in cutab */
	u32 start_line; /* 0: not known */
	u8 flag;	/* enum go_func_flag */
	u8 n_funcdata;
	u32 n_pcdata;
	struct buf data; /* pcdata, then funcdata */
};

/*
 * Finds and checks the table of a file. text is what the header says, often 0 since 1.26. `elf` is
 * borrowed as long as *ret is used; there is nothing to free. -ENOENT: the file has no table;
 * -ENOTSUP: it has a layout that is not known; -EINVAL: it is damaged; -ENOMEM, or an error of
 * reading.
 */
int pclntab_open(struct elf_file *elf, struct pclntab *ret);
/*
 * The same, and all functions are in the file's executable segments: text is the address that the
 * code proves, or what the header says when the code has no proof. -EINVAL, too, when neither is
 * there.
 */
int pclntab_open_with_text(struct elf_file *elf, struct pclntab *ret);

/* The svma at which function i begins; i = n: at which the last one ends. */
u64 pclntab_start(const struct pclntab *t, u32 i);
/* The last function with start <= svma, or 0. */
u32 pclntab_find(const struct pclntab *t, u64 svma);
/* False: what the table says of function i is damaged. */
bool pclntab_func(const struct pclntab *t, u32 i, struct go_func *ret);
/* The name at an offset in funcnametab; borrowed from the file. NULL: there is none. */
const char *pclntab_name(const struct pclntab *t, u32 offset);
/* The same, but "" for none and for names of more than 127 bytes: cheap for each function. */
const char *pclntab_short_name(const struct pclntab *t, u32 offset);

/* Walks a table of pctab: `value` holds from the last pc up to the new one. */
struct pctable {
	struct buf b;
	u64 pc; /* svma */
	s64 value;
	u8 quantum;
	bool started;
};

/* Begins before the first entry of the table of `f` at offset `at`. False: there is none. */
bool pctable_init(const struct pclntab *t, const struct go_func *f, u32 at, struct pctable *ret);
/* False: the table has ended. */
bool pctable_next(struct pctable *p);
/* The value at a pc of `f`. Reads max_steps entries at most. False: the table says nothing of it.
 */
bool pctable_value(const struct pclntab *t, const struct go_func *f, u32 at, u64 pc, u32 max_steps,
		   s64 *ret);
