/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's exporters between the queue and the destinations: order, bounds, drops by reason,
 * retries, and what is left at the end. The destinations are files whose profiles go to functions
 * of the test, and an HTTP server on the loopback interface. test_destinations.c checks what each
 * kind of destination sends.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#include "base/vocab.h"
#include "dir_fixture.h"
#include "exporter_fixture.h"
#include "http_sink.h"
#include "otlp/otlp.h"

/* The final statistics of each destination, taken in spool_deinit(), when they are complete. */
static struct export_stats last[8];
static size_t n_last;
void __real_spool_deinit(struct spool *s);
void __wrap_spool_deinit(struct spool *s);

void __wrap_spool_deinit(struct spool *s)
{
	struct destination *d = container_of(s, struct destination, spool);

	assert(n_last < ARRAY_SIZE(last));
	last[n_last++] = d->stats;
	__real_spool_deinit(s);
}

/* ---- destinations that take profiles at once ---- */

#define FILE_URL "file:/tmp/culprit-test-exporters.pb.gz"

/* A file, but take() gets its profiles. */
static void set_take(struct destination *d, struct export_ops *own,
		     int (*take)(struct destination *d, const struct profile *p,
				 struct diag *reterr_diag))
{
	*own = export_file;
	own->take = take;
	d->ops = own;
}

struct taker {
	struct export_ops ops;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool closed;		     /* take() waits while this is set */
	struct exporters *until_end; /* take() waits until these stop; or NULL */
	int fail[8];		     /* results of the first calls */
	u32 calls, taken;
	u64 samples[64], lost[64];
};

static void wait_for_end(struct exporters *e)
{
	pthread_mutex_lock(&e->lock);
	while (!e->stopping)
		cr_assert(thread_wait(&e->wake, &e->lock, WAIT_NS));
	pthread_mutex_unlock(&e->lock);
}

static int take(struct destination *d, const struct profile *p, struct diag *reterr_diag)
{
	struct taker *t = d->o.userdata;
	struct exporters *until_end;
	int r;

	pthread_mutex_lock(&t->lock);
	r = t->calls < ARRAY_SIZE(t->fail) ? t->fail[t->calls] : 0;
	t->calls++;
	pthread_cond_broadcast(&t->wake);
	while (t->closed)
		pthread_cond_wait(&t->wake, &t->lock);
	if (r == 0) {
		assert(t->taken < ARRAY_SIZE(t->samples));
		t->samples[t->taken] = p->quality.samples;
		t->lost[t->taken++] = p->quality.lost;
	}
	until_end = t->until_end;
	pthread_mutex_unlock(&t->lock);
	if (until_end)
		wait_for_end(until_end);
	return r < 0 ? diag_set(reterr_diag, r, "the test does not want it") : 0;
}

static void taker_init(struct taker *t)
{
	*t = (struct taker){};
	thread_sync_init(&t->lock, &t->wake);
}

static void taker_set(struct taker *t, bool closed)
{
	pthread_mutex_lock(&t->lock);
	t->closed = closed;
	pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->lock);
}

/* Waits until take() was called `calls` times. */
static void taker_wait(struct taker *t, u32 calls)
{
	pthread_mutex_lock(&t->lock);
	while (t->calls < calls)
		cr_assert(thread_wait(&t->wake, &t->lock, WAIT_NS));
	pthread_mutex_unlock(&t->lock);
}

static struct exporters *taking_exporters(struct taker *t)
{
	struct export_options o = {.url = FILE_URL, .userdata = t};
	struct exporters *e = start_exporters(&o, 1);

	taker_init(t);
	set_take(&e->destinations[0], &t->ops, take);
	return e;
}

Test(exporters, profiles_keep_their_order)
{
	struct export_stats s;
	struct taker t;
	struct exporters *e = taking_exporters(&t);

	for (u64 i = 1; i <= 10; i++)
		cr_assert_eq(exporters_send(e, counted_profile(i, 0), false), 0);
	wait_until(e, s, s.sent == 10);
	cr_assert_eq(s.dropped, 0);
	for (u64 i = 0; i < 10; i++)
		cr_assert_eq(t.samples[i], i + 1);
	exporters_destroy(e, 0);
}

Test(exporters, the_next_profile_reports_what_failed)
{
	struct export_stats s;
	struct taker t;
	struct exporters *e = taking_exporters(&t);

	t.fail[0] = t.fail[1] = -EIO;
	cr_assert_eq(exporters_send(e, counted_profile(7, 2), false), 0);
	cr_assert_eq(exporters_send(e, counted_profile(5, 1), false), 0);
	wait_until(e, s, s.dropped == 2);
	assert_dropped(&s, EXPORT_DROP_FAILED, 2, 12);
	cr_assert(strstr(s.last_error, "the test does not want it"), "%s", s.last_error);
	cr_assert_eq(exporters_send(e, counted_profile(1, 3), false), 0);
	cr_assert_eq(exporters_send(e, counted_profile(1, 0), false), 0);
	wait_until(e, s, s.sent == 2);
	cr_assert_eq(t.lost[0], 7 + 2 + 5 + 1 + 3, "%llu", t.lost[0]);
	cr_assert_eq(t.lost[1], 0, "each loss is reported once");
	cr_assert_str_empty(s.last_error);
	exporters_destroy(e, 0);
}

Test(exporters, a_full_queue_drops_and_counts)
{
	struct export_stats s;
	struct taker t;
	struct exporters *e = taking_exporters(&t);

	taker_set(&t, true);
	cr_assert_eq(exporters_send(e, counted_profile(1, 0), false), 0);
	taker_wait(&t, 1);
	for (u64 i = 0; i < QUEUE_MAX; i++)
		cr_assert_eq(exporters_send(e, counted_profile(10 + i, 0), false), 0);
	s = stats_of(e, 0);
	cr_assert_eq(s.queued, QUEUE_MAX + 1, "the one that is being taken counts, too");
	cr_assert_eq(s.dropped, 0);
	cr_assert_eq(exporters_send(e, counted_profile(100, 5), false), -ENOBUFS);
	s = stats_of(e, 0);
	assert_dropped(&s, EXPORT_DROP_QUEUE, 1, 100);
	taker_set(&t, false);
	wait_until(e, s, s.sent == QUEUE_MAX + 1 && !s.queued);
	cr_assert_eq(t.samples[QUEUE_MAX], 10 + QUEUE_MAX - 1);
	cr_assert_eq(t.lost[1], 105, "the next profile reports the loss");
	exporters_destroy(e, 0);
}

Test(exporters, short_memory_leaves_one_place_in_the_queue)
{
	struct export_stats s;
	struct taker t;
	struct exporters *e = taking_exporters(&t);

	taker_set(&t, true);
	cr_assert_eq(exporters_send(e, counted_profile(1, 0), true), 0);
	taker_wait(&t, 1);
	cr_assert_eq(exporters_send(e, counted_profile(2, 0), true), 0);
	cr_assert_eq(exporters_send(e, counted_profile(3, 0), true), -ENOBUFS);
	cr_assert_eq(exporters_send(e, counted_profile(4, 0), false), 0);
	s = stats_of(e, 0);
	assert_dropped(&s, EXPORT_DROP_QUEUE, 1, 3);
	taker_set(&t, false);
	wait_until(e, s, s.sent == 3);
	exporters_destroy(e, 0);
}

Test(exporters, the_end_of_time_drops_a_full_queue)
{
	struct taker t;
	struct exporters *e = taking_exporters(&t);
	u64 samples = 0;

	taker_set(&t, true);
	t.until_end = e;
	cr_assert_eq(exporters_send(e, counted_profile(1000, 0), false), 0);
	taker_wait(&t, 1);
	for (u64 i = 0; i < QUEUE_MAX; i++, samples += i)
		cr_assert_eq(exporters_send(e, counted_profile(i + 1, 0), false), 0);
	taker_set(&t, false);
	exporters_destroy(e, 0);
	cr_assert_eq(n_last, 1);
	cr_assert_eq(last[0].sent, 1);
	assert_dropped(&last[0], EXPORT_DROP_SHUTDOWN, QUEUE_MAX, samples);
	cr_assert_eq(t.taken, 1);
}

Test(exporters, what_is_queued_is_sent_before_the_end)
{
	struct taker t;
	struct exporters *e = taking_exporters(&t);

	taker_set(&t, true);
	cr_assert_eq(exporters_send(e, counted_profile(1, 0), false), 0);
	taker_wait(&t, 1);
	for (u64 i = 0; i < QUEUE_MAX; i++)
		cr_assert_eq(exporters_send(e, counted_profile(1, 0), false), 0);
	taker_set(&t, false);
	exporters_destroy(e, 60000);
	cr_assert_eq(last[0].sent, QUEUE_MAX + 1);
	cr_assert_eq(last[0].dropped, 0);
}

Test(exporters, destinations_do_not_wait_for_each_other)
{
	struct sink dead;
	struct taker t;
	char url[64];
	struct export_options o[2] = {{.url = url, .retry_ms = 20},
				      {.url = FILE_URL, .userdata = &t}};
	struct exporters *e;
	struct export_stats s;

	sink_init(&dead);
	sink_script(&dead, (struct sink_answer){.hang = true});
	sink_start(&dead);
	taker_init(&t);
	snprintf(url, sizeof(url), "otlp+http://127.0.0.1:%u", dead.port);
	e = start_exporters(o, 2);
	set_take(&e->destinations[1], &t.ops, take);
	for (u64 i = 0; i < 5; i++)
		cr_assert_eq(exporters_send(e, counted_profile(1, 0), false), 0);
	sink_wait(&dead, 1);
	taker_wait(&t, 5);
	wait_until(e, s, s.spooled == 5);
	cr_assert_eq(s.sent, 0);
	exporters_destroy(e, 0);
	sink_stop(&dead);
	assert_dropped(&last[0], EXPORT_DROP_SHUTDOWN, 5, 5);
}

/* ---- what a destination is told of its drops ---- */

static struct profile *reporting_profile(void)
{
	struct profile *p = counted_profile(1, 0);
	struct profile_label label = {string(p, "culprit.agent.version"), string(p, "1")};

	cr_assert_eq(profile_add_resource(p, &label, 1, &p->agent), 0);
	return p;
}

/* Numbers by reason; 0: not said. The last one: samples. */
struct told {
	struct export_ops ops;
	u64 dropped[EXPORT_DROP_N + 1];
	u32 labels;
};

static int note_told(struct destination *d, const struct profile *p, struct diag *reterr_diag)
{
	struct told *t = d->o.userdata;

	(void)reterr_diag;
	cr_expect_str_eq(profile_label(p, p->agent, "culprit.agent.version"), "1");
	t->labels = p->resources.data[p->agent].n;
	for (u32 i = 0; i <= EXPORT_DROP_N; i++) {
		_cleanup_str_ struct str name = {};
		const char *value;

		str_puts(&name, i < EXPORT_DROP_N ? "culprit.agent.dropped."
						  : "culprit.agent.dropped_samples");
		str_puts(&name, i < EXPORT_DROP_N ? vocab_export_drop(i)->name : "");
		value = profile_label(p, p->agent, str_get(&name));
		t->dropped[i] = value ? strtoull(value, NULL, 10) : 0;
	}
	return 0;
}

/* Each reason of abi/tbl/export_drop.tbl, and only of the destination that lacks the profiles. */
Test(exporters, each_destination_is_told_what_it_lacks)
{
	struct told told[2] = {};
	struct export_options o[2] = {{.url = FILE_URL, .userdata = &told[0]},
				      {.url = FILE_URL, .userdata = &told[1]}};
	struct exporters *e = start_exporters(o, 2);

	for (u32 i = 0; i < 2; i++)
		set_take(&e->destinations[i], &told[i].ops, note_told);
	for (u32 i = 0; i < EXPORT_DROP_N; i++)
		if (i != EXPORT_DROP_DAMAGED)
			export_count_drop(&e->destinations[1], i, 100 + i, 10);
	cr_assert_eq(exporters_send(e, reporting_profile(), false), 0);
	exporters_destroy(e, WAIT_NS / 1000000);
	cr_expect_eq(told[0].labels, 1, "nothing was dropped");
	cr_expect_eq(told[1].labels, 1 + EXPORT_DROP_N);
	for (u32 i = 0; i < EXPORT_DROP_N; i++)
		cr_expect_eq(told[1].dropped[i], i == EXPORT_DROP_DAMAGED ? 0 : 100 + i, "%s: %llu",
			     vocab_export_drop(i)->name, told[1].dropped[i]);
	cr_expect_eq(told[1].dropped[EXPORT_DROP_N], 10 * (EXPORT_DROP_N - 1));
}

/* ---- a destination behind a socket ---- */

static struct sink sink;
static char url[64], dir[64];

static void open_sink(void)
{
	sink_init(&sink);
	snprintf(url, sizeof(url), "otlp+http://127.0.0.1:%u", sink.port);
	snprintf(dir, sizeof(dir), "/tmp/culprit-test-exporters-XXXXXX");
	cr_assert(mkdtemp(dir));
}

static void close_sink(void)
{
	sink_stop(&sink);
	cr_assert_eq(remove_dir(dir), 0);
}

TestSuite(sending, .init = open_sink, .fini = close_sink);

static u64 files_in_spool(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	u64 n = 0;

	cr_assert(d);
	while ((e = readdir(d)))
		n += str_ends(e->d_name, ".spool");
	closedir(d);
	return n;
}

static struct exporters *http_exporters(u32 retry_ms, const char *spool_dir, u64 spool_bytes)
{
	struct export_options o = {.url = url,
				   .retry_ms = retry_ms,
				   .spool_dir = spool_dir,
				   .spool_bytes = spool_bytes};

	return start_exporters(&o, 1);
}

/* Returns the numbers of samples, seen and lost, in the request's profile. */
static struct profile_quality quality_of(const struct sink_request *r)
{
	_cleanup_str_ struct str plain = {};
	struct otlp_profiles got = {};
	struct profile_quality q;
	struct diag d = {};

	cr_assert_eq(gzip_inflate((const u8 *)str_get(&r->body), r->body.n, 1 << 20, &plain, &d),
		     0);
	cr_assert_eq(otlp_profiles_decode((const u8 *)str_get(&plain), plain.n, 1 << 26, &got, &d),
		     0, "%s", d.text);
	cr_assert_eq(got.profiles.n, 1);
	q = got.profiles.data[0]->quality;
	otlp_profiles_deinit(&got);
	return q;
}

static u64 gap_ms(size_t later)
{
	return (sink.requests[later].at_ns - sink.requests[later - 1].at_ns) / 1000000;
}

Test(sending, what_fails_for_now_is_sent_again_in_order_and_later_each_time)
{
	struct exporters *e = http_exporters(100, NULL, 0);
	struct export_stats s;

	sink_script(&sink, (struct sink_answer){.status = 503});
	sink_script(&sink, (struct sink_answer){.status = 429});
	sink_script(&sink, (struct sink_answer){.status = 502});
	sink_start(&sink);
	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	cr_assert_eq(exporters_send(e, counted_profile(9, 0), false), 0);
	wait_until(e, s, s.sent == 2);
	cr_assert_eq(s.retried, 3);
	cr_assert_eq(s.dropped, 0);
	cr_assert_eq(s.spooled, 0);
	cr_assert_str_empty(s.last_error);
	cr_assert_eq(sink.n, 5);
	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(quality_of(&sink.requests[i]).samples, 7);
	cr_assert_eq(quality_of(&sink.requests[4]).samples, 9);
	/* Intervals of 100, 200 and 400 ms, varied by a fifth. */
	cr_assert_geq(gap_ms(1), 79, "%llu", gap_ms(1));
	cr_assert_geq(gap_ms(2), 159, "%llu", gap_ms(2));
	cr_assert_geq(gap_ms(3), 319, "%llu", gap_ms(3));
	exporters_destroy(e, 0);
}

Test(sending, the_destination_says_when)
{
	struct exporters *e = http_exporters(1, NULL, 0);
	struct export_stats s;

	sink_script(&sink, (struct sink_answer){.status = 503, .header = "Retry-After: 1\r\n"});
	sink_start(&sink);
	cr_assert_eq(exporters_send(e, counted_profile(1, 0), false), 0);
	wait_until(e, s, s.sent == 1);
	cr_assert_eq(s.retried, 1);
	cr_assert_geq(gap_ms(1), 990, "%llu", gap_ms(1));
	exporters_destroy(e, 0);
}

Test(sending, a_destination_that_comes_back_gets_everything)
{
	struct exporters *e = http_exporters(10, NULL, 0);
	struct export_stats s;

	for (u64 i = 0; i < 3; i++)
		cr_assert_eq(exporters_send(e, counted_profile(i + 1, 0), false), 0);
	wait_until(e, s, s.retried >= 2 && s.spooled == 3);
	cr_assert(strlen(s.last_error));
	cr_assert_gt(s.spooled_bytes, 0);
	sink_start(&sink);
	wait_until(e, s, s.sent == 3);
	cr_assert_eq(s.dropped, 0);
	cr_assert_eq(s.spooled_bytes, 0);
	for (u64 i = 0; i < 3; i++)
		cr_assert_eq(quality_of(&sink.requests[i]).samples, i + 1);
	exporters_destroy(e, 0);
}

Test(sending, what_is_refused_is_not_sent_again)
{
	struct exporters *e = http_exporters(10, NULL, 0);
	struct export_stats s;

	sink_script(&sink, (struct sink_answer){.status = 400});
	sink_start(&sink);
	cr_assert_eq(exporters_send(e, counted_profile(7, 2), false), 0);
	wait_until(e, s, s.dropped == 1);
	assert_dropped(&s, EXPORT_DROP_REFUSED, 1, 7);
	cr_assert(strstr(s.last_error, "400"), "%s", s.last_error);
	cr_assert_eq(exporters_send(e, counted_profile(9, 0), false), 0);
	wait_until(e, s, s.sent == 1);
	cr_assert_eq(sink.n, 2);
	cr_assert_eq(quality_of(&sink.requests[1]).samples, 9);
	cr_assert_eq(quality_of(&sink.requests[1]).lost, 9, "seven of it, and the two it reported");
	exporters_destroy(e, 0);
}

Test(sending, a_part_that_is_refused_counts)
{
	struct exporters *e = http_exporters(10, NULL, 0);
	_cleanup_str_ struct str answer = {};
	struct export_stats s;

	cr_assert_eq(otlp_profiles_response(3, "too old", &answer), 0);
	sink_script(&sink,
		    (struct sink_answer){.status = 200, .body = str_get(&answer), .n = answer.n});
	sink_start(&sink);
	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	wait_until(e, s, s.sent == 1);
	assert_dropped(&s, EXPORT_DROP_PARTIAL, 3, 0);
	cr_assert(strstr(s.last_error, "too old"), "%s", s.last_error);
	exporters_destroy(e, 0);
}

Test(sending, a_full_spool_drops_the_oldest)
{
	struct exporters *e;
	struct export_stats s;
	u64 item, sent_lost = 0;

	/* Measure the size of a spooled profile. */
	e = http_exporters(10, NULL, 0);
	cr_assert_eq(exporters_send(e, counted_profile(1, 0), false), 0);
	wait_until(e, s, s.spooled == 1);
	item = s.spooled_bytes;
	exporters_destroy(e, 0);

	e = http_exporters(10, NULL, item * 7 / 2);
	for (u64 i = 0; i < 8; i++) {
		cr_assert_eq(exporters_send(e, counted_profile(1 << i, 0), false), 0);
		/* One profile at a time, so that only the spool fills up, not the queue. */
		wait_until(e, s, !s.queued && s.retried > i);
		cr_assert_leq(s.spooled_bytes, item * 7 / 2);
	}
	/* The item that is being sent is not dropped, so their number depends on timing. */
	cr_assert_eq(s.dropped_by[EXPORT_DROP_SPOOL], s.dropped);
	cr_assert_eq(s.dropped, 8 - s.spooled);
	cr_assert_geq(s.dropped, 4);
	sink_start(&sink);
	wait_until(e, s, s.spooled == 0 && !s.queued);
	cr_assert_eq(quality_of(&sink.requests[sink.n - 1]).samples, 128, "the newest is there");
	for (size_t i = 0; i < sink.n; i++) {
		struct profile_quality q = quality_of(&sink.requests[i]);

		sent_lost += q.samples + q.lost;
	}
	/* The next request reports the losses that no request has reported yet. */
	cr_assert_eq(exporters_send(e, counted_profile(1000, 0), false), 0);
	sink_wait(&sink, sink.n + 1);
	wait_until(e, s, s.spooled == 0 && !s.queued);
	cr_assert_eq(sent_lost + quality_of(&sink.requests[sink.n - 1]).lost, 255,
		     "each sample is sent or reported as lost");
	exporters_destroy(e, 0);
}

Test(sending, a_profile_that_is_larger_than_the_spool_fails)
{
	struct exporters *e = http_exporters(10, NULL, 16);
	struct export_stats s;

	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	wait_until(e, s, s.dropped == 1);
	assert_dropped(&s, EXPORT_DROP_FAILED, 1, 7);
	cr_assert(strstr(s.last_error, "the spool is smaller"), "%s", s.last_error);
	exporters_destroy(e, 0);
}

Test(sending, without_a_directory_the_end_drops_what_waits)
{
	struct exporters *e = http_exporters(10, NULL, 0);
	struct export_stats s;

	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	cr_assert_eq(exporters_send(e, counted_profile(9, 0), false), 0);
	wait_until(e, s, s.spooled == 2 && s.retried);
	exporters_destroy(e, 50);
	assert_dropped(&last[0], EXPORT_DROP_SHUTDOWN, 2, 16);
}

Test(sending, with_a_directory_the_next_agent_sends_what_waits)
{
	struct exporters *e = http_exporters(10, dir, 0);
	struct export_stats s;

	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	cr_assert_eq(exporters_send(e, counted_profile(9, 0), false), 0);
	wait_until(e, s, s.spooled == 2 && s.retried);
	exporters_destroy(e, 50);
	cr_assert_eq(last[0].dropped, 0);
	cr_assert_eq(files_in_spool(), 2);

	sink_start(&sink);
	e = http_exporters(10, dir, 0);
	wait_until(e, s, s.sent == 2);
	cr_assert_eq(quality_of(&sink.requests[0]).samples, 7);
	cr_assert_eq(quality_of(&sink.requests[1]).samples, 9);
	cr_assert_eq(files_in_spool(), 0);
	exporters_destroy(e, 0);
}

Test(sending, a_failing_destination_has_its_spool_in_files_at_once)
{
	/* The interval of ten minutes excludes a second attempt. */
	struct exporters *e = http_exporters(600000, dir, 0);
	struct export_stats s;

	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	wait_until(e, s, s.retried && files_in_spool() == 1);
	cr_assert_eq(exporters_send(e, counted_profile(9, 0), false), 0);
	wait_until(e, s, s.spooled == 2 && files_in_spool() == 2);
	exporters_destroy(e, 0);
}

Test(sending, the_end_interrupts_a_request)
{
	struct exporters *e = http_exporters(10, dir, 0);
	u64 begun;

	sink_script(&sink, (struct sink_answer){.hang = true});
	sink_start(&sink);
	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	sink_wait(&sink, 1);
	begun = clock_ns(CLOCK_MONOTONIC);
	exporters_destroy(e, 200);
	/* That is less than the request's timeout of 10 s. */
	cr_assert_lt(clock_ns(CLOCK_MONOTONIC) - begun, 8000000000ULL);
	cr_assert_eq(last[0].sent, 0);
	cr_assert_eq(files_in_spool(), 1);
}

/* ---- other destinations while it runs ---- */

Test(sending, other_destinations_get_what_comes_later)
{
	struct taker t;
	struct export_options o[2] = {{.url = url, .retry_ms = 10},
				      {.url = FILE_URL, .userdata = &t}};
	struct exporters *e = start_exporters(o, 1);
	struct diag d = {};
	struct export_stats s;

	taker_init(&t);
	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	wait_until(e, s, s.spooled == 1 && s.retried);
	/* A destination that stays keeps its spooled requests and its counters. */
	cr_assert_eq(exporters_replace(e, o, 2, &d), 0, "%s", d.text);
	set_take(&e->destinations[1], &t.ops, take);
	s = stats_of(e, 0);
	cr_assert_eq(s.spooled, 1);
	cr_assert_geq(s.retried, 1);
	cr_assert_eq(exporters_send(e, counted_profile(9, 0), false), 0);
	taker_wait(&t, 1);
	sink_start(&sink);
	wait_until(e, s, s.sent == 2);
	cr_assert_eq(quality_of(&sink.requests[0]).samples, 7);
	/* Now remove the first destination. */
	n_last = 0;
	e->destinations[1].ops = &export_file; /* or its successor would be of another kind */
	cr_assert_eq(exporters_replace(e, o + 1, 1, &d), 0, "%s", d.text);
	set_take(&e->destinations[0], &t.ops, take);
	s = stats_of(e, 0);
	cr_assert_str_eq(s.url, FILE_URL);
	cr_assert_eq(s.sent, 1);
	cr_assert_eq(exporters_send(e, counted_profile(1, 0), false), 0);
	taker_wait(&t, 2);
	exporters_destroy(e, 60000);
	cr_assert_eq(sink.n, 2);
}

Test(sending, a_mistake_in_the_new_destinations_changes_nothing)
{
	struct export_options o = {.url = url, .retry_ms = 10}, bad = {.url = "nothing://x"};
	struct exporters *e = start_exporters(&o, 1);
	struct export_stats s;
	struct diag d = {};

	sink_start(&sink);
	cr_assert_eq(exporters_replace(e, &bad, 1, &d), -EINVAL);
	cr_assert(strstr(d.text, "nothing://x"), "%s", d.text);
	cr_assert_eq(exporters_send(e, counted_profile(7, 0), false), 0);
	wait_until(e, s, s.sent == 1);
	exporters_destroy(e, 0);
}
