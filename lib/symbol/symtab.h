/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of .symtab or .dynsym, sorted by address. Names are borrowed from the ELF file's
 * sections, so a table lives no longer than the files it was read from.
 */
#pragma once

#include "base/types.h"
#include "base/vec.h"
#include "elf/elf.h"

struct symtab_entry {
	u64 start;
	u64 end;	  /* exclusive; of a symbol without a size, where the next one begins */
	const char *name; /* with its NUL, in the section */
	u32 rank;	  /* smaller is better among names of one address */
	bool sized;
};

struct symtab {
	vec(struct symtab_entry) list;
	vec(struct symtab_entry) code; /* executable sections; name and rank unused */
	vec(u64) max_end;
	bool whole; /* .symtab is in it, not only what a stripped file exports */
};

void symtab_deinit(struct symtab *t);
/* Adds the functions of a file's section; call symtab_finish() after the last. 0, or the number of
 * them; -ENOENT when the file has no such section. */
int symtab_add(struct symtab *t, struct elf_file *f, bool dynamic);
/* Sorts, picks one name per address, gives sizes to what has none. */
int symtab_finish(struct symtab *t);
/* Bytes that it takes, without the files'. */
size_t symtab_memory(const struct symtab *t);
/* NULL when no symbol covers the address. */
const struct symtab_entry *symtab_find(const struct symtab *t, u64 svma);
/* Names of PLT entries, as NAME@plt. malloc'ed. -ENOENT. */
int symtab_plt_name(struct elf_file *f, u64 svma, char **ret);
