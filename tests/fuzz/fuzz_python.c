/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython: a damaged binary, tables of lines, machine code, and objects in memory. The objects are
 * in this process's own memory, so that wild pointers lead to readable memory, too.
 *
 *	byte 0	chooses what the rest is
 *	byte 1	minor version
 *	rest	a binary; a table of lines; objects: a code object and what its pointers point to;
 *		machine code; or the addresses of symbols and an image, which is both a program's
 *		file and its memory: the fuzzer learns the file, attaches to the process and names
 *		frames
 */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/elfwriter.h"
#include "agent/runtime/python/python.h"
#include "base/arena.h"
#include "base/cleanup.h"
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
		/* BPF must be able to use any accepted binary. */
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
	/* Let three pointers lead to any place in the image. */
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
	/* The terms of a value must exist. */
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

/* ---- a program and its memory ---- */

#define IMAGE 0x1000 /* svma */
#define MAX_IMAGE 32768

static const char *const symbol_names[] = {
	"_PyEval_EvalFrameDefault",
	"_PyRuntime",
	"Py_Version",
	"PyGILState_GetThisThreadState",
	"_PyThreadState_GetCurrent",
	"PyInterpreterState_Head",
	"PyInterpreterState_Next",
	"PyInterpreterState_ThreadHead",
	"PyThreadState_Next",
	"pthread_getspecific",
};
#define N_SYMBOLS ARRAY_SIZE(symbol_names)

struct image {
	u8 flags; /* 1: arm64, 2: no dynamic symbols, 4: has the marks of _Py_DebugOffsets */
	u8 minor;
	/* Places of the symbols; the last two: .eh_frame and .rela.dyn, which last to the end. */
	u16 at[N_SYMBOLS + 2];
	u8 *bytes;
	size_t n;
};

static void write_image(const struct image *m, struct elfw *w)
{
	Elf64_Sym symbols[N_SYMBOLS + 1] = {};
	struct str names = {};
	bool dynamic = !(m->flags & 2);

	w->machine = m->flags & 1 ? EM_AARCH64 : EM_X86_64;
	str_putc(&names, 0);
	for (u32 i = 0; i < N_SYMBOLS; i++) {
		symbols[i + 1] = (Elf64_Sym){
			.st_name = (u32)names.n,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			.st_shndx = 1,
			.st_value = IMAGE + m->at[i] % m->n,
			.st_size = i ? 64 : m->n - m->at[i] % m->n,
		};
		str_append(&names, symbol_names[i], strlen(symbol_names[i]) + 1);
	}
	elfw_section(w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, IMAGE, m->bytes, m->n);
	elfw_section(w, dynamic ? ".dynsym" : ".symtab", dynamic ? SHT_DYNSYM : SHT_SYMTAB, 0, 0,
		     symbols, sizeof(symbols));
	elfw_section(w, dynamic ? ".dynstr" : ".strtab", SHT_STRTAB, 0, 0, names.data, names.n);
	for (u32 i = 0; i < 2; i++) {
		size_t from = m->at[N_SYMBOLS + i] % m->n;

		elfw_section(w, i ? ".rela.dyn" : ".eh_frame", i ? SHT_RELA : SHT_PROGBITS,
			     SHF_ALLOC, IMAGE + from, m->bytes + from, m->n - from);
	}
	elfw_segment(w, PT_LOAD, PF_R | PF_W | PF_X, IMAGE, m->n, ".text");
	elfw_finish(w);
	str_deinit(&names);
}

static void check_chain(int r, const struct runtime_chain *c)
{
	if (r == 0 && c->n > RUNTIME_MAX_CHAIN)
		abort();
}

/* Attaches to a process that has the learned image in its memory, and names frames in it. */
static void use_learned(const struct image *m, struct elf_file *elf, const struct python_learned *l)
{
	struct procman_binary binary = {
		.file_id = 1, .path = (char *)"/usr/bin/python3", .elf = elf};
	struct procman_mapping mapping = {.start = (u64)m->bytes, .binary = &binary};
	struct procman_process process = {.pid = (u32)getpid(), .mappings = &mapping, .n = 1};
	const struct runtime_target t = {.memory.pid = (u32)getpid(),
					 .process = &process,
					 .elf = elf,
					 .bias = (u64)m->bytes - IMAGE};
	_cleanup_arena_ struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	struct runtime_chain chain = {};
	u64 code[PYTHON_CODE_BYTES / 8] = {}, cookie;
	const u32 *id = l->bpf.code_id;

	check_chain(python_attach_thread(&t, l, &l->bound, &chain), &chain);
	check_chain(python_attach_thread(&t, l, &l->current, &chain), &chain);
	for (u32 kind = 0; kind <= RUNTIME_TLS_KEY; kind++) {
		const struct runtime_tls tls = {.kind = kind, .slot = IMAGE + m->at[1] % m->n + 4};

		check_chain(python_attach_thread(&t, l, &tls, &chain), &chain);
	}
	for (size_t at = 0; at + sizeof(code) <= m->n && at < 1024; at += 64) {
		memcpy(code, m->bytes + at, sizeof(code));
		cookie = python_cookie(code[id[0] / 8], code[id[1] / 8], code[id[2] / 8],
				       code[id[3] / 8]);
		(void)python_name(&t.memory, l, (u64)m->bytes + at, cookie << 32 | m->flags,
				  &names);
	}
}

/* Turns words 0xfffeNNNN into pointers to byte NNNN: random bytes would never be valid pointers. */
static void make_pointers(const struct image *m, u8 *bytes)
{
	u64 word;

	for (size_t at = 0; at + 8 <= m->n; at += 8) {
		memcpy(&word, bytes + at, 8);
		if (word >> 16 != 0xfffe)
			continue;
		word = (u64)m->bytes + word % m->n;
		memcpy(bytes + at, &word, 8);
	}
}

static void fuzz_program(const u8 *data, size_t size, u8 minor)
{
	struct runtime_libc libc = {};
	struct python_learned l = {.libc = &libc};
	struct image m = {.minor = minor};
	struct elf_file *elf = NULL;
	struct elfw w = {};
	char path[32];

	if (size < 1 + sizeof(m.at) + 512)
		return;
	m.flags = data[0];
	memcpy(m.at, data + 1, sizeof(m.at));
	m.n = MIN(size - 1 - sizeof(m.at), (size_t)MAX_IMAGE) & ~7ULL;
	m.bytes = malloc(m.n);
	if (!m.bytes)
		return;
	memcpy(m.bytes, data + 1 + sizeof(m.at), m.n);
	if (m.flags & 4) {
		u64 words[3] = {0, (0x0300ULL | minor) << 16, m.flags >> 3 & 1};
		u32 hex = (0x0300U | minor) << 16;

		m.at[1] = (u16)(m.at[1] % (m.n - sizeof(words)) & ~7ULL);
		m.at[2] = (u16)(m.at[2] % (m.n - sizeof(hex)));
		memcpy(words, "xdebugpy", 8);
		memcpy(m.bytes + m.at[2], &hex, sizeof(hex));
		memcpy(m.bytes + m.at[1], words, sizeof(words));
	}
	write_image(&m, &w);
	make_pointers(&m, m.bytes);
	snprintf(path, sizeof(path), "/usr/bin/python3.%u", minor);
	if (elf_file_open_memory((u8 *)w.out.data, w.out.n, NULL, &elf) == 0) {
		(void)runtime_learn_libc(elf, &libc);
		if (!python_is_name(path))
			abort();
		(void)python_has_loop(elf);
		if (python_learn(elf, path, &l, NULL) == 0)
			use_learned(&m, elf, &l);
		elf_file_destroy(elf);
	}
	str_deinit(&w.out);
	free(m.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 3)
		return 0;
	switch (data[0] % 5) {
	case 0:
		fuzz_file(data[1] % 20, data + 2, size - 2);
		break;
	case 1:
		fuzz_lines(data + 2, size - 2);
		break;
	case 2:
		fuzz_objects(data[1] % 20, data + 2, size - 2);
		break;
	case 3:
		fuzz_code(data[1], data + 2, size - 2);
		break;
	default:
		fuzz_program(data + 2, size - 2, data[1] % 20);
	}
	return 0;
}
