/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library of PCRE2: what the walker is told about its functions.
 *
 *	u16	where pcre2_jit_match_8 is in the image, and its size
 *	u16	where .eh_frame begins in the image
 *	rest	the image: code, unwind information and text
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/elfwriter.h"
#include "abi/runtime_pcre2.h"
#include "agent/runtime/runtime.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IMAGE 0x1000 /* svma */
#define HEAD 6
#define MAX_IMAGE 32768

static void write_library(const u8 *head, const u8 *image, size_t n, struct elfw *w)
{
	static const char strings[] = "\0pcre2_jit_match_8";
	Elf64_Sym symbols[2] = {};
	u16 place[3];

	memcpy(place, head, sizeof(place));
	place[2] %= n;
	symbols[1] = (Elf64_Sym){
		.st_name = 1,
		.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
		.st_shndx = 1,
		.st_value = IMAGE + place[0] % n,
		.st_size = place[1],
	};
	w->machine = EM_X86_64;
	elfw_section(w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, IMAGE, image, n);
	elfw_section(w, ".dynsym", SHT_DYNSYM, 0, 0, symbols, sizeof(symbols));
	elfw_section(w, ".dynstr", SHT_STRTAB, 0, 0, strings, sizeof(strings));
	elfw_section(w, ".eh_frame", SHT_PROGBITS, SHF_ALLOC, IMAGE + place[2], image + place[2],
		     n - place[2]);
	elfw_section(w, ".rodata", SHT_PROGBITS, SHF_ALLOC, IMAGE, image, n);
	elfw_segment(w, PT_LOAD, PF_R | PF_X, IMAGE, n, ".text");
	elfw_finish(w);
}

static void learn(struct elf_file *elf)
{
	char path[] = "/usr/lib/libpcre2-8.so.0", text[256];
	struct procman_binary b = {.kind = PROCMAN_FILE, .path = path, .elf = elf};
	struct runtime_binary bpf = {};
	const struct pcre2_binary *p = (const struct pcre2_binary *)bpf.room;
	void *learned = NULL;

	(void)runtime_pcre2.is_runtime(&b);
	if (runtime_pcre2.learn(&b, &bpf, &learned, NULL) < 0)
		return;
	if (p->n_sites > PCRE2_MAX_SITES || p->match.end <= p->match.start)
		abort();
	for (u32 i = 0; i < p->n_sites; i++) {
		u64 call = p->sites[i] - 1;

		if (!runtime_in(&p->match, call) && !runtime_in(&p->machine, call))
			abort();
	}
	runtime_pcre2.describe(learned, text, sizeof(text));
	runtime_pcre2.forget(learned);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf_file *elf = NULL;
	struct elfw w = {};

	if (size <= HEAD)
		return 0;
	write_library(data, data + HEAD, MIN(size - HEAD, (size_t)MAX_IMAGE), &w);
	if (elf_file_open_memory((u8 *)w.out.data, w.out.n, NULL, &elf) == 0) {
		learn(elf);
		elf_file_destroy(elf);
	}
	str_deinit(&w.out);
	return 0;
}
