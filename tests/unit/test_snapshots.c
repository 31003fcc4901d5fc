/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates by snapshots of stacks: SkyWalking's, by an example of its own tests and by cases that
 * show its quirks, and the unbiased one; and trees of several threads as one.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>

#include "base/map.h"
#include "server/analyze/analyze.h"

#define MS 1000000

struct made {
	struct analyze_snapshots s;
	struct analyze_calls out;
};

static void made_deinit(struct made *m)
{
	analyze_snapshots_deinit(&m->s);
	analyze_calls_deinit(&m->out);
}
#define _cleanup_made_ __attribute__((cleanup(made_deinit)))

/* stack: a letter for each frame, from the root. */
static void add(struct made *m, u32 segment, u32 sequence, u64 ms, const char *stack)
{
	struct analyze_snapshot e = {.segment = segment,
				     .sequence = sequence,
				     .time_ns = ms * MS,
				     .first = (u32)m->s.frames.n};

	for (; stack[e.n]; e.n++)
		cr_assert_eq(vec_push(&m->s.frames, (u32)stack[e.n]), 0);
	cr_assert_eq(vec_push(&m->s.list, e), 0);
}

/* Whether the row has this path from the root. */
static bool is_path(const struct analyze_calls *c, size_t row, const char *path)
{
	size_t first = row, n = strlen(path);
	u32 id = c->rows.data[row].id;

	while (c->rows.data[first].id != 1)
		first--;
	for (; id && n; id = c->rows.data[first + id - 1].parent)
		if (c->rows.data[first + id - 1].frame != (u32)(s8)path[--n])
			return false;
	return !id && !n;
}

static void expect(const struct made *m, const char *path, u64 count, s64 total_ms, s64 self_ms)
{
	const struct analyze_call *found = NULL;

	for (size_t i = 0; i < m->out.rows.n; i++)
		if (is_path(&m->out, i, path))
			found = &m->out.rows.data[i];
	cr_assert(found, "%s is not there", path);
	cr_expect_eq(found->count, count, "%s: %llu snapshots", path, found->count);
	cr_expect_eq(found->total_ns, total_ms * MS, "%s: total %f ms", path,
		     (double)found->total_ns / MS);
	cr_expect_eq(found->self_ns, self_ms * MS, "%s: self %f ms", path,
		     (double)found->self_ns / MS);
}

static void compatible_of(struct made *m, const struct analyze_range *ranges, size_t n, u64 max)
{
	analyze_calls_deinit(&m->out);
	m->out = (struct analyze_calls){};
	cr_assert_eq(analyze_skywalking(&m->s, ranges, n, max, &m->out), 0);
}

static void compatible(struct made *m, u64 from_ms, u64 to_ms)
{
	const struct analyze_range all[] = {{0, from_ms * MS, to_ms * MS}};

	compatible_of(m, all, 1, ANALYZE_SKYWALKING_MAX);
}

static void unbiased(struct made *m, u64 from_ms, u64 to_ms, u64 reach_ns)
{
	const struct analyze_range all[] = {{0, from_ms * MS, to_ms * MS}};

	analyze_calls_deinit(&m->out);
	m->out = (struct analyze_calls){};
	cr_assert_eq(analyze_unbiased(&m->s, all, 1, all, 1, reach_ns, &m->out), 0);
}

/* ---- SkyWalking's estimate ---- */

static void add_case_4(struct made *m)
{
	add(m, 0, 0, 0, "ABC");
	add(m, 0, 1, 10, "ABCA");
	add(m, 0, 2, 20, "ACA");
	add(m, 0, 3, 30, "ABCB");
}

Test(snapshots, example_of_skywalking)
{
	_cleanup_made_ struct made m = {};

	add_case_4(&m);
	compatible(&m, 0, 30);
	cr_expect_eq(m.out.rows.n, 7);
	expect(&m, "A", 4, 30, 20);
	expect(&m, "AB", 3, 10, 0);
	expect(&m, "ABC", 3, 10, 10);
	expect(&m, "ABCA", 1, 0, 0);
	expect(&m, "ABCB", 1, 0, 0);
	expect(&m, "AC", 1, 0, 0);
	expect(&m, "ACA", 1, 0, 0);
}

Test(snapshots, rows_are_in_breadth_first_order)
{
	static const char order[] = "ABCCAAB";
	static const u32 parents[] = {0, 1, 1, 2, 3, 4, 4};
	_cleanup_made_ struct made m = {};

	add_case_4(&m);
	compatible(&m, 0, 30);
	cr_assert_eq(m.out.rows.n, 7);
	for (u32 i = 0; i < 7; i++) {
		cr_expect_eq(m.out.rows.data[i].id, i + 1);
		cr_expect_eq(m.out.rows.data[i].parent, parents[i]);
		cr_expect_eq(m.out.rows.data[i].frame, (u32)order[i]);
	}
}

Test(snapshots, order_of_arrival_does_not_matter)
{
	_cleanup_made_ struct made m = {};

	add(&m, 0, 3, 30, "ABCB");
	add(&m, 0, 1, 10, "ABCA");
	add(&m, 0, 0, 0, "ABC");
	add(&m, 0, 2, 20, "ACA");
	compatible(&m, 0, 30);
	expect(&m, "A", 4, 30, 20);
	expect(&m, "ABC", 3, 10, 10);
}

/* All of the time is the caller's, which never runs alone. */
Test(snapshots, alternating_leaves_have_nothing)
{
	_cleanup_made_ struct made m = {};

	for (u32 i = 0; i < 10; i++)
		add(&m, 0, i, i * 10, i % 2 ? "RB" : "RA");
	compatible(&m, 0, 90);
	expect(&m, "R", 10, 90, 90);
	expect(&m, "RA", 5, 0, 0);
	expect(&m, "RB", 5, 0, 0);
}

Test(snapshots, a_lost_one_costs_two_periods)
{
	_cleanup_made_ struct made m = {};

	for (u32 i = 0; i < 10; i++)
		if (i != 5)
			add(&m, 0, i, i * 10, "RA");
	compatible(&m, 0, 90);
	expect(&m, "R", 9, 70, 0);
	expect(&m, "RA", 9, 70, 70);
	cr_expect_eq(m.out.found, 10); /* numbers, and not snapshots */
}

static const struct analyze_range two_segments[] = {{0, 1000 * MS, 1040ULL * MS},
						    {1, 1003 * MS, 1073ULL * MS}};

static void add_two_segments(struct made *m)
{
	for (u32 i = 0; i < 5; i++)
		add(m, 0, i, 1000 + 10 * i, "RAX");
	for (u32 i = 0; i < 8; i++)
		add(m, 1, i, 1003 + 10 * i, "RBY");
}

/* Equal numbers of two threads are one snapshot, and one clock. */
Test(snapshots, segments_are_mixed)
{
	_cleanup_made_ struct made m = {};

	add_two_segments(&m);
	compatible_of(&m, two_segments, 2, ANALYZE_SKYWALKING_MAX);
	expect(&m, "R", 8, 73, 13);
	expect(&m, "RA", 5, 40, 0);
	expect(&m, "RB", 3, 20, 0);
	expect(&m, "RBY", 3, 20, 20);
}

Test(snapshots, ranges_select_numbers)
{
	const struct analyze_range overlapping[] = {
		{0, 10 * MS, 30 * MS}, {0, 25 * MS, 45 * MS}, {0, 500 * MS, 600 * MS}};
	_cleanup_made_ struct made m = {};

	/* The clock was set back: number 2 is not in the range of times, but between its ends. */
	for (u32 i = 0; i < 6; i++)
		add(&m, 0, i, i == 2 ? 1 : i * 10, "RA");
	compatible_of(&m, overlapping, 3, 100);
	cr_expect_eq(m.out.found, 3 + 2);
	expect(&m, "R", 4, 30, 0); /* 10, 1, 30, 40: -9 + 29 + 10 */
}

Test(snapshots, limit_is_that_of_each_range)
{
	const struct analyze_range ranges[] = {{0, 0, 95 * MS}, {1, 0, 95 * MS}};
	_cleanup_made_ struct made m = {};
	_cleanup_str_ struct str tip = {};

	for (u32 i = 0; i < 10; i++)
		add(&m, 0, i, 10 * i, "RA");
	for (u32 i = 0; i < 10; i++)
		add(&m, 1, 100 + i, 10 * i, "RA");
	compatible_of(&m, ranges, 2, 4);
	cr_expect_eq(m.out.found, 20);
	expect(&m, "R", 8, 60, 0);
	analyze_skywalking_tip(&m.out, 4, &tip);
	cr_expect_str_eq(str_get(&tip), "Out of snapshot analyze limit, 20 snapshots found, but "
					"analysis first 4 snapshots only.");
	compatible_of(&m, ranges, 2, 20);
	str_clear(&tip);
	analyze_skywalking_tip(&m.out, 20, &tip);
	cr_expect_str_eq(str_get(&tip), "");
}

Test(snapshots, trees_by_root_and_empty_stacks)
{
	_cleanup_made_ struct made m = {};

	add(&m, 0, 0, 0, "A");
	add(&m, 0, 1, 10, "");
	add(&m, 0, 2, 20, "B");
	add(&m, 0, 3, 30, "B");
	compatible(&m, 0, 30);
	cr_assert_eq(m.out.rows.n, 2);
	cr_expect_eq(m.out.rows.data[1].id, 1);
	expect(&m, "A", 1, 0, 0);
	expect(&m, "B", 2, 10, 10);
	cr_expect_eq(m.out.found, 4);
	compatible(&m, 100, 200);
	cr_expect_eq(m.out.rows.n, 0);
	cr_expect_eq(m.out.found, 0);
}

/* ---- the unbiased estimate ---- */

Test(snapshots, unbiased_sums_to_the_span)
{
	_cleanup_made_ struct made m = {};

	add_case_4(&m);
	unbiased(&m, 0, 34, ~0ULL);
	expect(&m, "A", 4, 34, 0);
	expect(&m, "AB", 3, 24, 0);
	expect(&m, "ABC", 3, 24, 5);
	expect(&m, "ABCA", 1, 10, 10);
	expect(&m, "ABCB", 1, 9, 9);
	expect(&m, "ACA", 1, 10, 10);
}

static double noise(u64 *random)
{
	return (double)(hash_u64(*random += 0x9e3779b97f4a7c15ULL) >> 11) / (double)(1ULL << 53);
}

/* Calls of 10 ms on average, alternating: SkyWalking leaves half of the time to the caller. */
Test(snapshots, alternating_leaves_share_equally)
{
	enum { SPAN_MS = 40000, PERIOD_MS = 10 };
	_cleanup_made_ struct made m = {};
	u64 random = 7, next = 0;
	bool a = true;
	double share, interval, leaves;

	for (u64 ms = 3, i = 0; ms < SPAN_MS; ms += PERIOD_MS, i++) {
		for (; next <= ms; a = !a)
			next += (u64)(1 - 10 * log(1 - noise(&random)));
		add(&m, 0, (u32)i, ms, a ? "RA" : "RB");
	}
	unbiased(&m, 0, SPAN_MS, ~0ULL);
	cr_assert_eq(m.out.rows.n, 3);
	cr_expect_eq(m.out.rows.data[0].total_ns, (s64)SPAN_MS * MS);
	cr_expect_eq(m.out.rows.data[0].self_ns, 0);
	/* Successive snapshots are dependent, which widens the binomial interval. */
	share = (double)m.out.rows.data[1].total_ns / ((double)SPAN_MS * MS);
	interval = 1.96 * sqrt(0.25 * PERIOD_MS / SPAN_MS) * 1.5;
	cr_expect(fabs(share - 0.5) < interval, "%f, not 0.5 +- %f", share, interval);
	compatible(&m, 0, SPAN_MS);
	leaves = (double)(m.out.rows.data[1].total_ns + m.out.rows.data[2].total_ns);
	cr_expect(leaves < 0.7 * (double)m.out.rows.data[0].total_ns);
}

Test(snapshots, exactly_alternating_leaves)
{
	_cleanup_made_ struct made m = {};

	for (u32 i = 0; i < 10; i++)
		add(&m, 0, i, 5 + i * 10, i % 2 ? "RB" : "RA");
	unbiased(&m, 0, 100, ~0ULL);
	expect(&m, "R", 10, 100, 0);
	expect(&m, "RA", 5, 50, 50);
	expect(&m, "RB", 5, 50, 50);
}

Test(snapshots, unbiased_keeps_segments_apart)
{
	_cleanup_made_ struct made m = {};

	add_two_segments(&m);
	cr_assert_eq(analyze_unbiased(&m.s, two_segments, 2, two_segments, 2, ~0ULL, &m.out), 0);
	expect(&m, "R", 13 - 2, 110, 0); /* a range ends before its last moment */
	expect(&m, "RA", 4, 40, 0);
	expect(&m, "RBY", 7, 70, 70);
}

Test(snapshots, a_lost_one_costs_nothing)
{
	_cleanup_made_ struct made m = {};

	for (u32 i = 0; i < 10; i++)
		if (i != 5)
			add(&m, 0, i, i * 10, "RA");
	unbiased(&m, 0, 90, ~0ULL);
	expect(&m, "RA", 8, 90, 90);
}

/* The agent began after 100 ms, and snapshots are 10 ms apart. */
Test(snapshots, time_before_the_first_is_not_sampled)
{
	static const char none[] = {(char)ANALYZE_NOT_SAMPLED, '\0'};
	_cleanup_made_ struct made m = {};
	u64 gap = 0;

	for (u32 i = 0; i < 10; i++)
		add(&m, 0, i, 110 + i * 10, "RA");
	cr_assert_eq(analyze_usual_gap(&m.s, &gap), 0);
	cr_expect_eq(gap, 10 * MS);
	unbiased(&m, 0, 204, 2 * gap);
	expect(&m, none, 0, 105, 105);
	expect(&m, "RA", 10, 99, 99);
	unbiased(&m, 0, 204, ~0ULL);
	expect(&m, "RA", 10, 204, 204);
}

Test(snapshots, a_segment_without_any)
{
	static const char none[] = {(char)ANALYZE_NOT_SAMPLED, '\0'};
	_cleanup_made_ struct made m = {};

	unbiased(&m, 10, 30, ~0ULL);
	expect(&m, none, 0, 20, 20);
}

/* ---- without children ---- */

static void expect_ranges(const struct analyze_range *children, size_t n, const u64 *ms,
			  size_t n_ms)
{
	const struct analyze_range all = {0, 0, 100 * MS};
	struct analyze_ranges left = {};

	cr_assert_eq(analyze_without(&all, children, n, &left), 0);
	cr_assert_eq(left.list.n, n_ms / 2);
	for (size_t i = 0; i < left.list.n; i++) {
		cr_expect_eq(left.list.data[i].from_ns, ms[2 * i] * MS);
		cr_expect_eq(left.list.data[i].to_ns, ms[2 * i + 1] * MS);
	}
	vec_deinit(&left.list);
}

Test(snapshots, without_children_in_any_order)
{
	static const u64 expected[] = {0, 10, 20, 50, 60, 100};
	const struct analyze_range a = {0, 10 * MS, 20 * MS}, b = {0, 50 * MS, 60 * MS};

	expect_ranges((struct analyze_range[]){a, b}, 2, expected, 6);
	expect_ranges((struct analyze_range[]){b, a}, 2, expected, 6);
}

Test(snapshots, without_children_that_overlap_or_stick_out)
{
	static const u64 inner[] = {30, 70}, all[] = {0, 100};
	const struct analyze_range before = {0, 0, 20 * MS}, over = {0, 15 * MS, 30 * MS},
				   after = {0, 70 * MS, 170 * MS}, other = {1, 40 * MS, 50 * MS},
				   outside = {0, 100 * MS, 150 * MS}, empty = {0, 50 * MS, 50 * MS};

	expect_ranges((struct analyze_range[]){after, over, before, other}, 4, inner, 2);
	expect_ranges((struct analyze_range[]){outside, empty, other}, 3, all, 2);
	expect_ranges((struct analyze_range[]){{0, 0, 100 * MS}}, 1, NULL, 0);
}

Test(snapshots, excluded_children_take_their_time_along)
{
	const struct analyze_range all = {0, 0, 100 * MS}, child = {0, 30 * MS, 60 * MS};
	struct analyze_ranges left = {};
	_cleanup_made_ struct made m = {};
	s64 sum = 0;

	for (u32 i = 0; i < 10; i++)
		add(&m, 0, i, 5 + i * 10, i >= 3 && i < 6 ? "RC" : "RA");
	cr_assert_eq(analyze_without(&all, &child, 1, &left), 0);
	cr_assert_eq(analyze_unbiased(&m.s, &all, 1, left.list.data, left.list.n, ~0ULL, &m.out),
		     0);
	vec_deinit(&left.list);
	expect(&m, "RA", 7, 70, 70);
	vec_foreach (&m.out.rows, row)
		sum += row->self_ns;
	cr_expect_eq(sum, 70 * MS);
}

/* ---- sums ---- */

/* 555 samples of one hot function at 188 addresses: SkyWalking's analysis keeps 36 of them. */
Test(snapshots, equal_rows_add_up)
{
	_cleanup_made_ struct made m = {};
	s64 left = 555;

	for (u32 i = 0; i < 188; i++) {
		s64 value = i < 187 ? 1 + i % 3 + (i % 94 == 0) : left;

		add(&m, 0, i, 0, "MH");
		value = MIN(value, left);
		m.s.list.data[i].value = value;
		left -= value;
	}
	cr_assert_eq(left, 0);
	cr_assert_eq(analyze_sum(&m.s, &m.out), 0);
	cr_assert_eq(m.out.rows.n, 2);
	cr_expect_eq(m.out.rows.data[0].total_ns, 555);
	cr_expect_eq(m.out.rows.data[1].self_ns, 555);
	cr_expect_eq(m.out.rows.data[1].count, 188);
}

/* ---- several threads as one tree ---- */

static const struct analyze_merged_call *call_at(const struct analyze_merged *m, const char *path)
{
	for (u32 i = 0; i < m->calls.n; i++) {
		size_t n = strlen(path);
		u32 at = i + 1;

		for (; at && n; at = m->calls.data[at - 1].parent)
			if (m->calls.data[at - 1].frame != (u32)(s8)path[--n])
				break;
		if (!at && !n)
			return &m->calls.data[i];
	}
	return NULL;
}

static void merge(struct analyze_merged *m, const char *const *stacks, size_t n, u32 column,
		  u32 request)
{
	_cleanup_made_ struct made one = {};

	for (size_t i = 0; i < n; i++)
		add(&one, 0, (u32)i, 10 * i, stacks[i]);
	for (size_t i = 0; i < n; i++)
		one.s.list.data[i].value = MS;
	cr_assert_eq(analyze_sum(&one.s, &one.out), 0);
	cr_assert_eq(analyze_merge(m, &one.out, column, request), 0);
}

Test(snapshots, threads_add_up_by_path)
{
	static const char *const first[] = {"RA", "RAB", "S"}, *const second[] = {"RB", "RA"};
	_cleanup_merged_ struct analyze_merged m = {};
	const struct analyze_merged_call *e;

	merge(&m, first, 3, 0, 0);
	merge(&m, second, 2, 0, 0);
	merge(&m, second, 2, 0, 7);
	merge(&m, second, 2, 1, 8);
	cr_assert_eq(m.calls.n, 5);
	for (u32 i = 0; i < m.calls.n; i++)
		cr_assert_leq(m.calls.data[i].parent, i, "a caller stands before its callees");
	e = call_at(&m, "RA");
	cr_assert(e);
	cr_assert_eq(e->of[0].total_ns, 4 * MS);
	cr_assert_eq(e->of[0].self_ns, 3 * MS);
	cr_assert_eq(e->of[0].count, 4);
	cr_assert_eq(e->of[0].requests, 2);
	cr_assert_eq(e->of[1].total_ns, MS);
	cr_assert_eq(e->of[1].requests, 1);
	cr_assert_eq(call_at(&m, "RAB")->of[1].last, 0);
	cr_assert_eq(call_at(&m, "S")->of[0].requests, 1);
}

Test(snapshots, whom_calls_waited_for)
{
	static const char *const stacks[] = {"RA", "RB"};
	static const u32 ra[] = {'R', 'A'}, rb[] = {'R', 'B'}, rc[] = {'R', 'C'};
	_cleanup_merged_ struct analyze_merged m = {};

	merge(&m, stacks, 2, 0, 0);
	cr_assert_eq(analyze_add_blame(&m, ra, 2, 0, ANALYZE_OWNER, 1, 5), 0);
	cr_assert_eq(analyze_add_blame(&m, ra, 2, 0, ANALYZE_OWNER, 2, 4), 0);
	cr_assert_eq(analyze_add_blame(&m, rb, 2, 0, ANALYZE_OWNER, 2, 3), 0);
	cr_assert_eq(analyze_add_blame(&m, rb, 2, 0, ANALYZE_WAKER, 9, 1), 0);
	cr_assert_eq(analyze_add_blame(&m, rc, 2, 0, ANALYZE_WAKER, 9, 1), -ENOENT);
	analyze_sort_blames(&m);
	/* R: 2 with 7, and 1 other; then the waker. A: 1. B: 2, and the waker. */
	cr_assert_eq(m.blames.n, 5);
	cr_assert_eq(m.blames.data[0].who, 2);
	cr_assert_eq(m.blames.data[0].ns, 7);
	cr_assert_eq(m.blames.data[0].others, 1);
	cr_assert_eq(m.blames.data[1].whom, ANALYZE_WAKER);
	cr_assert_eq(m.blames.data[2].who, 1);
	cr_assert_eq(m.blames.data[2].others, 1);
	cr_assert_eq(m.blames.data[3].others, 0);
}
