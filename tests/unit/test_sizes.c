/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of buffers that never shrink, for 1 to 512 CPUs, and of copies of stacks. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/sampler/copies.h"
#include "agent/sampler/sizes.h"

#define MIB (1ULL << 20)

/* Returns roughly the input of a recording of cpu-clock. */
static struct sizes_input input(u32 cpus, u64 hz, u64 limit_bytes)
{
	return (struct sizes_input){.cpus = cpus,
				    .hz = hz,
				    .cpu_bytes = 98 << 10,
				    .shared_bytes = 8 * MIB,
				    .limit_bytes = limit_bytes};
}

static void check(const struct sizes_input *in, const struct sizes *s)
{
	cr_expect_eq(s->ring_bytes & (s->ring_bytes - 1), 0);
	cr_expect_eq(s->event_ring_bytes & (s->event_ring_bytes - 1), 0);
	cr_expect(s->copies && s->copies <= in->cpus);
	cr_expect_gt(s->fixed_bytes, in->shared_bytes + s->ring_bytes +
					     in->cpus * (in->cpu_bytes + s->event_ring_bytes));
}

Test(sizes, without_a_limit_grow_with_the_cpus)
{
	u64 last = 0;

	for (u32 cpus = 1; cpus <= 512; cpus++) {
		struct sizes_input in = input(cpus, 20, 0);
		struct sizes s;

		cr_assert_eq(sizes_choose(&in, &s, NULL), 0);
		check(&in, &s);
		cr_expect_eq(s.event_ring_bytes, 256 << 10);
		cr_expect_geq(s.ring_bytes, cpus * 20 / 4 * 1024);
		cr_expect_gt(s.fixed_bytes, last);
		last = s.fixed_bytes;
	}
}

Test(sizes, fit_the_limit_or_name_the_smallest_that_works)
{
	static const u64 rates[] = {20, 99, 999};

	for (u32 cpus = 1; cpus <= 512; cpus++) {
		for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
			struct sizes_input in = input(cpus, rates[i], 8 * MIB), all = in;
			struct sizes s = {}, full;
			struct diag diag = {};
			u64 least;

			all.limit_bytes = 0;
			cr_assert_eq(sizes_choose(&all, &full, NULL), 0);
			cr_assert_eq(sizes_choose(&in, &s, &diag), -ENOMEM);
			cr_assert_eq(s.ring_bytes, 0, "it is untouched");
			cr_assert(strrchr(diag.text, ' '));
			cr_assert_eq(sscanf(strrchr(diag.text, ' '), "%llu", &least), 1, "%s",
				     diag.text);

			in.limit_bytes = (least - 1) * MIB;
			cr_expect_eq(sizes_choose(&in, &s, NULL), -ENOMEM, "%u CPUs, %llu", cpus,
				     least);
			for (u64 limit = least; limit <= 4096; limit = limit * 3 / 2) {
				in.limit_bytes = limit * MIB;
				cr_assert_eq(sizes_choose(&in, &s, NULL), 0, "%u CPUs, %llu", cpus,
					     limit);
				check(&in, &s);
				cr_expect_leq(s.fixed_bytes, in.limit_bytes / 2);
				cr_expect_leq(s.fixed_bytes, full.fixed_bytes);
				if (full.fixed_bytes <= in.limit_bytes / 4)
					cr_expect_eq(s.ring_bytes, full.ring_bytes);
			}
		}
	}
}

Test(sizes, the_default_limit_is_enough_for_256_cpus)
{
	struct sizes_input in = input(256, 20, 384 * MIB);
	struct sizes s;

	cr_assert_eq(sizes_choose(&in, &s, NULL), 0);
	cr_expect_leq(s.fixed_bytes, in.limit_bytes / 4);
	in = input(512, 20, 384 * MIB);
	cr_assert_eq(sizes_choose(&in, &s, NULL), 0);
}

Test(sizes, a_ring_that_was_asked_for)
{
	struct sizes_input in = input(4, 99, 0);
	struct sizes s;

	in.ring_bytes = 64 * MIB;
	cr_assert_eq(sizes_choose(&in, &s, NULL), 0);
	cr_expect_eq(s.ring_bytes, 64 * MIB);
}

/* ---- copies ---- */

static void take_page(struct copies *c, u8 level, u16 cpu, u16 index)
{
	static struct record_copy record;

	record = (struct record_copy){
		.level = level, .cpu = cpu, .index = index, .address = 4096ULL * index};
	record.data[0] = (u8)(cpu + level);
	copies_take(c, &record);
}

Test(sizes, copies_whose_end_was_lost_are_given_up)
{
	struct copies c;
	struct sampler_copy *copy;

	cr_assert_eq(copies_init(&c, 1, 256), 0);
	c.max = 8;
	for (u16 cpu = 0; cpu < 256; cpu++) {
		take_page(&c, 0, cpu, 0);
		cr_expect_leq(c.n, 8);
	}
	cr_expect_eq(c.n + c.n_given_up, 256);
	take_page(&c, 0, 255, 1);
	copy = copies_get(&c, 0, 0, 255);
	cr_assert_not_null(copy);
	cr_expect_eq(copy->n, 2);
	cr_expect_eq(copy->data[0], 255);
	copies_drop(&c, copy);
	cr_expect_eq(copy->n, 0);
	cr_expect_null(copies_get(&c, 0, 0, 256));
	cr_expect_null(copies_get(&c, 0, SAMPLE_MAX_LEVELS, 0));
	cr_expect_null(copies_get(&c, 1, 0, 0));
	take_page(&c, 0, 256, 0);
	copies_deinit(&c);
}

/* A sample preempted in the middle of its copies by a task that is sampled, too. */
Test(sizes, copies_of_two_levels_do_not_mix)
{
	struct copies c;
	struct sampler_copy *copy;

	cr_assert_eq(copies_init(&c, 1, 2), 0);
	take_page(&c, 0, 1, 0);
	take_page(&c, 1, 1, 0);
	take_page(&c, 1, 1, 1);
	take_page(&c, 0, 1, 1);
	for (u32 level = 0; level < 2; level++) {
		copy = copies_get(&c, 0, level, 1);
		cr_assert_eq(copy->n, 2);
		cr_expect_eq(copy->data[0], 1 + level);
		cr_expect_eq(copy->data[SAMPLE_COPY_BYTES], 1 + level);
	}
	copies_deinit(&c);
}
