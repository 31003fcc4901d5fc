/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds moduledata. Since 1.26 it is a section of its own. Before that it is recognised by its
 * first word, a pointer to the header of .gopclntab, in the program's data or in the relocations of
 * a PIE. Its fields are numbered in words, from src/runtime/symtab.go of each release.
 */
#include "runtime/go/module.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#define MODULE_MINPC 20
#define MODULE_MAXPC 21
#define MODULE_TEXT 22
#define MODULE_TYPES 37
#define MODULE_GOFUNC_1_18 38
#define MODULE_WORDS 41

/* Reads a pointer of the file's data. In a PIE the value may be in a relocation only. */
static u64 read_pointer(struct elf_file *elf, u64 svma)
{
	struct buf b, rela;
	Elf64_Rela e;
	u64 v = 0;

	if (elf_file_bytes(elf, svma, 8, &b) == 0)
		(void)buf_u64(&b, &v);
	if (v || elf->type != ET_DYN || elf_file_section(elf, ".rela.dyn", NULL, &rela) < 0)
		return v;
	for (; buf_left(&rela) >= sizeof(e); rela.pos += sizeof(e)) {
		memcpy(&e, rela.pos, sizeof(e));
		if (e.r_offset == svma)
			return (u64)e.r_addend;
	}
	return 0;
}

static int find_by_relocation(const struct pclntab *t, u64 *ret)
{
	struct buf rela;
	Elf64_Rela e;

	if (elf_file_section(t->elf, ".rela.dyn", NULL, &rela) < 0)
		return -ENOENT;
	for (; buf_left(&rela) >= sizeof(e); rela.pos += sizeof(e)) {
		memcpy(&e, rela.pos, sizeof(e));
		if ((u64)e.r_addend == t->svma && ELF64_R_SYM(e.r_info) == 0) {
			*ret = e.r_offset;
			return 0;
		}
	}
	return -ENOENT;
}

static bool word_at(struct buf b, u64 at, u64 *ret)
{
	return buf_skip(&b, at) && buf_u64(&b, ret);
}

/* Searches `b`, which is at an svma, for moduledata. */
static int find_in_bytes(const struct pclntab *t, u64 svma, struct buf b, u64 *ret)
{
	u64 v;

	for (u64 at = 0; word_at(b, at, &v); at += 8) {
		u64 min, max;

		/* In moduledata minpc < maxpc follow the pointer; after a stray pointer to the
		 * header they do not. */
		if (v != t->svma || !word_at(b, at + MODULE_MINPC * 8, &min) ||
		    !word_at(b, at + MODULE_MAXPC * 8, &max) || min >= max)
			continue;
		*ret = svma + at;
		return 0;
	}
	return -ENOENT;
}

static int find_in_sections(const struct pclntab *t, u64 *ret)
{
	static const char *const sections[] = {".go.module", ".noptrdata", ".data", ".data.rel.ro",
					       ".data.rel.ro.go.module"};
	struct elf_section s;
	struct buf b;

	for (size_t i = 0; i < ARRAY_SIZE(sections); i++)
		if (elf_file_section(t->elf, sections[i], &s, &b) == 0 &&
		    find_in_bytes(t, s.svma, b, ret) == 0)
			return 0;
	if (elf_file_section(t->elf, ".go.module", &s, NULL) == 0 && s.size >= MODULE_WORDS * 8) {
		*ret = s.svma;
		return 0;
	}
	return find_by_relocation(t, ret);
}

/*
 * Searches files without section headers. In a PIE it succeeds only if the linker also wrote the
 * addends into the words, as Go's linker does.
 */
static int find_in_segments(const struct pclntab *t, u64 *ret)
{
	for (u32 i = 0; i < t->elf->n_segments; i++) {
		const struct elf_segment *s = &t->elf->segments[i];
		struct buf b;

		if (s->flags & PF_W && elf_file_bytes(t->elf, s->svma, s->filesz, &b) == 0 &&
		    find_in_bytes(t, s->svma, b, ret) == 0)
			return 0;
	}
	return -ENOENT;
}

static int find_module(const struct pclntab *t, u64 *ret)
{
	if (elf_file_section(t->elf, ".text", NULL, NULL) == 0)
		return find_in_sections(t, ret);
	return find_in_segments(t, ret);
}

/*
 * The fields since 1.20: types, etypes, rodata, gofunc; since 1.27: types, typedesclen, etypes,
 * itaboffset, itabsize, rodata, gofunc, epclntab. No field names the version, but lengths are no
 * addresses, and the end of the table is after its start.
 */
static u64 read_gofunc_1_20(const struct pclntab *t, u64 module)
{
	u64 types = read_pointer(t->elf, module + MODULE_TYPES * 8);
	u64 length = read_pointer(t->elf, module + (MODULE_TYPES + 1) * 8);
	u64 etypes = read_pointer(t->elf, module + (MODULE_TYPES + 2) * 8);
	u64 epclntab = read_pointer(t->elf, module + (MODULE_TYPES + 7) * 8);
	bool has_length = etypes > types && length <= etypes - types && epclntab > t->svma;

	return read_pointer(t->elf, module + (MODULE_TYPES + (has_length ? 6 : 3)) * 8);
}

void go_module_read(const struct pclntab *t, struct go_module *ret)
{
	u64 module;

	if (find_module(t, &module) < 0)
		return;
	ret->text = read_pointer(t->elf, module + MODULE_TEXT * 8);
	if (t->version == GO_1_18)
		ret->gofunc = read_pointer(t->elf, module + MODULE_GOFUNC_1_18 * 8);
	else if (t->version == GO_1_20)
		ret->gofunc = read_gofunc_1_20(t, module);
}
