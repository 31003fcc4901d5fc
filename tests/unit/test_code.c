/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that are derived from code: functions assembled by hand, and their rows. */
#include <criterion/criterion.h>

#include "elfwriter.h"
#include "unwind/code_flow.h"

#define TEXT 0x10000

/* Prints a row in a line: offset, CFA, the caller's frame pointer, return address. */
static void print_row(struct str *out, const struct code_row *row, u64 base)
{
	const struct unwind_rule *r = &row->rule;

	str_printf(out, "%llx", row->pc - base);
	if (r->cfa_op == UNWIND_CFA_NONE) {
		str_puts(out, " none\n");
		return;
	}
	cr_assert_eq(r->cfa_op, UNWIND_CFA_REG);
	str_printf(out, r->cfa_reg == 7 || r->cfa_reg == 31 ? " sp%+d" : " fp%+d", r->cfa_off);
	if (r->fp_op == UNWIND_FP_CFA)
		str_printf(out, " f%+d", r->fp_off);
	if (r->ra_op == UNWIND_RA_REG)
		str_puts(out, " lr");
	else if (r->ra_off != -8)
		str_printf(out, " r%+d", r->ra_off);
	str_puts(out, "\n");
}

struct result {
	bool sane;
	bool returns;
	struct str text;
};

static struct result rows_of(u16 machine, const void *code, size_t n, size_t hot, bool bounds)
{
	struct elfw w = {.machine = machine};
	struct code_func f = {.part = {{TEXT, TEXT + hot}, {TEXT + hot, TEXT + n}},
			      .bounds = bounds};
	struct code_rows rows = {};
	struct elf_file *elf = NULL;
	struct disasm *d = NULL;
	struct result out = {};
	struct diag diag = {};

	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, TEXT, code, n);
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, TEXT, n, ".text");
	elfw_finish(&w);
	cr_assert_eq(elf_file_open_memory(w.out.data, w.out.n, &diag, &elf), 0);
	cr_assert_eq(disasm_create(machine, &d), 0);
	cr_assert_eq(code_flow(elf, d, &f, &rows), 0);
	vec_foreach (&rows.list, row)
		print_row(&out.text, row, TEXT);
	out.sane = rows.sane;
	out.returns = rows.returns;
	vec_deinit(&rows.list);
	disasm_destroy(d);
	elf_file_destroy(elf);
	str_deinit(&w.out);
	return out;
}

static void expect(struct result r, bool sane, bool returns, const char *text)
{
	cr_expect_str_eq(str_get(&r.text), text);
	cr_expect_eq(r.sane, sane);
	cr_expect_eq(r.returns, returns);
	str_deinit(&r.text);
}

#define X86(bytes) rows_of(EM_X86_64, bytes, sizeof(bytes) - 1, sizeof(bytes) - 1, true)
#define X86_OPEN(bytes) rows_of(EM_X86_64, bytes, sizeof(bytes) - 1, sizeof(bytes) - 1, false)
#define X86_COLD(hot, cold)                                                                        \
	rows_of(EM_X86_64, hot cold, sizeof(hot cold) - 1, sizeof(hot) - 1, true)

Test(code, leaf)
{
	expect(X86("\x31\xc0" /* xor %eax, %eax */
		   "\xc3"),   /* ret */
	       true, true, "0 sp+8\n");
}

Test(code, init_of_glibc)
{
	expect(X86("\x48\x83\xec\x08" /* sub $8, %rsp */
		   "\x48\x85\xc0"     /* test %rax, %rax */
		   "\x74\x02"	      /* je +2 */
		   "\xff\xd0"	      /* call *%rax */
		   "\x48\x83\xc4\x08" /* add $8, %rsp */
		   "\xc3"),
	       true, true, "0 sp+8\n4 sp+16\nf sp+8\n");
}

Test(code, frame_pointer)
{
	expect(X86("\x55"	      /* push %rbp */
		   "\x48\x89\xe5"     /* mov %rsp, %rbp */
		   "\x53"	      /* push %rbx */
		   "\x48\x29\xc4"     /* sub %rax, %rsp: sp is not known any more */
		   "\x48\x8b\x5d\xf8" /* mov -8(%rbp), %rbx */
		   "\xc9"	      /* leave */
		   "\xc3"),
	       true, true, "0 sp+8\n1 sp+16 f-16\n4 fp+16 f-16\nd sp+8\n");
}

Test(code, frame_pointer_as_any_register)
{
	expect(X86("\x55"	    /* push %rbp */
		   "\x53"	    /* push %rbx */
		   "\x89\xfd"	    /* mov %edi, %ebp */
		   "\x5b\x5d\xc3"), /* pop %rbx; pop %rbp; ret */
	       true, true, "0 sp+8\n1 sp+16 f-16\n2 sp+24 f-16\n5 sp+16 f-16\n6 sp+8\n");
	/* The frame pointer is lost without being saved: the code after that has no row. */
	expect(X86("\x89\xfd\xc3"), false, true, "0 sp+8\n2 none\n");
}

Test(code, two_ways)
{
	static const char agree[] = "\x50"	 /* push %rax */
				    "\x74\x02"	 /* je 1f */
				    "\xff\xd0"	 /* call *%rax */
				    "\x58\xc3";	 /* 1: pop %rax; ret */
	static const char differ[] = "\x74\x01"	 /* je 1f */
				     "\x50"	 /* push %rax */
				     "\x90\xc3"; /* 1: nop; ret */

	expect(X86(agree), true, true, "0 sp+8\n1 sp+16\n6 sp+8\n");
	expect(X86(differ), false, true, "0 sp+8\n3 none\n");
}

Test(code, call_that_does_not_return)
{
	/* A jump leads to the code after the call, with less on the stack. */
	expect(X86("\x85\xff"		  /* test %edi, %edi */
		   "\x74\x06"		  /* je 1f */
		   "\x50"		  /* push %rax */
		   "\xe8\x00\x01\x00\x00" /* call abort */
		   "\x31\xc0\xc3"),	  /* 1: xor %eax, %eax; ret */
	       true, true, "0 sp+8\n5 sp+16\na sp+8\n");
}

Test(code, jump_table)
{
	static const char code[] = "\x53"			  /* push %rbx */
				   "\xff\x24\xfd\x00\x00\x00\x00" /* jmp *table(,%rdi,8) */
				   "\x31\xc0"			  /* xor %eax, %eax */
				   "\x5b\xc3";			  /* pop %rbx; ret */

	expect(X86(code), true, false, "0 sp+8\n1 sp+16\nb sp+8\n");
	/* If the function's end is unknown, the code after the jump may be another function's. */
	expect(X86_OPEN(code), true, false, "0 sp+8\n1 sp+16\n8 none\n");
}

Test(code, what_no_way_leads_to_has_no_rows)
{
	expect(X86("\xc3\x90\x90\x31\xc0\xc3"), true, true, "0 sp+8\n1 none\n");
}

Test(code, cold_part)
{
	expect(X86_COLD("\x53\x74\x02\x5b\xc3",	     /* push; je cold; pop %rbx; ret */
			"\x90\xe8\x00\x01\x00\x00"), /* nop; call */
	       true, true, "0 sp+8\n1 sp+16\n4 sp+8\n5 sp+16\n");
}

Test(code, saved_by_mov_into_the_red_zone)
{
	expect(X86("\x48\x89\x6c\x24\xf8"   /* mov %rbp, -8(%rsp) */
		   "\x48\x83\xec\x18"	    /* sub $24, %rsp */
		   "\x31\xed"		    /* xor %ebp, %ebp */
		   "\x48\x8b\x6c\x24\x10"   /* mov 16(%rsp), %rbp */
		   "\x48\x83\xc4\x18\xc3"), /* add $24, %rsp; ret */
	       true, true, "0 sp+8\n5 sp+8 f-16\n9 sp+32 f-16\n10 sp+32\n14 sp+8\n");
}

Test(code, started_in_the_middle)
{
	/* pop %rbx; ret: the return address is not at sp. */
	expect(X86_OPEN("\x5b\xc3"), false, true, "0 sp+8\n1 none\n");
}

Test(code, return_address_moved)
{
	/* pop %rax; push %rbx; push %rax; call; add $8, %rsp; ret: a V8 builtin's arguments. */
	expect(X86("\x58\x53\x50\xe8\x00\x01\x00\x00\x48\x83\xc4\x08\xc3"), true, true,
	       "0 sp+8\n1 none\n");
}

Test(code, loops_end)
{
	/* push %rax; jmp to itself: the stack grows for ever. */
	expect(X86("\x50\xeb\xfd"), true, false, "0 none\n");
	/* jmp to itself */
	expect(X86("\xeb\xfe"), true, false, "0 sp+8\n");
}

#define ARM64(...)                                                                                 \
	({                                                                                         \
		static const u32 code_[] = {__VA_ARGS__};                                          \
		rows_of(EM_AARCH64, code_, sizeof(code_), sizeof(code_), true);                    \
	})

Test(code, arm64_frame_record)
{
	expect(ARM64(0xd503233f,  /* paciasp */
		     0xa9be7bfd,  /* stp x29, x30, [sp, #-32]! */
		     0x910003fd,  /* mov x29, sp */
		     0xf9000bf3,  /* str x19, [sp, #16] */
		     0x94000100,  /* bl */
		     0xa8c27bfd,  /* ldp x29, x30, [sp], #32 */
		     0xd50323bf,  /* autiasp */
		     0xd65f03c0), /* ret */
	       true, true, "0 sp+0 lr\n8 sp+32 f-32 r-24\n18 sp+0 lr\n");
}

Test(code, arm64_big_frame)
{
	expect(ARM64(0xa9bf7bfd,  /* stp x29, x30, [sp, #-16]! */
		     0x910003fd,  /* mov x29, sp */
		     0xd14007ff,  /* sub sp, sp, #4096 */
		     0xcb2063ff,  /* sub sp, sp, x0: not known any more */
		     0x94000100,  /* bl */
		     0x910003bf,  /* mov sp, x29 */
		     0xa8c17bfd,  /* ldp x29, x30, [sp], #16 */
		     0xd65f03c0), /* ret */
	       true, true, "0 sp+0 lr\n4 sp+16 f-16\n8 fp+16 f-16\n1c sp+0 lr\n");
}

Test(code, arm64_leaf_and_lost_link_register)
{
	expect(ARM64(0xd10043ff, 0x910043ff, 0xd65f03c0), /* sub and add sp, 16; ret */
	       true, true, "0 sp+0 lr\n4 sp+16 lr\n8 sp+0 lr\n");
	expect(ARM64(0x94000100, 0xd65f03c0), /* bl; ret: the return address is lost */
	       false, true, "0 sp+0 lr\n4 none\n");
}

/* The padding of gas and of LLVM. */
Test(code, padding_is_known_by_its_bytes)
{
	static const u8 nops[][16] = {
		{1, 0x90},
		{1, 0xcc},
		{2, 0x66, 0x90},
		{3, 0x0f, 0x1f, 0x00},
		{4, 0x0f, 0x1f, 0x40, 0x00},
		{5, 0x0f, 0x1f, 0x44, 0x00, 0x00},
		{6, 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00},
		{7, 0x0f, 0x1f, 0x80, 0, 0, 0, 0},
		{8, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0},
		{9, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0},
		{10, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0},
		{11, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0},
		{15, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0},
	};
	static const u8 others[][4] = {
		{0xc3}, {0x0f, 0x1e, 0xfa}, {0x66, 0x0f}, {0x0f, 0x1f, 0xc0}, {0}};
	_cleanup_disasm_ struct disasm *d = NULL;
	struct disasm_insn insn;

	cr_assert_eq(disasm_create(EM_X86_64, &d), 0);
	for (size_t i = 0; i < ARRAY_SIZE(nops); i++) {
		struct buf code = buf_of(nops[i] + 1, nops[i][0]);

		cr_expect_eq(disasm_padding(d, code), nops[i][0], "nop %zu", i);
		cr_expect(disasm_one(d, code, 0, &insn) && insn.padding &&
			  insn.length == nops[i][0]);
		/* Truncated padding is not padding. */
		code.end--;
		cr_expect_eq(disasm_padding(d, code), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		cr_expect_eq(disasm_padding(d, buf_of(others[i], sizeof(others[i]))), 0);
}
