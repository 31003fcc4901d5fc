/* SPDX-License-Identifier: Apache-2.0 */
/* Good and damaged ELF files, written byte by byte; and installed files, compared with readelf. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <stdio.h>
#include <sys/mman.h>
#include <zlib.h>
#include <zstd.h>

#include "elf/elf.h"
#include "elfwriter.h"
#include "run_tool.h"

static const u8 text_bytes[32] = {0x55, 0x48, 0x89, 0xe5, 0xc3};
static const u8 note_bytes[] = {4, 0, 0,   0,	4,   0, 0,    0,    3,	  0,
				0, 0, 'G', 'N', 'U', 0, 0xde, 0xad, 0xbe, 0xef};

static void add_text(struct elfw *w)
{
	elfw_section(w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0x401040, text_bytes,
		     sizeof(text_bytes));
	elfw_segment(w, PT_LOAD, PF_R | PF_X, 0x401040, sizeof(text_bytes), ".text");
}

static void add_note(struct elfw *w)
{
	elfw_section(w, ".note.gnu.build-id", SHT_NOTE, SHF_ALLOC, 0x400200, note_bytes,
		     sizeof(note_bytes));
	elfw_segment(w, PT_NOTE, PF_R, 0x400200, sizeof(note_bytes), ".note.gnu.build-id");
}

static int open_written(struct elfw *w, struct elf_file **ret)
{
	struct diag d = {};

	return elf_file_open_memory(w->out.data, w->out.n, &d, ret);
}

/* Opens the same bytes through a descriptor, like a real file. */
static int open_as_fd(struct elfw *w, int *ret_fd, struct elf_file **ret)
{
	int fd = memfd_create("elf", MFD_CLOEXEC);

	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, w->out.data, w->out.n), (ssize_t)w->out.n);
	*ret_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return elf_file_open(fd, NULL, ret);
}

Test(elf, sections_segments_and_build_id_from_memory_and_from_a_descriptor)
{
	for (int use_fd = 0; use_fd < 2; use_fd++) {
		struct elfw w = {.entry = 0x401044};
		_cleanup_elf_file_ struct elf_file *f = NULL;
		_cleanup_close_ int fd = -1;
		struct elf_section s;
		struct buf b;

		add_text(&w);
		add_note(&w);
		elfw_finish(&w);
		cr_assert_eq(use_fd ? open_as_fd(&w, &fd, &f) : open_written(&w, &f), 0);
		cr_assert_eq(f->entry, 0x401044);
		cr_assert_eq(f->machine, EM_X86_64);
		cr_assert_eq(f->n_segments, 1);
		cr_assert_eq(f->build_id_n, 4);
		cr_assert_arr_eq(f->build_id, "\xde\xad\xbe\xef", 4);
		cr_assert_eq(elf_file_section(f, ".text", &s, &b), 0);
		cr_assert_eq(s.svma, 0x401040);
		cr_assert_eq(s.size, sizeof(text_bytes));
		cr_assert_eq(buf_left(&b), sizeof(text_bytes));
		cr_assert_arr_eq(b.pos, text_bytes, sizeof(text_bytes));
		cr_assert_eq(elf_file_section(f, ".nope", &s, &b), -ENOENT);
		cr_assert_eq(elf_file_bytes(f, 0x401044, 4, &b), 0);
		cr_assert_arr_eq(b.pos, text_bytes + 4, 4);
		cr_assert_eq(elf_file_bytes(f, 0x401040 + 31, 2, &b), -ENOENT);
		cr_assert_eq(elf_file_bytes(f, 0x40103f, 1, &b), -ENOENT);
		str_deinit(&w.out);
	}
}

Test(elf, what_is_not_ours_is_told_apart)
{
	struct elfw w = {};
	struct elf_file *f = NULL;

	add_text(&w);
	elfw_finish(&w);
	w.out.data[EI_CLASS] = ELFCLASS32;
	cr_assert_eq(open_written(&w, &f), -ENOTSUP);
	w.out.data[EI_CLASS] = ELFCLASS64;
	w.out.data[EI_DATA] = ELFDATA2MSB;
	cr_assert_eq(open_written(&w, &f), -ENOTSUP);
	w.out.data[EI_DATA] = ELFDATA2LSB;
	((Elf64_Ehdr *)w.out.data)->e_machine = EM_RISCV;
	cr_assert_eq(open_written(&w, &f), -ENOTSUP);
	cr_assert_eq(elf_file_open_memory("#!/bin/sh\necho hello", 20, NULL, &f), -ENOEXEC);
	cr_assert_eq(elf_file_open_memory("", 0, NULL, &f), -ENOEXEC);
	cr_assert_eq(elf_file_open(open("/dev/null", O_RDONLY), NULL, &f), -ENOEXEC);
	cr_assert_eq(elf_file_open(open("/", O_RDONLY), NULL, &f), -ENOEXEC);
	cr_assert_null(f);
	str_deinit(&w.out);
}

Test(elf, lies_about_ranges_are_errors_not_reads)
{
	struct elfw w = {};
	Elf64_Shdr *text;
	Elf64_Phdr *load;
	struct buf b = {};

	add_text(&w);
	elfw_finish(&w);
	text = (Elf64_Shdr *)(w.out.data + ((Elf64_Ehdr *)w.out.data)->e_shoff) + 1;
	load = (Elf64_Phdr *)(w.out.data + sizeof(Elf64_Ehdr));
	for (int i = 0; i < 4; i++) {
		struct elf_file *f = NULL;
		Elf64_Shdr keep = *text;
		Elf64_Phdr keep_load = *load;

		if (i == 0)
			text->sh_size = w.out.n;
		if (i == 1)
			text->sh_offset = ~0ULL - 7;
		if (i == 2)
			text->sh_size = ~0ULL;
		if (i == 3)
			load->p_filesz = load->p_memsz = 1 << 20;
		cr_assert_eq(open_written(&w, &f), 0);
		if (i < 3)
			cr_assert_eq(elf_file_section(f, ".text", NULL, &b), -EINVAL, "%d", i);
		else
			cr_assert_eq(elf_file_bytes(f, 0x401040, 1 << 19, &b), -EINVAL);
		elf_file_destroy(f);
		*text = keep;
		*load = keep_load;
	}
	cr_assert_null(b.pos);
	load->p_vaddr = ~0ULL - 4;
	struct elf_file *f = NULL;
	cr_assert_eq(open_written(&w, &f), -EINVAL);
	str_deinit(&w.out);
}

Test(elf, every_truncation_and_every_flipped_byte_is_survived)
{
	struct elfw w = {};
	size_t full;

	add_text(&w);
	add_note(&w);
	elfw_finish(&w);
	full = w.out.n;
	for (size_t n = 0; n < full * 2; n++) {
		struct elf_file *f = NULL;
		struct buf b;
		size_t flip = n - full;

		if (n >= full)
			w.out.data[flip] = (char)~w.out.data[flip];
		w.out.n = n < full ? n : full;
		if (open_written(&w, &f) == 0) {
			(void)elf_file_section(f, ".text", NULL, &b);
			(void)elf_file_bytes(f, 0x401040, 8, &b);
			elf_file_destroy(f);
		}
		if (n >= full)
			w.out.data[flip] = (char)~w.out.data[flip];
	}
	str_deinit(&w.out);
}

/* Writes a Chdr or "ZLIB" header, and a stream of n bytes that unpacks to `size`. */
static size_t packed(u8 *out, int form, u64 size, const void *stream, size_t n)
{
	size_t head = form < 0 ? 12 : sizeof(Elf64_Chdr);

	if (form < 0) {
		u64 be = __builtin_bswap64(size);

		memcpy(out, "ZLIB", 4);
		memcpy(out + 4, &be, 8);
	} else {
		Elf64_Chdr c = {.ch_type = (u32)form, .ch_size = size, .ch_addralign = 1};

		memcpy(out, &c, sizeof(c));
	}
	memcpy(out + head, stream, n);
	return head + n;
}

Test(elf, compressed_sections_unpack_and_lying_ones_do_not)
{
	static u8 plain[5000], z[6000], zs[6000], a[6100], b2[6100], c[6100], lie[6100], torn[6100];
	struct elfw w = {};
	char want[96];
	_cleanup_elf_file_ struct elf_file *f = NULL;
	uLongf zn = sizeof(z);
	size_t zsn;
	struct elf_section s;
	struct buf b;

	for (size_t i = 0; i < sizeof(plain); i++)
		plain[i] = (u8)(i * i >> 5);
	cr_assert_eq(compress(z, &zn, plain, sizeof(plain)), Z_OK);
	zsn = ZSTD_compress(zs, sizeof(zs), plain, sizeof(plain), 3);
	elfw_section(&w, ".debug_a", SHT_PROGBITS, SHF_COMPRESSED, 0, a,
		     packed(a, ELFCOMPRESS_ZLIB, sizeof(plain), z, zn));
	elfw_section(&w, ".debug_b", SHT_PROGBITS, SHF_COMPRESSED, 0, b2,
		     packed(b2, 2 /* zstd */, sizeof(plain), zs, zsn));
	elfw_section(&w, ".zdebug_c", SHT_PROGBITS, 0, 0, c, packed(c, -1, sizeof(plain), z, zn));
	elfw_section(&w, ".debug_short", SHT_PROGBITS, SHF_COMPRESSED, 0, lie,
		     packed(lie, ELFCOMPRESS_ZLIB, sizeof(plain) + 1, z, zn));
	elfw_section(&w, ".debug_huge", SHT_PROGBITS, SHF_COMPRESSED, 0,
		     &(Elf64_Chdr){.ch_type = ELFCOMPRESS_ZLIB, .ch_size = 1ULL << 30}, 24);
	elfw_section(&w, ".debug_2big", SHT_PROGBITS, SHF_COMPRESSED, 0,
		     &(Elf64_Chdr){.ch_type = ELFCOMPRESS_ZLIB, .ch_size = 1ULL << 60}, 24);
	elfw_section(&w, ".debug_form", SHT_PROGBITS, SHF_COMPRESSED, 0,
		     &(Elf64_Chdr){.ch_type = 77, .ch_size = 4}, 24);
	elfw_section(&w, ".debug_stub", SHT_PROGBITS, SHF_COMPRESSED, 0, "\1\0\0\0", 4);
	elfw_section(&w, ".debug_torn", SHT_PROGBITS, SHF_COMPRESSED, 0, torn,
		     packed(torn, 2 /* zstd */, sizeof(plain), zs, zsn - 1));
	elfw_section(&w, ".debug_gone", SHT_NOBITS, 0, 0, NULL, 512);
	elfw_finish(&w);
	cr_assert_eq(open_written(&w, &f), 0);
	for (const char *const *name = (const char *const[]){".debug_a", ".debug_b", ".debug_c", 0};
	     *name; name++) {
		cr_assert_eq(elf_file_section(f, *name, &s, NULL), 0);
		cr_assert_eq(s.size, sizeof(plain));
		cr_assert_eq(elf_file_section(f, *name, &s, &b), 0, "%s", *name);
		cr_assert_eq(buf_left(&b), sizeof(plain));
		cr_assert_arr_eq(b.pos, plain, sizeof(plain));
	}
	cr_assert_str_eq(f->damage.text, "");
	cr_assert_eq(elf_file_section(f, ".debug_short", NULL, &b), -EINVAL);
	snprintf(want, sizeof(want),
		 ".debug_short: damaged zlib data: a wrong size at offset 0x%zx", 24 + (size_t)zn);
	cr_assert_str_eq(f->damage.text, want);
	/* The first damage of a file is the one that is kept. */
	cr_assert_eq(elf_file_section(f, ".debug_huge", NULL, &b), -EINVAL);
	cr_assert_str_eq(f->damage.text, want);
	cr_assert_eq(elf_file_section(f, ".debug_2big", NULL, &b), -E2BIG);
	cr_assert_eq(elf_file_section(f, ".debug_form", NULL, &b), -ENOTSUP);
	f->damage = (struct diag){};
	cr_assert_eq(elf_file_section(f, ".debug_stub", NULL, &b), -EINVAL);
	cr_assert_str_eq(f->damage.text, ".debug_stub: no whole compression header at offset 0x0");
	f->damage = (struct diag){};
	cr_assert_eq(elf_file_section(f, ".debug_torn", NULL, &b), -EINVAL);
	cr_assert_str_eq(f->damage.text, ".debug_torn: damaged zstd data: Src size is incorrect "
					 "at offset 0x18");
	cr_assert_eq(elf_file_section(f, ".debug_gone", &s, NULL), 0);
	cr_assert_eq(s.size, 512);
	cr_assert_eq(elf_file_section(f, ".debug_gone", NULL, &b), -ENOENT);
	str_deinit(&w.out);
}

Test(elf, minidebuginfo_opens_and_a_damaged_one_does_not)
{
	struct elfw inner = {}, w = {};
	_cleanup_elf_file_ struct elf_file *f = NULL, *mini = NULL;
	char want[96];
	static u8 xz[4096];
	size_t n = 0;
	struct buf b;

	add_text(&inner);
	elfw_finish(&inner);
	cr_assert_eq(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, (u8 *)inner.out.data,
					     inner.out.n, xz, &n, sizeof(xz)),
		     LZMA_OK);
	elfw_section(&w, ".gnu_debugdata", SHT_PROGBITS, 0, 0, xz, n);
	elfw_finish(&w);
	cr_assert_eq(open_written(&w, &f), 0);
	cr_assert_eq(elf_file_minidebuginfo(f, &mini), 0);
	cr_assert_eq(elf_file_section(mini, ".text", NULL, &b), 0);
	cr_assert_arr_eq(b.pos, text_bytes, sizeof(text_bytes));
	elf_file_destroy(take_ptr(mini));
	cr_assert_eq(elf_file_section(f, ".gnu_debugdata", NULL, &b), 0);
	/* The first byte of the checksum of the index, 16 bytes before the end. */
	((u8 *)b.pos)[n - 16] ^= 0xff;
	cr_assert_eq(elf_file_minidebuginfo(f, &mini), -EINVAL);
	snprintf(want, sizeof(want), ".gnu_debugdata: damaged xz data at offset 0x%zx", n - 15);
	cr_assert_str_eq(f->damage.text, want);
	str_deinit(&w.out);
	str_deinit(&inner.out);
}

Test(elf, damage_in_minidebuginfo_is_the_files)
{
	struct elfw inner = {}, w = {};
	_cleanup_elf_file_ struct elf_file *f = NULL, *mini = NULL;
	static u8 xz[4096];
	size_t n = 0;

	add_text(&inner);
	elfw_finish(&inner);
	cr_assert_eq(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, (u8 *)inner.out.data,
					     inner.out.n, xz, &n, sizeof(xz)),
		     LZMA_OK);
	elfw_section(&w, ".gnu_debugdata", SHT_PROGBITS, 0, 0, xz, n);
	elfw_finish(&w);
	cr_assert_eq(open_written(&w, &f), 0);
	cr_assert_eq(elf_file_minidebuginfo(f, &mini), 0);
	cr_assert_eq(elf_file_damaged(mini, ".debug_frame", 0x20, "a damaged FDE"), -EINVAL);
	cr_assert_str_eq(f->damage.text,
			 ".gnu_debugdata: .debug_frame: a damaged FDE at offset 0x20");
	elf_file_destroy(take_ptr(mini));
	str_deinit(&w.out);
	str_deinit(&inner.out);
}

Test(elf, a_section_beyond_the_end_says_where_the_file_ends)
{
	static const u8 bytes[64];
	struct elfw w = {};
	_cleanup_elf_file_ struct elf_file *f = NULL;
	struct elf_section s;
	struct buf b;

	elfw_section(&w, ".debug_info", SHT_PROGBITS, 0, 0, bytes, sizeof(bytes));
	elfw_finish(&w);
	cr_assert_eq(open_written(&w, &f), 0);
	cr_assert_eq(elf_file_section(f, ".debug_info", &s, NULL), 0);
	f->size = s.foff + 16;
	cr_assert_eq(elf_file_section(f, ".debug_info", NULL, &b), -EINVAL);
	cr_assert_str_eq(f->damage.text,
			 ".debug_info: the file ends in the section at offset 0x10");
	str_deinit(&w.out);
}

Test(elf, without_section_headers_segments_give_them)
{
	/* eh_frame_hdr at 0x2000, eh_frame at 0x2010. */
	static const u8 hdr[16] = {1, 0x1b, 3, 0x3b, 12, 0, 0, 0, 0, 0, 0, 0};
	static const u8 frame[24] = {1, 2, 3};
	static u8 both[40];
	struct elfw w = {.no_section_headers = true};
	_cleanup_elf_file_ struct elf_file *f = NULL;
	struct elf_section s;
	struct buf b;

	memcpy(both, hdr, 16);
	memcpy(both + 16, frame, 24);
	add_text(&w);
	add_note(&w);
	elfw_section(&w, "both", SHT_PROGBITS, SHF_ALLOC, 0x2000, both, sizeof(both));
	elfw_segment(&w, PT_LOAD, PF_R, 0x2000, sizeof(both), "both");
	elfw_segment(&w, PT_GNU_EH_FRAME, PF_R, 0x2000, 16, "both");
	elfw_finish(&w);
	cr_assert_eq(open_written(&w, &f), 0);
	cr_assert_eq(f->build_id_n, 4);
	cr_assert_eq(elf_file_section(f, ".eh_frame_hdr", &s, &b), 0);
	cr_assert_eq(s.svma, 0x2000);
	cr_assert_eq(buf_left(&b), 16);
	cr_assert_eq(elf_file_section(f, ".eh_frame", &s, &b), 0);
	cr_assert_eq(s.svma, 0x2010);
	cr_assert_eq(buf_left(&b), 24);
	cr_assert_arr_eq(b.pos, frame, 24);
	str_deinit(&w.out);
}

Test(elf, file_offsets_become_addresses_as_the_kernel_maps_them)
{
	/* lld's layout: read-only data to 0x1010, code from 0x1040 in the same file page. */
	struct elf_segment segments[] = {
		{.svma = 0x200000, .foff = 0, .filesz = 0x1010, .flags = PF_R},
		{.svma = 0x202040, .foff = 0x1040, .filesz = 0x800, .flags = PF_R | PF_X},
	};
	struct elf_file f = {.segments = segments, .n_segments = ARRAY_SIZE(segments)};
	u64 svma = 7;

	cr_assert(elf_file_svma_of_foff(&f, 0x1000, &svma) && svma == 0x202000);
	cr_assert(elf_file_svma_of_foff(&f, 0x1044, &svma) && svma == 0x202044);
	cr_assert(elf_file_svma_of_foff(&f, 0x1008, &svma) && svma == 0x201008);
	cr_assert(elf_file_svma_of_foff(&f, 0, &svma) && svma == 0x200000);
	cr_assert_not(elf_file_svma_of_foff(&f, 0x2000, &svma));
}

Test(elf, a_file_that_shrinks_while_open_is_an_error)
{
	struct elfw w = {};
	_cleanup_elf_file_ struct elf_file *f = NULL;
	_cleanup_close_ int fd = -1;
	struct buf b;

	add_text(&w);
	elfw_finish(&w);
	cr_assert_eq(open_as_fd(&w, &fd, &f), 0);
	cr_assert_eq(ftruncate(fd, 64), 0);
	cr_assert_eq(elf_file_section(f, ".text", NULL, &b), -EINVAL);
	cr_assert_eq(elf_file_bytes(f, 0x401040, 4, &b), -EINVAL);
	str_deinit(&w.out);
}

static const char *const real_files[] = {
	"/bin/bash",
	"/lib/x86_64-linux-gnu/libc.so.6",
	"/lib64/ld-linux-x86-64.so.2",
	"/lib/aarch64-linux-gnu/libc.so.6",
	"/proc/self/exe",
};

static void compare_sections(struct elf_file *f, const char *path)
{
	char *argv[] = {(char *)"readelf", (char *)"-SW", (char *)path, NULL};
	char line[512], name[256], type[32];
	unsigned long long addr, off, size;
	unsigned int n = 0;
	pid_t pid;
	FILE *p = spawn_read(argv, &pid);

	cr_assert_not_null(p);
	while (fgets(line, sizeof(line), p)) {
		char *bracket = strchr(line, ']');
		struct elf_section s;

		if (!bracket ||
		    sscanf(bracket + 1, " %255s %31s %llx %llx %llx", name, type, &addr, &off,
			   &size) != 5 ||
		    !strcmp(name, "NULL"))
			continue;
		cr_assert_eq(elf_file_section(f, name, &s, NULL), 0, "%s %s", path, name);
		cr_assert_eq(s.svma, addr, "%s %s", path, name);
		cr_assert_eq(s.foff, off, "%s %s", path, name);
		n++;
	}
	cr_assert_eq(spawn_done(p, pid), 0);
	cr_assert_gt(n, 10);
}

static void compare_build_id(struct elf_file *f, const char *path)
{
	char *argv[] = {(char *)"readelf", (char *)"-nW", (char *)path, NULL};
	char line[256], text[256] = "", hex[2 * ELF_MAX_BUILD_ID + 2] = "";
	pid_t pid;
	FILE *p = spawn_read(argv, &pid);

	cr_assert_not_null(p);
	while (fgets(line, sizeof(line), p))
		if (strstr(line, "Build ID: "))
			sscanf(strstr(line, "Build ID: "), "Build ID: %255s", text);
	cr_assert_eq(spawn_done(p, pid), 0);
	for (u32 i = 0; i < f->build_id_n; i++)
		snprintf(hex + 2 * i, 3, "%02x", f->build_id[i]);
	cr_assert_str_eq(hex, text, "%s", path);
}

Test(elf, real_files_read_as_readelf_reads_them)
{
	char exe[256];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	cr_assert(n > 0);
	exe[n] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(real_files); i++) {
		const char *path = i + 1 < ARRAY_SIZE(real_files) ? real_files[i] : exe;
		_cleanup_elf_file_ struct elf_file *f = NULL;
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			continue;
		cr_assert_eq(elf_file_open(fd, NULL, &f), 0, "%s", path);
		compare_sections(f, path);
		compare_build_id(f, path);
	}
}
