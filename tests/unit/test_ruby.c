/* SPDX-License-Identifier: Apache-2.0 */
/* Ruby: names, files and lines of frames, from objects in this process's own memory. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/runtime/ruby/ruby.h"
#include "base/arena.h"

#define SLOT 24 /* words of an object; more than any has */
#define STRING_OUTSIDE (1u << 13)
#define SINGLETON (1u << 13)

/* Objects, each at its slot; slot 0 is unused. */
enum {
	PATHS = 1,
	PATH,
	LABEL,
	ISEQ,
	PARENT,
	METHOD,
	DEFINITION,
	OWNER,
	CLASS_NAME,
	TEXT,
	BLOCKS,
	BLOCK,
	PARENT_LABEL,
	ATTACHED,
	N_OBJECTS
};

static u64 heap[N_OBJECTS][SLOT];
static u64 body[48], parent[48], block[1024], index_words[6 + 10 * 3];
static u32 lines[200][3];
static struct ruby_learned learned;
static u64 symbols[3];

static u64 object(u32 i)
{
	return (u64)heap[i];
}

static void put_string(u32 at, const char *text)
{
	heap[at][0] = 5 | STRING_OUTSIDE;
	heap[at][2] = strlen(text);
	heap[at][3] = (u64)text;
}

static void put_body(u64 *to, u32 kind, u32 label)
{
	to[0] = kind | 1000ULL << 32;
	to[1] = 0x5000;
	to[8] = object(PATHS);
	to[10] = object(label);
	to[11] = 7;
}

/* One entry for each even position: line 100 + position / 2. */
static void put_lines(void)
{
	const struct ruby_layout *o = &learned.layout;

	for (u32 i = 0; i < ARRAY_SIZE(lines); i++)
		lines[i][0] = 100 + i;
	for (u32 i = 0; i < 54; i++)
		index_words[i / 9] |= (u64)(i / 2 + 1) << i % 9 * 7;
	for (u32 i = 0; i < 2; i++) {
		u64 *part = index_words + 6 + 10 * i;

		part[0] = 27 + 256 * i;
		for (u32 k = 0; k < 8; k++) {
			part[2 + k] = 0x5555555555555555;
			if (k)
				part[1] |= 32ULL * k << 9 * (k - 1);
		}
	}
	body[o->lines / 8] = (u64)lines;
	((u32 *)body)[o->n_lines / 4] = ARRAY_SIZE(lines);
	body[o->line_index / 8] = (u64)index_words;
}

static void setup(u32 version)
{
	memset(heap, 0, sizeof(heap));
	memset(index_words, 0, sizeof(index_words));
	learned = (struct ruby_learned){.layout = *ruby_layout(version), .symbols = (u64)symbols};
	put_string(PATH, "/srv/app.rb");
	put_string(LABEL, "block in work");
	put_string(PARENT_LABEL, "work");
	put_string(CLASS_NAME, "Shop::Cart");
	put_string(TEXT, "each");
	heap[PATHS][0] = 7 | 1u << 13;
	heap[PATHS][2] = object(PATH);
	put_body(body, 2, LABEL);
	put_body(parent, 1, PARENT_LABEL);
	put_lines();
	heap[ISEQ][0] = 0x1a | 7 << 12;
	heap[ISEQ][2] = (u64)body;
	heap[PARENT][2] = (u64)parent;
	body[learned.layout.parent / 8] = body[learned.layout.local / 8] = object(PARENT);
	parent[learned.layout.local / 8] = object(PARENT);
	heap[METHOD][0] = 0x1a | 6 << 12;
	heap[METHOD][2] = object(DEFINITION);
	heap[METHOD][4] = object(OWNER);
	heap[DEFINITION][0] = 1;
	heap[DEFINITION][4] = 513 << 4;
	heap[OWNER][0] = 2;
	heap[OWNER][(32 + 120) / 8] = object(CLASS_NAME);
	symbols[2] = object(BLOCKS);
	heap[BLOCKS][0] = 7 | 1u << 13;
	heap[BLOCKS][3] = object(BLOCK);
	heap[BLOCK][0] = 7;
	heap[BLOCK][4] = (u64)block;
	block[2] = object(TEXT);
}

static int name(bool in_c, u64 position, struct runtime_names *ret)
{
	struct runtime_memory m = {.pid = (u32)getpid()};
	u64 cookie = ruby_cookie(body, in_c ? object(DEFINITION) : 0) & RUBY_COOKIE_MASK;

	ret->n = 0;
	return ruby_name(&m, &learned, 0,
			 object(ISEQ) >> 3 | cookie << RUBY_ADDRESS_BITS | (in_c ? RUBY_IN_C : 0),
			 object(METHOD) >> 3 | position << RUBY_ADDRESS_BITS, ret);
}

Test(ruby, label_path_and_line)
{
	struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	static const u32 positions[][2] = {{0, 100},  {1, 100},	  {2, 100},   {3, 101},	 {54, 126},
					   {55, 127}, {119, 159}, {121, 160}, {390, 294}};

	setup(0x0303);
	for (u32 i = 0; i < ARRAY_SIZE(positions); i++) {
		cr_assert_eq(name(false, positions[i][0], &names), 0);
		cr_expect_str_eq(names.frames[0].function, "block in work");
		cr_expect_str_eq(names.frames[0].file, "/srv/app.rb");
		cr_expect_eq(names.frames[0].line, positions[i][1], "%u: line %u", positions[i][0],
			     names.frames[0].line);
		cr_expect_eq(names.frames[0].start_line, 7);
	}
	cr_assert_eq(name(false, RUBY_NO_POSITION, &names), 0);
	cr_expect_eq(names.frames[0].line, 0);
	cr_assert_eq(name(false, 500, &names), 0); /* behind the last entry of the table */
	cr_expect_eq(names.frames[0].line, 0);
	arena_deinit(&arena);
}

Test(ruby, method_in_c)
{
	struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};

	setup(0x0301);
	cr_assert_eq(name(true, 3, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "each");
	cr_expect_str_eq(names.frames[0].file, "/srv/app.rb");
	cr_expect_eq(names.frames[0].line, 101);
	setup(0x0304);
	cr_assert_eq(name(true, 3, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "Shop::Cart#each");
	heap[DEFINITION][0] = 0; /* not in C any more */
	cr_expect_eq(name(true, 3, &names), -ESTALE);
	arena_deinit(&arena);
}

Test(ruby, owners)
{
	struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};

	setup(0x0304);
	cr_assert_eq(name(false, 3, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "block in Shop::Cart#work");
	heap[ATTACHED][0] = 3;
	heap[ATTACHED][(32 + 120) / 8] = object(CLASS_NAME);
	heap[OWNER][0] = 2 | SINGLETON;
	heap[OWNER][(32 + 96) / 8] = object(ATTACHED);
	cr_assert_eq(name(false, 3, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "block in Shop::Cart.work");
	heap[ATTACHED][0] = 1; /* the singleton of an object that is no class */
	cr_assert_eq(name(false, 3, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "block in work");
	heap[OWNER][0] = 2;
	put_string(CLASS_NAME, "#<Class:0x00007f>");
	cr_assert_eq(name(false, 3, &names), 0);
	cr_expect_str_eq(names.frames[0].function, "block in work");
	arena_deinit(&arena);
}

Test(ruby, other_objects)
{
	struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	struct runtime_memory m = {.pid = (u32)getpid()};
	u64 cookie;

	setup(0x0303);
	cookie = ruby_cookie(body, 0) & RUBY_COOKIE_MASK;
	body[10] = object(TEXT); /* another label: another cookie */
	cr_expect_eq(ruby_name(&m, &learned, 0, object(ISEQ) >> 3 | cookie << RUBY_ADDRESS_BITS, 0,
			       &names),
		     -ESTALE);
	setup(0x0303);
	heap[METHOD][0] = 0x1a | 1 << 12; /* a cref */
	cr_expect_eq(name(false, 3, &names), -ESTALE);
	setup(0x0303);
	heap[ISEQ][0] = 0; /* freed */
	cr_expect_eq(name(false, 3, &names), -ESTALE);
	setup(0x0303);
	heap[LABEL][0] = 7;
	cr_expect_eq(name(false, 3, &names), -ESTALE);
	setup(0x0303);
	heap[LABEL][2] = 1ULL << 40;
	cr_expect_lt(name(false, 3, &names), 0);
	arena_deinit(&arena);
}

Test(ruby, versions)
{
	cr_expect_not_null(ruby_layout(0x0207));
	cr_expect_null(ruby_layout(0x0206));
	cr_expect_null(ruby_layout(0x0500));
}
