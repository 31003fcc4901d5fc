/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of allocators, by their names. Each allocation passes at least one function of its
 * allocator's; where it passes two, one calls the other, and BPF leaves out the inner call. A
 * function that does nothing but jump to another is that other one, because a jump leaves no trace
 * on the stack: musl's realloc() and memalign().
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
#include "agent/alloc/prologue.h"

#define MAX_SYMBOLS (1u << 20)
#define MAX_NAME 48

static const struct {
	const char *name;
	u8 function;
} names[] = {
	{"malloc", ALLOC_MALLOC}, /* the first */
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

/* The index in `names`, or their number. */
static size_t find_name(const char *name)
{
	const char *plain = name;

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			plain = name + strlen(prefixes[i]);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i].name, name) == 0 || strcmp(names[i].name, plain) == 0)
			return i;
	return ARRAY_SIZE(names);
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

#define FIRST_BYTES 64

/* Whether the function does nothing but jump to *ret_target. */
static bool jumps(const struct elf_file *elf, u64 svma, const u8 code[FIRST_BYTES], u64 *ret_target)
{
	static const u8 endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};
	u32 skip = memcmp(code, endbr64, sizeof(endbr64)) == 0 ? sizeof(endbr64) : 0, word;
	s32 far;

	if (elf->machine != EM_X86_64) {
		memcpy(&word, code, sizeof(word));
		*ret_target = svma + (u64)((s64)((u64)word << 38) >> 36);
		return word >> 26 == 5; /* b */
	}
	memcpy(&far, code + skip + 1, sizeof(far));
	*ret_target = svma + skip +
		      (code[skip] == 0xeb ? 2 + (u64)(s64)(s8)code[skip + 1] : 5 + (u64)(s64)far);
	return code[skip] == 0xe9 || code[skip] == 0xeb;
}

/* Sets how far behind the begin the probe is. False: the kernel steps the instruction there. */
static bool find_emulated(const struct elf_file *elf, const u8 *code, size_t n, u8 function,
			  u64 *ret_behind)
{
	u32 word;
	int at;

	*ret_behind = 0;
	if (elf->machine != EM_X86_64) {
		/* bti, paciasp and other hints */
		memcpy(&word, code, sizeof(word));
		return (word & 0xfffff01f) == 0xd503201f;
	}
	at = alloc_emulated_place(code, n, function == ALLOC_FREE);
	*ret_behind = at > 0 ? (u64)at : 0;
	return at >= 0;
}

/* A function without a symbol, to which another one jumps, is taken to be so long. */
#define UNKNOWN_BYTES 512

/* An indirect jump is that of a PLT, to another file. */
static bool is_plt(const struct elf_file *elf, const u8 code[FIRST_BYTES])
{
	u32 skip = code[0] == 0xf3 ? 4 : 0;

	skip += code[skip] == 0xf2;							  /* bnd */
	return elf->machine == EM_X86_64 ? code[skip] == 0xff : (code[3] & 0x9f) == 0x90; /* adrp */
}

static void add_site(struct elf_file *elf, u64 svma, u64 size, u8 function, struct alloc_sites *ret)
{
	struct alloc_site site = {.svma = svma, .size = size, .function = function};
	u8 code[FIRST_BYTES] = {};
	ssize_t n = size ? elf_file_copy(elf, svma, sizeof(code), code) : 0;
	u64 target, behind;

	if (n > 0 && jumps(elf, svma, code, &target)) {
		site.svma = target;
		site.size = UNKNOWN_BYTES;
		memset(code, 0, sizeof(code));
		n = elf_file_copy(elf, target, sizeof(code), code);
		if (n <= 0 || is_plt(elf, code) || jumps(elf, target, code, &target))
			return;
	}
	if (n <= 0 || ret->n == ALLOC_MAX_SITES)
		return;
	site.stepped = !find_emulated(elf, code, MIN((u64)n, site.size), function, &behind);
	if (!find_code(elf, site.svma, behind + 1, &site.foff))
		return;
	site.foff += behind;
	for (u32 i = 0; i < ret->n; i++) {
		struct alloc_site *other = &ret->site[i];

		/* The symbol of an alias tells the size. */
		if (other->svma == site.svma && site.svma == svma)
			other->size = size;
		/* Or one begins within the other: their calls pass the same place. */
		if (other->svma == site.svma || other->foff == site.foff)
			return;
	}
	ret->site[ret->n++] = site;
}

static void add_symbols(struct elf_file *elf, const char *section, const char *strings,
			struct alloc_sites *ret, bool *has_malloc)
{
	struct buf syms, strs;
	Elf64_Sym s;

	if (elf_file_section(elf, section, NULL, &syms) < 0 ||
	    elf_file_section(elf, strings, NULL, &strs) < 0)
		return;
	for (u32 i = 0; i < MAX_SYMBOLS && buf_left(&syms) >= sizeof(s); i++) {
		char name[MAX_NAME] = {};
		size_t at;

		memcpy(&s, syms.pos, sizeof(s));
		(void)buf_skip(&syms, sizeof(s));
		if (s.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s.st_info) != STT_FUNC ||
		    s.st_name >= buf_left(&strs))
			continue;
		memcpy(name, strs.pos + s.st_name, MIN(sizeof(name), buf_left(&strs) - s.st_name));
		if (memchr(name, 0, sizeof(name)) == NULL)
			continue;
		at = find_name(name);
		if (at == ARRAY_SIZE(names))
			continue;
		*has_malloc |= at == 0;
		add_site(elf, s.st_value, s.st_size, names[at].function, ret);
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
	bool has_malloc = false;

	ret->n = 0;
	add_symbols(elf, ".dynsym", ".dynstr", ret, &has_malloc);
	if (!is_library)
		add_symbols(elf, ".symtab", ".strtab", ret, &has_malloc);
	/* C++'s functions alone call an allocator that is elsewhere. */
	if (!has_malloc || !has(ret, ALLOC_MALLOC) || !has(ret, ALLOC_FREE))
		ret->n = 0;
}
