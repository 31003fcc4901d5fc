/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PHP: a damaged binary, and objects in memory. The objects are in this process's own memory, so
 * that wild pointers lead to readable memory, too.
 *
 *	byte 0	even: a binary (tests/unit/php_image.h) whose text the rest overwrites; u16 place,
 *		u8 value, and so on; bit 1: it is thread-safe. Odd: objects
 *	byte 1	objects: enum php_kind
 *	rest	objects: a function and what its pointers lead to
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/php_image.h"
#include "agent/runtime/php/php.h"
#include "base/arena.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *changes;
static size_t n_changes;

static void change_text(u8 *text, size_t n)
{
	for (size_t i = 0; i + 3 <= n_changes; i += 3)
		text[(changes[i] | (size_t)changes[i + 1] << 8) % n] = changes[i + 2];
}

static void fuzz_binary(bool threads)
{
	struct php_learned l = {};
	struct elf_file *elf = NULL;
	struct elfw w = {};

	php_image_write(&w, threads, change_text);
	if (elf_file_open_memory((u8 *)w.out.data, w.out.n, NULL, &elf) == 0) {
		/* BPF must be able to use any accepted binary. */
		if (php_learn(elf, &l, NULL) == 0 &&
		    (l.bpf.n_loops > PHP_MAX_LOOPS || l.bpf.filename > PHP_FUNCTION_BYTES - 16 ||
		     l.bpf.opcodes > PHP_FUNCTION_BYTES - 8 || l.bpf.filename % 8))
			abort();
		elf_file_destroy(elf);
	}
	str_deinit(&w.out);
}

static void fuzz_objects(u32 kind, const u8 *data, size_t size)
{
	static u64 image[1024];
	const struct runtime_memory m = {.pid = (u32)getpid()};
	const struct php_learned l = {.bpf.filename = 0x98, .class_name = 8, .string_text = 24};
	_cleanup_arena_ struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	u64 at, cookie;
	bool file = !(kind & PHP_NO_FILE);

	memset(image, 0, sizeof(image));
	memcpy(image, data, MIN(size, sizeof(image)));
	/* Pointers to any place in the image: name, class, file, the class's name. */
	image[1] = (u64)image + (image[1] & 0xff8);
	image[2] = (u64)image + (image[2] & 0xff8);
	image[0x98 / 8] = (u64)image + (image[0x98 / 8] & 0xff8);
	memcpy(&at, (u8 *)image[2] + 8, 8);
	at = (u64)image + (at & 0xff8);
	memcpy((u8 *)image[2] + 8, &at, 8);
	/* With hash 0 in the cookie every text fits. */
	cookie = php_cookie(image[1], image[2], file ? image[0x98 / 8] : 0, 0, 0);
	if (php_name(&m, &l, (u64)image, cookie << 32 | (u64)kind << PHP_KIND_SHIFT | 7, &names) ==
		    0 &&
	    (names.n != 1 || !names.frames[0].function || names.frames[0].line != 7))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 3)
		return 0;
	if (data[0] & 1) {
		fuzz_objects(data[1] & 15, data + 2, size - 2);
		return 0;
	}
	changes = data + 1;
	n_changes = size - 1;
	fuzz_binary(data[0] & 2);
	return 0;
}
