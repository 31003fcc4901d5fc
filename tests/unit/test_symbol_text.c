/* SPDX-License-Identifier: Apache-2.0 */
/* Demangling, kallsyms, perf maps, jitdump: the sources of names that are not ELF files. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "symbol/symbol.h"

static void expect_name(const char *mangled, const char *want)
{
	char *got = symbol_demangle(mangled);

	if (want)
		cr_expect_str_eq(got ? got : "(null)", want, "%s reads %s", mangled,
				 got ? got : "(null)");
	else
		cr_expect_null(got, "%s reads %s", mangled, got);
	free(got);
}

Test(demangle, knows_each_language)
{
	expect_name("_ZN3foo3barIiEEvT_", "void foo::bar<int>(int)");
	expect_name("_ZNSt6vectorIiSaIiEE9push_backERKi",
		    "std::vector<int, std::allocator<int> >::push_back(int const&)");
	expect_name("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad");
	expect_name("_RNvCs1234_7mycrate3foo", "mycrate::foo");
	expect_name("_RINvMNtCsgEmfK2I1SDS_4core3stre18trim_start_matchesReECsgY6Mt91CT9J_14rustc_"
		    "demangle",
		    "<str>::trim_start_matches::<&str>");
	expect_name("_RINvNtC3std3mem8align_ofNtNtC3std3mem12DiscriminantE",
		    "std::mem::align_of::<std::mem::Discriminant>");
	expect_name("_RINvC1a1fFG_RL0_hEuKj7b_E", "a::f::<for<'a> fn(&'a u8), 123>");
	expect_name("_D3std5stdio7writelnFZv", "std.stdio.writeln()");
	expect_name("main", NULL);
	expect_name("", NULL);
	expect_name("_", NULL);
	expect_name("_Z", NULL);
	expect_name("_Runtime", NULL);
	expect_name("main.(*T).part", NULL);
}

Test(demangle, drops_what_a_compiler_added)
{
	expect_name("_Z3foov.cold", "foo()");
	expect_name("_Z3foov.part.0.isra.0", "foo()");
	expect_name("bar.constprop.0.cold", "bar");
	expect_name("bar.lto_priv.12", "bar");
	expect_name("_ZN1aE.llvm.8123", "a");
	expect_name("work._omp_fn.0", NULL);
	expect_name("a.partial", NULL);
	expect_name(".part.0", NULL);
	expect_name("x.cold.y", NULL);
}

Test(demangle, a_name_made_to_blow_up_is_left)
{
	char long_name[6000] = "_Z";
	/* Each type contains the previous one twice. */
	char doubling[512] = "_RINvC1a1bTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT";
	struct str s = {};

	memset(long_name + 2, 'P', sizeof(long_name) - 4);
	expect_name(long_name, NULL);
	/* A binder of 62^8 lifetimes after an error: libiberty would count them one by one. */
	expect_name("_RNvXNvXCs_1aINtXC1aFFGFFFFFFFF_ZFFFINo", NULL);
	expect_name("_RMC0FGZZZZZZZZ_Eu", NULL);
	for (int i = 0; i < 30; i++)
		strncat(doubling, i ? "B8_E" : "uuE", sizeof(doubling) - strlen(doubling) - 1);
	expect_name(strncat(doubling, "E", 2), NULL);
	/* Each substitution contains the previous one twice: 2^60 bytes without a limit. */
	str_puts(&s, "_Z1fI1aS_E");
	for (int i = 0; i < 60; i++) {
		char digits[8] = {};

		if (i == 0)
			str_puts(&s, "St4pairIS_S_E");
		snprintf(digits, sizeof(digits), "%c", i < 10 ? '0' + i : 'A' + i - 10);
		if (i < 36)
			str_printf(&s, "St4pairIS%s_S%s_E", digits, digits);
	}
	free(symbol_demangle(str_get(&s)));
	str_deinit(&s);
}

static int memfile(const char *text, size_t n)
{
	int fd = memfd_create("symbol-test", MFD_CLOEXEC);

	cr_assert(fd >= 0);
	cr_assert_eq(pwrite(fd, text, n, 0), (ssize_t)n);
	return fd;
}

/* Reads stderr, at debug level, from here on. */
static void expect_log(void)
{
	log_set_level(LOG_LEVEL_DEBUG);
	cr_redirect_stderr();
}

static void check_log(const char *want)
{
	fflush(stderr);
	cr_expect_stderr_eq_str(want);
}

static int open_kallsyms(const char *text, struct kallsyms **ret)
{
	int fd = memfile(text, strlen(text));
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = kallsyms_open(path, ret);
	close(fd);
	return r;
}

static const char *kname(const struct kallsyms *k, u64 address)
{
	const char *name, *module;
	static char text[256];

	if (kallsyms_lookup(k, address, &name, &module) < 0)
		return "-";
	snprintf(text, sizeof(text), "%s[%s]", name, module);
	return text;
}

Test(kallsyms, names_modules_aliases_and_ends)
{
	struct kallsyms *k = NULL;

	cr_assert_eq(open_kallsyms("ffffffff81001000 t memcpy_orig\n"
				   "ffffffff81001000 T __memcpy\n"
				   "ffffffff81001000 W memcpy\n"
				   "ffffffff81001000 T memcpy\n"
				   "0000000000000000 A fixed_percpu_data\n"
				   "ffffffff81000000 T _stext\n"
				   "ffffffff81000000 T _text\n"
				   "ffffffff81000000 T startup_64\n"
				   "ffffffff81003000 D some_data\n"
				   "ffffffff81003100 D more_data\n"
				   "ffffffff81004000 T last_of_kernel\n"
				   "ffffffffc0000000 t mod_init\t[ext4]\n"
				   "ffffffffc0000040 t mod_exit\t[ext4]\n"
				   "ffffffffc0100000 t bpf_prog_1234_x\t[bpf]\n"
				   "garbage\n",
				   &k),
		     0);
	cr_expect_str_eq(kname(k, 0xffffffff81000fff), "startup_64[]");
	cr_expect_str_eq(kname(k, 0xffffffff81001000), "memcpy[]");
	cr_expect_str_eq(kname(k, 0xffffffff81002fff), "memcpy[]");
	cr_expect_str_eq(kname(k, 0xffffffff81003000), "-");
	cr_expect_str_eq(kname(k, 0xffffffff81003200), "-");
	cr_expect_str_eq(kname(k, 0xffffffff81004001), "last_of_kernel[]");
	cr_expect_str_eq(kname(k, 0xffffffff90000000), "-");
	cr_expect_str_eq(kname(k, 0xffffffffc000003f), "mod_init[ext4]");
	cr_expect_str_eq(kname(k, 0xffffffffc0000041), "mod_exit[ext4]");
	cr_expect_str_eq(kname(k, 0xffffffffc0080000), "-");
	cr_expect_str_eq(kname(k, 0xffffffffc0100010), "bpf_prog_1234_x[bpf]");
	cr_expect_str_eq(kname(k, 0x1000), "-");
	cr_expect_str_eq(kname(k, ~0ULL), "-");
	kallsyms_destroy(k);
}

Test(kallsyms, hidden_addresses_are_told)
{
	struct kallsyms *k = NULL;

	cr_expect_eq(open_kallsyms("0000000000000000 T _text\n0000000000000000 T memcpy\n", &k),
		     -EPERM);
	cr_expect_eq(open_kallsyms("", &k), -ENODATA);
	cr_expect_eq(open_kallsyms("\n\nwhat is this\n", &k), -ENODATA);
	cr_expect_eq(kallsyms_open("/nonexistent/kallsyms", &k), -ENOENT);
	cr_expect_null(k);
}

static const char *pname(struct perf_map *m, u64 address)
{
	const char *name = "-";

	(void)perf_map_lookup(m, address, &name);
	return name;
}

Test(perf_map, later_lines_win_and_appends_are_seen)
{
	const char first[] = "1000 100 old\n"
			     "0x2000 0x40 py::f:/a b.py\n"
			     "nonsense\n"
			     "3000 0 empty\n"
			     "fffffffffffffff0 20 wraps\n"
			     "1040 10 inner\n"
			     "4000 10 not yet";
	struct perf_map *m = NULL;
	int fd = memfile(first, strlen(first));

	cr_assert_eq(perf_map_open(fd, 0, &m), 0);
	cr_expect_str_eq(pname(m, 0x0fff), "-");
	cr_expect_str_eq(pname(m, 0x1000), "old");
	cr_expect_str_eq(pname(m, 0x1040), "inner");
	cr_expect_str_eq(pname(m, 0x104f), "inner");
	cr_expect_str_eq(pname(m, 0x1050), "old");
	cr_expect_str_eq(pname(m, 0x1100), "-");
	cr_expect_str_eq(pname(m, 0x203f), "py::f:/a b.py");
	cr_expect_str_eq(pname(m, 0x3000), "-");
	cr_expect_str_eq(pname(m, 0xfffffffffffffff8), "-");
	cr_expect_str_eq(pname(m, 0x4000), "-");

	cr_assert(pwrite(fd, " but now\n1020 10 newer\n", 23, (off_t)strlen(first)) == 23);
	cr_assert_eq(perf_map_refresh(m), 0);
	cr_expect_str_eq(pname(m, 0x4000), "not yet but now");
	cr_expect_str_eq(pname(m, 0x1020), "newer");
	cr_expect_str_eq(pname(m, 0x1030), "old");

	cr_assert_eq(ftruncate(fd, 0), 0);
	cr_assert(pwrite(fd, "1000 8 again\n", 13, 0) == 13);
	cr_assert_eq(perf_map_refresh(m), 0);
	cr_expect_str_eq(pname(m, 0x1000), "again");
	cr_expect_str_eq(pname(m, 0x1020), "-");
	perf_map_destroy(m);
}

/* Compares many overlapping ranges, in several refreshes, with a linear search. */
Test(perf_map, agrees_with_a_plain_scan)
{
	enum { N = 3000, SPACE = 2000 };
	static u32 truth[SPACE];
	struct perf_map *m = NULL;
	int fd = memfd_create("t", MFD_CLOEXEC);
	off_t at = 0;
	u64 seed = 1;

	cr_assert_eq(perf_map_open(dup(fd), 0, &m), 0);
	for (u32 i = 1; i <= N; i++) {
		char line[64];
		u32 start, size;
		int n;

		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		start = (u32)(seed >> 33) % SPACE;
		size = 1 + (u32)(seed >> 20) % 60;
		n = snprintf(line, sizeof(line), "%x %x f%u\n", start, size, i);
		cr_assert_eq(pwrite(fd, line, (size_t)n, at), n);
		at += n;
		for (u32 a = start; a < start + size && a < SPACE; a++)
			truth[a] = i;
		if (i % 7)
			continue;
		cr_assert_eq(perf_map_refresh(m), 0);
		for (u32 a = i % 13; a < SPACE; a += 13) {
			char want[16] = "-";

			if (truth[a])
				snprintf(want, sizeof(want), "f%u", truth[a]);
			cr_assert_str_eq(pname(m, a), want, "at %x after %u lines", a, i);
		}
	}
	perf_map_destroy(m);
	close(fd);
}

Test(perf_map, is_a_regular_file_with_lines_of_any_length)
{
	struct perf_map *m = NULL;
	struct str s = {};
	int p[2];
	int fd;

	cr_assert_eq(pipe(p), 0);
	cr_expect_eq(perf_map_open(p[0], 0, &m), -EINVAL);
	close(p[1]);
	str_puts(&s, "10 10 ");
	for (int i = 0; i < 300000; i++)
		str_putc(&s, 'x');
	str_puts(&s, "\n20 10 after\n");
	fd = memfile(str_get(&s), s.n);
	str_deinit(&s);
	cr_assert_eq(perf_map_open(fd, 0, &m), 0);
	cr_expect_eq(strlen(pname(m, 0x10)), 4096);
	cr_expect_str_eq(pname(m, 0x20), "after");
	perf_map_destroy(m);
}

Test(perf_map, takes_no_more_memory_than_it_may)
{
	struct perf_map *m = NULL;
	struct str s = {};

	for (int i = 0; i < 200000; i++)
		str_printf(&s, "%x 10 f%x\n", 0x1000 + 16 * i, i);
	cr_expect_eq(perf_map_open(memfile(s.data, s.n), 1 << 20, &m), -E2BIG);
	cr_assert_eq(perf_map_open(memfile(s.data, s.n), 64 << 20, &m), 0);
	cr_expect_str_eq(pname(m, 0x1000), "f0");
	perf_map_destroy(m);
	str_deinit(&s);
}

static void put32(struct str *s, u32 v)
{
	str_append(s, &v, sizeof(v));
}

static void put64(struct str *s, u64 v)
{
	str_append(s, &v, sizeof(v));
}

static void put_header(struct str *s, u64 flags)
{
	put32(s, 0x4A695444);
	put32(s, 1);
	put32(s, 40);
	put32(s, 62);
	put32(s, 0);
	put32(s, 1);
	put64(s, 0);
	put64(s, flags);
}

static void put_load(struct str *s, u64 time, u64 address, u32 size, const char *name)
{
	put32(s, 0);
	put32(s, 16 + 40 + (u32)strlen(name) + 1 + size);
	put64(s, time);
	put32(s, 1);
	put32(s, 1);
	put64(s, address);
	put64(s, address);
	put64(s, size);
	put64(s, 7);
	str_append(s, name, strlen(name) + 1);
	for (u32 i = 0; i < size; i++)
		str_putc(s, (char)0x90);
}

static void put_move(struct str *s, u64 time, u64 from, u64 to, u64 size)
{
	put32(s, 1);
	put32(s, 16 + 48);
	put64(s, time);
	put64(s, 0);
	put64(s, to);
	put64(s, from);
	put64(s, to);
	put64(s, size);
	put64(s, 7);
}

static void put_debug(struct str *s, u64 address, u32 bias)
{
	put32(s, 2);
	put32(s, 16 + 16 + 2 * 16 + 5 + 2);
	put64(s, 0);
	put64(s, address);
	put64(s, 2);
	put64(s, address + bias);
	put32(s, 10);
	put32(s, 0);
	str_append(s, "a.js", 5);
	put64(s, address + bias + 8);
	put32(s, 12);
	put32(s, 0);
	str_append(s, "\xff", 2);
}

static const char *jname(struct jitdump *j, u64 address, u64 time)
{
	static char text[256];
	static struct symbol_chain c;

	if (jitdump_lookup(j, address, time, &c) < 0)
		return "-";
	cr_assert_eq(c.n, 1);
	snprintf(text, sizeof(text), "%s %s:%u", c.frames[0].name,
		 c.frames[0].file ? c.frames[0].file : "?", c.frames[0].line);
	return text;
}

Test(jitdump, code_lives_from_load_to_replacement_or_move)
{
	struct jitdump *j = NULL;
	struct str s = {};
	int fd;

	put_header(&s, 0);
	put_load(&s, 100, 0x5000, 32, "first");
	put_debug(&s, 0x5000, 0);
	put_load(&s, 200, 0x5000, 16, "second");
	put_move(&s, 300, 0x5000, 0x9ff8, 16);
	fd = memfile(s.data, s.n);
	cr_assert_eq(jitdump_open(fd, 0, &j), 0);
	cr_expect_str_eq(jname(j, 0x5000, 99), "-");
	cr_expect_str_eq(jname(j, 0x5000, 100), "first ?:0");
	cr_expect_str_eq(jname(j, 0x501f, 199), "first ?:0");
	cr_expect_str_eq(jname(j, 0x5020, 199), "-");
	cr_expect_str_eq(jname(j, 0x5000, 200), "second a.js:10");
	cr_expect_str_eq(jname(j, 0x5007, 299), "second a.js:10");
	cr_expect_str_eq(jname(j, 0x5008, 299), "second a.js:12");
	cr_expect_str_eq(jname(j, 0x5010, 299), "-");
	cr_expect_str_eq(jname(j, 0x5000, 300), "-");
	cr_expect_str_eq(jname(j, 0xa007, 300), "second a.js:12"); /* on the next page */
	cr_expect_str_eq(jname(j, 0xa007, ~0ULL), "second a.js:12");
	cr_expect_str_eq(jname(j, 0xa008, 300), "-");

	/* The file gets half a record, and later the rest. */
	str_clear(&s);
	put_load(&s, 400, 0x7000, 8, "late");
	cr_assert_eq(lseek(fd, 0, SEEK_END) > 0, 1);
	cr_assert_eq(write(fd, s.data, 30), 30);
	cr_assert_eq(jitdump_refresh(j), 0);
	cr_expect_str_eq(jname(j, 0x7000, 400), "-");
	cr_assert_eq(write(fd, s.data + 30, s.n - 30), (ssize_t)s.n - 30);
	cr_assert_eq(jitdump_refresh(j), 0);
	cr_expect_str_eq(jname(j, 0x7000, 400), "late ?:0");
	str_deinit(&s);
	jitdump_destroy(j);
}

Test(jitdump, v8_lines_are_not_off_by_an_elf_header)
{
	struct jitdump *j = NULL;
	struct str s = {};

	put_header(&s, 0);
	put_debug(&s, 0x5000, 0x40);
	put_load(&s, 100, 0x5000, 16, "f");
	cr_assert_eq(jitdump_open(memfile(s.data, s.n), 0, &j), 0);
	cr_expect_str_eq(jname(j, 0x5000, 100), "f a.js:10");
	cr_expect_str_eq(jname(j, 0x5009, 100), "f a.js:12");
	jitdump_destroy(j);
	str_deinit(&s);
}

/* V8 in Node 20 writes such names from freed memory. */
Test(jitdump, lines_with_a_damaged_file_name_are_not_shown)
{
	struct jitdump *j = NULL;
	struct str s = {};

	put_header(&s, 0);
	put_debug(&s, 0x5000, 0);
	memcpy(s.data + s.n - 18 - 5, "\x0f\x98\0j", 5);
	put_load(&s, 100, 0x5000, 16, "f");
	put_debug(&s, 0x6000, 0);
	put_load(&s, 100, 0x6000, 16, "g");
	cr_assert_eq(jitdump_open(memfile(s.data, s.n), 0, &j), 0);
	cr_expect_str_eq(jname(j, 0x5000, 100), "f ?:0");
	cr_expect_str_eq(jname(j, 0x5009, 100), "f ?:0");
	cr_expect_str_eq(jname(j, 0x6009, 100), "g a.js:12");
	jitdump_destroy(j);
	str_deinit(&s);
}

Test(jitdump, times_of_another_clock_mean_the_newest_code)
{
	struct jitdump *j = NULL;
	struct str s = {};

	put_header(&s, 1);
	put_load(&s, 1ULL << 60, 0x5000, 16, "old");
	put_load(&s, 2ULL << 60, 0x5000, 16, "new");
	cr_assert_eq(jitdump_open(memfile(s.data, s.n), 0, &j), 0);
	cr_expect_str_eq(jname(j, 0x5000, 5), "new ?:0");
	jitdump_destroy(j);
	str_deinit(&s);
}

Test(jitdump, damage_is_an_error)
{
	struct jitdump *j = NULL;
	char bytes[64] = "not a jitdump at all, but as long as a header has to be, yes";

	cr_expect_eq(jitdump_open(memfile(bytes, sizeof(bytes)), 0, &j), -EINVAL);
	cr_expect_null(j);
}

Test(jitdump, takes_no_more_memory_than_it_may)
{
	struct jitdump *j = NULL;
	struct str s = {};
	char name[16];

	put_header(&s, 0);
	for (u32 i = 0; i < 50000; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		put_load(&s, i, 0x1000 + 16ULL * i, 16, name);
	}
	cr_expect_eq(jitdump_open(memfile(s.data, s.n), 1 << 20, &j), -E2BIG);
	cr_assert_eq(jitdump_open(memfile(s.data, s.n), 64 << 20, &j), 0);
	cr_expect_str_eq(jname(j, 0x1000, 10), "f0 ?:0");
	jitdump_destroy(j);
	str_deinit(&s);
}

/* ---- damage ---- */

Test(kallsyms, the_first_bad_line_is_logged)
{
	struct kallsyms *k = NULL;

	expect_log();
	cr_assert_eq(open_kallsyms("ffffffff81000000 T good\n"
				   "ffffffff81000100 a absolute\n"
				   "ffffffff81000200 text bad\n"
				   "xyz T bad\n"
				   "ffffffff81000300 T too\n",
				   &k),
		     0);
	cr_expect_str_eq(kname(k, 0xffffffff81000300), "too[]");
	kallsyms_destroy(k);
	check_log(
		"culprit: debug: /memfd:symbol-test (deleted): line 3 is not ADDRESS TYPE NAME\n");
}

Test(perf_map, the_first_bad_line_is_logged)
{
	const char text[] = "1000 10 good\n3000 0 empty\n2000 20\n4000 zz bad\n5000 8 too\n";
	struct perf_map *m = NULL;

	expect_log();
	cr_assert_eq(perf_map_open(memfile(text, strlen(text)), 0, &m), 0);
	cr_expect_str_eq(pname(m, 0x5000), "too");
	perf_map_destroy(m);
	check_log("culprit: debug: /memfd:symbol-test (deleted): line 3 is not START SIZE NAME\n");
}

Test(jitdump, the_first_bad_record_is_logged)
{
	struct jitdump *j = NULL;
	struct str s = {};

	expect_log();
	put_header(&s, 0);
	put_load(&s, 100, 0x5000, 8, "f");
	put_load(&s, 100, 0x6000, 8, "g");
	s.data[106 + 40] = 9; /* more code than the record has */
	put_debug(&s, 0x7000, 0);
	memcpy(s.data + s.n - 18 - 5, "\x0f\x98\0j", 5);
	put_load(&s, 100, 0x7000, 8, "h");
	cr_assert_eq(jitdump_open(memfile(s.data, s.n), 0, &j), 0);
	cr_expect_str_eq(jname(j, 0x6000, 100), "-");
	cr_expect_str_eq(jname(j, 0x7000, 100), "h ?:0");
	jitdump_destroy(j);
	str_deinit(&s);
	check_log(
		"culprit: debug: /memfd:symbol-test (deleted): a damaged record of loaded code at "
		"offset 0x6a\n");
}

Test(jitdump, a_record_that_ends_the_reading_is_logged)
{
	struct jitdump *j = NULL;
	struct str s = {};

	expect_log();
	put_header(&s, 0);
	put_load(&s, 100, 0x5000, 8, "f");
	put_load(&s, 100, 0x6000, 8, "g");
	s.data[106 + 4] = 15;
	cr_assert_eq(jitdump_open(memfile(s.data, s.n), 0, &j), -EINVAL);
	str_deinit(&s);
	check_log(
		"culprit: debug: /memfd:symbol-test (deleted): a record of impossible length at offset "
		"0x6a\n");
}
