/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in the code of a kernel, by which culprit recognises kernels that can hang. */
#include <criterion/criterion.h>
#include <elf.h>
#include <string.h>

#include "agent/probe/internal.h"

#define AT 0xffffffff81000000ULL

Test(usercopy, calls_and_jumps_of_x86)
{
	/* push %rbx; call AT+0x100; jmp AT-0x10 */
	u8 code[] = {0x53, 0xe8, 0xfa, 0x00, 0x00, 0x00, 0xe9, 0xe5, 0xff, 0xff, 0xff};

	cr_expect(probe_code_calls(EM_X86_64, code, sizeof(code), AT, AT + 0x100));
	cr_expect(probe_code_calls(EM_X86_64, code, sizeof(code), AT, AT - 0x10));
	cr_expect_not(probe_code_calls(EM_X86_64, code, sizeof(code), AT, AT + 0x101));
	/* The last byte of the instruction is missing. */
	cr_expect_not(probe_code_calls(EM_X86_64, code, sizeof(code) - 1, AT, AT - 0x10));
	code[1] = 0xe7;
	cr_expect_not(probe_code_calls(EM_X86_64, code, sizeof(code), AT, AT + 0x100));
	cr_expect_not(probe_code_calls(EM_X86_64, code, 0, AT, AT));
}

Test(usercopy, calls_and_jumps_of_arm64)
{
	/* nop; bl AT+0x104; b AT-8; b.eq +8, which is neither */
	u32 words[] = {0xd503201f, 0x94000040, 0x17fffffc, 0x54000040};
	u8 code[sizeof(words)];

	memcpy(code, words, sizeof(code));
	cr_expect(probe_code_calls(EM_AARCH64, code, sizeof(code), AT, AT + 0x104));
	cr_expect(probe_code_calls(EM_AARCH64, code, sizeof(code), AT, AT - 8));
	cr_expect_not(probe_code_calls(EM_AARCH64, code, sizeof(code), AT, AT + 0x14));
	cr_expect_not(probe_code_calls(EM_AARCH64, code, 6, AT, AT + 0x104));
}

Test(usercopy, other_machines_are_not_known)
{
	u8 code[] = {0xe8, 0xfb, 0x00, 0x00, 0x00};

	cr_expect_not(probe_code_calls(EM_RISCV, code, sizeof(code), AT, AT + 0x100));
}

Test(usercopy, members_that_are_read)
{
	/* mov %gs:0, %rax; mov 0x98c(%rax), %eax */
	u8 x86[] = {0x65, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x8b, 0x80, 0x8c, 0x09, 0, 0};
	/* mrs x0, sp_el0; ldr w1, [x0, #0x98c]; str w1, [x0, #0x990] */
	u32 words[] = {0xd5384100, 0xb9498c01, 0xb9099001};
	u8 arm64[sizeof(words)];

	cr_expect(probe_code_reads(EM_X86_64, x86, sizeof(x86), 0x98c));
	cr_expect_not(probe_code_reads(EM_X86_64, x86, sizeof(x86), 0x990));
	cr_expect_not(probe_code_reads(EM_X86_64, x86, sizeof(x86) - 1, 0x98c));
	memcpy(arm64, words, sizeof(arm64));
	cr_expect(probe_code_reads(EM_AARCH64, arm64, sizeof(arm64), 0x98c));
	cr_expect_not(probe_code_reads(EM_AARCH64, arm64, sizeof(arm64), 0x990));
}
