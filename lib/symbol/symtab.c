/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/symtab.h"

#include <errno.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define MAX_BACK 64
#define RANK_NOTYPE (1U << 24)

void symtab_deinit(struct symtab *t)
{
	vec_deinit(&t->list);
	vec_deinit(&t->code);
	vec_deinit(&t->max_end);
}

size_t symtab_memory(const struct symtab *t)
{
	return t->list.cap * sizeof(*t->list.data) + t->code.cap * sizeof(*t->code.data) +
	       t->max_end.cap * sizeof(*t->max_end.data);
}

static int read_code_sections(struct symtab *t, struct elf_file *f)
{
	Elf_Scn *scn = NULL;

	vec_clear(&t->code);
	while ((scn = elf_nextscn(f->elf, scn))) {
		GElf_Shdr h;

		if (!gelf_getshdr(scn, &h) || !(h.sh_flags & SHF_EXECINSTR) ||
		    h.sh_addr + h.sh_size < h.sh_addr)
			continue;
		if (vec_push(&t->code, (struct symtab_entry){.start = h.sh_addr,
							     .end = h.sh_addr + h.sh_size}) < 0)
			return -ENOMEM;
	}
	return 0;
}

static const struct symtab_entry *code_section(const struct symtab *t, u64 svma)
{
	for (size_t i = 0; i < t->code.n; i++)
		if (svma >= t->code.data[i].start && svma < t->code.data[i].end)
			return &t->code.data[i];
	return NULL;
}

/* $x, $d, $t and the like mark instruction sets on arm64; .L labels are the assembler's own. */
static bool is_noise(const char *name)
{
	return !*name || str_starts(name, ".L") ||
	       (name[0] == '$' && name[1] && (!name[2] || name[2] == '.'));
}

static u32 rank_of(const Elf64_Sym *s, const char *name)
{
	u32 rank = (u32)strnlen(name, 0xfff);

	for (const char *p = name; *p == '_'; p++)
		rank += 0x20;
	if (ELF64_ST_BIND(s->st_info) == STB_WEAK)
		rank += 1 << 16;
	else if (ELF64_ST_BIND(s->st_info) == STB_LOCAL)
		rank += 1 << 17;
	if (strchr(name, '@'))
		rank += 1 << 18;
	if (ELF64_ST_VISIBILITY(s->st_other) == STV_HIDDEN)
		rank += 1 << 15;
	if (ELF64_ST_TYPE(s->st_info) == STT_NOTYPE)
		rank += RANK_NOTYPE;
	return rank;
}

static bool is_function(const Elf64_Sym *s)
{
	unsigned int type = ELF64_ST_TYPE(s->st_info);

	return s->st_shndx != SHN_UNDEF &&
	       (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE);
}

int symtab_add(struct symtab *t, struct elf_file *f, bool dynamic)
{
	struct buf syms, names;
	size_t before = t->list.n;
	Elf64_Sym s;
	int r;

	r = elf_file_section(f, dynamic ? ".dynsym" : ".symtab", NULL, &syms);
	if (r == 0)
		r = elf_file_section(f, dynamic ? ".dynstr" : ".strtab", NULL, &names);
	if (r == 0 && !t->code.n)
		r = read_code_sections(t, f);
	if (r < 0)
		return r;
	t->whole |= !dynamic;
	for (; buf_left(&syms) >= sizeof(s); syms.pos += sizeof(s)) {
		struct buf b = names;
		const struct symtab_entry *code;
		struct symtab_entry e;

		memcpy(&s, syms.pos, sizeof(s));
		if (!is_function(&s) || !buf_skip(&b, s.st_name) || !buf_cstr(&b, &e.name) ||
		    is_noise(e.name))
			continue;
		code = code_section(t, s.st_value);
		if (!code)
			continue;
		e.start = s.st_value;
		e.sized = s.st_size != 0;
		e.end = e.sized && s.st_size < code->end - e.start ? e.start + s.st_size
								   : code->end;
		e.rank = rank_of(&s, e.name);
		if (vec_push(&t->list, e) < 0)
			return -ENOMEM;
	}
	return (int)(t->list.n - before);
}

static int compare_entries(const void *pa, const void *pb)
{
	const struct symtab_entry *a = pa, *b = pb;
	int c;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	c = strcmp(a->name, b->name);
	return c ? c : (a->end > b->end) - (a->end < b->end);
}

struct sort_key {
	u32 start; /* from the lowest one on */
	u32 index;
};

#define DIGIT_BITS 11
#define DIGITS (1u << DIGIT_BITS)

/* Sorts n keys by one digit; keys that have the same stay in their order. */
static void sort_by_digit(const struct sort_key *from, struct sort_key *to, size_t n, u32 shift)
{
	u32 place[DIGITS] = {}, sum = 0;

	for (size_t i = 0; i < n; i++)
		place[from[i].start >> shift & (DIGITS - 1)]++;
	for (u32 d = 0; d < DIGITS; d++) {
		u32 here = place[d];

		place[d] = sum;
		sum += here;
	}
	for (size_t i = 0; i < n; i++)
		to[place[from[i].start >> shift & (DIGITS - 1)]++] = from[i];
}

/* Sorts entries of one start each, which follow each other. */
static void sort_aliases(struct symtab_entry *list, size_t n)
{
	for (size_t i = 0, next; i < n; i = next) {
		for (next = i + 1; next < n && list[next].start == list[i].start; next++)
			;
		if (next - i > 1)
			qsort(&list[i], next - i, sizeof(*list), compare_entries);
	}
}

/*
 * As qsort() with compare_entries(), by the digits of the addresses: a large library has a hundred
 * thousand symbols, and its table is read again whenever it has samples at new addresses. False:
 * there is no memory, or addresses are too far apart.
 */
static bool sort_by_digits(struct symtab *t)
{
	_cleanup_free_ struct sort_key *keys = calloc(2 * t->list.n, sizeof(*keys));
	_cleanup_free_ struct symtab_entry *sorted = calloc(t->list.n, sizeof(*sorted));
	struct sort_key *from = keys, *to = keys + t->list.n;
	u64 low = ~0ULL, high = 0;

	vec_foreach (&t->list, e) {
		low = MIN(low, e->start);
		high = MAX(high, e->start);
	}
	if (!keys || !sorted || high - low > ~0u || t->list.n > ~0u)
		return false;
	for (size_t i = 0; i < t->list.n; i++)
		from[i] = (struct sort_key){(u32)(t->list.data[i].start - low), (u32)i};
	for (u32 shift = 0; shift < 32 && (high - low) >> shift; shift += DIGIT_BITS) {
		struct sort_key *swap = from;

		sort_by_digit(from, to, t->list.n, shift);
		from = to;
		to = swap;
	}
	for (size_t i = 0; i < t->list.n; i++)
		sorted[i] = t->list.data[from[i].index];
	memcpy(t->list.data, sorted, t->list.n * sizeof(*sorted));
	sort_aliases(t->list.data, t->list.n);
	return true;
}

int symtab_finish(struct symtab *t)
{
	u64 max_end = 0, max_func_end = 0;
	size_t out = 0;

	if (!t->list.n)
		return 0;
	if (!sort_by_digits(t))
		qsort(t->list.data, t->list.n, sizeof(*t->list.data), compare_entries);
	for (size_t i = 0, next; i < t->list.n; i = next) {
		struct symtab_entry e = t->list.data[i];
		u64 start = e.start;

		/* Choose the best name, with its size or that of an alias. */
		for (next = i; next < t->list.n && t->list.data[next].start == start; next++) {
			const struct symtab_entry *alias = &t->list.data[next];

			if (!e.sized && alias->sized) {
				e.sized = true;
				e.end = alias->end;
			}
		}
		/* A label inside a function is not a function. */
		if (!e.sized && start < max_func_end)
			continue;
		if (e.sized)
			max_func_end = MAX(max_func_end, e.end);
		t->list.data[out++] = e;
	}
	t->list.n = out;
	if (vec_reserve(&t->max_end, out) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < out; i++) {
		struct symtab_entry *e = &t->list.data[i];

		/* A symbol without a size ends at the next one. In a stripped file, whose next
		 * function usually has no symbol, it covers one byte only: musl's memset would
		 * include clone. */
		if (!e->sized && !t->whole)
			e->end = e->start + 1;
		else if (!e->sized && i + 1 < out)
			e->end = MIN(e->end, t->list.data[i + 1].start);
		max_end = MAX(max_end, e->end);
		t->max_end.data[i] = max_end;
	}
	t->max_end.n = out;
	return 0;
}

const struct symtab_entry *symtab_find(const struct symtab *t, u64 svma)
{
	size_t lo = 0, hi = t->list.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->list.data[mid].start <= svma)
			lo = mid + 1;
		else
			hi = mid;
	}
	/* Nested symbols are rare, so that a few steps back are enough. */
	for (size_t i = lo; i > 0 && t->max_end.data[i - 1] > svma && lo - i < MAX_BACK; i--)
		if (t->list.data[i - 1].end > svma)
			return &t->list.data[i - 1];
	return NULL;
}

/* ---- PLT ---- */

/* The address of the GOT slot that the PLT code around svma jumps through. */
static int plt_slot(struct elf_file *f, const struct elf_section *plt, u64 svma, u64 *ret)
{
	u64 entry = plt->svma + ((svma - plt->svma) & ~15ULL);
	struct buf b;
	int r;

	if (plt->svma + plt->size - entry < 16)
		return -ENOENT;
	r = elf_file_bytes(f, entry, 16, &b);
	if (r < 0)
		return r;
	if (f->machine == EM_X86_64) {
		for (u32 i = 0; i + 6 <= 16; i++) {
			s32 disp;

			if (b.pos[i] != 0xff || b.pos[i + 1] != 0x25) /* jmp *disp(%rip) */
				continue;
			memcpy(&disp, b.pos + i + 2, 4);
			*ret = entry + i + 6 + (u64)(s64)disp;
			return 0;
		}
		return -ENOENT;
	}
	for (u32 i = 0; i + 8 <= 16; i += 4) {
		u32 adrp, ldr;
		u64 page;

		memcpy(&adrp, b.pos + i, 4);
		memcpy(&ldr, b.pos + i + 4, 4);
		/* adrp x16, page; ldr x17, [x16, offset] */
		if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
			continue;
		/* A signed number of 21 bits: immhi above immlo. */
		page = (u64)(adrp >> 5 & 0x7ffff) << 2 | (adrp >> 29 & 3);
		page = (u64)((s64)(page << 43) >> 43);
		*ret = ((entry + i) & ~0xfffULL) + (page << 12) + (ldr >> 10 & 0xfff) * 8;
		return 0;
	}
	return -ENOENT;
}

static int slot_symbol(struct elf_file *f, const char *section, u64 slot, const char **ret)
{
	struct buf rela, syms, names;
	Elf64_Rela e;

	if (elf_file_section(f, section, NULL, &rela) < 0 ||
	    elf_file_section(f, ".dynsym", NULL, &syms) < 0 ||
	    elf_file_section(f, ".dynstr", NULL, &names) < 0)
		return -ENOENT;
	for (; buf_left(&rela) >= sizeof(e); rela.pos += sizeof(e)) {
		Elf64_Sym s;

		memcpy(&e, rela.pos, sizeof(e));
		if (e.r_offset != slot)
			continue;
		if (!buf_skip(&syms, ELF64_R_SYM(e.r_info) * sizeof(s)) ||
		    buf_left(&syms) < sizeof(s))
			return -ENOENT;
		memcpy(&s, syms.pos, sizeof(s));
		return buf_skip(&names, s.st_name) && buf_cstr(&names, ret) && **ret ? 0 : -ENOENT;
	}
	return -ENOENT;
}

int symtab_plt_name(struct elf_file *f, u64 svma, char **ret)
{
	static const char *const sections[] = {".plt.sec", ".plt", ".plt.got"};
	struct elf_section plt = {};
	const char *name;
	bool found = false;
	u64 slot;

	for (size_t i = 0; i < ARRAY_SIZE(sections) && !found; i++)
		found = elf_file_section(f, sections[i], &plt, NULL) == 0 && svma >= plt.svma &&
			svma - plt.svma < plt.size;
	if (!found || plt_slot(f, &plt, svma, &slot) < 0 ||
	    (slot_symbol(f, ".rela.plt", slot, &name) < 0 &&
	     slot_symbol(f, ".rela.dyn", slot, &name) < 0))
		return -ENOENT;
	return asprintf(ret, "%s@plt", name) < 0 ? -ENOMEM : 0;
}
