/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of allocators, by their names. Each allocation passes at least one function of its
 * allocator's; where it passes two, one calls the other, and BPF leaves out the inner call. So a
 * function that does nothing but jump to another is left out here, because a jump leaves no trace
 * on the stack.
 *
 *	glibc, musl	the functions of C; C++'s `new` calls malloc()
 *	jemalloc	these and C++'s; mallocx() and its like; prefix je_
 *	tcmalloc	these and C++'s; prefix tc_
 *	mimalloc	these and C++'s; prefix mi_
 *
 * Libraries export them. A program that contains its allocator has them in .symtab.
 */
#include <elf.h>
#include <string.h>

#include "agent/alloc/alloc.h"

#define MAX_SYMBOLS (1u << 20)
#define MAX_NAME 48

static const struct {
	const char *name;
	u8 function;
} names[] = {
	{"malloc", ALLOC_MALLOC},
	{"calloc", ALLOC_CALLOC},
	{"realloc", ALLOC_REALLOC},
	{"memalign", ALLOC_MEMALIGN},
	{"aligned_alloc", ALLOC_MEMALIGN},
	{"posix_memalign", ALLOC_POSIX},
	{"valloc", ALLOC_MALLOC},
	{"pvalloc", ALLOC_MALLOC},
	{"free", ALLOC_FREE},
	{"cfree", ALLOC_FREE},
	{"free_sized", ALLOC_FREE},
	{"free_aligned_sized", ALLOC_FREE},
	{"mallocx", ALLOC_MALLOC},
	{"rallocx", ALLOC_REALLOC},
	{"dallocx", ALLOC_FREE},
	{"sdallocx", ALLOC_FREE},
	{"mi_zalloc", ALLOC_MALLOC},
	{"mi_mallocn", ALLOC_CALLOC},
	{"mi_malloc_aligned", ALLOC_MALLOC},
	{"mi_zalloc_aligned", ALLOC_MALLOC},
	{"mi_free_size", ALLOC_FREE},
	/* operator new, new[] */
	{"_Znwm", ALLOC_MALLOC},
	{"_Znam", ALLOC_MALLOC},
	{"_ZnwmRKSt9nothrow_t", ALLOC_MALLOC},
	{"_ZnamRKSt9nothrow_t", ALLOC_MALLOC},
	{"_ZnwmSt11align_val_t", ALLOC_MALLOC},
	{"_ZnamSt11align_val_t", ALLOC_MALLOC},
	{"_ZnwmSt11align_val_tRKSt9nothrow_t", ALLOC_MALLOC},
	{"_ZnamSt11align_val_tRKSt9nothrow_t", ALLOC_MALLOC},
	/* operator delete, delete[] */
	{"_ZdlPv", ALLOC_FREE},
	{"_ZdaPv", ALLOC_FREE},
	{"_ZdlPvm", ALLOC_FREE},
	{"_ZdaPvm", ALLOC_FREE},
	{"_ZdlPvRKSt9nothrow_t", ALLOC_FREE},
	{"_ZdaPvRKSt9nothrow_t", ALLOC_FREE},
	{"_ZdlPvSt11align_val_t", ALLOC_FREE},
	{"_ZdaPvSt11align_val_t", ALLOC_FREE},
	{"_ZdlPvmSt11align_val_t", ALLOC_FREE},
	{"_ZdaPvmSt11align_val_t", ALLOC_FREE},
};

static const char *const prefixes[] = {"je_", "tc_", "mi_"};

/* The function of that name; ALLOC_FUNCTIONS: none. */
static u8 function_of_name(const char *name)
{
	const char *plain = name;

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			plain = name + strlen(prefixes[i]);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i].name, name) == 0 || strcmp(names[i].name, plain) == 0)
			return names[i].function;
	return ALLOC_FUNCTIONS;
}

/* Where a function's code is in the file; false: it is no code. */
static bool find_code(const struct elf_file *elf, u64 svma, u64 size, u64 *ret_foff)
{
	for (u32 i = 0; i < elf->n_segments; i++) {
		const struct elf_segment *s = &elf->segments[i];

		if (s->flags & PF_X && svma >= s->svma && svma - s->svma < s->filesz &&
		    size <= s->filesz - (svma - s->svma)) {
			*ret_foff = s->foff + (svma - s->svma);
			return true;
		}
	}
	return false;
}

/* What the function begins with. */
enum first {
	FIRST_OTHER,
	FIRST_EMULATED, /* by the kernel, which single-steps others */
	FIRST_JUMPS,
};

static enum first first_instruction(const struct elf_file *elf, const u8 code[8])
{
	static const u8 endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};
	u32 word;

	if (elf->machine != EM_X86_64) {
		memcpy(&word, code, sizeof(word));
		if (word >> 26 == 5) /* b */
			return FIRST_JUMPS;
		/* bti, paciasp and other hints */
		return (word & 0xfffff01f) == 0xd503201f ? FIRST_EMULATED : FIRST_OTHER;
	}
	if (code[0] == 0xe9 || code[0] == 0xeb)
		return FIRST_JUMPS;
	if (memcmp(code, endbr64, sizeof(endbr64)) == 0)
		return code[4] == 0xe9 || code[4] == 0xeb ? FIRST_JUMPS : FIRST_OTHER;
	/* push */
	return (code[0] & 0xf8) == 0x50 || (code[0] == 0x41 && (code[1] & 0xf8) == 0x50)
		       ? FIRST_EMULATED
		       : FIRST_OTHER;
}

static void add_site(struct elf_file *elf, const Elf64_Sym *s, u8 function, struct alloc_sites *ret)
{
	struct alloc_site site = {.svma = s->st_value, .size = s->st_size, .function = function};
	enum first first;
	u8 code[8];

	for (u32 i = 0; i < ret->n; i++)
		if (ret->site[i].svma == s->st_value)
			return; /* an alias */
	if (ret->n == ALLOC_MAX_SITES || s->st_size < 2 ||
	    !find_code(elf, s->st_value, s->st_size, &site.foff) ||
	    elf_file_copy(elf, s->st_value, sizeof(code), code) != (ssize_t)sizeof(code))
		return;
	first = first_instruction(elf, code);
	if (first == FIRST_JUMPS)
		return;
	site.stepped = first != FIRST_EMULATED;
	ret->site[ret->n++] = site;
}

static void add_symbols(struct elf_file *elf, const char *section, const char *strings,
			struct alloc_sites *ret)
{
	struct buf syms, strs;
	Elf64_Sym s;

	if (elf_file_section(elf, section, NULL, &syms) < 0 ||
	    elf_file_section(elf, strings, NULL, &strs) < 0)
		return;
	for (u32 i = 0; i < MAX_SYMBOLS && buf_left(&syms) >= sizeof(s); i++) {
		char name[MAX_NAME] = {};
		u8 function;

		memcpy(&s, syms.pos, sizeof(s));
		(void)buf_skip(&syms, sizeof(s));
		if (s.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s.st_info) != STT_FUNC ||
		    s.st_name >= buf_left(&strs))
			continue;
		memcpy(name, strs.pos + s.st_name, MIN(sizeof(name), buf_left(&strs) - s.st_name));
		if (memchr(name, 0, sizeof(name)) == NULL)
			continue;
		function = function_of_name(name);
		if (function < ALLOC_FUNCTIONS)
			add_site(elf, &s, function, ret);
	}
}

static bool has(const struct alloc_sites *s, u8 function)
{
	for (u32 i = 0; i < s->n; i++)
		if (s->site[i].function == function)
			return true;
	return false;
}

void alloc_find_sites(struct elf_file *elf, bool is_library, struct alloc_sites *ret)
{
	ret->n = 0;
	add_symbols(elf, ".dynsym", ".dynstr", ret);
	if (!is_library)
		add_symbols(elf, ".symtab", ".strtab", ret);
	/* C++'s functions alone call an allocator that is elsewhere. */
	if (!has(ret, ALLOC_REALLOC) || !has(ret, ALLOC_FREE))
		ret->n = 0;
}
