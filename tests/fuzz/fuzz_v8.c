/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of V8's frames from a damaged heap, which tests/unit/v8heap.h builds. The input damages the
 * heap:
 *
 *	{u16 index of a word of the heap, u64 its new value} …
 *
 * An index with bit 15 set changes the layout instead, within the limits that v8_learn() accepts.
 *
 * Then the fuzzer asks for the names of many positions. No read may be out of bounds, and no loop
 * may be long.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/v8heap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void name(const struct v8_learned *v, uint64_t shared, unsigned int kind, uint64_t position)
{
	struct arena arena = ARENA_INIT(16 << 20);
	struct procman_process process = {.pid = (u32)getpid(), .image = 1};
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
		memcpy(v8heap_word(at % (HEAP_BYTES / 8) * 8ULL), data + 2, 8);
		return;
	}
	memcpy(&small, data + 2, 2);
	value = small < -4096 ? (uint16_t)small : small;
	memcpy((char *)l + (at & 0x7fff) % (sizeof(*l) / 4) * 4, &value, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static u8 sizes[3][4] = {{1, 2, 3, 4}, {1, 3, 5, 7}, {1, 5, 9, 13}};
	struct v8_learned v = {
		.version = V8_VERSION(12, 4, 0),
		.layout = v8heap_layout,
		.bytecode_sizes = sizes[0],
		.n_bytecodes = 4,
	};

	v8heap_build();
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
