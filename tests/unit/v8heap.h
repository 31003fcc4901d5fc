/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small heap of V8 in this process's own memory, at a fixed address; tests read it like another
 * process's. SHARED_A is an interpreted function that begins in line 1. The code at CODE_AT is its
 * compiled code; from byte 10 on SHARED_B (line 5) is inlined into it in line 2. The name of
 * SHARED_A is the script's name, the name of SHARED_B is the script's name twice.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/runtime/v8/v8.h"

#define HEAP 0x300000000000ULL
#define HEAP_BYTES 0x4000u
#define CODE_AT 0x1000u /* instructions, as an offset in the heap */
#define CODE_BYTES 256u

enum type {
	STRING = 8,
	CONS = 41,
	MAP = 264,
	SHARED,
	SCRIPT,
	SCOPE,
	BYTECODE,
	CODE,
	STREAM,
	BYTES
};

static const struct v8_layout v8heap_layout = {
	.smi_shift_size = 31,
	.first_nonstring = 128,
	.string_mask = 7,
	.string_encoding_mask = 8,
	.one_byte = 8,
	.cons = 1,
	.external = 2,
	.sliced = 3,
	.thin = 5,
	.string_length = 12,
	.chars = 16,
	.cons_first = 16,
	.cons_second = 24,
	.sliced_parent = 16,
	.sliced_offset = 24,
	.thin_actual = 16,
	.external_data = 24,
	.map_instance_type = 12,
	.type_shared = SHARED,
	.type_script = SCRIPT,
	.type_scope_info = SCOPE,
	.type_bytecode_array = BYTECODE,
	.type_code = CODE,
	.type_stream = STREAM,
	.type_interpreter_data = -1,
	.type_baseline_data = -1,
	.shared_name = 16,
	.shared_data = 8,
	.shared_script = 32,
	.shared_length = 40,
	.scope_first_vars = 3,
	.scope_n_locals = 2,
	.scope_header = 8,
	.scope_positions = -1,
	.scope_saved_class = 10,
	.scope_function_variable = 12,
	.script_name = 16,
	.script_source = 8,
	.array_length = 8,
	.array_data = 16,
	.bytecode_positions = 24,
	.bytecode_data = 64,
	.interpreter_bytecode = 8,
	.code_deopt = 8,
	.code_positions = 16,
	.code_start = 40,
	.code_flags = 48,
	.code_size = 52,
	.stream_code = 8,
	.kind_mask = 15,
	.kind_baseline = 10,
	.deopt_literals = 2,
	.deopt_shared = 6,
	.deopt_wrapped = -1,
	.deopt_inlining = 7,
};

static inline uint64_t *v8heap_word(uint64_t at)
{
	return (uint64_t *)(uintptr_t)(HEAP + at);
}

static inline uint64_t v8heap_tagged(uint64_t at)
{
	return HEAP + at + 1;
}

static inline uint64_t v8heap_smi(int64_t v)
{
	return (uint64_t)v << 32;
}

static inline void v8heap_put_map(uint64_t at, unsigned int type)
{
	v8heap_word(at)[0] = v8heap_tagged(0);
	v8heap_word(at)[1] = (uint64_t)type << 32;
}

static inline void v8heap_put_string(uint64_t at, const char *text)
{
	v8heap_word(at)[0] = v8heap_tagged(0x20);
	v8heap_word(at)[1] = (uint64_t)strlen(text) << 32;
	memcpy(v8heap_word(at) + 2, text, strlen(text));
}

static inline void v8heap_put_bytes(uint64_t at, const void *bytes, size_t n)
{
	v8heap_word(at)[0] = v8heap_tagged(0x100);
	v8heap_word(at)[1] = v8heap_smi((int64_t)n);
	memcpy(v8heap_word(at) + 2, bytes, n);
}

static inline void v8heap_put_shared(uint64_t at, uint64_t data, uint64_t name, uint64_t script)
{
	v8heap_word(at)[0] = v8heap_tagged(0x60);
	v8heap_word(at)[1] = data;
	v8heap_word(at)[2] = name;
	v8heap_word(at)[4] = script;
	v8heap_word(at)[5] = 0x00010002;
	v8heap_word(at)[6] = 7ULL << 32;
}

/* Offsets in the heap. Maps are below 0x200. */
enum { SHARED_A = 0x200, SHARED_B = 0x280, SCRIPT_AT = 0x300, SOURCE = 0x380, NAME = 0x480 };
enum { SCOPE_A = 0x500, SCOPE_B = 0x580, ARRAY = 0x600, TABLE = 0x700, CODE_OBJECT = 0x800 };
enum { DEOPT = 0x880, LITERALS = 0x900, INLINING = 0x940, CODE_TABLE = 0x9c0, CONS_AT = 0xa00 };

static inline void v8heap_put_code(void)
{
	static const uint8_t positions[] = {2, 8, 20, 0xa4, 0x81, 0x80, 0x80, 0x10, 20, 4};
	static const uint64_t inlining[] = {36, 0};
	uint64_t *deopt = v8heap_word(DEOPT), *code = v8heap_word(CODE_OBJECT);

	v8heap_put_bytes(CODE_TABLE, positions, sizeof(positions));
	v8heap_put_bytes(INLINING, inlining, sizeof(inlining));
	v8heap_word(LITERALS)[0] = v8heap_tagged(0x100);
	v8heap_word(LITERALS)[1] = v8heap_smi(1);
	v8heap_word(LITERALS)[2] = v8heap_tagged(SHARED_B);
	deopt[0] = v8heap_tagged(0x100);
	deopt[1] = v8heap_smi(9);
	deopt[2 + 2] = v8heap_tagged(LITERALS);
	deopt[2 + 6] = v8heap_tagged(SHARED_A);
	deopt[2 + 7] = v8heap_tagged(INLINING);
	code[0] = v8heap_tagged(0xc0);
	code[1] = v8heap_tagged(DEOPT);
	code[2] = v8heap_tagged(CODE_TABLE);
	code[5] = HEAP + CODE_AT;
	code[6] = 12 | (uint64_t)CODE_BYTES << 32;
	v8heap_word(CODE_AT - 32)[0] = v8heap_tagged(0xe0);
	v8heap_word(CODE_AT - 32)[1] = v8heap_tagged(CODE_OBJECT);
}

/* Builds the heap, or restores it after a test. */
static inline void v8heap_build(void)
{
	static void *heap;
	static const uint8_t positions[] = {1, 8, 2, 20, 9, 30, 8, 12};
	static const enum type types[] = {MAP,	 STRING, CONS,	 SHARED, SCRIPT,
					  SCOPE, CODE,	 STREAM, BYTES,	 BYTECODE};

	if (!heap)
		heap = mmap((void *)(uintptr_t)HEAP, HEAP_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (heap == MAP_FAILED)
		abort();
	memset(v8heap_word(0), 0, HEAP_BYTES);
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		v8heap_put_map(i * 0x20, types[i]);
	v8heap_put_string(SOURCE, "function a() {\n  b();\n}\r\nfunction b() {\r  return 1;\n}\n");
	v8heap_put_string(NAME, "/a.js");
	v8heap_word(CONS_AT)[0] = v8heap_tagged(0x40);
	v8heap_word(CONS_AT)[1] = 10ULL << 32;
	v8heap_word(CONS_AT)[2] = v8heap_word(CONS_AT)[3] = v8heap_tagged(NAME);
	v8heap_word(SCRIPT_AT)[0] = v8heap_tagged(0x80);
	v8heap_word(SCRIPT_AT)[1] = v8heap_tagged(SOURCE);
	v8heap_word(SCRIPT_AT)[2] = v8heap_tagged(NAME);
	for (uint64_t at = SCOPE_A; at <= SCOPE_B; at += SCOPE_B - SCOPE_A) {
		v8heap_word(at)[0] = v8heap_tagged(0xa0);
		v8heap_word(at)[1] = v8heap_smi(3 << 12 | 1 << 14);
		v8heap_word(at)[4] = v8heap_tagged(at == SCOPE_A ? NAME : CONS_AT);
		v8heap_word(at)[6] = v8heap_tagged(CONS_AT);
		v8heap_word(at)[7] = v8heap_smi(10);
		v8heap_word(at)[8] = v8heap_smi(20);
	}
	v8heap_put_bytes(TABLE, positions, sizeof(positions));
	v8heap_word(ARRAY)[0] = v8heap_tagged(0x120);
	v8heap_word(ARRAY)[1] = v8heap_smi(40);
	v8heap_word(ARRAY)[3] = v8heap_tagged(TABLE);
	v8heap_put_shared(SHARED_A, v8heap_tagged(ARRAY), v8heap_tagged(SCOPE_A),
			  v8heap_tagged(SCRIPT_AT));
	v8heap_put_shared(SHARED_B, v8heap_tagged(CODE_OBJECT), v8heap_tagged(SCOPE_B),
			  v8heap_tagged(SCRIPT_AT));
	v8heap_put_code();
}
