/* SPDX-License-Identifier: Apache-2.0 */
/* The part of agent/runtime that all runtimes share: names, bounds and counters. */
#include <criterion/criterion.h>
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
