/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LuaJIT: a binary, and functions and traces in memory. Both are one image: the fuzzer learns it as
 * a file, and names frames in a copy of it, which is this process's own memory, so that wild
 * pointers lead to readable memory, too.
 *
 *	byte 0	bits 0 and 1: kind of the frame (enum luajit_kind); unless bit 2 is set, the
 *		caller names it
 *	byte 1	the position in the caller
 *	u16	where the object and the caller's GCproto are
 *	u16	the position in the object
 *	rest	the image; a word 0xfffeNNNN in it is the address of its byte NNNN, 0xfffdNNNN the
 *		same less 8 * 0x8000, as a trace refers to its constants, and 0xfffcNNNN the same
 *		<< 8, as a snapshot has the pc
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/elfwriter.h"
#include "agent/runtime/luajit/luajit.h"
#include "base/arena.h"
#include "base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IMAGE 0x1000 /* svma */
#define HEAD 8
#define MAX_IMAGE 65536
#define LEAST_IMAGE 256

struct image {
	const u8 *head;
	u8 *bytes; /* owned */
	size_t n;
};

static u16 u16_at(const u8 *p)
{
	u16 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static u64 word(const u8 *p, u32 off)
{
	u64 v;

	memcpy(&v, p + off, sizeof(v));
	return v;
}

static void write_image(const struct image *m, struct elfw *w)
{
	static const char version[] = "LuaJIT 2.1.1703358377";

	w->machine = EM_X86_64;
	elfw_section(w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, IMAGE, m->bytes, m->n);
	elfw_section(w, ".eh_frame", SHT_PROGBITS, SHF_ALLOC, IMAGE, m->bytes, m->n);
	elfw_section(w, ".rodata", SHT_PROGBITS, 0, 0, version, sizeof(version));
	elfw_segment(w, PT_LOAD, PF_R | PF_X, IMAGE, m->n, ".text");
	elfw_finish(w);
}

static void make_pointers(const struct image *m)
{
	for (size_t at = 0; at + 8 <= m->n; at += 8) {
		u64 v = word(m->bytes, (u32)at), to = (u64)m->bytes + (v & 0xffff) % m->n;

		if (v >> 16 == 0xfffe)
			v = to;
		else if (v >> 16 == 0xfffd)
			v = to - 8 * 0x8000;
		else if (v >> 16 == 0xfffc)
			v = to << 8;
		else
			continue;
		memcpy(m->bytes + at, &v, 8);
	}
}

/* The cookie that the walker would send. */
static u64 cookie_of(const u8 *object, u32 kind)
{
	switch (kind) {
	case LUAJIT_LUA:
		return luajit_cookie(word(object, LUAJIT_PROTO_CHUNK),
				     word(object, LUAJIT_PROTO_LINES),
				     (u32)word(object, LUAJIT_PROTO_SIZE));
	case LUAJIT_C:
		return luajit_cookie(word(object, LUAJIT_FUNCTION_C), object[LUAJIT_FUNCTION_FFID],
				     0);
	default:
		return luajit_cookie(word(object, LUAJIT_TRACE_PC),
				     word(object, LUAJIT_TRACE_MCODE),
				     u16_at(object + LUAJIT_TRACE_NUMBER));
	}
}

static void name_frame(const struct image *m)
{
	const struct runtime_memory memory = {.pid = (u32)getpid()};
	_cleanup_arena_ struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	size_t most = m->n - LUAJIT_TRACE_BYTES - 8;
	u32 kind = m->head[0] & 3;
	const u8 *object = m->bytes + (u16_at(m->head + 2) % most & ~7ULL);
	const u8 *caller = m->bytes + (u16_at(m->head + 4) % most & ~7ULL);
	u64 where = cookie_of(object, kind) | (u64)kind << LUAJIT_KIND_SHIFT | u16_at(m->head + 6);

	if (!(m->head[0] & 4)) {
		where |= LUAJIT_NAMED;
		names.caller = (u64)caller;
		names.caller_where = cookie_of(caller, LUAJIT_LUA) | m->head[1];
	}
	if (luajit_name(&memory, (u64)object, where, &names) < 0)
		return;
	if (!names.n || names.n > RUNTIME_MAX_INLINED)
		abort();
	for (u32 i = 0; i < names.n; i++)
		if (!names.frames[i].function || !names.frames[i].file)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct luajit_learned l;
	struct elf_file *elf = NULL;
	struct image m = {.head = data};
	struct elfw w = {};

	if (size < HEAD + LEAST_IMAGE)
		return 0;
	m.n = MIN(size - HEAD, (size_t)MAX_IMAGE) & ~7ULL;
	m.bytes = aligned_alloc(8, m.n);
	if (!m.bytes)
		return 0;
	memcpy(m.bytes, data + HEAD, m.n);
	write_image(&m, &w);
	make_pointers(&m);
	if (elf_file_open_memory((u8 *)w.out.data, w.out.n, NULL, &elf) == 0) {
		/* BPF must be able to use any accepted binary. */
		if (luajit_learn(elf, &l, NULL) == 0 &&
		    (l.bpf.start >= l.bpf.end || l.bpf.vmstate <= 0 || l.bpf.traces <= 0 ||
		     l.bpf.jit_base <= 0))
			abort();
		elf_file_destroy(elf);
	}
	name_frame(&m);
	str_deinit(&w.out);
	free(m.bytes);
	return 0;
}
