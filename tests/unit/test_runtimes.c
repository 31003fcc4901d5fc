/* SPDX-License-Identifier: Apache-2.0 */
/* The part of agent/runtime that all runtimes share: names, bounds and counters. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "agent/runtime/runtime.h"
#include "base/budget.h"

static const struct runtimes_options no_maps = {
	.binaries_fd = -1, .processes_fd = -1, .locks_fd = -1};

static u64 word_of(u32 runtime, u64 address)
{
	return WORD_RUNTIME | (u64)runtime << WORD_RUNTIME_SHIFT | address;
}

static const char *text_of(const struct runtime_answers *a, u32 id)
{
	const struct runtime_answer *answer = runtime_answers_get(a, id);

	cr_assert_not_null(answer);
	cr_assert_eq(answer->n, 1);
	return a->frames.data[answer->first].function;
}

static int name_one(struct runtimes *r, u64 address, u32 *ret_id)
{
	const u64 words[] = {word_of(RUNTIME_PYTHON, address), 0};

	return runtimes_name(r, NULL, words, ARRAY_SIZE(words), ret_id);
}

/* The process of the frames is gone; only looking up names needs memory. */
Test(runtimes, frames_past_the_memory_limit_become_a_note)
{
	struct budget budget;
	struct runtimes_options o = no_maps;
	struct runtimes *r = NULL;
	struct runtime_answers answers;
	struct runtimes_stats stats;
	u32 id = 0, first = 0, n = 0, kind;

	budget_init(&budget, 16 << 20);
	o.budget = &budget;
	cr_assert_eq(runtimes_create(&o, &r), 0);
	cr_assert_eq(name_one(r, 8, &first), 0);
	while (name_one(r, 16 + 8 * n, &id) == 0)
		cr_assert_lt(++n, 1 << 20, "names grow without a limit");
	for (u32 i = 1; i < 100; i++) {
		u32 other = 0;

		cr_assert_eq(name_one(r, 16 + 8 * (n + i), &other), 1);
		cr_assert_eq(other, id, "one answer is shared");
	}
	runtimes_get_stats(r, &stats);
	cr_expect_eq(stats.unnamed, 100);
	cr_expect_eq(name_one(r, 8, &first), 0, "what has a name keeps it");
	answers = runtimes_take_answers(r);
	cr_expect_str_eq(text_of(&answers, first), "[stale]");
	cr_expect_str_eq(text_of(&answers, id), "[python frame not named: memory limit]");
	kind = runtime_answers_get(&answers, id)->kind;
	cr_expect_eq(kind, runtime_answers_get(&answers, first)->kind);
	runtime_answers_deinit(&answers);
	cr_expect_eq(name_one(r, 16 + 8 * n, &id), 0, "the next period has room again");
	runtimes_destroy(r);
	budget_deinit(&budget);
}

static u32 add_answer(struct runtime_answers *a, const char *function, const char *file, u32 line)
{
	struct runtime_frame f = {.function = function, .file = file, .line = line};

	cr_assert_eq(vec_push(&a->frames, f), 0);
	cr_assert_eq(vec_push(&a->answers,
			      (struct runtime_answer){(u32)a->frames.n - 1, 1, FRAME_PYTHON}),
		     0);
	return (u32)a->answers.n - 1;
}

Test(runtimes, answers_are_copied_by_what_they_say)
{
	struct runtime_answers from = {.arena = ARENA_INIT(1 << 20)};
	struct runtime_answers to = {.arena = ARENA_INIT(1 << 20)};
	const struct {
		const char *function, *file;
		u32 line;
	} rows[] = {{"f", "a.py", 1},
		    {"f", "a.py", 2},
		    {"f", "b.py", 1},
		    {"g", "a.py", 1},
		    {"f", NULL, 1}};
	u32 ids[ARRAY_SIZE(rows)], again;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		u32 id = add_answer(&from, rows[i].function, rows[i].file, rows[i].line);

		cr_assert_eq(runtime_answers_copy(&to, &from, id, &ids[i]), 0);
		for (u32 k = 0; k < i; k++)
			cr_assert_neq(ids[i], ids[k]);
	}
	/* Another answer that says the same is the same one. */
	cr_assert_eq(runtime_answers_copy(&to, &from, add_answer(&from, "f", "b.py", 1), &again),
		     0);
	cr_assert_eq(again, ids[2]);
	cr_assert_eq(runtime_answers_copy(&to, &from, 99, &again), -ENOENT);
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct runtime_answer *a = runtime_answers_get(&to, ids[i]);
		const struct runtime_frame *f = &to.frames.data[a->first];

		cr_assert_eq(a->kind, FRAME_PYTHON);
		cr_assert_str_eq(f->function, rows[i].function);
		cr_assert_eq(f->line, rows[i].line);
		cr_assert_eq(f->file == NULL, rows[i].file == NULL);
		if (f->file)
			cr_assert_str_eq(f->file, rows[i].file);
	}
	/* Without room nothing is kept that is cut. */
	to.arena.limit = 0;
	again = add_answer(&from, "a_function_with_a_longer_name_than_there_is_room_for", NULL, 1);
	for (int i = 0; i < 1000 && to.arena.left; i++)
		(void)arena_alloc(&to.arena, 8);
	cr_assert_eq(runtime_answers_copy(&to, &from, again, &again), -ENOMEM);
	runtime_answers_deinit(&from);
	runtime_answers_deinit(&to);
}
