/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses in this program, whose names and lines the test knows, and the disk cache. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/map.h"
#include "symbol/answers.h"
#include "symbol/symbol.h"
#include "symbol/symtab.h"

static int here_line;

/* Returns an address in this function, and sets here_line to the address's line. */
static __attribute__((noinline)) u64 address_of_here(void)
{
	here_line = __LINE__ + 2;
	void *here;
	__asm__ volatile("lea 0(%%rip), %0" : "=r"(here));
	return (u64)(uintptr_t)here;
}

static int take_first(struct dl_phdr_info *info, size_t n, void *arg)
{
	*(u64 *)arg = info->dlpi_addr;
	return 1;
}

/* Returns avma - svma of this program, which is the first object in the list. */
static u64 load_bias(void)
{
	u64 bias = 0;

	dl_iterate_phdr(take_first, &bias);
	return bias;
}

static struct elf_file *open_self(void)
{
	struct elf_file *f = NULL;

	cr_assert_eq(elf_file_open(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), NULL, &f), 0);
	return f;
}

Test(symbols, know_this_line)
{
	struct symbols_options o = {.inlines = true, .lines = true, .root_fd = -1};
	struct elf_file *f = open_self();
	static struct symbol_chain c;
	struct symbols *s = NULL;
	u64 here = address_of_here() - load_bias() - 1;

	cr_assert_eq(symbols_open(f, &o, &s), 0);
	cr_assert_eq(symbols_lookup(s, here, &c), 0);
	cr_expect_str_eq(c.frames[0].name, "address_of_here");
	cr_expect_eq(c.frames[0].name, c.frames[0].system_name);
	cr_assert(c.frames[0].file);
	cr_expect(strstr(c.frames[0].file, "test_symbols.c"));
	cr_expect_eq((int)c.frames[0].line, here_line);
	cr_expect_eq(c.n, 1);
	cr_expect_not(c.frames[0].inlined);
	/* Strings stay through a trim, and the same address gives the same answer. */
	const char *name = c.frames[0].name;

	symbols_trim(s);
	cr_assert_eq(symbols_lookup(s, here + 1, &c), 0);
	cr_expect_eq(c.frames[0].name, name);
	cr_expect_eq(symbols_lookup(s, 0, &c), -ENOENT);
	cr_expect_eq(symbols_lookup(s, ~0ULL, &c), -ENOENT);
	cr_expect_eq(symbols_lookup(s, ~0ULL - 1, &c), -ENOENT);
	cr_expect_eq(symbols_lookup(s, 1ULL << 46, &c), -ENOENT);
	symbols_destroy(s);
	elf_file_destroy(f);
}

Test(symbols, without_lines_there_are_none)
{
	struct symbols_options o = {.root_fd = -1};
	struct elf_file *f = open_self();
	static struct symbol_chain c;
	struct symbols *s = NULL;
	u64 here = address_of_here() - load_bias() - 1;

	cr_assert_eq(symbols_open(f, &o, &s), 0);
	cr_assert_eq(symbols_lookup(s, here, &c), 0);
	cr_expect_str_eq(c.frames[0].name, "address_of_here");
	cr_expect_eq(c.frames[0].line, 0);
	cr_expect_null(c.frames[0].file);
	symbols_destroy(s);
	elf_file_destroy(f);
}

static void put_one(struct answers *a, u64 svma, const char *name, const char *file)
{
	static struct symbol_chain c;

	c.n = 2;
	c.frames[0] = (struct symbol_frame){
		.name = name, .system_name = name, .file = file, .line = 7, .inlined = true};
	c.frames[1] = (struct symbol_frame){
		.name = "outer()", .system_name = "_Z5outerv", .line = 9, .column = 70000};
	cr_assert_eq(answers_put(a, svma, &c, false), 0);
}

Test(cache, keeps_answers_and_misses_for_its_key_only)
{
	char dir[] = "/tmp/culprit-cache-XXXXXX", sub[128];
	struct answers a = {}, b = {};
	static struct symbol_chain c;

	cr_assert(mkdtemp(dir));
	snprintf(sub, sizeof(sub), "%s/not/yet", dir);
	put_one(&a, 0x1000, "inner", "/src/a.c");
	c.n = 0;
	cr_assert_eq(answers_put(&a, 0x2000, &c, false), 0);
	cr_assert_eq(answers_put(&a, 0x3000, &c, true), 0);
	cr_expect_eq(answers_load(&b, sub, "id", 1), -ENOENT);
	cr_assert_eq(answers_save(&a, sub, "id", 1), 0);
	cr_expect_eq(answers_load(&b, sub, "id", 2), -ENOENT);
	cr_expect_eq(b.list.n, 0);
	cr_assert_eq(answers_load(&b, sub, "id", 1), 0);
	cr_assert_eq(answers_get(&b, 0x1000, &c), 0);
	cr_assert_eq(c.n, 2);
	cr_expect_str_eq(c.frames[0].name, "inner");
	cr_expect_str_eq(c.frames[0].file, "/src/a.c");
	cr_expect_eq(c.frames[0].line, 7);
	cr_expect(c.frames[0].inlined);
	cr_expect_eq(c.frames[0].name, c.frames[0].system_name);
	cr_expect_str_eq(c.frames[1].system_name, "_Z5outerv");
	cr_expect_null(c.frames[1].file);
	cr_expect_eq(c.frames[1].column, 0, "a column that does not fit is not shown wrong");
	cr_expect_eq(answers_get(&b, 0x2000, &c), -ENOENT);
	cr_expect_eq(answers_get(&b, 0x3000, &c), -EAGAIN);
	answers_deinit(&a);
	answers_deinit(&b);
}

Test(strpool, strings_stay_where_they_are)
{
	struct strpool p = {};
	const char *first;
	u32 id, again;

	cr_assert_eq(strpool_add(&p, "first", &id), 0);
	first = strpool_get(&p, id);
	for (int i = 0; i < 50000; i++) {
		char text[32];

		snprintf(text, sizeof(text), "string number %d", i);
		cr_assert_eq(strpool_add(&p, text, &again), 0);
		cr_assert_str_eq(strpool_get(&p, again), text);
	}
	cr_assert_eq(strpool_add(&p, "first", &again), 0);
	cr_expect_eq(again, id);
	cr_expect_eq(strpool_get(&p, id), first);
	cr_expect_null(strpool_get(&p, 0));
	strpool_deinit(&p);
}

/* ---- the order of a table ---- */

#define MANY 3000

/* Of several symbols at one address the one with the lowest rank stays, at any distance. */
Test(symtab, each_address_keeps_its_best_name)
{
	static const u64 spans[] = {1 << 8, 1 << 20, 1ULL << 31, 1ULL << 45};

	for (size_t k = 0; k < ARRAY_SIZE(spans); k++) {
		struct symtab t = {.whole = true};
		struct map best = {}; /* start → rank */
		u64 seed = 7;

		for (u32 i = 0; i < MANY; i++) {
			u64 start, *known;

			seed = hash_u64(seed + i);
			start = 0x400000 + seed % spans[k] * 16;
			known = map_get(&best, start);
			if (!known || *known > i % 97)
				cr_assert_eq(map_put(&best, start, i % 97), 0);
			cr_assert_eq(vec_push(&t.list, (struct symtab_entry){.start = start,
									     .end = start + 16,
									     .name = "f",
									     .rank = i % 97,
									     .sized = true}),
				     0);
		}
		cr_assert_eq(symtab_finish(&t), 0);
		cr_assert_eq(t.list.n, best.n);
		for (size_t i = 0; i < t.list.n; i++) {
			const struct symtab_entry *e = &t.list.data[i];

			cr_assert(!i || t.list.data[i - 1].start < e->start);
			cr_assert_eq(e->rank, *map_get(&best, e->start));
			cr_assert_eq(symtab_find(&t, e->start + 15), e);
		}
		map_deinit(&best);
		symtab_deinit(&t);
	}
}
