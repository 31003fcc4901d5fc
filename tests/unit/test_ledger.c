/* SPDX-License-Identifier: Apache-2.0 */
/* The time ledger of requests: made-up intervals, whose parts are known. */
#include <criterion/criterion.h>

#include "agent/capture/ledger.h"
#include "base/types.h"

#define TRACE 7
#define SPAN 70
#define CHILD 71

static struct ledger ledger;
static const struct ledger_request request = {{TRACE, 0}, SPAN, 1000, 2000};

static void begin(void)
{
	ledger = (struct ledger){};
}

static void end(void)
{
	ledger_deinit(&ledger);
}

TestSuite(ledger, .init = begin, .fini = end);

static struct record_interval interval(u32 number, u64 ran, u64 left, u64 woken, u64 now, u64 span)
{
	return (struct record_interval){
		.wait = WAIT_LOCK,
		.tid = 1,
		.number = number,
		.ran_ns = ran,
		.left_ns = left,
		.woken_ns = woken,
		.now_ns = now,
		.trace_id = {span ? TRACE : 0, 0},
		.span_id = span,
	};
}

static struct ledger_point point(u64 time_ns, u64 span)
{
	return (struct ledger_point){time_ns, {span ? TRACE : 0, 0}, span};
}

static u64 sum(u32 tid, u64 span, u32 state)
{
	u64 ns = 0;

	for (size_t i = 0; i < ledger.pieces.n; i++) {
		const struct ledger_piece *p = &ledger.pieces.data[i];

		if ((!tid || p->tid == tid) && (!span || p->span_id == span) && p->state == state)
			ns += p->end_ns - p->start_ns;
	}
	return ns;
}

static void add(const struct ledger_thread *threads, size_t n)
{
	cr_assert_eq(ledger_add(&ledger, &request, threads, n), 0);
}

Test(ledger, splits_one_thread)
{
	const struct record_interval i[] = {
		interval(1, 900, 1200, 1500, 1600, SPAN),
		interval(2, 1600, 2300, 2400, 2400, 0),
	};
	const struct ledger_thread t = {.tid = 1, .intervals = i, .n_intervals = 2};

	add(&t, 1);
	cr_assert_eq(sum(1, SPAN, WAIT_RUNNING), 200 + 400);
	cr_assert_eq(sum(1, SPAN, WAIT_LOCK), 300);
	cr_assert_eq(sum(1, SPAN, WAIT_RUNNABLE), 100);
	cr_assert_eq(sum(0, 0, CAPTURE_UNKNOWN), 0);
}

Test(ledger, knows_a_thread_that_still_runs)
{
	const struct record_interval i[] = {interval(5, 900, 1200, 1500, 1600, SPAN)};
	struct armed_thread now = {.number = 5, .ran_ns = 1600, .running = 1};
	const struct ledger_thread t = {.tid = 1, .intervals = i, .n_intervals = 1, .now = &now};

	add(&t, 1);
	cr_assert_eq(sum(1, SPAN, WAIT_RUNNING), 200 + 400);
	cr_assert_eq(sum(0, 0, CAPTURE_UNKNOWN), 0);
}

Test(ledger, knows_a_thread_that_left_after_the_request)
{
	const struct record_interval i[] = {interval(5, 900, 1200, 1500, 1600, SPAN)};
	struct armed_thread now = {.number = 5, .ran_ns = 1600, .left_ns = 2050};
	const struct ledger_thread t = {.tid = 1, .intervals = i, .n_intervals = 1, .now = &now};

	add(&t, 1);
	cr_assert_eq(sum(1, SPAN, WAIT_RUNNING), 600);
}

Test(ledger, does_not_guess_what_is_lost)
{
	/* The second of three is lost, and what the thread does now is not known. */
	const struct record_interval i[] = {
		interval(1, 900, 1100, 1150, 1200, SPAN),
		interval(3, 1500, 1600, 1700, 1700, SPAN),
	};
	struct armed_thread now = {.number = 4, .ran_ns = 2500, .running = 1};
	const struct ledger_thread t = {.tid = 1, .intervals = i, .n_intervals = 2, .now = &now};

	add(&t, 1);
	cr_assert_eq(sum(0, 0, WAIT_LOCK), 50 + 100);
	cr_assert_eq(sum(0, 0, WAIT_RUNNABLE), 50);
	/* Of the run from 1500 to 1600 nobody knows when the span began. */
	cr_assert_eq(sum(0, 0, WAIT_RUNNING), 100 + 50);
	cr_assert_eq(sum(0, 0, CAPTURE_UNKNOWN), 1000 - 200 - 150);
	cr_assert_eq(sum(1, SPAN, CAPTURE_UNKNOWN), 650);
}

Test(ledger, finds_spans_within_a_run_by_samples)
{
	const struct record_interval i[] = {
		interval(1, 900, 1900, 1950, 1950, SPAN),
		interval(2, 1950, 2300, 2400, 2400, 0),
	};
	const struct ledger_point p[] = {
		point(950, 0),	    point(1100, SPAN), point(1300, CHILD),
		point(1500, CHILD), point(1700, SPAN), point(2100, 0),
	};
	const struct ledger_thread t = {
		.tid = 1, .intervals = i, .n_intervals = 2, .points = p, .n_points = 6};

	add(&t, 1);
	/* The child from the middle of 1100 and 1300 to that of 1500 and 1700. */
	cr_assert_eq(sum(1, CHILD, WAIT_RUNNING), 400);
	cr_assert_eq(sum(1, SPAN, WAIT_RUNNING), 200 + 300 + 50);
	cr_assert_eq(sum(1, SPAN, WAIT_LOCK), 50);
	cr_assert_eq(sum(0, 0, CAPTURE_UNKNOWN), 0);
}

Test(ledger, takes_a_thread_that_never_left_its_cpu)
{
	const struct ledger_point p[] = {point(1100, SPAN), point(1900, SPAN)};
	struct armed_thread now = {.ran_ns = 500, .running = 1};
	const struct ledger_thread t = {.tid = 1, .points = p, .n_points = 2, .now = &now};

	add(&t, 1);
	cr_assert_eq(sum(1, SPAN, WAIT_RUNNING), 1000);
}

Test(ledger, follows_a_request_to_another_thread)
{
	/* It waits in the first thread's queue until 1400, and the second takes it at once. */
	const struct record_interval a[] = {
		interval(1, 900, 1200, 1200, 1250, SPAN),
		interval(2, 1250, 1300, 1800, 1800, 0),
	};
	const struct record_interval b[] = {
		interval(4, 1400, 1600, 1700, 1700, SPAN),
		interval(5, 1700, 2100, 2200, 2200, 0),
	};
	const struct ledger_thread t[] = {
		{.tid = 1, .intervals = a, .n_intervals = 2},
		{.tid = 2, .intervals = b, .n_intervals = 2},
	};

	add(t, 2);
	cr_assert_eq(sum(1, SPAN, WAIT_RUNNING), 200 + 25);
	cr_assert_eq(sum(1, SPAN, WAIT_RUNNABLE), 50);
	cr_assert_eq(sum(2, SPAN, WAIT_RUNNING), 100 + 300);
	cr_assert_eq(sum(2, SPAN, WAIT_LOCK), 100);
	/* From where it may have left the first thread to where it is seen in the second. */
	cr_assert_eq(sum(0, SPAN, CAPTURE_UNKNOWN), 1500 - 1275);
}

Test(ledger, does_not_mix_other_requests_of_the_thread)
{
	struct record_interval i[] = {
		interval(1, 500, 900, 950, 950, CHILD),
		interval(2, 950, 1200, 1300, 1300, SPAN),
		interval(3, 1300, 2200, 2300, 2300, CHILD),
	};
	const struct ledger_thread t = {.tid = 1, .intervals = i, .n_intervals = 3};

	i[0].trace_id[0] = i[2].trace_id[0] = TRACE + 1;
	add(&t, 1);
	cr_assert_eq(sum(1, SPAN, WAIT_RUNNING), 200 + 700);
	cr_assert_eq(sum(1, SPAN, WAIT_LOCK), 100);
	cr_assert_eq(sum(0, CHILD, WAIT_RUNNING), 0);
	cr_assert_eq(sum(0, 0, CAPTURE_UNKNOWN), 0);
}

Test(ledger, knows_nothing_of_a_request_without_threads)
{
	add(NULL, 0);
	cr_assert_eq(sum(0, SPAN, CAPTURE_UNKNOWN), 1000);
}
