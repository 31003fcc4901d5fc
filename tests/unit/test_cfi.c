/* SPDX-License-Identifier: Apache-2.0 */
/* Call frame programs, written byte by byte, and their rows. */
#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "cfiwriter.h"
#include "dwarf/cfi.h"

#define START 0x1000
#define LENGTH 0x100
#define X86_CIE "\x0c\x07\x08\x90\x01" /* cfa = rsp + 8, rip at cfa - 8 */
#define P(s) s, sizeof(s) - 1

/* Rows as text: "PC:CFA FP RA; …", pc from the function's start. */
static void row_text(void *arg, u64 pc, const struct unwind_rule *r)
{
	struct str *out = arg;

	str_printf(out, "%s%llx:", out->n ? "; " : "", pc - START);
	switch (r->cfa_op) {
	case UNWIND_CFA_REG:
		str_printf(out, "r%u%+d", r->cfa_reg, r->cfa_off);
		break;
	case UNWIND_CFA_DEREF:
		str_printf(out, "*(r%u%+d)%+d", r->cfa_reg, r->cfa_off, r->cfa_add);
		break;
	case UNWIND_CFA_PLT:
		str_printf(out, "plt%+d/%d", r->cfa_off, r->cfa_add);
		break;
	case UNWIND_CFA_SIGNAL:
		str_printf(out, "signal%+d", r->cfa_off);
		return;
	default:
		str_puts(out, r->cfa_op == UNWIND_CFA_STOP ? "stop" : "unsupported");
		return;
	}
	if (r->fp_op != UNWIND_FP_SAME)
		str_printf(out, " fp=%c%+d", r->fp_op == UNWIND_FP_CFA ? 'c' : 'f', r->fp_off);
	if (r->ra_op == UNWIND_RA_REG)
		str_printf(out, " ra=r%d", r->ra_off);
	else if (r->ra_off != -8)
		str_printf(out, " ra=c%+d", r->ra_off);
}

/* Returns the rows of the section's only FDE; "error N" when the section cannot be read. */
static void section_rows(struct cfiw *w, u16 machine, struct str *ret)
{
	struct cfi_table t;
	struct cfi_fde fde;
	u64 offset = 0, at, budget = 100000;
	int r;

	cr_assert_eq(cfi_table_init(&t, buf_of(w->out.data, w->out.n), w->svma, w->eh, machine), 0);
	cr_assert(cfi_next(&t, &offset, &at));
	r = cfi_fde_at(&t, at, &fde);
	if (r < 0) {
		str_printf(ret, "error %d", r);
		return;
	}
	cr_assert_eq(fde.start, START);
	cr_assert_eq(fde.end, START + LENGTH);
	cfi_run(&t, &fde, fde.start, fde.end, &budget, row_text, ret);
	cr_assert_not(cfi_next(&t, &offset, &at));
}

static void expect(const char *augmentation, const void *program, size_t n, const char *rows)
{
	struct cfiw w = {.eh = true, .svma = 0x21000};
	_cleanup_str_ struct str got = {};

	cfiw_fde(&w, cfiw_cie(&w, augmentation, P(X86_CIE)), START, LENGTH, program, n);
	section_rows(&w, EM_X86_64, &got);
	cr_expect_str_eq(str_get(&got), rows);
	str_deinit(&w.out);
}

Test(cfi, what_compilers_write)
{
	/* push %rbp; mov %rsp, %rbp; … leave; ret, with a remembered state in between */
	expect("zR", P("\x41\x0e\x10\x86\x02\x43\x0d\x06\x4a\x0a\x0c\x07\x08\x41\x0b"),
	       "0:r7+8; 1:r7+16 fp=c-16; 4:r6+16 fp=c-16; e:r7+8 fp=c-16; f:r6+16 fp=c-16");
	/* an empty FDE has only the CIE's rules */
	expect("zR", P(""), "0:r7+8");
	/* changes of other registers make no rows; neither do changes that are undone at once */
	expect("zR", P("\x41\x83\x02\x41\x8c\x03\x41\x0e\x10\x0e\x08\x41\x0e\x18"),
	       "0:r7+8; 4:r7+24");
	/* advance_loc1, 2 and 4; def_cfa; restore and restore_extended of the frame pointer */
	expect("zR",
	       P("\x02\x10\x86\x02\x03\x10\x00\x0c\x06\x10\x04\x10\x00\x00\x00\xc6\x41\x86\x02\x41\x06"
		 "\x06"),
	       "0:r7+8; 10:r7+8 fp=c-16; 20:r6+16 fp=c-16; 30:r6+16; 31:r6+16 fp=c-16; 32:r6+16");
	/* args_size and nop are passed over; undefined rip ends the stack */
	expect("zPLR", P("\x2e\x20\x00\x41\x07\x10"), "0:r7+8; 1:stop");
	/* same_value of the frame pointer */
	expect("zR", P("\x86\x02\x41\x08\x06"), "0:r7+8 fp=c-16; 1:r7+8");
}

Test(cfi, factored_and_negative_offsets)
{
	/* def_cfa_sf, def_cfa_offset_sf, offset_extended, offset_extended_sf */
	expect("zR", P("\x12\x07\x7e\x41\x13\x7d\x41\x05\x06\x04\x41\x11\x06\x7f"),
	       "0:r7+16; 1:r7+24; 2:r7+24 fp=c-32; 3:r7+24 fp=c+8");
	/* GNU_negative_offset_extended */
	expect("zR", P("\x2f\x06\x02"), "0:r7+8 fp=c+16");
	/* offsets that are too large do not wrap around */
	expect("zR", P("\x0e\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x41\x0e\x08"),
	       "0:unsupported");
	expect("zR", P("\x05\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), "0:unsupported");
	expect("zR", P("\x05\x10\x80\x20"), "0:r7+8 ra=c-32768"); /* the last that fits */
	expect("zR", P("\x05\x10\x81\x20"), "0:unsupported");
}

Test(cfi, expressions)
{
	/* ld's PLT: rsp + 8 + ((rip & 15) >= 11) * 8 */
	expect("zR",
	       P("\x0e\x10\x46\x0e\x18\x4a\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"),
	       "0:r7+16; 6:r7+24; 10:plt+8/11");
	/* the same with one operation wrong is not it */
	expect("zR", P("\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x34\x24\x22"), "0:unsupported");
	/* a realigned stack: cfa = *(rbp - 8), rbp saved at rbp + 0 */
	expect("zR", P("\x0c\x0a\x00\x49\x10\x06\x02\x76\x00\x45\x0f\x03\x76\x78\x06"),
	       "0:r10+0; 9:r10+0 fp=f+0; e:*(r6-8)+0 fp=f+0");
	/* *(rsp + 160) + 8, expressed in three ways */
	expect("zR", P("\x0f\x06\x77\xa0\x01\x06\x23\x08"), "0:*(r7+160)+8");
	expect("zR", P("\x0f\x06\x77\xa0\x01\x06\x38\x22"), "0:*(r7+160)+8");
	expect("zR", P("\x0f\x08\x92\x07\xa0\x01\x06\x08\x08\x22"), "0:*(r7+160)+8");
	/* rsp + 8 - 24 */
	expect("zR", P("\x0f\x04\x77\x08\x48\x1c"), "0:r7-16");
	/* two registers, a constant, an empty one, a cut one */
	expect("zR", P("\x0f\x05\x77\x00\x76\x00\x22"), "0:unsupported");
	expect("zR", P("\x0f\x01\x38"), "0:unsupported");
	expect("zR", P("\x0f\x00"), "0:unsupported");
	expect("zR", P("\x0f\x01\x77"), "0:unsupported");
	/* def_cfa_offset after an expression means nothing */
	expect("zR", P("\x0f\x02\x77\x10\x41\x0f\x03\x77\x00\x06\x41\x0e\x10"),
	       "0:r7+16; 1:*(r7+0)+0; 2:unsupported");
	/* the frame pointer or the return address at a place that a rule cannot express */
	expect("zR", P("\x10\x06\x02\x77\x00"), "0:unsupported");
	expect("zR", P("\x10\x10\x02\x77\x00"), "0:unsupported");
	expect("zR", P("\x16\x06\x02\x77\x00"), "0:unsupported");
	/* the expression is for a register that rows do not have */
	expect("zR", P("\x10\x03\x02\x77\x00"), "0:r7+8");
}

Test(cfi, return_address_in_a_register)
{
	/* vfork of glibc */
	expect("zR", P("\x41\x0e\x00\x09\x10\x05\x48\x0e\x08"),
	       "0:r7+8; 1:r7+0 ra=r5; 9:r7+8 ra=r5");
	/* a rule cannot express that the frame pointer is in another register */
	expect("zR", P("\x09\x06\x03"), "0:unsupported");
}

Test(cfi, signal_frames)
{
	expect("zRS", P("\x0f\x04\x77\xa0\x01\x06"), "0:signal+0");
	expect("zPLRS", P("\x41\x0e\x10"), "0:signal+0");
}

Test(cfi, damage_leaves_what_was_right_before_it)
{
	/* an unknown instruction, a cut operand, restore_state without remember_state */
	expect("zR", P("\x41\x0e\x10\x41\x3f"), "0:r7+8; 1:r7+16; 2:unsupported");
	expect("zR", P("\x41\x0e\x10\x41\x0e\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"),
	       "0:r7+8; 1:r7+16; 2:unsupported");
	expect("zR", P("\x41\x0b"), "0:r7+8; 1:unsupported");
	/* set_loc backwards; an advance past the end */
	expect("zR", P("\x48\x0e\x10\x01\x00\xf0\xfd\xff"), "0:r7+8; 8:unsupported");
	expect("zR", P("\x04\xff\xff\xff\xff\x0e\x10"), "0:r7+8");
}

Test(cfi, states_are_remembered_eight_deep_and_more)
{
	struct str program = {};
	_cleanup_str_ struct str want = {};

	for (int i = 1; i <= 8; i++)
		str_printf(&program, "\x0a\x41\x0e%c", 8 + 8 * i);
	for (int i = 0; i < 8; i++)
		str_puts(&program, "\x41\x0b");
	str_puts(&want, "0:r7+8");
	for (int i = 1; i <= 16; i++)
		str_printf(&want, "; %x:r7+%d", i, 8 + 8 * (i <= 8 ? i : 16 - i));
	expect("zR", program.data, program.n, want.data);
	str_clear(&program);
	for (int i = 0; i < 100; i++)
		str_puts(&program, "\x0a");
	expect("zR", program.data, program.n, "0:unsupported");
	str_deinit(&program);
}

Test(cfi, arm64_return_address_in_lr_and_pac)
{
	struct cfiw w = {.eh = true, .svma = 0x21000, .ra = 30, .code_align = 4};
	_cleanup_str_ struct str got = {};

	/* paciasp; stp x29, x30, [sp, #-32]!; mov x29, sp; ldp …; autiasp */
	cfiw_fde(
		&w, cfiw_cie(&w, "zRB", P("\x0c\x1f\x00")), START, LENGTH,
		P("\x41\x2d\x41\x0e\x20\x9d\x04\x9e\x03\x41\x0d\x1d\x48\xde\xdd\x0c\x1f\x00\x41\x2d"));
	section_rows(&w, EM_AARCH64, &got);
	cr_expect_str_eq(str_get(&got), "0:r31+0 ra=r30; 8:r31+32 fp=c-32 ra=c-24; "
					"c:r29+32 fp=c-32 ra=c-24; 2c:r31+0 ra=r30");
	str_deinit(&w.out);
}

Test(cfi, arm64_cfa_below_the_saved_lr)
{
	struct cfiw w = {.eh = true, .svma = 0x21000, .ra = 30, .code_align = 4};
	_cleanup_str_ struct str got = {};

	/* _dl_runtime_resolve of glibc: x30 at CFA + 8; then 208 bytes more, then 224 less */
	cfiw_fde(&w, cfiw_cie(&w, "zR", P("\x0c\x1f\x00")), START, LENGTH,
		 P("\x41\x11\x1e\x7f\x41\x0e\xd0\x01\x41\x0e\x00\x41\x13\x02"));
	section_rows(&w, EM_AARCH64, &got);
	cr_expect_str_eq(str_get(&got), "0:r31+0 ra=r30; 4:r31+16; 8:r31+224; c:r31+16; 10:r31+0");
	str_deinit(&w.out);
}

Test(cfi, arm64_signal_frames_and_undefined_lr)
{
	struct cfiw w = {.eh = true, .svma = 0x21000, .ra = 30}, w2 = w;
	_cleanup_str_ struct str got = {}, got2 = {};

	cfiw_fde(&w, cfiw_cie(&w, "zRS", P("")), START, LENGTH, P(""));
	section_rows(&w, EM_AARCH64, &got);
	cr_expect_str_eq(str_get(&got), "0:signal+128");
	cfiw_fde(&w2, cfiw_cie(&w2, "zR", P("\x0c\x1f\x00")), START, LENGTH, P("\x07\x1e"));
	section_rows(&w2, EM_AARCH64, &got2);
	cr_expect_str_eq(str_get(&got2), "0:stop");
	str_deinit(&w.out);
	str_deinit(&w2.out);
}

Test(cfi, debug_frame_of_every_version_and_width)
{
	for (int i = 0; i < 6; i++) {
		struct cfiw w = {.version = (const u8[]){1, 3, 4}[i / 2], .dwarf64 = i % 2};
		_cleanup_str_ struct str got = {};

		cfiw_fde(&w, cfiw_cie(&w, "", P(X86_CIE)), START, LENGTH,
			 P("\x41\x0e\x10\x86\x02"));
		section_rows(&w, EM_X86_64, &got);
		cr_expect_str_eq(str_get(&got), "0:r7+8; 1:r7+16 fp=c-16", "%d", i);
		str_deinit(&w.out);
	}
}

Test(cfi, what_is_not_understood_is_refused)
{
	struct cfiw v2 = {.eh = true, .svma = 0x21000, .version = 2};
	struct cfiw ra = {.eh = true, .svma = 0x21000, .ra = 15};
	_cleanup_str_ struct str got = {}, got2 = {};
	struct cfi_table t;

	expect("zRQ", P(""), "error -95");
	expect("eh", P(""), "error -95");
	cfiw_fde(&v2, cfiw_cie(&v2, "zR", P(X86_CIE)), START, LENGTH, P(""));
	section_rows(&v2, EM_X86_64, &got);
	cr_expect_str_eq(str_get(&got), "error -95");
	cfiw_fde(&ra, cfiw_cie(&ra, "zR", P(X86_CIE)), START, LENGTH, P(""));
	section_rows(&ra, EM_X86_64, &got2);
	cr_expect_str_eq(str_get(&got2), "error -95");
	cr_expect_eq(cfi_table_init(&t, buf_of("", 0), 0, true, EM_RISCV), -ENOTSUP);
	str_deinit(&v2.out);
	str_deinit(&ra.out);
}

Test(cfi, a_part_of_a_function_begins_with_the_rule_that_holds_there)
{
	struct cfiw w = {.eh = true, .svma = 0x21000};
	_cleanup_str_ struct str got = {}, spent = {};
	u64 offset = 0, at, budget = 1000;
	struct cfi_table t;
	struct cfi_fde fde;

	cfiw_fde(&w, cfiw_cie(&w, "zR", P(X86_CIE)), START, LENGTH,
		 P("\x41\x0e\x10\x50\x0e\x18\x50\x0e\x20\x50\x0e\x28"));
	cr_assert_eq(cfi_table_init(&t, buf_of(w.out.data, w.out.n), w.svma, true, EM_X86_64), 0);
	cr_assert(cfi_next(&t, &offset, &at) && cfi_fde_at(&t, at, &fde) == 0);
	cfi_run(&t, &fde, START + 0x15, START + 0x22, &budget, row_text, &got);
	cr_expect_str_eq(str_get(&got), "15:r7+24; 21:r7+32");
	budget = 4; /* bytes */
	cfi_run(&t, &fde, START, START + LENGTH, &budget, row_text, &spent);
	cr_expect_str_eq(str_get(&spent), "0:r7+8; 1:r7+16; 11:unsupported");
	cr_expect_eq(budget, 0);
	str_deinit(&w.out);
}

Test(cfi, every_truncation_is_survived)
{
	struct cfiw w = {.eh = true, .svma = 0x21000};

	cfiw_fde(&w, cfiw_cie(&w, "zPLR", P(X86_CIE)), START, LENGTH,
		 P("\x41\x0e\x10\x86\x02\x43\x0d\x06\x0f\x03\x76\x78\x06\x10\x06\x02\x76\x00"));
	for (size_t n = 0; n < w.out.n; n++) {
		_cleanup_str_ struct str got = {};
		struct cfi_table t;
		struct cfi_fde fde;
		u64 offset = 0, at, budget = 1000;
		/* In a copy of the exact size the sanitizer notices reads past the end. */
		u8 *copy = malloc(n ? n : 1);

		memcpy(copy, w.out.data, n);
		cr_assert_eq(cfi_table_init(&t, buf_of(copy, n), w.svma, true, EM_X86_64), 0);
		while (cfi_next(&t, &offset, &at))
			if (cfi_fde_at(&t, at, &fde) == 0)
				cfi_run(&t, &fde, fde.start, fde.end, &budget, row_text, &got);
		free(copy);
	}
	str_deinit(&w.out);
}

/* Reads the whole section, runs what can be run, and returns the damage that the file was told. */
static struct diag damage_of(const struct cfiw *w)
{
	struct elf_file f = {.fd = -1};
	_cleanup_str_ struct str got = {};
	u64 offset = 0, at, budget = 1000;
	struct cfi_table t;
	struct cfi_fde fde;

	cr_assert_eq(cfi_table_init(&t, buf_of(w->out.data, w->out.n), w->svma, w->eh, EM_X86_64),
		     0);
	t.elf = &f;
	while (cfi_next(&t, &offset, &at))
		if (cfi_fde_at(&t, at, &fde) == 0)
			cfi_run(&t, &fde, fde.start, fde.end, &budget, row_text, &got);
	return f.damage;
}

Test(cfi, damage_has_its_place)
{
	struct cfiw w = {.eh = true, .svma = 0x21000};
	size_t cie = cfiw_cie(&w, "zR", P(X86_CIE)), second, program;
	u32 length;

	cfiw_fde(&w, cie, START, LENGTH, P("\x41\x0e\x10"));
	second = w.out.n;
	cfiw_fde(&w, cie, START + LENGTH, LENGTH, P("\x41\x0e\x10\x41\x0e\x18\x41"));
	cr_expect_str_eq(damage_of(&w).text, "");

	/* length, distance, start, size, length of the augmentation: then the program. */
	program = second + 17;
	cr_assert_eq(w.out.data[program + 3], 0x41);
	w.out.data[program + 3] = 0x3f;
	cr_expect_str_eq(damage_of(&w).text,
			 ".eh_frame: a damaged or unknown instruction at offset 0x44");
	w.out.data[program + 3] = 0x41;

	memcpy(&length, w.out.data + second, 4);
	w.out.data[second] = 0x7f;
	cr_expect_str_eq(damage_of(&w).text,
			 ".eh_frame: an entry of impossible length at offset 0x30");
	memcpy(w.out.data + second, &length, 4);

	w.out.data[second + 5] = 0x7f; /* its CIE would be before the section */
	cr_expect_str_eq(damage_of(&w).text, ".eh_frame: a damaged FDE at offset 0x30");
	w.out.data[second + 5] = 0;

	w.out.data[cie + 8] = 9; /* version */
	cr_expect_str_eq(damage_of(&w).text, ".eh_frame: a CIE of unknown form at offset 0x0");
	w.out.data[cie + 8] = 1;
	w.out.data[cie + 15] = 0x7f; /* length of the augmentation */
	cr_expect_str_eq(damage_of(&w).text, ".eh_frame: a damaged CIE at offset 0x0");
	str_deinit(&w.out);
}

Test(cfi, damage_of_a_cies_program_has_its_place)
{
	struct cfiw w = {.svma = 0};

	cfiw_fde(&w, cfiw_cie(&w, "", P("\x0c\x07\x08\x3f")), START, LENGTH, P("\x41\x0e\x10"));
	cr_expect_str_eq(damage_of(&w).text,
			 ".debug_frame: a damaged or unknown instruction at offset 0x10");
	str_deinit(&w.out);
}
