/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which functions of a file are probed, and where in them: an ELF file with any symbols and code.
 * Each place must be in code that the file has, and within its function.
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/alloc/alloc.h"
#include "agent/alloc/prologue.h"
#include "elf/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_code(const struct elf_file *f, u64 foff)
{
	for (u32 i = 0; i < f->n_segments; i++)
		if (f->segments[i].flags & PF_X &&
		    foff - f->segments[i].foff < f->segments[i].filesz)
			return true;
	return false;
}

static void check(struct elf_file *f, bool is_library)
{
	struct alloc_sites sites;

	alloc_find_sites(f, is_library, &sites);
	if (sites.n > ALLOC_MAX_SITES)
		abort();
	for (u32 i = 0; i < sites.n; i++) {
		const struct alloc_site *s = &sites.site[i];

		if (!is_code(f, s->foff) || !s->size || s->function >= ALLOC_FUNCTIONS)
			abort();
		for (u32 k = 0; k < i; k++)
			if (sites.site[k].svma == s->svma)
				abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_elf_file_ struct elf_file *f = NULL;

	for (int frees = 0; frees < 2; frees++) {
		int at = alloc_emulated_place(data, size, frees);

		if (at >= 0 && (size_t)at + 2 > size)
			abort();
	}
	if (elf_file_open_memory(data, size, NULL, &f) < 0)
		return 0;
	check(f, true);
	check(f, false);
	return 0;
}
