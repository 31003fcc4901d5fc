// SPDX-License-Identifier: Apache-2.0
/*
 * Where the kernel keeps registers in struct pt_regs (arch/x86/include/uapi/asm/ptrace.h and
 * arch/arm64/include/uapi/asm/ptrace.h of Linux), and which ones carry arguments.
 */
#include <stdio.h>
#include <string.h>

#include "trace/compile.h"

#if defined(__x86_64__)
static const char *const names[] = {"r15", "r14",     "r13", "r12", "bp",    "bx", "r11",
				    "r10", "r9",      "r8",  "ax",  "cx",    "dx", "si",
				    "di",  "orig_ax", "ip",  "cs",  "flags", "sp", "ss"};
static const u8 arguments[] = {14, 13, 12, 11, 9, 8}; /* System V ABI */
enum { WORD_RETURN = 10, WORD_IP = 16, WORD_SP = 19, WORDS = 21 };
#elif defined(__aarch64__)
static const char *const names[] = {"r0",  "r1",  "r2",	 "r3",	"r4",  "r5",  "r6",    "r7",  "r8",
				    "r9",  "r10", "r11", "r12", "r13", "r14", "r15",   "r16", "r17",
				    "r18", "r19", "r20", "r21", "r22", "r23", "r24",   "r25", "r26",
				    "r27", "r28", "r29", "r30", "sp",  "pc",  "pstate"};
static const u8 arguments[] = {0, 1, 2, 3, 4, 5, 6, 7};
enum { WORD_RETURN = 0, WORD_IP = 32, WORD_SP = 31, WORDS = 34 };
#else
#error "registers of this machine"
#endif

s32 register_offset(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_same(names[i], name))
			return 8 * (s32)i;
	return -1;
}

s32 register_argument(u32 n)
{
	return n < ARRAY_SIZE(arguments) ? 8 * arguments[n] : -1;
}

s32 register_return(void)
{
	return 8 * WORD_RETURN;
}

s32 register_ip(void)
{
	return 8 * WORD_IP;
}

s32 register_sp(void)
{
	return 8 * WORD_SP;
}

u32 register_bytes(void)
{
	return 8 * WORDS;
}
