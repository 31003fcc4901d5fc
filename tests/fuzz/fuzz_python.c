/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython: a binary that lies about itself, tables of lines, and objects in memory. The objects are
 * in this process's own memory, so that pointers are as wild as in a damaged one.
 *
 *	0	what to do
 *	1	minor version
 *	2…	the file; the table; code; or 256 bytes of code object, then what its pointers point
 *to
 */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/runtime/python.h"
#include "disasm/exec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_file(u32 minor, const u8 *data, size_t size)
{
	struct python_learned *l = calloc(1, sizeof(*l));
	struct elf_file *elf = NULL;
	char path[32];

	if (!l)
		return;
	snprintf(path, sizeof(path), "/usr/bin/python3.%u", minor);
	if (elf_file_open_memory(data, size, NULL, &elf) == 0) {
		/* What it accepts, BPF must be able to use. */
		if (python_learn(elf, path, l, NULL) == 0 &&
		    (l->bpf.n_loops > PYTHON_MAX_RANGES || l->bpf.n_unlinked > PYTHON_MAX_RANGES ||
		     l->bpf.code_read >= PYTHON_CODE_BYTES ||
		     l->bpf.frame_read >= PYTHON_FRAME_BYTES))
			abort();
		elf_file_destroy(elf);
	}
	free(l);
}

static void fuzz_lines(const u8 *data, size_t size)
{
	for (s64 at = -2; at < 64; at += 3) {
		(void)python_line_of_lnotab(data, size, 1, at);
		(void)python_line_of_linetable_310(data, size, 1, at);
		(void)python_line_of_locations(data, size, 1, at);
	}
}

static void fuzz_objects(u32 minor, const u8 *data, size_t size)
{
	static u64 image[1024];
	struct runtime_memory m = {.pid = (u32)getpid()};
	struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	struct python_learned l = {.version = 0x0300 | minor};

	memset(image, 0, sizeof(image));
	memcpy(image, data, MIN(size, sizeof(image)));
	if (minor < 6 || minor > 12 || python_offsets(NULL, &l, NULL) < 0)
		return;
	/* Three pointers, to anywhere in the image. */
	for (u32 i = 0; i < 3; i++)
		image[l.bpf.code_id[i] / 8] =
			(u64)image + (image[l.bpf.code_id[i] / 8] & (sizeof(image) - 1));
	u64 cookie = python_cookie(image[l.bpf.code_id[0] / 8], image[l.bpf.code_id[1] / 8],
				   image[l.bpf.code_id[2] / 8], image[l.bpf.code_id[3] / 8]);

	if (python_name(&m, &l, (u64)image, cookie << 32 | data[0], &names) == 0 &&
	    (names.n != 1 || !names.frames[0].function))
		abort();
	arena_deinit(&arena);
}

static bool code_at(void *arg, u64 svma, size_t n, struct buf *ret)
{
	const struct buf *all = arg;

	if (svma >= buf_left(all))
		return false;
	*ret = buf_of(all->pos + svma, MIN(n, buf_left(all) - svma));
	return true;
}

static bool on_event(void *arg, const struct exec *x, enum exec_event event,
		     const struct exec_value *value)
{
	/* What a value is made of is there. */
	for (u8 i = 0; value->known && i < value->n; i++)
		if (value->n > EXEC_MAX_TERMS || value->terms[i].symbol >= x->n_symbols)
			abort();
	return false;
}

static void fuzz_code(u32 which, const u8 *data, size_t size)
{
	struct buf all = buf_of(data, size);
	struct exec_program p = {.code = code_at, .event = on_event, .arg = &all};

	(void)exec_run(&p, which & 1 ? EM_AARCH64 : EM_X86_64, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 3)
		return 0;
	switch (data[0] % 4) {
	case 0:
		fuzz_file(data[1] % 20, data + 2, size - 2);
		break;
	case 1:
		fuzz_lines(data + 2, size - 2);
		break;
	case 2:
		fuzz_objects(data[1] % 20, data + 2, size - 2);
		break;
	default:
		fuzz_code(data[1], data + 2, size - 2);
	}
	return 0;
}
