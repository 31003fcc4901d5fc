/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * PCRE2's JIT: what user space tells the walker (bpf/unwind/pcre2.h), and the layouts that both
 * know; x86-64 only.
 *
 * The code of a pattern is called like a function of C, at one of two places in the library:
 * pcre2_jit_match() calls it if the program has given it a stack for the pattern's backtracking,
 * else jit_machine_stack_exec(), which has that stack in its own frame.
 *
 *	sp of the sample ─→	local variables		the size is in the code
 *				saved registers
 *				return address		into one of the two functions
 *				(32 KiB for backtracking, jit_machine_stack_exec() only)
 *				frame of pcre2_jit_match()
 *
 * The address of a runtime frame is that of the pattern's first instruction; `where` is 0.
 */
#pragma once

#include "abi/runtime.h"
#include "abi/runtime_common.h"

#define PCRE2_MAX_SITES 12

/* pcre2_real_code (pcre2_intmodedep.h), the same from 10.00 to 10.47. */
#define PCRE2_CODE_FUNCTIONS 32 /* executable_jit: struct executable_functions * */
/* executable_functions (pcre2_jit_compile.c): for each of three kinds of matching. */
#define PCRE2_FUNCTIONS_CODE 0
#define PCRE2_FUNCTIONS_SIZE 6 /* words */
#define PCRE2_FUNCTIONS_WORDS 9
#define PCRE2_KINDS 3
#define PCRE2_MACHINE_STACK 32768 /* MACHINE_STACK_SIZE */

struct pcre2_binary {
	/* The two functions. The library has no JIT if the first is empty. */
	struct runtime_range match;   /* pcre2_jit_match() */
	struct runtime_range machine; /* jit_machine_stack_exec() */
	/* svma of the instructions after the calls of a function by its address in the two. */
	__u64 sites[PCRE2_MAX_SITES];
	__u32 n_sites;
	__u32 pad;
};
_Static_assert(sizeof(struct pcre2_binary) <= sizeof(((struct runtime_binary *)0)->room),
	       "pcre2_binary");
