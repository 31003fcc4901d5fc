/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbol tables, DWARF, PLT and .gopclntab of an ELF file. An input that is no ELF file is a list
 * of edits of a real one, a small program or this fuzzer, because seeds that are small enough for
 * git have too little DWARF:
 *
 *	{u8 index in `targets`, u24 offset in that section, u8 new byte} …
 */
#include <fcntl.h>
#include <gelf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symbol/symbol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const targets[] = {".debug_info",	 ".debug_abbrev",      ".debug_line",
				      ".debug_rnglists", ".debug_str_offsets", ".debug_addr",
				      ".symtab",	 ".rela.plt",	       ".debug_ranges"};

static struct {
	uint8_t *bytes;
	size_t n;
	uint64_t foff[ARRAY_SIZE(targets)], size[ARRAY_SIZE(targets)], text, text_n;
} own;

/* Reads the file to edit: a C program that the test built, or this fuzzer. */
static void read_own(void)
{
	const char *path = getenv("FUZZ_SYMBOLS_BASE"); /* libFuzzer has main() */
	int fd = open(path ? path : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct elf_section s;
	struct elf_file *f;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		abort();
	own.n = (size_t)st.st_size;
	own.bytes = malloc(own.n);
	if (!own.bytes || pread(fd, own.bytes, own.n, 0) != st.st_size ||
	    elf_file_open(fd, NULL, &f) < 0)
		abort();
	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		if (elf_file_section(f, targets[i], &s, NULL) < 0)
			continue;
		own.foff[i] = s.foff;
		own.size[i] = s.size;
	}
	if (elf_file_section(f, ".text", &s, NULL) == 0) {
		own.text = s.svma;
		own.text_n = s.size;
	}
	elf_file_destroy(f);
}

static void look_up(const uint8_t *image, size_t n, uint64_t text, uint64_t text_n)
{
	struct symbols_options o = {.inlines = true, .lines = true, .root_fd = -1};
	static struct symbol_chain chain;
	struct elf_file *f;
	struct symbols *s;

	if (elf_file_open_memory(image, n, NULL, &f) < 0)
		return;
	if (symbols_open(f, &o, &s) == 0) {
		for (uint64_t i = 0; i < 24; i++) {
			uint64_t address = text + text_n / 24 * i + i;

			if (symbols_lookup(s, address, &chain) < 0)
				continue;
			if (!chain.n || chain.n > SYMBOL_MAX_CHAIN)
				abort();
			for (uint32_t k = 0; k < chain.n; k++)
				if (!chain.frames[k].name || !chain.frames[k].system_name)
					abort();
		}
		symbols_destroy(s);
	}
	elf_file_destroy(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t saved[64];
	uint64_t at[64];
	size_t n = 0;

	if (size > 64 && memcmp(data, ELFMAG, SELFMAG) == 0) {
		struct elf_file *f;

		if (elf_file_open_memory(data, size, NULL, &f) < 0)
			return 0;
		for (uint32_t i = 0; i < f->n_segments && i < 4; i++)
			look_up(data, size, f->segments[i].svma, f->segments[i].memsz);
		elf_file_destroy(f);
		return 0;
	}
	if (!own.bytes)
		read_own();
	for (; size >= 5 && n < 64; data += 5, size -= 5, n++) {
		size_t which = data[0] % ARRAY_SIZE(targets);
		uint32_t offset = 0;

		memcpy(&offset, data + 1, 3);
		at[n] = own.size[which] ? own.foff[which] + offset % own.size[which] : 0;
		saved[n] = own.bytes[at[n]];
		own.bytes[at[n]] = data[4];
	}
	look_up(own.bytes, own.n, own.text, own.text_n);
	while (n-- > 0)
		own.bytes[at[n]] = saved[n];
	return 0;
}
