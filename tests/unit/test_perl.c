/* SPDX-License-Identifier: Apache-2.0 */
/* Perl: names and positions of objects in memory, and what is learned from a binary. */
#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/runtime/perl/perl.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "elfwriter.h"

/* ---- names ---- */

/* Objects as Perl lays them out; each has its own space. */
static struct {
	u64 gv[8], gv_body[8], gp[8];
	u64 cv[8], cv_body[13];
	u64 stash[8], stash_body[16], old_array[16];
	u64 name_sv[8], name_body[8];
	u64 cop[8], file_gv[8], file_body[8];
	struct {
		u32 hash, length;
		char key[24];
	} sub, package, file;
	char path[32];
} o;

static const struct runtime_memory *memory(void)
{
	static struct runtime_memory m;

	m.pid = (u32)getpid();
	return &m;
}

static void set_hek(u32 *length, char *key, const char *text, bool utf8)
{
	*length = (u32)strlen(text);
	memcpy(key, text, *length + 1);
	key[*length + 1] = utf8;
}

static void build_objects(bool threads)
{
	memset(&o, 0, sizeof(o));
	set_hek(&o.sub.length, o.sub.key, "l\xe9on", false);
	set_hek(&o.package.length, o.package.key, "My::Pack", false);
	set_hek(&o.file.length, o.file.key, "_</src/a.pl", false);
	memcpy(o.path, "/src/b.pl", 10);
	o.gv[0] = (u64)o.gv_body;
	o.gv[1] = 0x8009ULL << 32;
	o.gv[2] = (u64)o.gp;
	o.gv_body[4] = (u64)&o.sub;
	o.gv_body[5] = (u64)o.stash;
	o.cv[0] = (u64)o.cv_body;
	o.cv_body[4] = (u64)o.stash;
	o.cv_body[7] = (u64)&o.sub;
	o.stash[0] = (u64)o.stash_body;
	o.stash[1] = (0x02000000ULL | 12) << 32;
	o.stash[2] = (u64)o.old_array;
	o.stash_body[3] = 7;
	o.stash_body[4] = o.old_array[8] = (u64)&o.package;
	o.name_sv[0] = (u64)o.name_body;
	o.name_sv[1] = 0x404ULL << 32;
	o.name_sv[2] = (u64)o.path;
	o.name_body[2] = strlen(o.path);
	o.cop[4] = 42ULL << 32;
	o.cop[6] = threads ? (u64)o.path : (u64)o.file_gv;
	o.file_gv[0] = (u64)o.file_body;
	o.file_body[4] = (u64)&o.file;
}

/* Names a frame of the objects; `line` is what the walker saw. Returns the error. */
static int name(u32 version, bool threads, u32 kind, const u64 *what, u64 a, u64 b, u64 line,
		struct runtime_names *ret)
{
	const struct perl_learned l = {.version = version, .threaded = threads};
	u32 cookie = perl_cookie(a, b, line, o.cop[6]);
	u64 address = (u64)what >> 3 | (u64)kind << PERL_POINTER_BITS |
		      (u64)(cookie >> PERL_COOKIE_LOW_BITS) << 50;

	return perl_name(memory(), &l, 0, address,
			 (u64)o.cop >> 3 | (u64)cookie << PERL_POINTER_BITS, ret);
}

Test(perl, names_and_positions)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	const u64 sub = (u64)&o.sub, stash = (u64)o.stash;

	for (u32 version = 32; version <= 44; version += 4) {
		build_objects(true);
		cr_assert_eq(name(version, true, PERL_SUB, o.gv, sub, stash, 42, &names), 0);
		cr_expect_str_eq(names.frames[0].function, "My::Pack::l\xc3\xa9on");
		cr_expect_str_eq(names.frames[0].file, "/src/b.pl");
		cr_expect_eq(names.frames[0].line, 42);
	}
	cr_assert_eq(name(36, true, PERL_NAMED, o.cv, sub, stash, 42, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "My::Pack::l\xc3\xa9on");
	o.cv_body[11] = 0x10000ULL << 32; /* a lexical sub has no package */
	cr_assert_eq(name(36, true, PERL_NAMED, o.cv, sub, stash, 42, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "l\xc3\xa9on");
	cr_assert_eq(
		name(36, true, PERL_REQUIRE, o.name_sv, (u64)o.name_body, (u64)o.path, 42, &names),
		0);
	cr_expect_str_eq(names.frames[0].function, "require /src/b.pl");
	build_objects(false);
	cr_assert_eq(name(36, false, PERL_EVAL, NULL, 0, 0, 42, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "eval {...}");
	cr_expect_str_eq(names.frames[0].file, "/src/a.pl");
	cr_expect_eq(name(36, false, 15, NULL, 0, 0, 42, &names), -EINVAL);
}

Test(perl, a_package_that_is_gone_has_no_name)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};

	build_objects(true);
	o.gv_body[5] = 0;
	cr_assert_eq(name(36, true, PERL_SUB, o.gv, (u64)&o.sub, 0, 42, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "__ANON__::l\xc3\xa9on");
}

Test(perl, stale_objects_have_no_name)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	const u64 sub = (u64)&o.sub, stash = (u64)o.stash;

	build_objects(true);
	cr_expect_eq(name(36, true, PERL_SUB, o.gv, sub + 8, stash, 42, &names), -ESTALE);
	cr_expect_eq(name(36, true, PERL_NAMED, o.cv, sub, stash + 8, 42, &names), -ESTALE);
	/* The COP is another one now: the name is right, and has no position. */
	cr_assert_eq(name(36, true, PERL_SUB, o.gv, sub, stash, 41, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "My::Pack::l\xc3\xa9on");
	cr_expect_null(names.frames[0].file);
	cr_expect_eq(names.frames[0].line, 0);
	/* What `require` loaded is no longer known. */
	cr_assert_eq(name(36, true, PERL_REQUIRE, o.name_sv, 1, 2, 42, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "require");
}

/* ---- binaries ---- */

#define TEXT 0x1000

struct symbol {
	const char *name;
	u32 at, size;
};

/* A program with the symbols and code of a perl with threads. */
static struct elf_file *build_binary(const u8 *image, size_t n, const struct symbol *symbols,
				     u32 n_symbols)
{
	Elf64_Sym syms[32] = {};
	struct elf_file *elf = NULL;
	struct str names = {};
	struct elfw w = {.machine = EM_X86_64};

	str_putc(&names, 0);
	for (u32 i = 0; i < n_symbols; i++) {
		syms[i + 1] = (Elf64_Sym){.st_name = (u32)names.n,
					  .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					  .st_shndx = 1,
					  .st_value = TEXT + symbols[i].at,
					  .st_size = symbols[i].size};
		str_append(&names, symbols[i].name, strlen(symbols[i].name) + 1);
	}
	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, TEXT, image, n);
	elfw_section(&w, ".dynsym", SHT_DYNSYM, 0, 0, syms, (n_symbols + 1) * sizeof(syms[0]));
	elfw_section(&w, ".dynstr", SHT_STRTAB, 0, 0, names.data, names.n);
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, TEXT, n, ".text");
	elfw_finish(&w);
	cr_assert_eq(elf_file_open_memory((u8 *)w.out.data, w.out.n, NULL, &elf), 0);
	str_deinit(&names);
	str_deinit(&w.out);
	return elf;
}

static void put_names(u8 *image, u32 table, u32 texts, const char *const *names, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		u64 at = TEXT + texts;

		memcpy(image + table + 8 * i, &at, 8);
		memcpy(image + texts, names[i], strlen(names[i]) + 1);
		texts += (u32)strlen(names[i]) + 1;
	}
}

Test(perl, learns_a_binary)
{
	static const char *const kinds[] = {"NULL", "BLOCK", "SUB", "FORMAT", "EVAL", "DEFER"};
	/* mov rax, [rdi + 0xe8]; mov eax, [rax + 0x20]; add eax, 1; ret */
	static const u8 cxinc[] = {0x48, 0x8b, 0x87, 0xe8, 0,	 0, 0,
				   0x8b, 0x40, 0x20, 0x83, 0xc0, 1, 0xc3};
	static const struct symbol symbols[] = {
		{"PL_revision", 0, 1},
		{"PL_version", 1, 1},
		{"PL_subversion", 2, 1},
		{"PL_block_type", 0x10, sizeof(kinds)},
		{"PL_thr_key", 0x100, 4},
		{"PL_curinterp", 0x108, 8},
		{"PL_interp_size", 0x110, 2},
		{"Perl_cxinc", 0x200, sizeof(cxinc)},
		{"Perl_runops_standard", 0x240, 32},
	};
	struct perl_learned l = {};
	u8 image[0x400] = {5, 40, 1};
	struct elf_file *elf;
	struct diag d = {};

	put_names(image, 0x10, 0x80, kinds, ARRAY_SIZE(kinds));
	memcpy(image + 0x200, cxinc, sizeof(cxinc));
	elf = build_binary(image, sizeof(image), symbols, ARRAY_SIZE(symbols));
	cr_assert_eq(perl_learn(elf, &l, &d), 0, "%s", d.text);
	cr_expect(l.threaded && l.version == 40 && l.subversion == 1);
	cr_expect(l.bpf.stackinfo == 0xe8 && l.bpf.cop == 0xd8);
	cr_expect_eq(l.bpf.loops[0].start, TEXT + 0x240);
	cr_expect(l.bpf.kinds.null == 0 && l.bpf.kinds.sub == 2 && l.bpf.kinds.format == 3 &&
		  l.bpf.kinds.eval == 4 && l.bpf.kinds.defer == 5);
	elf_file_destroy(elf);
	/* A version of development, one that is too new, and one with another Perl_cxinc(). */
	for (u32 i = 0; i < 3; i++) {
		image[1] = (u8[]){41, 46, 40}[i];
		image[0x209] = i == 2 ? 0x28 : 0x20;
		elf = build_binary(image, sizeof(image), symbols, ARRAY_SIZE(symbols));
		cr_expect_eq(perl_learn(elf, &l, &d), -ENOTSUP);
		elf_file_destroy(elf);
	}
}
