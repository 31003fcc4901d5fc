/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the function around an address that has no unwind information, and computes its rows.
 * Functions are found by
 *
 *	a symbol with a size		whose bounds are trusted
 *	the end of the previous FDE	assembly between compiled functions
 *	.init and .fini
 *	calls and prologues		code_starts.h
 *
 * Except in the first case, the function must be sound on every path: each return finds the stack
 * as the ABI demands, and no path runs into data. If nothing shows where a function begins, there
 * are no rows.
 *
 * The lists of function starts are built when they are first needed, and kept: most gaps are
 * padding and need none. The bytes of a page are freed when the page is finished.
 */
#include "unwind/code.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/code_flow.h"
#include "unwind/code_starts.h"
#include "unwind/source.h"

#define WINDOW_BYTES (64u << 10) /* bytes read before and after a page */
#define MAX_SECTIONS 4
#define CHEAP_TO_READ (2u << 20)
/* The number of functions analysed for one page; pages have fewer than 100. */
#define MAX_FUNCS_PER_PAGE 512

struct code_layer {
	struct disasm *disasm;
	struct code_starts starts;
	u64 sections[MAX_SECTIONS];
	u32 n_sections;
	bool have_starts; /* `starts` and `sections` have been read */
	bool failed;	  /* out of memory, or no disassembler: no rows */

	u64 page; /* the page that starts_here is for; ~0 = none */
	u32 n_funcs;
	code_addresses starts_here;

	bool must_return;      /* the function found last counts only if it returns */
	struct code_func func; /* the function that `rows` are for */
	bool have_func;
	struct code_rows rows;
};

static const struct unwind_rule rule_none = {.cfa_op = UNWIND_CFA_NONE};

static void find_sections(struct code_layer *c, struct elf_file *elf)
{
	static const char *const names[] = {".init", ".fini"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct elf_section section;

		if (elf_file_section(elf, names[i], &section, NULL) == 0 && section.size)
			c->sections[c->n_sections++] = section.svma;
	}
}

/*
 * Whether CFI omits more than a few pieces of assembly. Only then is it worth searching all code
 * for calls, which takes a quarter of a second for the executable of a compiler. Compilers write an
 * FDE per 150 to 600 bytes of code.
 */
static bool is_sparse(const struct unwind_source *s)
{
	u64 span = s->exec_hi - s->exec_lo;

	/* A static program with musl has FDEs only for the code that is not musl's. */
	return span <= CHEAP_TO_READ || s->info.n_fdes < span / 2048;
}

static struct code_layer *layer_of(struct unwind_source *s)
{
	struct code_layer *c = s->layer;

	if (c)
		return c;
	c = s->layer = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->page = ~0ULL;
	c->failed = disasm_create(s->elf->machine, &c->disasm) < 0;
	return c;
}

/* Reads the lists of function starts on the first call. False: they could not be read. */
static bool know_starts(struct unwind_source *s, struct code_layer *c)
{
	_cleanup_elf_file_ struct elf_file *mini = NULL;

	if (c->have_starts)
		return !c->failed;
	c->have_starts = true;
	find_sections(c, s->elf);
	if (elf_file_section(s->elf, ".symtab", NULL, NULL) < 0)
		(void)elf_file_minidebuginfo(s->elf, &mini);
	if (code_starts_read(&c->starts, s->elf, mini, s->exec_lo, s->exec_hi, is_sparse(s)) < 0)
		c->failed = true;
	return !c->failed;
}

void code_layer_destroy(struct code_layer *c)
{
	if (!c)
		return;
	disasm_destroy(c->disasm);
	code_starts_deinit(&c->starts);
	vec_deinit(&c->starts_here);
	vec_deinit(&c->rows.list);
	free(c);
}

void code_layer_end_page(struct code_layer *c)
{
	if (!c)
		return;
	vec_deinit(&c->starts_here);
	c->page = ~0ULL;
	c->n_funcs = 0;
}

/* Fills starts_here with the function starts around the page. */
static int look_around(struct unwind_source *s, struct code_layer *c)
{
	u64 from = MAX(s->exec_lo, s->page_base - MIN(s->page_base, (u64)WINDOW_BYTES));
	u64 to = MIN(s->exec_hi, s->page_base + UNWIND_PAGE_BYTES + WINDOW_BYTES);
	_cleanup_free_ u8 *code = NULL;
	ssize_t n;

	if (c->page == s->page_base)
		return 0;
	vec_clear(&c->starts_here);
	c->page = s->page_base;
	code = malloc(to - from);
	if (!code)
		return -ENOMEM;
	n = elf_file_copy(s->elf, from, to - from, code);
	if (n <= 0 && from < s->page_base) {
		from = s->page_base;
		n = elf_file_copy(s->elf, from, to - from, code);
	}
	if (n <= 0)
		return 0;
	return code_starts_scan(&c->starts, s->elf->machine, buf_of(code, (size_t)n), from,
				&c->starts_here);
}

/* Returns the end of the last FDE before pc, or 0, and the start of the next one. */
static void fdes_around(struct unwind_source *s, u64 pc, u64 *ret_before, u64 *ret_next)
{
	u64 before = 0, next = ~0ULL;

	for (u32 t = 0; t < s->n_tables; t++) {
		struct fde_index *x = &s->tables[t];
		u32 i = x->n ? fde_index_find(x, pc) : 0;
		struct cfi_fde fde;

		if (i < x->n && fde_index_start(x, i) <= pc) {
			if (fde_index_get(x, i, &fde) == 0 && fde.end <= pc)
				before = MAX(before, fde.end);
			i++;
		}
		if (i < x->n)
			next = MIN(next, fde_index_start(x, i));
	}
	*ret_before = before;
	*ret_next = next;
}

/* Returns the end of the padding at pc, at most hi. */
static u64 skip_padding(struct unwind_source *s, struct code_layer *c, u64 pc, u64 hi)
{
	struct disasm_insn insn;
	struct buf code;

	while (pc < hi && source_code(s, pc, &code)) {
		u32 n = disasm_padding(c->disasm, code);

		if (!n && (!disasm_one(c->disasm, code, pc, &insn) || !insn.padding))
			break;
		pc += n ? n : insn.length;
	}
	return MIN(pc, hi);
}

/* Finds the function at pc by a symbol with a size. */
static bool func_by_symbol(const struct code_layer *c, u64 pc, struct code_func *ret)
{
	const struct code_symbol *s = code_starts_find(&c->starts, pc);
	struct code_func f = {.bounds = true};

	if (!s || s->parent == ~0u)
		return false;
	if (s->parent)
		s = &c->starts.symbols.data[s->parent - 1];
	f.part[0] = (struct code_span){s->start, s->end};
	if (s->cold) {
		s = &c->starts.symbols.data[s->cold - 1];
		f.part[1] = (struct code_span){s->start, s->end};
	}
	*ret = f;
	return true;
}

static void narrow_span(struct code_span *f, u64 pc, u64 start)
{
	if (start <= pc)
		f->start = MAX(f->start, start);
	else
		f->end = MIN(f->end, start);
}

static void narrow_by_bytes(const code_addresses *starts, struct code_span *f, u64 pc)
{
	size_t lo = 0, hi = starts->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (starts->data[mid] <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo)
		narrow_span(f, pc, starts->data[lo - 1]);
	if (lo < starts->n)
		narrow_span(f, pc, starts->data[lo]);
}

/*
 * Finds the bounds of the function around pc. False: nothing shows where it begins; its end is set
 * nevertheless.
 */
static bool func_around(struct unwind_source *s, struct code_layer *c, u64 pc,
			struct code_func *ret)
{
	struct code_span f = {0, MAX(s->exec_hi, pc + 1)};
	u64 start, floor, next, fde_end, fde_next;

	c->must_return = false;
	fdes_around(s, pc, &fde_end, &fde_next);
	code_starts_around(&c->starts, pc, &start, &floor, &next);
	f.start = start;
	f.end = MIN(f.end, next);
	f.end = MIN(f.end, fde_next);
	floor = MAX(floor, fde_end);
	for (u32 i = 0; i < c->n_sections; i++)
		narrow_span(&f, pc, c->sections[i]);
	if (look_around(s, c) == 0)
		narrow_by_bytes(&c->starts_here, &f, pc);
	if (fde_end > s->page_base && f.start < fde_end) {
		/* It may be data, and must look like a function. */
		f.start = skip_padding(s, c, fde_end, pc);
		c->must_return = true;
	}
	*ret = (struct code_func){.part[0] = f};
	return f.start && f.start >= floor && pc - f.start < CODE_MAX_FUNC;
}

static bool same_span(const struct code_span *a, const struct code_span *b)
{
	return a->start == b->start && a->end == b->end;
}

/* Sets c->rows to the rows of function f. */
static bool follow_function(struct unwind_source *s, struct code_layer *c,
			    const struct code_func *f)
{
	if (c->have_func && same_span(&c->func.part[0], &f->part[0]) &&
	    same_span(&c->func.part[1], &f->part[1]) && c->func.bounds == f->bounds)
		return true;
	c->have_func = false;
	if (c->n_funcs++ >= MAX_FUNCS_PER_PAGE || code_flow(s->elf, c->disasm, f, &c->rows) < 0)
		return false;
	c->func = *f;
	c->have_func = true;
	return true;
}

/* Adds the rows of [lo, hi), which is in one part of the function that c->rows describe. */
static void put_rows(struct unwind_source *s, const struct code_rows *rows, bool second, u64 lo,
		     u64 hi)
{
	size_t i = second ? rows->n_first : 0, end = second ? rows->list.n : rows->n_first;
	const struct code_row *row = rows->list.data;

	if (i == end || row[i].pc > lo)
		source_row(s, lo, &rule_none);
	for (; i < end && row[i].pc < hi; i++)
		if (i + 1 == end || row[i + 1].pc > lo)
			source_row(s, MAX(lo, row[i].pc), &row[i].rule);
}

/* Fills the range from lo to the end of one function or gap. Returns that end. */
static u64 fill_some(struct unwind_source *s, struct code_layer *c, u64 lo, u64 hi)
{
	struct code_func f;
	u64 end;

	if (func_by_symbol(c, lo, &f)) {
		bool second = lo < f.part[0].start || lo >= f.part[0].end;

		end = MIN(hi, f.part[second].end);
		if (follow_function(s, c, &f))
			put_rows(s, &c->rows, second, lo, end);
		else
			source_row(s, lo, &rule_none);
		return end;
	}
	if (!func_around(s, c, lo, &f) || !follow_function(s, c, &f) || !c->rows.sane ||
	    (c->must_return && !c->rows.returns)) {
		source_row(s, lo, &rule_none);
		return MIN(hi, f.part[0].end);
	}
	end = MIN(hi, f.part[0].end);
	put_rows(s, &c->rows, false, lo, end);
	return end;
}

void code_layer_fill(struct unwind_source *s, u64 lo, u64 hi)
{
	struct code_layer *c = s->no_code ? NULL : layer_of(s);

	if (!c || c->failed) {
		source_row(s, lo, &rule_none);
		return;
	}
	while (lo < hi) {
		u64 from = lo < s->exec_hi ? skip_padding(s, c, lo, hi) : hi;

		if (from > lo)
			source_row(s, lo, &rule_none);
		if (from < hi && !know_starts(s, c)) {
			source_row(s, from, &rule_none);
			return;
		}
		if (from < hi)
			from = fill_some(s, c, from, hi);
		lo = from;
	}
}
