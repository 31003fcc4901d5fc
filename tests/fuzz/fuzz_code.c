/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions. The first byte says how the rest of the input is read:
 *
 *	bit 0	arm64
 *	bit 1	a symbol has the bounds of the function, else they must be found
 *	bit 2	code_flow() of two parts; the second byte has the length of the first part
 *
 * For any bytes, addresses of rows rise, neighbours differ, a walk can apply the rules, and the
 * same bytes give the same rows again.
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/elfwriter.h"
#include "unwind/code_flow.h"
#include "unwind/unwind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT_SVMA 0x10000
#define MAX_TEXT (3 * UNWIND_PAGE_BYTES)

static void check_rule(const struct unwind_rule *r, bool x86)
{
	u8 fp = x86 ? 6 : 29, sp = x86 ? 7 : 31;

	if (r->cfa_op != UNWIND_CFA_REG)
		return;
	if ((r->cfa_reg != fp && r->cfa_reg != sp) || (r->cfa_reg == sp && r->cfa_off < 0) ||
	    (x86 && r->ra_op != UNWIND_RA_CFA) || r->fp_op > UNWIND_FP_CFA ||
	    (r->fp_op == UNWIND_FP_CFA && r->fp_off >= 0))
		abort();
}

/* Bytes that disasm_padding() accepts must decode as padding of the same length. */
static void check_padding(struct elf_file *elf, struct disasm *d, size_t size)
{
	struct disasm_insn insn;
	struct buf code;

	if (elf_file_bytes(elf, TEXT_SVMA, size, &code) < 0)
		return;
	for (; buf_left(&code); code.pos++) {
		u32 n = disasm_padding(d, code);

		if (n &&
		    (!disasm_one(d, code, TEXT_SVMA, &insn) || !insn.padding || insn.length != n))
			abort();
	}
}

/*
 * The text of any bytes must end, and the disassembler for text must find the same lengths of
 * instructions as the one for unwinding.
 */
static void check_text(const u8 *data, size_t size, bool x86)
{
	_cleanup_disasm_text_ struct disasm_text *t = NULL;
	_cleanup_disasm_ struct disasm *d = NULL;
	struct buf code = buf_of(data, size);
	struct disasm_insn insn;
	char text[192];

	if (disasm_create(x86 ? EM_X86_64 : EM_AARCH64, &d) < 0 ||
	    disasm_text_create(x86 ? EM_X86_64 : EM_AARCH64, &t) < 0)
		return;
	while (buf_left(&code)) {
		u32 n = disasm_text_one(t, code, TEXT_SVMA, text, sizeof(text));

		if (!n || !*text || n > buf_left(&code) ||
		    (*text != '.' && disasm_one(d, code, TEXT_SVMA, &insn) && insn.length != n))
			abort();
		buf_skip(&code, n);
	}
}

static void check_flow(struct elf_file *elf, size_t n, size_t first)
{
	struct code_func f = {
		.part = {{TEXT_SVMA, TEXT_SVMA + first}, {TEXT_SVMA + first, TEXT_SVMA + n}},
		.bounds = true};
	struct code_rows rows = {};
	struct disasm *d = NULL;

	if (disasm_create(elf->machine, &d) < 0)
		abort();
	check_padding(elf, d, n);
	if (code_flow(elf, d, &f, &rows) == 0) {
		if (rows.n_first > rows.list.n)
			abort();
		for (size_t i = 0; i < rows.list.n; i++) {
			const struct code_row *row = &rows.list.data[i];

			check_rule(&row->rule, elf->machine == EM_X86_64);
			if (row->pc < TEXT_SVMA || row->pc > TEXT_SVMA + n ||
			    (i && i != rows.n_first &&
			     (row->pc <= row[-1].pc ||
			      !memcmp(&row->rule, &row[-1].rule, sizeof(row->rule)))))
				abort();
		}
	}
	vec_deinit(&rows.list);
	disasm_destroy(d);
}

static void check_pages(struct elf_file *elf)
{
	static u32 rows[UNWIND_PAGE_BYTES], again[UNWIND_PAGE_BYTES];
	const struct unwind_source_info *info;
	struct unwind_source *s;

	if (unwind_source_create_without_cfi(elf, &s) < 0)
		abort();
	info = unwind_source_info(s);
	for (u64 p = 0; p < info->n_pages; p++) {
		const struct unwind_rule *rules;
		u32 n, m, n_rules;

		if (unwind_source_rows(s, info->first_page + p, rows, &n) < 0 ||
		    unwind_source_rows(s, info->first_page + p, again, &m) < 0)
			abort();
		if (!n || n != m || rows[0] >> 16 || memcmp(rows, again, n * sizeof(*rows)) != 0)
			abort();
		rules = unwind_source_rules(s, &n_rules);
		for (u32 i = 0; i < n; i++) {
			if ((u16)rows[i] >= n_rules || (i && rows[i] >> 16 <= rows[i - 1] >> 16))
				abort();
			check_rule(&rules[(u16)rows[i]], elf->machine == EM_X86_64);
		}
	}
	unwind_source_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elfw w = {};
	Elf64_Sym symbols[2] = {};
	struct elf_file *elf = NULL;
	struct diag diag = {};
	uint8_t how, first;
	size_t n;

	if (size < 3 || size > MAX_TEXT)
		return 0;
	how = data[0];
	first = data[1];
	data += 2;
	n = size - 2;
	w.machine = how & 1 ? EM_AARCH64 : EM_X86_64;
	symbols[1] = (Elf64_Sym){.st_name = 1,
				 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
				 .st_shndx = 1,
				 .st_value = TEXT_SVMA,
				 .st_size = n};
	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, TEXT_SVMA, data, n);
	if (how & 2) {
		elfw_section(&w, ".symtab", SHT_SYMTAB, 0, 0, symbols, sizeof(symbols));
		elfw_section(&w, ".strtab", SHT_STRTAB, 0, 0, "\0f", 3);
	}
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, TEXT_SVMA, n, ".text");
	elfw_finish(&w);
	if (elf_file_open_memory(w.out.data, w.out.n, &diag, &elf) < 0)
		abort();
	if (how & 4)
		check_flow(elf, n, MIN((size_t)first, n));
	else
		check_pages(elf);
	check_text(data, n, !(how & 1));
	elf_file_destroy(elf);
	str_deinit(&w.out);
	return 0;
}
