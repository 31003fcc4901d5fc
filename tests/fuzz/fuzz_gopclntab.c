/* SPDX-License-Identifier: Apache-2.0 */
/* The input is the .gopclntab of an ELF file whose other parts, moduledata too, are right. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "elf/elf.h"
#include "runtime/go/lines.h"

#define TEXT 0x1000U
#define TABLE 0x10000U
#define MODULE 0x8000U
#define MAX_FRAMES 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char names[] = "\0.text\0.gopclntab\0.go.module\0.shstrtab";

static Elf64_Shdr section(uint32_t name, uint32_t type, uint64_t addr, uint64_t offset, uint64_t n)
{
	return (Elf64_Shdr){.sh_name = name,
			    .sh_type = type,
			    .sh_flags = SHF_ALLOC,
			    .sh_addr = addr,
			    .sh_offset = offset,
			    .sh_size = n,
			    .sh_addralign = 8};
}

static uint8_t *make_elf(const uint8_t *data, size_t size, size_t *ret_n)
{
	enum { HEADER = 64, PHDR = 56, MODULE_AT = 256, MODULE_N = 512, NAMES_AT = 1024 };
	enum { SHDRS_AT = 1152, TABLE_AT = 1536 };
	uint8_t *p = calloc(1, TABLE_AT + size);
	uint64_t module[MODULE_N / 8] = {TABLE};
	Elf64_Ehdr e = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
			.e_type = ET_EXEC,
			.e_machine = EM_X86_64,
			.e_version = EV_CURRENT,
			.e_phoff = HEADER,
			.e_phnum = 2,
			.e_phentsize = PHDR,
			.e_ehsize = HEADER,
			.e_shoff = SHDRS_AT,
			.e_shentsize = 64,
			.e_shnum = 5,
			.e_shstrndx = 4};
	Elf64_Phdr h[2] = {
		{.p_type = PT_LOAD, .p_flags = PF_X, .p_vaddr = TEXT, .p_memsz = 0x4000},
		{.p_type = PT_LOAD,
		 .p_flags = PF_R,
		 .p_offset = TABLE_AT,
		 .p_vaddr = TABLE,
		 .p_filesz = size,
		 .p_memsz = size},
	};
	Elf64_Shdr s[5] = {
		{},
		section(1, SHT_NOBITS, TEXT, 0, 0x4000),
		section(7, SHT_PROGBITS, TABLE, TABLE_AT, size),
		section(18, SHT_PROGBITS, MODULE, MODULE_AT, MODULE_N),
		section(29, SHT_STRTAB, 0, NAMES_AT, sizeof(names)),
	};

	if (!p)
		return NULL;
	module[20] = TEXT;
	module[21] = TEXT + 0x4000;
	module[22] = TEXT;
	module[38] = module[40] = TABLE; /* gofunc: inline trees are in the table, too */
	memcpy(p, &e, sizeof(e));
	memcpy(p + HEADER, h, sizeof(h));
	memcpy(p + MODULE_AT, module, sizeof(module));
	memcpy(p + NAMES_AT, names, sizeof(names));
	memcpy(p + SHDRS_AT, s, sizeof(s));
	if (size)
		memcpy(p + TABLE_AT, data, size);
	*ret_n = TABLE_AT + size;
	return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct go_frame frames[MAX_FRAMES];
	struct go_lines *l;
	u32 n_frames;
	struct elf_file *f;
	uint8_t *image;
	size_t n;

	image = make_elf(data, size, &n);
	if (!image)
		return 0;
	if (elf_file_open_memory(image, n, NULL, &f) < 0)
		abort();
	if (go_lines_open(f, &l) == 0) {
		for (uint64_t a = TEXT; a < TEXT + 0x400; a += 7)
			if (go_lines_lookup(l, a, true, true, MAX_FRAMES, frames, &n_frames) == 0 &&
			    (!n_frames || n_frames > MAX_FRAMES || !frames[n_frames - 1].name))
				abort();
		go_lines_close(l);
	}
	elf_file_destroy(f);
	free(image);
	return 0;
}
