/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions of queries: syntax, refusals, and bounded time and memory. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/quota.h"
#include "base/str.h"
#include "regex/regex.h"
#include "server/query/query.h"
#include "server/query/stacks.h"

static struct regex *regex(const char *pattern, bool whole)
{
	struct regex *r = NULL;
	struct diag d = {};

	cr_assert_eq(regex_create(pattern, whole, &d, &r), 0, "%s: %s", pattern, d.text);
	return r;
}

Test(regex, syntax)
{
	static const struct {
		const char *pattern, *text;
		bool part, whole;
	} cases[] = {
		{"json.*", "parse_json_value", true, false},
		{".*json.*", "parse_json_value", true, true},
		{"^parse", "parse_json_value", true, false},
		{"value$", "parse_json_value", true, false},
		{"a|b", "b", true, true},
		{"a|b", "ab", true, false},
		{"(?i)JSON", "json", true, true},
		{"", "", true, true},
		{"", "x", true, false},
		{".+", "a\nb", true, true},
		{"^b", "a\nb", false, false},
		{"[[:alpha:]]+_[0-9]{2,3}", "web_123", true, true},
		{"web\\.\\d+", "web.7", true, true},
		{"\\bget\\b", "std::get<0>", true, false},
		{"operator\\+\\+", "operator++", true, true},
		/* Characters, and not bytes. */
		{".", "ü", true, true},
		{"[äöü]", "ü", true, true},
		{"(?i)größe", "GRÖßE", true, true},
		{"\\p{Han}+", "解析", true, true},
		/* Wrong bytes are what a page shows for them. */
		{"a.c",
		 "a\xff"
		 "c",
		 true, true},
		{"a\xef\xbf\xbd\xef\xbf\xbd"
		 "b",
		 "a\xc3\xc3"
		 "b",
		 true, true},
		/* Backtracking would take years, 2^60 steps. */
		{"(a|a)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false,
		 false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_regex_ struct regex *part = regex(cases[i].pattern, false);
		_cleanup_regex_ struct regex *whole = regex(cases[i].pattern, true);

		cr_expect_eq(regex_match(part, cases[i].text, NULL), cases[i].part, "%s",
			     cases[i].pattern);
		cr_expect_eq(regex_match(whole, cases[i].text, NULL), cases[i].whole, "%s",
			     cases[i].pattern);
	}
}

Test(regex, refusals)
{
	static const struct {
		const char *pattern, *why;
	} cases[] = {
		{"(", "missing )"},
		{"[z-a]", "invalid character class range"},
		{"*a", "no argument for repetition operator"},
		{"(a)\\1", "invalid escape sequence"},
		{"(?=a)", "invalid perl operator"},
		{"a{1001}", "invalid repetition size"},
		{"((a{30}){30}){30}", "invalid repetition size"},
		{"((\\pL{30}){30})", "too large"},
		{"\xff", "UTF-8"},
	};
	char large[600] = "";
	struct regex *none = NULL;
	struct diag long_diag = {};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct regex *r = NULL;
		struct diag d = {};

		cr_expect_eq(regex_create(cases[i].pattern, true, &d, &r), -EINVAL, "%s",
			     cases[i].pattern);
		cr_expect(strstr(d.text, "is not a regular expression: ") &&
				  strstr(d.text, cases[i].why),
			  "%s", d.text);
	}
	memset(large, 'a', sizeof(large) - 1);
	cr_expect_eq(regex_create(large, true, &long_diag, &none), -EINVAL);
	cr_expect(strstr(long_diag.text, "longer than 512 characters"), "%s", long_diag.text);
}

static u64 cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (u64)t.tv_sec * 1000 + (u64)t.tv_nsec / 1000000;
}

/* glibc's regexec() took more than 30 s for the first one. */
Test(regex, time_is_bounded)
{
	static const char *const patterns[] = {".*e.{50}x", "(.*e.*){8}x", "(.*)*#",
					       "(x+x+)+y",  "(e.?){100}b", "[a-z]{900}x"};

	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		_cleanup_regex_ struct regex *r = regex(patterns[i], false);
		u64 began = cpu_ms();

		for (u32 k = 0; k < 20000; k++) {
			_cleanup_str_ struct str name = {};

			for (u32 w = 0; w < 8; w++)
				str_printf(&name,
					   "std::vector<element%u>::", (k * 31 + w * 7) % 97);
			cr_assert_geq(regex_match(r, str_get(&name), NULL), 0);
		}
		cr_expect_lt(cpu_ms() - began, 15000, "%s", patterns[i]);
	}
}

/* A match that would take too long is an error, and not a "no". */
Test(regex, long_names)
{
	_cleanup_regex_ struct regex *r = regex("[a-z]{900}x", false);
	_cleanup_regex_ struct regex *small = regex(".*e.*x", true);
	_cleanup_str_ struct str name = {};
	struct diag d = {};
	u64 began = cpu_ms();

	for (u32 i = 0; i < 65535; i++)
		str_putc(&name, 'e');
	cr_assert_eq(regex_match(r, str_get(&name), &d), 0, "%s", d.text);
	cr_expect_lt(cpu_ms() - began, 10000);
	while (name.n < 720885)
		str_putc(&name, 'e');
	str_putc(&name, 'x');
	cr_assert_eq(regex_match(small, str_get(&name), &d), 1, "%s", d.text);
	cr_assert_eq(regex_match(r, str_get(&name), &d), -ERANGE);
	cr_assert_str_eq(d.text,
			 "'[a-z]{900}x' is too large to match a name of 720886 bytes: shorten it");
}

static int match_names(struct regex *r, struct diag *d)
{
	int e = 0;

	for (u32 i = 0; i < 100000 && e >= 0; i++)
		e = regex_match(r, "std::vector<element>::operator++", d);
	return e;
}

Test(regex, quotas)
{
	struct quota memory = {.limits.bytes = 3 << 20}, time = {.limits.time_ns = 1};
	struct regex *list[4] = {};
	struct diag d = {};
	u32 n = 0;

	quota_begin(&memory);
	while (n < 4 && regex_create("a", true, &d, &list[n]) == 0)
		n++;
	cr_assert(n >= 1 && n < 4);
	cr_assert_str_eq(d.text, "the request needs more than 3 MiB of memory");
	for (u32 i = 0; i < n; i++)
		regex_destroy(list[i]);
	cr_assert_lt(memory.used, 100000);
	quota_end(&memory);

	d = (struct diag){};
	list[0] = regex("e.{10}x", false);
	cr_assert_eq(match_names(list[0], NULL), 0);
	quota_begin(&time);
	cr_assert_eq(match_names(list[0], &d), -ETIMEDOUT);
	quota_end(&time);
	cr_assert(d.text[0]);
	regex_destroy(list[0]);
}

/* Each expression takes up to 1 MiB. */
Test(regex, number)
{
	_cleanup_str_ struct str predicate = {}, selector = {};
	_cleanup_query_ struct query q = {};
	struct query_stacks *s = NULL;
	struct diag d = {}, e = {};

	str_puts(&selector, "{");
	for (u32 i = 0; i < 33; i++) {
		str_printf(&predicate, "%sfn~'x%u'", i ? " or " : "", i);
		str_printf(&selector, "%sa=~'x%u'", i ? "," : "", i);
	}
	str_puts(&selector, "}");
	cr_assert_eq(query_stacks_parse(str_get(&predicate), &d, &s), -EINVAL);
	cr_assert_str_eq(d.text, "more than 32 regular expressions");
	cr_assert_eq(query_parse_selector(&q, str_get(&selector), &e), -EINVAL);
	cr_assert_str_eq(e.text, "more than 32 regular expressions");
}
