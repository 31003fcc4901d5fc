/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that builds unwind rows gives what is built without it; and nobody is left behind. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "agent/tables/loader.h"
#include "base/vec.h"
#include "unwind/unwind.h"

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

/* A page's rows by their rules, which are numbered in the order in which pages were built. */
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
	cr_assert_eq(loader_create(&l), 0);
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
	cr_assert_eq(loader_create(&l), 0);
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
	/* There is no such page. */
	cr_assert_eq(ask(f, first + (1 << 20), LOADER_SOON), 0);
	cr_assert(loader_take(l, true, &p));
	cr_assert_eq(p.error, -ENOENT);
	loader_page_deinit(&p);
	loader_close(f);
	loader_destroy(l);
	elf_file_destroy(elf);
}

Test(loader, closes_files_that_are_worked_on)
{
	struct elf_file *elf = open_libc();
	char name_a, name_b;
	struct loader *l;
	struct loader_page p;

	cr_assert_eq(loader_create(&l), 0);
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
	/* And when everything goes at once. */
	for (int round = 0; round < 20; round++) {
		struct loader_file *f;

		cr_assert_eq(loader_create(&l), 0);
		cr_assert_eq(loader_open(l, elf, NULL, &f), 0);
		for (u64 i = 0; i < 20; i++)
			cr_assert_eq(ask(f, 8 + i, LOADER_LATER), 0);
		loader_close(f);
		loader_destroy(l);
	}
	elf_file_destroy(elf);
}
