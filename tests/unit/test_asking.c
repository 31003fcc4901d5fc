/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to a destination: when they are asked and what is sent, and that profiles do not wait
 * for the answers. The destination is an HTTP server on the loopback interface, or a function.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "compress/compress.h"
#include "exporter_fixture.h"
#include "http_sink.h"

#define PATH "/culprit.control.v1.Control/Sync"
#define NEVER_MS 3600000

/* Who asks: what it has asked and was told. */
struct asker {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int no_question; /* negative errno: it has none */
	u32 next_ms;	 /* returned by answer() */
	u32 questions, answers;
	/* Of the last answer: */
	char text[64];
	bool unknown, broken_off, failed;
	u32 retry_after_ms;
	u64 at_ns;
};
static struct asker asker;

static int question(void *userdata, const char *url, struct str *out)
{
	struct asker *a = userdata;
	int r;

	pthread_mutex_lock(&a->lock);
	a->questions++;
	r = a->no_question;
	pthread_cond_broadcast(&a->wake);
	pthread_mutex_unlock(&a->lock);
	return r < 0 ? r : str_printf(out, "who asks %s?", url);
}

static u32 answer(void *userdata, const char *url, const struct export_answer *got)
{
	struct asker *a = userdata;
	u32 wait;

	pthread_mutex_lock(&a->lock);
	a->answers++;
	snprintf(a->text, sizeof(a->text), "%.*s", got->data ? (int)got->n : 0,
		 got->data ? (const char *)got->data : "");
	a->unknown = got->unknown;
	a->broken_off = got->broken_off;
	a->failed = got->error;
	a->retry_after_ms = got->retry_after_ms;
	a->at_ns = clock_ns(CLOCK_MONOTONIC);
	wait = a->next_ms;
	pthread_cond_broadcast(&a->wake);
	pthread_mutex_unlock(&a->lock);
	return wait;
}

static const struct export_asking asking = {question, answer, &asker};
static struct sink sink;
static char url[64];

static void open_sink(void)
{
	sink_init(&sink);
	snprintf(url, sizeof(url), "otlp+http://127.0.0.1:%u", sink.port);
	asker = (struct asker){.next_ms = NEVER_MS};
	thread_sync_init(&asker.lock, &asker.wake);
}

static void close_sink(void)
{
	sink_stop(&sink);
}

TestSuite(asking, .init = open_sink, .fini = close_sink);

static void wait_for(const u32 *count, u32 n)
{
	pthread_mutex_lock(&asker.lock);
	while (*count < n)
		cr_assert(thread_wait(&asker.wake, &asker.lock, WAIT_NS), "%u of %u", *count, n);
	pthread_mutex_unlock(&asker.lock);
}

static struct exporters *start(const char *token)
{
	struct export_options o = {.url = url, .retry_ms = 10, .token = token, .asking = &asking};

	sink_start(&sink);
	return start_exporters(&o, 1);
}

static bool asks(size_t request)
{
	return !strncmp(str_get(&sink.requests[request].head), "POST " PATH " ",
			strlen("POST " PATH " "));
}

Test(asking, questions_go_where_profiles_go)
{
	_cleanup_str_ struct str plain = {}, expected = {};
	const struct sink_request *r = &sink.requests[0];
	struct exporters *e;

	sink_script(&sink, (struct sink_answer){.status = 200, .body = "an answer", .n = 9});
	e = start("secret");
	wait_for(&asker.answers, 1);
	cr_expect_str_eq(asker.text, "an answer");
	cr_expect(!asker.failed && !asker.unknown);
	cr_expect(asks(0), "%s", str_get(&r->head));
	cr_expect_str_eq(sink_header(r, "Content-Type"), "application/x-protobuf");
	cr_expect_str_eq(sink_header(r, "Content-Encoding"), "gzip");
	cr_expect_str_eq(sink_header(r, "Authorization"), "Bearer secret");
	cr_assert_eq(gzip_inflate((const u8 *)str_get(&r->body), r->body.n, 1 << 20, &plain, NULL),
		     0);
	str_printf(&expected, "who asks %s?", url);
	cr_expect_str_eq(str_get(&plain), str_get(&expected));
	exporters_destroy(e, 0);
}

Test(asking, the_path_of_the_url_stays)
{
	struct exporters *e;

	snprintf(url + strlen(url), sizeof(url) - strlen(url), "/behind/");
	e = start(NULL);
	wait_for(&asker.answers, 1);
	cr_expect(strstr(str_get(&sink.requests[0].head), "POST /behind" PATH " "));
	exporters_destroy(e, 0);
}

/* Its intervals are those that answer() returns. */
Test(asking, it_asks_when_it_is_time)
{
	struct exporters *e;
	u64 first;

	asker.next_ms = 300;
	e = start(NULL);
	sink_wait(&sink, 3);
	first = sink.requests[0].at_ns;
	cr_expect_geq(sink.requests[1].at_ns - first, 300000000ULL);
	cr_expect_geq(sink.requests[2].at_ns - first, 600000000ULL);
	cr_expect_lt(sink.requests[2].at_ns - first, 5000000000ULL);
	exporters_destroy(e, 0);
}

/* Profiles that wait do not keep it from asking, nor questions the profiles from being sent. */
Test(asking, questions_and_profiles_take_turns)
{
	struct export_stats s;
	struct exporters *e;
	size_t n = 0;

	asker.next_ms = 0; /* as often as possible */
	e = start(NULL);
	for (u32 i = 0; i < 10; i++)
		cr_assert_eq(exporters_send(e, counted_profile(i + 1, 0), false), 0);
	wait_until(e, s, s.sent == 10);
	wait_for(&asker.answers, 3);
	exporters_destroy(e, 0);
	for (size_t i = 0; i < sink.n; i++)
		n += asks(i);
	cr_expect_geq(n, 3);
	cr_expect_eq(sink.n - n, 10);
}

/* A question gets 3 s, and the profile is sent then. */
Test(asking, a_destination_that_does_not_answer_still_gets_profiles)
{
	struct export_stats s;
	struct exporters *e;
	u64 begun = clock_ns(CLOCK_MONOTONIC);

	sink_script(&sink, (struct sink_answer){.hang = true});
	sink_script(&sink, (struct sink_answer){.status = 200});
	e = start(NULL);
	sink_wait(&sink, 1);
	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	wait_for(&asker.answers, 1);
	cr_expect(asker.failed && !asker.broken_off && !asker.unknown);
	cr_expect_geq(asker.at_ns - begun, 2900000000ULL);
	cr_expect_lt(asker.at_ns - begun, 8000000000ULL);
	/* The sink reads the next request after the end of the connection. */
	wait_until(e, s, s.sent == 1);
	exporters_destroy(e, 0);
}

Test(asking, who_does_not_know_the_question_still_gets_profiles)
{
	static const int statuses[] = {404, 405, 501, 403, 500, 503};
	struct export_stats s;
	struct exporters *e;

	asker.next_ms = 100;
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
		sink_script(&sink,
			    (struct sink_answer){.status = statuses[i],
						 .header = statuses[i] == 503 ? "Retry-After: 7\r\n"
									      : NULL});
	e = start(NULL);
	for (u32 i = 0; i < ARRAY_SIZE(statuses); i++) {
		wait_for(&asker.answers, i + 1);
		pthread_mutex_lock(&asker.lock);
		cr_expect(asker.answers > i + 1 || asker.unknown == (i < 3), "%d", statuses[i]);
		cr_expect(asker.answers > i + 1 || asker.failed);
		cr_expect(asker.answers > i + 1 || asker.retry_after_ms == (i == 5 ? 7000 : 0));
		pthread_mutex_unlock(&asker.lock);
	}
	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	wait_until(e, s, s.sent == 1);
	cr_expect_eq(s.retried, 0);
	exporters_destroy(e, 0);
}

Test(asking, without_a_question_nothing_is_sent)
{
	struct export_stats s;
	struct exporters *e;

	asker.no_question = -EAGAIN;
	e = start(NULL);
	wait_for(&asker.questions, 2);
	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	wait_until(e, s, s.sent == 1);
	exporters_destroy(e, 0);
	cr_expect_eq(sink.n, 1);
	cr_expect_eq(asker.answers, 0);
}

Test(asking, the_end_breaks_a_question_off)
{
	struct exporters *e;
	u64 begun;

	sink_script(&sink, (struct sink_answer){.hang = true});
	e = start(NULL);
	sink_wait(&sink, 1);
	begun = clock_ns(CLOCK_MONOTONIC);
	exporters_destroy(e, 100);
	cr_expect_lt(clock_ns(CLOCK_MONOTONIC) - begun, 2500000000ULL);
	cr_expect_eq(asker.answers, 1);
	cr_expect(asker.broken_off);
}

/* The successor asks at once. */
Test(asking, a_destination_that_is_replaced_is_asked_again)
{
	struct export_options o = {.url = url, .retry_ms = 10, .asking = &asking};
	struct exporters *e = start(NULL);
	struct diag d = {};

	wait_for(&asker.answers, 1);
	cr_assert_eq(exporters_replace(e, &o, 1, &d), 0, "%s", d.text);
	wait_for(&asker.answers, 2);
	cr_expect(!asker.broken_off);
	exporters_destroy(e, 0);
}

/* ---- another process of ours ---- */

static int ask_local(void *userdata, const u8 *data, size_t n, struct str *ret,
		     struct diag *reterr_diag)
{
	int *r = userdata;

	/* Local requests are not compressed. */
	assert(n == strlen("who asks local:?") && !memcmp(data, "who asks local:?", n));
	return *r < 0 ? diag_set(reterr_diag, *r, "it does not want to") : str_puts(ret, "me");
}

static int give_local(void *userdata, const u8 *data, size_t n, struct diag *reterr_diag)
{
	return 0;
}

Test(asking, local_destinations_are_asked_by_a_function)
{
	static const int results[] = {0, -EAGAIN, -ENOSYS};
	struct export_options o = {.url = "local:", .give = give_local, .asking = &asking};
	int r;

	o.userdata = &r;
	o.ask = ask_local;
	for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
		struct exporters *e;

		r = results[i];
		e = start_exporters(&o, 1);
		wait_for(&asker.answers, (u32)i + 1);
		cr_expect_str_eq(asker.text, r ? "" : "me");
		cr_expect_eq(asker.failed, r < 0);
		cr_expect_eq(asker.unknown, r == -ENOSYS);
		exporters_destroy(e, 0);
	}
}
