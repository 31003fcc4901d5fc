/* SPDX-License-Identifier: Apache-2.0 */
/* Function names, lines and inlined calls out of a Go binary's .gopclntab, stripped or not. */
#pragma once

#include "elf/elf.h"
#include "symbol/dwarf.h"

struct gopclntab;

/* -ENOENT when there is none, -ENOTSUP for a version that is not known. `f` is borrowed. */
int gopclntab_open(struct elf_file *f, struct gopclntab **ret);
void gopclntab_close(struct gopclntab *t);
/* Names are borrowed from the file, and say everything (plain_c). -ENOENT outside of Go's code,
 * -ENODATA between its functions. */
int gopclntab_lookup(struct gopclntab *t, u64 svma, bool inlines, bool lines,
		     struct dwarf_chain *ret);
