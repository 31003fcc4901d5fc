/* SPDX-License-Identifier: Apache-2.0 */
/* Names, lines and inlined functions from a small heap, good and damaged. */
#include <criterion/criterion.h>
#include <errno.h>

#include "v8heap.h"

struct asked {
	struct arena arena;
	struct runtime_names names;
	struct v8_learned v;
	u8 sizes[3][4];
	u64 changed; /* of the cookie */
};

static void begin(struct asked *a)
{
	v8heap_build();
	*a = (struct asked){
		.arena = ARENA_INIT(16 << 20),
		.sizes = {{1, 2, 3, 4}, {1, 3, 5, 7}, {1, 5, 9, 13}},
		.v = {.version = V8_VERSION(12, 4, 0), .layout = v8heap_layout, .n_bytecodes = 4},
	};
	a->names.arena = &a->arena;
	a->v.bytecode_sizes = a->sizes[0];
	a->v.cache = calloc(1, sizeof(*a->v.cache));
}

static void end(struct asked *a)
{
	v8_cache_destroy(a->v.cache);
	arena_deinit(&a->arena);
}

static int name(struct asked *a, u64 shared, u64 kind, u64 position)
{
	struct procman_process process = {.pid = (u32)getpid(), .image = 1};
	struct runtime_target t = {.memory.pid = process.pid, .process = &process};
	const uint64_t *w = v8heap_word(shared + 40);
	u64 where = kind << V8_FRAME_SHIFT |
		    (v8_cookie(w[0], w[1]) ^ a->changed) << V8_COOKIE_SHIFT | position;

	a->names.n = 0;
	return runtime_v8.name(&t, &a->v, HEAP + shared, where, &a->names);
}

static void check_frame(const struct runtime_frame *f, const char *function, u32 line)
{
	cr_assert_str_eq(f->function, function);
	cr_assert_str_eq(f->file, "/a.js");
	cr_assert_eq(f->line, line, "%s is in line %u, not %u", function, f->line, line);
}

Test(v8_names, interpreted_frame_has_the_line_of_its_bytecode)
{
	struct asked a;

	begin(&a);
	/* Positions count from the array's tagged address. */
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63 + 4), 0);
	cr_assert_eq(a.names.n, 1);
	check_frame(&a.names.frames[0], "/a.js", 1);
	cr_assert_eq(a.names.frames[0].column, 14);
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63 + 20), 0);
	check_frame(&a.names.frames[0], "/a.js", 2);
	/* A position after the array's end. */
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63 + 40), 0);
	check_frame(&a.names.frames[0], "/a.js", 0);
	end(&a);
}

Test(v8_names, compiled_frame_has_what_was_inlined)
{
	struct asked a;

	begin(&a);
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_COMPILED, HEAP + CODE_AT + 8), 0);
	cr_assert_eq(a.names.n, 1);
	check_frame(&a.names.frames[0], "/a.js", 1);
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_COMPILED, HEAP + CODE_AT + 12), 0);
	cr_assert_eq(a.names.n, 2);
	check_frame(&a.names.frames[0], "/a.js/a.js", 5);
	check_frame(&a.names.frames[1], "/a.js", 2);
	/* The code of another function has no lines of this one. */
	cr_assert_eq(name(&a, SHARED_B, V8_FRAME_COMPILED, HEAP + CODE_AT + 12), 0);
	cr_assert_eq(a.names.n, 1);
	check_frame(&a.names.frames[0], "/a.js/a.js", 0);
	end(&a);
}

Test(v8_names, what_is_not_there_any_more_is_stale)
{
	struct asked a;

	begin(&a);
	/* The function's number in its script. */
	a.changed = 1;
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63), -ESTALE);
	a.changed = 0;
	/* The object was freed and its memory reused. */
	v8heap_word(SHARED_A)[0] = v8heap_tagged(0x80);
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63), -ESTALE);
	end(&a);
}

Test(v8_names, damage_costs_the_line_only)
{
	struct asked a;

	/* A table with the largest possible numbers. */
	begin(&a);
	memset(v8heap_word(TABLE + 16), 0xff, 8);
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63 + 4), 0);
	check_frame(&a.names.frames[0], "/a.js", 0);
	end(&a);
	/* An inlining that is not in the table. */
	begin(&a);
	v8heap_word(INLINING)[1] = v8heap_smi(0);
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_COMPILED, HEAP + CODE_AT + 12), 0);
	cr_assert_eq(a.names.n, 1);
	check_frame(&a.names.frames[0], "/a.js", 0);
	end(&a);
}

/* A script's source of n times a character, at an address of its own. */
static char *big_source(u32 n, char fill)
{
	const u64 at = 0x310000000000ULL;
	u64 *words = mmap((void *)(uintptr_t)at, n + 16ULL, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	cr_assert_neq(words, MAP_FAILED);
	words[0] = v8heap_tagged(0x20);
	words[1] = (u64)n << 32;
	memset(words + 2, fill, n);
	v8heap_word(SCRIPT_AT)[1] = at + 1;
	return (char *)(words + 2);
}

Test(v8_names, lines_are_found_across_the_pieces_that_a_source_is_read_in)
{
	const u32 piece = 64u << 10;
	const struct v8_lines *l;
	struct asked a;
	char *text;

	begin(&a);
	text = big_source(3 * piece, 'x');
	text[5] = '\n';
	text[piece - 1] = '\r';
	text[piece] = '\n';
	text[2 * piece - 1] = '\r';
	text[3 * piece - 1] = '\r';
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63 + 4), 0);
	check_frame(&a.names.frames[0], "/a.js", 2);
	l = &a.v.cache->lines.data[0];
	cr_assert_eq(l->n, 4);
	cr_expect_eq(l->ends[0], 5);
	cr_expect_eq(l->ends[1], piece);
	cr_expect_eq(l->ends[2], 2 * piece - 1);
	cr_expect_eq(l->ends[3], 3 * piece - 1);
	end(&a);
}

Test(v8_names, lines_are_read_again_after_they_were_given_up)
{
	struct asked a;

	begin(&a);
	big_source(64 << 10, 'x')[5] = '\n';
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63 + 4), 0);
	check_frame(&a.names.frames[0], "/a.js", 2);
	v8_trim(&a.v);
	cr_expect_eq(a.v.cache->bytes, 0);
	cr_expect_eq(a.v.cache->lines.cap, 0);
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63 + 4), 0);
	check_frame(&a.names.frames[0], "/a.js", 2);
	end(&a);
}

/* A hostile one would cost the agent four bytes for each of its own. */
Test(v8_names, a_script_of_too_many_lines_has_none)
{
	struct asked a;
	char *text;

	begin(&a);
	text = big_source(16 << 20, '\n');
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63 + 4), 0);
	check_frame(&a.names.frames[0], "/a.js", 0);
	cr_expect_lt(a.v.cache->bytes, 1 << 20);
	/* It is not read again. */
	memset(text, 'x', 16 << 20);
	cr_assert_eq(name(&a, SHARED_A, V8_FRAME_INTERPRETED, 63 + 4), 0);
	check_frame(&a.names.frames[0], "/a.js", 0);
	end(&a);
}
