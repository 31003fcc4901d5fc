/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes small ELF files byte by byte, so that a test of a damaged file takes a few lines: it
 * writes a good file, then changes bytes.
 *
 *	struct elfw w = {.machine = EM_X86_64};
 *	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0x1000, bytes, n);
 *	elfw_segment(&w, PT_LOAD, PF_R | PF_X, 0x1000, n, ".text");
 *	elfw_finish(&w);   → w.out.data, w.out.n
 */
#pragma once

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define ELFW_MAX 16

struct elfw_section {
	const char *name;
	Elf64_Shdr h;
	const void *bytes;
};

struct elfw {
	u16 machine;
	u16 type;
	u64 entry;
	bool no_section_headers;
	struct elfw_section sections[ELFW_MAX];
	u32 n_sections;
	Elf64_Phdr segments[ELFW_MAX];
	const char *segment_of[ELFW_MAX];
	u32 n_segments;
	struct str out;
};

static inline void elfw_section(struct elfw *w, const char *name, u32 type, u64 flags, u64 svma,
				const void *bytes, size_t n)
{
	w->sections[w->n_sections++] = (struct elfw_section){
		.name = name,
		.bytes = bytes,
		.h = {.sh_type = type, .sh_flags = flags, .sh_addr = svma, .sh_size = n},
	};
}

/* Adds a segment whose bytes begin with those of the named section. */
static inline void elfw_segment(struct elfw *w, u32 type, u32 flags, u64 svma, u64 n,
				const char *section)
{
	w->segment_of[w->n_segments] = section;
	w->segments[w->n_segments++] = (Elf64_Phdr){
		.p_type = type,
		.p_flags = flags,
		.p_vaddr = svma,
		.p_filesz = n,
		.p_memsz = n,
		.p_align = 4,
	};
}

static inline void elfw_align(struct elfw *w)
{
	while (w->out.n % 8)
		str_putc(&w->out, 0);
}

static inline void elfw_bodies(struct elfw *w)
{
	for (u32 i = 0; i < w->n_sections; i++) {
		struct elfw_section *s = &w->sections[i];

		elfw_align(w);
		s->h.sh_offset = w->out.n;
		if (s->h.sh_type != SHT_NOBITS)
			str_append(&w->out, s->bytes, s->h.sh_size);
	}
	for (u32 i = 0; i < w->n_segments; i++)
		for (u32 j = 0; j < w->n_sections; j++)
			if (!strcmp(w->segment_of[i], w->sections[j].name))
				w->segments[i].p_offset = w->sections[j].h.sh_offset;
}

static inline void elfw_headers(struct elfw *w, Elf64_Ehdr *e)
{
	struct str names = {};
	Elf64_Shdr h = {};

	str_putc(&names, 0);
	for (u32 i = 0; i < w->n_sections; i++) {
		w->sections[i].h.sh_name = (u32)names.n;
		str_append(&names, w->sections[i].name, strlen(w->sections[i].name) + 1);
	}
	h.sh_name = (u32)names.n;
	str_append(&names, ".shstrtab", 10);
	elfw_align(w);
	h.sh_type = SHT_STRTAB;
	h.sh_offset = w->out.n;
	h.sh_size = names.n;
	str_append(&w->out, names.data, names.n);
	elfw_align(w);
	e->e_shoff = w->out.n;
	e->e_shentsize = sizeof(Elf64_Shdr);
	e->e_shnum = (u16)(w->n_sections + 2);
	e->e_shstrndx = (u16)(w->n_sections + 1);
	str_append(&w->out, &(Elf64_Shdr){}, sizeof(Elf64_Shdr));
	for (u32 i = 0; i < w->n_sections; i++)
		str_append(&w->out, &w->sections[i].h, sizeof(Elf64_Shdr));
	str_append(&w->out, &h, sizeof(h));
	str_deinit(&names);
}

static inline void elfw_finish(struct elfw *w)
{
	Elf64_Ehdr e = {
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = w->type ? w->type : ET_DYN,
		.e_machine = w->machine ? w->machine : EM_X86_64,
		.e_version = EV_CURRENT,
		.e_entry = w->entry,
		.e_phoff = sizeof(e),
		.e_ehsize = sizeof(e),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = (u16)w->n_segments,
	};
	static const Elf64_Phdr blank[ELFW_MAX];

	str_append(&w->out, &e, sizeof(e));
	str_append(&w->out, blank, w->n_segments * sizeof(Elf64_Phdr));
	elfw_bodies(w);
	if (!w->no_section_headers)
		elfw_headers(w, &e);
	memcpy(w->out.data, &e, sizeof(e));
	memcpy(w->out.data + sizeof(e), w->segments, w->n_segments * sizeof(Elf64_Phdr));
}
