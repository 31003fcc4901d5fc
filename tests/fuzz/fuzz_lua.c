/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lua: a binary, and functions in memory. Both are one image: the fuzzer learns it as a file, and
 * names frames in a copy of it, which is this process's own memory, so that wild pointers lead to
 * readable memory, too.
 *
 *	byte 0	version, of the list below; 0x80: luaV_execute is a symbol
 *	byte 1	bits 0 and 1: kind of the frame; unless bit 2 is set, the caller names it
 *	u16	where the functions lua_callk or luaV_execute, the Proto, and the caller's Proto are
 *	u8	the position in each of the two
 *	rest	the image; a word 0xfffeNNNN in it is the address of its byte NNNN
 */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/elfwriter.h"
#include "agent/runtime/lua/lua.h"
#include "base/arena.h"
#include "base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IMAGE 0x1000 /* svma */
#define HEAD 10
#define MAX_IMAGE 32768
#define FUNCTION_BYTES 4096

static const char *const versions[] = {
	"$Lua: Lua 5.1.5 Copyright", "$LuaVersion: Lua 5.3.0 ", "$LuaVersion: Lua 5.3.6 ",
	"$LuaVersion: Lua 5.4.0 ",   "$LuaVersion: Lua 5.4.2 ", "$LuaVersion: Lua 5.4.6 ",
	"$LuaVersion: Lua 5.5.0 ",   "$LuaVersion: Lua 5.2.4 ",
};

struct image {
	const u8 *head;
	u8 *bytes; /* owned */
	size_t n;
};

/* The n-th place of the head, at which `room` bytes of the image are. */
static u16 place(const struct image *m, u32 n, size_t room)
{
	u16 at;

	memcpy(&at, m->head + 2 + 2 * (size_t)n, sizeof(at));
	return (u16)(at % (m->n - room)) & ~7;
}

static void write_image(const struct image *m, struct elfw *w)
{
	static const char strings[] = "\0lua_callk\0luaV_execute";
	const char *version = versions[(m->head[0] & 0x7f) % ARRAY_SIZE(versions)];
	Elf64_Sym symbols[2] = {};

	w->machine = EM_X86_64;
	symbols[1] = (Elf64_Sym){
		.st_name = m->head[0] & 0x80 ? 11 : 1,
		.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
		.st_shndx = 1,
		.st_value = IMAGE + place(m, 0, 128),
		.st_size = MIN(m->n, (size_t)FUNCTION_BYTES),
	};
	elfw_section(w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, IMAGE, m->bytes, m->n);
	elfw_section(w, ".dynsym", SHT_DYNSYM, 0, 0, symbols, sizeof(symbols));
	elfw_section(w, ".dynstr", SHT_STRTAB, 0, 0, strings, sizeof(strings));
	elfw_section(w, ".eh_frame", SHT_PROGBITS, SHF_ALLOC, IMAGE, m->bytes, m->n);
	elfw_section(w, ".rodata", SHT_PROGBITS, 0, 0, version, strlen(version) + 1);
	elfw_segment(w, PT_LOAD, PF_R | PF_X, IMAGE, m->n, ".text");
	elfw_finish(w);
}

static void make_pointers(const struct image *m)
{
	u64 word;

	for (size_t at = 0; at + 8 <= m->n; at += 8) {
		memcpy(&word, m->bytes + at, 8);
		if (word >> 16 != 0xfffe)
			continue;
		word = (u64)m->bytes + word % m->n;
		memcpy(m->bytes + at, &word, 8);
	}
}

/* What the walker would send for the Proto at a place. */
static u64 where_of(const struct image *m, const struct lua_binary *b, u16 at, u8 position)
{
	u64 source, lines;
	u32 n_code;

	memcpy(&source, m->bytes + at + b->proto_source, sizeof(source));
	memcpy(&lines, m->bytes + at + b->proto_lines, sizeof(lines));
	memcpy(&n_code, m->bytes + at + b->proto_n_code, sizeof(n_code));
	return lua_cookie(source, lines, n_code) |
	       (position == 0xff ? LUA_NO_POSITION : (u64)position);
}

static void name_frame(const struct image *m, const struct lua_learned *l)
{
	const struct runtime_memory memory = {.pid = (u32)getpid()};
	_cleanup_arena_ struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	u16 at = place(m, 1, LUA_PROTO_BYTES), caller = place(m, 2, LUA_PROTO_BYTES);
	u64 where = where_of(m, &l->bpf, at, m->head[8]) | (u64)(m->head[1] & 3) << LUA_KIND_SHIFT;

	if (!(m->head[1] & 4)) {
		where |= LUA_NAMED;
		names.caller = (u64)m->bytes + caller;
		names.caller_where = where_of(m, &l->bpf, caller, m->head[9]);
	}
	if (lua_name(&memory, l, (u64)m->bytes + at, where, &names) == 0 &&
	    (names.n != 1 || !names.frames[0].function || !names.frames[0].file))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lua_learned l = {};
	struct elf_file *elf = NULL;
	struct image m = {.head = data};
	struct elfw w = {};
	int r = -1;

	if (size < HEAD + 2 * LUA_PROTO_BYTES)
		return 0;
	m.n = MIN(size - HEAD, (size_t)MAX_IMAGE) & ~7ULL;
	m.bytes = aligned_alloc(8, m.n);
	if (!m.bytes)
		return 0;
	memcpy(m.bytes, data + HEAD, m.n);
	write_image(&m, &w);
	make_pointers(&m);
	if (elf_file_open_memory((u8 *)w.out.data, w.out.n, NULL, &elf) == 0) {
		r = lua_learn(elf, &l, NULL);
		if (r == 0 && (!l.bpf.n_loops || l.bpf.n_loops > LUA_MAX_RANGES))
			abort();
		elf_file_destroy(elf);
	}
	if (r < 0) {
		l.version = 0x0501 + (data[0] & 0x7f) % 5;
		r = lua_offsets(&l);
	}
	if (r == 0)
		name_frame(&m, &l);
	str_deinit(&w.out);
	free(m.bytes);
	return 0;
}
