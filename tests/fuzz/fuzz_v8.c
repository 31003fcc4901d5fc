/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of V8's frames out of a damaged heap. The heap is built here, in this process's own memory
 *at a fixed address, and read as any process's is: a function in a script, compiled and
 *interpreted, with another one inlined. The input says what to change:
 *
 *	{u16 number of a word of the heap, u64 its value} …
 *
 * With bit 15 of the number set it is what the binary says of the layout that changes, within what
 * v8_learn() lets pass.
 *
 * Every position is then asked for; nothing may be read past what was checked, nor loop for long.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/runtime/v8_private.h"

#define HEAP 0x300000000000ULL
#define HEAP_BYTES 0x4000u
#define CODE_AT 0x1000u /* instructions, in the heap */
#define CODE_BYTES 256u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

static const struct v8_layout layout = {
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

static uint64_t *word(uint64_t at)
{
	return (uint64_t *)(uintptr_t)(HEAP + at);
}

static uint64_t tagged(uint64_t at)
{
	return HEAP + at + 1;
}

static uint64_t smi(int64_t v)
{
	return (uint64_t)v << 32;
}

static void put_map(uint64_t at, unsigned int type)
{
	word(at)[0] = tagged(0);
	word(at)[1] = (uint64_t)type << 32;
}

static void put_string(uint64_t at, const char *text)
{
	word(at)[0] = tagged(0x20);
	word(at)[1] = (uint64_t)strlen(text) << 32;
	memcpy(word(at) + 2, text, strlen(text));
}

static void put_bytes(uint64_t at, const void *bytes, size_t n)
{
	word(at)[0] = tagged(0x100);
	word(at)[1] = smi((int64_t)n);
	memcpy(word(at) + 2, bytes, n);
}

static void put_shared(uint64_t at, uint64_t data, uint64_t name, uint64_t script)
{
	word(at)[0] = tagged(0x60);
	word(at)[1] = data;
	word(at)[2] = name;
	word(at)[4] = script;
	word(at)[5] = 0x00010002;
	word(at)[6] = 7ULL << 32;
}

/* Maps below 0x200, then: */
enum { SHARED_A = 0x200, SHARED_B = 0x280, SCRIPT_AT = 0x300, SOURCE = 0x380, NAME = 0x480 };
enum { SCOPE_A = 0x500, SCOPE_B = 0x580, ARRAY = 0x600, TABLE = 0x700, CODE_OBJECT = 0x800 };
enum { DEOPT = 0x880, LITERALS = 0x900, INLINING = 0x940, CODE_TABLE = 0x9c0, CONS_AT = 0xa00 };

static void put_code(void)
{
	static const uint8_t positions[] = {2, 8, 20, 0x84, 0x80, 0x80, 0x80, 0x20, 20, 4};
	static const uint64_t inlining[] = {6, 0};
	uint64_t *deopt = word(DEOPT), *code = word(CODE_OBJECT);

	put_bytes(CODE_TABLE, positions, sizeof(positions));
	put_bytes(INLINING, inlining, sizeof(inlining));
	word(LITERALS)[0] = tagged(0x100);
	word(LITERALS)[1] = smi(1);
	word(LITERALS)[2] = tagged(SHARED_B);
	deopt[0] = tagged(0x100);
	deopt[1] = smi(9);
	deopt[2 + 2] = tagged(LITERALS);
	deopt[2 + 6] = tagged(SHARED_A);
	deopt[2 + 7] = tagged(INLINING);
	code[0] = tagged(0xc0);
	code[1] = tagged(DEOPT);
	code[2] = tagged(CODE_TABLE);
	code[5] = HEAP + CODE_AT;
	code[6] = 12 | (uint64_t)CODE_BYTES << 32;
	word(CODE_AT - 32)[0] = tagged(0xe0);
	word(CODE_AT - 32)[1] = tagged(CODE_OBJECT);
}

static void build(void)
{
	static const uint8_t positions[] = {1, 8, 2, 20, 9, 30, 8, 12};
	static const enum type types[] = {MAP,	 STRING, CONS,	 SHARED, SCRIPT,
					  SCOPE, CODE,	 STREAM, BYTES,	 BYTECODE};

	memset(word(0), 0, HEAP_BYTES);
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		put_map(i * 0x20, types[i]);
	put_string(SOURCE, "function a() {\n  b();\n}\r\nfunction b() {\r  return 1;\n}\n");
	put_string(NAME, "/a.js");
	word(CONS_AT)[0] = tagged(0x40);
	word(CONS_AT)[1] = 10ULL << 32;
	word(CONS_AT)[2] = word(CONS_AT)[3] = tagged(NAME);
	word(SCRIPT_AT)[0] = tagged(0x80);
	word(SCRIPT_AT)[1] = tagged(SOURCE);
	word(SCRIPT_AT)[2] = tagged(NAME);
	for (uint64_t at = SCOPE_A; at <= SCOPE_B; at += SCOPE_B - SCOPE_A) {
		word(at)[0] = tagged(0xa0);
		word(at)[1] = smi(3 << 12 | 1 << 14);
		word(at)[4] = tagged(at == SCOPE_A ? NAME : CONS_AT);
		word(at)[6] = tagged(CONS_AT);
		word(at)[7] = smi(10);
		word(at)[8] = smi(20);
	}
	put_bytes(TABLE, positions, sizeof(positions));
	word(ARRAY)[0] = tagged(0x120);
	word(ARRAY)[1] = smi(40);
	word(ARRAY)[3] = tagged(TABLE);
	put_shared(SHARED_A, tagged(ARRAY), tagged(SCOPE_A), tagged(SCRIPT_AT));
	put_shared(SHARED_B, tagged(CODE_OBJECT), tagged(SCOPE_B), tagged(SCRIPT_AT));
	put_code();
}

static void name(const struct v8_learned *v, uint64_t shared, unsigned int kind, uint64_t position)
{
	struct arena arena = ARENA_INIT(16 << 20);
	struct procman_process process = {.pid = (u32)getpid(), .start_stack = 1};
	struct runtime_target t = {.memory.pid = process.pid, .process = &process};
	struct runtime_names names = {.arena = &arena};
	const uint64_t *w = (const uint64_t *)(uintptr_t)(shared + 40);
	uint64_t where = (uint64_t)kind << V8_FRAME_SHIFT |
			 v8_cookie(w[0], w[1]) << V8_COOKIE_SHIFT | position;

	if (runtime_v8.name(&t, v, shared, where, &names) == 0) {
		if (!names.n || names.n > RUNTIME_MAX_INLINED)
			abort();
		for (u32 i = 0; i < names.n; i++)
			if (!names.frames[i].function)
				abort();
	}
	arena_deinit(&arena);
}

static void change(struct v8_layout *l, const uint8_t *data)
{
	uint16_t at;
	int16_t small;
	s32 value;

	memcpy(&at, data, 2);
	if (!(at & 0x8000)) {
		memcpy(word(at % (HEAP_BYTES / 8) * 8ULL), data + 2, 8);
		return;
	}
	memcpy(&small, data + 2, 2);
	value = small < -4096 ? (uint16_t)small : small;
	memcpy((char *)l + (at & 0x7fff) % (sizeof(*l) / 4) * 4, &value, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static u8 sizes[3][4] = {{1, 2, 3, 4}, {1, 3, 5, 7}, {1, 5, 9, 13}};
	static void *heap;
	struct v8_learned v = {
		.version = V8_VERSION(12, 4, 0),
		.layout = layout,
		.bytecode_sizes = sizes[0],
		.n_bytecodes = 4,
	};

	if (!heap)
		heap = mmap((void *)(uintptr_t)HEAP, HEAP_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (heap == MAP_FAILED)
		abort();
	build();
	for (; size >= 10; data += 10, size -= 10)
		change(&v.layout, data);
	v.cache = calloc(1, sizeof(*v.cache));
	if (!v.cache)
		return 0;
	for (unsigned int offset = 0; offset < 48; offset += 5) {
		name(&v, HEAP + SHARED_A, V8_FRAME_INTERPRETED, 63 + offset);
		name(&v, HEAP + SHARED_A, V8_FRAME_COMPILED, HEAP + CODE_AT + offset);
		name(&v, HEAP + SHARED_B, V8_FRAME_COMPILED, HEAP + CODE_AT + offset);
	}
	name(&v, HEAP + SHARED_B, V8_FRAME_BUILTIN, 0);
	v8_cache_destroy(v.cache);
	return 0;
}
