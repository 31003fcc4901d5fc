/* SPDX-License-Identifier: Apache-2.0 */
/* A batch that grows until it is full, while the names of the previous batch are looked up. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/pipeline/batch.h"

static struct pipeline_batch *begin(u64 max_bytes)
{
	struct pipeline_batch *b = calloc(1, sizeof(*b));

	cr_assert_not_null(b);
	cr_assert_eq(strtab_init(&b->attributes), 0);
	b->max_bytes = max_bytes;
	return b;
}

static int count(struct pipeline_batch *b, u32 tid)
{
	struct pipeline_entry e = {.key = {.pid = 1, .tid = tid}, .count = 1, .value = 1};
	u32 index;

	return batch_count(b, &e, &index);
}

static int add_stack(struct pipeline_batch *b, u64 id)
{
	u64 frames[64] = {};

	return batch_add_stack(b, NULL, id, frames, ARRAY_SIZE(frames), STOP_COMPLETE, true);
}

Test(batch_full, stops_growing_at_its_limit)
{
	struct pipeline_batch *b = begin(1 << 20);
	u32 n = 0, n_stacks = 0;
	u64 before;

	while (count(b, n) == 0)
		cr_assert_lt(++n, 1 << 20, "it grows without a limit");
	cr_expect_eq(count(b, n), -ENOBUFS);
	cr_expect_eq(add_stack(b, 1), -ENOBUFS);
	before = b->entries.data[0].count;
	cr_expect_eq(count(b, 0), 0, "what is there is still counted");
	cr_expect_eq(b->entries.data[0].count, before + 1);
	cr_expect_lt(b->entries.cap * sizeof(*b->entries.data), 2 << 20);
	pipeline_give_back(NULL, b);

	b = begin(1 << 20);
	while (add_stack(b, n_stacks) == 0)
		cr_assert_lt(++n_stacks, 1 << 20);
	cr_expect_gt(n_stacks, 100);
	cr_expect_eq(add_stack(b, 0), 0, "it is there");
	cr_expect_eq(count(b, 1), -ENOBUFS);
	pipeline_give_back(NULL, b);
}

Test(batch_full, of_a_recording_that_nobody_takes_may_be_as_large_as_it_is)
{
	struct pipeline_batch *b = begin(0);

	for (u32 i = 0; i < 100000; i++)
		cr_assert_eq(count(b, i), 0);
	pipeline_give_back(NULL, b);
}
