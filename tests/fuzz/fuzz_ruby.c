/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ruby: a damaged binary, a program whose code and tables are any bytes, and objects in memory. The
 * objects are in this process's own memory, so that wild pointers lead to readable memory, too.
 *
 *	byte 0	chooses what the rest is
 *	byte 1	chooses the version
 *	rest	a binary; the places of symbols and sections, and an image; or objects
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/elfwriter.h"
#include "agent/runtime/ruby/ruby.h"
#include "base/arena.h"
#include "base/cleanup.h"

#define IMAGE 0x1000 /* svma */
#define MAX_IMAGE 32768

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const u32 versions[] = {0x0207, 0x0301, 0x0303, 0x0304};
static const char *const version_texts[] = {"2.7.4", "3.1.2", "3.3.8", "3.4.11"};

/* BPF must be able to use any accepted binary. */
static void learn(struct elf_file *elf, struct ruby_learned *l)
{
	if (ruby_learn(elf, l, NULL) < 0)
		return;
	if (l->bpf.n_execs > RUBY_MAX_RANGES || l->bpf.n_cores > RUBY_MAX_RANGES ||
	    l->bpf.n_callers > RUBY_MAX_RANGES || !l->bpf.n_execs ||
	    l->bpf.frame_bytes > 8 * RUBY_FRAME_WORDS || l->bpf.frame_jit >= RUBY_FRAME_WORDS)
		abort();
}

static void fuzz_file(const u8 *data, size_t size)
{
	struct ruby_learned l = {};
	struct elf_file *elf = NULL;

	if (elf_file_open_memory(data, size, NULL, &elf) < 0)
		return;
	learn(elf, &l);
	elf_file_destroy(elf);
}

/* ---- a program ---- */

static const char *const symbol_names[] = {"rb_errinfo", "ruby_native_thread_p", "rb_id2str",
					   "ruby_version"};
static const struct {
	const char *name;
	u32 type;
} sections[] = {
	{".eh_frame", SHT_PROGBITS}, {".data.rel.ro", SHT_PROGBITS}, {".rela.dyn", SHT_RELA}};
#define N_SYMBOLS ARRAY_SIZE(symbol_names)

static void fuzz_program(u32 version, const u8 *data, size_t size)
{
	u16 at[N_SYMBOLS + ARRAY_SIZE(sections)];
	Elf64_Sym symbols[N_SYMBOLS + 1] = {};
	struct ruby_learned l = {};
	struct elf_file *elf = NULL;
	struct str names = {};
	struct elfw w = {};
	u8 *image;
	size_t n;

	if (size < 1 + sizeof(at) + 512)
		return;
	w.machine = data[0] & 1 ? EM_AARCH64 : EM_X86_64;
	memcpy(at, data + 1, sizeof(at));
	n = MIN(size - 1 - sizeof(at), (size_t)MAX_IMAGE) & ~7ULL;
	image = malloc(n);
	if (!image)
		return;
	memcpy(image, data + 1 + sizeof(at), n);
	str_putc(&names, 0);
	for (u32 i = 0; i < N_SYMBOLS; i++) {
		u64 place = at[i] % (n - 16);

		if (i == N_SYMBOLS - 1)
			memcpy(image + place, version_texts[version],
			       strlen(version_texts[version]) + 1);
		symbols[i + 1] = (Elf64_Sym){
			.st_name = (u32)names.n,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			.st_shndx = 1,
			.st_value = IMAGE + place,
			.st_size = 16,
		};
		str_append(&names, symbol_names[i], strlen(symbol_names[i]) + 1);
	}
	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, IMAGE, image, n);
	elfw_section(&w, ".dynsym", SHT_DYNSYM, 0, 0, symbols, sizeof(symbols));
	elfw_section(&w, ".dynstr", SHT_STRTAB, 0, 0, names.data, names.n);
	for (u32 i = 0; i < ARRAY_SIZE(sections); i++) {
		size_t from = at[N_SYMBOLS + i] % n & ~7ULL;

		elfw_section(&w, sections[i].name, sections[i].type, SHF_ALLOC, IMAGE + from,
			     image + from, n - from);
	}
	elfw_segment(&w, PT_LOAD, PF_R | PF_W | PF_X, IMAGE, n, ".text");
	elfw_finish(&w);
	if (elf_file_open_memory((u8 *)w.out.data, w.out.n, NULL, &elf) == 0) {
		learn(elf, &l);
		elf_file_destroy(elf);
	}
	str_deinit(&names);
	str_deinit(&w.out);
	free(image);
}

/* ---- objects ---- */

/* Names a frame for each pair of addresses that the words of the image and `data` make. */
static void fuzz_objects(u32 version, const u8 *data, size_t size)
{
	static u64 image[512];
	struct runtime_memory m = {.pid = (u32)getpid()};
	struct ruby_learned l = {.layout = *ruby_layout(versions[version]), .symbols = 64};
	u64 definition, iseq, *body, *method;

	memset(image, 0, sizeof(image));
	memcpy(image, data, MIN(size, sizeof(image)));
	/* Words 0xfffeNNNN become pointers: random bytes would never be valid ones. */
	for (u32 i = 0; i < ARRAY_SIZE(image); i++)
		if (image[i] >> 16 == 0xfffe)
			image[i] = (u64)image + (image[i] & (sizeof(image) - 1));
	for (u32 i = 0; i < 64; i++) {
		struct arena arena = ARENA_INIT(1 << 20);
		struct runtime_names names = {.arena = &arena};

		iseq = (u64)(image + image[i] % 256);
		/* Its body is the image's or nowhere. */
		body = image + (image[image[i] % 256 + 2] - (u64)image) / 8 % 256;
		method = image + (image[i] >> 8) % 256;
		definition = i & 1 ? method[RUBY_METHOD_BODY / 8] : 0;
		if (ruby_name(&m, &l, (u64)image,
			      iseq >> 3 |
				      (ruby_cookie(body, definition) & RUBY_COOKIE_MASK)
					      << RUBY_ADDRESS_BITS |
				      (i & 1 ? RUBY_IN_C : 0),
			      (u64)method >> 3 | (image[i] >> 16 & RUBY_NO_POSITION)
							 << RUBY_ADDRESS_BITS,
			      &names) == 0 &&
		    (names.n != 1 || !names.frames[0].function))
			abort();
		arena_deinit(&arena);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	u32 version;

	if (size < 3)
		return 0;
	version = data[1] % ARRAY_SIZE(versions);
	if (data[0] % 3 == 0)
		fuzz_file(data + 2, size - 2);
	else if (data[0] % 3 == 1)
		fuzz_program(version, data + 2, size - 2);
	else
		fuzz_objects(version, data + 2, size - 2);
	return 0;
}
