/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of the control channel: questions and answers by hand, instead of capture
 * functions that note how they are called, and a clock that the test sets.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "agent/client/client.h"
#include "base/cleanup.h"
#include "control/control.h"

#define A "otlp://a:4317"
#define B "otlp://b:4317"
#define MINUTE_MS 60000

static u64 now_s; /* added to the clock */
int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = __real_clock_gettime(id, ret);

	ret->tv_sec += (time_t)now_s;
	return r;
}

/* ---- capture ---- */

struct place {
	size_t n_tasks, n_keeps, n_answered, n_forgotten, n_set;
	char first[CONTROL_ID_BYTES]; /* task */
	size_t kept;		      /* outcomes that it has */
};
static struct place places[CAPTURE_MAX_SERVERS];
static int set_error, keep_error, report_error;
static struct capture *const some_capture = (struct capture *)&places;
static struct watch *some_watch;
static struct measures *some_measures;

int __wrap_capture_set_tasks(struct capture *c, u32 server, const struct control_task *t, size_t n);
int __wrap_capture_keep(struct capture *c, u32 server, const struct control_keep *k, size_t n);
int __wrap_capture_report(struct capture *c, u32 server, struct control_request *ret);
void __wrap_capture_answered(struct capture *c, u32 server, size_t n);
void __wrap_capture_forget_server(struct capture *c, u32 server);

int __wrap_capture_set_tasks(struct capture *c, u32 server, const struct control_task *t, size_t n)
{
	cr_assert(c == some_capture && server < CAPTURE_MAX_SERVERS);
	places[server].n_set++;
	if (set_error)
		return set_error;
	places[server].n_tasks = n;
	snprintf(places[server].first, sizeof(places[server].first), "%s", n ? t->id : "");
	return 0;
}

int __wrap_capture_keep(struct capture *c, u32 server, const struct control_keep *k, size_t n)
{
	cr_assert_eq(c, some_capture);
	if (keep_error)
		return keep_error;
	places[server].n_keeps += n;
	return 0;
}

int __wrap_capture_report(struct capture *c, u32 server, struct control_request *ret)
{
	struct control_kept k = {.task = "t", .trace_id = {1}, .span_id = {2}};

	cr_assert_eq(c, some_capture);
	if (report_error)
		return report_error;
	for (size_t i = 0; i < places[server].n_tasks; i++)
		cr_assert_eq(vec_push(&ret->tasks, (struct control_task_report){.id = "t"}), 0);
	for (size_t i = 0; i < places[server].kept; i++)
		cr_assert_eq(vec_push(&ret->kept, k), 0);
	return 0;
}

void __wrap_capture_answered(struct capture *c, u32 server, size_t n)
{
	cr_assert_eq(c, some_capture);
	places[server].n_answered += n;
	places[server].kept -= n;
}

void __wrap_capture_forget_server(struct capture *c, u32 server)
{
	cr_assert_eq(c, some_capture);
	places[server] = (struct place){.n_forgotten = 1};
}

/* ---- questions and answers ---- */

static void begin(struct control_client *c, const char *host, const char *host_id)
{
	if (!some_watch)
		cr_assert_eq(watch_create(NULL, NULL, &some_watch), 0);
	if (!some_measures)
		cr_assert_eq(measures_create(&(struct measures_options){}, NULL, &some_measures),
			     0);
	control_client_begin(c, some_capture, some_watch, some_measures, host, host_id);
}

static struct control_client *start(void)
{
	struct control_client *c = NULL;

	cr_assert_eq(control_client_create(&c), 0);
	begin(c, "web-1", "0123");
	return c;
}

static int ask(struct control_client *c, const char *url, struct control_request *ret)
{
	const struct export_asking *a = control_client_asking(c);
	_cleanup_str_ struct str q = {};
	int r = a->question(a->userdata, url, &q);

	if (r == 0)
		cr_assert_eq(control_request_decode((const u8 *)str_get(&q), q.n, ret, NULL), 0);
	return r;
}

static u32 tell(struct control_client *c, const char *url, const struct export_answer *answer)
{
	const struct export_asking *a = control_client_asking(c);

	return a->answer(a->userdata, url, answer);
}

static u32 answer_with(struct control_client *c, const char *url, u64 cursor, u32 next_ms,
		       size_t tasks, size_t keeps)
{
	_cleanup_control_response_ struct control_response r = {.cursor = cursor,
								.next_ms = next_ms};
	_cleanup_str_ struct str s = {};

	for (size_t i = 0; i < tasks; i++)
		cr_assert_eq(
			vec_push(&r.tasks, (struct control_task){.id = "t", .service = "shop"}), 0);
	for (size_t i = 0; i < keeps; i++)
		cr_assert_eq(vec_push(&r.keeps, (struct control_keep){.task = "t",
								      .trace_id = {1},
								      .span_id = {2}}),
			     0);
	cr_assert_eq(control_response_encode(&r, &s), 0);
	return tell(c, url, &(struct export_answer){.data = (const u8 *)str_get(&s), .n = s.n});
}

/* Asks, and gets this answer. */
static u32 round_of(struct control_client *c, const char *url, u64 cursor, size_t tasks,
		    size_t keeps)
{
	_cleanup_control_request_ struct control_request q = {};

	cr_assert_eq(ask(c, url, &q), 0);
	return answer_with(c, url, cursor, 2000, tasks, keeps);
}

static u32 failing_round(struct control_client *c, const char *url, struct export_answer a)
{
	_cleanup_control_request_ struct control_request q = {};

	cr_assert_eq(ask(c, url, &q), 0);
	if (!a.data)
		a.error = "no";
	return tell(c, url, &a);
}

static double metric_of(struct control_client *c, const char *name, const char *url)
{
	_cleanup_str_ struct str all = {}, line = {};
	const char *at;

	control_client_metrics(c, &all);
	str_printf(&line, "\nculprit_agent_control_%s{url=\"%s\"} ", name, url);
	at = strstr(str_get(&all), str_get(&line));
	return at ? strtod(at + line.n, NULL) : -1;
}

/* ---- tests ---- */

Test(control_client, asks_and_hands_on)
{
	struct control_client *c = start();
	_cleanup_control_request_ struct control_request q = {}, second = {};

	cr_assert_eq(ask(c, A, &q), 0);
	cr_expect_str_eq(q.host, "web-1");
	cr_expect_str_eq(q.host_id, "0123");
	cr_expect_str_eq(q.version, CULPRIT_VERSION);
	cr_expect_gt(q.started_ms, 1600000000000ULL);
	cr_expect_eq(q.cursor, 0);
	places[0].kept = 0;
	cr_expect_eq(answer_with(c, A, 9, 2000, 2, 3), 2000);
	cr_expect_eq(places[0].n_tasks, 2);
	cr_expect_str_eq(places[0].first, "t");
	cr_expect_eq(places[0].n_keeps, 3);
	places[0].kept = 4;
	cr_assert_eq(ask(c, A, &second), 0);
	cr_expect_eq(second.cursor, 9);
	cr_expect_eq(second.tasks.n, 2);
	cr_expect_eq(second.kept.n, 4);
	/* What was told meanwhile is not in the question. */
	places[0].kept = 7;
	cr_expect_eq(answer_with(c, A, 9, 2000, 0, 0), 2000);
	cr_expect_eq(places[0].n_answered, 4);
	cr_expect_eq(places[0].n_tasks, 0);
	cr_expect_eq(metric_of(c, "questions_total", A), 2);
	cr_expect_eq(metric_of(c, "answers_total", A), 2);
	cr_expect_eq(metric_of(c, "keeps_total", A), 3);
	cr_expect_eq(metric_of(c, "answers", A), 1);
	control_client_destroy(c);
}

Test(control_client, servers_have_their_own_tasks_and_cursors)
{
	struct control_client *c = start();
	_cleanup_control_request_ struct control_request q = {}, other = {};

	round_of(c, A, 5, 1, 0);
	round_of(c, B, 8, 2, 0);
	cr_expect_eq(places[0].n_tasks, 1);
	cr_expect_eq(places[1].n_tasks, 2);
	cr_assert_eq(ask(c, A, &q), 0);
	cr_assert_eq(ask(c, B, &other), 0);
	cr_expect_eq(q.cursor, 5);
	cr_expect_eq(other.cursor, 8);
	control_client_destroy(c);
}

Test(control_client, two_destinations_with_one_url_do_not_ask_twice)
{
	struct control_client *c = start();
	_cleanup_control_request_ struct control_request q = {}, again = {};

	cr_assert_eq(ask(c, A, &q), 0);
	cr_expect_eq(ask(c, A, &again), -EAGAIN);
	answer_with(c, A, 1, 2000, 0, 0);
	cr_expect_eq(ask(c, A, &again), 0);
	control_client_destroy(c);
}

Test(control_client, nobody_is_asked_before_the_begin_and_after_the_end)
{
	_cleanup_control_request_ struct control_request q = {};
	struct control_client *c = NULL;

	cr_assert_eq(control_client_create(&c), 0);
	cr_expect_eq(ask(c, A, &q), -EAGAIN);
	begin(c, "h", "");
	cr_expect_eq(ask(c, A, &q), 0);
	control_client_end(c);
	answer_with(c, A, 1, 2000, 1, 1);
	cr_expect_eq(places[0].n_set, 0);
	cr_expect_eq(ask(c, A, &q), -EAGAIN);
	control_client_keep_only(c, NULL, 0);
	control_client_destroy(c);
}

Test(control_client, intervals_are_the_servers_within_bounds)
{
	struct control_client *c = start();
	_cleanup_control_request_ struct control_request q = {};

	cr_assert_eq(ask(c, A, &q), 0);
	cr_expect_eq(answer_with(c, A, 1, 1, 0, 0), 200);
	cr_expect_eq(answer_with(c, A, 1, ~0u, 0, 0), 60000);
	control_client_destroy(c);
}

Test(control_client, who_knows_no_tasks_is_left_alone)
{
	struct control_client *c = start();

	cr_expect_eq(failing_round(c, A, (struct export_answer){.unknown = true}), 10 * MINUTE_MS);
	/* A destination that says yes to everything. */
	cr_expect_eq(failing_round(c, B, (struct export_answer){.data = (const u8 *)""}),
		     10 * MINUTE_MS);
	cr_expect_eq(metric_of(c, "failures_total", A), 0);
	cr_expect_eq(metric_of(c, "answers", A), 0);
	cr_expect_eq(metric_of(c, "answers", B), 0);
	cr_expect_eq(places[0].n_set, 0);
	control_client_destroy(c);
}

Test(control_client, a_server_that_answered_before_is_asked_soon)
{
	struct control_client *c = start();

	round_of(c, A, 1, 1, 0);
	cr_expect_eq(failing_round(c, A, (struct export_answer){.unknown = true}), 1000);
	cr_expect_eq(places[0].n_tasks, 1);
	now_s += 601;
	cr_expect_eq(failing_round(c, A, (struct export_answer){.unknown = true}), 10 * MINUTE_MS);
	cr_expect_eq(places[0].n_tasks, 0);
	control_client_destroy(c);
}

Test(control_client, failures_grow_to_half_a_minute)
{
	static const u32 waits[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};
	struct control_client *c = start();

	for (size_t i = 0; i < ARRAY_SIZE(waits); i++)
		cr_expect_eq(failing_round(c, A, (struct export_answer){}), waits[i]);
	cr_expect_eq((u64)metric_of(c, "failures_total", A), ARRAY_SIZE(waits));
	round_of(c, A, 1, 0, 0);
	cr_expect_eq(failing_round(c, A, (struct export_answer){}), 1000);
	cr_expect_eq(failing_round(c, A, (struct export_answer){.retry_after_ms = 7000}), 7000);
	cr_expect_eq(failing_round(c, A, (struct export_answer){.retry_after_ms = ~0u}), 30000);
	control_client_destroy(c);
}

Test(control_client, what_is_no_answer_is_a_failure)
{
	struct control_client *c = start();
	struct export_answer html = {.data = (const u8 *)"<html>", .n = 6};

	round_of(c, A, 3, 1, 0);
	cr_expect_eq(failing_round(c, A, html), 1000);
	cr_expect_eq(places[0].n_tasks, 1);
	cr_expect_eq(metric_of(c, "failures_total", A), 1);
	control_client_destroy(c);
}

Test(control_client, an_answer_that_was_not_taken_in_is_asked_for_again)
{
	struct control_client *c = start();
	_cleanup_control_request_ struct control_request q = {};

	round_of(c, A, 3, 1, 0);
	keep_error = -ENOMEM;
	cr_expect_eq(round_of(c, A, 4, 1, 2), 1000);
	keep_error = 0;
	set_error = -ENOMEM;
	cr_expect_eq(round_of(c, A, 4, 1, 2), 2000);
	set_error = 0;
	report_error = -ENOMEM;
	cr_expect_eq(ask(c, A, &q), -ENOMEM);
	report_error = 0;
	cr_assert_eq(ask(c, A, &q), 0);
	cr_expect_eq(q.cursor, 3);
	cr_expect_eq(answer_with(c, A, 4, 2000, 1, 2), 2000);
	cr_expect_eq(places[0].n_keeps, 2);
	control_client_destroy(c);
}

/* The next sender of the destination asks instead. */
Test(control_client, a_question_that_was_broken_off_is_no_failure)
{
	struct control_client *c = start();
	_cleanup_control_request_ struct control_request q = {};

	places[0].kept = 2;
	failing_round(c, A, (struct export_answer){.broken_off = true});
	cr_expect_eq(metric_of(c, "failures_total", A), 0);
	cr_expect_eq(places[0].n_answered, 0);
	cr_assert_eq(ask(c, A, &q), 0);
	cr_expect_eq(q.kept.n, 2);
	control_client_destroy(c);
}

Test(control_client, tasks_end_ten_minutes_after_the_last_answer)
{
	struct control_client *c = start();

	round_of(c, A, 1, 3, 0);
	now_s += 599;
	failing_round(c, A, (struct export_answer){});
	cr_expect_eq(places[0].n_tasks, 3);
	now_s += 2;
	failing_round(c, A, (struct export_answer){});
	cr_expect_eq(places[0].n_tasks, 0);
	cr_expect_eq(metric_of(c, "tasks", A), 0);
	failing_round(c, A, (struct export_answer){});
	cr_expect_eq(places[0].n_set, 2);
	round_of(c, A, 1, 3, 0);
	cr_expect_eq(places[0].n_tasks, 3);
	control_client_destroy(c);
}

Test(control_client, destinations_that_stay_keep_their_tasks)
{
	static const char *const left[] = {"file:x", B};
	struct control_client *c = start();
	_cleanup_control_request_ struct control_request q = {}, fresh = {};

	round_of(c, A, 5, 1, 0);
	round_of(c, B, 8, 2, 0);
	control_client_keep_only(c, left, ARRAY_SIZE(left));
	cr_expect_eq(places[0].n_forgotten, 1);
	cr_expect_eq(places[1].n_tasks, 2);
	cr_expect_eq(metric_of(c, "tasks", A), -1);
	cr_expect_eq(metric_of(c, "tasks", B), 2);
	cr_assert_eq(ask(c, B, &q), 0);
	cr_expect_eq(q.cursor, 8);
	/* An answer to a question of a destination that is gone. */
	cr_expect_eq(answer_with(c, A, 6, 2000, 1, 0), 200);
	cr_expect_eq(places[0].n_tasks, 0);
	/* It comes back as a new one, in the free place. */
	cr_assert_eq(ask(c, A, &fresh), 0);
	cr_expect_eq(fresh.cursor, 0);
	control_client_destroy(c);
}

Test(control_client, more_destinations_than_places_wait)
{
	struct control_client *c = start();
	_cleanup_control_request_ struct control_request q = {};
	char url[32];

	for (u32 i = 0; i <= CAPTURE_MAX_SERVERS; i++) {
		_cleanup_control_request_ struct control_request each = {};

		snprintf(url, sizeof(url), "otlp://%u:1", i);
		cr_expect_eq(ask(c, url, &each), i < CAPTURE_MAX_SERVERS ? 0 : -EAGAIN);
	}
	control_client_keep_only(c, (const char *[]){"otlp://3:1"}, 1);
	cr_expect_eq(ask(c, url, &q), 0);
	control_client_destroy(c);
}
