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

/* Each layout has the name of the first release that uses it. */
enum pclntab_version { GO_1_2, GO_1_16, GO_1_18, GO_1_20 };

/* Flags of struct go_func: the outermost function of its stack; it writes to sp; it is assembly. */
enum go_func_flag { GO_FLAG_TOP_FRAME = 1, GO_FLAG_SP_WRITE = 2, GO_FLAG_ASM = 4 };

struct pclntab {
	struct elf_file *elf; /* borrowed */
	const char *section;  /* static; is told of damage. NULL: the table was found without one */
	enum pclntab_version version;
	u8 quantum; /* bytes of code per unit of a pc delta */
	u32 n;	    /* number of functions */
	u64 svma;   /* of the header */
	/* svma that entries are relative to; 0: entries are absolute, or it is unknown */
	u64 text;
	/* Borrowed from the file. Each extends to the end of the table: the header has no
	 * lengths. */
	struct buf names, cutab, filetab, pctab, functab;
	struct buf funcs; /* starts where offsets of _func are relative to */
};

struct go_func {
	u64 start, end; /* svma */
	u32 name;	/* for pclntab_name() */
	u32 pcsp, pcfile, pcln;
	u32 cu;		/* index of the function's first file in cutab */
	u32 start_line; /* 0: not known */
	u8 flag;	/* enum go_func_flag */
	u8 n_funcdata;
	u32 n_pcdata;
	struct buf data; /* pcdata, then funcdata */
};

/*
 * Finds and checks the table of a file. ret->text is the header's value, which is often 0 since
 * 1.26. `elf` is borrowed as long as *ret is used; *ret needs no destructor. -ENOENT: the file has
 * no table; -ENOTSUP: the layout is unknown; -EINVAL: the table is damaged; -ENOMEM, or an error of
 * reading.
 */
int pclntab_open(struct elf_file *elf, struct pclntab *ret);
/*
 * As pclntab_open(), and checks that all functions are in executable segments. ret->text is the
 * address that the code proves, or the header's value if the code proves none. -EINVAL also if both
 * are missing.
 */
int pclntab_open_with_text(struct elf_file *elf, struct pclntab *ret);

/* The svma of the start of function i; for i = n, that of the end of the last function. */
u64 pclntab_start(const struct pclntab *t, u32 i);
/* The last function with start <= svma, or 0. */
u32 pclntab_find(const struct pclntab *t, u64 svma);
/* False: the table's data of function i is damaged; the file is told. */
bool pclntab_func(const struct pclntab *t, u32 i, struct go_func *ret);
/* The name at an offset in funcnametab; borrowed from the file. NULL: there is none. */
const char *pclntab_name(const struct pclntab *t, u32 offset);
/* As pclntab_name(), but cheap, and "" for no name and for names of more than 127 bytes. */
const char *pclntab_short_name(const struct pclntab *t, u32 offset);

/* Iterates over a table of pctab: `value` holds from the previous pc up to the new one. */
struct pctable {
	struct buf b;
	u64 pc; /* svma */
	s64 value;
	u8 quantum;
	bool started;
};

/*
 * Starts before the first entry of the table at offset `at`, for function f. False: there is none.
 */
bool pctable_init(const struct pclntab *t, const struct go_func *f, u32 at, struct pctable *ret);
/* False: the table has ended. */
bool pctable_next(struct pctable *p);
/*
 * Returns the value at a pc of `f`. Reads at most max_steps entries. False: the table has no value
 * for pc.
 */
bool pctable_value(const struct pclntab *t, const struct go_func *f, u32 at, u64 pc, u32 max_steps,
		   s64 *ret);
