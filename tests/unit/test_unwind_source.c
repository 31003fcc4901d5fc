/* SPDX-License-Identifier: Apache-2.0 */
/* Complete files, written byte by byte, and the pages that unwind sources make of them. */
#include <criterion/criterion.h>
#include <elf.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "cfiwriter.h"
#include "elfwriter.h"
#include "unwind/unwind.h"

#define TEXT 0x4000
#define HDR 0x20000
#define FRAME 0x21000
#define X86_CIE "\x0c\x07\x08\x90\x01"
#define P(s) s, sizeof(s) - 1
#define N_FDES 3

/* Three functions: at the starts of two pages, and in the middle; a gap precedes the last. */
static const struct {
	u64 start, length;
	const char *program;
} fdes[N_FDES] = {
	{TEXT, 0x100, "\x41\x0e\x10"},
	{TEXT + 0x100, 0x3f80, "\x41\x0e\x18\x03\x80\x3f"},
	{TEXT + 0x4100, 0x40, "\x42\x0e\x20"},
};
static const size_t program_n[N_FDES] = {3, 6, 3};
#define GOOD_ROWS                                                                                  \
	"4000:r7+8; 4001:r7+16; 4100:r7+8; 4101:r7+24; 8000:r7+24; 8080:none; 8100:r7+8; "         \
	"8102:r7+32; 8140:none"

struct file {
	struct elfw w;
	struct cfiw cfi;
	u8 hdr[12 + 8 * 8];
	u32 hdr_n;
	u8 text[0x6000];
};

static void hdr_entry(struct file *f, u64 start, u64 fde)
{
	s32 pair[2] = {(s32)(start - HDR), (s32)(FRAME + fde - HDR)};
	u32 n;

	memcpy(&n, f->hdr + 8, 4);
	n++;
	memcpy(f->hdr + 8, &n, 4);
	memcpy(f->hdr + f->hdr_n, pair, 8);
	f->hdr_n += 8;
}

static void init(struct file *f)
{
	s32 rel = FRAME - (HDR + 4);

	*f = (struct file){.cfi = {.eh = true, .svma = FRAME}, .hdr_n = 12};
	memcpy(f->hdr, "\1\x1b\3\x3b", 4);
	memcpy(f->hdr + 4, &rel, 4);
}

static void add_fdes(struct file *f)
{
	size_t cie = cfiw_cie(&f->cfi, "zR", P(X86_CIE));

	for (int i = 0; i < N_FDES; i++) {
		size_t at = cfiw_fde(&f->cfi, cie, fdes[i].start, fdes[i].length, fdes[i].program,
				     program_n[i]);

		hdr_entry(f, fdes[i].start, at);
	}
}

static void row_text(struct str *out, u64 pc, const struct unwind_rule *r)
{
	static const char *const ops[] = {
		[UNWIND_CFA_NONE] = "none",
		[UNWIND_CFA_STOP] = "stop",
		[UNWIND_CFA_UNSUPPORTED] = "unsupported",
		[UNWIND_CFA_REG] = "r",
		[UNWIND_CFA_DEREF] = "*",
		[UNWIND_CFA_PLT] = "plt",
		[UNWIND_CFA_SIGNAL] = "signal",
		[UNWIND_CFA_FP] = "fp",
		[UNWIND_CFA_GO] = "go",
	};

	str_printf(out, "%s%llx:%s", out->n ? "; " : "", pc, ops[r->cfa_op]);
	if (r->cfa_op == UNWIND_CFA_REG)
		str_printf(out, "%u%+d", r->cfa_reg, r->cfa_off);
	if (r->cfa_op == UNWIND_CFA_REG && r->ra_op == UNWIND_RA_REG)
		str_printf(out, "@%d", r->ra_off);
	if (r->cfa_op == UNWIND_CFA_PLT)
		str_printf(out, "%+d/%d", r->cfa_off, r->cfa_add);
}

/* Returns all rows of a file, and their source. */
static void rows_of(struct file *f, struct str *ret, const char **ret_from)
{
	static u32 rows[UNWIND_PAGE_BYTES];
	_cleanup_elf_file_ struct elf_file *elf = NULL;
	const struct unwind_source_info *info;
	struct unwind_source *s;

	elfw_section(&f->w, ".text", SHT_PROGBITS, SHF_ALLOC, TEXT, f->text, sizeof(f->text));
	if (f->hdr_n > 12)
		elfw_section(&f->w, ".eh_frame_hdr", SHT_PROGBITS, SHF_ALLOC, HDR, f->hdr,
			     f->hdr_n);
	if (f->cfi.out.n)
		elfw_section(&f->w, f->cfi.eh ? ".eh_frame" : ".debug_frame", SHT_PROGBITS,
			     f->cfi.eh ? SHF_ALLOC : 0, f->cfi.svma, f->cfi.out.data, f->cfi.out.n);
	elfw_segment(&f->w, PT_LOAD, PF_R | PF_X, TEXT, sizeof(f->text), ".text");
	elfw_finish(&f->w);
	cr_assert_eq(elf_file_open_memory(f->w.out.data, f->w.out.n, NULL, &elf), 0);
	cr_assert_eq(unwind_source_create(elf, &s), 0);
	info = unwind_source_info(s);
	cr_assert_eq(info->first_page, TEXT >> UNWIND_PAGE_SHIFT);
	cr_assert_eq(info->n_pages, 2);
	for (u64 p = info->first_page; p < info->first_page + info->n_pages; p++) {
		const struct unwind_rule *rules;
		u32 n, n_rules;

		cr_assert_eq(unwind_source_rows(s, p, rows, &n), 0);
		cr_assert(n > 0 && rows[0] >> 16 == 0);
		rules = unwind_source_rules(s, &n_rules);
		cr_assert_eq(rules[0].cfa_op, UNWIND_CFA_NONE);
		for (u32 i = 0; i < n; i++) {
			cr_assert_lt((u16)rows[i], n_rules);
			row_text(ret, (p << UNWIND_PAGE_SHIFT) + (rows[i] >> 16),
				 &rules[(u16)rows[i]]);
		}
	}
	cr_assert_lt(unwind_source_rows(s, info->first_page + 2, rows, &(u32){0}), 0);
	if (ret_from)
		*ret_from = info->from;
	unwind_source_destroy(s);
	str_deinit(&f->w.out);
	str_deinit(&f->cfi.out);
}

Test(source, the_linkers_table_and_a_scan_give_the_same_rows)
{
	for (int use_hdr = 0; use_hdr < 2; use_hdr++) {
		_cleanup_str_ struct str got = {};
		const char *from;
		struct file f;

		init(&f);
		add_fdes(&f);
		if (!use_hdr)
			f.hdr_n = 0;
		rows_of(&f, &got, &from);
		cr_expect_str_eq(str_get(&got), GOOD_ROWS);
		cr_expect_str_eq(from, use_hdr ? ".eh_frame_hdr" : ".eh_frame");
	}
}

/* The table in .eh_frame_hdr is wrong in several ways; the rows must be those of .eh_frame. */
Test(source, a_table_that_disagrees_with_the_section_is_not_used)
{
	for (int lie = 0; lie < 6; lie++) {
		_cleanup_str_ struct str got = {};
		const char *from;
		u8 swap[8];
		struct file f;
		u32 n = 2;

		init(&f);
		add_fdes(&f);
		switch (lie) {
		case 0: /* one missing */
			memcpy(f.hdr + 8, &n, 4);
			break;
		case 1: /* out of order */
			memcpy(swap, f.hdr + 12, 8);
			memcpy(f.hdr + 12, f.hdr + 20, 8);
			memcpy(f.hdr + 20, swap, 8);
			break;
		case 2: /* a wrong start */
			f.hdr[12] ^= 4;
			break;
		case 3: /* an FDE that is not one */
			f.hdr[16] ^= 8;
			break;
		case 4: /* one twice */
			memcpy(f.hdr + 20, f.hdr + 12, 8);
			break;
		case 5: /* more entries than the section has room for */
			memset(f.hdr + 8, 0xff, 4);
			break;
		}
		rows_of(&f, &got, &from);
		cr_expect_str_eq(str_get(&got), GOOD_ROWS, "lie %d", lie);
		cr_expect_str_eq(from, ".eh_frame", "lie %d", lie);
	}
}

Test(source, overlapping_empty_and_repeated_functions)
{
	_cleanup_str_ struct str got = {};
	struct file f;
	size_t cie;

	init(&f);
	cie = cfiw_cie(&f.cfi, "zR", P(X86_CIE));
	/* Unordered FDEs: the last start wins; empty FDEs and those outside code do not count. */
	cfiw_fde(&f.cfi, cie, TEXT + 0x200, 0x10, P("\x0e\x30"));
	cfiw_fde(&f.cfi, cie, TEXT, 0x1000, P("\x0e\x10"));
	cfiw_fde(&f.cfi, cie, TEXT, 0x20, P("\x0e\x40"));
	cfiw_fde(&f.cfi, cie, TEXT + 0x100, 0, P("\x0e\x20"));
	cfiw_fde(&f.cfi, cie, 0x100, 0x100000, P("\x0e\x20"));
	cfiw_fde(&f.cfi, cie, TEXT + 0x5ff0, 0x100000, P("\x0e\x28"));
	rows_of(&f, &got, NULL);
	cr_expect_str_eq(str_get(&got), "4000:r7+16; 4200:r7+48; 4210:none; 8000:none; 9ff0:r7+40");
}

Test(source, debug_frame_serves_where_there_is_no_eh_frame)
{
	_cleanup_str_ struct str got = {};
	const char *from;
	struct file f;
	size_t cie;

	init(&f);
	f.cfi = (struct cfiw){.version = 4};
	cie = cfiw_cie(&f.cfi, "", P(X86_CIE));
	cfiw_fde(&f.cfi, cie, 0, 0x40, P("")); /* the FDE of a function that the linker discarded */
	cfiw_fde(&f.cfi, cie, TEXT + 0x10, 0x10, P("\x41\x0e\x10"));
	rows_of(&f, &got, &from);
	cr_expect_str_eq(str_get(&got), "4000:none; 4010:r7+8; 4011:r7+16; 4020:none; 8000:none");
	cr_expect_str_eq(from, ".debug_frame");
}

Test(source, the_entry_point_without_cfi_ends_the_stack)
{
	_cleanup_str_ struct str got = {}, covered = {};
	struct file f;
	size_t cie;

	init(&f);
	f.w.entry = TEXT + 0x3fe0; /* the function crosses a page's end */
	cie = cfiw_cie(&f.cfi, "zR", P(X86_CIE));
	cfiw_fde(&f.cfi, cie, TEXT + 0x4010, 0x10, P(""));
	rows_of(&f, &got, NULL);
	cr_expect_str_eq(str_get(&got), "4000:none; 7fe0:stop; 8000:stop; 8010:r7+8; 8020:none");
	init(&f);
	f.w.entry = TEXT + 0x18;
	cie = cfiw_cie(&f.cfi, "zR", P(X86_CIE));
	cfiw_fde(&f.cfi, cie, TEXT + 0x10, 0x10, P(""));
	rows_of(&f, &covered, NULL);
	cr_expect_str_eq(str_get(&covered), "4000:none; 4010:r7+8; 4020:none; 8000:none");
}

/* musl: __restore_rt and the child of __clone, also where they cross a page's end. */
Test(source, code_of_musl_is_known_by_its_bytes)
{
	static const u8 restore[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
	static const u8 child[] = {0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1, 0x89, 0xc7,
				   0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05, 0xf4};
	_cleanup_str_ struct str got = {}, across = {};
	struct file f;

	init(&f);
	memcpy(f.text + 0x101, restore, sizeof(restore));
	memcpy(f.text + 0x200, child, sizeof(child));
	memcpy(f.text + 0x4000, restore, sizeof(restore));
	rows_of(&f, &got, NULL);
	cr_expect_str_eq(str_get(&got), "4000:none; 4100:signal; 410a:none; 4200:stop; 420f:none; "
					"7fff:signal; 8000:signal; 8009:none");
	init(&f);
	memcpy(f.text + 0x3ffc, restore, sizeof(restore));
	rows_of(&f, &across, NULL);
	cr_expect_str_eq(str_get(&across), "4000:none; 7ffb:signal; 8000:signal; 8005:none");
}

Test(source, plts_that_linkers_write_no_cfi_for)
{
	static const u8 lazy[48] = {0xff, 0x35, 1,    0,    0,	  0,	0xff, 0x25, 2, 0,
				    0,	  0,	0x0f, 0x1f, 0x40, 0,	0xff, 0x25, 0, 0,
				    0,	  0,	0x68, 0,    0,	  0,	0,    0xe9, 0, 0,
				    0,	  0,	0xf3, 0x0f, 0x1e, 0xfa, 0x68, 1,    0, 0,
				    0,	  0xe9, 0,    0,    0,	  0,	0x66, 0x90};
	static const u8 now[32] = {0xff, 0x25};
	_cleanup_str_ struct str got = {};
	struct file f;

	init(&f);
	elfw_section(&f.w, ".plt", SHT_PROGBITS, SHF_ALLOC, TEXT + 0x100, lazy, sizeof(lazy));
	elfw_section(&f.w, ".plt.got", SHT_PROGBITS, SHF_ALLOC, TEXT + 0x200, now, sizeof(now));
	rows_of(&f, &got, NULL);
	cr_expect_str_eq(str_get(&got), "4000:none; 4100:r7+16; 4106:r7+24; 4110:plt+8/11; "
					"4120:plt+8/9; 4130:none; 4200:r7+8; 4220:none; 8000:none");
}

Test(source, plt_of_arm64)
{
	static const u32 plt[12] = {0xd503245f, 0xa9bf7bf0};
	_cleanup_str_ struct str got = {};
	struct file f;

	init(&f);
	f.w.machine = EM_AARCH64;
	elfw_section(&f.w, ".plt", SHT_PROGBITS, SHF_ALLOC, TEXT + 0x100, plt, sizeof(plt));
	rows_of(&f, &got, NULL);
	cr_expect_str_eq(str_get(&got), "4000:none; 4100:r31+0@30; 4108:r31+16; 4120:r31+0@30; "
					"4130:none; 8000:none");
}

Test(source, more_rules_than_an_index_can_say_are_unsupported_not_wrong)
{
	_cleanup_elf_file_ struct elf_file *elf = NULL;
	static u32 rows[UNWIND_PAGE_BYTES];
	static u8 text[0x14000 + 0x4000];
	struct cfiw cfi = {.eh = true, .svma = 0x100000};
	struct str program = {};
	struct unwind_source *s;
	u32 n, n_rules = 0, unsupported = 0;
	struct elfw w = {};

	for (int i = 0; i < 70000; i++) {
		u8 op[5] = {0x41, 0x0e, (u8)(i & 0x7f) | 0x80, (u8)(i >> 7 & 0x7f) | 0x80,
			    (u8)(i >> 14)};

		str_append(&program, op, 5);
	}
	cfiw_fde(&cfi, cfiw_cie(&cfi, "zR", P(X86_CIE)), TEXT, 0x14000, program.data, program.n);
	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC, TEXT, text, sizeof(text));
	elfw_section(&w, ".eh_frame", SHT_PROGBITS, SHF_ALLOC, 0x100000, cfi.out.data, cfi.out.n);
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, TEXT, sizeof(text), ".text");
	elfw_finish(&w);
	cr_assert_eq(elf_file_open_memory(w.out.data, w.out.n, NULL, &elf), 0);
	cr_assert_eq(unwind_source_create(elf, &s), 0);
	for (u64 p = 1; p <= 5; p++) {
		const struct unwind_rule *rules;

		cr_assert_eq(unwind_source_rows(s, p, rows, &n), 0);
		rules = unwind_source_rules(s, &n_rules);
		for (u32 i = 0; i < n; i++) {
			u64 pc = (p << UNWIND_PAGE_SHIFT) + (rows[i] >> 16);
			const struct unwind_rule *r = &rules[(u16)rows[i]];

			if (r->cfa_op == UNWIND_CFA_UNSUPPORTED)
				unsupported++;
			else if (r->cfa_op == UNWIND_CFA_REG)
				cr_assert_eq(r->cfa_off, pc == TEXT ? 8 : (s32)(pc - TEXT - 1));
		}
	}
	cr_expect_eq(n_rules, UNWIND_MAX_RULES);
	cr_expect_gt(unsupported, 0);
	unwind_source_destroy(s);
	str_deinit(&program);
	str_deinit(&cfi.out);
	str_deinit(&w.out);
}

/*
 * The fuzzer's seeds of Go 1.15, 1.16, 1.18 and 1.20: files without section headers and the text's
 * address in none of their headers. goexit at 0x1000, goexit1, main.main, systemstack.
 */
Test(source, go_tables_of_every_layout)
{
	static const char *const seeds[] = {"elf_go115", "elf_go116", "elf_go118", "elf_go120"};

	for (size_t i = 0; i < ARRAY_SIZE(seeds); i++) {
		static u32 rows[UNWIND_PAGE_BYTES];
		_cleanup_elf_file_ struct elf_file *elf = NULL;
		_cleanup_str_ struct str got = {};
		const struct unwind_rule *rules;
		struct unwind_source *s;
		char path[512];
		u8 seed[4096];
		u32 n, n_rules;
		size_t size;
		FILE *f;

		snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/cfi/%s",
			 getenv("CULPRIT_SOURCE"), seeds[i]);
		f = fopen(path, "r");
		cr_assert_not_null(f, "%s", path);
		size = fread(seed, 1, sizeof(seed), f);
		fclose(f);
		/* Skip the first byte, which is an option for the fuzzer. */
		cr_assert_eq(elf_file_open_memory(seed + 1, size - 1, NULL, &elf), 0);
		cr_assert_eq(unwind_source_create(elf, &s), 0);
		cr_expect_str_eq(unwind_source_info(s)->from, ".gopclntab");
		cr_expect_eq(unwind_source_info(s)->n_fdes, 4);
		cr_assert_eq(unwind_source_rows(s, 0, rows, &n), 0);
		rules = unwind_source_rules(s, &n_rules);
		for (u32 j = 0; j < n; j++)
			row_text(&got, rows[j] >> 16, &rules[(u16)rows[j]]);
		cr_expect_str_eq(str_get(&got),
				 "0:none; 1000:stop; 1040:r7+8; 1081:r7+16; 10a0:r7+8; "
				 "10c1:r7+16; 10c5:fp; 10cb:r7+16; 10e0:r7+8; 1100:none",
				 "%s", seeds[i]);
		unwind_source_destroy(s);
	}
}

Test(page, packed_rows_are_found_through_their_index)
{
	static u32 rows[UNWIND_PAGE_BYTES];
	static u8 lines[(1024 + 32) * UNWIND_LINE_BYTES];

	for (u32 n = 1; n <= UNWIND_PAGE_BYTES; n = n < 40 ? n + 1 : n * 2 + 1) {
		u32 blocks = (n + 15) / 16, index = blocks > 1 ? (blocks + 31) / 32 : 0;
		u16 *keys = (u16 *)lines;
		u32 *body = (u32 *)(lines + (size_t)index * UNWIND_LINE_BYTES);

		for (u32 i = 0; i < n; i++)
			rows[i] = (i * (UNWIND_PAGE_BYTES / n)) << 16 | (i & 7);
		cr_assert_eq(unwind_page_n_lines(n), blocks + index);
		memset(lines, 0, sizeof(lines));
		unwind_page_pack(rows, n, lines);
		cr_assert(memcmp(body, rows, n * 4) == 0);
		for (u32 i = n; i < blocks * 16; i++)
			cr_assert_eq(body[i], UNWIND_ROW_PAD);
		for (u32 i = 0; i < index * 32; i++)
			cr_assert_eq(keys[i], i < blocks ? rows[i * 16] >> 16 : 0xffff);
	}
}
