/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of foreign bytes say at which offset the bytes are damaged, and in which file. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/log.h"
#include "base/pb.h"
#include "compress/compress.h"
#include "elf/elf.h"
#include "elfwriter.h"
#include "format/format.h"
#include "otlp/otlp.h"
#include "runtime/go/pclntab.h"
#include "symbol/debugfile.h"
#include "symbol/dwarf.h"

/* Returns the offset at the end of a message. Fails the test if there is none. */
static u64 offset_of(const struct diag *d)
{
	const char *at = strstr(d->text, " at offset 0x");
	u64 offset = 0;

	cr_assert(at, "%s", d->text);
	cr_assert_eq(str_to_u64(at + strlen(" at offset 0x"), 16, &offset), 0, "%s", d->text);
	return offset;
}

Test(damage, a_part_counts_from_the_whole)
{
	const u8 bytes[16] = {};
	struct buf whole = buf_of(bytes, sizeof(bytes)), part, inner;

	cr_assert(buf_skip(&whole, 3));
	cr_assert(buf_take(&whole, 8, &part));
	cr_assert(buf_skip(&part, 2));
	cr_assert_eq(buf_offset(&part), 5);
	cr_assert(buf_take(&part, 4, &inner));
	cr_assert_eq(buf_offset(&inner), 5);
	cr_assert_eq(buf_offset(&whole), 11);
	cr_assert_not(buf_skip(&inner, 5));
	cr_assert_eq(buf_offset(&inner), 5);
}

Test(damage, a_long_text_leaves_the_offset)
{
	char text[400];
	struct diag d = {};

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	cr_assert_eq(diag_set_at(&d, -EBADMSG, ~0ULL, "%s", text), -EBADMSG);
	cr_assert_eq(offset_of(&d), ~0ULL);
	cr_assert_eq(strlen(d.text), sizeof(d.text) - 1);
	/* The first error stays. */
	diag_set_at(&d, -EBADMSG, 1, "another");
	cr_assert_eq(offset_of(&d), ~0ULL);
	cr_assert_eq(diag_set_at(NULL, -EBADMSG, 1, "nobody asks"), -EBADMSG);
}

Test(damage, of_compressed_data)
{
	_cleanup_str_ struct str packed = {}, plain = {};
	const u8 zstd[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x00, 0x07, 0x00, 0x00};
	struct diag d = {};

	cr_assert_eq(gzip_deflate("hello hello hello", 17, &packed), 0);
	/* The checksum, which is read last, is wrong. */
	packed.data[packed.n - 8] ^= 1;
	cr_assert_eq(gzip_inflate((u8 *)packed.data, packed.n, 100, &plain, &d), -EBADMSG);
	cr_assert_eq(offset_of(&d), packed.n - 4, "%s", d.text);
	d = (struct diag){};
	cr_assert_eq(gzip_inflate((u8 *)packed.data, 9, 100, &plain, &d), -EBADMSG);
	cr_assert_eq(offset_of(&d), 9);
	d = (struct diag){};
	cr_assert_eq(zstd_inflate(zstd, sizeof(zstd), 100, &plain, &d), -EBADMSG);
	cr_assert_leq(offset_of(&d), sizeof(zstd));
}

Test(damage, of_json)
{
	const char text[] = "{\"a\": [1, 2],\n \"b\": nil}";
	struct diag d = {};
	json_t *j = NULL;

	cr_assert_eq(json_read(text, sizeof(text) - 1, 0, &j, &d), -EBADMSG);
	cr_assert_null(j);
	/* Jansson's position is after the unknown token. */
	cr_assert_eq(offset_of(&d), (u64)(strstr(text, "nil") - text) + 3, "%s", d.text);
	cr_assert(strstr(d.text, "line 2"));
}

/* ExportTraceServiceRequest: resource_spans { scope_spans { spans { trace_id (16 bytes) } } } */
static const u8 spans[] = {0x0a, 22, 0x12, 20, 0x12, 18, 0x0a, 16, 1,  2,  3,  4,
			   5,	 6,  7,	   8,  9,    10, 11,   12, 13, 14, 15, 16};

static int decode_spans(const u8 *data, size_t n, size_t max_bytes, struct diag *d)
{
	_cleanup_spans_ struct spans s = {};
	struct otlp_rejected rejected = {};

	cr_assert_eq(spans_init(&s), 0);
	return otlp_traces_decode(data, n, max_bytes, &s, &rejected, d);
}

Test(damage, of_protocol_buffers)
{
	struct diag d = {};
	u8 bytes[sizeof(spans)];

	cr_assert_eq(decode_spans(spans, sizeof(spans), 1 << 20, &d), 0, "%s", d.text);
	/* In truncated input the outermost field is incomplete. */
	for (size_t n = 1; n < sizeof(spans); n++) {
		d = (struct diag){};
		cr_assert_eq(decode_spans(spans, n, 1 << 20, &d), -EBADMSG, "%zu", n);
		cr_assert_eq(offset_of(&d), 0);
	}
	/* The innermost length is one too large. */
	memcpy(bytes, spans, sizeof(bytes));
	bytes[7]++;
	d = (struct diag){};
	cr_assert_eq(decode_spans(bytes, sizeof(bytes), 1 << 20, &d), -EBADMSG);
	cr_assert_eq(offset_of(&d), 6, "%s", d.text);
	/* The field has the wire type of a number. */
	memcpy(bytes, spans, sizeof(bytes));
	bytes[6] = 0x08;
	d = (struct diag){};
	cr_assert_eq(decode_spans(bytes, sizeof(bytes), 1 << 20, &d), -EBADMSG);
	cr_assert_eq(offset_of(&d), 6, "%s", d.text);
}

Test(damage, too_little_memory_is_not_damage)
{
	struct diag d = {};

	cr_assert_eq(decode_spans(spans, sizeof(spans), 64, &d), -E2BIG);
	cr_assert_str_eq(d.text, "an OTLP traces request that needs more than 64 bytes of memory");
}

static void read_seed(const char *name, struct str *out)
{
	const char *source = getenv("CULPRIT_SOURCE");
	char path[4096], bytes[4096];
	FILE *f;
	size_t n;

	cr_assert(source);
	snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/%s", source, name);
	f = fopen(path, "re");
	cr_assert(f, "%s", path);
	while ((n = fread(bytes, 1, sizeof(bytes), f)) > 0)
		cr_assert_eq(str_append(out, bytes, n), 0);
	fclose(f);
}

/* For a recording of the JDK cut at any place, the message names the file and an offset in it. */
Test(damage, of_a_recording)
{
	_cleanup_str_ struct str jfr = {};

	read_seed("jfr/two_chunks", &jfr);
	for (size_t n = 68; n < jfr.n; n++) {
		struct profile *p = NULL;
		struct diag d = {};
		int r = profile_read_bytes("app.jfr", (u8 *)jfr.data, n, NULL, 1 << 20, &p, &d);

		profile_destroy(p);
		if (r == 0) /* cut between two chunks */
			continue;
		cr_assert(str_starts(d.text, "app.jfr: JFR: "), "%s", d.text);
		cr_assert_leq(offset_of(&d), n);
	}
}

Test(damage, of_a_compressed_file_counts_after_decompression)
{
	_cleanup_str_ struct str jfr = {}, packed = {};
	struct profile *p = NULL;
	struct diag d = {};

	read_seed("jfr/small", &jfr);
	cr_assert_eq(gzip_deflate(jfr.data, jfr.n - 1, &packed), 0);
	cr_assert_eq(profile_read_bytes("app.jfr.gz", (u8 *)packed.data, packed.n, NULL, 1 << 20,
					&p, &d),
		     -EBADMSG);
	cr_assert(str_starts(d.text, "app.jfr.gz, decompressed: JFR: "), "%s", d.text);
	offset_of(&d);
}

Test(damage, of_program_headers)
{
	struct elfw w = {.entry = 0x401044};
	const u8 text[32] = {0xc3};
	Elf64_Ehdr e;
	Elf64_Phdr second;
	struct elf_file *f = NULL;
	struct diag d = {};

	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0x401040, text,
		     sizeof(text));
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, 0x401040, sizeof(text), ".text");
	elfw_segment(&w, PT_LOAD, PF_R, 0x402040, sizeof(text), ".text");
	elfw_finish(&w);
	memcpy(&e, w.out.data, sizeof(e));
	memcpy(&second, w.out.data + e.e_phoff + sizeof(second), sizeof(second));
	second.p_memsz = 1;
	memcpy(w.out.data + e.e_phoff + sizeof(second), &second, sizeof(second));
	cr_assert_eq(elf_file_open_memory(w.out.data, w.out.n, &d, &f), -EINVAL);
	cr_assert_eq(offset_of(&d), e.e_phoff + sizeof(second), "%s", d.text);
	str_deinit(&w.out);
}

/* ---- DWARF ---- */

/* DW_TAG_compile_unit with stmt_list, low_pc, and high_pc as a length. */
static const u8 abbrevs[] = {1, 0x11, 0, 0x10, 0x17, 0x11, 0x01, 0x12, 0x06, 0, 0, 0};
/* Version 4; its DIE, of 16 bytes of code at 0x401000, is at 11. */
static const u8 info[] = {24, 0, 0, 0,	  4,	0, 0, 0, 0, 0, 8,  1, 0, 0,
			  0,  0, 0, 0x10, 0x40, 0, 0, 0, 0, 0, 16, 0, 0, 0};
/* Version 2: the header, its file a.c at 28; at 36 set_address, copy, advance_pc, end_sequence. */
static const u8 lines[] = {49, 0, 0, 0, 2,    0,    26, 0, 0, 0, 1,   1,   0xfb, 14, 13, 0, 1, 1,
			   1,  1, 0, 0, 0,    1,    0,	0, 1, 0, 'a', '.', 'c',	 0,  0,	 0, 0, 0,
			   0,  9, 2, 0, 0x10, 0x40, 0,	0, 0, 0, 0,   1,   2,	 16, 0,	 1, 1};

/* Looks up the line after two bytes of a section were changed. */
static struct diag dwarf_damage(const char *section, size_t at, u8 byte, u8 next, bool *ret_found)
{
	static struct dwarf_chain chain;
	static const u8 ranges[24];
	const struct dwarf_host host = {};
	struct elfw w = {};
	struct elf_file *f = NULL;
	struct dwarf *d = NULL;
	struct diag ret;
	struct buf b;

	elfw_section(&w, ".debug_abbrev", SHT_PROGBITS, 0, 0, abbrevs, sizeof(abbrevs));
	elfw_section(&w, ".debug_info", SHT_PROGBITS, 0, 0, info, sizeof(info));
	elfw_section(&w, ".debug_line", SHT_PROGBITS, 0, 0, lines, sizeof(lines));
	elfw_section(&w, ".debug_ranges", SHT_PROGBITS, 0, 0, ranges, sizeof(ranges));
	elfw_finish(&w);
	cr_assert_eq(elf_file_open_memory(w.out.data, w.out.n, NULL, &f), 0);
	cr_assert_eq(elf_file_section(f, section, NULL, &b), 0);
	((u8 *)b.pos)[at] = byte;
	((u8 *)b.pos)[at + 1] = next;
	cr_assert_eq(dwarf_open(f, &host, &d), 0);
	*ret_found = dwarf_lookup(d, 0x401008, true, true, &chain) == 0 &&
		     !strcmp(chain.frames[0].file, "a.c") && chain.frames[0].line == 1;
	dwarf_close(d);
	ret = f->damage;
	elf_file_destroy(f);
	str_deinit(&w.out);
	return ret;
}

Test(damage, of_dwarf)
{
	static const struct {
		const char *section;
		size_t at;
		u8 byte, next;
		const char *text;
	} cases[] = {
		{".debug_info", 0, 0x7f, 0,
		 ".debug_info: a unit of impossible length at offset 0x0"},
		{".debug_info", 4, 9, 0,
		 ".debug_info: a damaged unit, or one of unknown form at offset 0x0"},
		{".debug_info", 11, 2, 0, ".debug_info: a damaged DIE at offset 0xb"},
		{".debug_abbrev", 1, 0, 0, ".debug_abbrev: a damaged abbreviation at offset 0x2"},
		{".debug_abbrev", 0, 0, 0, ".debug_abbrev: no abbreviations at offset 0x1"},
		/* DW_AT_name, DW_FORM_strp */
		{".debug_abbrev", 3, 0x03, 0x0e, ".debug_str: no string at offset 0x0"},
		/* DW_AT_ranges, DW_FORM_sec_offset */
		{".debug_abbrev", 7, 0x55, 0x17,
		 ".debug_ranges: ranges without end at offset 0x18"},
		{".debug_line", 4, 9, 0, ".debug_line: a damaged table's header at offset 0x0"},
		{".debug_line", 51, 0x7f, 1, ".debug_line: a damaged instruction at offset 0x32"},
		/* Special opcodes, which begin at 2 now, divide by the line range. */
		{".debug_line", 13, 0, 2, ".debug_line: a damaged instruction at offset 0x30"},
	};
	bool found;

	cr_expect_str_eq(dwarf_damage(".debug_info", 0, info[0], info[1], &found).text, "");
	cr_expect(found);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cr_expect_str_eq(dwarf_damage(cases[i].section, cases[i].at, cases[i].byte,
					      cases[i].next, &found)
					 .text,
				 cases[i].text);
		cr_expect_not(found);
	}
}

/* ---- Go's table of functions ---- */

struct go_image { /* the layout of 1.20 */
	u32 magic;
	u16 zero;
	u8 quantum, pointer;
	u64 n_funcs, n_files, text, parts[5];
	u32 functab[5]; /* at 72 */
	u32 func[11];	/* at 92: both functions */
};

/* Opens the table and reads both functions. */
static struct diag go_damage(struct go_image x)
{
	struct elfw w = {};
	struct elf_file *f = NULL;
	struct pclntab t;
	struct go_func func;
	struct diag ret;

	elfw_section(&w, ".gopclntab", SHT_PROGBITS, 0, 0, &x, 136);
	elfw_finish(&w);
	cr_assert_eq(elf_file_open_memory(w.out.data, w.out.n, NULL, &f), 0);
	if (pclntab_open(f, &t) == 0)
		for (u32 i = 0; i < t.n; i++)
			cr_expect_eq(pclntab_func(&t, i, &func), !f->damage.text[0]);
	ret = f->damage;
	elf_file_destroy(f);
	str_deinit(&w.out);
	return ret;
}

Test(damage, of_gos_functions)
{
	const struct go_image whole = {
		.magic = 0xfffffff1,
		.quantum = 1,
		.pointer = 8,
		.n_funcs = 2,
		.text = 0x401000,
		.parts = {72, 72, 72, 72, 72},
		.functab = {0, 20, 16, 20, 32},
	};
	struct go_image x = whole;

	cr_expect_str_eq(go_damage(x).text, "");
	x.magic = 0xfffffff7;
	cr_expect_str_eq(go_damage(x).text,
			 ".gopclntab: a header of unknown version at offset 0x0");
	x = whole;
	x.quantum = 3;
	cr_expect_str_eq(go_damage(x).text, ".gopclntab: a damaged header at offset 0x0");
	x = whole;
	x.parts[4] = 0x1000;
	cr_expect_str_eq(go_damage(x).text, ".gopclntab: parts beyond the end at offset 0x10");
	x = whole;
	x.functab[2] = 64;
	cr_expect_str_eq(go_damage(x).text,
			 ".gopclntab: a function before the previous one at offset 0x58");
	x = whole;
	x.functab[3] = 0x1000;
	cr_expect_str_eq(go_damage(x).text, ".gopclntab: no data of a function at offset 0x54");
	x.functab[3] = 40;
	cr_expect_str_eq(go_damage(x).text,
			 ".gopclntab: damaged data of a function at offset 0x70");
}

/* ---- links to debug files ---- */

static struct diag link_damage(const char *section, const void *bytes, size_t n, const char *path)
{
	const struct debugfile_place place = {.root_fd = -1, .path = path};
	struct elf_file *f = NULL, *found = NULL;
	struct elfw w = {};
	struct diag ret;

	elfw_section(&w, section, SHT_PROGBITS, 0, 0, bytes, n);
	elfw_finish(&w);
	cr_assert_eq(elf_file_open_memory(w.out.data, w.out.n, NULL, &f), 0);
	cr_expect_lt(debugfile_find(f, &place, &found, NULL), 0);
	cr_expect_lt(debugfile_alt(f, &place, path, &found), 0);
	ret = f->damage;
	elf_file_destroy(f);
	str_deinit(&w.out);
	return ret;
}

Test(damage, of_links_to_debug_files)
{
	cr_expect_str_eq(link_damage(".gnu_debuglink", "a.debug\0\1\2\3", 12, "/no/a").text, "");
	cr_expect_str_eq(link_damage(".gnu_debuglink", "/a.debug", 9, "/no/a").text,
			 ".gnu_debuglink: no file name at offset 0x0");
	cr_expect_str_eq(link_damage(".gnu_debuglink", "a.debug\0\1\2", 11, "/no/a").text,
			 ".gnu_debuglink: no checksum at offset 0x8");
	cr_expect_str_eq(link_damage(".gnu_debugaltlink", "a.dwz", 5, "/no/a").text,
			 ".gnu_debugaltlink: no file name at offset 0x0");
	cr_expect_str_eq(link_damage(".gnu_debugaltlink", "a.dwz\0\1", 7, "/no/a").text,
			 ".gnu_debugaltlink: no build-id at offset 0x6");
}

Test(damage, of_a_debug_file_is_logged)
{
	static const u8 head[64] = "\x7f\x45LF\2\1\1"; /* for no machine */
	char path[] = "/tmp/culprit-damage-XXXXXX", altlink[64] = {}, want[128];
	int fd = mkstemp(path);

	memcpy(altlink, path, sizeof(path)); /* and a build-id of two zeros */
	cr_assert_eq(write(fd, head, sizeof(head)), sizeof(head));
	snprintf(want, sizeof(want),
		 "culprit: debug: %s: an ELF file for machine 0, not x86-64 or arm64 at offset "
		 "0x12\n",
		 path);
	log_set_level(LOG_LEVEL_DEBUG);
	cr_redirect_stderr();
	link_damage(".gnu_debugaltlink", altlink, sizeof(path) + 2, "/tmp/a");
	fflush(stderr);
	cr_expect_stderr_eq_str(want);
	unlink(path);
	close(fd);
}
