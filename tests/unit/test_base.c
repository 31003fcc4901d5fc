/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/budget.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/closest.h"
#include "base/duration.h"
#include "base/log.h"
#include "base/map.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/varint.h"
#include "base/vec.h"
#include "base/vocab.h"
#include "http/http.h"

Test(buf, reads_stop_at_the_end_and_do_not_advance)
{
	const u8 bytes[] = {1, 0, 0, 0, 0xe5, 0x8e, 0x26, 0x7f, 'a'};
	struct buf b = buf_of(bytes, sizeof(bytes));
	const char *text = "untouched";
	u64 v = 0;
	s64 s = 0;
	u32 w = 0;

	cr_assert(buf_u32(&b, &w));
	cr_assert_eq(w, 1);
	cr_assert(buf_uleb(&b, &v));
	cr_assert_eq(v, 624485);
	cr_assert(buf_sleb(&b, &s));
	cr_assert_eq(s, -1);
	cr_assert_not(buf_cstr(&b, &text));
	cr_assert_str_eq(text, "untouched");
	cr_assert_not(buf_u32(&b, &w));
	cr_assert_eq(buf_left(&b), 1);
}

Test(buf, leb_of_too_many_bits_is_refused)
{
	const u8 max[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
	const u8 over[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
	const u8 endless[] = {0x80, 0x80, 0x80};
	struct buf b = buf_of(max, sizeof(max));
	u64 v = 7;

	cr_assert(buf_uleb(&b, &v));
	cr_assert_eq(v, ~0ULL);
	b = buf_of(over, sizeof(over));
	cr_assert_not(buf_uleb(&b, &v));
	b = buf_of(endless, sizeof(endless));
	cr_assert_not(buf_uleb(&b, &v));
	cr_assert_eq(buf_left(&b), sizeof(endless));
}

Test(varint, numbers_come_back)
{
	const u64 values[] = {0, 1, 0x7f, 0x80, 0x3fff, 0x4000, 0xffffffff, 1ULL << 63, ~0ULL};
	_cleanup_str_ struct str s = {};
	struct buf b;
	s64 i = 0;
	u64 v = 0;
	u32 w = 7;

	for (size_t k = 0; k < ARRAY_SIZE(values); k++) {
		varint_put(&s, values[k]);
		varint_put_signed(&s, (s64)values[k]);
	}
	b = buf_of(s.data, s.n);
	for (size_t k = 0; k < ARRAY_SIZE(values); k++) {
		cr_assert(varint_get(&b, &v));
		cr_assert_eq(v, values[k]);
		cr_assert(varint_get_signed(&b, &i));
		cr_assert_eq((u64)i, values[k]);
	}
	cr_assert_eq(buf_left(&b), 0);
	cr_assert_not(varint_get(&b, &v));
	str_clear(&s);
	varint_put(&s, 1ULL << 32);
	b = buf_of(s.data, s.n);
	cr_assert_not(varint_get_u32(&b, &w));
	cr_assert_eq(w, 7);
}

Test(map, keeps_what_was_put_through_growth_and_deletion)
{
	struct map m = {};
	u64 v = 0;

	for (u64 i = 0; i < 10000; i++)
		cr_assert_eq(map_put(&m, i * 4096, i), 0);
	for (u64 i = 0; i < 10000; i += 2)
		cr_assert(map_del(&m, i * 4096, &v) && v == i);
	for (u64 i = 0; i < 10000; i++) {
		u64 *p = map_get(&m, i * 4096);

		cr_assert(i % 2 ? p && *p == i : !p);
	}
	cr_assert_eq(m.n, 5000);
	map_deinit(&m);
}

Test(strtab, equal_strings_have_equal_ids)
{
	struct strtab t;
	u32 a, b, c;

	cr_assert_eq(strtab_init(&t), 0);
	strtab_add(&t, "main", 4, &a);
	strtab_add(&t, "mai\0", 4, &b);
	strtab_add(&t, "mainx", 4, &c);
	cr_assert_eq(a, c);
	cr_assert_neq(a, b);
	cr_assert_str_eq(strtab_get(&t, 0), "");
	cr_assert_str_eq(strtab_get(&t, a), "main");
	for (int i = 0; i < 5000; i++) {
		char text[16];
		u32 id;
		int n = snprintf(text, sizeof(text), "s%d", i);

		cr_assert_eq(strtab_add(&t, text, (size_t)n, &id), 0);
		cr_assert_str_eq(strtab_get(&t, id), text);
	}
	strtab_seal(&t);
	cr_assert_str_eq(strtab_get(&t, a), "main");
	cr_assert_str_eq(strtab_get(&t, (u32)t.n - 1), "s4999");
	cr_assert_str_eq(strtab_get(&t, (u32)t.n), "");
	strtab_deinit(&t);
}

static void *end_soon(void *arg)
{
	usleep(20000);
	budget_end(arg, 64 << 20);
	return NULL;
}

Test(budget, has_room_for_some_at_a_time)
{
	struct budget b;
	pthread_t thread;
	u64 used;

	cr_assert(budget_begin(NULL, ~0ULL));
	budget_init(&b, 0);
	cr_assert(budget_begin(&b, ~0ULL) && !budget_is_over(&b, 1));
	used = budget_used(&b);
	cr_assert_gt(used, 1 << 20);
	/* An eighth of the limit is kept for others. */
	budget_set_limit(&b, (used + (100 << 20)) / 7 * 8);
	cr_assert(!budget_begin(&b, 200 << 20));
	cr_assert(budget_begin(&b, 64 << 20));
	cr_assert_eq(pthread_create(&thread, NULL, end_soon, &b), 0);
	/* There is room when the other thread is done. */
	cr_assert(budget_begin(&b, 64 << 20));
	pthread_join(thread, NULL);
	budget_end(&b, 64 << 20);
	cr_assert_eq(b.reserved, 0);
	budget_set_outside(&b, 1LL << 40);
	cr_assert(budget_is_over(&b, 100) && !budget_begin(&b, 0));
	budget_deinit(&b);
}

Test(str, numbers_are_whole_strings)
{
	u64 v = 9;

	cr_assert_eq(str_to_u64("123", 10, &v), 0);
	cr_assert_eq(v, 123);
	cr_assert_eq(str_to_u64("12x", 10, &v), -EINVAL);
	cr_assert_eq(str_to_u64("-1", 10, &v), -EINVAL);
	cr_assert_eq(str_to_u64("", 10, &v), -EINVAL);
	cr_assert_eq(str_to_u64("99999999999999999999", 10, &v), -ERANGE);
	cr_assert_eq(v, 123);
}

Test(text, hex_digits_are_bytes_and_back)
{
	u8 bytes[3] = {0x00, 0x9a, 0xff}, got[3] = {7, 7, 7};
	char text[7];

	text_hex(bytes, 3, text);
	cr_assert_str_eq(text, "009aff");
	cr_assert(!text_unhex("009af", 3, got));
	cr_assert(!text_unhex("009aff0", 3, got));
	cr_assert(!text_unhex("009ag0", 3, got));
	cr_assert(!text_unhex("009a@f", 3, got));
	cr_assert_eq(got[0], 7);
	cr_assert(text_unhex("009aFF", 3, got));
	cr_assert(!memcmp(got, bytes, 3));
}

Test(vocab, every_entry_has_a_name_and_a_sentence)
{
	for (unsigned int i = 0; i < STOP_N; i++)
		cr_assert(vocab_stop(i)->name[0] && vocab_stop(i)->help[0]);
	for (unsigned int i = 0; i < COUNTER_N; i++)
		cr_assert(vocab_counter(i)->name[0] && vocab_counter(i)->unit[0]);
	cr_assert_str_eq(vocab_stop(STOP_N)->name, "?");
}

Test(vocab, types_of_time_are_found_by_any_unit_of_time)
{
	cr_assert_eq(vocab_find_sample_type(NULL, "cpu", "nanoseconds"), SAMPLE_TYPE_CPU);
	cr_assert_eq(vocab_find_sample_type(NULL, "cpu", "seconds"), SAMPLE_TYPE_CPU);
	cr_assert_eq(vocab_find_sample_type(NULL, "cpu", "count"), SAMPLE_TYPE_N);
	cr_assert_eq(vocab_find_sample_type("block", "delay", "nanoseconds"),
		     SAMPLE_TYPE_BLOCK_DELAY);
	cr_assert_eq(vocab_find_sample_type("block", "cpu", "nanoseconds"), SAMPLE_TYPE_N);
	cr_assert_eq(vocab_per_second("milliseconds"), 1000);
	cr_assert_eq(vocab_per_second("bytes"), 0);
	cr_assert_eq(vocab_find_counter("nested"), COUNTER_NESTED);
	cr_assert_eq(vocab_find_counter("of a later version"), COUNTER_N);
	cr_assert_eq(vocab_find_export_drop("refused"), EXPORT_DROP_REFUSED);
	cr_assert_eq(vocab_find_export_drop("of a later version"), EXPORT_DROP_N);
}

Test(vocab, profile_groups)
{
	const struct vocab_value_type samples = {"samples", "count"}, none = {"", ""},
				      faults = {"page_faults", "count"}, space = {"space", "bytes"},
				      alloc = {"alloc_space", "bytes"}, own = {"sched", "count"};
	const struct {
		struct vocab_value_type types[3];
		const char *group;
	} cases[] = {
		{{none, samples, none}, "process_cpu"},	  {{none, samples, faults}, "page_faults"},
		{{faults, samples, none}, "page_faults"}, {{space, samples, alloc}, "memory"},
		{{own, samples, own}, "sched"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		cr_assert_str_eq(vocab_profile_group(cases[i].types, 3), cases[i].group);
	cr_assert_str_eq(vocab_profile_group(&none, 0), "process_cpu");
}

/* ---- threads ---- */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

static s64 wall_clock_ahead_s;

/* Simulates a step of the wall clock. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = __real_clock_gettime(clock, ret);

	if (clock == CLOCK_REALTIME)
		ret->tv_sec += wall_clock_ahead_s;
	return r;
}

static void *signal_later(void *arg)
{
	usleep(20000);
	pthread_cond_signal(arg);
	return NULL;
}

Test(thread, waits_do_not_depend_on_the_wall_clock, .timeout = 60)
{
	const s64 steps_s[] = {-3600, 0, 3600};
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;

	thread_sync_init(&lock, &wake);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ARRAY_SIZE(steps_s); i++) {
		u64 begin = clock_ns(CLOCK_MONOTONIC);

		wall_clock_ahead_s = steps_s[i];
		while (thread_wait(&wake, &lock, 20000000))
			; /* a wakeup without a signal */
		cr_assert_geq(clock_ns(CLOCK_MONOTONIC) - begin, 20000000);
	}
	cr_assert_eq(thread_start(&thread, "signal", signal_later, &wake), 0);
	cr_assert(thread_wait(&wake, &lock, 50000000000ULL));
	pthread_join(thread, NULL);
}

Test(metrics, help_and_labels_are_escaped)
{
	_cleanup_str_ struct str out = {};

	metrics_single(&out, "sizes", "A \"size\",\na \\.", 0.5);
	metrics_family(&out, "files_total", "Files.");
	metrics_sample(&out, "files_total",
		       METRICS_LABELS({"path", "C:\\\"x\"\n"}, {"state", "open"}),
		       9007199254740991.0);
	cr_assert_str_eq(str_get(&out), "# HELP sizes A \"size\",\\na \\\\.\n"
					"# TYPE sizes gauge\n"
					"sizes 0.5\n"
					"# HELP files_total Files.\n"
					"# TYPE files_total counter\n"
					"files_total{path=\"C:\\\\\\\"x\\\"\\n\",state=\"open\"} "
					"9007199254740991\n");
}

Test(http, headers_are_sent_empty_or_left_out)
{
	struct curl_slist *list = NULL;

	cr_assert_eq(http_client_header(&list, "Accept", "text/plain"), 0);
	cr_assert_eq(http_client_header(&list, "X-Key", ""), 0);
	cr_assert_eq(http_client_header(&list, "Expect", NULL), 0);
	cr_assert_str_eq(list->data, "Accept: text/plain");
	cr_assert_str_eq(list->next->data, "X-Key;");
	cr_assert_str_eq(list->next->next->data, "Expect:");
	curl_slist_free_all(list);
}

Test(log, lines_have_no_control_characters, .init = cr_redirect_stderr)
{
	log_warn("%s", "a\r\nculprit: forged\x1b[2J\x7f b\xc2\x9b\xe2\x80\xae\xff \xc3\xa9");
	fflush(stderr);
	cr_assert_stderr_eq_str("culprit: warning: a  culprit: forged [2J  b     ? \xc3\xa9\n");
}

Test(duration, times_as_people_write_them)
{
	static const struct {
		const char *text;
		double s;
	} rows[] = {{"90", 90},	   {"90s", 90},	    {"1.5m", 90},  {"2h", 7200},
		    {"1d", 86400}, {"250ms", 0.25}, {"5us", 5e-6}, {"7ns", 7e-9},
		    {"0", 0},	   {".5", 0.5},	    {"1e3", 1000}};
	static const char *const bad[] = {"",	 "s",	 "-1",	" 1",  "1 s",	"1x",
					  "1sm", "0x10", "inf", "nan", "1.2.3", "1e999"};
	double s = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cr_expect_eq(duration_parse(rows[i].text, true, &s), 0, "%s", rows[i].text);
		cr_expect_float_eq(s, rows[i].s, 1e-12, "%s", rows[i].text);
	}
	s = 17;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_expect_eq(duration_parse(bad[i], true, &s), -EINVAL, "%s", bad[i]);
	cr_expect_eq(duration_parse("90", false, &s), -EINVAL);
	cr_expect_eq(s, 17);
	cr_expect_eq(duration_parse("0", false, &s), 0);
	cr_expect_eq(s, 0);
}

Test(closest, a_name_is_meant_if_little_differs)
{
	static const char *const names[] = {"record", "report", "top", "trace"};

	cr_expect_str_eq(closest_name("recrod", names, 4), "record");
	cr_expect_str_eq(closest_name("Report", names, 4), "report");
	cr_expect_str_eq(closest_name("tpo", names, 4), "top");
	cr_expect_null(closest_name("convert", names, 4));
	cr_expect_null(closest_name("x", names, 4));
	cr_expect_null(closest_name("", names, 4));
}
