/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The data of PHP's walker (bpf/unwind/php.h), laid over `room` in the structs of abi/runtime.h.
 *
 * PHP's frames (zend_execute_data) are a list from executor_globals.current_execute_data on. A call
 * of execute_ex(), the interpreter's loop, runs a segment of the list: functions that C code has
 * called from PHP code, then functions of PHP up to the one that C code has called
 * (PHP_CALL_TOP).
 */
#pragma once

#include "abi/runtime.h"
#include "abi/runtime_common.h"

#define PHP_MAX_LOOPS 4
#define PHP_FUNCTION_BYTES 192 /* bytes of a function that the walker reads */
#define PHP_FUNCTION_WORDS 32  /* a power of two */

/* zend_execute_data (Zend/zend_compile.h), the same from 7.3 to 8.5. */
#define PHP_FRAME_OPLINE 0
#define PHP_FRAME_RESULT 16 /* return_value */
#define PHP_FRAME_FUNCTION 24
#define PHP_FRAME_THIS 32
#define PHP_FRAME_INFO 40 /* low byte: type of This; above: flags of the call */
#define PHP_FRAME_PREVIOUS 48
#define PHP_FRAME_BYTES 56
#define PHP_CALL_CODE (1U << 16)
#define PHP_CALL_TOP (1U << 17)
#define PHP_IS_OBJECT 8

/* zend_function: the first byte is its type. */
#define PHP_FUNCTION_INTERNAL 1
#define PHP_FUNCTION_USER 2
#define PHP_FUNCTION_EVAL 4
#define PHP_IS_GENERATOR (1U << 24) /* ZEND_ACC_GENERATOR, from 7.4 on */
#define PHP_FUNCTION_NAME 8
#define PHP_FUNCTION_SCOPE 16
#define PHP_FUNCTION_HEAD 24

/* zend_op */
#define PHP_OP_BYTES 32
#define PHP_OP_EXTENDED 20
#define PHP_OP_LINE 24
#define PHP_OP_CODE 28
#define PHP_OP_INCLUDE 73    /* ZEND_INCLUDE_OR_EVAL */
#define PHP_OP_EXCEPTION 149 /* ZEND_HANDLE_EXCEPTION */
/* ZEND_FRAMELESS_ICALL_0 to _3, from 8.4 on: calls of functions of C code without a frame. */
#define PHP_OP_FRAMELESS 204
#define PHP_OP_FRAMELESS_END 208

#define PHP_STRING_HASH 8
#define PHP_STRING_LENGTH 16
#define PHP_STRING_BYTES 24

#define PHP_OBJECT_CLASS 16

/* What a context that does not run has at its stack pointer (Zend/asm/jump_*_elf_gas.S). */
#define PHP_FIBER_X86_FP 0x38
#define PHP_FIBER_X86_PC 0x40
#define PHP_FIBER_X86_SP 0x48
#define PHP_FIBER_ARM_FP 0x90
#define PHP_FIBER_ARM_PC 0xa0
#define PHP_FIBER_ARM_SP 0xb0

struct php_binary {
	struct runtime_range loops[PHP_MAX_LOOPS]; /* execute_ex() */
	__u32 n_loops;
	__u32 jit_stack; /* bytes that code of the JIT has pushed on execute_ex()'s stack frame */
	__u64 jit_pc;	 /* an svma in execute_ex() at which its stack frame is complete */
	/* Offsets in executor_globals. */
	__u32 current;	    /* current_execute_data */
	__u32 before_throw; /* opline_before_exception; 0: unknown */
	/* Offsets in zend_op_array. */
	__u32 filename; /* line_start and line_end follow */
	__u32 opcodes;
	/* Offsets in zend_generator; 0: unknown. */
	__u32 generator_frame;
	__u32 generator_parent; /* after the value that the generator passes on, a zval */
	__u64 generator_class;	/* svma of zend_ce_generator */
	/*
	 * make_fcontext(), at whose end a fiber's first function returns; and the offsets of the
	 * running context in executor_globals, and of the context that resumed it in a context.
	 */
	struct runtime_range fiber_end;
	__u32 fiber;
	__u32 fiber_caller; /* 0: unknown */
	__u64 frameless;    /* svma of zend_flf_functions; 0: there is none */
};
_Static_assert(sizeof(struct php_binary) <= sizeof(((struct runtime_binary *)0)->room),
	       "php_binary");

struct php_process {
	/* avma of executor_globals. In a thread-safe build, the offset of those of a thread in its
	 * memory for PHP, which `memory` leads to from the thread pointer. */
	__u64 globals;
	struct runtime_chain memory; /* n is 0: not a thread-safe build */
	__u64 pad[8];
};
_Static_assert(sizeof(struct php_process) == sizeof(((struct runtime_process *)0)->room),
	       "php_process");

/*
 * The second word of a frame: cookie << 32 | kind << PHP_KIND_SHIFT | line. Line 0: unknown.
 *
 * The cookie is made of the addresses of the function's name, class and file, and of the hashes
 * that the texts of name and file carry (zend_string.h); 0 stands for what the walker could not
 * read.
 */
enum php_kind {
	PHP_FUNCTION,
	PHP_MAIN,    /* code of a file that nothing included */
	PHP_INCLUDE, /* code of a file, by the statement that included it */
	PHP_INCLUDE_ONCE,
	PHP_REQUIRE,
	PHP_REQUIRE_ONCE,
	PHP_EVAL,
	PHP_NO_FILE = 8, /* added: a function of C code, or the walker could not read the file */
};
#define PHP_KIND_SHIFT 28
#define PHP_LINE_MASK ((1U << PHP_KIND_SHIFT) - 1)

static inline __attribute__((always_inline)) __u64 php_mix(__u64 h, __u64 word)
{
	h = (h + word) * 0x9fb21c651e98df25ULL;
	return h ^ (h >> 29);
}

/*
 * What identifies a string: its hash; 0 if PHP has not computed it: then its length and the last
 * PHP_TEXT_WORDS * 8 bytes of its text, or the whole text and zeros behind it.
 */
#define PHP_TEXT_WORDS 16
static inline __attribute__((always_inline)) __u64 php_text_id(__u64 hash, __u64 length,
							       const __u64 *words)
{
	__u64 h = length;

	if (hash)
		return hash;
	for (int i = 0; i < PHP_TEXT_WORDS; i++)
		h = php_mix(h, words[i]);
	return h | 1;
}

static inline __attribute__((always_inline)) __u32 php_cookie(__u64 name, __u64 scope, __u64 file,
							      __u64 name_hash, __u64 file_hash)
{
	__u64 h = php_mix(php_mix(php_mix(0, name), scope), file);

	return (__u32)(php_mix(php_mix(h, name_hash), file_hash) >> 32);
}
