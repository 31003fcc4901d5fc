/* SPDX-License-Identifier: Apache-2.0 */
/* Policies: windows of endpoints, what agents report, and what stands against another task. */
#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "dir_fixture.h"
#include "server/policies/policies.h"
#include "span_fixture.h"

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

static u64 ahead_ms;

/* The time of day of these tests moves on when a test says so. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	if (clock != CLOCK_REALTIME)
		return __real_clock_gettime(clock, ret);
	ret->tv_sec = (time_t)(1700000000 + ahead_ms / 1000);
	ret->tv_nsec = (long)(ahead_ms % 1000 * 1000000);
	return 0;
}

/* ---- help ---- */

static struct tasks *some_tasks;

static struct policies *make(const char *dir)
{
	struct policies *p = NULL;
	struct diag d = {};

	if (!some_tasks)
		cr_assert_eq(tasks_create(NULL, &d, &some_tasks), 0, "%s", d.text);
	cr_assert_eq(policies_create(dir, some_tasks, &d, &p), 0, "%s", d.text);
	return p;
}

static struct policy_spec spec_of(enum policy_cause cause, double threshold)
{
	struct policy_spec s = policy_defaults;

	snprintf(s.service, sizeof(s.service), "shop");
	s.cause = cause;
	s.threshold = threshold;
	s.min_requests = 1;
	s.task = task_defaults;
	return s;
}

static void add(struct policies *p, const struct policy_spec *s, char ret_id[CONTROL_ID_BYTES])
{
	struct diag d = {};

	cr_assert_eq(policies_add(p, s, "", ret_id, &d), 0, "%s", d.text);
}

static struct policy_info get(struct policies *p, const char *id)
{
	struct policy_info i = {};
	struct diag d = {};

	cr_assert_eq(policies_get(p, id, &i, &d), 0, "%s", d.text);
	return i;
}

static u64 count(struct policies *p, const char *id, enum policy_verdict v)
{
	_cleanup_policy_info_ struct policy_info i = get(p, id);

	return i.verdicts[v];
}

#define EXPECT_COUNT(p, id, verdict, n)                                                            \
	cr_expect_eq(count(p, id, POLICY_VERDICT_##verdict), n, "%s: %llu",                        \
		     policy_verdict_name(POLICY_VERDICT_##verdict),                                \
		     count(p, id, POLICY_VERDICT_##verdict))

static u64 number;

static void see_of(struct policies *p, const char *service, const char *name, u64 id, u64 ms,
		   u8 status, u64 ago_ms)
{
	_cleanup_spans_ struct spans s = {};

	cr_assert_eq(spans_init(&s), 0);
	add_span(&s, (struct span_of){.service = service,
				      .name = name,
				      .trace = id,
				      .id = id,
				      .start_ms = clock_epoch_ms() - ms - ago_ms,
				      .ms = ms,
				      .kind = SPAN_KIND_SERVER,
				      .status = status});
	policies_see_spans(p, &s);
}

static void see(struct policies *p, const char *name, u64 n, u64 ms, u8 status)
{
	for (u64 k = 0; k < n; k++)
		see_of(p, "shop", name, ++number, ms, status, 0);
}

/* To the begin of the next window of 10 s, in which nothing has been judged yet. */
static void next_window(struct policies *p)
{
	ahead_ms = ahead_ms / 10000 * 10000 + 10000;
	policies_tick(p);
}

static struct task_info task_of(const char *id)
{
	struct task_info t = {};
	struct diag d = {};

	cr_assert_eq(tasks_get(some_tasks, id, &t, &d), 0, "%s", d.text);
	return t;
}

/* ---- endpoints ---- */

Test(policies, error_rates_fire_once_and_are_silent_then)
{
	_cleanup_policies_ struct policies *p = make(NULL);
	struct policy_spec s = spec_of(POLICY_CAUSE_ERRORS, 10);
	char id[CONTROL_ID_BYTES];

	s.count = 2;
	s.of = 3;
	s.silence_ms = 60000;
	s.task.duration_ms = 1000;
	add(p, &s, id);
	next_window(p);
	/* 9 %: below. */
	see(p, "GET /a", 91, 5, SPAN_OK);
	see(p, "GET /a", 9, 5, SPAN_ERROR);
	next_window(p);
	EXPECT_COUNT(p, id, BELOW, 1);
	/* 10 %: over, once, and another service is none of its business. */
	see(p, "GET /a", 9, 5, SPAN_OK);
	see(p, "GET /a", 1, 5, SPAN_ERROR);
	see_of(p, "cart", "GET /a", ++number, 5, SPAN_ERROR, 0);
	next_window(p);
	EXPECT_COUNT(p, id, OVER, 1);
	EXPECT_COUNT(p, id, FIRED, 0);
	/* Below, and over again: two of three. */
	see(p, "GET /a", 10, 5, SPAN_OK);
	next_window(p);
	see(p, "GET /a", 1, 5, SPAN_ERROR);
	cr_expect_eq(count(p, id, POLICY_VERDICT_FIRED), 0);
	next_window(p);
	EXPECT_COUNT(p, id, FIRED, 1);
	{
		_cleanup_policy_info_ struct policy_info i = get(p, id);
		_cleanup_task_info_ struct task_info t = task_of(i.fired.data[0].task);

		cr_expect_str_eq(t.spec.service, "shop");
		cr_expect_str_eq(t.spec.endpoint, "GET /a");
		cr_expect(t.spec.errors && !t.spec.has_min);
		cr_expect_eq(t.end_ms - t.start_ms, 1000);
		cr_expect_str_eq(t.cause.policy, id);
		cr_expect_str_eq(t.cause.cause, "errors");
		cr_expect_float_eq(t.cause.value, 100, 1e-9);
		cr_expect_float_eq(t.cause.threshold, 10, 1e-9);
		cr_expect_eq(t.cause.at_ms, clock_epoch_ms());
		cr_expect_str_eq(t.cause.endpoint, "GET /a");
		cr_expect(strstr(t.cause.text, "2 of 3 windows of 10 s"), "%s", t.cause.text);
	}
	/* It takes two windows again, which come within the silence. */
	for (int k = 0; k < 2; k++) {
		see(p, "GET /a", 5, 5, SPAN_ERROR);
		next_window(p);
	}
	EXPECT_COUNT(p, id, SILENCE, 1);
	/* Another endpoint is not silent. */
	for (int k = 0; k < 2; k++) {
		see(p, "GET /b", 5, 5, SPAN_ERROR);
		next_window(p);
	}
	EXPECT_COUNT(p, id, FIRED, 2);
	ahead_ms += 60000;
	next_window(p);
	for (int k = 0; k < 2; k++) {
		see(p, "GET /a", 5, 5, SPAN_ERROR);
		next_window(p);
	}
	EXPECT_COUNT(p, id, FIRED, 3);
}

Test(policies, windows_without_enough_requests_are_not_over)
{
	_cleanup_policies_ struct policies *p = make(NULL);
	struct policy_spec s = spec_of(POLICY_CAUSE_ERRORS, 1);
	char id[CONTROL_ID_BYTES];

	s.min_requests = 10;
	s.count = s.of = 2;
	add(p, &s, id);
	next_window(p);
	see(p, "GET /a", 9, 5, SPAN_ERROR);
	next_window(p);
	EXPECT_COUNT(p, id, FEW, 1);
	see(p, "GET /a", 10, 5, SPAN_ERROR);
	next_window(p);
	EXPECT_COUNT(p, id, OVER, 1);
	/* An empty window comes between two that are over. */
	ahead_ms += 10000;
	see(p, "GET /a", 10, 5, SPAN_ERROR);
	next_window(p);
	EXPECT_COUNT(p, id, FIRED, 0);
	see(p, "GET /a", 10, 5, SPAN_ERROR);
	next_window(p);
	EXPECT_COUNT(p, id, FIRED, 1);
	/* Spans that come again, and spans of long ago, do not count. */
	see_of(p, "shop", "GET /a", 1, 5, SPAN_ERROR, 0);
	for (int k = 0; k < 10; k++)
		see_of(p, "shop", "GET /a", ++number, 5, SPAN_ERROR, POLICY_LATE_MS + 1000);
	next_window(p);
	{
		_cleanup_policy_info_ struct policy_info i = get(p, id);

		cr_expect_eq(i.late, 10);
		cr_expect_eq(i.seen.data[0].requests, 0);
	}
}

Test(policies, latencies_by_the_mean_and_by_a_percentile)
{
	_cleanup_policies_ struct policies *p = make(NULL);
	struct policy_spec s = spec_of(POLICY_CAUSE_LATENCY, 100);
	char mean[CONTROL_ID_BYTES], p90[CONTROL_ID_BYTES];

	snprintf(s.endpoint, sizeof(s.endpoint), "GET /*");
	add(p, &s, mean);
	s.percentile = 90;
	add(p, &s, p90);
	next_window(p);
	/* 9 of 10 are below: the 90th percentile is one of them. The mean is 108 ms. */
	see(p, "GET /a", 9, 20, SPAN_OK);
	see(p, "GET /a", 1, 900, SPAN_OK);
	see(p, "POST /a", 10, 900, SPAN_OK);
	next_window(p);
	EXPECT_COUNT(p, mean, FIRED, 1);
	EXPECT_COUNT(p, p90, FIRED, 0);
	EXPECT_COUNT(p, p90, BELOW, 1);
	{
		_cleanup_policy_info_ struct policy_info i = get(p, p90);

		cr_expect_float_eq(i.seen.data[0].value, 20, 0.01);
	}
	/* 100 ms and a bit is the percentile, and its class reaches below the threshold. */
	see(p, "GET /b", 8, 99, SPAN_OK);
	see(p, "GET /b", 2, 100, SPAN_OK);
	next_window(p);
	EXPECT_COUNT(p, p90, FIRED, 1);
	EXPECT_COUNT(p, mean, FIRED, 1);
	{
		_cleanup_policy_info_ struct policy_info i = get(p, p90);
		_cleanup_task_info_ struct task_info t = task_of(i.fired.data[0].task);

		cr_expect(t.cause.value >= 100 && t.cause.value <= 106.25, "%f", t.cause.value);
		cr_expect(t.spec.has_min && t.spec.min_ns == 100000000);
		cr_expect_str_eq(t.spec.endpoint, "GET /b");
	}
}

/* ---- agents ---- */

struct heard {
	u64 next_ms;
	size_t n;
};

static struct heard tell(struct policies *p, const char *id, double value, u32 over, u32 n_fired,
			 u64 ago_ms, const char *service)
{
	_cleanup_control_request_ struct control_request q = {.host = "h1"};
	_cleanup_control_response_ struct control_response a = {.next_ms = 5000};
	struct control_watched w = {.processes = 1, .windows = 1 + ahead_ms / 1000};
	struct control_measured m = {.at_ms = clock_epoch_ms() - ago_ms,
				     .value = value,
				     .over = over,
				     .pid = 7,
				     .comm = "java"};

	snprintf(w.id, sizeof(w.id), "%s", id);
	snprintf(m.service, sizeof(m.service), "%s", service);
	w.last = w.fired[0] = m;
	w.n_fired = n_fired;
	cr_assert_eq(vec_push(&q.watched, w), 0);
	cr_assert_eq(policies_sync(p, &q, &a), 0);
	return (struct heard){a.next_ms, a.watches.n};
}

Test(policies, agents_measure_processes)
{
	_cleanup_policies_ struct policies *p = make(NULL);
	struct policy_spec s = spec_of(POLICY_CAUSE_CPU, 150);
	char id[CONTROL_ID_BYTES], other[CONTROL_ID_BYTES];
	struct heard h;

	s.count = s.of = 3;
	s.silence_ms = 0;
	add(p, &s, id);
	s = spec_of(POLICY_CAUSE_ERRORS, 1);
	add(p, &s, other); /* of spans: no agent hears of it */
	h = tell(p, id, 149.9, 0, 0, 0, "shop");
	cr_expect(h.n == 1 && h.next_ms == 2000);
	EXPECT_COUNT(p, id, BELOW, 1);
	ahead_ms += 1000;
	(void)tell(p, id, 151, 2, 0, 0, "shop");
	EXPECT_COUNT(p, id, OVER, 1);
	ahead_ms += 1000;
	(void)tell(p, id, 163, 3, 1, 0, "shop");
	EXPECT_COUNT(p, id, FIRED, 1);
	EXPECT_COUNT(p, id, OVER, 1);
	{
		_cleanup_policy_info_ struct policy_info i = get(p, id);
		_cleanup_task_info_ struct task_info t = task_of(i.fired.data[0].task);

		cr_expect_str_eq(t.spec.service, "shop");
		cr_expect_str_eq(t.spec.endpoint, "");
		cr_expect(t.spec.has_min && !t.spec.min_ns);
		cr_expect_eq(t.cause.pid, 7);
		cr_expect_str_eq(t.cause.host, "h1");
		cr_expect_str_eq(t.cause.comm, "java");
		cr_expect_str_eq(t.cause.text, "process 7 (java) of shop on h1 used 163.0 % of a "
					       "CPU, and at least 150.0 % of a CPU in 3 of 3 "
					       "windows of 10 s");
	}
	/* The answer was lost: the agent tells it again. */
	(void)tell(p, id, 163, 3, 1, 0, "shop");
	EXPECT_COUNT(p, id, FIRED, 1);
	/* The first task still runs. */
	ahead_ms += 1000;
	(void)tell(p, id, 164, 3, 1, 0, "shop");
	EXPECT_COUNT(p, id, RUNNING, 1);
	/* What fired long ago, what is below, and other services do not count. */
	ahead_ms += 400000;
	(void)tell(p, id, 164, 3, 1, POLICY_LATE_MS + 1, "shop");
	EXPECT_COUNT(p, id, LATE, 1);
	(void)tell(p, id, 149, 3, 1, 0, "shop");
	(void)tell(p, id, 164, 3, 1, 0, "cart");
	EXPECT_COUNT(p, id, FIRED, 1);
	ahead_ms += 1000;
	(void)tell(p, id, 164, 3, 1, 0, "shop");
	EXPECT_COUNT(p, id, FIRED, 2);
}

Test(policies, any_service_and_the_budget_of_a_day)
{
	_cleanup_policies_ struct policies *p = make(NULL);
	struct policy_spec s = spec_of(POLICY_CAUSE_THREADS, 100);
	char id[CONTROL_ID_BYTES];

	snprintf(s.service, sizeof(s.service), "*");
	s.max_per_day = 2;
	add(p, &s, id);
	(void)tell(p, id, 100, 1, 1, 0, "shop");
	ahead_ms += 1000;
	(void)tell(p, id, 100, 1, 1, 0, "cart");
	ahead_ms += 1000;
	(void)tell(p, id, 100, 1, 1, 0, "pay");
	EXPECT_COUNT(p, id, FIRED, 2);
	EXPECT_COUNT(p, id, BUDGET, 1);
	ahead_ms += POLICY_DAY_MS;
	(void)tell(p, id, 100, 1, 1, 0, "pay");
	EXPECT_COUNT(p, id, FIRED, 3);
	{
		_cleanup_policy_info_ struct policy_info i = get(p, id);

		cr_assert_eq(i.fired.n, 3);
		cr_expect_str_eq(i.fired.data[0].service, "shop");
		cr_expect_str_eq(i.fired.data[1].service, "cart");
		cr_expect_str_eq(i.fired.data[2].service, "pay");
	}
}

/* ---- files ---- */

Test(policies, files)
{
	char dir[] = "/tmp/culprit-policies-XXXXXX", id[CONTROL_ID_BYTES];
	struct policies *p = mkdtemp(dir) ? make(dir) : NULL;
	struct policy_spec s = spec_of(POLICY_CAUSE_LATENCY, 12.5);
	struct policy_info before, after;
	struct diag d = {};

	snprintf(s.endpoint, sizeof(s.endpoint), "~GET /[ab]");
	s.percentile = 99.5;
	s.count = 2;
	s.of = 5;
	s.task.period_us = 1000;
	add(p, &s, id);
	next_window(p);
	for (int k = 0; k < 2; k++) {
		see(p, "GET /a", 1, 20, SPAN_OK);
		see(p, "GET /c", 1, 20, SPAN_OK);
		next_window(p);
	}
	before = get(p, id);
	cr_expect_eq(before.fired.n, 1);
	policies_destroy(p);
	p = make(dir);
	after = get(p, id);
	cr_expect(after.spec.threshold == 12.5 && after.spec.percentile == 99.5);
	cr_expect(after.spec.count == 2 && after.spec.of == 5);
	cr_expect_eq(after.spec.task.period_us, 1000);
	cr_expect_eq(after.spec.task.min_ns, 12500000);
	cr_expect_str_eq(after.spec.endpoint, "~GET /[ab]");
	cr_expect_eq(after.fired.n, 1);
	cr_expect_str_eq(after.fired.data[0].cause.text, before.fired.data[0].cause.text);
	cr_expect_eq(after.log.n, before.log.n);
	cr_expect_eq(after.verdicts[POLICY_VERDICT_FIRED], 1);
	/* The silence outlives the server. */
	next_window(p);
	for (int k = 0; k < 2; k++) {
		see(p, "GET /a", 1, 20, SPAN_OK);
		next_window(p);
	}
	EXPECT_COUNT(p, id, SILENCE, 1);
	policy_info_deinit(&before);
	policy_info_deinit(&after);
	cr_expect_eq(policies_delete(p, id, &d), 0);
	cr_expect_eq(policies_delete(p, id, &d), -ENOENT);
	policies_destroy(p);
	p = make(dir);
	cr_expect_eq(policies_get(p, id, &after, &d), -ENOENT);
	policies_destroy(p);
	remove_dir(dir);
}

Test(policies, wrong_ones_are_refused)
{
	static const struct {
		const char *json, *says;
	} all[] = {
		{"[]", "a policy is an object"},
		{"{\"service\": \"a\", \"cause\": \"cpu\"}", "threshold: from which"},
		{"{\"service\": \"a\", \"cause\": \"heat\", \"threshold\": 1}",
		 "cause: one of cpu"},
		{"{\"cause\": \"cpu\", \"threshold\": 1}", "service: of which?"},
		{"{\"service\": \"a\", \"cause\": \"cpu\", \"threshold\": 0}",
		 "threshold: above 0"},
		{"{\"service\": \"a\", \"cause\": \"errors\", \"threshold\": 101}", "to 100 %"},
		{"{\"service\": \"a\", \"cause\": \"cpu\", \"threshold\": 1, \"endpoint\": \"b\"}",
		 "endpoint: only with"},
		{"{\"service\": \"a\", \"cause\": \"cpu\", \"threshold\": 1, \"percentile\": 99}",
		 "percentile: only with"},
		{"{\"service\": \"a\", \"cause\": \"cpu\", \"threshold\": 1, \"window_ms\": 999}",
		 "window_ms: 1000"},
		{"{\"service\": \"a\", \"cause\": \"cpu\", \"threshold\": 1, \"count\": 3, \"of\": 2}",
		 "count and of"},
		{"{\"service\": \"a\", \"cause\": \"cpu\", \"threshold\": 1, \"of\": 61}",
		 "count and of"},
		{"{\"service\": \"a\", \"cause\": \"cpu\", \"threshold\": 1, \"task\": {\"service\": "
		 "\"b\"}}",
		 "task: without service"},
		{"{\"service\": \"a\", \"cause\": \"cpu\", \"threshold\": 1, \"task\": "
		 "{\"duration_ms\": 0}}",
		 "a policy's task ends"},
		{"{\"service\": \"a\", \"cause\": \"cpu\", \"threshold\": 1, \"task\": "
		 "{\"period_us\": 1}}",
		 "task: period_us"},
		{"{\"service\": \"a\", \"cause\": \"errors\", \"threshold\": 1, \"endpoint\": \"~(\"}",
		 "expression"},
		{"{\"service\": \"a\", \"cause\": \"cpu\", \"threshold\": 1, \"limit\": 1}",
		 "a policy has no 'limit'"},
	};

	for (size_t k = 0; k < ARRAY_SIZE(all); k++) {
		json_t *o = json_loads(all[k].json, 0, NULL);
		struct policy_spec s;
		struct diag d = {};
		int r = policy_spec_read(o, &s, &d);

		if (r == 0)
			r = policy_spec_check(&s, &d);
		cr_expect_eq(r, -EINVAL, "%s", all[k].json);
		cr_expect(strstr(d.text, all[k].says), "%s: %s", all[k].json, d.text);
		json_decref(o);
	}
}
