/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ELF file: headers, the sections that culprit reads, bytes of segments, and the file inside
 * .gnu_debugdata. All returned bytes must be readable up to the last.
 */
#include <stdint.h>

#include "elf/elf.h"
#include "runtime/go/go.h"
#include "runtime/v8/builtins.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {
	".text",       ".eh_frame",   ".eh_frame_hdr", ".debug_frame",
	".debug_info", ".debug_line", ".gopclntab",    ".gnu_debuglink",
	".symtab",     ".strtab",     ".dynamic",      ".plt",
};
static volatile uint64_t sink;

static void touch(struct buf b)
{
	uint64_t sum = 0;

	/* At least one byte of each page, and the last byte. */
	for (const uint8_t *p = b.pos; p < b.end; p += 512)
		sum += *p;
	if (buf_left(&b))
		sum += b.end[-1];
	sink += sum;
}

static void use(struct elf_file *f)
{
	struct v8_builtins builtins = {};
	char text[256];
	struct elf_section s;
	struct buf b;
	u64 svma;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		(void)elf_file_section(f, names[i], &s, NULL);
		if (elf_file_section(f, names[i], &s, &b) == 0)
			touch(b);
	}
	for (u32 i = 0; i < f->n_segments; i++) {
		const struct elf_segment *seg = &f->segments[i];
		u8 copy[64];
		ssize_t n = elf_file_copy(f, seg->svma, sizeof(copy), copy);

		if (n > 0)
			touch(buf_of(copy, (size_t)n));
		if (elf_file_bytes(f, seg->svma + seg->filesz / 2, 16, &b) == 0)
			touch(b);
		(void)elf_file_svma_of_foff(f, seg->foff, &svma);
	}
	touch(buf_of(f->build_id, f->build_id_n));
	if (v8_builtins_find(f, &builtins) == 0)
		v8_builtins_deinit(&builtins);
	(void)go_describe(f, text, sizeof(text));
	if (f->n_segments && elf_file_relocated(f, f->segments[0].svma, 64, &b) == 0)
		touch(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_elf_file_ struct elf_file *f = NULL, *mini = NULL;

	if (elf_file_open_memory(data, size, NULL, &f) < 0)
		return 0;
	use(f);
	if (elf_file_minidebuginfo(f, &mini) == 0)
		use(mini);
	return 0;
}
