/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/runtime/binary.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SYMBOLS (1u << 20)
#define MAX_RELOCS (4u << 20)
#define MAX_FDES (1u << 20)
#define RULE_BUDGET 4096
#define MAX_FUNCTION_BYTES (1u << 20)

const char *runtime_file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- symbols ---- */

/* Finds the symbol tables. A static program has only the symbols that survived stripping. */
static bool symbol_sections(struct elf_file *elf, struct buf *ret_syms, struct buf *ret_strs)
{
	return (elf_file_section(elf, ".dynsym", NULL, ret_syms) == 0 &&
		elf_file_section(elf, ".dynstr", NULL, ret_strs) == 0) ||
	       (elf_file_section(elf, ".symtab", NULL, ret_syms) == 0 &&
		elf_file_section(elf, ".strtab", NULL, ret_strs) == 0);
}

bool runtime_symbol(struct elf_file *elf, const char *name, u64 *ret_svma, u64 *ret_size)
{
	struct buf syms, strs;
	size_t length = strlen(name);
	Elf64_Sym s;

	if (!symbol_sections(elf, &syms, &strs))
		return false;
	for (u32 i = 0; i < MAX_SYMBOLS && buf_left(&syms) >= sizeof(s); i++) {
		memcpy(&s, syms.pos, sizeof(s));
		(void)buf_skip(&syms, sizeof(s));
		if (s.st_shndx == SHN_UNDEF || s.st_name >= buf_left(&strs) ||
		    buf_left(&strs) - s.st_name <= length ||
		    memcmp(strs.pos + s.st_name, name, length + 1))
			continue;
		*ret_svma = s.st_value;
		if (ret_size)
			*ret_size = s.st_size;
		return true;
	}
	return false;
}

bool runtime_symbol_range(struct elf_file *elf, const char *name, struct runtime_range *ret)
{
	u64 svma, size;

	if (!runtime_symbol(elf, name, &svma, &size) || !size || svma + size < svma)
		return false;
	*ret = (struct runtime_range){svma, svma + size};
	return true;
}

/* ---- symbolic execution ---- */

bool runtime_code_at(void *arg, u64 svma, size_t n, struct buf *ret)
{
	struct runtime_code *c = arg;
	ssize_t got = elf_file_copy(c->elf, svma, MIN(n, sizeof(c->word)), c->word);

	if (got <= 0)
		return false;
	*ret = buf_of(c->word, (size_t)got);
	return true;
}

/* The value of a dynamic symbol, by its index. */
static bool symbol_value(struct elf_file *elf, u64 index, u64 *ret)
{
	struct buf syms;
	Elf64_Sym s;

	if (elf_file_section(elf, ".dynsym", NULL, &syms) < 0 ||
	    index >= buf_left(&syms) / sizeof(s))
		return false;
	memcpy(&s, syms.pos + index * sizeof(s), sizeof(s));
	if (s.st_shndx == SHN_UNDEF)
		return false;
	*ret = s.st_value;
	return true;
}

bool runtime_constant_at(void *arg, u64 svma, u64 *ret)
{
	struct runtime_code *c = arg;
	struct buf rela;
	Elf64_Rela e;

	if (elf_file_section(c->elf, ".rela.dyn", NULL, &rela) < 0)
		return false;
	for (u32 i = 0; i < MAX_RELOCS && buf_left(&rela) >= sizeof(e); i++) {
		memcpy(&e, rela.pos, sizeof(e));
		(void)buf_skip(&rela, sizeof(e));
		if (e.r_offset != svma)
			continue;
		switch (ELF64_R_TYPE(e.r_info)) {
		case R_X86_64_RELATIVE:
		case R_AARCH64_RELATIVE:
			*ret = (u64)e.r_addend;
			return true;
		case R_X86_64_GLOB_DAT:
		case R_X86_64_64:
		case R_AARCH64_GLOB_DAT:
		case R_AARCH64_ABS64:
			if (!symbol_value(c->elf, ELF64_R_SYM(e.r_info), ret))
				return false;
			*ret += (u64)e.r_addend;
			return true;
		default:
			return false;
		}
	}
	return false;
}

/* ---- instructions ---- */

int runtime_sweep(struct elf_file *elf, const struct runtime_range *range, runtime_insn_fn *fn,
		  void *arg)
{
	_cleanup_disasm_ struct disasm *d = NULL;
	struct buf code;
	u64 at = range->start;
	int r = disasm_create(elf->machine, &d);

	if (r == 0)
		r = elf_file_bytes(elf, at, range->end - at, &code);
	if (r < 0)
		return r;
	while (buf_left(&code)) {
		struct disasm_insn i = {.target = ~0ULL};

		if (!disasm_one(d, code, at, &i) || !i.length)
			i = (struct disasm_insn){.length = elf->machine == EM_X86_64 ? 1 : 4,
						 .target = ~0ULL};
		if (buf_left(&code) < i.length || fn(arg, at, code.pos, &i))
			break;
		(void)buf_skip(&code, i.length);
		at += i.length;
	}
	return 0;
}

/* ---- functions ---- */

int runtime_each_fde(struct elf_file *elf, runtime_fde_fn *fn, void *arg)
{
	struct elf_section section;
	struct cfi_table t = {};
	struct cfi_fde fde;
	struct buf bytes;
	u64 offset = 0, at;
	int r = elf_file_section(elf, ".eh_frame", &section, &bytes);

	if (r == 0)
		r = cfi_table_init(&t, bytes, section.svma, true, elf->machine);
	for (u32 i = 0; r == 0 && i < MAX_FDES && cfi_next(&t, &offset, &at); i++)
		if (cfi_fde_at(&t, at, &fde) == 0 && fn(arg, &t, &fde))
			break;
	return r;
}

static void first_rule(void *arg, u64 pc, const struct unwind_rule *rule)
{
	struct unwind_rule *first = arg;

	if (first->cfa_op == UNWIND_CFA_NONE)
		*first = *rule;
}

struct unwind_rule runtime_first_rule(const struct cfi_table *t, const struct cfi_fde *fde)
{
	struct unwind_rule first = {.cfa_op = UNWIND_CFA_NONE};
	u64 budget = RULE_BUDGET;

	cfi_run(t, fde, fde->start, MIN(fde->end, fde->start + 1), &budget, first_rule, &first);
	return first;
}

struct function_reader {
	struct runtime_functions *f;
	int error;
};

static bool read_function(void *arg, const struct cfi_table *t, const struct cfi_fde *fde)
{
	struct function_reader *r = arg;

	r->error = vec_push(&r->f->all, (struct runtime_range){fde->start, fde->end});
	return r->error < 0;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct runtime_range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

int runtime_functions_init(struct elf_file *elf, struct runtime_functions *ret)
{
	struct function_reader reader = {.f = ret};
	int r;

	*ret = (struct runtime_functions){};
	r = runtime_each_fde(elf, read_function, &reader);
	r = r < 0 ? r : reader.error;
	if (r < 0)
		runtime_functions_deinit(ret);
	else if (ret->all.n)
		qsort(ret->all.data, ret->all.n, sizeof(*ret->all.data), compare_ranges);
	return r;
}

void runtime_functions_deinit(struct runtime_functions *f)
{
	vec_deinit(&f->all);
}

const struct runtime_range *runtime_function_at(const struct runtime_functions *f, u64 svma)
{
	size_t lo = 0, hi = f->all.n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (f->all.data[mid].start <= svma)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && runtime_in(&f->all.data[lo - 1], svma) ? &f->all.data[lo - 1] : NULL;
}

/* ---- parts of a function ---- */

void runtime_note_away(struct runtime_away *a, const struct runtime_range *function,
		       const struct disasm_insn *insn)
{
	if ((insn->flow != DISASM_JUMP && insn->flow != DISASM_BRANCH) ||
	    runtime_in(function, insn->target))
		return;
	for (u32 i = 0; i < a->n; i++)
		if (a->svma[i] == insn->target)
			return;
	if (a->n < RUNTIME_MAX_AWAY)
		a->svma[a->n++] = insn->target;
}

/* Whether the frame exists already where a range begins: the range is part of another function. */
static bool begins_inside(const struct cfi_table *t, const struct cfi_fde *fde)
{
	struct unwind_rule first = runtime_first_rule(t, fde);

	return first.cfa_op == UNWIND_CFA_REG &&
	       (first.cfa_reg != t->machine->sp || first.cfa_off > 16);
}

struct parts {
	const struct runtime_away *away;
	struct runtime_range *ranges;
	u32 n, max;
};

static bool add_part(void *arg, const struct cfi_table *t, const struct cfi_fde *fde)
{
	struct parts *p = arg;
	bool wanted = false;

	if (p->n == p->max)
		return true;
	for (u32 i = 0; i < p->away->n && !wanted; i++)
		wanted = p->away->svma[i] >= fde->start && p->away->svma[i] < fde->end;
	if (wanted && fde->start != p->ranges[0].start && begins_inside(t, fde))
		p->ranges[p->n++] = (struct runtime_range){fde->start, fde->end};
	return false;
}

u32 runtime_add_parts(struct elf_file *elf, const struct runtime_away *a,
		      struct runtime_range *ranges, u32 max)
{
	struct parts p = {.away = a, .ranges = ranges, .n = 1, .max = max};

	(void)runtime_each_fde(elf, add_part, &p);
	return p.n;
}

struct jumps {
	const struct runtime_range *function;
	struct runtime_away away;
};

static bool note_jump(void *arg, u64 svma, const u8 *bytes, const struct disasm_insn *insn)
{
	struct jumps *j = arg;

	runtime_note_away(&j->away, j->function, insn);
	return false;
}

u32 runtime_find_parts(struct elf_file *elf, struct runtime_range *ranges, u32 max)
{
	struct jumps j = {.function = &ranges[0]};

	if (ranges[0].end - ranges[0].start > MAX_FUNCTION_BYTES ||
	    runtime_sweep(elf, &ranges[0], note_jump, &j) < 0)
		return 1;
	return runtime_add_parts(elf, &j.away, ranges, max);
}
