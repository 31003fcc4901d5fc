/* SPDX-License-Identifier: Apache-2.0 */
/* OTLP's spans: entry spans of services, and bounds. */
#include <criterion/criterion.h>
#include <errno.h>

#include "base/vocab.h"
#include "otlp/otlp.h"

#define MIB ((size_t)1 << 20)

#define ONE_SPAN                                                                                   \
	"{\"traceId\":\"0af7651916cd43dd8448eb211c80319c\",\"spanId\":\"b7ad6b7169203331\","       \
	"\"name\":\"GET\",\"startTimeUnixNano\":\"1700000000000000000\","                          \
	"\"endTimeUnixNano\":\"1700000000000000500\""

/* Reads one span from JSON; `more` follows the members of ONE_SPAN. */
static void read_span(const char *more, struct spans *s)
{
	_cleanup_str_ struct str text = {};
	struct otlp_rejected rejected = {};
	struct diag d = {};

	cr_assert_eq(spans_init(s), 0);
	str_printf(&text,
		   "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\","
		   "\"value\":{\"stringValue\":\"shop\"}}]},\"scopeSpans\":[{\"spans\":[" ONE_SPAN
		   "%s}]}]}]}",
		   more);
	cr_assert_eq(otlp_traces_decode_json(text.data, text.n, 64 * MIB, s, &rejected, &d), 0,
		     "%s", d.text);
	cr_assert_eq(rejected.n, 0, "%s", rejected.why.text);
	cr_assert_eq(s->spans.n, 1);
}

Test(otlp_traces, entries_of_services_are_known)
{
	static const struct {
		const char *more, *endpoint; /* NULL: not an entry span */
	} cases[] = {
		{"", "GET"},
		{",\"parentSpanId\":\"b7ad6b7169203332\"", NULL},
		{",\"parentSpanId\":\"b7ad6b7169203332\",\"kind\":2", "GET"},
		{",\"parentSpanId\":\"b7ad6b7169203332\",\"kind\":2,\"flags\":257", NULL},
		{",\"parentSpanId\":\"b7ad6b7169203332\",\"kind\":1,\"flags\":769", "GET"},
		{",\"attributes\":[{\"key\":\"http.route\",\"value\":{\"stringValue\":\"/a\"}}]",
		 "/a"},
		{",\"attributes\":[{\"key\":\"http.route\",\"value\":{\"stringValue\":\"/a\"}},"
		 "{\"key\":\"http.method\",\"value\":{\"stringValue\":\"PUT\"}}]",
		 "PUT /a"},
		{",\"attributes\":[{\"key\":\"rpc.method\",\"value\":{\"stringValue\":\"Add\"}},"
		 "{\"key\":\"rpc.service\",\"value\":{\"stringValue\":\"a.Cart\"}}]",
		 "a.Cart/Add"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_spans_ struct spans s = {};
		const struct span *e;

		read_span(cases[i].more, &s);
		e = s.spans.data;
		cr_expect_eq(!(e->flags & SPAN_ROOT), !cases[i].endpoint, "%s", cases[i].more);
		cr_expect_str_eq(spans_string(&s, e->endpoint),
				 cases[i].endpoint ? cases[i].endpoint : "", "%s", cases[i].more);
		cr_expect_eq(e->duration_ns, 500);
		cr_expect_str_eq(spans_string(&s, e->service), "shop");
	}
}

Test(otlp_traces, what_is_long_is_cut)
{
	_cleanup_str_ struct str more = {};
	_cleanup_spans_ struct spans s = {};

	str_puts(&more, ",\"attributes\":[");
	for (u32 i = 0; i < 2 * SPAN_MAX_ATTRIBUTES; i++)
		str_printf(&more, "%s{\"key\":\"k%u\",\"value\":{\"stringValue\":\"%0400u\"}}",
			   i ? "," : "", i, i);
	str_puts(&more, "]");
	read_span(str_get(&more), &s);
	cr_assert_eq(s.spans.data[0].n, SPAN_MAX_ATTRIBUTES - SPAN_MAX_EVENTS);
	cr_assert_eq(strlen(spans_attribute(&s, s.spans.data, "k3")), SPAN_MAX_TEXT);
	/* Text is not cut within a character. */
	{
		char text[SPAN_MAX_TEXT + 8];
		u32 id;

		memset(text, 'a', sizeof(text));
		memcpy(text + SPAN_MAX_TEXT - 1, "\xc3\xa9", 3);
		cr_assert_eq(spans_add_text(&s, text, &id), 0);
		cr_assert_eq(strlen(spans_string(&s, id)), SPAN_MAX_TEXT - 1);
	}
}

#define AT(ns) "{\"timeUnixNano\":\"17000000000000" ns "\",\"name\":"

Test(otlp_traces, events_have_a_time_and_a_text)
{
	static const char *const want[] = {"300 exception ValueError: bad coupon, code=7",
					   "0 retry", "400 a culprit.event=9 x"};
	_cleanup_spans_ struct spans s = {};
	_cleanup_str_ struct str many = {};
	const struct span *e;

	read_span(
		",\"attributes\":[{\"key\":\"culprit.event\",\"value\":{\"stringValue\":\"1 x\"}}],"
		"\"events\":[" AT(
			"00300") "\"exception\",\"attributes\":["
				 "{\"key\":\"exception.message\",\"value\":{\"stringValue\":\"bad coupon\"}},"
				 "{\"key\":\"exception.stacktrace\",\"value\":{\"stringValue\":\"long\"}},"
				 "{\"key\":\"code\",\"value\":{\"intValue\":\"7\"}},"
				 "{\"key\":\"exception.type\",\"value\":{\"stringValue\":\"ValueError\"}}]},"
				 "{\"name\":\"retry\"}," AT(
					 "00400") "\"a\",\"attributes\":["
						  "{\"key\":\"culprit.event\",\"value\":{\"stringValue\":\"9 x\"}}]}]",
		&s);
	e = s.spans.data;
	cr_assert_eq(e->n, ARRAY_SIZE(want), "a sender's attribute of the name is left out");
	for (u32 i = 0; i < e->n; i++) {
		const struct profile_label *l = &s.attributes.data[e->first + i];

		cr_expect_str_eq(spans_string(&s, l->name), SPAN_EVENT);
		cr_expect_str_eq(spans_string(&s, l->value), want[i]);
	}
	spans_deinit(&s);
	for (u32 i = 0; i < 20; i++)
		str_printf(&many, "%s{\"name\":\"e%u\"}", i ? "," : ",\"events\":[", i);
	str_puts(&many, "]");
	read_span(str_get(&many), &s);
	e = s.spans.data;
	cr_assert_eq(e->n, SPAN_MAX_EVENTS);
	cr_expect_str_eq(spans_string(&s, s.attributes.data[e->first + e->n - 1].value),
			 "0 13 further events");
}

Test(otlp_traces, memory_is_bounded)
{
	_cleanup_spans_ struct spans s = {};
	_cleanup_str_ struct str text = {};
	struct otlp_rejected rejected = {};

	str_puts(&text, "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[");
	for (u32 i = 0; i < 1000; i++)
		str_puts(&text, i ? "," ONE_SPAN "}" : ONE_SPAN "}");
	str_puts(&text, "]}]}]}");
	cr_assert_eq(spans_init(&s), 0);
	cr_assert_eq(otlp_traces_decode_json(text.data, text.n, MIB, &s, &rejected, NULL), -E2BIG);
	cr_assert_eq(otlp_traces_decode((const u8 *)"\xff", 1, MIB, &s, &rejected, NULL), -EBADMSG);
}
