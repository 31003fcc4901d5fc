/* SPDX-License-Identifier: Apache-2.0 */
/* The BEAM: what a binary shows, the layout of a process's data, and names from its memory. */
#include <criterion/criterion.h>
#include <errno.h>

#include "base/cleanup.h"
#include "beam_image.h"

struct vm {
	struct str file;
	struct elf_file *elf;
	void *learned;
	struct procman_binary binary, jit;
	struct procman_mapping mappings[2];
	struct procman_process process;
	struct runtime_process attached;
	struct arena arena;
	struct runtime_names names;
	struct diag why;
};

static void vm_deinit(struct vm *v)
{
	if (v->learned)
		runtime_beam.forget(v->learned);
	elf_file_destroy(v->elf);
	str_deinit(&v->file);
	arena_deinit(&v->arena);
}
#define _cleanup_vm_ __attribute__((cleanup(vm_deinit)))

static int vm_init_file(struct vm *v, const struct beam_variant *variant, u16 machine, bool jit,
			const char *without, bool bare)
{
	struct runtime_binary bpf;

	*v = (struct vm){.arena = ARENA_INIT(1 << 20)};
	v->names.arena = &v->arena;
	cr_assert(beam_build(variant), "the place of the image is taken");
	beam_write_file(machine, jit, without, bare ? variant : NULL, &v->file);
	cr_assert_eq(elf_file_open_memory(v->file.data, v->file.n, NULL, &v->elf), 0);
	v->binary = (struct procman_binary){.path = "/usr/lib/erlang/erts-17.1.1/bin/beam.smp",
					    .elf = v->elf};
	v->jit = (struct procman_binary){.path = "/memfd:vmem", .kind = PROCMAN_MEMFD};
	v->mappings[0] = (struct procman_mapping){.start = BEAM_IMAGE,
						  .end = BEAM_IMAGE + BEAM_BINARY_END,
						  .bias = BEAM_IMAGE,
						  .binary = &v->binary};
	v->mappings[1] = (struct procman_mapping){.start = BEAM_IMAGE + BEAM_JIT,
						  .end = BEAM_IMAGE + BEAM_JIT_END,
						  .binary = &v->jit};
	v->process = (struct procman_process){
		.pid = (u32)getpid(), .image = 1, .alive = true, .mappings = v->mappings, .n = 2};
	return runtime_beam.learn(&v->binary, &bpf, &v->learned, &v->why);
}

static int vm_init(struct vm *v, const struct beam_variant *variant, u16 machine, bool jit,
		   const char *without)
{
	return vm_init_file(v, variant, machine, jit, without, false);
}

static struct runtime_target target(const struct vm *v)
{
	return (struct runtime_target){.memory.pid = v->process.pid,
				       .process = &v->process,
				       .elf = v->elf,
				       .bias = BEAM_IMAGE};
}

static int attach(struct vm *v, struct beam_process *ret)
{
	struct runtime_target t = target(v);
	int r = runtime_beam.attach(&t, v->learned, &v->attached);

	if (r == 0)
		memcpy(ret, v->attached.room, sizeof(*ret));
	return r;
}

static int name(struct vm *v, u64 address, u64 where)
{
	struct runtime_target t = target(v);

	v->names.n = 0;
	return runtime_beam.name(&t, v->learned, address, where, &v->names);
}

static u64 code_where(u64 avma)
{
	u64 code[2];

	memcpy(code, (const void *)(avma - 8), sizeof(code));
	return (u64)BEAM_CODE << BEAM_FRAME_SHIFT | beam_cookie(code[0], code[1]);
}

static void cr_code(struct vm *v, u64 place, const char *function, const char *file, u32 line)
{
	u64 avma = BEAM_IMAGE + place;

	cr_assert_eq(name(v, avma, code_where(avma)), 0);
	cr_assert_eq(v->names.n, 1);
	cr_expect_str_eq(v->names.frames[0].function, function);
	if (file)
		cr_expect_str_eq(v->names.frames[0].file, file);
	else
		cr_expect_null(v->names.frames[0].file);
	cr_expect_eq(v->names.frames[0].line, line, "%s: line %u, not %u", function,
		     v->names.frames[0].line, line);
}

/* ---- a binary ---- */

Test(beam, symbols)
{
	_cleanup_vm_ struct vm v;
	const struct beam_learned *l;
	char text[256];

	cr_assert_eq(vm_init(&v, &beam_variants[0], EM_X86_64, true, NULL), 0, "%s", v.why.text);
	l = v.learned;
	cr_expect(runtime_beam.is_runtime(&v.binary));
	cr_expect_eq(l->scheduler.kind, RUNTIME_TLS_KEY);
	cr_expect_eq(l->scheduler.slot, BEAM_KEY);
	cr_expect_eq(l->code.caller, BEAM_LOOP + 0x10 + 5);
	cr_expect_eq(l->code.dirty.start, BEAM_LOOP + 0x30);
	cr_expect_eq(l->code.schedule.end, BEAM_LOOP + 0x30);
	runtime_beam.describe(l, text, sizeof(text));
	cr_expect(strstr(text, "Erlang/OTP 25 (ERTS 13.1.5), JIT"), "%s", text);
}

Test(beam, binaries_that_are_refused)
{
	static const char *const needed[] = {"the_active_code_index",
					     "erts_atom_table",
					     "erts_proc",
					     "beam_normal_exit",
					     "erts_get_scheduler_data",
					     "erts_aligned_dirty_io_scheduler_data"};

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		_cleanup_vm_ struct vm v;

		cr_expect_eq(vm_init(&v, &beam_variants[0], EM_X86_64, true, needed[i]), -ENOTSUP);
		cr_expect(strstr(v.why.text, needed[i]), "%s: %s", needed[i], v.why.text);
	}
	for (u32 i = 0; i < 3; i++) {
		static const char *const why[] = {"only x86-64", "without JIT",
						  "only the functions for NIFs"};
		_cleanup_vm_ struct vm v;

		cr_expect_eq(vm_init(&v, &beam_variants[0], i ? EM_X86_64 : EM_AARCH64, i != 1,
				     i == 2 ? "etp_beamasm" : NULL),
			     -ENOTSUP);
		cr_expect(strstr(v.why.text, why[i]), "%s", v.why.text);
	}
}

Test(beam, bare_binaries_that_are_refused)
{
	static const char *const needed[] = {"enif_thread_type", "enif_is_process_alive",
					     "enif_get_atom_length"};

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		_cleanup_vm_ struct vm v;

		cr_expect_eq(vm_init_file(&v, &beam_variants[1], EM_X86_64, true, needed[i], true),
			     -ENOTSUP);
		cr_expect(strstr(v.why.text, needed[i]), "%s: %s", needed[i], v.why.text);
		cr_expect(strstr(v.why.text, "only the functions for NIFs"), "%s", v.why.text);
	}
}

/* ---- a process ---- */

Test(beam, layouts)
{
	for (size_t i = 0; i < ARRAY_SIZE(beam_variants); i++) {
		const struct beam_variant *b = &beam_variants[i];
		_cleanup_vm_ struct vm v;
		struct beam_process p;

		cr_assert_eq(vm_init(&v, b, EM_X86_64, true, NULL), 0, "%s", v.why.text);
		beam_u32(BEAM_CODE_INDEX, (u32)i + 1);
		cr_assert_eq(attach(&v, &p), 0);
		cr_expect_eq(((struct beam_learned *)v.learned)->layout->ranges, BEAM_RANGES);
		cr_expect_eq(((struct beam_learned *)v.learned)->layout->functions, b->functions);
		cr_expect_eq(((struct beam_learned *)v.learned)->layout->boxed_names,
			     b->boxed_names);
		cr_expect_eq(p.stop, b->stop);
		cr_expect_eq(p.heap, b->heap);
		cr_expect_eq(p.initial, b->initial);
		cr_expect_eq(p.registered, b->registered);
		cr_expect_eq(p.current, b->current);
		cr_expect_eq(p.shared.start, BEAM_IMAGE + BEAM_JIT);
		cr_expect_eq(p.shared.end, BEAM_IMAGE + BEAM_MODULES);
		cr_expect_eq(p.registers, 0x4080);
		cr_expect_eq(p.c_stack, (u8)-0x40);
		cr_expect_eq(p.n_loads, 1);
		cr_expect_eq(p.scheduler[0], 0x318 + 3 * 16);
		cr_expect_eq(p.caller, BEAM_LOOP + 0x15);
		cr_expect(runtime_beam.covers(v.learned, &v.attached, BEAM_IMAGE + BEAM_JIT));
	}
}

/* Code and data of a process show what a bare binary does not. */
Test(beam, bare)
{
	for (size_t i = 0; i < ARRAY_SIZE(beam_variants); i++) {
		const struct beam_variant *b = &beam_variants[i];
		const struct beam_learned *l;
		_cleanup_vm_ struct vm v;
		struct beam_process p;
		char text[256];

		cr_assert_eq(vm_init_file(&v, b, EM_X86_64, true, NULL, true), 0, "%s", v.why.text);
		beam_u32(BEAM_CODE_INDEX, 2);
		cr_assert_eq(attach(&v, &p), 0);
		l = v.learned;
		runtime_beam.describe(l, text, sizeof(text));
		cr_expect(strstr(text, "Erlang/OTP 29 (ERTS 17.1.1), JIT"), "%s", text);
		cr_expect_eq(l->scheduler.slot, BEAM_KEY);
		cr_expect_eq(l->layout->ranges, BEAM_RANGES);
		cr_expect_eq(l->layout->code_index, BEAM_CODE_INDEX);
		cr_expect_eq(l->layout->boxed_names, b->boxed_names);
		cr_expect_eq(p.stop, b->stop);
		cr_expect_eq(p.heap, b->heap);
		cr_expect_eq(p.current, b->current);
		cr_expect_eq(p.normal_exit, BEAM_IMAGE + BEAM_JIT + 0x200);
		cr_expect_eq(p.shared.end, BEAM_IMAGE + BEAM_MODULES);
		cr_expect_eq(p.frame_pointers, 0);
		cr_expect_eq(p.schedule.start, BEAM_PARTS);
		cr_expect_eq(p.dirty.start, BEAM_DIRTY);
		for (u32 k = 0; k < BEAM_MAX_CALLS; k++)
			cr_expect_eq(p.calls[k].start, BEAM_PARTS + 16 * (k + 1));
		cr_expect_eq(p.caller, BEAM_CALLER + 14);
		cr_expect_eq(p.caller_fp, 0x20);
		cr_code(&v, beam_function(0, 0), "demo:outer/1", "demo.erl", 7);
	}
}

Test(beam, bare_with_frame_pointers)
{
	_cleanup_vm_ struct vm v;
	struct beam_process p;

	cr_assert_eq(vm_init_file(&v, &beam_variants[1], EM_X86_64, true, NULL, true), 0);
	for (u32 i = 0; i < BEAM_N_PROCESSES; i++)
		beam_u64(BEAM_HEAPS + 0x200ULL * i + 0x190,
			 BEAM_IMAGE + BEAM_HEAPS + 0x200ULL * i + 0x1a0);
	cr_assert_eq(attach(&v, &p), 0);
	cr_expect_eq(p.frame_pointers, 1);
}

/* What a process does not show, or shows in two ways, is refused or awaited. */
Test(beam, bare_processes_that_are_not_understood)
{
	static const struct {
		u64 place, value;
		int error;
	} changes[] = {
		{BEAM_RANGES + 8, 0, -EAGAIN},
		{BEAM_RANGES + 3 * 32, BEAM_IMAGE + BEAM_RANGE_LIST, 0},
		{BEAM_HEAPS + 0x200 - 8, 0, 0},
		{BEAM_JIT + 0x146, 0, -ENOTSUP},		      /* erts_schedule */
		{BEAM_JIT + 0x700, BEAM_IMAGE + BEAM_TEXT, -ENOTSUP}, /* no function there */
		{BEAM_JIT + 0x162, BEAM_IMAGE, -ENOTSUP},	      /* the index is not data */
		{BEAM_JIT + 0x300, 0, -ENOTSUP},		      /* a BIF */
		{BEAM_JIT + 0x400, 0, -ENOTSUP},		      /* a NIF */
		{BEAM_STACK + 0x4080 + 3 * 8, 0, -EAGAIN},
		{BEAM_STACK + 0x4080 + 5 * 8, BEAM_IMAGE + BEAM_CALLER + 14, -EAGAIN},
		/* The address of a call that does not lead to the loop, in the padding. */
		{BEAM_STACK + 0x4080 + 8, BEAM_IMAGE + BEAM_DIRTY + 5, 0},
		{BEAM_SCHEDULER, 0, -EAGAIN},
	};

	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		_cleanup_vm_ struct vm v;
		struct beam_process p;

		cr_assert_eq(vm_init_file(&v, &beam_variants[1], EM_X86_64, true, NULL, true), 0);
		beam_u64(changes[i].place, changes[i].value);
		cr_expect_eq(attach(&v, &p), changes[i].error, "change %zu", i);
	}
}

/* What the emulator has not made yet is awaited; what contradicts the layout is refused. */
Test(beam, processes_that_are_not_understood)
{
	static const struct {
		u64 place, value;
		int error;
	} changes[] = {
		{BEAM_RANGES + 8, 0, -EAGAIN},	    {BEAM_CODE_INDEX, 3, -EAGAIN},
		{BEAM_PROCESSES + 128, 0, -EAGAIN}, {BEAM_SCHEDULERS + 8, 0, -EAGAIN},
		{BEAM_NORMAL_EXIT, 0, -EAGAIN},	    {BEAM_ATOMS + 64, 0x6174, -ENOTSUP},
		{BEAM_MODULES, 0, -ENOTSUP},	    {BEAM_KEY, 4096, -EINVAL},
		{BEAM_JIT + 0x100, 0, -ENOTSUP},
	};

	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		_cleanup_vm_ struct vm v;
		struct beam_process p;

		cr_assert_eq(vm_init(&v, &beam_variants[0], EM_X86_64, true, NULL), 0);
		beam_u64(changes[i].place, changes[i].value);
		cr_expect_eq(attach(&v, &p), changes[i].error, "change %zu", i);
	}
}

/* ---- names ---- */

Test(beam, code)
{
	for (size_t i = 0; i < ARRAY_SIZE(beam_variants); i++) {
		_cleanup_vm_ struct vm v;
		struct beam_process p;

		cr_assert_eq(vm_init(&v, &beam_variants[i], EM_X86_64, true, NULL), 0);
		cr_assert_eq(attach(&v, &p), 0);
		cr_code(&v, beam_function(0, 0), "demo:outer/1", "demo.erl", 7);
		cr_code(&v, beam_function(0, 0) + 0x1f, "demo:outer/1", "demo.erl", 7);
		cr_code(&v, beam_function(0, 0) + 0x20, "demo:outer/1", "demo.erl", 9);
		cr_code(&v, beam_function(0, 1) + 4, "demo:-leaf/2-fun-0-/2", "inc/demo.hrl", 11);
		cr_code(&v, beam_function(3, 0), "demo:outer/1", NULL, 0);
	}
}

Test(beam, code_that_is_gone)
{
	_cleanup_vm_ struct vm v;
	struct beam_process p;
	u64 avma = BEAM_IMAGE + beam_function(0, 0) + 8, where;

	cr_assert_eq(vm_init(&v, &beam_variants[0], EM_X86_64, true, NULL), 0);
	cr_assert_eq(attach(&v, &p), 0);
	where = code_where(avma);
	cr_expect_eq(name(&v, avma, where), 0);
	beam_u32(beam_function(0, 0) + 8, 0x90);
	cr_expect_eq(name(&v, avma, where), -ESTALE, "other code");
	cr_expect_eq(name(&v, BEAM_IMAGE + BEAM_JIT, code_where(BEAM_IMAGE + BEAM_JIT + 8)),
		     -ESTALE);
	cr_expect_eq(name(&v, BEAM_IMAGE + BEAM_JIT + 8, code_where(BEAM_IMAGE + BEAM_JIT + 8)),
		     -ENOENT, "code of no module");
}

Test(beam, functions_and_roots)
{
	_cleanup_vm_ struct vm v;
	struct beam_process p;
	u64 both = ATOM_MODULE | (u64)ATOM_OUTER << BEAM_ATOM_BITS;

	cr_assert_eq(vm_init(&v, &beam_variants[1], EM_X86_64, true, NULL), 0);
	cr_assert_eq(attach(&v, &p), 0);
	cr_assert_eq(name(&v, both, (u64)BEAM_FUNCTION << BEAM_FRAME_SHIFT | 3), 0);
	cr_expect_str_eq(v.names.frames[0].function, "demo:outer/3");
	cr_assert_eq(name(&v, both, (u64)BEAM_INITIAL << BEAM_FRAME_SHIFT), 0);
	cr_expect_str_eq(v.names.frames[0].function, "demo:outer/0");
	cr_assert_eq(name(&v, ATOM_NAME, (u64)BEAM_REGISTERED << BEAM_FRAME_SHIFT), 0);
	cr_expect_str_eq(v.names.frames[0].function, "demo_server");
	cr_expect_lt(name(&v, BEAM_ATOM_MASK, (u64)BEAM_REGISTERED << BEAM_FRAME_SHIFT), 0);
	cr_expect_eq(name(&v, both, 0), -EINVAL);
}
