/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of the wall clock (base/clockwatch.h), with times that the tests choose. */
#include <criterion/criterion.h>

#include "base/clockwatch.h"

#define SECOND 1000LL
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)
#define START (20000 * DAY)

/* A machine: how long it runs, and how wrong its wall clock is. */
struct machine {
	struct clock_watch w;
	s64 up_ms, off_ms;
};

static struct clock_pair now_of(const struct machine *m)
{
	return (struct clock_pair){.wall_ms = START + m->up_ms + m->off_ms,
				   .boot_ms = 7 * DAY + m->up_ms};
}

/* Looks every five seconds. Returns the last event. */
static enum clock_event run(struct machine *m, s64 for_ms)
{
	enum clock_event e, last = CLOCK_NOTHING;

	for (s64 at = 0; at < for_ms; at += 5 * SECOND) {
		m->up_ms += 5 * SECOND;
		e = clock_watch_look(&m->w, now_of(m));
		last = e ? e : last;
	}
	return last;
}

static void expect_times(struct machine *m, s64 early_ms, s64 late_ms)
{
	struct clock_times t;

	clock_watch_times(&m->w, now_of(m), &t);
	cr_expect_eq((s64)t.early_ms - START - m->up_ms, early_ms);
	cr_expect_eq((s64)t.late_ms - START - m->up_ms, late_ms);
}

Test(clockwatch, a_step_forward_for_six_seconds)
{
	struct machine m = {};

	clock_watch_init(&m.w, now_of(&m), 0);
	cr_expect_eq(run(&m, HOUR), CLOCK_NOTHING);
	m.off_ms = 32 * DAY;
	/* Before the first look, too. */
	expect_times(&m, 0, 32 * DAY);
	cr_expect_eq(run(&m, 6 * SECOND), CLOCK_STEPPED);
	expect_times(&m, 0, 32 * DAY);
	m.off_ms = 0;
	cr_expect_eq(run(&m, 5 * SECOND), CLOCK_BACK);
	expect_times(&m, 0, 0);
	clock_watch_deinit(&m.w);
}

Test(clockwatch, a_step_is_trusted_after_an_hour)
{
	struct machine m = {};

	clock_watch_init(&m.w, now_of(&m), 0);
	m.off_ms = 32 * DAY;
	cr_expect_eq(run(&m, HOUR - 5 * SECOND), CLOCK_STEPPED);
	expect_times(&m, 0, 32 * DAY);
	cr_expect_eq(run(&m, 10 * SECOND), CLOCK_HELD);
	expect_times(&m, 32 * DAY, 32 * DAY);
	/* The way back is a step, too. */
	m.off_ms = 0;
	cr_expect_eq(run(&m, 5 * SECOND), CLOCK_STEPPED);
	expect_times(&m, 0, 32 * DAY);
	cr_expect_eq(run(&m, HOUR), CLOCK_HELD);
	expect_times(&m, 0, 0);
	clock_watch_deinit(&m.w);
}

Test(clockwatch, every_further_step_begins_a_new_hour)
{
	struct machine m = {.off_ms = DAY};

	clock_watch_init(&m.w, now_of(&m), START);
	for (int i = 1; i < 6; i++) {
		m.off_ms = i * DAY;
		cr_expect_eq(run(&m, HOUR - 60 * SECOND), CLOCK_STEPPED);
		expect_times(&m, 0, m.off_ms);
	}
	clock_watch_deinit(&m.w);
}

Test(clockwatch, a_step_back_counts_from_the_earlier_time)
{
	struct machine m = {};

	clock_watch_init(&m.w, now_of(&m), 0);
	m.off_ms = -START / 2;
	cr_expect_eq(run(&m, 30 * SECOND), CLOCK_STEPPED);
	expect_times(&m, m.off_ms, 0);
	clock_watch_deinit(&m.w);
}

Test(clockwatch, drift_is_no_step)
{
	struct machine m = {};

	clock_watch_init(&m.w, now_of(&m), 0);
	for (int i = 0; i < 100; i++) {
		m.off_ms += 60 * SECOND;
		cr_expect_eq(run(&m, 5 * SECOND), CLOCK_NOTHING);
		expect_times(&m, 0 + m.off_ms, m.off_ms);
	}
	clock_watch_deinit(&m.w);
}

Test(clockwatch, the_time_of_an_earlier_run)
{
	struct machine m = {};
	struct clock_times t;

	/* The server was off for a night, or the clock is wrong: nobody knows. */
	clock_watch_init(&m.w, now_of(&m), START - 8 * HOUR);
	cr_expect_eq(run(&m, 5 * SECOND), CLOCK_STEPPED);
	expect_times(&m, -8 * HOUR, 0);
	clock_watch_times(&m.w, now_of(&m), &t);
	cr_expect_eq((s64)t.expected_ms, START - 8 * HOUR + m.up_ms);
	cr_expect_eq(run(&m, HOUR), CLOCK_HELD);
	expect_times(&m, 0, 0);
	clock_watch_deinit(&m.w);
	/* A restart. */
	clock_watch_init(&m.w, now_of(&m), (u64)(START + m.up_ms - 30 * SECOND));
	cr_expect_eq(run(&m, 5 * SECOND), CLOCK_NOTHING);
	expect_times(&m, 0, 0);
	clock_watch_deinit(&m.w);
}
