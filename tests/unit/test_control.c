/* SPDX-License-Identifier: Apache-2.0 */
/* What agents and servers tell each other: the way there and back, limits, and hostile bytes. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "control/control.h"

#define TRACE "\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c"
#define SPAN "\xb7\xad\x6b\x71\x69\x20\x33\x31"

/* ---- messages, byte by byte ---- */

static void put_varint(struct str *s, u64 v)
{
	for (; v >= 0x80; v >>= 7)
		str_putc(s, (char)(v | 0x80));
	str_putc(s, (char)v);
}

static void put_number(struct str *s, u32 field, u64 v)
{
	put_varint(s, field << 3);
	put_varint(s, v);
}

static void put_bytes(struct str *s, u32 field, const void *data, size_t n)
{
	put_varint(s, field << 3 | 2);
	put_varint(s, n);
	str_append(s, data, n);
}

static void put_text(struct str *s, u32 field, const char *text)
{
	put_bytes(s, field, text, strlen(text));
}

static void put_fixed(struct str *s, u32 field, u64 v)
{
	put_varint(s, field << 3 | 1);
	str_append(s, &v, sizeof(v));
}

static void put_message(struct str *s, u32 field, const struct str *m)
{
	put_bytes(s, field, str_get(m), m->n);
}

static void read_request(const struct str *s, struct control_request *ret)
{
	struct diag d = {};

	cr_assert_eq(control_request_decode((const u8 *)str_get(s), s->n, ret, &d), 0, "%s",
		     d.text);
}

static void read_response(const struct str *s, struct control_response *ret)
{
	struct diag d = {};

	cr_assert_eq(control_response_decode((const u8 *)str_get(s), s->n, ret, &d), 0, "%s",
		     d.text);
}

/* ---- the way there and back ---- */

Test(control, requests_come_back)
{
	_cleanup_control_request_ struct control_request a = {.host = "h",
							      .host_id = "0123",
							      .version = "1.2",
							      .started_ms = 1700000000000,
							      .cursor = ~0ULL},
							 b;
	struct control_task_report t = {.id = "t-1",
					.revision = 3,
					.state = CONTROL_STATE_REFUSED,
					.reason = "no room",
					.processes = 4,
					.publishing = 5,
					.samples = 6,
					.events = 7,
					.lost = 8,
					.evicted = 9};
	struct control_kept k = {.task = "t-1", .outcome = CONTROL_OUTCOME_EVICTED, .samples = 12};
	_cleanup_str_ struct str s = {};

	memcpy(k.trace_id, TRACE, 16);
	memcpy(k.span_id, SPAN, 8);
	cr_assert_eq(vec_push(&a.tasks, t), 0);
	cr_assert_eq(vec_push(&a.kept, k), 0);
	cr_assert_eq(control_request_encode(&a, &s), 0);
	read_request(&s, &b);
	cr_expect_str_eq(b.host, "h");
	cr_expect_str_eq(b.host_id, "0123");
	cr_expect_str_eq(b.version, "1.2");
	cr_expect_eq(b.started_ms, a.started_ms);
	cr_expect_eq(b.cursor, a.cursor);
	cr_assert_eq(b.tasks.n, 1);
	cr_expect_str_eq(b.tasks.data->id, "t-1");
	cr_expect_eq(b.tasks.data->revision, 3);
	cr_expect_eq(b.tasks.data->state, CONTROL_STATE_REFUSED);
	cr_expect_str_eq(b.tasks.data->reason, "no room");
	cr_expect_eq(b.tasks.data->processes, 4);
	cr_expect_eq(b.tasks.data->publishing, 5);
	cr_expect_eq(b.tasks.data->samples, 6);
	cr_expect_eq(b.tasks.data->events, 7);
	cr_expect_eq(b.tasks.data->lost, 8);
	cr_expect_eq(b.tasks.data->evicted, 9);
	cr_assert_eq(b.kept.n, 1);
	cr_expect_str_eq(b.kept.data->task, "t-1");
	cr_expect_arr_eq(b.kept.data->trace_id, TRACE, 16);
	cr_expect_arr_eq(b.kept.data->span_id, SPAN, 8);
	cr_expect_eq(b.kept.data->outcome, CONTROL_OUTCOME_EVICTED);
	cr_expect_eq(b.kept.data->samples, 12);
}

Test(control, responses_come_back)
{
	_cleanup_control_response_ struct control_response a = {.cursor = 77, .next_ms = 2000}, b;
	struct control_task t = {.id = "1f.2:x_Y",
				 .revision = 2,
				 .service = "shop ‑ Kasse",
				 .start_ms = 1,
				 .end_ms = 2,
				 .period_us = 1000,
				 .floor_us = 500,
				 .off_cpu = true};
	struct control_keep k = {.task = "1f.2:x_Y",
				 .start_ns = 1700000000000000000,
				 .end_ns = 1700000000000000500,
				 .reason = CONTROL_REASON_CONTROL};
	_cleanup_str_ struct str s = {};

	memcpy(k.trace_id, TRACE, 16);
	memcpy(k.span_id, SPAN, 8);
	cr_assert_eq(vec_push(&a.tasks, t), 0);
	cr_assert_eq(vec_push(&a.keeps, k), 0);
	cr_assert_eq(control_response_encode(&a, &s), 0);
	read_response(&s, &b);
	cr_expect_eq(b.cursor, 77);
	cr_expect_eq(b.next_ms, 2000);
	cr_assert_eq(b.tasks.n, 1);
	cr_expect_str_eq(b.tasks.data->id, t.id);
	cr_expect_eq(b.tasks.data->revision, 2);
	cr_expect_str_eq(b.tasks.data->service, t.service);
	cr_expect_eq(b.tasks.data->start_ms, 1);
	cr_expect_eq(b.tasks.data->end_ms, 2);
	cr_expect_eq(b.tasks.data->period_us, 1000);
	cr_expect_eq(b.tasks.data->floor_us, 500);
	cr_expect(!b.tasks.data->on_cpu && b.tasks.data->off_cpu);
	cr_assert_eq(b.keeps.n, 1);
	cr_expect_str_eq(b.keeps.data->task, t.id);
	cr_expect_arr_eq(b.keeps.data->trace_id, TRACE, 16);
	cr_expect_arr_eq(b.keeps.data->span_id, SPAN, 8);
	cr_expect_eq(b.keeps.data->start_ns, k.start_ns);
	cr_expect_eq(b.keeps.data->end_ns, k.end_ns);
	cr_expect_eq(b.keeps.data->reason, CONTROL_REASON_CONTROL);
}

Test(control, every_value_comes_back)
{
	_cleanup_control_request_ struct control_request a = {}, b;
	_cleanup_control_response_ struct control_response c = {}, d;
	_cleanup_str_ struct str s = {}, t = {};

	for (u32 i = 0; i < CONTROL_STATE_N; i++)
		cr_assert_eq(
			vec_push(&a.tasks, (struct control_task_report){.id = "t", .state = i}), 0);
	for (u32 i = 0; i < CONTROL_OUTCOME_N; i++)
		cr_assert_eq(vec_push(&a.kept, (struct control_kept){.task = "t",
								     .trace_id = {1},
								     .span_id = {1},
								     .outcome = i}),
			     0);
	for (u32 i = 0; i < CONTROL_REASON_N; i++)
		cr_assert_eq(vec_push(&c.keeps, (struct control_keep){.task = "t",
								      .trace_id = {1},
								      .span_id = {1},
								      .reason = i}),
			     0);
	cr_assert_eq(control_request_encode(&a, &s), 0);
	cr_assert_eq(control_response_encode(&c, &t), 0);
	read_request(&s, &b);
	read_response(&t, &d);
	cr_assert_eq(b.tasks.n, CONTROL_STATE_N);
	cr_assert_eq(b.kept.n, CONTROL_OUTCOME_N);
	cr_assert_eq(d.keeps.n, CONTROL_REASON_N);
	for (u32 i = 0; i < CONTROL_STATE_N; i++)
		cr_expect_eq(b.tasks.data[i].state, i);
	for (u32 i = 0; i < CONTROL_OUTCOME_N; i++)
		cr_expect_eq(b.kept.data[i].outcome, i);
	for (u32 i = 0; i < CONTROL_REASON_N; i++)
		cr_expect_eq(d.keeps.data[i].reason, i);
	cr_expect_str_eq(control_state_name(CONTROL_STATE_SILENT), "silent");
	cr_expect_str_eq(control_outcome_name(CONTROL_OUTCOME_PARTLY), "partly");
	cr_expect_str_eq(control_reason_name(CONTROL_REASON_PERCENTILE), "percentile");
	cr_expect_str_eq(control_reason_name(CONTROL_REASON_N), "unknown");
}

/* ---- limits ---- */

Test(control, what_policies_measure_comes_back)
{
	_cleanup_control_request_ struct control_request a = {.host = "h",
							      .settings = {19, 0.5, 2},
							      .takes_settings = true,
							      .settings_reason = "at most 50 Hz"},
							 b;
	_cleanup_control_response_ struct control_response c = {.next_ms = 1,
								.settings = {97, 0.25, 1}},
							   d;
	struct control_measured m = {.at_ms = 1700000000000,
				     .value = 187.5,
				     .over = 3,
				     .pid = 42,
				     .comm = "java",
				     .service = "shop"};
	struct control_watched w = {.id = "p-1",
				    .processes = 2,
				    .windows = 9,
				    .last = m,
				    .n_fired = 2,
				    .fired = {m, m}};
	struct control_watch asked = {.id = "p-1",
				      .service = "*",
				      .quantity = CONTROL_QUANTITY_LOAD,
				      .threshold = 1.5,
				      .window_ms = 1000,
				      .count = 2,
				      .of = 3};
	_cleanup_str_ struct str s = {}, t = {};

	w.last.value = 3;
	cr_assert_eq(vec_push(&a.watched, w), 0);
	cr_assert_eq(control_request_encode(&a, &s), 0);
	read_request(&s, &b);
	cr_expect(b.settings.hz == 19 && b.settings.budget_percent == 0.5 &&
		  b.settings.off_cpu == 2 && b.takes_settings);
	cr_expect_str_eq(b.settings_reason, "at most 50 Hz");
	cr_assert_eq(b.watched.n, 1);
	cr_expect_str_eq(b.watched.data->id, "p-1");
	cr_expect(b.watched.data->processes == 2 && b.watched.data->windows == 9);
	cr_expect_eq(b.watched.data->last.value, 3);
	cr_assert_eq(b.watched.data->n_fired, 2);
	cr_expect_eq(b.watched.data->fired[1].value, 187.5);
	cr_expect(b.watched.data->fired[1].at_ms == m.at_ms && b.watched.data->fired[1].over == 3);
	cr_expect_eq(b.watched.data->fired[1].pid, 42);
	cr_expect_str_eq(b.watched.data->fired[1].comm, "java");
	cr_expect_str_eq(b.watched.data->fired[1].service, "shop");

	cr_assert_eq(vec_push(&c.watches, asked), 0);
	cr_assert_eq(control_response_encode(&c, &t), 0);
	read_response(&t, &d);
	cr_expect(d.settings.hz == 97 && d.settings.budget_percent == 0.25 &&
		  d.settings.off_cpu == 1);
	cr_assert_eq(d.watches.n, 1);
	cr_expect_str_eq(d.watches.data->id, "p-1");
	cr_expect_str_eq(d.watches.data->service, "*");
	cr_expect(d.watches.data->quantity == CONTROL_QUANTITY_LOAD &&
		  d.watches.data->threshold == 1.5 && d.watches.data->window_ms == 1000);
	cr_expect(d.watches.data->count == 2 && d.watches.data->of == 3);
}

/* An agent would measure without an end, or compare with nothing. */
Test(control, odd_watches_are_left_out)
{
	static const struct control_watch good = {.id = "p",
						  .service = "shop",
						  .threshold = 1,
						  .window_ms = 1000,
						  .count = 1,
						  .of = 60};
	struct control_watch odd[] = {good, good, good, good, good, good, good, good};
	_cleanup_control_response_ struct control_response a = {.next_ms = 1,
								.settings = {1001, 1000, 3}},
							   b;
	_cleanup_str_ struct str s = {};

	odd[0].window_ms = 999;
	odd[1].count = 0;
	odd[2].of = 61;
	odd[3].count = 61;
	odd[4].threshold = 0;
	odd[5].threshold = 0.0 / 0.0;
	odd[6].service[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
		cr_assert_eq(vec_push(&a.watches, odd[i]), 0);
	cr_assert_eq(control_response_encode(&a, &s), 0);
	read_response(&s, &b);
	cr_expect_eq(b.watches.n, 1);
	cr_expect(!b.settings.hz && !b.settings.off_cpu && b.settings.budget_percent == 0);
}

static void add_longest_watches(struct control_request *q, struct control_response *a)
{
	struct control_watch asked = {.threshold = 1e14, .window_ms = ~0u, .count = 60, .of = 60};
	struct control_watched w = {.processes = ~0u, .windows = ~0ULL};
	struct control_measured m = {.at_ms = ~0ULL, .value = 1e14, .over = ~0u, .pid = ~0u};

	memset(asked.id, 'i', sizeof(asked.id) - 1);
	memset(asked.service, 's', sizeof(asked.service) - 1);
	memcpy(w.id, asked.id, sizeof(w.id));
	memset(m.comm, 'c', sizeof(m.comm) - 1);
	memcpy(m.service, asked.service, sizeof(m.service));
	w.last = m;
	for (; w.n_fired < CONTROL_MAX_FIRED; w.n_fired++)
		w.fired[w.n_fired] = m;
	for (u32 i = 0; i < CONTROL_MAX_WATCHES; i++)
		cr_assert(vec_push(&q->watched, w) == 0 && vec_push(&a->watches, asked) == 0);
}

Test(control, longest_lists_fit_into_a_message)
{
	_cleanup_control_request_ struct control_request a = {}, b;
	_cleanup_control_response_ struct control_response c = {.cursor = ~0ULL}, d;
	struct control_task_report report = {.state = CONTROL_STATE_REFUSED,
					     .revision = ~0u,
					     .processes = ~0u,
					     .publishing = ~0u,
					     .samples = ~0ULL,
					     .events = ~0ULL,
					     .lost = ~0ULL,
					     .evicted = ~0ULL};
	struct control_task task = {
		.revision = ~0u, .start_ms = 1, .period_us = ~0u, .floor_us = ~0u};
	struct control_kept kept = {.trace_id = {1}, .span_id = {1}, .samples = ~0ULL};
	struct control_keep keep = {.trace_id = {1}, .span_id = {1}, .end_ns = ~0ULL};
	_cleanup_str_ struct str s = {}, t = {};

	memset(report.id, 'i', sizeof(report.id) - 1);
	memset(report.reason, 'r', sizeof(report.reason) - 1);
	memset(task.service, 's', sizeof(task.service) - 1);
	memcpy(task.id, report.id, sizeof(task.id));
	memcpy(kept.task, report.id, sizeof(kept.task));
	memcpy(keep.task, report.id, sizeof(keep.task));
	for (u32 i = 0; i < CONTROL_MAX_TASKS; i++)
		cr_assert(vec_push(&a.tasks, report) == 0 && vec_push(&c.tasks, task) == 0);
	for (u32 i = 0; i < CONTROL_MAX_KEEPS; i++)
		cr_assert(vec_push(&a.kept, kept) == 0 && vec_push(&c.keeps, keep) == 0);
	add_longest_watches(&a, &c);
	cr_assert_eq(control_request_encode(&a, &s), 0);
	cr_assert_eq(control_response_encode(&c, &t), 0);
	read_request(&s, &b);
	read_response(&t, &d);
	cr_expect_eq(b.watched.n, CONTROL_MAX_WATCHES);
	cr_expect_eq(d.watches.n, CONTROL_MAX_WATCHES);
	cr_expect_eq(b.watched.data[CONTROL_MAX_WATCHES - 1].n_fired, CONTROL_MAX_FIRED);
	cr_expect_eq(b.tasks.n, CONTROL_MAX_TASKS);
	cr_expect_eq(b.kept.n, CONTROL_MAX_KEEPS);
	cr_expect_eq(d.tasks.n, CONTROL_MAX_TASKS);
	cr_expect_eq(d.keeps.n, CONTROL_MAX_KEEPS);
	cr_expect_str_eq(b.tasks.data[CONTROL_MAX_TASKS - 1].reason, report.reason);
	cr_expect_str_eq(d.tasks.data[CONTROL_MAX_TASKS - 1].service, task.service);
	/* One more of each is too many to send. */
	cr_assert(vec_push(&a.kept, kept) == 0 && vec_push(&c.tasks, task) == 0);
	cr_expect_eq(control_request_encode(&a, &s), -E2BIG);
	cr_expect_eq(control_response_encode(&c, &t), -E2BIG);
}

Test(control, longer_lists_are_cut)
{
	_cleanup_control_response_ struct control_response r;
	_cleanup_str_ struct str s = {}, task = {}, keep = {};

	put_text(&task, 1, "t");
	put_text(&task, 3, "shop");
	put_text(&keep, 1, "t");
	put_bytes(&keep, 2, TRACE, 16);
	put_bytes(&keep, 3, SPAN, 8);
	put_number(&keep, 6, 1);
	for (u32 i = 0; i < 3 * CONTROL_MAX_TASKS; i++)
		put_message(&s, 3, &task);
	for (u32 i = 0; i < 2 * CONTROL_MAX_KEEPS; i++)
		put_message(&s, 4, &keep);
	read_response(&s, &r);
	cr_expect_eq(r.tasks.n, CONTROL_MAX_TASKS);
	cr_expect_eq(r.keeps.n, CONTROL_MAX_KEEPS);
	/* The shortest period, and a wait of any length. */
	cr_expect_eq(r.tasks.data->period_us, 1000);
	cr_expect_eq(r.tasks.data->floor_us, 0);
}

Test(control, texts_are_cut_between_characters_and_cleaned)
{
	_cleanup_control_request_ struct control_request r;
	_cleanup_str_ struct str s = {}, host = {};

	for (u32 i = 0; i < CONTROL_TEXT_BYTES - 2; i++)
		str_putc(&host, 'h');
	str_puts(&host, "é and more");
	put_text(&s, 1, str_get(&host));
	put_text(&s, 2, "a\nb\x1b[31m\xff");
	read_request(&s, &r);
	cr_expect_eq(strlen(r.host), CONTROL_TEXT_BYTES - 2);
	cr_expect_str_eq(r.host_id, "a b [31m?");
}

/* ---- entries that cannot mean what their sender meant ---- */

struct odd_task {
	const char *id, *service;
	size_t n_service; /* or 0 */
};

Test(control, odd_tasks_are_left_out)
{
	static const struct odd_task odd[] = {
		{"", "shop", 0},       {"a b", "shop", 0},
		{"a/../b", "shop", 0}, {"\"", "shop", 0},
		{"é", "shop", 0},      {"12345678901234567890123456789012", "shop", 0},
		{"t", "", 0},	       {"t", "", CONTROL_TEXT_BYTES},
	};

	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		_cleanup_control_response_ struct control_response r;
		_cleanup_str_ struct str s = {}, task = {}, service = {}, good = {};

		str_puts(&service, odd[i].service);
		for (size_t k = 0; k < odd[i].n_service; k++)
			str_putc(&service, 's');
		put_text(&task, 1, odd[i].id);
		put_text(&task, 3, str_get(&service));
		put_text(&good, 1, "1234567890123456789012345678901");
		put_text(&good, 3, "shop");
		put_message(&s, 3, &task);
		put_message(&s, 3, &good);
		read_response(&s, &r);
		cr_assert_eq(r.tasks.n, 1, "%zu", i);
		cr_expect_str_eq(r.tasks.data->id, "1234567890123456789012345678901");
	}
}

static void put_keep(struct str *s, size_t n_trace, size_t n_span, u64 start, u64 end, u64 reason)
{
	_cleanup_str_ struct str keep = {};

	put_text(&keep, 1, "t");
	put_bytes(&keep, 2, TRACE TRACE, n_trace);
	put_bytes(&keep, 3, SPAN SPAN, n_span);
	put_fixed(&keep, 4, start);
	put_fixed(&keep, 5, end);
	put_number(&keep, 6, reason);
	put_message(s, 4, &keep);
}

Test(control, odd_keeps_are_left_out)
{
	_cleanup_control_response_ struct control_response r;
	_cleanup_str_ struct str s = {}, zeros = {};

	put_keep(&s, 15, 8, 1, 2, 1);
	put_keep(&s, 17, 8, 1, 2, 1);
	put_keep(&s, 16, 0, 1, 2, 1);
	put_keep(&s, 16, 16, 1, 2, 1);
	put_keep(&s, 16, 8, 2, 1, 1);
	put_keep(&s, 16, 8, 1, 2, 0);
	put_keep(&s, 16, 8, 1, 2, CONTROL_REASON_N + 1); /* of a newer server */
	put_keep(&s, 16, 8, 1, 2, 0xffffffffULL);
	put_text(&zeros, 1, "t");
	put_bytes(&zeros, 2, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
	put_bytes(&zeros, 3, SPAN, 8);
	put_number(&zeros, 6, 1);
	put_message(&s, 4, &zeros);
	put_keep(&s, 16, 8, 1, 1, CONTROL_REASON_N);
	read_response(&s, &r);
	cr_assert_eq(r.keeps.n, 1);
	cr_expect_eq(r.keeps.data->reason, CONTROL_REASON_N - 1);
}

Test(control, fields_and_values_of_a_newer_agent_are_no_error)
{
	_cleanup_control_request_ struct control_request r;
	_cleanup_str_ struct str s = {}, report = {}, good = {};

	put_number(&s, 4, 5);
	put_text(&s, 100, "later");
	put_fixed(&s, 101, 1);
	put_text(&report, 1, "t");
	put_number(&report, 3, CONTROL_STATE_N + 1);
	put_message(&s, 6, &report);
	put_text(&good, 1, "u");
	put_number(&good, 3, CONTROL_STATE_N);
	put_text(&good, 77, "later");
	put_message(&s, 6, &good);
	read_request(&s, &r);
	cr_expect_eq(r.started_ms, 5);
	cr_assert_eq(r.tasks.n, 1);
	cr_expect_str_eq(r.tasks.data->id, "u");
}

/* ---- hostile bytes ---- */

Test(control, nothing_is_a_message)
{
	_cleanup_control_request_ struct control_request q;
	_cleanup_control_response_ struct control_response r;

	cr_assert_eq(control_request_decode(NULL, 0, &q, NULL), 0);
	cr_assert_eq(control_response_decode(NULL, 0, &r, NULL), 0);
	cr_expect(!r.next_ms && !r.tasks.n && !r.keeps.n);
}

Test(control, damage_is_refused)
{
	static const struct {
		const char *bytes;
		size_t n;
	} bad[] = {
		{"<html>", 6},
		{"\x1a\x05\x0a", 3},
		{"\x0a", 1},
		{"\x1a\xff\xff\xff\xff\x0f", 6},
	};
	struct control_response r;
	struct control_request q;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct diag d = {}, e = {};

		cr_expect_eq(control_response_decode((const u8 *)bad[i].bytes, bad[i].n, &r, &d),
			     -EBADMSG, "%zu", i);
		cr_expect(*d.text);
		cr_expect_eq(control_request_decode((const u8 *)bad[i].bytes, bad[i].n, &q, &e),
			     -EBADMSG, "%zu", i);
		cr_expect(*e.text);
	}
}

/* Two bytes each, which would take a hundred in memory. */
Test(control, memory_is_bounded)
{
	_cleanup_str_ struct str s = {};
	struct control_response r;
	struct diag d = {};

	while (s.n < CONTROL_MAX_BYTES)
		str_append(&s, "\x1a\0", 2);
	cr_expect_eq(control_response_decode((const u8 *)s.data, s.n, &r, &d), -EBADMSG);
	cr_expect(strstr(d.text, "more than 8388608 bytes of memory"), "%s", d.text);
	d = (struct diag){};
	str_append(&s, "\x1a\0", 2);
	cr_expect_eq(control_response_decode((const u8 *)s.data, s.n, &r, &d), -EBADMSG);
	cr_expect(strstr(d.text, "of more than 1048576 bytes"), "%s", d.text);
}

/* ---- functions that are measured ---- */

static void put_measure(struct str *s, const char *function, const char *file, u64 ms,
			double budget)
{
	_cleanup_str_ struct str m = {};
	u64 bits;

	memcpy(&bits, &budget, sizeof(bits));
	put_text(&m, 1, "m1");
	put_text(&m, 2, "shop");
	put_text(&m, 3, function);
	put_text(&m, 4, file);
	put_number(&m, 5, ms);
	put_fixed(&m, 7, bits);
	put_message(s, 7, &m);
}

Test(control, measures_come_back_and_wrong_ones_do_not)
{
	static const char *const wrong[] = {"", "*", "a*", "(*", "a?", "a\nb", "a\x7f", "\xff"};
	_cleanup_control_response_ struct control_response a = {}, b = {}, c = {};
	struct control_measure m = {.id = "m1",
				    .service = "*",
				    .function = "main.(*Shelf).\"Count\"",
				    .file = "[kernel]",
				    .duration_ms = 30000,
				    .slow_ns = 5,
				    .budget_percent = 0.5};
	_cleanup_str_ struct str s = {}, odd = {};
	char longest[CONTROL_TEXT_BYTES + 1];

	cr_assert_eq(vec_push(&a.measures, m), 0);
	cr_assert_eq(control_response_encode(&a, &s), 0);
	read_response(&s, &b);
	cr_assert_eq(b.measures.n, 1);
	cr_expect_str_eq(b.measures.data[0].id, m.id);
	cr_expect_str_eq(b.measures.data[0].service, m.service);
	cr_expect_str_eq(b.measures.data[0].function, m.function);
	cr_expect_str_eq(b.measures.data[0].file, m.file);
	cr_expect_eq(b.measures.data[0].duration_ms, m.duration_ms);
	cr_expect_eq(b.measures.data[0].slow_ns, m.slow_ns);
	cr_expect_eq(b.measures.data[0].budget_percent, m.budget_percent);

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		put_measure(&odd, wrong[i], "", 5000, 1);
	memset(longest, 'a', sizeof(longest));
	longest[CONTROL_TEXT_BYTES] = '\0';
	put_measure(&odd, longest, "", 5000, 1);
	put_measure(&odd, "f", longest, 5000, 1);
	put_measure(&odd, "f", "a\nb", 5000, 1);
	put_measure(&odd, "f", "", CONTROL_MIN_MEASURE_MS - 1, 1);
	put_measure(&odd, "f", "", CONTROL_MAX_MEASURE_MS + 1, 1);
	put_measure(&odd, "f", "", 5000, 0);
	put_measure(&odd, "f", "", 5000, 1e9);
	put_measure(&odd, "f", "", 5000, __builtin_nan(""));
	put_measure(&odd, "good", "", 5000, 1);
	read_response(&odd, &c);
	cr_assert_eq(c.measures.n, 1);
	cr_assert_str_eq(c.measures.data[0].function, "good");
}

static void assert_measurement(const struct control_measurement *a,
			       const struct control_measurement *b)
{
	cr_expect_str_eq(a->id, b->id);
	cr_expect_eq(a->state, b->state);
	cr_expect_str_eq(a->reason, b->reason);
	cr_expect_eq(a->processes, b->processes);
	cr_expect_eq(a->others, b->others);
	cr_expect_eq(a->measured_ms, b->measured_ms);
	cr_expect_eq(a->slow_ns, b->slow_ns);
	cr_expect_eq(a->calls, b->calls);
	cr_expect_eq(a->returned, b->returned);
	cr_expect_eq(a->total_ns, b->total_ns);
	cr_expect_eq(a->longest_ns, b->longest_ns);
	cr_expect_eq(a->slow, b->slow);
	cr_expect_eq(a->lost, b->lost);
	cr_expect_eq(a->thinned, b->thinned);
	cr_expect_eq(a->cost_percent, b->cost_percent);
	cr_assert_eq(a->n_buckets, b->n_buckets);
	for (u32 i = 0; i < b->n_buckets; i++)
		cr_expect_eq(a->buckets[i], b->buckets[i]);
}

static void assert_call(const struct control_call *a, const struct control_call *b)
{
	cr_expect_str_eq(a->measure, b->measure);
	cr_expect_eq(a->end_ns, b->end_ns);
	cr_expect_eq(a->ns, b->ns);
	cr_expect_eq(a->pid, b->pid);
	cr_expect_eq(a->tid, b->tid);
	cr_expect_str_eq(a->comm, b->comm);
	cr_expect_eq(a->has_trace, b->has_trace);
	cr_expect_arr_eq(a->trace_id, b->trace_id, sizeof(b->trace_id));
	cr_expect_arr_eq(a->span_id, b->span_id, sizeof(b->span_id));
	cr_assert_eq(a->n_arguments, b->n_arguments);
	for (u32 i = 0; i < b->n_arguments; i++) {
		cr_expect_str_eq(a->arguments[i].name, b->arguments[i].name);
		cr_expect_str_eq(a->arguments[i].value, b->arguments[i].value);
	}
	cr_expect_str_eq(a->result, b->result);
	cr_expect_str_eq(a->stack, b->stack);
}

Test(control, measurements_and_calls_come_back)
{
	_cleanup_control_request_ struct control_request a = {.host = "h"}, b = {};
	struct control_measurement m = {.id = "m1",
					.state = CONTROL_STATE_ARMED,
					.reason = "so",
					.processes = 2,
					.others = true,
					.measured_ms = 1000,
					.slow_ns = 9,
					.calls = 7,
					.returned = 6,
					.total_ns = 600,
					.longest_ns = 300,
					.slow = 1,
					.lost = 3,
					.thinned = 0.5,
					.cost_percent = 0.25,
					.n_buckets = 249};
	struct control_call c = {.measure = "m1",
				 .end_ns = 1700000000000000000,
				 .ns = 300,
				 .pid = 5,
				 .tid = 6,
				 .comm = "stock",
				 .has_trace = true,
				 .trace_id = TRACE,
				 .span_id = SPAN,
				 .n_arguments = 2,
				 .arguments = {{"items", "8000"}, {"name", "\"a b\""}},
				 .result = "-1",
				 .stack = "answer\nserve"};
	_cleanup_str_ struct str s = {};

	m.buckets[0] = 1;
	m.buckets[248] = 5;
	cr_assert_eq(vec_push(&a.measured, m), 0);
	for (int i = 0; i < CONTROL_MAX_CALLS; i++)
		cr_assert_eq(vec_push(&a.calls, c), 0);
	cr_assert_eq(control_request_encode(&a, &s), 0);
	read_request(&s, &b);
	cr_assert_eq(b.measured.n, 1);
	assert_measurement(b.measured.data, &m);
	cr_assert_eq(b.calls.n, CONTROL_MAX_CALLS);
	assert_call(&b.calls.data[CONTROL_MAX_CALLS - 1], &c);
	cr_assert_eq(vec_push(&a.calls, c), 0);
	cr_assert_eq(control_request_encode(&a, &s), -E2BIG);
}

/* The largest message that an agent may make has room. */
Test(control, the_longest_calls_fit)
{
	_cleanup_control_request_ struct control_request a = {}, b = {};
	static struct control_measurement m = {.id = "m", .thinned = 1, .n_buckets = 256};
	static struct control_call c = {.measure = "m", .end_ns = 1, .n_arguments = 6};
	_cleanup_str_ struct str s = {};

	for (u32 i = 0; i < 256; i++)
		m.buckets[i] = 1ULL << 53;
	for (u32 i = 0; i < 6; i++) {
		memset(c.arguments[i].name, 'n', CONTROL_VALUE_BYTES - 1);
		memset(c.arguments[i].value, 'v', CONTROL_VALUE_BYTES - 1);
	}
	memset(c.stack, 's', sizeof(c.stack) - 1);
	for (int i = 0; i < CONTROL_MAX_MEASURES; i++)
		cr_assert_eq(vec_push(&a.measured, m), 0);
	for (int i = 0; i < CONTROL_MAX_CALLS; i++)
		cr_assert_eq(vec_push(&a.calls, c), 0);
	cr_assert_eq(control_request_encode(&a, &s), 0);
	cr_assert_lt(s.n, CONTROL_MAX_BYTES / 2);
	read_request(&s, &b);
	cr_assert_eq(b.calls.n, CONTROL_MAX_CALLS);
}
