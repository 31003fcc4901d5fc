/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of the tracing language: the shape of trees, macros, directives and parameters. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "trace/calls.h"
#include "trace_dump.h"

static struct trace_script *parse(const char *text, const struct trace_parameters *p)
{
	struct trace_script *s = NULL;
	struct diag d = {};

	cr_assert_eq(trace_parse("", text, strlen(text), p, &d, &s), 0, "%s\n%s", text, d.text);
	return s;
}

/* The dump of a whole script. */
static void check_script(const char *text, const struct trace_parameters *p, const char *expected)
{
	_cleanup_trace_script_ struct trace_script *s = parse(text, p);
	_cleanup_str_ struct str dump = {};

	trace_script_dump(s, &dump);
	cr_assert_str_eq(str_get(&dump), expected, "%s\nbecame\n%s\nnot\n%s", text, str_get(&dump),
			 expected);
}

/* The dump of the statements of an action. */
static void check_action(const char *action, const char *expected)
{
	_cleanup_str_ struct str text = {}, dump = {};

	str_printf(&text, "BEGIN { %s }", action);
	str_printf(&dump, "BEGIN {%s}\n", expected);
	check_script(str_get(&text), NULL, str_get(&dump));
}

static void check_structs(const char *text, const char *expected)
{
	_cleanup_str_ struct str whole = {}, dump = {};
	_cleanup_trace_script_ struct trace_script *s = NULL;

	str_printf(&whole, "%s BEGIN { }", text);
	s = parse(str_get(&whole), NULL);
	trace_structs_dump(s, &dump);
	cr_assert_str_eq(str_get(&dump), expected, "%s\nbecame\n%s", text, str_get(&dump));
}

static const char *const pairs_literals[][2] = {
	{"12", "12"},
	{"0x1F", "31"},
	{"017", "15"},
	{"0b101", "5"},
	{"1_000_000", "1000000"},
	{"1e6", "1000000"},
	{"0", "0"},
	{"3UL", "3"},
	{"3ull", "3"},
	{"5ns", "5"},
	{"5us", "5000"},
	{"5ms", "5000000"},
	{"1s", "1000000000"},
	{"2m", "120000000000"},
	{"1h", "3600000000000"},
	{"1d", "86400000000000"},
	{"9223372036854775807", "9223372036854775807"},
	{"9223372036854775808", "9223372036854775808u"},
	{"18446744073709551615", "18446744073709551615u"},
	{"-9223372036854775808", "-9223372036854775808"},
	{"-5", "-5"},
	{"- -5", "5"},
	{"'a'", "97"},
	{"'\\n'", "10"},
	{"true", "true"},
	{"\"a\\n\\t\\\"\\\\\\x41\\101\\0z\"", "\"a\\x0a\\x09\\x22\\x5cAA\\x00z\""},
	{"\"\"", "\"\""},
	{"\"/* no comment */ // none\"", "\"/* no comment */ // none\""},
	{"\"#no directive\"", "\"#no directive\""},
};

static const char *const pairs_operators[][2] = {
	{"$a + $b * $c", "(+ $a (* $b $c))"},
	{"$a * $b + $c", "(+ (* $a $b) $c)"},
	{"$a - $b - $c", "(- (- $a $b) $c)"},
	{"$a / $b % $c", "(% (/ $a $b) $c)"},
	{"$a << $b + $c", "(<< $a (+ $b $c))"},
	{"$a < $b << $c", "(< $a (<< $b $c))"},
	{"$a == $b < $c", "(== $a (< $b $c))"},
	{"$a & $b == $c", "(& $a (== $b $c))"},
	{"$a ^ $b & $c", "(^ $a (& $b $c))"},
	{"$a | $b ^ $c", "(| $a (^ $b $c))"},
	{"$a && $b | $c", "(&& $a (| $b $c))"},
	{"$a || $b && $c", "(|| $a (&& $b $c))"},
	{"($a || $b) && $c", "(&& (|| $a $b) $c)"},
	{"$a ? $b : $c ? $d : $e", "(? $a $b (? $c $d $e))"},
	{"$a ? $b ? 1 : 2 : 3", "(? $a (? $b 1 2) 3)"},
	{"$a || $b ? 1 : 2", "(? (|| $a $b) 1 2)"},
	{"$a ?: $b", "(?: $a $b)"},
	{"$a ? : $b", "(?: $a $b)"},
	{"!$a == ~$b", "(== (! $a) (~ $b))"},
	{"-$a * $b", "(* (neg $a) $b)"},
	{"$a - -1", "(- $a -1)"},
	{"*$p + 1", "(+ (deref $p) 1)"},
	{"**$p", "(deref (deref $p))"},
	{"&$x", "(addr $x)"},
	{"&@m", "(addr @m)"},
	{"$a & $b", "(& $a $b)"},
	{"$x++ + ++$x", "(+ (post++ $x) (++ $x))"},
	{"@m[1]-- - --@m[1]", "(- (post-- (@m 1)) (-- (@m 1)))"},
	{"*$p.x", "(deref (.x $p))"},
	{"-$p->x", "(neg (->x $p))"},
	{"$p.x[1].y", "(.y ([] (.x $p) 1))"},
	{"$t.0.1", "(.1 (.0 $t))"},
	{"(1, \"a\")[0]", "([] (tuple 1 \"a\") 0)"},
};

static const char *const pairs_casts[][2] = {
	{"(uint8)$x + 1", "(+ (cast uint8 $x) 1)"},
	{"(uint64)-1", "(cast uint64 -1)"},
	{"(u64)*$p", "(cast u64 (deref $p))"},
	{"(struct sock *)arg0", "(cast struct sock* arg0)"},
	{"((struct sock *)arg0).x", "(.x (cast struct sock* arg0))"},
	{"(struct sock *)$a.b", "(cast struct sock* (.b $a))"},
	{"(struct a **)$x", "(cast struct a** $x)"},
	{"(const char *)$x", "(cast char* $x)"},
	{"(char const * const)$x", "(cast char* $x)"},
	{"(unsigned int)$x", "(cast uint32 $x)"},
	{"(long unsigned int)$x", "(cast uint64 $x)"},
	{"(unsigned)$x", "(cast uint32 $x)"},
	{"(short)$x", "(cast int16 $x)"},
	{"(uint8[4])$x", "(cast uint8[4] $x)"},
	{"(uint8[])$x", "(cast uint8[] $x)"},
	{"(int32[2][3])$x", "(cast int32[2][3] $x)"},
	{"(int32[4]*)$x", "(cast int32[4]* $x)"},
	{"(int32*[4])$x", "(cast int32*[4] $x)"},
	{"(string[64])$x", "(cast string[64] $x)"},
	{"(enum color)1", "(cast enum color 1)"},
	{"(typeof($y))$x", "(cast $y $x)"},
	{"(typeof(struct a)*)$x", "(cast struct a* $x)"},
	{"(pid) * 2", "(* pid 2)"},
	{"(arg0) - 1", "(- arg0 1)"},
	{"(nsecs) & 1", "(& nsecs 1)"},
	{"(myident)", "myident"},
	{"(a * b)", "(* a b)"},
	{"(a[1])", "([] a 1)"},
	{"sizeof(uint32)", "(sizeof uint32)"},
	{"sizeof(struct a *)", "(sizeof struct a*)"},
	{"sizeof(ident[1])", "(sizeof ident[1])"},
	{"sizeof((ident)[1])", "(sizeof ([] ident 1))"},
	{"sizeof($x)", "(sizeof $x)"},
	{"sizeof(args.x)", "(sizeof (.x args))"},
	{"offsetof(struct a, b.c)", "(offsetof b.c struct a)"},
	{"offsetof(*$p, b)", "(offsetof b (deref $p))"},
	{"typeinfo($x).base_type", "(.base_type (typeinfo $x))"},
};

static const char *const pairs_values[][2] = {
	{"@", "@"},
	{"@[1]", "(@ 1)"},
	{"@a[pid, comm]", "(@a pid comm)"},
	{"@a[(pid, comm)]", "(@a pid comm)"},
	{"@a[$key]", "(@a $key)"},
	{"@a[1][2]", "([] (@a 1) 2)"},
	{"()", "(tuple)"},
	{"(1,)", "(tuple 1)"},
	{"(1, (2, 3))", "(tuple 1 (tuple 2 3))"},
	{"(a=1, b=\"x\")", "(tuple a=1 b=\"x\")"},
	{"f()", "(f)"},
	{"f(1, @x, g(2))", "(f 1 @x (g 2))"},
	{"delete(@x[1])", "(delete (@x 1))"},
	{"kstack(perf, 3)", "(kstack perf 3)"},
	{"args->x", "(->x args)"},
	{"$v = if $a { 1 } else { 2 }", "(= $v (if $a {1} {2}))"},
	{"$v = if ($a) { 1 } else if $b { 2 } else { 3 }", "(= $v (if $a {1} {(if $b {2} {3})}))"},
	{"$v = { $a = 1; $a + 1 }", "(= $v (do {(= $a 1); (+ $a 1)}))"},
	{"$v = { if $a { 1 } else { { 2 } } }", "(= $v (do {(if $a {1} {(do {2})})}))"},
	{"comptime (is_map(@x))", "comptime:(is_map @x)"},
	{"$#", "0"},
};

static const char *const pairs_statements[][2] = {
	{"", ""},
	{";;", ""},
	{"f(); g()", "(f); (g)"},
	{"$x = 1;", "(= $x 1)"},
	{"@x[1] = count()", "(= (@x 1) (count))"},
	{"@ = hist(1);", "(= @ (hist 1))"},
	{"$x += 1; $x -= 1; $x *= 1; $x /= 1; $x %= 1;",
	 "(+= $x 1); (-= $x 1); (*= $x 1); (/= $x 1); (%= $x 1)"},
	{"$x &= 1; $x |= 1; $x ^= 1; $x <<= 1; @x >>= 1;",
	 "(&= $x 1); (|= $x 1); (^= $x 1); (<<= $x 1); (>>= @x 1)"},
	{"$x++; --@y", "(post++ $x); (-- @y)"},
	{"_ = has_key(@x, 1);", "(has_key @x 1)"},
	{"let $x; let $y: uint8; let $z: struct a * = 1; let $w = 2",
	 "(let $x); (let $y :uint8); (let $z 1 :struct a*); (let $w 2)"},
	{"if ($a) { f() }", "(if $a {(f)})"},
	{"if $a { f() } g()", "(if $a {(f)}); (g)"},
	{"if ($a) { } else if ($b) { 1 } else { 2 }", "(if $a {} {(if $b {1} {2})})"},
	{"if ($a == 1 && ($b)) { }", "(if (&& (== $a 1) $b) {})"},
	{"unroll (3) { f() } unroll 2 { }", "(unroll 3 {(f)}); (unroll 2 {})"},
	{"while ($x < 5) { $x++; }", "(while (< $x 5) {(post++ $x)})"},
	{"for ($kv : @m) { break; continue }", "(for $kv @m {(break); (continue)})"},
	{"for $kv : @m { }", "(for $kv @m {})"},
	{"for ($i : 0..10) { }", "(range $i 0 10 {})"},
	{"for $i : ((uint64)0)..((uint64)$n) { }",
	 "(range $i (cast uint64 0) (cast uint64 $n) {})"},
	{"for $i : 0..ncpus + 1 { }", "(range $i 0 (+ ncpus 1) {})"},
	{"return; return 1", "(return); (return 1)"},
	{"{ f() } { }", "(block {(f)}); (block {})"},
	{"f(/* a */ 1) // x\n", "(f 1)"},
	{"$x = 5 / 2 / 1", "(= $x (/ (/ 5 2) 1))"},
};

static void check_pairs(const char *const (*pairs)[2], size_t n)
{
	for (size_t i = 0; i < n; i++) {
		check_action(pairs[i][0], pairs[i][1]);
	}
}

Test(trace_parse, literals)
{
	check_pairs(pairs_literals, ARRAY_SIZE(pairs_literals));
}

Test(trace_parse, operators)
{
	check_pairs(pairs_operators, ARRAY_SIZE(pairs_operators));
}

Test(trace_parse, casts_and_types)
{
	check_pairs(pairs_casts, ARRAY_SIZE(pairs_casts));
}

Test(trace_parse, values)
{
	check_pairs(pairs_values, ARRAY_SIZE(pairs_values));
}

Test(trace_parse, statements)
{
	check_pairs(pairs_statements, ARRAY_SIZE(pairs_statements));
}

Test(trace_parse, points)
{
	static const char *const pairs[][2] = {
		{"BEGIN", "BEGIN"},
		{"begin", "BEGIN"},
		{"end", "END"},
		{"k:vfs_*", "kprobe|vfs_*"},
		{"kr:f", "kretprobe|f"},
		{"kprobe:f+0x10", "kprobe|f+0x10"},
		{"kprobe:0xffffffff81000000", "kprobe|0xffffffff81000000"},
		{"f:vmlinux:tcp_*", "fentry|vmlinux|tcp_*"},
		{"kretfunc:x", "fexit|x"},
		{"fr:x", "fexit|x"},
		{"t:sched:sched_switch", "tracepoint|sched|sched_switch"},
		{"rt:sched_switch", "rawtracepoint|sched_switch"},
		{"u:/bin/bash:readline", "uprobe|/bin/bash|readline"},
		{"ur:./a.out:main.f", "uretprobe|./a.out|main.f"},
		{"uprobe:/bin/a:\"main.(*T).f{1},2\"", "uprobe|/bin/a|main.(*T).f{1},2"},
		{"uprobe:/bin/a:main.(*T).f", "uprobe|/bin/a|main.(*T).f"},
		{"uprobe:/bin/a:\"f\"+8", "uprobe|/bin/a|f+8"},
		{"uprobe:/a:cpp:\"A::b\"", "uprobe|/a|cpp|A::b"},
		{"uprobe:\"/with space:x\":f", "uprobe|/with space:x|f"},
		{"uprobe:/bin/a:0x1234", "uprobe|/bin/a|0x1234"},
		{"U:/a:p:n", "usdt|/a|p|n"},
		{"usdt:libc:n", "usdt|libc|n"},
		{"p:hz:99", "profile|hz|99"},
		{"i:s:1", "interval|s|1"},
		{"interval:1s", "interval|1s"},
		{"h:cache-misses:1e6", "hardware|cache-misses|1e6"},
		{"hardware:cache-misses:", "hardware|cache-misses"},
		{"s:faults:100", "software|faults|100"},
		{"w:0x1000:8:rw", "watchpoint|0x1000|8|rw"},
		{"it:task", "iter|task"},
		{"iter:task_file:/sys/fs/bpf/x", "iter|task_file|/sys/fs/bpf/x"},
		{"self:signal:SIGUSR1", "self|signal|SIGUSR1"},
		{"k:a,k:b, k:c\n,\nk:d", "kprobe|a, kprobe|b, kprobe|c, kprobe|d"},
		{"name=k:a", "kprobe|a"},
		{"k:a /* x */ // y\n", "kprobe|a"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		_cleanup_str_ struct str text = {}, spaced = {}, expected = {};

		str_printf(&text, "%s{ }", pairs[i][0]);
		str_printf(&spaced, "\n %s\n{ }", pairs[i][0]);
		str_printf(&expected, "%s {}\n", pairs[i][1]);
		check_script(str_get(&text), NULL, str_get(&expected));
		check_script(str_get(&spaced), NULL, str_get(&expected));
	}
}

Test(trace_parse, predicates)
{
	static const char *const pairs[][2] = {
		{"k:f /pid == 1/ { }", "kprobe|f /(== pid 1)/ {}\n"},
		{"k:f/pid == 1/{ }", "kprobe|f /(== pid 1)/ {}\n"},
		{"BEGIN/1/{ }", "BEGIN /1/ {}\n"},
		{"k:f /arg0 / 2 / 3 == 1/ { }", "kprobe|f /(== (/ (/ arg0 2) 3) 1)/ {}\n"},
		{"k:f /(arg0 / 2) == @x[1/1]/ { }", "kprobe|f /(== (/ arg0 2) (@x (/ 1 1)))/ {}\n"},
		{"k:f /@x/ { }", "kprobe|f /@x/ {}\n"},
		{"k:f /arg0 ? 1 : 2/ // c\n { }", "kprobe|f /(? arg0 1 2)/ {}\n"},
		{"u:/bin/bash:f\n/comm == \"a/b\"/\n{ }",
		 "uprobe|/bin/bash|f /(== comm \"a/b\")/ {}\n"},
		{"k:f\n/@s[tid] && !@t/ { } k:g { }",
		 "kprobe|f /(&& (@s tid) (! @t))/ {}\nkprobe|g {}\n"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		check_script(pairs[i][0], NULL, pairs[i][1]);
}

Test(trace_parse, structs)
{
	check_structs("struct a { int x; unsigned long y; char c[16]; struct b *p; } ",
		      "struct a {int32 x; uint64 y; char[16] c; struct b* p}\n");
	check_structs("struct a { int a, *b, c[2]; int *d, e; };",
		      "struct a {int32 a; int32* b; int32[2] c; int32* d; int32 e}\n");
	check_structs("union u { u32 a : 3, b : 5; const void *c; };",
		      "union u {u32 a:3; u32 b:5; void* c}\n");
	/* int a[2][3]: two of three. */
	check_structs("struct a { int m[2][3]; };", "struct a {int32[3][2] m}\n");
	check_structs("struct a { int (*f)(int, void (*)(int)); int x; };",
		      "struct a {void* f; int32 x}\n");
	check_structs("struct a { union { int x; struct { int y; } z; }; struct i { int q; } r; };",
		      "struct (at 1:27) {int32 y}\n"
		      "union (at 1:12) {int32 x; struct (at 1:27) z}\n"
		      "struct i {int32 q}\n"
		      "struct a {union (at 1:12) ; struct i r}\n");
	check_structs("struct a { char c; int x } __attribute__((packed)); struct __attribute__ "
		      "((packed)) b { int y; };",
		      "packed struct a {char c; int32 x}\npacked struct b {int32 y}\n");
	check_structs("enum e { A, B = 5, C, D = -1, E = 1 << 4 };",
		      "enum e {A=0; B=5; C=6; D=-1; E=16}\n");
	check_structs("struct a; struct b { struct a *p; }", "struct b {struct a* p}\n");
}

Test(trace_parse, directives)
{
	static const char *const pairs[][2] = {
		{"#!/usr/bin/env bpftrace\nBEGIN { f() }", "BEGIN {(f)}\n"},
		{"#include <linux/sched.h>\nBEGIN { }", "BEGIN {}\n"},
		{"#define A 1 + 2\nBEGIN { A * A }", "BEGIN {(* (+ 1 2) (+ 1 2))}\n"},
		{"#define A B\n#define B \"x\" // c\nBEGIN { f(A) }", "BEGIN {(f \"x\")}\n"},
		{"#define A 1\n#undef A\nBEGIN { A }", "BEGIN {A}\n"},
		{"#define A 1\n#define A 2\nBEGIN { A; $x.A; @A; $A }",
		 "BEGIN {2; (.A $x); @A; $A}\n"},
		{"#define A 1 + \\\n 2\nBEGIN { A }", "BEGIN {(+ 1 2)}\n"},
		{"#define N 4\nBEGIN { (uint8[N])$x; sizeof(N) }",
		 "BEGIN {(cast uint8[4] $x); (sizeof 4)}\n"},
		/* Of headers that nobody reads; the script's own come first. */
		{"#include <sys/socket.h>\nBEGIN { f(AF_INET, EPERM, O_WRONLY) }",
		 "BEGIN {(f 2 1 1)}\n"},
		{"#define AF_INET 5\nenum e { EPERM = 7 };\nBEGIN { f(AF_INET, EPERM) }",
		 "BEGIN {(f 5 EPERM)}\n"},
		{"macro m(AF_INET) { AF_INET } BEGIN { f(m(1)) }", "BEGIN {(f 1)}\n"},
		{"#ifdef X\n}}}\n#else\nBEGIN { 1 }\n#endif", "BEGIN {1}\n"},
		{"#ifndef BPFTRACE_HAVE_BTF\n}}}\n#elif defined(X)\n}\n#else\nBEGIN { 1 }\n#endif",
		 "BEGIN {1}\n"},
		{"#if 0\n#if 1\n}\n#else\n}\n#endif\n#elif 1\nBEGIN { 1 }\n#else\n}\n#endif",
		 "BEGIN {1}\n"},
		{"#if defined X || defined(BPFTRACE_HAVE_BTF) && !0\nBEGIN { 1 }\n#endif",
		 "BEGIN {1}\n"},
		{"#define V 0\n#if V\n}\n#endif\nBEGIN { }", "BEGIN {}\n"},
		{"/*\n#if 0\n*/\nBEGIN { }", "BEGIN {}\n"},
		{"#define A 1 /* a\n comment */\nBEGIN { A }", "BEGIN {1}\n"},
		{"BEGIN {\n#ifdef X\n}\n#endif\nf() }", "BEGIN {(f)}\n"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		check_script(pairs[i][0], NULL, pairs[i][1]);
	}
}

Test(trace_parse, macros)
{
	static const char *const pairs[][2] = {
		{"macro one() { 1 } BEGIN { f(one()); f(one); one; }",
		 "BEGIN {(f 1); (f 1); (block {1})}\n"},
		{"macro hi { print(1); } BEGIN { hi!(); hi(); }",
		 "BEGIN {(block {(print 1)}); (block {(print 1)})}\n"},
		{"macro add(x) { x + 1 } BEGIN { add(2) * 3 }", "BEGIN {(* (+ 2 1) 3)}\n"},
		/* The caller's $x is not the macro's. */
		{"macro m(x) { $x = x; $x + 1 } BEGIN { $x = 5; $y = m($x); }",
		 "BEGIN {(= $x 5); (= $y (do {(= $x'1 $x); (+ $x'1 1)}))}\n"},
		{"macro m($a, @b) { $a += 1; @b[1] += 2; $c = 3 } BEGIN { m($q, @r); }",
		 "BEGIN {(block {(+= $q 1); (+= (@r 1) 2); (= $c'1 3)})}\n"},
		{"macro two(x) { one(x) + one(x) } macro one(x) { x + 1 } BEGIN { two(5) }",
		 "BEGIN {(block {(+ (+ 5 1) (+ 5 1))})}\n"},
		/* A name in an argument is not taken for a parameter of the macro. */
		{"macro m(a, b) { a + b } BEGIN { f(m(b, 1)) }", "BEGIN {(f (+ b 1))}\n"},
		{"macro m(x) { x } macro m(x, y) { y } BEGIN { f(m(1), m(1, 2)) }",
		 "BEGIN {(f 1 2)}\n"},
		{"macro m(x) { f(x) } macro m(@x) { g(@x) } BEGIN { m(1); m(@a); m(@a[1]) }",
		 "BEGIN {(block {(f 1)}); (block {(g @a)}); (block {(f (@a 1))})}\n"},
		{"macro c(t, x) { (t*)x } BEGIN { $y = c(typeof(uint8), 1) }",
		 "BEGIN {(= $y (cast uint8* 1))}\n"},
		{"macro s(x) { sizeof(x) } BEGIN { f(s($y), s(typeof(struct a))) }",
		 "BEGIN {(f (sizeof $y) (sizeof struct a))}\n"},
		{"macro p(x) { (x) - 1 } BEGIN { f(p(3)) }", "BEGIN {(f (- 3 1))}\n"},
		{"macro b() { if $x { 1 } else { 2 } } BEGIN { $y = b }",
		 "BEGIN {(= $y (if $x'1 {1} {2}))}\n"},
		{"macro b() { if 1 { f() } else { g() } } macro f() { 1 } macro g() { 2 } "
		 "BEGIN { $y = b }",
		 "BEGIN {(= $y (if 1 {(do {1})} {(do {2})}))}\n"},
		{"macro e(x) { x; x } BEGIN { e({ f() }) }",
		 "BEGIN {(block {(do {(f)}); (do {(f)})})}\n"},
		/* A builtin keeps its meaning where no macro of its name fits. */
		{"macro comm($p) { 1 } BEGIN { comm; comm() }", "BEGIN {comm; (comm)}\n"},
		{"macro lim() { 5 } k:f /arg0 > lim/ { for $i : 0..lim { } }",
		 "kprobe|f /(> arg0 5)/ {(range $i 0 5 {})}\n"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		check_script(pairs[i][0], NULL, pairs[i][1]);
}

Test(trace_parse, parameters)
{
	static const char *const values[] = {"42", "hello", "-3", "5ms", "/bin/a"};
	static const struct trace_parameters p = {.values = values, .n = ARRAY_SIZE(values)};

	check_script("BEGIN { f($1, $2, $3, $4, $9, $#) }", &p,
		     "BEGIN {(f 42 \"hello\" -3 5000000 0 5)}\n");
	check_script("BEGIN { f(str($1), str($2), str($2 + 1), str($9), str($2 + 9)) }", &p,
		     "BEGIN {(f (str \"42\") (str \"hello\") (str \"ello\") (str \"\") (str (+ "
		     "\"hello\" 9)))}\n");
	check_script("uprobe:$5:f_$1 /pid == $1/ { }", &p, "uprobe|/bin/a|f_42 /(== pid 42)/ {}\n");
	check_script("i:s:1 { f($1) }", NULL, "interval|s|1 {(f 0)}\n");
	check_script("i:s:1 { str($1) }", NULL, "interval|s|1 {(str \"\")}\n");
}

Test(trace_parse, options)
{
	static const char *const given[] = {"--depth=3", "--all", "--name=x y", "--neg=-5",
					    "--off=false"};
	static const struct trace_parameters p = {.options = given, .n_options = ARRAY_SIZE(given)};
	static const char script[] =
		"macro all() { getopt(\"all\", false, \"everything\") }\n"
		"BEGIN { f(getopt(\"depth\", 35, \"how deep\"), all, getopt(\"name\", \"n\"), "
		"getopt(\"neg\", 1), getopt(\"off\", true), getopt(\"flag\")) }";
	static const char other[] = "BEGIN { getopt(\"deep\", 1) }";
	static const char wrong[] = "BEGIN { getopt(\"all\", 1) }";
	struct trace_script *s = NULL;
	struct diag d = {};

	check_script(script, &p, "BEGIN {(f 3 true \"x y\" -5 false false)}\n");
	check_script(script, NULL, "BEGIN {(f 35 false \"n\" 1 true false)}\n");
	cr_assert_eq(trace_parse("", other, strlen(other), &p, &d, &s), -EINVAL);
	cr_assert_str_eq(d.text, "the script has no option --depth=3; it has deep");
	d.text[0] = '\0';
	cr_assert_eq(trace_parse("", wrong, strlen(wrong), &p, &d, &s), -EINVAL);
	cr_assert_str_eq(d.text,
			 "1:23: option --all is a number, not empty: write --option=NUMBER");
}

Test(trace_parse, settings_and_maps)
{
	_cleanup_trace_script_ struct trace_script *s = parse(
		"config = { BPFTRACE_Missing_PROBES = ignore; max_map_keys=1e3; license = \"GPL\" }\n"
		"let @a = lruhash(100); let @b = hash(2 * 4);\nBEGIN { }",
		NULL);

	cr_assert_eq(s->settings.n, 3);
	cr_assert_str_eq(s->settings.data[0].name, "missing_probes");
	cr_assert_str_eq(s->settings.data[0].value.data, "ignore");
	cr_assert_str_eq(s->settings.data[1].value.data, "1000");
	cr_assert_str_eq(s->settings.data[2].value.data, "GPL");
	cr_assert_eq(s->maps.n, 2);
	cr_assert_str_eq(s->maps.data[0].name, "a");
	cr_assert_str_eq(s->maps.data[0].type, "lruhash");
	cr_assert_eq(s->maps.data[0].max_entries, 100);
	cr_assert_eq(s->maps.data[1].max_entries, 8);
}

Test(trace_parse, places)
{
	_cleanup_trace_script_ struct trace_script *s =
		parse("#define A 1\n/* x\n */ BEGIN\n{\n\t$x = A + foo;\n}", NULL);
	const struct trace_statement *statement = s->probes.data[0].body->first;

	cr_assert_eq(s->probes.data[0].at.line, 3);
	cr_assert_eq(s->probes.data[0].at.column, 5);
	cr_assert_eq(statement->at.line, 5);
	cr_assert_eq(statement->at.column, 2);
	cr_assert_eq(statement->value->at.column, 9); /* the + */
	cr_assert_eq(statement->value->b->at.column, 11);
}

/* doc/trace.md has each builtin and function of the language, in backquotes. */
Test(trace_parse, documented)
{
	_cleanup_str_ struct str path = {}, text = {};

	str_printf(&path, "%s/doc/trace.md", getenv("CULPRIT_SOURCE"));
	cr_assert_eq(io_read(str_get(&path), 1 << 20, &text), 0, "%s", str_get(&path));
	for (const struct call *f = trace_calls; f->name; f++) {
		_cleanup_str_ struct str quoted = {};
		const char *at = str_get(&text);
		bool found = false;

		/* `arg0` to `arg9` are two names there. */
		if (strpbrk(f->name, "12345678"))
			continue;
		str_printf(&quoted, "`%s", f->name);
		while (!found && (at = strstr(at, quoted.data))) {
			at += quoted.n;
			found = strchr("`([", *at) != NULL;
		}
		cr_expect(found, "doc/trace.md does not have %s", f->name);
	}
}
