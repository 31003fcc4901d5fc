/* SPDX-License-Identifier: Apache-2.0 */
/* API parameters: each form of a value, each refusal, and what the base of a diff inherits. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "server/api/internal.h"

#define MINUTE 60000ULL
#define NOW (1800000000ULL * 1000)

/* Looks up a parameter. The request's `private` is a list of "name=value" that ends with NULL. */
static const char *lookup(const struct net_request *r, bool header, const char *name, size_t i)
{
	size_t n = strlen(name);

	cr_assert(!header && i == 0);
	for (const char *const *p = r->private; *p; p++)
		if (!strncmp(*p, name, n) && (*p)[n] == '=')
			return *p + n + 1;
	return NULL;
}

struct question {
	struct net_request r;
	struct api_call c;
};

static struct api_call *call(struct question *q, const char *const *parameters)
{
	*q = (struct question){.r = {.lookup = lookup, .private = (void *)parameters}};
	q->c.r = &q->r;
	return &q->c;
}

#define CALL(...) call(&(struct question){}, (const char *const[]){__VA_ARGS__, NULL})

static u64 time_of(const char *text)
{
	u64 ms = 12345;
	int r = api_time(text, NOW, &ms);

	cr_assert(r == 0 || (r == -EINVAL && ms == 12345), "%s", text);
	return r == 0 ? ms : UINT64_MAX;
}

Test(parameters, times)
{
	static const struct {
		const char *text;
		u64 ms;
	} good[] = {
		{"now", NOW},
		{"now-0s", NOW},
		{"now-1ms", NOW - 1},
		{"now-30s", NOW - 30000},
		{"now-15m", NOW - 15 * MINUTE},
		{"now-2h", NOW - 120 * MINUTE},
		{"now-1d", NOW - 1440 * MINUTE},
		{"now-2w", NOW - 14 * 1440 * MINUTE},
		{"now-4000w", 0},
		{"0", 0},
		{"1700000000", 1700000000000},
		{"99999999999", 99999999999000},
		{"100000000000", 100000000000},
		{"1700000000123", 1700000000123},
		{"253402300799000", 253402300799000},
		{"1970-01-01T00:00:00Z", 0},
		{"2026-01-31T12:00:00Z", 1769860800000},
		{"9999-12-31T23:59:59Z", 253402300799000},
		{"2026-01-31t12:00:00z", 1769860800000},
		{"2026-01-31 12:00:00Z", 1769860800000},
		{"2026-01-31T14:00:00+02:00", 1769860800000},
		{"2026-01-31T14:00:00 02:00", 1769860800000}, /* a '+' that was not encoded */
		{"2026-01-31T06:30:00-05:30", 1769860800000},
		{"2026-02-01T11:59:00+23:59", 1769860800000},
		{"2026-01-31T12:00:00-00:00", 1769860800000},
		{"2026-01-31T12:00:00.5Z", 1769860800500},
		{"2026-01-31T12:00:00.123456789012+00:00", 1769860800123},
		{"2026-01-31T12:00:00.0009Z", 1769860800000},
		{"2024-02-29T00:00:00Z", 1709164800000},
		{"1990-12-31T23:59:60Z", 662688000000},
		{"1990-12-31T15:59:60.75-08:00", 662688000000},
	};
	static const char *const bad[] = {
		"",
		"-1",
		"+1",
		" 1",
		"1 ",
		"1e3",
		"yesterday",
		"now+1m",
		"now-",
		"now-m",
		"now-5",
		"now-5y",
		"now--5m",
		"now-5m ",
		"now-99999999999999999999s",
		"now-300000000000h",
		"253402300799001",
		"18446744073709551616",
		"2026-01-31",
		"2026-01-31T12:00:00",
		"2026-13-31T12:00:00Z",
		"2026-01-31T12:00:00Zx",
		"1969-12-31T23:59:59Z",
		"1970-01-01T00:00:00+00:01",
		"9999-12-31T23:59:59-00:01",
		"2026-01-31T12:00Z",
		"2026-01-31T12:00:00.Z",
		"2026-01-31T12:00:00,5Z",
		"2026-01-31T12:00:00+2:00",
		"2026-01-31T12:00:00+0200",
		"2026-01-31T12:00:00+24:00",
		"2026-01-31T12:00:00+02:60",
		"2026-01-31T12:00:00+02:00x",
		"2026-1-31T12:00:00Z",
		"26-01-31T12:00:00Z",
		"2026-00-01T12:00:00Z",
		"2026-02-29T12:00:00Z",
		"2026-04-31T12:00:00Z",
		"2026-01-00T12:00:00Z",
		"2026-01-31T24:00:00Z",
		"2026-01-31T12:60:00Z",
		"2026-01-31T12:00:61Z",
		"2026-01-31T12:00:60Z",
		"2026-01-31T23:59:60+01:00",
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		cr_assert_eq(time_of(good[i].text), good[i].ms, "%s", good[i].text);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_assert_eq(time_of(bad[i]), UINT64_MAX, "%s", bad[i]);
}

Test(parameters, a_query_without_any_is_the_last_quarter_of_an_hour)
{
	_cleanup_query_ struct query q = {};
	u64 before = clock_epoch_ms();

	cr_assert_eq(api_query(CALL(NULL), "", &q), 0);
	cr_assert_eq(q.to_ms - q.from_ms, 15 * MINUTE);
	cr_assert(q.to_ms > before && q.to_ms <= clock_epoch_ms() + 1);
	cr_assert_null(q.type);
	cr_assert_null(q.stacks);
	cr_assert_eq(q.matchers.n, 0);
}

Test(parameters, a_query_with_all)
{
	_cleanup_query_ struct query q = {};

	cr_assert_eq(api_query(CALL("from=1000", "to=2000", "query=cpu{service_name=\"shop\"}",
				    "type=alloc_space", "stacks=main"),
			       "", &q),
		     0);
	cr_assert_eq(q.from_ms, 1000000);
	cr_assert_eq(q.to_ms, 2000000);
	cr_assert_str_eq(q.type, "alloc_space", "`type` beats that of the selector");
	cr_assert_str_eq(q.stacks, "main");
	cr_assert_eq(q.matchers.n, 1);
	cr_assert_str_eq(q.matchers.data[0].value, "shop");
}

Test(parameters, only_the_end_of_a_range)
{
	_cleanup_query_ struct query q = {}, early = {};

	cr_assert_eq(api_query(CALL("to=100000000"), "", &q), 0);
	cr_assert_eq(q.to_ms, 100000000000);
	cr_assert_eq(q.from_ms, 100000000000 - 15 * MINUTE);
	cr_assert_eq(api_query(CALL("to=1"), "", &early), 0);
	cr_assert_eq(early.from_ms, 0);
}

static void expect_refused(struct api_call *c, const char *prefix, const char *text)
{
	_cleanup_query_ struct query q = {};

	cr_assert_eq(api_query(c, prefix, &q), -EINVAL);
	cr_assert(strstr(c->d.text, text), "%s", c->d.text);
}

Test(parameters, refusals_name_the_parameter)
{
	expect_refused(CALL("from=x"), "", "from: a time is");
	expect_refused(CALL("to=x"), "", "to: a time is");
	expect_refused(CALL("base_to=x"), "base_", "base_to: a time is");
	expect_refused(CALL("from=5", "to=5"), "", "from must be before to");
	expect_refused(CALL("from=6", "base_to=5"), "base_", "base_from must be before base_to");
	expect_refused(CALL("query={"), "", "");
}

Test(parameters, the_base_of_a_diff_inherits)
{
	_cleanup_query_ struct query q = {};

	cr_assert_eq(api_query(CALL("from=1000", "base_from=500", "to=2000", "type=cpu",
				    "base_stacks=f", "stacks=g"),
			       "base_", &q),
		     0);
	cr_assert_eq(q.from_ms, 500000);
	cr_assert_eq(q.to_ms, 2000000);
	cr_assert_str_eq(q.type, "cpu");
	cr_assert_str_eq(q.stacks, "f");
}

Test(parameters, what_is_empty_is_not_there)
{
	_cleanup_query_ struct query q = {};

	cr_assert_eq(api_query(CALL("query=", "type=", "stacks="), "", &q), 0);
	cr_assert_null(q.type);
	cr_assert_null(q.stacks);
	cr_assert_eq(
		api_spans(CALL("trace=", "span=", "status=", "min_ms=", "endpoint=", "service="),
			  "", &q),
		0);
	cr_assert_eq(q.spans.of, QUERY_OF_ALL);
	cr_assert_eq(q.matchers.n, 0);
	cr_assert_eq(api_group(CALL("group_by="), &q), 0);
	cr_assert_null(q.group_by);
	cr_assert_eq(api_group(CALL("group_by=host.name"), &q), 0);
	cr_assert_str_eq(q.group_by, "host.name");
}

Test(parameters, requests)
{
	_cleanup_query_ struct query q = {};

	cr_assert_eq(api_spans(CALL("service=shop", "endpoint=/buy", "min_ms=5",
				    "max_ms=1099511627776", "status=error"),
			       "", &q),
		     0);
	cr_assert_eq(q.spans.of, QUERY_OF_REQUESTS);
	cr_assert_str_eq(q.spans.service, "shop");
	cr_assert_str_eq(q.spans.endpoint, "/buy");
	cr_assert_eq(q.spans.min_ns, 5000000);
	cr_assert_eq(q.spans.max_ns, (1ULL << 40) * 1000000);
	cr_assert_eq(q.spans.statuses, 1 << 2);
	cr_assert_eq(q.matchers.n, 0);
}

Test(parameters, a_service_alone_is_all_of_its_samples)
{
	_cleanup_query_ struct query q = {};

	cr_assert_eq(api_spans(CALL("service=shop"), "", &q), 0);
	cr_assert_eq(q.spans.of, QUERY_OF_ALL);
	cr_assert_eq(q.matchers.n, 1);
	cr_assert_str_eq(q.matchers.data[0].label, "service.name");
	cr_assert_str_eq(q.matchers.data[0].value, "shop");
}

#define TRACE "trace=0123456789abcdef0123456789abcdef"
#define SPAN "span=0123456789abcdef"

static u8 of(struct api_call *c)
{
	_cleanup_query_ struct query q = {};

	cr_assert_eq(api_spans(c, "", &q), 0, "%s", c->d.text);
	cr_assert_eq(q.spans.trace_id[15], 0xef);
	cr_assert_eq(q.spans.span_id[7], q.spans.of == QUERY_OF_TRACE ? 0 : 0xef);
	return (u8)q.spans.of;
}

Test(parameters, ids)
{
	cr_assert_eq(of(CALL(TRACE)), QUERY_OF_TRACE);
	cr_assert_eq(of(CALL(TRACE, SPAN)), QUERY_OF_SPAN);
	cr_assert_eq(of(CALL(TRACE, SPAN, "children=0")), QUERY_OF_SPAN);
	cr_assert_eq(of(CALL(TRACE, SPAN, "children=false")), QUERY_OF_SPAN);
	cr_assert_eq(of(CALL(TRACE, SPAN, "children=1")), QUERY_OF_CHILDREN);
	cr_assert_eq(of(CALL(TRACE, SPAN, "children=")), QUERY_OF_CHILDREN);
	cr_assert_eq(of(CALL(TRACE, "endpoint=/buy")), QUERY_OF_TRACE);
}

Test(parameters, refused_spans)
{
	static const struct {
		const char *first, *second, *text;
	} bad[] = {
		{"trace=0123", NULL, "trace: 32 hex digits"},
		{"trace=0123456789abcdef0123456789abcdeg", NULL, "trace: 32 hex digits"},
		{"trace=0123456789abcdef0123456789abcdef0", NULL, "trace: 32 hex digits"},
		{SPAN, NULL, "of which trace?"},
		{TRACE, "span=0123", "span: 16 hex digits"},
		{"status=fine", NULL, "status: unset, ok or error"},
		{"min_ms=-1", NULL, "min_ms: a number of milliseconds"},
		{"min_ms=1.5", NULL, "min_ms: a number of milliseconds"},
		{"max_ms=1099511627777", NULL, "max_ms: a number of milliseconds"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct api_call *c = CALL(bad[i].first, bad[i].second);
		_cleanup_query_ struct query q = {};

		cr_assert_eq(api_spans(c, "", &q), -EINVAL, "%s", bad[i].first);
		cr_assert(strstr(c->d.text, bad[i].text), "%s: %s", bad[i].first, c->d.text);
	}
}

Test(parameters, numbers)
{
	static const char *const bad[] = {
		"n=", "n=2", "n=11", "n=-5", "n=5x", "n=0x5", "n=18446744073709551621"};
	u64 n = 7;

	cr_assert_eq(api_number(CALL("m=5"), "n", 3, 10, &n), 0);
	cr_assert_eq(n, 7, "the default stays");
	cr_assert_eq(api_number(CALL("n=3"), "n", 3, 10, &n), 0);
	cr_assert_eq(n, 3);
	cr_assert_eq(api_number(CALL("n=10"), "n", 3, 10, &n), 0);
	cr_assert_eq(n, 10);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct api_call *c = CALL(bad[i]);

		cr_assert_eq(api_number(c, "n", 3, 10, &n), -EINVAL, "%s", bad[i]);
		cr_assert_str_eq(c->d.text, "n: a number of 3 to 10");
	}
	cr_assert_eq(n, 10);
}

Test(parameters, flags)
{
	struct profile_tree_options o = {.by_line = true};
	struct api_call *c;
	bool b = false;

	cr_assert_eq(api_tree_options(CALL("threads=1", "inverted=", "no_process=true", "by_line=0",
					   "no_inline=false"),
				      &o),
		     0);
	cr_assert(o.threads && o.inverted && o.no_process && !o.by_line && !o.no_inline);
	cr_assert_eq(api_flag(CALL("b="), "a", &b), 0);
	cr_assert_not(b);
	c = CALL("a=yes");
	cr_assert_eq(api_flag(c, "a", &b), -EINVAL);
	cr_assert_str_eq(c->d.text, "a: true or false");
}
