/* SPDX-License-Identifier: Apache-2.0 */
/* What the parser of the tracing language says to wrong scripts; hostile ones are bounded. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "trace/trace.h"

static void check_error(const char *text, const char *expected)
{
	struct trace_script *s = NULL;
	struct diag d = {};
	int r = trace_parse("", text, strlen(text), NULL, &d, &s);

	cr_expect_lt(r, 0, "%s\nis right", text);
	cr_expect_str_eq(d.text, expected, "%s\nsays\n%s\nnot\n%s", text, d.text, expected);
	trace_script_destroy(s);
}

Test(trace_errors, errors)
{
	static const char *const pairs[][2] = {
		{"", "1:1: the script has no probe, such as interval:s:1 { … }"},
		{"BEGIN", "1:6: expected { and an action, or / and a predicate, not the end"},
		{"BEGIN {", "1:7: the block has no end: } is missing"},
		{"BEGIN { f( }", "1:12: expected a value, not }"},
		{"BEGIN { f(1 2) }", "1:13: expected ) after the arguments of a call, not 2"},
		{"BEGIN { f(1; }", "1:12: expected ) after the arguments of a call, not ;"},
		{"BEGIN { $x = ; }", "1:14: expected a value, not ;"},
		{"BEGIN { $x = 1 $y = 2 }", "1:16: expected ; after the statement, not $y"},
		{"BEGIN { x = 1 }", "1:9: x cannot be assigned to; did you mean $x or @x?"},
		{"BEGIN { f() = 1 }",
		 "1:13: only a variable ($x) or a map (@x, @x[key]) can be assigned to; == compares"},
		{"BEGIN { args.x = 1 }",
		 "1:16: only a variable ($x) or a map (@x, @x[key]) can be assigned to; == compares"},
		{"BEGIN { 1++ }", "1:10: ++ and -- change a variable or a map: $x++ or @x[key]++"},
		{"BEGIN { ++f() }", "1:9: ++ and -- change a variable or a map: $x++ or @x[key]++"},
		{"BEGIN { &1 }", "1:9: & takes the address of a variable or a map: &$x or &@x"},
		{"BEGIN { $ }",
		 "1:9: after $ stands the name of a variable, the number of a parameter ($1 is the first), or #"},
		{"BEGIN { $0 }",
		 "1:9: after $ stands the name of a variable, the number of a parameter ($1 is the first), or #"},
		{"BEGIN { \"abc }", "1:9: the text has no end on its line: \" is missing"},
		{"BEGIN { \"a\\q\" }", "1:11: \\q is no escape; write \\\\ for a backslash"},
		{"BEGIN { \"a\\x\" }", "1:11: \\x needs one or two hex digits"},
		{"BEGIN { \"\\777\" }", "1:10: \\777 is more than a byte: \\377 is the largest"},
		{"BEGIN { 'ab' }",
		 "1:9: one character stands between ' '; texts stand between \" \""},
		{"BEGIN { 12abc }",
		 "1:9: 12abc is not a number: after the digits may stand ns, us, ms, s, m, h, d, or u, l, ul, ull"},
		{"BEGIN { 1__ }",
		 "1:9: 1__ is not a number: after the digits may stand ns, us, ms, s, m, h, d, or u, l, ul, ull"},
		{"BEGIN { 18446744073709551616 }",
		 "1:9: 18446744073709551616 has more than 64 bits"},
		{"BEGIN { 1e20 }", "1:9: 1e20 has more than 64 bits"},
		{"BEGIN { /* x }", "1:9: the comment has no end: */ is missing"},
		{"BEGIN { a # b }", "1:11: the language has no sign #"},
		{"BEGIN { a ` b }", "1:11: the language has no sign `"},
		{"BEGIN { @x[] }", "1:9: @x[] has no key: write @x or @x[key]"},
		{"BEGIN { @x[1 }", "1:14: expected ] after the key of a map, not }"},
		{"BEGIN { $x. }", "1:13: expected the name of a field after ., not }"},
		{"BEGIN { $x->1 }", "1:13: expected the name of a field after ->, not 1"},
		{"BEGIN { $x.1e3 }", "1:12: a field of a tuple is a decimal number: $x.0"},
		{"BEGIN { $x[1 }", "1:14: expected ] after the index, not }"},
		{"BEGIN { 1 ? 2 }", "1:15: expected : between the two values after ?, not }"},
		{"BEGIN { if { } }", "1:12: expected a condition after if, not {"},
		{"BEGIN { if (1) f() }", "1:16: expected { to begin a block, not f"},
		{"BEGIN { else { } }", "1:9: expected a value, not else"},
		{"BEGIN { iff (1) { } }",
		 "1:9: iff has no block; there are if, else, for, while and unroll"},
		{"BEGIN { $x = if 1 { 2 } }",
		 "1:25: expected else: an if that is a value needs a value for both cases, not }"},
		{"BEGIN { for (i = 0; i < 5; i++) { } }",
		 "1:14: for runs over a map or a range: for ($kv : @map) { … }, for ($i : 0..10) { … }"},
		{"BEGIN { for ($i = 0; $i < 5; $i++) { } }",
		 "1:17: for runs over a map or a range: for ($kv : @map) { … }, for ($i : 0..10) { … }"},
		{"BEGIN { for ($i : 5) { } }",
		 "1:19: for runs over a map or a range: for ($kv : @map) { … }, for ($i : 0..10) { … }"},
		{"BEGIN { for ($i : @x[1]) { } }",
		 "1:19: for runs over a map or a range: for ($kv : @map) { … }, for ($i : 0..10) { … }"},
		{"BEGIN { for ($i : 0..5 { } }",
		 "1:24: expected ) before the block of the loop, not {"},
		{"BEGIN { unroll { } }", "1:16: expected how many times, after unroll, not {"},
		{"BEGIN { let @x = hash(1); }",
		 "1:13: a map is declared outside of actions: let @x = hash(100);"},
		{"BEGIN { let x = 1; }", "1:13: expected a variable ($x) after let, not x"},
		{"BEGIN { let $x : 5; }", "1:18: expected a type, not 5"},
		{"BEGIN { import \"x\"; }",
		 "1:9: import is not supported: put the macros and types of the other file into this script"},
		{"import \"x\"; BEGIN { }",
		 "1:1: import is not supported: put the macros and types of the other file into this script"},
		{"fn f() { } BEGIN { }", "1:1: fn is not supported: write macro name(…) { … }"},
		{"typedef int x; BEGIN { }",
		 "1:1: typedef is not supported: use the type that it stands for"},
		{"kprob:f { }",
		 "1:1: nothing begins with kprob here; there are kprobe, uprobe, kretprobe, macro and 20 more"},
		{"kprobe { }", "1:1: kprobe lacks a part: write kprobe:FUNCTION"},
		{"kprobe:f:g:h { }",
		 "1:1: kprobe:f:g:h has a part too many: write kprobe:FUNCTION"},
		{"tracepoint:sched { }",
		 "1:1: tracepoint:sched lacks a part: write tracepoint:CATEGORY:EVENT"},
		{"usdt:/bin/a { }", "1:1: usdt:/bin/a lacks a part: write usdt:FILE:PROVIDER:NAME"},
		{"uprobe:\"/bin/a:f { }", "1:8: the text has no end on its line: \" is missing"},
		{"k:f, { }",
		 "1:6: expected a probe, such as kprobe:vfs_read or interval:s:1, not {"},
		{"k:f /pid == 1 { }", "1:15: expected / at the end of the predicate, not {"},
		{"k:f /pid ==/ { }", "1:12: expected a value, not /"},
		{"k:f k:g { }", "1:5: expected { and an action, or / and a predicate, not k"},
		{"bench:x { }", "1:1: bench probes are for bpftrace's own tests; use BEGIN"},
		{"macro { } BEGIN { }", "1:7: expected the name of the macro, not {"},
		{"macro m(1) { } BEGIN { }",
		 "1:9: expected a parameter of the macro (name, $name or @name), not 1"},
		{"macro m(x, x) { } BEGIN { }",
		 "1:12: the macro has two parameters with this name"},
		{"macro m(x) { 1 } macro m(y) { 2 } BEGIN { }",
		 "1:24: macro m is already defined in line 1"},
		{"macro m(x) { 1 } BEGIN { m(1, 2) }",
		 "1:26: macro m of line 1 has 1 parameter, not 2"},
		{"macro m($x) { 1 } BEGIN { m(1) }",
		 "1:29: macro m wants a variable ($x) as argument 1"},
		{"macro m(@x) { 1 } BEGIN { m(@y[1]) }",
		 "1:29: macro m wants a map without keys (@x) as argument 1"},
		{"macro m() { @x = 1 } BEGIN { m() }",
		 "1:13: macro m uses @x, which is none of its parameters: write macro m(…, @x)"},
		{"macro m() { m() } BEGIN { m() }",
		 "1:13: macro m uses itself; the language has no recursion"},
		{"macro a() { b } macro b() { a } BEGIN { a }",
		 "1:29: macro a uses itself; the language has no recursion"},
		{"macro m() { 1 }", "1:16: the script has no probe, such as interval:s:1 { … }"},
		{"#define A A\nBEGIN { A }", "1:11: A is defined by itself"},
		{"#define A 1 2\nBEGIN { A }",
		 "1:13: expected the end of the #define, which is one expression, not 2"},
		{"#define A\nBEGIN { A }", "1:10: expected a value, not the end"},
		{"#define A(x) x\nBEGIN { A(1) }",
		 "2:9: A is a #define with parameters, which the language does not have: write macro A(…) { … }"},
		{"#foo\nBEGIN { }",
		 "1:1: there is no directive #foo; there are if, elif, else, ifdef, define, endif, ifndef, undef and 2 more"},
		{"#else\nBEGIN { }", "1:1: #else without #if"},
		{"#if 1\nBEGIN { }", "1:1: the #if has no #endif"},
		{"#if 1\n#else\n#elif 1\n#endif\nBEGIN { }", "3:1: #elif after #else"},
		{"#if 1 +\n#endif\nBEGIN { }",
		 "1:1: #if takes numbers, names, defined(NAME), !, && and ||"},
		{"#ifdef\n#endif\nBEGIN { }", "1:1: #ifdef needs the name of a #define"},
		{"#error no\nBEGIN { }", "1:1: #error no"},
		{"#define\nBEGIN { }", "1:1: #define needs a name"},
		{"config = { x }\nBEGIN { }",
		 "1:14: expected = after the name of a setting, not }"},
		{"config = { x = ; }\nBEGIN { }",
		 "1:16: expected a name, a number or a text as value of the setting, not ;"},
		{"config = { x = 1 y = 2 }\nBEGIN { }", "1:18: expected ; after a setting, not y"},
		{"BEGIN { } config = { x = 1 }",
		 "1:11: config = { … } stands once, before macros and probes"},
		{"let @x; BEGIN { }", "1:7: expected = after the name of the map, not ;"},
		{"let @x = hash(0); BEGIN { }",
		 "1:10: a map is declared by its type and its most entries: let @name = hash(100); or lruhash, percpuhash, percpulruhash"},
		{"let $x = 1; BEGIN { }",
		 "1:5: expected a map after let: let @name = hash(100);, not $x"},
		{"struct a { int } BEGIN { }", "1:16: expected the name of a member, not }"},
		{"struct a { int x; BEGIN { }", "1:25: expected the name of a member, not {"},
		{"struct a { int x[$y]; }; BEGIN { }",
		 "1:17: the size of an array is a constant number"},
		{"struct a BEGIN { }", "1:10: expected { and the members, or ;, not BEGIN"},
		{"struct a { int x; } __attribute__((aligned(8))); BEGIN { }",
		 "1:36: aligned is not supported: add members that fill the room instead"},
		{"struct a { int x __attribute__((packed)); }; BEGIN { }",
		 "1:16: only a whole struct can be packed"},
		{"enum e { A = $x }; BEGIN { }", "1:10: the value of A is not a constant number"},
		{"BEGIN { (a=1, a=2) }", "1:15: the tuple has two fields a"},
		{"BEGIN { (a=1, 2) }", "1:15: expected a name and = in a tuple with names, not 2"},
		{"BEGIN { (1, 2 }", "1:15: expected ) at the end of the tuple, not }"},
		{"BEGIN { sizeof() }", "1:16: expected a value, not )"},
		{"BEGIN { sizeof(struct) }",
		 "1:22: expected the name of a type after struct, not )"},
		{"BEGIN { offsetof(struct a) }",
		 "1:26: expected , between the type and the field of offsetof(), not )"},
		{"BEGIN { offsetof(struct a, 1) }",
		 "1:28: expected the name of a field in offsetof(type, field), not 1"},
		{"BEGIN { (uint8[0])$x }", "1:19: expected ; after the statement, not $x"},
		{"BEGIN { getopt() }",
		 "1:9: getopt() has the name of an option as a text, its default value, and a description: getopt(\"depth\", 3, \"levels\")"},
		{"BEGIN { getopt(\"x\", f()) }",
		 "1:21: the default of getopt() is a number, a text, true or false"},
		{"BEGIN { 1 + }", "1:13: expected a value, not }"},
		{"BEGIN { 1 } }",
		 "1:13: expected a probe, such as kprobe:vfs_read or interval:s:1, not }"},
		{"BEGIN { return 1 2 }", "1:18: expected ; after the statement, not 2"},
		{"BEGIN { while { } }", "1:15: expected a condition after while, not {"},
		{"struct a { int x; } __attribute__ packed; BEGIN { }",
		 "1:35: expected ((…)) after __attribute__, not packed"},
		{"struct a { int x; } __attribute__((deprecated)) BEGIN { f( }",
		 "1:60: expected a value, not }"},
		{"struct a { int x(int); } BEGIN { }", "1:17: expected ; after a member, not ("},
		{"struct a { int x:99; } BEGIN { }",
		 "1:18: expected the number of bits, 64 at most, not 99"},
		{"BEGIN { typeof() }", "1:16: expected a value, not )"},
		{"BEGIN { let $x: struct; }",
		 "1:23: expected the name of a type after struct, not ;"},
		{"BEGIN { $x = (struct *)1; }",
		 "1:22: expected the name of a type after struct, not *"},
		{"BEGIN { f(a, ) }", "1:14: expected a value after ,, not )"},
		{"BEGIN { f(, a) }", "1:11: expected a value, not ,"},
		{"BEGIN { comptime }", "1:18: expected a value, not }"},
		{"BEGIN { @x[\"a\", }", "1:17: expected a value, not }"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		check_error(pairs[i][0], pairs[i][1]);
}

/* What an error looks like on a terminal. */
Test(trace_errors, shown_errors)
{
	static const struct {
		const char *file, *text, *error, *shown;
	} cases[] = {
		{"a.bt", "BEGIN {\n\tf(;\n}", "2:4: expected",
		 "a.bt:2:4: error: expected\n    \tf(;\n    \t  ^\n"},
		{"", "BEGIN { x }", "1:9: no",
		 "-e:1:9: error: no\n    BEGIN { x }\n            ^\n"},
		{"a.bt", "BEGIN", "1:6: the end",
		 "a.bt:1:6: error: the end\n    BEGIN\n         ^\n"},
		{"a.bt", "x", "9:1: far", "a.bt:9:1: error: far\n"},
		{"a.bt", "x", "no place", "a.bt: error: no place\n"},
		{"", "x", "no place", "error: no place\n"},
		{"", "\x1b[31m\xc3\xbc = 1", "1:9: red",
		 "-e:1:9: error: red\n    ?[31m\xc3\xbc = 1\n           ^\n"},
		{"", "", "1:1: empty", "-e:1:1: error: empty\n    \n    ^\n"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_str_ struct str out = {};

		trace_error_show(cases[i].file, cases[i].text, strlen(cases[i].text),
				 cases[i].error, &out);
		cr_expect_str_eq(str_get(&out), cases[i].shown, "%s", str_get(&out));
	}
}

/* A caret far to the right stands in the part of the line that is shown. */
Test(trace_errors, shown_part_of_a_long_line)
{
	_cleanup_str_ struct str text = {}, out = {};
	const char *line, *caret;

	for (int i = 0; i < 1000; i++)
		str_putc(&text, 'a');
	str_puts(&text, "X");
	for (int i = 0; i < 1000; i++)
		str_putc(&text, 'b');
	trace_error_show("", text.data, text.n, "1:1001: there", &out);
	line = strchr(str_get(&out), '\n') + 1;
	caret = strchr(line, '\n') + 1;
	cr_assert_lt(caret - line, 200);
	cr_assert_eq(line[strcspn(caret, "^")], 'X');
}

/* ---- bounds ---- */

static void repeat(struct str *s, const char *text, int n)
{
	for (int i = 0; i < n; i++)
		str_puts(s, text);
}

/* Each of these ends with a sentence, and does not end the process. */
Test(trace_errors, bounds, .timeout = 60)
{
	static const struct {
		const char *begin, *repeated, *end, *error;
		int n;
	} cases[] = {
		{"BEGIN { ", "(", "", "the script is nested more than 200 levels deep here",
		 100000},
		{"BEGIN { ", "-", "", "the script is nested more than 200 levels deep here",
		 100001},
		{"BEGIN { ", "{", "", "the script is nested more than 200 levels deep here",
		 100000},
		{"BEGIN { ", "@[", "", "the script is nested more than 200 levels deep here",
		 100000},
		{"BEGIN { ", "a ? 1 :", "", "the script is nested more than 200 levels deep here",
		 30000},
		{"BEGIN { ", "if 1 { } else ", "{ } }",
		 "the script is nested more than 200 levels deep here", 10000},
		{"BEGIN { ", "f(", "", "the script is nested more than 200 levels deep here",
		 100000},
		{"BEGIN { $x = (", "typeof(", "",
		 "the script is nested more than 200 levels deep here", 10000},
		{"struct a { ", "struct { ", "",
		 "the script is nested more than 200 levels deep here", 20000},
		{"BEGIN { 1", "+1", " }",
		 "the script is nested more than 400 levels deep here, or has more than 400 "
		 "operators in a row",
		 100000},
		{"BEGIN { $x", ".y", " }",
		 "the script is nested more than 400 levels deep here, or has more than 400 "
		 "operators in a row",
		 100000},
		{"macro m() { 1", "+1", " } BEGIN { m }",
		 "the script is nested more than 400 levels deep here, or has more than 400 "
		 "operators in a row",
		 100000},
		{"macro m(x) { x + x } BEGIN { ", "m(", "1", NULL, 30},
		{"BEGIN { $x = (a", "*", "", "the script is nested more than 200 levels deep here",
		 100000},
		{"BEGIN { $x = ", "(typeof(", "",
		 "the script is nested more than 200 levels deep here", 10000},
		{"BEGIN { $x = ", "(a[", "", "the script is nested more than 200 levels deep here",
		 10000},
		{"BEGIN { $x = ", "sizeof(a[", "",
		 "the script is nested more than 200 levels deep here", 10000},
		{"", "#if 1\n", "", "more than 32 #if are nested", 40000},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_str_ struct str text = {};
		struct trace_script *s = NULL;
		struct diag d = {};
		int r;

		str_puts(&text, cases[i].begin);
		repeat(&text, cases[i].repeated, cases[i].n);
		str_puts(&text, cases[i].end);
		if (!cases[i].error) {
			repeat(&text, ")", cases[i].n);
			str_puts(&text, " }");
		}
		r = trace_parse("", text.data, text.n, NULL, &d, &s);
		cr_expect_lt(r, 0, "%s… is right", cases[i].begin);
		cr_expect(strstr(d.text, cases[i].error ? cases[i].error
							: "the script needs more than 64 MiB"),
			  "%s%s…: %s", cases[i].begin, cases[i].repeated, d.text);
		trace_script_destroy(s);
	}
}

/* A long script is no deep one. */
Test(trace_errors, long_scripts)
{
	_cleanup_trace_script_ struct trace_script *s = NULL;
	_cleanup_str_ struct str text = {};
	struct trace_script *none = NULL;
	struct diag d = {};

	str_puts(&text, "BEGIN { ");
	repeat(&text, "$x = 1; ", 20000);
	str_puts(&text, "}");
	cr_assert_eq(trace_parse("", text.data, text.n, NULL, &d, &s), 0, "%s", d.text);
	repeat(&text, " ", 200000);
	cr_assert_eq(trace_parse("", text.data, text.n, NULL, &d, &none), -E2BIG);
	cr_assert_str_eq(d.text, "the script has more than 256 KiB");
}

Test(trace_errors, numbers_of_points)
{
	u64 n = 0;

	cr_assert_eq(trace_number("1e6", &n), 0);
	cr_assert_eq(n, 1000000);
	cr_assert_eq(trace_number("2s", &n), 0);
	cr_assert_eq(n, 2000000000);
	cr_assert_eq(trace_number("0x10", &n), 0);
	cr_assert_eq(n, 16);
	cr_assert_eq(trace_number("", &n), -EINVAL);
	cr_assert_eq(trace_number("-1", &n), -EINVAL);
	cr_assert_eq(trace_number("1 ", &n), -EINVAL);
	cr_assert_eq(trace_number("99999999999999999999", &n), -ERANGE);
	cr_assert_eq(trace_number("300000d", &n), -ERANGE);
	cr_assert_eq(n, 16);
}
