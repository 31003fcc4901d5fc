/* SPDX-License-Identifier: Apache-2.0 */
/* The loader's thread builds the same unwind rows as a direct build, and answers every request. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "agent/tables/loader.h"
#include "base/str.h"
#include "base/vec.h"
#include "parser_fixture.h"
#include "run_tool.h"
#include "unwind/unwind.h"

static struct parsers *parsers;
static pid_t starter;

static void begin(void)
{
	parsers = start_parsers(parsers_serve, &starter);
}

static void end(void)
{
	parsers_stop(parsers);
}

TestSuite(loader, .init = begin, .fini = end);

static struct elf_file *open_libc(void)
{
	static const char *const paths[] = {"/lib/x86_64-linux-gnu/libc.so.6",
					    "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6",
					    "/usr/lib/libc.so.6"};
	struct elf_file *elf = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(paths) && !elf; i++) {
		int fd = open(paths[i], O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			(void)elf_file_open(fd, NULL, &elf);
	}
	cr_assert(elf);
	return elf;
}

static int ask(struct loader_file *f, u64 page, enum loader_urgency urgency)
{
	return loader_ask(f, &page, 1, urgency);
}

/* Compares a page's rows by their rules; rule numbers depend on the order of building. */
static void check_page(const struct loader_page *p, const struct unwind_rule *rules, size_t n_rules,
		       struct unwind_source *expected)
{
	static u32 rows[UNWIND_PAGE_BYTES];
	u32 n, n_blocks, n_index, n_want_rules;
	const struct unwind_rule *want;
	const u32 *got;

	cr_assert_eq(unwind_source_rows(expected, p->page, rows, &n), 0);
	want = unwind_source_rules(expected, &n_want_rules);
	cr_assert_eq(p->error, 0);
	cr_assert_eq(p->n_rows, n);
	cr_assert_eq(p->n_lines, unwind_page_n_lines(n));
	n_blocks = (n + UNWIND_ROWS_PER_BLOCK - 1) / UNWIND_ROWS_PER_BLOCK;
	n_index = p->n_lines - n_blocks;
	got = (const u32 *)((const u8 *)p->lines + (size_t)n_index * UNWIND_LINE_BYTES);
	for (u32 i = 0; i < n; i++) {
		cr_assert_eq(got[i] >> 16, rows[i] >> 16);
		cr_assert_lt(got[i] & 0xffff, n_rules);
		cr_assert_eq(
			memcmp(&rules[got[i] & 0xffff], &want[rows[i] & 0xffff], sizeof(*rules)),
			0);
	}
}

Test(loader, builds_what_the_source_has)
{
	struct elf_file *elf = open_libc();
	struct unwind_source *expected;
	const struct unwind_source_info *info;
	vec(struct unwind_rule) rules = {};
	struct loader_file *f;
	struct loader *l;
	struct loader_page p;
	u32 n = 0;

	cr_assert_eq(unwind_source_create(elf, &expected), 0);
	info = unwind_source_info(expected);
	cr_assert_gt(info->n_pages, 10);
	cr_assert_eq(loader_create(-1, parsers, &l), 0);
	cr_assert_eq(loader_open(l, elf, &n, &f), 0);
	for (u32 i = 0; i < info->n_pages; i++)
		cr_assert_eq(ask(f, info->first_page + i, (enum loader_urgency)(i % 3)), 0);
	while (loader_take(l, true, &p)) {
		cr_assert_eq(p.user, &n);
		for (u32 i = 0; i < p.n_rules; i++)
			cr_assert_eq(vec_push(&rules, p.rules[i]), 0);
		check_page(&p, rules.data, rules.n, expected);
		loader_page_deinit(&p);
		n++;
	}
	cr_assert_eq(n, info->n_pages);
	loader_close(f);
	loader_destroy(l);
	unwind_source_destroy(expected);
	elf_file_destroy(elf);
	vec_deinit(&rules);
}

/* Takes all pages of libc through a cache, and checks them. */
static struct loader_stats load_by_cache(const char *path, struct elf_file *elf,
					 struct unwind_source *expected)
{
	const struct unwind_source_info *info = unwind_source_info(expected);
	vec(struct unwind_rule) rules = {};
	struct loader_stats stats;
	struct loader_file *f;
	struct loader_page p;
	struct loader *l;

	cr_assert_eq(loader_create(-1, parsers, &l), 0);
	cr_assert_eq(loader_set_cache(l, path), 0);
	cr_assert_eq(loader_open(l, elf, NULL, &f), 0);
	for (u32 i = 0; i < info->n_pages; i++)
		cr_assert_eq(ask(f, info->first_page + (i * 7) % info->n_pages, LOADER_NOW), 0);
	while (loader_take(l, true, &p)) {
		for (u32 i = 0; i < p.n_rules; i++)
			cr_assert_eq(vec_push(&rules, p.rules[i]), 0);
		check_page(&p, rules.data, rules.n, expected);
		loader_page_deinit(&p);
	}
	loader_stats(l, &stats);
	loader_close(f);
	loader_destroy(l);
	vec_deinit(&rules);
	return stats;
}

static void remove_all(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	cr_assert(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			cr_assert_eq(unlinkat(dirfd(d), e->d_name, 0), 0);
	closedir(d);
	cr_assert_eq(rmdir(path), 0);
}

Test(loader, rows_from_the_cache_are_those_that_are_built)
{
	char path[] = "/tmp/culprit-loader-XXXXXX";
	struct elf_file *elf = open_libc();
	struct unwind_source *expected;
	struct loader_stats s;

	cr_assert(mkdtemp(path));
	cr_assert_eq(unwind_source_create(elf, &expected), 0);
	s = load_by_cache(path, elf, expected);
	cr_assert_eq(s.cache_hits, 0);
	cr_assert_geq(s.cache_misses, unwind_source_info(expected)->n_pages);
	s = load_by_cache(path, elf, expected);
	cr_assert_eq(s.cache_misses, 0);
	cr_assert_eq(s.cache_hits, unwind_source_info(expected)->n_pages);
	cr_assert_eq(s.parser_cpu_ns, 0, "no parser was started");
	unwind_source_destroy(expected);
	elf_file_destroy(elf);
	remove_all(path);
}

Test(loader, builds_twice_only_what_somebody_waits_for)
{
	struct elf_file *elf = open_libc();
	struct unwind_source *s;
	struct loader_file *f;
	struct loader *l;
	struct loader_page p;
	u64 first;

	cr_assert_eq(unwind_source_create(elf, &s), 0);
	first = unwind_source_info(s)->first_page;
	unwind_source_destroy(s);
	cr_assert_eq(loader_create(-1, parsers, &l), 0);
	cr_assert_eq(loader_open(l, elf, NULL, &f), 0);
	for (int i = 0; i < 3; i++) {
		struct pollfd ready = {.fd = loader_fd(l), .events = POLLIN};

		cr_assert_eq(ask(f, first, i == 1 ? LOADER_SOON : LOADER_NOW), 0);
		cr_assert_eq(poll(&ready, 1, -1), 1);
		cr_assert(loader_take(l, true, &p));
		cr_assert_eq(p.error, i == 1 ? -EEXIST : 0);
		cr_assert_eq(p.n_rows == 0, i == 1);
		loader_page_deinit(&p);
		cr_assert_not(loader_take(l, true, &p));
	}
	/* Ask for a page that does not exist. */
	cr_assert_eq(ask(f, first + (1 << 20), LOADER_SOON), 0);
	cr_assert(loader_take(l, true, &p));
	cr_assert_eq(p.error, -ENOENT);
	loader_page_deinit(&p);
	loader_close(f);
	loader_destroy(l);
	elf_file_destroy(elf);
}

static pid_t pid_of_parser(void)
{
	char path[64];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", starter, starter);
	f = fopen(path, "re");
	cr_assert(f && fscanf(f, "%d", &pid) == 1);
	(void)fclose(f);
	return pid;
}

/* Pages of a new parser refer to the rules that the pages of the old one had. */
Test(loader, goes_on_after_the_end_of_a_parser)
{
	vec(struct unwind_rule) rules = {};
	struct elf_file *elf = open_libc();
	struct unwind_source *expected;
	struct loader_file *f;
	struct loader_page p;
	struct loader_stats stats;
	struct loader *l;
	pid_t first = 0;
	u64 page;

	cr_assert_eq(unwind_source_create(elf, &expected), 0);
	page = unwind_source_info(expected)->first_page + 5;
	cr_assert_eq(loader_create(-1, parsers, &l), 0);
	cr_assert_eq(loader_open(l, elf, NULL, &f), 0);
	for (u32 i = 0; i < 4; i++) {
		cr_assert_eq(ask(f, page + i, LOADER_NOW), 0);
		cr_assert(loader_take(l, true, &p));
		for (u32 k = 0; k < p.n_rules; k++)
			cr_assert_eq(vec_push(&rules, p.rules[k]), 0);
		check_page(&p, rules.data, rules.n, expected);
		loader_page_deinit(&p);
		if (i % 2 == 0) {
			cr_assert_neq(pid_of_parser(), first);
			first = pid_of_parser();
			cr_assert_eq(kill(first, SIGKILL), 0);
		}
	}
	loader_stats(l, &stats);
	cr_assert(stats.files_given_up == 0 && stats.parser_cpu_ns > 0 && stats.parser_bytes > 0);
	/* Closed for lack of use, and opened again. */
	cr_assert_eq(loader_trim(l, 0), 1);
	cr_assert_eq(loader_trim(l, 0), 0);
	cr_assert_eq(ask(f, page, LOADER_NOW), 0);
	cr_assert(loader_take(l, true, &p));
	check_page(&p, rules.data, rules.n, expected);
	loader_page_deinit(&p);
	loader_close(f);
	loader_destroy(l);
	unwind_source_destroy(expected);
	elf_file_destroy(elf);
	vec_deinit(&rules);
}

static int error_of_page(struct loader *l, struct loader_file *f, u64 page)
{
	struct loader_page p;
	int error;

	cr_assert_eq(ask(f, page, LOADER_NOW), 0);
	cr_assert(loader_take(l, true, &p));
	error = p.error;
	loader_page_deinit(&p);
	return error;
}

/* A parser that ends as soon as it is asked for a page. */
static void end_one(int control)
{
	const struct parser_started started = {getpid()};
	const struct parser_ended ended = {.status = 11};
	_cleanup_str_ struct str data = {};
	int socket = -1;
	u32 kind;

	cr_assert_eq(message_receive(control, 64, &kind, &data, &socket), 0);
	cr_assert_eq(message_send(control, PARSER_ANSWER, &started, sizeof(started), -1), 0);
	do
		cr_assert_eq(message_receive(socket, PARSER_MAX_MESSAGE, &kind, &data, NULL), 0);
	while (kind != PARSER_PAGE);
	close(socket);
	cr_assert_eq(message_receive(control, 64, &kind, &data, NULL), 0);
	cr_assert_eq(kind, PARSER_END);
	cr_assert_eq(message_send(control, PARSER_ANSWER, &ended, sizeof(ended), -1), 0);
}

static void end_one_then_serve(int control)
{
	end_one(control);
	parsers_serve(control);
}

static void end_two_then_serve(int control)
{
	end_one(control);
	end_one_then_serve(control);
}

Test(loader, gives_a_file_up_over_which_parsers_end)
{
	void (*const serve[])(int control) = {end_one_then_serve, end_two_then_serve};
	struct elf_file *elf = open_libc();
	u64 page = elf->segments[1].svma >> UNWIND_PAGE_SHIFT;

	for (int i = 0; i < 2; i++) {
		int want = i ? -EIO : 0; /* somebody may have killed the first */
		struct loader_file *bad, *good;
		struct loader_stats stats;
		struct parsers *own;
		struct loader *l;
		pid_t pid;

		own = start_parsers(serve[i], &pid);
		cr_assert_eq(loader_create(-1, own, &l), 0);
		cr_assert_eq(loader_open(l, elf, NULL, &bad), 0);
		cr_assert_eq(loader_open(l, elf, NULL, &good), 0);
		cr_assert_eq(error_of_page(l, bad, page), want);
		cr_assert_eq(error_of_page(l, good, page), 0);
		cr_assert_eq(error_of_page(l, bad, page + 1), want);
		loader_stats(l, &stats);
		cr_assert_eq(stats.files_given_up, i);
		loader_close(bad);
		loader_close(good);
		loader_destroy(l);
		parsers_stop(own);
	}
	elf_file_destroy(elf);
}

Test(loader, closes_files_that_are_worked_on)
{
	struct elf_file *elf = open_libc();
	char name_a, name_b;
	struct loader *l;
	struct loader_page p;

	cr_assert_eq(loader_create(-1, parsers, &l), 0);
	for (int round = 0; round < 20; round++) {
		struct loader_file *a, *b;
		u32 n = 0;

		cr_assert_eq(loader_open(l, elf, &name_a, &a), 0);
		cr_assert_eq(loader_open(l, elf, &name_b, &b), 0);
		for (u64 i = 0; i < 20; i++) {
			cr_assert_eq(ask(a, 8 + i, LOADER_LATER), 0);
			cr_assert_eq(ask(b, 8 + i, LOADER_NOW), 0);
		}
		if (round % 2) {
			cr_assert(loader_take(l, true, &p));
			n = p.user == &name_b;
			loader_page_deinit(&p);
		}
		loader_close(a);
		for (; loader_take(l, true, &p); n++) {
			cr_assert_eq(p.user, &name_b);
			loader_page_deinit(&p);
		}
		cr_assert_eq(n, 20);
		loader_close(b);
	}
	loader_destroy(l);
	/* Files and loader are released at once. */
	for (int round = 0; round < 20; round++) {
		struct loader_file *f;

		cr_assert_eq(loader_create(-1, parsers, &l), 0);
		cr_assert_eq(loader_open(l, elf, NULL, &f), 0);
		for (u64 i = 0; i < 20; i++)
			cr_assert_eq(ask(f, 8 + i, LOADER_LATER), 0);
		loader_close(f);
		loader_destroy(l);
	}
	elf_file_destroy(elf);
}

/* A function whose CFI cannot be derived from its instructions. */
static const char source_text[] = "asm(\".cfi_sections .debug_frame\\n\"\n"
				  "    \".globl odd\\n.type odd,@function\\nodd:\\n\"\n"
				  "    \".cfi_startproc\\nnop\\n.cfi_def_cfa_offset 4096\\n\"\n"
				  "    \"nop\\nnop\\nret\\n.cfi_endproc\\n.size odd,.-odd\\n\");\n";

static void run(const char *const *argv)
{
	pid_t pid;
	FILE *f = spawn_read((char *const *)argv, &pid);

	cr_assert(f);
	cr_assert_eq(spawn_done(f, pid), 0, "%s", argv[0]);
}

static struct elf_file *open_elf(const char *path)
{
	struct elf_file *elf = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(elf_file_open(fd, NULL, &elf), 0);
	return elf;
}

/* Prints all rows of a page, with rules instead of their numbers. */
static void rows_of_loader(const struct elf_file *elf, int debug_root, u64 page, struct str *ret)
{
	struct loader_file *f;
	struct loader_page p;
	struct loader *l;
	u32 n_index;

	cr_assert_eq(loader_create(debug_root, parsers, &l), 0);
	cr_assert_eq(loader_open(l, elf, NULL, &f), 0);
	cr_assert_eq(ask(f, page, LOADER_NOW), 0);
	cr_assert(loader_take(l, true, &p));
	cr_assert_eq(p.error, 0);
	n_index = p.n_lines - (p.n_rows + UNWIND_ROWS_PER_BLOCK - 1) / UNWIND_ROWS_PER_BLOCK;
	for (u32 i = 0; i < p.n_rows; i++) {
		u32 row = ((const u32 *)p.lines)[n_index * UNWIND_ROWS_PER_BLOCK + i];
		const struct unwind_rule *r = &p.rules[row & 0xffff];

		str_printf(ret, "%x: %u r%u%+d; ", row >> 16, r->cfa_op, r->cfa_reg, r->cfa_off);
	}
	loader_page_deinit(&p);
	loader_close(f);
	loader_destroy(l);
}

Test(loader, reads_the_debug_frame_of_a_separate_file)
{
	char dir[] = "/tmp/culprit-loader-XXXXXX", c[64], lib[64], bare[64], debug[192], id[64];
	_cleanup_str_ struct str whole = {}, alone = {}, both = {};
	_cleanup_elf_file_ struct elf_file *full = NULL;
	_cleanup_elf_file_ struct elf_file *stripped = NULL;
	int root, n;
	u64 page;
	FILE *f;

	cr_assert(mkdtemp(dir));
	snprintf(c, sizeof(c), "%s/f.c", dir);
	snprintf(lib, sizeof(lib), "%s/f.so", dir);
	snprintf(bare, sizeof(bare), "%s/f.bare", dir);
	f = fopen(c, "w");
	cr_assert(f && fputs(source_text, f) >= 0 && fclose(f) == 0);
	run((const char *[]){"cc", "-g", "-O2", "-fno-asynchronous-unwind-tables",
			     "-fno-unwind-tables", "-fomit-frame-pointer", "-nostdlib", "-shared",
			     "-fPIC", "-Wl,--build-id", "-o", lib, c, NULL});
	full = open_elf(lib);
	cr_assert_gt(full->build_id_n, 2);
	n = snprintf(debug, sizeof(debug), "%s/usr/lib/debug/.build-id/%02x", dir,
		     full->build_id[0]);
	run((const char *[]){"mkdir", "-p", debug, NULL});
	for (u32 i = 1; i < full->build_id_n; i++)
		snprintf(id + 2 * (i - 1), 3, "%02x", full->build_id[i]);
	snprintf(debug + n, sizeof(debug) - (size_t)n, "/%s.debug", id);
	run((const char *[]){"objcopy", "--only-keep-debug", lib, debug, NULL});
	run((const char *[]){"strip", "-o", bare, lib, NULL});
	stripped = open_elf(bare);
	root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(root, 0);
	page = full->segments[1].svma >> UNWIND_PAGE_SHIFT;
	rows_of_loader(full, root, page, &whole);
	rows_of_loader(stripped, root, page, &both);
	run((const char *[]){"rm", debug, NULL});
	rows_of_loader(stripped, root, page, &alone);
	cr_expect_str_eq(str_get(&both), str_get(&whole));
	cr_expect_str_neq(str_get(&alone), str_get(&whole));
	close(root);
	run((const char *[]){"rm", "-r", dir, NULL});
}
