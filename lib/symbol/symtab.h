/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of .symtab or .dynsym, sorted by address. Names are borrowed from the sections of
 * the ELF files, which must live longer than the table. No lock: one thread at a time.
 */
#pragma once

#include "base/types.h"
#include "base/vec.h"
#include "elf/elf.h"

struct symtab_entry {
	u64 start;
	u64 end;	  /* exclusive; a symbol without a size ends where the next one starts */
	const char *name; /* NUL-terminated, in the section */
	u32 rank;	  /* the name with the smallest rank of an address is used */
	bool sized;
};

struct symtab {
	vec(struct symtab_entry) list;
	vec(struct symtab_entry) code; /* executable sections; name and rank unused */
	vec(u64) max_end;
	bool whole; /* .symtab was added, not only the exported symbols of a stripped file */
};

void symtab_deinit(struct symtab *t);
/*
 * Adds the functions of .symtab or (`dynamic`) .dynsym. Call symtab_finish() after the last one.
 * Returns 0 or their number; -ENOENT when the file has no such section.
 */
int symtab_add(struct symtab *t, struct elf_file *f, bool dynamic);
/* Sorts, selects one name per address, and sets the end of symbols without a size. -ENOMEM. */
int symtab_finish(struct symtab *t);
/* Bytes of memory that the table uses, without the files. */
size_t symtab_memory(const struct symtab *t);
/* The symbol that covers the address, or NULL. */
const struct symtab_entry *symtab_find(const struct symtab *t, u64 svma);
/* The name of a PLT entry, as NAME@plt; malloc()ed. -ENOENT. */
int symtab_plt_name(struct elf_file *f, u64 svma, char **ret);
