/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks: which requests they keep, what agents are told, and why there is no data. */
#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "dir_fixture.h"
#include "server/tasks/tasks.h"
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

static struct tasks *make(const char *dir)
{
	struct tasks *t = NULL;
	struct diag d = {};

	cr_assert_eq(tasks_create(dir, &d, &t), 0, "%s", d.text);
	return t;
}

static struct task_spec spec_of(const char *endpoint, double min_ms)
{
	struct task_spec s = task_defaults;

	snprintf(s.service, sizeof(s.service), "shop");
	snprintf(s.endpoint, sizeof(s.endpoint), "%s", endpoint);
	s.has_min = true;
	s.min_ns = (u64)(min_ms * 1e6);
	return s;
}

static char *add_task(struct tasks *t, const struct task_spec *s)
{
	static char ids[8][CONTROL_ID_BYTES];
	static u32 next;
	char *id = ids[next++ % ARRAY_SIZE(ids)];
	struct diag d = {};

	cr_assert_eq(tasks_add(t, s, "", id, &d), 0, "%s", d.text);
	return id;
}

/* A request of the service that began a moment ago. Its trace and its span have the number. */
static void see(struct tasks *t, const char *service, const char *name, u64 number, u64 ms,
		u8 status)
{
	_cleanup_spans_ struct spans s = {};

	cr_assert_eq(spans_init(&s), 0);
	add_span(&s, (struct span_of){.service = service,
				      .name = name,
				      .trace = number,
				      .id = number,
				      .start_ms = clock_epoch_ms() + 1,
				      .ms = ms,
				      .kind = SPAN_KIND_SERVER,
				      .status = status});
	tasks_see_spans(t, &s);
}

static struct task_info get(struct tasks *t, const char *id)
{
	struct task_info i;

	cr_assert_eq(tasks_get(t, id, &i, NULL), 0);
	return i;
}

static u64 counted(struct tasks *t, const char *id, enum task_count c)
{
	_cleanup_task_info_ struct task_info i = get(t, id);

	return i.counts[c];
}

static u64 outcomes(struct tasks *t, const char *id, u32 o)
{
	_cleanup_task_info_ struct task_info i = get(t, id);

	return i.outcomes[o];
}

/* What an agent asks with: nothing to report. */
static struct control_request question(const char *host, u64 cursor)
{
	struct control_request q = {.cursor = cursor, .started_ms = 1};

	snprintf(q.host, sizeof(q.host), "%s", host);
	return q;
}

static void report(struct control_request *q, const char *id, enum control_state state,
		   u32 processes, u32 publishing)
{
	struct control_task_report r = {
		.state = state, .revision = 1, .processes = processes, .publishing = publishing};

	snprintf(r.id, sizeof(r.id), "%s", id);
	if (state == CONTROL_STATE_REFUSED)
		snprintf(r.reason, sizeof(r.reason), "the kernel is too old");
	cr_assert_eq(vec_push(&q->tasks, r), 0);
}

static void deliver(struct control_request *q, const struct control_keep *k,
		    enum control_outcome outcome)
{
	struct control_kept out = {.outcome = outcome, .samples = 5};

	memcpy(out.task, k->task, sizeof(out.task));
	memcpy(out.trace_id, k->trace_id, sizeof(out.trace_id));
	memcpy(out.span_id, k->span_id, sizeof(out.span_id));
	cr_assert_eq(vec_push(&q->kept, out), 0);
}

static struct control_response ask(struct tasks *t, struct control_request *q)
{
	struct control_response ret = {};
	struct diag d = {};

	cr_assert_eq(tasks_sync(t, q, &ret, &d), 0, "%s", d.text);
	control_request_deinit(q);
	return ret;
}

static struct control_response ask_plainly(struct tasks *t, const char *host, u64 cursor)
{
	struct control_request q = question(host, cursor);

	return ask(t, &q);
}

static bool has_reason(struct tasks *t, const char *id, enum task_why why, const char *text)
{
	struct task_reasons r = {};
	bool found = false;

	cr_assert_eq(tasks_why(t, id, &r), 0);
	vec_foreach (&r.list, e) {
		found |= e->why == why && strstr(e->text, text);
	}
	if (!found)
		vec_foreach (&r.list, e)
			fprintf(stderr, "%s: %s\n", task_why_name(e->why), e->text);
	vec_deinit(&r.list);
	return found;
}

/* ---- decisions ---- */

Test(tasks, keeps_what_takes_the_minimum_and_longer)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("GET /buy", 100);
	const char *id = add_task(t, &s);
	_cleanup_task_info_ struct task_info i = {};

	see(t, "shop", "GET /buy", 1, 99, SPAN_OK);
	see(t, "shop", "GET /buy", 2, 100, SPAN_OK);
	see(t, "shop", "GET /sell", 3, 500, SPAN_OK);
	see(t, "cart", "GET /buy", 4, 500, SPAN_OK);
	see(t, "shop", "GET /buy", 5, 200, SPAN_ERROR);
	i = get(t, id);
	cr_expect_eq(i.counts[TASK_COUNT_SPANS], 4);
	cr_expect_eq(i.counts[TASK_COUNT_BELOW], 1);
	cr_expect_eq(i.counts[TASK_COUNT_OTHER], 1);
	cr_expect_eq(i.counts[TASK_COUNT_WANTED], 2);
	cr_expect_eq(i.reasons[CONTROL_REASON_SLOW], 2);
	cr_expect_eq(i.slowest_ns / 1000000, 200);
	cr_assert_eq(i.requests.n, 2);
	cr_expect_eq(i.requests.data[0].trace_id[15], 2);
	cr_expect_eq(i.requests.data[1].outcome, TASK_OUTCOME_WAITING);
}

Test(tasks, endpoints_match_exactly_by_wildcard_and_by_expression)
{
	static const struct {
		const char *pattern, *name;
		bool match;
	} cases[] = {
		{"", "anything", true},		 {"GET /a", "GET /a", true},
		{"GET /a", "get /a", false},	 {"GET /a", "GET /ab", false},
		{"GET *", "GET /a/b", true},	 {"*", "GET /a", true},
		{"*/b", "GET /a/b", true},	 {"*a*b*", "xxaxxb", true},
		{"*a*b", "xxaxxbx", false},	 {"a*a", "a", false},
		{"~GET /(a|b)", "GET /b", true}, {"~GET /(a|b)", "GET /bc", false},
		{"~/a", "GET /a", false},	 {"~.*/a", "GET /a", true},
		{"a.c", "abc", false},
	};

	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		_cleanup_tasks_ struct tasks *t = make(NULL);
		struct task_spec s = spec_of(cases[k].pattern, 0);
		const char *id = add_task(t, &s);

		see(t, "shop", cases[k].name, k + 1, 1, SPAN_OK);
		cr_expect_eq(counted(t, id, TASK_COUNT_WANTED), cases[k].match, "'%s' on '%s'",
			     cases[k].pattern, cases[k].name);
	}
}

Test(tasks, a_span_counts_once)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	const char *a = add_task(t, &s), *b = add_task(t, &s);

	see(t, "shop", "GET /a", 1, 5, SPAN_OK);
	see(t, "shop", "GET /a", 1, 5, SPAN_OK);
	/* Each task that wants the request has it, once. */
	for (int k = 0; k < 2; k++) {
		cr_expect_eq(counted(t, k ? a : b, TASK_COUNT_WANTED), 1);
		cr_expect_eq(counted(t, k ? a : b, TASK_COUNT_REPEATED), 1);
	}
	struct control_response r = ask_plainly(t, "h", 0);

	cr_expect_eq(r.keeps.n, 2);
	control_response_deinit(&r);
}

Test(tasks, requests_before_and_after_a_task_are_not_its_own)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	_cleanup_spans_ struct spans early = {};
	const char *id = add_task(t, &s);

	cr_assert_eq(spans_init(&early), 0);
	add_span(&early, (struct span_of){.service = "shop",
					  .name = "x",
					  .trace = 1,
					  .id = 1,
					  .start_ms = clock_epoch_ms() - 50,
					  .ms = 100});
	tasks_see_spans(t, &early);
	cr_expect_eq(counted(t, id, TASK_COUNT_OUTSIDE), 1);
	cr_expect(has_reason(t, id, TASK_WHY_OUTSIDE, "1 request began before the task"));
	/* A request of the last moments arrives after the end. */
	ahead_ms += task_defaults.duration_ms - 10;
	_cleanup_spans_ struct spans late = {};

	cr_assert_eq(spans_init(&late), 0);
	add_span(&late, (struct span_of){.service = "shop",
					 .name = "x",
					 .trace = 2,
					 .id = 2,
					 .start_ms = clock_epoch_ms(),
					 .ms = 100});
	ahead_ms += 5000;
	tasks_see_spans(t, &late);
	see(t, "shop", "x", 3, 1, SPAN_OK);
	cr_expect_eq(counted(t, id, TASK_COUNT_WANTED), 1);
	cr_expect_eq(counted(t, id, TASK_COUNT_OUTSIDE), 2);
}

Test(tasks, errors_are_kept_whatever_they_take)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	const char *id;

	s.has_min = false;
	s.errors = true;
	id = add_task(t, &s);
	see(t, "shop", "x", 1, 1000, SPAN_OK);
	see(t, "shop", "x", 2, 1, SPAN_ERROR);
	cr_expect_eq(counted(t, id, TASK_COUNT_WANTED), 1);
	cr_expect_eq(counted(t, id, TASK_COUNT_BELOW), 1);
}

/* 1 to 1,000 ms in a shuffled order: the 95th percentile is 950 ms. */
Test(tasks, a_percentile_is_that_of_the_endpoint_lately)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	_cleanup_task_info_ struct task_info i = {};
	const char *id;

	s.has_min = false;
	s.percentile = 95;
	id = add_task(t, &s);
	for (u64 k = 0; k < 39; k++)
		see(t, "shop", "x", 5000 + k, 1 + k * 379 % 1000, SPAN_OK);
	cr_expect_eq(counted(t, id, TASK_COUNT_WANTED), 0);
	cr_expect(has_reason(t, id, TASK_WHY_LEARNING, "needs 40 requests"));
	for (u64 k = 39; k < 1000; k++)
		see(t, "shop", "x", 5000 + k, 1 + k * 379 % 1000, SPAN_OK);
	i = get(t, id);
	cr_assert_eq(i.endpoints.n, 1);
	cr_expect(i.endpoints.data[0].threshold_ns >= 950000000ULL &&
			  i.endpoints.data[0].threshold_ns <= 950000000ULL * 17 / 16 + 1100,
		  "%llu", i.endpoints.data[0].threshold_ns);
	see(t, "shop", "x", 1, 900, SPAN_OK);
	see(t, "shop", "x", 2, 1100, SPAN_OK);
	cr_expect_eq(counted(t, id, TASK_COUNT_WANTED), i.counts[TASK_COUNT_WANTED] + 1);
	/* Two windows later what was slow then is forgotten. */
	ahead_ms += 700000;
	t = (tasks_destroy(t), make(NULL));
	s.duration_ms = 0;
	id = add_task(t, &s);
	for (u64 k = 0; k < 300; k++)
		see(t, "shop", "x", 10000 + k, 1000, SPAN_OK);
	ahead_ms += 600000;
	for (u64 k = 0; k < 300; k++)
		see(t, "shop", "x", 20000 + k, 10, SPAN_OK);
	ahead_ms += 1000;
	see(t, "shop", "x", 3, 20, SPAN_OK);
	cr_expect_eq(counted(t, id, TASK_COUNT_WANTED), 1);
}

Test(tasks, the_control_group_is_a_share_of_the_others_at_random)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 100);
	_cleanup_task_info_ struct task_info i = {};
	const char *id;
	double z;

	s.control = 0.05;
	s.max_per_minute = s.max_requests = 0;
	id = add_task(t, &s);
	for (u64 k = 1; k <= 10000; k++)
		see(t, "shop", "x", k, k % 50 ? 1 : 100, SPAN_OK);
	i = get(t, id);
	cr_expect_eq(i.reasons[CONTROL_REASON_SLOW], 200);
	/* 9,800 others at 0.05: 490, with a deviation of 21.6. */
	z = ((double)i.reasons[CONTROL_REASON_CONTROL] - 490) / 21.6;
	cr_expect(fabs(z) < 5, "%llu", i.reasons[CONTROL_REASON_CONTROL]);
}

/* The budget of a minute must not make the group one of the first seconds of each minute. */
Test(tasks, the_control_group_is_spread_over_a_minute)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 100);
	_cleanup_task_info_ struct task_info i = {};
	u64 late = 0, minute, number = 0;
	const char *id;

	s.control = 1;
	s.max_per_minute = 60;
	s.max_requests = 0;
	id = add_task(t, &s);
	ahead_ms += 60000 - clock_epoch_ms() % 60000;
	minute = clock_epoch_ms();
	for (u64 k = 0; k < 3 * 600; k++) {
		see(t, "shop", "x", ++number, 1, SPAN_OK);
		ahead_ms += 100;
	}
	i = get(t, id);
	vec_foreach (&i.requests, q) {
		cr_expect_eq(q->reason, CONTROL_REASON_CONTROL);
		if (q->decided_ms >= minute + 60000)
			late += q->decided_ms % 60000 >= 30000;
	}
	/* Of 60 in each of the last two minutes, about half are of its second half. */
	cr_expect(late > 30 && late < 75, "%llu", late);
	cr_expect_leq(i.reasons[CONTROL_REASON_CONTROL], 180);
}

/* ---- budgets ---- */

Test(tasks, budgets_are_not_exceeded)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	const char *id;
	u64 number = 0;

	s.max_per_minute = 3;
	s.max_requests = 5;
	id = add_task(t, &s);
	for (int k = 0; k < 10; k++)
		see(t, "shop", k % 2 ? "x" : "y", ++number, 1, SPAN_OK);
	cr_expect_eq(counted(t, id, TASK_COUNT_WANTED), 5);
	cr_expect_eq(counted(t, id, TASK_COUNT_BUDGET), 5);
	cr_expect(has_reason(t, id, TASK_WHY_BUDGET, "no room for 5 requests: 5 in all"));
	/* What nobody had is not of the budget. */
	ahead_ms += 61000;
	tasks_tick(t);
	cr_expect_eq(outcomes(t, id, TASK_OUTCOME_NOBODY), 5);
	for (int k = 0; k < 4; k++)
		see(t, "shop", "x", ++number, 1, SPAN_OK);
	cr_expect_eq(counted(t, id, TASK_COUNT_WANTED), 8);
}

Test(tasks, an_agent_with_enough_gets_no_more)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	struct control_request q = question("h1", 0);
	struct control_response r;
	u64 cursor;
	const char *id;

	s.max_per_agent = 1;
	id = add_task(t, &s);
	see(t, "shop", "x", 1, 1, SPAN_OK);
	see(t, "shop", "x", 2, 1, SPAN_OK);
	r = ask_plainly(t, "h1", 0);
	cr_assert_eq(r.keeps.n, 2);
	cursor = r.cursor;
	deliver(&q, &r.keeps.data[0], CONTROL_OUTCOME_KEPT);
	control_response_deinit(&r);
	r = ask(t, &q);
	control_response_deinit(&r);
	see(t, "shop", "x", 3, 1, SPAN_OK);
	r = ask_plainly(t, "h1", cursor);
	cr_expect_eq(r.keeps.n, 0);
	control_response_deinit(&r);
	r = ask_plainly(t, "h2", cursor);
	cr_expect_eq(r.keeps.n, 1);
	control_response_deinit(&r);
	cr_expect_eq(outcomes(t, id, CONTROL_OUTCOME_KEPT), 1);
}

Test(tasks, a_task_ends_with_its_requests)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	struct control_request q = question("h1", 0);
	struct control_response r;
	const char *id;

	s.max_requests = 2;
	id = add_task(t, &s);
	see(t, "shop", "x", 1, 1, SPAN_OK);
	see(t, "shop", "x", 2, 1, SPAN_OK);
	r = ask_plainly(t, "h1", 0);
	cr_assert_eq(r.tasks.n, 1);
	cr_assert_eq(r.keeps.n, 2);
	cr_expect_eq(r.keeps.data[0].reason, CONTROL_REASON_SLOW);
	deliver(&q, &r.keeps.data[0], CONTROL_OUTCOME_KEPT);
	deliver(&q, &r.keeps.data[1], CONTROL_OUTCOME_PARTLY);
	control_response_deinit(&r);
	r = ask(t, &q);
	/* Agents hear that it has ended. */
	cr_assert_eq(r.tasks.n, 1);
	cr_expect_eq(r.tasks.data[0].revision, 2);
	cr_expect_eq(r.tasks.data[0].end_ms, clock_epoch_ms());
	control_response_deinit(&r);

	_cleanup_task_info_ struct task_info i = get(t, id);

	cr_expect_eq(task_state(&i, clock_epoch_ms()), TASK_STATE_ENDED);
	cr_expect_eq(i.agents.n, 1);
	cr_expect_eq(i.agents.data[0].kept, 2);
	cr_expect(has_reason(t, id, TASK_WHY_DROPPED, "the beginning of 1"));
	cr_expect_neq(strstr(i.log.data[i.log.n - 1].text, "2 requests"), NULL);
}

/* ---- agents ---- */

Test(tasks, decisions_come_once_and_in_order)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	struct control_response r;
	u64 cursor;

	(void)add_task(t, &s);
	r = ask_plainly(t, "h", 0);
	cr_expect_eq(r.keeps.n, 0);
	cr_expect_eq(r.next_ms, 2000);
	cursor = r.cursor;
	control_response_deinit(&r);
	for (u64 k = 1; k <= 3; k++)
		see(t, "shop", "x", k, k, SPAN_OK);
	r = ask_plainly(t, "h", cursor);
	cr_assert_eq(r.keeps.n, 3);
	for (u64 k = 0; k < 3; k++)
		cr_expect_eq(r.keeps.data[k].trace_id[15], k + 1);
	cr_expect_eq(r.keeps.data[2].end_ns - r.keeps.data[2].start_ns, 3000005);
	control_response_deinit(&r);
	/* The answer was lost: the agent asks from where it was. */
	r = ask_plainly(t, "h", cursor);
	cr_expect_eq(r.keeps.n, 3);
	cursor = r.cursor;
	control_response_deinit(&r);
	r = ask_plainly(t, "h", cursor);
	cr_expect_eq(r.keeps.n, 0);
	control_response_deinit(&r);
	/* One that comes late, and one with a cursor of another server. */
	ahead_ms += 200000;
	r = ask_plainly(t, "late", 0);
	cr_expect_eq(r.keeps.n, 3);
	control_response_deinit(&r);
	r = ask_plainly(t, "strange", ~0ULL);
	cr_expect_eq(r.keeps.n, 3);
	control_response_deinit(&r);
	ahead_ms += 200000;
	r = ask_plainly(t, "later", 0);
	cr_expect_eq(r.keeps.n, 0);
	control_response_deinit(&r);
}

/* More decisions than one message holds. */
Test(tasks, many_decisions_come_in_several_messages)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	struct control_response r;
	u64 cursor = 0, got = 0;

	s.max_requests = s.max_per_minute = 0;
	for (int k = 0; k < 5; k++)
		(void)add_task(t, &s);
	for (u64 k = 1; k <= 1100; k++)
		see(t, "shop", "x", k, 1, SPAN_OK);
	do {
		r = ask_plainly(t, "h", cursor);
		cr_assert_leq(r.keeps.n, CONTROL_MAX_KEEPS);
		for (size_t k = 1; k < r.keeps.n; k++)
			cr_assert(memcmp(r.keeps.data[k].trace_id, r.keeps.data[k - 1].trace_id,
					 16) >= 0);
		got += r.keeps.n;
		cursor = r.cursor;
		control_response_deinit(&r);
	} while (r.keeps.n || (got && got % CONTROL_MAX_KEEPS == 0));
	/* A task remembers 1,000 whose outcome is not known, and refuses the others. */
	cr_expect_eq(got, 5000);
}

Test(tasks, the_best_outcome_counts)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	struct control_request q = question("h1", 0);
	struct control_response r;
	struct control_keep k;
	const char *id = add_task(t, &s);

	see(t, "shop", "x", 1, 1, SPAN_OK);
	r = ask_plainly(t, "h1", 0);
	cr_assert_eq(r.keeps.n, 1);
	k = r.keeps.data[0];
	control_response_deinit(&r);
	ahead_ms += 31000;
	tasks_tick(t);
	cr_expect_eq(outcomes(t, id, TASK_OUTCOME_NOBODY), 1);
	cr_expect(has_reason(t, id, TASK_WHY_NOBODY, "no agent had anything of 1 request"));
	/* It comes all the same, from an agent that was slow; then from another. */
	static const enum control_outcome order[] = {CONTROL_OUTCOME_EVICTED,
						     CONTROL_OUTCOME_PARTLY, CONTROL_OUTCOME_KEPT,
						     CONTROL_OUTCOME_EVICTED};

	for (size_t n = 0; n < ARRAY_SIZE(order); n++) {
		q = question("h1", 0);
		deliver(&q, &k, order[n]);
		r = ask(t, &q);
		control_response_deinit(&r);
		cr_expect_eq(
			outcomes(t, id, MIN(order[n], n < 3 ? order[n] : CONTROL_OUTCOME_KEPT)), 1);
	}
	cr_expect_eq(outcomes(t, id, TASK_OUTCOME_NOBODY), 0);

	_cleanup_task_info_ struct task_info i = get(t, id);

	cr_expect_eq(i.agents.data[0].kept, 1);
	cr_expect_eq(i.requests.data[0].samples, 5);
}

Test(tasks, hostile_reports_change_nothing)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	struct control_request q = question("", 0);
	struct control_response r = {};
	const char *id = add_task(t, &s);
	struct control_keep odd = {};
	struct diag d = {};

	cr_expect_eq(tasks_sync(t, &q, &r, &d), -EINVAL);
	q = question("h", 0);
	report(&q, "nothing", CONTROL_STATE_ARMED, 1, 1);
	report(&q, id, (enum control_state)77, 1, 1);
	snprintf(odd.task, sizeof(odd.task), "%s", id);
	deliver(&q, &odd, (enum control_outcome)200);
	deliver(&q, &odd, CONTROL_OUTCOME_KEPT);
	r = ask(t, &q);
	control_response_deinit(&r);

	_cleanup_task_info_ struct task_info i = get(t, id);

	cr_expect_eq(i.outcomes[CONTROL_OUTCOME_KEPT], 0);
	for (u32 k = 0; k < 3000; k++) {
		char host[32];

		snprintf(host, sizeof(host), "h%u", k);
		q = question(host, 0);
		report(&q, id, k % 2 ? CONTROL_STATE_ARMED : CONTROL_STATE_ABSENT, 1, 1);
		r = ask(t, &q);
		control_response_deinit(&r);
	}
	task_info_deinit(&i);
	i = get(t, id);
	cr_expect_leq(i.agents.n, TASKS_MAX_AGENTS);
	cr_expect_leq(i.log.n, TASKS_MAX_LOG);
	/* Agents that see the service take the places of those that do not. */
	for (size_t k = 0; k < i.agents.n; k++)
		cr_expect_eq(i.agents.data[k].state, CONTROL_STATE_ARMED, "%s",
			     i.agents.data[k].host);
}

/* ---- endings ---- */

Test(tasks, a_queued_task_starts_on_time)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	struct control_response r;
	const char *id;

	s.start_ms = clock_epoch_ms() + 60000;
	id = add_task(t, &s);
	see(t, "shop", "x", 1, 1, SPAN_OK);
	cr_expect_eq(counted(t, id, TASK_COUNT_SPANS), 0);
	cr_expect(has_reason(t, id, TASK_WHY_QUEUED, "in 60 s"));
	/* Agents know of it before. */
	r = ask_plainly(t, "h", 0);
	cr_assert_eq(r.tasks.n, 1);
	cr_expect_eq(r.tasks.data[0].start_ms, s.start_ms);
	cr_expect_eq(r.tasks.data[0].end_ms, s.start_ms + 300000);
	control_response_deinit(&r);
	ahead_ms += 60000;
	see(t, "shop", "x", 2, 1, SPAN_OK);
	cr_expect_eq(counted(t, id, TASK_COUNT_WANTED), 1);
}

Test(tasks, cancelling_ends_and_deleting_removes)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	struct control_response r;
	struct diag d = {};
	const char *id = add_task(t, &s);

	see(t, "shop", "x", 1, 1, SPAN_OK);
	cr_assert_eq(tasks_cancel(t, id, "ada", &d), 0);
	cr_assert_eq(tasks_cancel(t, id, "bob", &d), 0);
	see(t, "shop", "x", 2, 1, SPAN_OK);

	_cleanup_task_info_ struct task_info i = get(t, id);

	cr_expect_eq(task_state(&i, clock_epoch_ms()), TASK_STATE_CANCELLED);
	cr_expect_eq(i.counts[TASK_COUNT_WANTED], 1);
	cr_expect_str_eq(i.log.data[i.log.n - 1].text, "cancelled by ada");
	r = ask_plainly(t, "h", 0);
	cr_assert_eq(r.tasks.n, 1);
	cr_expect_leq(r.tasks.data[0].end_ms, clock_epoch_ms());
	control_response_deinit(&r);
	ahead_ms += TASKS_LINGER_MS;
	r = ask_plainly(t, "h", 0);
	cr_expect_eq(r.tasks.n, 0);
	control_response_deinit(&r);
	cr_assert_eq(tasks_delete(t, id, &d), 0);
	cr_expect_eq(tasks_delete(t, id, &d), -ENOENT);
	cr_expect_neq(strstr(d.text, "there is no task"), NULL);
	cr_expect_eq(tasks_cancel(t, id, "", &d), -ENOENT);
}

Test(tasks, tasks_that_ended_make_room)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	char id[CONTROL_ID_BYTES];
	struct diag d = {};

	for (u32 round = 0; round < 6; round++) {
		for (u32 k = 0; k < TASKS_MAX_LIVE; k++)
			(void)add_task(t, &s);
		d.text[0] = '\0';
		cr_expect_eq(tasks_add(t, &s, "", id, &d), -E2BIG);
		cr_expect_neq(strstr(d.text, "64 tasks"), NULL, "%s", d.text);
		ahead_ms += 400000;
	}
	struct task_list all = {};

	cr_assert_eq(tasks_list(t, &all), 0);
	cr_expect_eq(all.list.n, TASKS_MAX);
	cr_expect_geq(all.list.data[0].created_ms, all.list.data[TASKS_MAX - 1].created_ms);
	task_list_deinit(&all);
}

/* ---- why ---- */

Test(tasks, says_why_there_is_no_data)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("GET /buy", 100);
	struct control_request q;
	struct control_response r;
	const char *id = add_task(t, &s);

	cr_expect(has_reason(t, id, TASK_WHY_NO_AGENT, "no agent has asked"));
	cr_expect(has_reason(t, id, TASK_WHY_NO_SPAN, "no span of the service shop"));
	see(t, "shopp", "GET /buy", 1, 1, SPAN_OK);
	cr_expect(has_reason(t, id, TASK_WHY_NO_SPAN, "spans came from shopp"));
	see(t, "shop", "GET /by", 2, 1, SPAN_OK);
	cr_expect(has_reason(t, id, TASK_WHY_NO_ENDPOINT, "'GET /buy' has come; shop has GET /by"));
	see(t, "shop", "GET /buy", 3, 53, SPAN_OK);
	cr_expect(has_reason(t, id, TASK_WHY_BELOW, "1 request took less than 100 ms"));
	cr_expect(has_reason(t, id, TASK_WHY_BELOW, "took 53.000 ms"));
	static const struct {
		enum control_state state;
		u32 processes, publishing;
		enum task_why why;
		const char *text;
	} reports[] = {
		{CONTROL_STATE_ABSENT, 0, 0, TASK_WHY_NO_PROCESS, "service.name is shop"},
		{CONTROL_STATE_SILENT, 3, 0, TASK_WHY_NO_CONTEXT, "the 3 processes of shop"},
		{CONTROL_STATE_REFUSED, 3, 3, TASK_WHY_REFUSED, "the kernel is too old"},
	};

	for (size_t k = 0; k < ARRAY_SIZE(reports); k++) {
		q = question("h1", 0);
		report(&q, id, reports[k].state, reports[k].processes, reports[k].publishing);
		r = ask(t, &q);
		control_response_deinit(&r);
		cr_expect(has_reason(t, id, reports[k].why, reports[k].text), "%zu", k);
	}
	q = question("h1", 0);
	report(&q, id, CONTROL_STATE_ARMED, 3, 3);
	q.tasks.data[0].lost = 7;
	r = ask(t, &q);
	control_response_deinit(&r);
	cr_expect(has_reason(t, id, TASK_WHY_LOST, "lost 7"));
	ahead_ms += 40000;
	cr_expect(has_reason(t, id, TASK_WHY_AWAY, "1 agent is away: h1 last asked 40 s ago"));
	/* It was there until the end. */
	ahead_ms += 600000;
	cr_expect(has_reason(t, id, TASK_WHY_AWAY, "h1"));
	tasks_destroy(t);
	t = make(NULL);
	id = add_task(t, &s);
	r = ask_plainly(t, "h", 0);
	control_response_deinit(&r);
	cr_expect(has_reason(t, id, TASK_WHY_NO_AGENT, "yet"));
	ahead_ms += 60000;
	cr_expect(has_reason(t, id, TASK_WHY_NO_AGENT, "60 s ago"));
}

Test(tasks, says_that_agents_had_dropped_it)
{
	_cleanup_tasks_ struct tasks *t = make(NULL);
	struct task_spec s = spec_of("", 0);
	struct control_request q = question("h", 0);
	struct control_response r;
	const char *id = add_task(t, &s);

	see(t, "shop", "x", 1, 1, SPAN_OK);
	r = ask_plainly(t, "h", 0);
	cr_assert_eq(r.keeps.n, 1);
	deliver(&q, &r.keeps.data[0], CONTROL_OUTCOME_EVICTED);
	control_response_deinit(&r);
	r = ask(t, &q);
	control_response_deinit(&r);
	cr_expect(has_reason(t, id, TASK_WHY_DROPPED, "dropped all of 1 request"));
}

/* ---- what a user asks for ---- */

static int read_spec(const char *text, struct task_spec *ret, struct diag *d)
{
	json_t *o = json_loads(text, 0, NULL);
	int r;

	*d = (struct diag){};
	cr_assert_not_null(o, "%s", text);
	r = task_spec_read(o, ret, d);
	json_decref(o);
	return r < 0 ? r : task_spec_check(ret, d);
}

Test(tasks, reads_what_a_user_asks_for)
{
	struct task_spec s;
	struct diag d;

	cr_assert_eq(read_spec("{\"service\": \"shop\"}", &s, &d), 0, "%s", d.text);
	cr_expect(s.has_min && !s.min_ns && s.on_cpu && s.off_cpu);
	cr_expect_eq(s.duration_ms, 300000);
	cr_assert_eq(read_spec("{\"service\": \"a\", \"min_ms\": 0.25, \"percentile\": null, "
			       "\"duration_ms\": 0, \"period_us\": 1000, \"waiting\": false}",
			       &s, &d),
		     0, "%s", d.text);
	cr_expect_eq(s.min_ns, 250000);
	static const struct {
		const char *text, *says;
	} wrong[] = {
		{"[]", "an object"},
		{"{}", "service: of which?"},
		{"{\"service\": 7}", "service: a text"},
		{"{\"service\": \"a\\n\"}", "control characters"},
		{"{\"service\": \"a\", \"endpiont\": \"x\"}", "no 'endpiont'; it has endpoint"},
		{"{\"service\": \"a\", \"endpoint\": \"~(\"}", "not a regular expression"},
		{"{\"service\": \"a\", \"min_ms\": -1}", "min_ms: a number"},
		{"{\"service\": \"a\", \"min_ms\": 1, \"percentile\": 99}", "one of the two"},
		{"{\"service\": \"a\", \"percentile\": 99.95}", "50 to 99.9"},
		{"{\"service\": \"a\", \"percentile\": 1}", "50 to 99.9"},
		{"{\"service\": \"a\", \"control\": 2}", "control: a number of 0 to 1"},
		{"{\"service\": \"a\", \"control\": 0.5}", "no others to compare"},
		{"{\"service\": \"a\", \"period_us\": 999}", "period_us: 1000"},
		{"{\"service\": \"a\", \"period_us\": 1000.5}", "a whole number"},
		{"{\"service\": \"a\", \"running\": false, \"waiting\": false}", "at least one"},
		{"{\"service\": \"a\", \"running\": 1}", "true or false"},
		{"{\"service\": \"a\", \"duration_ms\": 1e12}", "duration_ms"},
		{"{\"service\": \"a\", \"max_requests\": 1e8}", "max_requests"},
	};

	for (size_t k = 0; k < ARRAY_SIZE(wrong); k++) {
		cr_expect_eq(read_spec(wrong[k].text, &s, &d), -EINVAL, "%s", wrong[k].text);
		cr_expect_neq(strstr(d.text, wrong[k].says), NULL, "%s: %s", wrong[k].text, d.text);
	}
}

/* ---- files ---- */

static void expect_same(const struct task_info *a, const struct task_info *b)
{
	struct str texts[2] = {};

	for (int k = 0; k < 2; k++) {
		const struct task_info *i = k ? b : a;
		struct json_writer w = {.out = &texts[k]};

		json_open_object(&w, NULL);
		task_put(&w, i, true);
		json_open_array(&w, "requests");
		vec_foreach (&i->requests, q) {
			json_open_object(&w, NULL);
			task_put_request(&w, i, q);
			json_close(&w);
		}
		json_close(&w);
		json_close(&w);
	}
	cr_expect_str_eq(str_get(&texts[0]), str_get(&texts[1]));
	str_deinit(&texts[0]);
	str_deinit(&texts[1]);
}

/* What is in the files is what a server has that was killed. */
Test(tasks, decisions_and_outcomes_survive)
{
	char dir[] = "/tmp/culprit-tasks-XXXXXX";
	struct task_spec s = spec_of("~GET /.*", 10);
	struct tasks *killed, *t;
	struct control_request q;
	struct control_response r;
	struct task_info before, after;
	const char *id;
	u64 cursor;

	cr_assert_not_null(mkdtemp(dir));
	killed = make(dir);
	s.max_per_agent = 50;
	s.control = 0.5;
	id = add_task(killed, &s);
	q = question("h1", 0);
	report(&q, id, CONTROL_STATE_ARMED, 2, 1);
	r = ask(killed, &q);
	control_response_deinit(&r);
	for (u64 k = 1; k <= 20; k++)
		see(killed, "shop", k % 2 ? "GET /a" : "GET /\xc3\xa4\x01", k, k, SPAN_OK);
	r = ask_plainly(killed, "h1", 0);
	cr_assert_geq(r.keeps.n, 11);
	cursor = r.cursor;
	q = question("h1", cursor);
	deliver(&q, &r.keeps.data[0], CONTROL_OUTCOME_KEPT);
	control_response_deinit(&r);
	r = ask(killed, &q);
	control_response_deinit(&r);
	see(killed, "shop", "GET /a", 100, 100, SPAN_ERROR);
	before = get(killed, id);
	/* `killed` writes nothing more. */
	t = make(dir);
	after = get(t, id);
	expect_same(&before, &after);
	cr_expect_eq(after.requests.data[0].outcome, CONTROL_OUTCOME_KEPT);
	/* The span is sent again, and the agent asks from where it was. */
	see(t, "shop", "GET /a", 100, 100, SPAN_ERROR);
	cr_expect_eq(counted(t, id, TASK_COUNT_REPEATED), 1);
	r = ask_plainly(t, "h1", cursor);
	cr_assert_eq(r.keeps.n, 1);
	cr_expect_eq(r.keeps.data[0].trace_id[15], 100);
	cr_expect_gt(r.cursor, cursor);
	control_response_deinit(&r);
	see(t, "shop", "GET /b", 101, 100, SPAN_OK);
	cr_expect_eq(counted(t, id, TASK_COUNT_WANTED), before.counts[TASK_COUNT_WANTED] + 1);
	task_info_deinit(&before);
	task_info_deinit(&after);
	cr_assert_eq(tasks_delete(t, id, NULL), 0);
	tasks_destroy(t);
	t = make(dir);
	struct task_list all = {};

	cr_assert_eq(tasks_list(t, &all), 0);
	cr_expect_eq(all.list.n, 0);
	task_list_deinit(&all);
	tasks_destroy(t);
	cr_assert_eq(tasks_delete(killed, id, NULL), 0);
	tasks_destroy(killed);
	cr_expect_eq(remove_dir(dir), 0);
}

/* Files that somebody has damaged are left alone, and the others are read. */
Test(tasks, damaged_files_are_left_out)
{
	char dir[] = "/tmp/culprit-tasks-XXXXXX", path[128];
	struct task_spec s = spec_of("", 0);
	static const char *const damaged[] = {"", "{", "{\"version\": 2}", "[]",
					      "{\"version\": 1, \"spec\": {}}"};
	struct task_list all = {};
	struct tasks *t;
	struct stat st;

	cr_assert_not_null(mkdtemp(dir));
	t = make(dir);
	(void)add_task(t, &s);
	tasks_destroy(t);
	for (size_t k = 0; k < ARRAY_SIZE(damaged); k++) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/task-%zu.json", dir, k);
		f = fopen(path, "we");
		cr_assert_not_null(f);
		fputs(damaged[k], f);
		fclose(f);
	}
	t = make(dir);
	cr_assert_eq(tasks_list(t, &all), 0);
	cr_expect_eq(all.list.n, 1);
	task_list_deinit(&all);
	tasks_destroy(t);
	cr_expect_eq(stat(path, &st), 0);
	cr_expect_eq(remove_dir(dir), 0);
}

Test(tasks, a_file_that_cannot_be_written_is_an_error)
{
	char dir[] = "/tmp/culprit-tasks-XXXXXX", id[CONTROL_ID_BYTES];
	struct task_spec s = spec_of("", 0);
	struct task_list all = {};
	struct diag d = {};
	struct tasks *t;

	cr_assert_not_null(mkdtemp(dir));
	t = make(dir);
	cr_assert_eq(rmdir(dir), 0);
	cr_expect_eq(tasks_add(t, &s, "", id, &d), -ENOENT);
	cr_expect_neq(strstr(d.text, "cannot write the file of a task"), NULL, "%s", d.text);
	cr_assert_eq(tasks_list(t, &all), 0);
	cr_expect_eq(all.list.n, 0);
	task_list_deinit(&all);
	tasks_destroy(t);
}
