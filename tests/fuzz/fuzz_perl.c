/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Perl: a binary, and objects in memory. Both are one image: the fuzzer learns it as a file, and
 * names frames in a copy of it, which is this process's own memory, so that wild pointers lead to
 * readable memory, too.
 *
 *	byte 0	1: arm64, 2: without threads, 4: no fuzzing of the version
 *	byte 1	minor version
 *	32 B	where the symbols are in the image
 *	rest	the image; a word 0xfffeNNNN in it is the address of its byte NNNN
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/elfwriter.h"
#include "agent/runtime/perl/perl.h"
#include "base/arena.h"
#include "base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IMAGE 0x1000 /* svma */
#define MAX_IMAGE 32768

static const char *const symbol_names[] = {
	"PL_revision",		"PL_version",	"PL_subversion",  "PL_block_type",
	"PL_op_name",		"PL_ppaddr",	"PL_interp_size", "Perl_cxinc",
	"Perl_runops_standard", "PL_op",	"PL_curcop",	  "PL_curstackinfo",
	"PL_savestack",		"PL_compiling", "PL_thr_key",	  "PL_curinterp",
};
#define N_SYMBOLS ARRAY_SIZE(symbol_names)
#define N_PLAIN (N_SYMBOLS - 2) /* the last two: with threads only */
#define TABLE_BYTES 112

struct image {
	u8 flags, version;
	u16 at[N_SYMBOLS];
	u8 *bytes;
	size_t n;
};

static void write_image(const struct image *m, struct elfw *w)
{
	u32 n = m->flags & 2 ? N_PLAIN : N_SYMBOLS;
	Elf64_Sym symbols[N_SYMBOLS + 1] = {};
	struct str names = {};

	w->machine = m->flags & 1 ? EM_AARCH64 : EM_X86_64;
	str_putc(&names, 0);
	for (u32 i = 0; i < n; i++) {
		symbols[i + 1] = (Elf64_Sym){
			.st_name = (u32)names.n,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			.st_shndx = 1,
			.st_value = IMAGE + m->at[i],
			.st_size = MIN(m->n - m->at[i], (size_t)TABLE_BYTES),
		};
		str_append(&names, symbol_names[i], strlen(symbol_names[i]) + 1);
	}
	elfw_section(w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, IMAGE, m->bytes, m->n);
	elfw_section(w, ".dynsym", SHT_DYNSYM, 0, 0, symbols, (n + 1) * sizeof(symbols[0]));
	elfw_section(w, ".dynstr", SHT_STRTAB, 0, 0, names.data, names.n);
	elfw_section(w, ".eh_frame", SHT_PROGBITS, SHF_ALLOC, IMAGE, m->bytes, m->n);
	elfw_segment(w, PT_LOAD, PF_R | PF_W | PF_X, IMAGE, m->n, ".text");
	elfw_finish(w);
	str_deinit(&names);
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

/* The cookie that the walker would send for an object; its position is the object's own memory. */
static u32 cookie_of(const struct runtime_memory *m, u32 kind, u64 what)
{
	bool failed = false;
	u64 body = runtime_u64(m, what, &failed), words[2] = {};
	u32 name = kind == PERL_NAMED ? PERL_CV_GV : PERL_GV_NAME;
	u32 stash = kind == PERL_NAMED ? PERL_CV_STASH : PERL_GV_STASH;

	if (kind == PERL_REQUIRE) {
		words[0] = body;
		words[1] = runtime_u64(m, what + PERL_SV_VALUE, &failed);
	} else if (kind == PERL_SUB || kind == PERL_NAMED) {
		words[0] = runtime_u64(m, body + name, &failed);
		words[1] = runtime_u64(m, body + stash, &failed);
	}
	return perl_cookie(words[0], words[1], runtime_u32(m, what + PERL_COP_LINE, &failed),
			   runtime_u64(m, what + PERL_COP_FILE, &failed));
}

static void name_objects(const struct image *m, const struct perl_learned *l)
{
	const struct runtime_memory memory = {.pid = (u32)getpid()};
	_cleanup_arena_ struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	u64 bias = (u64)m->bytes - IMAGE;

	for (size_t at = 0; at + 64 <= m->n && at < 1024; at += 64) {
		for (u32 kind = 0; kind < 16; kind++) {
			u64 what = (u64)m->bytes + at;
			u32 cookie = cookie_of(&memory, kind, what);
			u64 address = what >> 3 | (u64)kind << PERL_POINTER_BITS |
				      (u64)(cookie >> PERL_COOKIE_LOW_BITS) << 50;
			u64 where = what >> 3 | (u64)cookie << PERL_POINTER_BITS;

			names.n = 0;
			if (perl_name(&memory, l, bias, address, where, &names) == 0 &&
			    (names.n != 1 || !names.frames[0].function))
				abort();
			(void)perl_name(&memory, l, bias, address | PERL_COMPILING, where, &names);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct perl_learned l = {};
	struct elf_file *elf = NULL;
	struct image m = {};
	struct elfw w = {};

	if (size < 2 + sizeof(m.at) + 128)
		return 0;
	m.flags = data[0];
	m.version = data[1];
	memcpy(m.at, data + 2, sizeof(m.at));
	m.n = MIN(size - 2 - sizeof(m.at), (size_t)MAX_IMAGE) & ~7ULL;
	for (u32 i = 0; i < N_SYMBOLS; i++)
		m.at[i] = (u16)(m.at[i] % m.n);
	m.bytes = aligned_alloc(8, m.n);
	if (!m.bytes)
		return 0;
	memcpy(m.bytes, data + 2 + sizeof(m.at), m.n);
	if (m.flags & 4) {
		m.bytes[m.at[0]] = 5;
		m.bytes[m.at[1]] = m.version;
	}
	write_image(&m, &w);
	make_pointers(&m);
	if (elf_file_open_memory((u8 *)w.out.data, w.out.n, NULL, &elf) == 0) {
		(void)perl_has_loop(elf);
		/* BPF must be able to use any accepted binary. */
		if (perl_learn(elf, &l, NULL) == 0 &&
		    (l.bpf.n_loops > PERL_MAX_LOOPS || l.bpf.n_popped > PERL_MAX_POPPED))
			abort();
		elf_file_destroy(elf);
	}
	l.version = m.version;
	l.threaded = !(m.flags & 2);
	l.interpreter = IMAGE + m.at[N_PLAIN + 1];
	name_objects(&m, &l);
	str_deinit(&w.out);
	free(m.bytes);
	return 0;
}
