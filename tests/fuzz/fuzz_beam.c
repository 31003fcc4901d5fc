/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BEAM: a damaged beam.smp, and the layout and names from the damaged memory of a process.
 * tests/unit/beam_image.h builds both, the memory at a fixed address of this process. The input
 * chooses a layout and damages the file or the memory:
 *
 *	u8	layout
 *	u8	bit 0: the file is damaged, else the memory; bit 1: before the layout is found;
 *		bit 2: the binary exports no variables
 *	{u16 index of a word, u64 its new value} …
 */
#include <stdint.h>
#include <stdlib.h>

#include "../unit/beam_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void change(u8 *bytes, size_t n, const u8 *data, size_t size)
{
	for (; size >= 10; data += 10, size -= 10) {
		u16 at;

		memcpy(&at, data, 2);
		memcpy(bytes + at % (n / 8) * 8, data + 2, 8);
	}
}

struct vm {
	struct procman_binary binary, jit;
	struct procman_mapping mappings[2];
	struct procman_process process;
	struct runtime_target target;
	void *learned;
};

static void vm_open(struct vm *v, const struct str *file)
{
	struct runtime_binary bpf;

	*v = (struct vm){
		.binary.path = "/beam.smp",
		.jit.path = "/memfd:vmem",
		.mappings = {{BEAM_IMAGE, BEAM_IMAGE + BEAM_BINARY_END, 0, BEAM_IMAGE, &v->binary},
			     {BEAM_IMAGE + BEAM_JIT, BEAM_IMAGE + BEAM_JIT_END, 0, 0, &v->jit}},
		.process = {.pid = (u32)getpid(), .mappings = v->mappings, .n = 2},
		.target = {.memory.pid = (u32)getpid(), .process = &v->process, .bias = BEAM_IMAGE},
	};
	if (elf_file_open_memory(file->data, file->n, NULL, &v->binary.elf) < 0)
		return;
	v->target.elf = v->binary.elf;
	if (!runtime_beam.is_runtime(&v->binary) ||
	    runtime_beam.learn(&v->binary, &bpf, &v->learned, NULL) < 0)
		v->learned = NULL;
}

static void vm_close(struct vm *v)
{
	if (v->learned)
		runtime_beam.forget(v->learned);
	elf_file_destroy(v->binary.elf);
}

static void attach(const struct vm *v)
{
	struct runtime_process process = {};
	struct beam_process p;

	if (runtime_beam.attach(&v->target, v->learned, &process) < 0)
		return;
	memcpy(&p, process.room, sizeof(p));
	/* The walker must be able to use any accepted process. */
	if (p.shared.start >= p.shared.end || !p.stop || !p.heap || !p.initial)
		abort();
}

static void name(const struct vm *v, u64 address, u64 where, struct arena *arena)
{
	struct runtime_names names = {.arena = arena};

	if (runtime_beam.name(&v->target, v->learned, address, where, &names) < 0)
		return;
	if (names.n != 1 || !names.frames[0].function)
		abort();
}

static void use(const struct vm *v)
{
	struct arena arena = ARENA_INIT(16 << 20);

	attach(v);
	for (u64 place = BEAM_JIT + 8; place < BEAM_JIT_END; place += 0x40) {
		u64 code[2], avma = BEAM_IMAGE + place;

		memcpy(code, beam_at(place - 8), sizeof(code));
		name(v, avma, (u64)BEAM_CODE << BEAM_FRAME_SHIFT | beam_cookie(code[0], code[1]),
		     &arena);
	}
	for (u64 i = 0; i < ATOM_N + 2; i++)
		for (u64 kind = 0; kind < 16; kind++)
			name(v, i | i << BEAM_ATOM_BITS, kind << BEAM_FRAME_SHIFT | i, &arena);
	arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct beam_variant *variant;
	struct str file;
	struct vm v;

	if (size < 2)
		return 0;
	variant = &beam_variants[data[0] % ARRAY_SIZE(beam_variants)];
	if (!beam_build(variant))
		abort();
	beam_write_file(EM_X86_64, true, NULL, data[1] & 4 ? variant : NULL, &file);
	if (data[1] & 1)
		change((u8 *)file.data, file.n, data + 2, size - 2);
	vm_open(&v, &file);
	if (v.learned && !(data[1] & 3))
		attach(&v);
	if (v.learned) {
		if (!(data[1] & 1))
			change(beam_at(0), BEAM_IMAGE_BYTES, data + 2, size - 2);
		use(&v);
	}
	vm_close(&v);
	str_deinit(&file);
	return 0;
}
