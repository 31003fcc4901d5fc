/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of CPU time: hosts on which the agent costs this and that, second by second. */
#include <criterion/criterion.h>
#include <math.h>

#include "agent/run/pace.h"

#define SECOND 1000000000ULL
#define CPUS 4

/* What an agent takes of the CPUs: a part that does not depend on its rate, and one that does. */
struct host {
	double fixed, per_hz;
	u64 now_ns;
	double cpu_ns;
	double seconds_over; /* in which the cost was above the budget, after the start */
};

static void run(struct host *h, struct pace *p, u64 seconds, double least_hz)
{
	for (u64 i = 0; i < seconds; i++) {
		double cost = h->fixed + h->per_hz * (double)p->hz;

		h->now_ns += SECOND;
		h->cpu_ns += cost * SECOND * CPUS;
		h->seconds_over += cost > p->share && (double)p->hz > least_hz;
		cr_assert(pace_is_due(p, h->now_ns));
		pace_look(p, h->now_ns, (u64)h->cpu_ns, 0, CPUS);
		cr_assert_leq(p->hz, p->asked_hz);
		cr_assert_geq(p->hz, 1);
	}
}

static struct pace begin(double share, u64 hz)
{
	struct pace p;

	pace_init(&p);
	p.share = share;
	pace_begin(&p, hz);
	return p;
}

Test(pace, nothing_changes_within_the_budget)
{
	struct pace p = begin(0.005, 99);
	struct host h = {.fixed = 0.001, .per_hz = 0.003 / 99, .now_ns = 77 * SECOND};

	run(&h, &p, 600, 0);
	cr_expect_eq(p.hz, 99);
	cr_expect_eq(p.changes, 0);
	cr_expect_float_eq(p.spent, 0.004, 1e-5);
	pace_deinit(&p);
}

Test(pace, the_rate_falls_below_the_budget_and_rises_again)
{
	struct pace p = begin(0.005, 99);
	struct host h = {.fixed = 0.001, .per_hz = 0.02 / 99, .now_ns = SECOND};

	run(&h, &p, 300, 1);
	cr_expect_leq(h.fixed + h.per_hz * (double)p.hz, p.share);
	cr_expect_geq(p.hz, 10, "%llu Hz", p.hz);
	/* The start, and the time until it is known what a rate costs. */
	cr_expect_leq(h.seconds_over, 130);
	h.seconds_over = 0;
	run(&h, &p, 3000, 1);
	cr_expect_eq(h.seconds_over, 0);
	cr_expect_leq(p.changes, 6, "%llu changes", p.changes);
	h.per_hz = 0.0005 / 99;
	run(&h, &p, 600, 1);
	cr_expect_eq(p.hz, 99);
	pace_deinit(&p);
}

Test(pace, what_no_rate_mends_ends_at_1_hz)
{
	struct pace p = begin(0.005, 997);
	struct host h = {.fixed = 0.05, .per_hz = 0.001 / 99, .now_ns = SECOND};

	run(&h, &p, 600, 1);
	cr_expect_eq(p.hz, 1);
	pace_deinit(&p);
}

Test(pace, a_burst_of_the_start_does_not_count)
{
	struct pace p = begin(0.005, 99);
	struct host h = {.fixed = 0.5, .now_ns = SECOND};

	run(&h, &p, 20, 0);
	h.fixed = 0.001;
	run(&h, &p, 300, 0);
	cr_expect_eq(p.changes, 0);
	pace_deinit(&p);
}

Test(pace, costs_that_swing_do_not_make_the_rate_swing)
{
	struct pace p = begin(0.005, 99);
	struct host h = {.now_ns = SECOND};

	for (u32 i = 0; i < 300; i++) {
		h.fixed = i % 2 ? 0.0005 : 0.008;
		run(&h, &p, 1 + i % 7, 1000);
	}
	cr_expect_leq(p.changes, 12, "%llu changes", p.changes);
	pace_deinit(&p);
}

Test(pace, without_a_budget_or_a_clock_there_are_no_looks)
{
	struct pace p = begin(0, 99);

	cr_expect_not(pace_is_due(&p, 100 * SECOND));
	p = begin(0.005, 0);
	cr_expect_not(pace_is_due(&p, 100 * SECOND));
}

Test(pace, the_new_rate)
{
	cr_expect_eq(pace_choose(0.01, 0.009, 99, 99), 99);
	cr_expect_eq(pace_choose(0.01, 0.02, 99, 99), 39);
	cr_expect_eq(pace_choose(0.01, 10, 99, 99), 1);
	cr_expect_eq(pace_choose(0.01, 0.008, 99, 40), 40);
	cr_expect_eq(pace_choose(0.01, 0.004, 99, 40), 80);
	cr_expect_eq(pace_choose(0.01, 0.001, 99, 60), 99);
	cr_expect_eq(pace_choose(0.01, 0, 99, 1), 2);
}
