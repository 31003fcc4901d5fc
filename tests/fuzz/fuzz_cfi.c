/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind information. The first byte says what the rest of the input is:
 *
 *	bit 0-1	0 .eh_frame  1 .debug_frame  2 .eh_frame_hdr and .eh_frame inside a small ELF
 *		file, the header's length in the second byte  3 a whole ELF file
 *	bit 2	arm64
 *
 * The rows must be as lib/unwind's headers promise: addresses rise, neighbours differ, the first
 * row of a page is at 0, and each row's rule exists.
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/elfwriter.h"
#include "dwarf/cfi.h"
#include "unwind/unwind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT_SVMA 0x1000
#define HDR_SVMA 0x20000
#define FRAME_SVMA 0x21000
#define MAX_FDES 2000
#define MAX_PAGES 16

struct seen {
	bool any;
	u64 lo, hi, pc;
	struct unwind_rule last;
};

static void check_row(void *arg, u64 pc, const struct unwind_rule *rule)
{
	struct seen *s = arg;

	if (pc < s->lo || pc >= s->hi || (!s->any && pc != s->lo) || (s->any && pc <= s->pc) ||
	    (s->any && !memcmp(rule, &s->last, sizeof(*rule))) || rule->cfa_op > UNWIND_CFA_FP ||
	    rule->ra_op > UNWIND_RA_REG || rule->fp_op > UNWIND_FP_REG || rule->cfa_reg > 31)
		abort();
	s->any = true;
	s->pc = pc;
	s->last = *rule;
}

static void fuzz_table(struct buf bytes, bool eh, u16 machine)
{
	struct cfi_table t;
	u64 offset = 0, at;

	if (cfi_table_init(&t, bytes, FRAME_SVMA, eh, machine) < 0)
		abort();
	for (int n = 0; n < MAX_FDES && cfi_next(&t, &offset, &at); n++) {
		struct seen all = {}, part = {};
		struct cfi_fde fde;
		u64 budget = 10000;

		if (cfi_fde_at(&t, at, &fde) < 0 || fde.start == fde.end)
			continue;
		all.lo = fde.start;
		all.hi = fde.end;
		cfi_run(&t, &fde, all.lo, all.hi, &budget, check_row, &all);
		part.lo = fde.start + (fde.end - fde.start) / 2;
		part.hi = part.lo + 1;
		budget = 10000;
		cfi_run(&t, &fde, part.lo, part.hi, &budget, check_row, &part);
		if (!all.any || !part.any)
			abort();
	}
}

static void check_page(struct unwind_source *s, u64 page)
{
	static u32 rows[UNWIND_PAGE_BYTES];
	static u8 lines[UNWIND_PAGE_BYTES * 8];
	u32 n, n_rules;

	if (unwind_source_rows(s, page, rows, &n) < 0 || !n || n > UNWIND_PAGE_BYTES ||
	    rows[0] >> 16)
		abort();
	(void)unwind_source_rules(s, &n_rules);
	for (u32 i = 0; i < n; i++)
		if ((u16)rows[i] >= n_rules ||
		    (i && (rows[i] >> 16 <= rows[i - 1] >> 16 || (u16)rows[i] == (u16)rows[i - 1])))
			abort();
	unwind_page_pack(rows, n, lines);
}

static void fuzz_file(const void *image, size_t n)
{
	_cleanup_elf_file_ struct elf_file *f = NULL;
	const struct unwind_source_info *info;
	struct unwind_source *s;

	if (elf_file_open_memory(image, n, NULL, &f) < 0 || unwind_source_create(f, &s) < 0)
		return;
	info = unwind_source_info(s);
	for (u64 p = 0; p < info->n_pages && p < MAX_PAGES; p++)
		check_page(s, info->first_page + p);
	unwind_source_destroy(s);
}

/* .text of two and a half pages, a PLT, and the fuzzer's sections. */
static void fuzz_sections(struct buf bytes, u16 machine)
{
	static const u8 text[40000];
	struct elfw w = {.machine = machine, .entry = TEXT_SVMA + 64};
	size_t hdr_n = buf_left(&bytes) ? MIN((size_t)bytes.pos[0], buf_left(&bytes) - 1) : 0;
	struct buf hdr;

	if (!buf_skip(&bytes, 1) || !buf_take(&bytes, hdr_n, &hdr))
		return;
	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC, TEXT_SVMA, text, sizeof(text));
	elfw_section(&w, ".plt", SHT_PROGBITS, SHF_ALLOC, TEXT_SVMA + 256, text, 100);
	elfw_section(&w, ".eh_frame_hdr", SHT_PROGBITS, SHF_ALLOC, HDR_SVMA, hdr.pos, hdr_n);
	elfw_section(&w, ".eh_frame", SHT_PROGBITS, SHF_ALLOC, FRAME_SVMA, bytes.pos,
		     buf_left(&bytes));
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, TEXT_SVMA, sizeof(text), ".text");
	elfw_finish(&w);
	fuzz_file(w.out.data, w.out.n);
	str_deinit(&w.out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	u16 machine;

	if (!size)
		return 0;
	machine = data[0] & 4 ? EM_AARCH64 : EM_X86_64;
	switch (data[0] & 3) {
	case 0:
	case 1:
		fuzz_table(buf_of(data + 1, size - 1), !(data[0] & 1), machine);
		break;
	case 2:
		fuzz_sections(buf_of(data + 1, size - 1), machine);
		break;
	default:
		fuzz_file(data + 1, size - 1);
	}
	return 0;
}
