/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/go/rows.h"

#define PAGE_OF(svma) ((svma) >> UNWIND_PAGE_SHIFT)
/* The largest span of code in one file; code beyond it is ignored. */
#define MAX_SPAN_BYTES (16ULL << 30)
/* User space ends far below on both machines, so no sum of addresses here can overflow. */
#define MAX_SVMA (1ULL << 62)
/* The largest _start without CFI is musl's: 22 bytes on x86-64, 36 on arm64. */
#define ENTRY_BYTES 64

static void fill_layer(struct unwind_source *s, u32 layer, u64 lo, u64 hi);

void source_row(struct unwind_source *s, u64 pc, const struct unwind_rule *rule)
{
	u32 offset = (u32)(pc - s->page_base);
	u16 index = rules_intern(&s->rules, rule);

	if (s->n_rows && s->rows[s->n_rows - 1] >> 16 == offset)
		s->n_rows--;
	if (s->n_rows && (u16)s->rows[s->n_rows - 1] == index)
		return;
	s->rows[s->n_rows++] = offset << 16 | index;
}

/* Fills s->code with the bytes of the file around the page; the rest is zero. */
static void read_code(struct unwind_source *s)
{
	u64 first = s->page_base - MIN(s->page_base, (u64)SOURCE_CODE_MARGIN);
	u64 from = MAX(first, s->exec_lo);
	ssize_t n;

	s->code_page = s->page_base;
	s->code_svma = from;
	s->code_n = 0;
	if (from >= s->page_base + UNWIND_PAGE_BYTES)
		return;
	n = elf_file_copy(s->elf, from,
			  s->page_base + UNWIND_PAGE_BYTES + SOURCE_CODE_MARGIN - from, s->code);
	if (n > 0)
		s->code_n = (u32)n;
}

bool source_code(struct unwind_source *s, u64 pc, struct buf *ret)
{
	if (!s->code)
		s->code = malloc(UNWIND_PAGE_BYTES + 2 * SOURCE_CODE_MARGIN);
	if (!s->code)
		return false;
	if (s->code_page != s->page_base)
		read_code(s);
	if (pc < s->code_svma || pc - s->code_svma >= s->code_n)
		return false;
	*ret = buf_of(s->code + (pc - s->code_svma), s->code_n - (pc - s->code_svma));
	return true;
}

static void emit_row(void *arg, u64 pc, const struct unwind_rule *rule)
{
	source_row(arg, pc, rule);
}

static void fill_table(struct unwind_source *s, u32 layer, u64 lo, u64 hi)
{
	struct fde_index *x = &s->tables[layer > s->n_eh_tables ? layer - 1 : layer];
	u64 at = lo;

	for (u32 i = x->n ? fde_index_find(x, lo) : 0; i < x->n; i++) {
		struct cfi_fde fde;
		u64 begin, end;

		if (fde_index_start(x, i) >= hi)
			break;
		if (fde_index_get(x, i, &fde) < 0)
			continue;
		begin = MAX(fde.start, at);
		end = MIN(fde.end, hi);
		if (end <= begin)
			continue;
		if (begin > at) {
			fill_layer(s, layer + 1, at, begin);
			/* The code layer also reads FDEs, which may have evicted the CIE of this
			 * one. */
			if (fde_index_get(x, i, &fde) < 0) {
				at = begin;
				continue;
			}
		}
		cfi_run(&x->cfi, &fde, begin, end, &s->budget, emit_row, s);
		at = end;
	}
	if (at < hi)
		fill_layer(s, layer + 1, at, hi);
}

static void fill_go(struct unwind_source *s, u64 lo, u64 hi)
{
	u64 go_lo, go_hi;

	go_table_range(s->go, &go_lo, &go_hi);
	go_lo = MAX(lo, go_lo);
	go_hi = MIN(hi, go_hi);
	if (go_lo >= go_hi) {
		fill_layer(s, s->n_eh_tables + 1, lo, hi);
		return;
	}
	if (lo < go_lo)
		fill_layer(s, s->n_eh_tables + 1, lo, go_lo);
	go_table_fill(s->go, go_lo, go_hi, &s->budget, emit_row, s);
	if (go_hi < hi)
		fill_layer(s, s->n_eh_tables + 1, go_hi, hi);
}

/* The layers: .eh_frame, Go, the other tables, code. A file that is not Go has no Go layer. */
static void fill_layer(struct unwind_source *s, u32 layer, u64 lo, u64 hi)
{
	if (layer == s->n_eh_tables && s->go)
		fill_go(s, lo, hi);
	else if (layer == s->n_eh_tables)
		fill_layer(s, layer + 1, lo, hi);
	else if (layer < s->n_eh_tables)
		fill_table(s, layer, lo, hi);
	else if (layer - 1 < s->n_tables)
		fill_table(s, layer, lo, hi);
	else
		source_fill_gap(s, lo, hi);
}

int unwind_source_rows(struct unwind_source *s, u64 page, u32 *ret_rows, u32 *ret_n)
{
	if (page < s->info.first_page || page - s->info.first_page >= s->info.n_pages)
		return -ENOENT;
	s->page_base = page << UNWIND_PAGE_SHIFT;
	s->budget = SOURCE_PAGE_BUDGET;
	s->rows = ret_rows;
	s->n_rows = 0;
	fill_layer(s, 0, s->page_base, s->page_base + UNWIND_PAGE_BYTES);
	code_layer_end_page(s->layer);
	*ret_n = s->n_rows;
	s->rows = NULL;
	return 0;
}

const struct unwind_rule *unwind_source_rules(const struct unwind_source *s, u32 *ret_n)
{
	*ret_n = (u32)s->rules.list.n;
	return s->rules.list.data;
}

const struct unwind_source_info *unwind_source_info(const struct unwind_source *s)
{
	return &s->info;
}

/* Sets the span of the pages that contain code in the file. */
static void find_span(struct unwind_source *s)
{
	u64 lo = ~0ULL, hi = 0;

	for (u32 i = 0; i < s->elf->n_segments; i++) {
		const struct elf_segment *seg = &s->elf->segments[i];
		u64 n = MIN(seg->filesz, s->elf->size);

		if (!(seg->flags & PF_X) || !n || seg->svma > MAX_SVMA)
			continue;
		lo = MIN(lo, seg->svma);
		hi = MAX(hi, seg->svma + n);
	}
	if (lo >= hi)
		return;
	if (hi - lo > MAX_SPAN_BYTES)
		hi = lo + MAX_SPAN_BYTES;
	s->exec_lo = lo;
	s->exec_hi = hi;
	s->info.first_page = PAGE_OF(lo);
	s->info.n_pages = (u32)(PAGE_OF(hi - 1) - PAGE_OF(lo) + 1);
}

/* Whether the file is glibc's ld.so, by its DT_SONAME. Other files name ld.so only as DT_NEEDED. */
static bool is_loader(struct elf_file *elf)
{
	static const char soname[] = "ld-linux-x86-64.so.2";
	struct buf dynamic, names;
	const char *name;
	u64 tag, value;

	if (elf->machine != EM_X86_64 || elf_file_section(elf, ".dynamic", NULL, &dynamic) < 0 ||
	    elf_file_section(elf, ".dynstr", NULL, &names) < 0)
		return false;
	while (buf_u64(&dynamic, &tag) && buf_u64(&dynamic, &value) && tag != DT_NULL)
		if (tag == DT_SONAME)
			return buf_skip(&names, value) && buf_cstr(&names, &name) &&
			       !strcmp(name, soname);
	return false;
}

/* Adds a section of a file as the next layer, if the section exists and contains an FDE. */
static int add_table(struct unwind_source *s, struct elf_file *elf, const char *name)
{
	bool eh = !strcmp(name, ".eh_frame");
	struct elf_section section, hdr_section = {};
	struct fde_index *x = &s->tables[s->n_tables];
	struct buf bytes, hdr = {};
	int r;

	if (s->n_tables == SOURCE_MAX_TABLES || elf_file_section(elf, name, &section, &bytes) < 0 ||
	    cfi_table_init(&x->cfi, bytes, section.svma, eh, elf->machine) < 0)
		return 0;
	if (eh && elf_file_section(elf, ".eh_frame_hdr", &hdr_section, &hdr) < 0)
		hdr = (struct buf){};
	x->cfi.elf = elf;
	x->cfi.stop_at_zero = eh && section.index == 0;
	x->cfi.follow_bx = s->is_loader;
	x->refs.data = NULL;
	x->refs.n = x->refs.cap = 0;
	r = fde_index_build(x, hdr, hdr_section.svma, s->exec_lo, s->exec_hi);
	if (r < 0 || !x->n) {
		fde_index_deinit(x);
		return r;
	}
	s->n_tables++;
	s->n_eh_tables += eh;
	s->info.n_fdes += x->n;
	if (s->n_tables == 1 && !s->go)
		s->info.from = x->hdr_table ? ".eh_frame_hdr" : eh ? ".eh_frame" : ".debug_frame";
	return 0;
}

static int add_tables(struct unwind_source *s)
{
	int r = add_table(s, s->elf, ".eh_frame");

	if (r < 0)
		return r;
	r = go_table_create(s->elf, &s->go);
	if (r == -ENOMEM)
		return r;
	if (s->go) {
		s->info.n_fdes += go_table_n(s->go);
		if (!s->n_tables)
			s->info.from = ".gopclntab";
	}
	r = add_table(s, s->elf, ".debug_frame");
	if (r < 0 || s->n_tables || s->go)
		return r;
	if (elf_file_minidebuginfo(s->elf, &s->mini) < 0)
		return 0;
	return s->mini->machine == s->elf->machine ? add_table(s, s->mini, ".debug_frame") : 0;
}

int unwind_source_add_debug_file(struct unwind_source *s, struct elf_file *debug)
{
	return debug->machine == s->elf->machine ? add_table(s, debug, ".debug_frame") : 0;
}

/* Sets entry_lo and entry_hi if no layer above covers the entry point. */
static void find_entry(struct unwind_source *s)
{
	u64 lo = s->elf->entry, hi = lo + ENTRY_BYTES;

	/* 0 means no entry point, even if code is mapped at 0, as in the vDSO. */
	if (!lo || lo < s->exec_lo || lo >= s->exec_hi)
		return;
	if (s->go) {
		u64 go_lo, go_hi;

		go_table_range(s->go, &go_lo, &go_hi);
		if (lo >= go_lo && lo < go_hi)
			return;
		if (lo < go_lo)
			hi = MIN(hi, go_lo);
	}
	for (u32 t = 0; t < s->n_tables; t++) {
		struct fde_index *x = &s->tables[t];

		for (u32 i = fde_index_find(x, lo); i < x->n; i++) {
			struct cfi_fde fde;

			if (fde_index_start(x, i) >= hi)
				break;
			if (fde_index_get(x, i, &fde) < 0 || fde.end <= lo)
				continue;
			if (fde.start <= lo)
				return;
			hi = MIN(hi, fde.start);
		}
	}
	s->entry_lo = lo;
	s->entry_hi = hi;
}

static int create_source(struct elf_file *elf, bool cfi, bool code, struct unwind_source **ret)
{
	struct unwind_source *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->elf = elf;
	s->code_page = ~0ULL;
	s->info.from = "nothing";
	s->no_code = !code;
	r = rules_init(&s->rules);
	find_span(s);
	s->is_loader = is_loader(elf);
	if (r == 0 && s->info.n_pages && cfi)
		r = add_tables(s);
	if (r < 0) {
		unwind_source_destroy(s);
		return r;
	}
	source_find_plts(s);
	find_entry(s);
	*ret = s;
	return 0;
}

int unwind_source_create(struct elf_file *elf, struct unwind_source **ret)
{
	return create_source(elf, true, true, ret);
}

int unwind_source_create_without_cfi(struct elf_file *elf, struct unwind_source **ret)
{
	return create_source(elf, false, true, ret);
}

int unwind_source_create_without_code(struct elf_file *elf, struct unwind_source **ret)
{
	return create_source(elf, true, false, ret);
}

bool unwind_rules_are_distinct(const struct unwind_rule *rules, u32 n)
{
	struct rules all;
	u32 i = 0;

	if (rules_init(&all) < 0)
		return false;
	while (i < n && rules_intern(&all, &rules[i]) == i)
		i++;
	rules_deinit(&all);
	return i == n && n >= RULE_N_FIXED;
}

int unwind_source_continue(struct unwind_source *s, const struct unwind_rule *rules, u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (rules_intern(&s->rules, &rules[i]) != i)
			return i < s->rules.list.n ? -EINVAL : -ENOMEM;
	return 0;
}

void unwind_source_destroy(struct unwind_source *s)
{
	if (!s)
		return;
	for (u32 i = 0; i < s->n_tables; i++)
		fde_index_deinit(&s->tables[i]);
	rules_deinit(&s->rules);
	go_table_destroy(s->go);
	elf_file_destroy(s->mini);
	code_layer_destroy(s->layer);
	free(s->code);
	free(s);
}
