/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BEAM, the virtual machine of Erlang and Elixir: its struct runtime_ops. The walker is
 * bpf/unwind/beam.h; doc/runtimes/beam.md says what is read and which source defines it.
 */
#include "agent/runtime/beam/beam.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "base/cleanup.h"
#include "base/str.h"

#define MAX_SHARED (8u << 20)

static bool is_runtime(const struct procman_binary *b)
{
	u64 svma;

	/* Every build exports the functions for NIFs. */
	return str_starts(runtime_file_name(b->path), "beam.") &&
	       runtime_symbol(b->elf, "enif_alloc", &svma, NULL);
}

static void beam_forget(void *learned)
{
	struct beam_learned *l = learned;

	if (!l)
		return;
	free(l->layout);
	free(l->libc);
	free(l);
}

static int beam_learn_binary(const struct procman_binary *b, struct runtime_binary *ret_bpf,
			     void **ret_learned, struct diag *reterr_diag)
{
	struct beam_learned *l = calloc(1, sizeof(*l));
	int r = -ENOMEM;

	if (l) {
		l->layout = calloc(1, sizeof(*l->layout));
		l->libc = calloc(1, sizeof(*l->libc));
	}
	if (l && l->layout && l->libc)
		r = beam_learn(b->elf, b->path, l, reterr_diag);
	if (r < 0) {
		beam_forget(l);
		return r;
	}
	(void)ret_bpf; /* a process has all that the walker needs */
	*ret_learned = l;
	return 0;
}

/* ---- a process ---- */

/*
 * Finds the JIT code that belongs to no module. The emulator makes it first: it is in the mapping
 * of beam_normal_exit, before the first module.
 */
static int place_shared(const struct runtime_target *t, const struct beam_memory *m,
			struct beam_process *p)
{
	const struct procman_mapping *mapping = NULL;
	struct beam_module *modules;
	bool failed = false, frame_pointers = false;
	u64 at;
	u32 n;
	int r = beam_modules(m, m->l->layout->ranges, &at, &n);

	if (r < 0)
		return r;
	if (m->l->bare)
		r = beam_find_stacks(m, m->l->layout, &p->normal_exit, &frame_pointers);
	else
		p->normal_exit = runtime_u64(&t->memory, t->bias + m->l->normal_exit, &failed);
	if (r < 0)
		return r;
	p->frame_pointers = frame_pointers;
	for (u32 i = 0; i < t->process->n; i++)
		if (p->normal_exit >= t->process->mappings[i].start &&
		    p->normal_exit < t->process->mappings[i].end)
			mapping = &t->process->mappings[i];
	if (failed || !mapping)
		return -EAGAIN;
	modules = calloc(n, sizeof(*modules));
	if (!modules)
		return -ENOMEM;
	r = runtime_read(&t->memory, at, modules, n * sizeof(*modules));
	p->shared = (struct runtime_range){mapping->start, mapping->end};
	for (u32 i = 0; i < n; i++)
		if (modules[i].start >= mapping->start && modules[i].start < p->shared.end)
			p->shared.end = modules[i].start;
	free(modules);
	if (r < 0 || p->normal_exit >= p->shared.end)
		return -EAGAIN;
	return p->shared.end - p->shared.start <= MAX_SHARED ? 0 : -EINVAL;
}

/*
 * Finds what a scheduler's loop does to the C stack: sub rsp, SIZE; and rsp, -64; mov [rdi], rsp;
 * lea rbx, [rsp + OFFSET]. Later code returns to the C stack with lea rsp, [rbx - OFFSET].
 */
static int place_loop(const struct beam_memory *m, struct elf_file *elf, struct beam_process *p)
{
	static const u8 sub[] = {0x48, 0x81, 0xec};
	static const u8 then[] = {0x48, 0x83, 0xe4, 0xc0, 0x48, 0x89, 0x27, 0x48, 0x8d};
	size_t n = p->shared.end - p->shared.start;
	_cleanup_free_ u8 *code = malloc(n);
	s32 offset = 0;
	u32 size;

	if (!code)
		return -ENOMEM;
	if (runtime_read(m->memory, p->shared.start, code, n) < 0)
		return -EAGAIN;
	for (size_t i = 0; i + 24 <= n; i++) {
		const u8 *lea = code + i + 7 + sizeof(then);

		if (memcmp(code + i, sub, sizeof(sub)) || memcmp(code + i + 7, then, sizeof(then)))
			continue;
		if (lea[0] == 0x5c && lea[1] == 0x24)
			offset = (s8)lea[2];
		else if (lea[0] == 0x9c && lea[1] == 0x24)
			memcpy(&offset, lea + 2, sizeof(offset));
		memcpy(&size, code + i + 3, sizeof(size));
		if (offset <= 0 || offset > 128 || size > UINT16_MAX)
			continue;
		p->registers = (u16)size;
		p->c_stack = (u8)-offset;
		return m->l->bare && !m->l->layout->known_code
			       ? beam_find_code(m, elf, p, code, n, i, m->l->layout)
			       : 0;
	}
	return -ENOTSUP;
}

/* BPF has little room for a process, and two loads lead to each libc's thread-specific data. */
static int place_scheduler(const struct runtime_chain *c, struct beam_process *p)
{
	if (!c->n || c->n > BEAM_MAX_LOADS)
		return -ENOTSUP;
	for (u32 i = 0; i < c->n; i++) {
		if (c->off[i] != (s32)c->off[i])
			return -ENOTSUP;
		p->scheduler[i] = (s32)c->off[i];
	}
	p->n_loads = (u8)c->n;
	return 0;
}

static void place_code(const struct beam_code *c, struct beam_process *p)
{
	p->dirty = c->dirty;
	p->schedule = c->schedule;
	memcpy(p->calls, c->calls, sizeof(p->calls));
	p->caller = c->caller;
	p->caller_fp = c->caller_fp;
}

static int beam_attach(const struct runtime_target *t, const void *learned,
		       struct runtime_process *ret)
{
	const struct beam_learned *l = learned;
	struct beam_memory m = {.memory = &t->memory, .l = l, .bias = t->bias};
	struct beam_process p = {};
	struct runtime_chain scheduler = {};
	bool failed = false;
	int r = runtime_attach_tls(t, &l->scheduler, l->libc, &scheduler);

	if (r == 0)
		r = place_scheduler(&scheduler, &p);
	if (r == 0 && !l->layout->known)
		r = beam_find_layout(&m, l->layout);
	if (r == 0)
		r = place_shared(t, &m, &p);
	if (r == 0)
		r = place_loop(&m, t->elf, &p);
	if (r < 0)
		return r;
	place_code(l->bare ? &l->layout->code : &l->code, &p);
	p.current = l->layout->current;
	p.stop = l->layout->stop;
	p.heap = l->layout->heap;
	p.initial = l->layout->initial;
	p.registered = l->layout->registered;
	if (l->frame_layout)
		p.frame_pointers = runtime_u32(&t->memory, t->bias + l->frame_layout, &failed) != 0;
	memcpy(ret->room, &p, sizeof(p));
	return 0;
}

static int beam_name_frame(const struct runtime_target *t, const void *learned, u64 address,
			   u64 where, struct runtime_names *ret)
{
	struct beam_memory m = {.memory = &t->memory, .l = learned, .bias = t->bias};

	return beam_name(&m, address, where, ret);
}

static bool beam_covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	const struct beam_learned *l = learned;
	const struct beam_process *b = (const struct beam_process *)p->room;
	u64 svma = avma - p->bias;

	return svma >= l->end || beam_in(&b->dirty, svma);
}

static void beam_describe(const void *learned, char *ret, size_t n)
{
	const struct beam_learned *l = learned;

	snprintf(ret, n, "Erlang/OTP %s (ERTS %s), JIT; offsets from the process's data",
		 l->release, l->version);
}

static void otel_version(const void *learned, char *ret, size_t n)
{
	snprintf(ret, n, "%s", ((const struct beam_learned *)learned)->version);
}

const struct runtime_ops runtime_beam = {
	.is_runtime = is_runtime,
	.learn = beam_learn_binary,
	.forget = beam_forget,
	.attach = beam_attach,
	.name = beam_name_frame,
	.covers = beam_covers,
	.describe = beam_describe,
	.otel_name = "BEAM",
	.otel_version = otel_version,
	.jit_memory = 1u << JIT_MEMORY_ANON | 1u << JIT_MEMORY_SHARED,
};
