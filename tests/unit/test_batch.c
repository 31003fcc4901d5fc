/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline's batch: entries by key, stacks and sets of attributes by id. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pipeline/batch.h"
#include "base/clock.h"

static struct sampler_source sources[2] = {{.event = "cpu-clock", .hz = 99},
					   {.event = "page-faults"}};

/* A fake of procman's binaries: counts references, and knows only file 7. */
static int references;

const struct sampler_source *__wrap_sampler_source(const struct sampler *s, u32 i);
struct procman_binary *__wrap_procman_binary_of_id(const struct procman *pm, u32 id);
struct procman_binary *__wrap_procman_binary_get(struct procman_binary *b);
void __wrap_procman_binary_put(struct procman_binary *b);

const struct sampler_source *__wrap_sampler_source(const struct sampler *s, u32 i)
{
	(void)s;
	return i < ARRAY_SIZE(sources) ? &sources[i] : NULL;
}

struct procman_binary *__wrap_procman_binary_of_id(const struct procman *pm, u32 id)
{
	(void)pm;
	return id == 7 ? (struct procman_binary *)&references : NULL;
}

struct procman_binary *__wrap_procman_binary_get(struct procman_binary *b)
{
	cr_assert_eq((void *)b, (void *)&references);
	references++;
	return b;
}

void __wrap_procman_binary_put(struct procman_binary *b)
{
	cr_assert_eq((void *)b, (void *)&references);
	references--;
}

static struct pipeline pipeline;

static struct pipeline_batch *new_batch(void)
{
	struct pipeline_batch *b = batch_new(&pipeline);

	cr_assert(b);
	return b;
}

static u32 count(struct pipeline_batch *b, u32 pid, u64 stack, u64 source, s64 value)
{
	struct pipeline_entry e = {
		.key = {.pid = pid, .tid = pid, .user_stack = stack, .source = source},
		.count = 1,
		.value = value,
		.first_ns = 5};
	u32 index = ~0u;

	cr_assert_eq(batch_count(b, &e, &index), 0);
	return index;
}

Test(batch, starts_with_the_sources_of_the_sampler)
{
	u64 before = clock_ns(CLOCK_MONOTONIC);
	struct pipeline_batch *b = new_batch();

	cr_assert_eq(b->n_sources, 2);
	cr_assert_str_eq(b->sources[1].event, "page-faults");
	cr_assert(b->started_ns >= before);
	cr_assert_eq(b->entries.n, 0);
	cr_assert_eq(pipeline_sum(b).samples, 0);
	pipeline_give_back(&pipeline, b);
	pipeline_give_back(&pipeline, NULL);
}

Test(batch, entries_of_equal_key_add_up)
{
	struct pipeline_batch *b = new_batch();
	u32 first = count(b, 1, 10, 0, 100);

	cr_assert_eq(count(b, 1, 10, 0, -30), first);
	cr_assert_eq(b->entries.n, 1);
	cr_assert_eq(b->entries.data[first].count, 2);
	cr_assert_eq(b->entries.data[first].value, 70);
	pipeline_give_back(&pipeline, b);
}

Test(batch, every_part_of_the_key_tells_entries_apart)
{
	const struct pipeline_key keys[] = {
		{},
		{.pid = 1},
		{.tid = 1},
		{.comm = "a"},
		{.thread_name = "a"},
		{.image = 1},
		{.kernel_stack = 1},
		{.user_stack = 1},
		{.source = 1},
		{.context.trace_id = {1}},
		{.context.trace_id = {0, 1}},
		{.context.span_id = 1},
		{.context.root_id = 1},
		{.context.source = 1},
		{.context.flags = 1},
		{.context.attributes = 1},
	};
	struct pipeline_batch *b = new_batch();
	u32 index;

	for (u32 round = 0; round < 3; round++)
		for (u32 i = 0; i < ARRAY_SIZE(keys); i++) {
			struct pipeline_entry e = {.key = keys[i], .count = i + 1};

			cr_assert_eq(batch_count(b, &e, &index), 0);
			cr_assert_eq(index, i);
		}
	cr_assert_eq(b->entries.n, ARRAY_SIZE(keys));
	for (u32 i = 0; i < ARRAY_SIZE(keys); i++)
		cr_assert_eq(b->entries.data[i].count, 3 * (i + 1));
	pipeline_give_back(&pipeline, b);
}

Test(batch, many_entries)
{
	struct pipeline_batch *b = new_batch();

	for (u32 round = 0; round < 2; round++)
		for (u32 i = 0; i < 20000; i++)
			cr_assert_eq(count(b, i, i % 7, i % 2, 1), i);
	cr_assert_eq(b->entries.n, 20000);
	for (u32 i = 0; i < 20000; i++)
		cr_assert_eq(b->entries.data[i].value, 2);
	pipeline_give_back(&pipeline, b);
}

/* If another entry is at the place of an entry's hash, the entry gets the next place. */
Test(batch, entries_of_equal_hash_are_two)
{
	const struct pipeline_entry e = {.key = {.pid = 5}, .count = 1, .value = 1};
	struct pipeline_batch *b = new_batch();
	u32 other = count(b, 1, 0, 0, 1), index;

	cr_assert_eq(map_put(&b->entry_index, hash_bytes(&e.key, sizeof(e.key)), other), 0);
	cr_assert_eq(batch_count(b, &e, &index), 0);
	cr_assert_neq(index, other);
	cr_assert_eq(b->entries.data[other].count, 1);
	cr_assert_eq(batch_count(b, &e, &index), 0);
	cr_assert_eq(b->entries.n, 2);
	cr_assert_eq(b->entries.data[index].count, 2);
	pipeline_give_back(&pipeline, b);
}

#define FILE_7 (7ULL << WORD_SVMA_BITS | 0x1000)
#define FILE_8 (8ULL << WORD_SVMA_BITS | 0x1000)

Test(batch, stacks_by_id)
{
	static const u64 user[] = {FILE_7, FILE_8, FILE_7 + 1}, kernel[] = {0xffffffff81000000};
	struct pipeline_batch *b = new_batch();
	const struct pipeline_stack *s;

	cr_assert_null(pipeline_stack(b, 1));
	cr_assert_eq(batch_add_stack(b, NULL, 1, user, 3, STOP_STACK_LOST, false), 0);
	cr_assert_eq(references, 1, "a file is held once, one that is not known is not");
	cr_assert_eq(batch_add_stack(b, NULL, 2, kernel, 1, 0, true), 0);
	cr_assert_eq(batch_add_stack(b, NULL, 3, NULL, 0, 0, false), 0);
	s = pipeline_stack(b, 1);
	cr_assert(s && s->n == 3 && s->stop == STOP_STACK_LOST && !s->kernel && !s->raw);
	cr_assert_eq(memcmp(&b->frames.data[s->first], user, sizeof(user)), 0);
	s = pipeline_stack(b, 2);
	cr_assert(s && s->n == 1 && s->kernel && !s->raw);
	cr_assert_eq(b->frames.data[s->first], kernel[0]);
	s = pipeline_stack(b, 3);
	cr_assert(s && s->n == 0);
	pipeline_give_back(&pipeline, b);
	cr_assert_eq(references, 0);
}

Test(batch, a_stack_of_a_known_id_changes_nothing)
{
	static const u64 user[] = {FILE_7, FILE_7 + 1};
	struct pipeline_batch *b = new_batch();

	cr_assert_eq(batch_add_stack(b, NULL, 1, user, 2, 0, false), 0);
	cr_assert_eq(batch_add_stack(b, NULL, 1, user, 1, 0, false), 0);
	cr_assert_eq(pipeline_stack(b, 1)->n, 2);
	cr_assert_eq(b->stacks.n, 1);
	cr_assert_eq(b->frames.n, 2);
	pipeline_give_back(&pipeline, b);
}

Test(batch, raw_frames_mark_their_stack)
{
	static const u64 raw[] = {FILE_7, WORD_RAW | 0x1000},
			 runtime[] = {WORD_RUNTIME | 1, FILE_7};
	struct pipeline_batch *b = new_batch();

	cr_assert_eq(batch_add_stack(b, NULL, 1, raw, 2, 0, false), 0);
	cr_assert(pipeline_stack(b, 1)->raw);
	cr_assert_eq(batch_add_stack(b, NULL, 2, runtime, 2, 0, false), 0);
	cr_assert_not(pipeline_stack(b, 2)->raw);
	pipeline_give_back(&pipeline, b);
}

static const struct context_label LABELS[] = {{"user", "eve"}, {"empty", ""}, {"", "x"}};

static void expect_set(const struct pipeline_batch *b, u32 pid, u64 id, u32 n, bool partial)
{
	struct context_label got[CONTEXT_MAX_ATTRIBUTES];
	bool is_partial;
	u32 set = batch_attributes(b, pid, id, &is_partial);

	cr_assert_eq(is_partial, partial);
	cr_assert_eq(pipeline_attributes(b, set, got), n);
	for (u32 i = 0; i < n; i++) {
		cr_assert_str_eq(got[i].name, LABELS[i].name);
		cr_assert_str_eq(got[i].value, LABELS[i].value);
	}
}

Test(batch, attributes_by_process_and_id)
{
	struct pipeline_batch *b = new_batch();

	expect_set(b, 1, 0, 0, false);
	expect_set(b, 1, 5, 0, true);
	cr_assert_eq(batch_add_attributes(b, 1, 5, LABELS, 3, false), 0);
	cr_assert_eq(batch_add_attributes(b, 1, 6, LABELS, 1, true), 0);
	cr_assert_eq(batch_add_attributes(b, 2, 5, NULL, 0, false), 0);
	cr_assert_eq(batch_add_attributes(b, 1, 5, LABELS, 1, true), 0,
		     "of a known id nothing changes");
	expect_set(b, 1, 5, 3, false);
	expect_set(b, 1, 6, 1, true);
	expect_set(b, 2, 5, 0, false);
	expect_set(b, 2, 6, 0, true);
	cr_assert(batch_has_attributes(b, 2, 5));
	cr_assert_not(batch_has_attributes(b, 2, 6));
	pipeline_give_back(&pipeline, b);
}

Test(batch, attributes_go_along_into_the_next_batch)
{
	struct pipeline_batch *old = new_batch(), *b = new_batch();

	cr_assert_eq(batch_add_attributes(old, 1, 5, LABELS, 2, true), 0);
	cr_assert_eq(batch_copy_attributes(b, old, 1, 6), 0);
	cr_assert_not(batch_has_attributes(b, 1, 6));
	cr_assert_eq(batch_copy_attributes(b, old, 1, 5), 0);
	pipeline_give_back(&pipeline, old);
	expect_set(b, 1, 5, 2, true);
	pipeline_give_back(&pipeline, b);
}

/* A wait whose value comes after the end of its period keeps who ended it. */
Test(batch, wakers_go_along_with_their_entry)
{
	struct pipeline_batch *from = new_batch(), *to = new_batch();
	const u64 frames[] = {1};
	struct pipeline_waker first = {.comm = "first", .tid = 1, .kernel_stack = 11};
	struct pipeline_waker second = {.comm = "second", .tid = 2};
	struct pipeline_entry e = {.key = {.pid = 5}, .count = 1};
	const struct pipeline_waker *w;
	u32 index;

	cr_assert_eq(batch_add_stack(from, NULL, 11, frames, 1, 0, true), 0);
	for (u32 i = 0; i < 3; i++) {
		struct pipeline_waker other = {.comm = "other", .tid = 10 + i};

		cr_assert_gt(batch_add_waker(from, &other), 0);
	}
	second.next = batch_add_waker(from, &first);
	e.key.waker = batch_add_waker(from, &second);
	cr_assert_eq(e.key.waker, 5);
	cr_assert_eq(batch_copy_entry(to, NULL, from, &e, &index), 0);
	cr_assert_eq(to->wakers.n, 2);
	cr_assert_leq(to->entries.data[index].key.waker, 2);
	w = &to->wakers.data[to->entries.data[index].key.waker - 1];
	cr_assert_str_eq(w->comm, "second");
	w = &to->wakers.data[w->next - 1];
	cr_assert_str_eq(w->comm, "first");
	cr_assert(pipeline_stack(to, 11));
	pipeline_give_back(&pipeline, from);
	pipeline_give_back(&pipeline, to);
}

Test(batch, counts_of_all_sources_add_up)
{
	struct pipeline_batch *b = new_batch();

	b->counts[0] = (struct pipeline_counts){1, 2, 3, 4, 5, 6, 7, {[1] = 8}};
	b->counts[1] = (struct pipeline_counts){10, 20, 30, 40, 50, 60, 70, {[1] = 80, [2] = 9}};
	cr_assert_eq(pipeline_sum(b).samples, 11);
	cr_assert_eq(pipeline_sum(b).user_samples, 22);
	cr_assert_eq(pipeline_sum(b).truncated, 33);
	cr_assert_eq(pipeline_sum(b).unread, 44);
	cr_assert_eq(pipeline_sum(b).deferred, 55);
	cr_assert_eq(pipeline_sum(b).attributes_left_out, 66);
	cr_assert_eq(pipeline_sum(b).lost, 77);
	cr_assert_eq(pipeline_sum(b).stops[1], 88);
	cr_assert_eq(pipeline_sum(b).stops[2], 9);
	pipeline_give_back(&pipeline, b);
}
