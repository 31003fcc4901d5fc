/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of records of system calls, percentiles, and the choice of calls. */
#include <asm/unistd.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "agent/syscalls/internal.h"
#include "base/cleanup.h"

static struct syscalls_table *table;

static void begin(void)
{
	cr_assert(eq(int, syscalls_table_create(&table), 0));
}

static void end(void)
{
	syscalls_table_destroy(table);
}

TestSuite(syscalls, .init = begin, .fini = end);

static struct syscalls_call call_of(u32 slot, s64 result)
{
	return (struct syscalls_call){.pid = 7,
				      .tid = 8,
				      .slot = slot,
				      .nr = slot,
				      .result = result,
				      .begin_ns = 1000,
				      .end_ns = 13000,
				      .comm = "program"};
}

static void set_piece(struct syscalls_call *c, u32 i, const void *bytes, size_t n)
{
	c->n = i + 1;
	c->pieces[i].n = (s32)n;
	memcpy(c->pieces[i].bytes, bytes, n);
}

static void expect_line(const struct syscalls_call *c, const char *line)
{
	_cleanup_str_ struct str out = {};

	syscalls_print_text(table, c, false, &out);
	cr_assert(eq(str, (char *)str_get(&out), (char *)line));
}

Test(syscalls, prints_a_call)
{
	struct syscalls_call c = call_of(__NR_openat, 3);

	c.args[0] = (u64)AT_FDCWD;
	c.args[1] = 0x1000;
	c.args[2] = O_RDONLY | O_CLOEXEC;
	set_piece(&c, 0, "/etc/passwd", 12);
	expect_line(&c, "[pid 8] openat(AT_FDCWD, \"/etc/passwd\", O_RDONLY|O_CLOEXEC) = 3 "
			"<0.000012>\n");
}

Test(syscalls, prints_an_error_and_the_mode_of_a_new_file)
{
	struct syscalls_call c = call_of(__NR_openat, -ENOENT);

	c.args[0] = 5;
	c.args[1] = 0x1000;
	c.args[2] = O_WRONLY | O_CREAT;
	c.args[3] = 0644;
	set_piece(&c, 0, "a\tb\"", 5);
	expect_line(&c, "[pid 8] openat(5, \"a\\tb\\\"\", O_WRONLY|O_CREAT, 0644) = -1 ENOENT (No "
			"such file or directory) <0.000012>\n");
}

Test(syscalls, shows_the_address_of_what_was_not_read)
{
	struct syscalls_call c = call_of(__NR_openat, -EFAULT);

	c.args[1] = 0x1000;
	c.n = 1;
	c.pieces[0].n = -1;
	expect_line(&c, "[pid 8] openat(0, 0x1000, O_RDONLY) = -1 EFAULT (Bad address) "
			"<0.000012>\n");
}

Test(syscalls, marks_what_is_longer)
{
	struct syscalls_call c = call_of(__NR_write, 100);
	char bytes[SYSCALLS_DATA];

	memset(bytes, 'x', sizeof(bytes));
	c.args[0] = 1;
	c.args[2] = 100;
	set_piece(&c, 0, bytes, sizeof(bytes));
	expect_line(&c, "[pid 8] write(1, \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"..., 100) = 100 "
			"<0.000012>\n");
}

Test(syscalls, does_not_show_a_buffer_that_was_not_filled)
{
	struct syscalls_call c = call_of(__NR_read, -EAGAIN);

	c.args[1] = 0x2000;
	c.args[2] = 10;
	set_piece(&c, 0, "old bytes!", 10);
	expect_line(&c, "[pid 8] read(0, 0x2000, 10) = -1 EAGAIN (Resource temporarily "
			"unavailable) <0.000012>\n");
	c.flags = SYSCALLS_NO_END;
	expect_line(&c, "[pid 8] read(0, 0x2000, 10 <unfinished ...>\n");
}

Test(syscalls, tells_a_restart_and_an_unknown_begin)
{
	struct syscalls_call c = call_of(__NR_read, -512);

	expect_line(&c, "[pid 8] read(0, NULL, 0) = ? ERESTARTSYS (To be restarted if SA_RESTART "
			"is set) <0.000012>\n");
	c.result = 0;
	c.flags = SYSCALLS_NO_BEGIN;
	expect_line(&c, "[pid 8] read(0, NULL, 0) = 0 <?>\n");
}

Test(syscalls, does_not_name_calls_of_other_tables)
{
	struct syscalls_call c = call_of(SYSCALLS_COMPAT, 1);
	_cleanup_str_ struct str out = {};

	c.nr = __NR_read;
	syscalls_print_text(table, &c, false, &out);
	cr_assert_not_null(strstr(str_get(&out), "syscall32_"));
	cr_assert_null(strstr(str_get(&out), "read"));
}

Test(syscalls, chooses_calls)
{
	struct diag d = {};

	cr_assert(eq(int, syscalls_table_choose(table, "read,%network", &d), 0));
	cr_assert(syscalls_table_plan(table, __NR_read)->wanted);
	cr_assert(syscalls_table_plan(table, __NR_connect)->wanted);
	cr_assert_not(syscalls_table_plan(table, __NR_openat)->wanted);
	cr_assert(eq(int, syscalls_table_choose(table, NULL, &d), 0));
	cr_assert(syscalls_table_plan(table, SYSCALLS_COMPAT)->wanted);
	cr_assert(eq(int, syscalls_table_choose(table, "reed", &d), -EINVAL));
	cr_assert_not_null(strstr(d.text, "read"));
}

/* A duration is in the bucket that begins at or before it, within a quarter of a doubling. */
Test(syscalls, percentiles_are_within_a_bucket)
{
	for (u64 ns = 64; ns < 1ULL << 37; ns += ns / 7 + 1) {
		struct syscalls_stats s = {.calls = 1, .min_ns = 64, .max_ns = ~0ULL};
		u64 p;

		s.buckets[syscalls_bucket(ns)] = 1;
		p = syscalls_percentile(&s, 1);
		cr_assert(p >= ns && p <= ns + ns / 4 + 1, "%llu is shown as %llu", ns, p);
		p = syscalls_percentile(&s, 0);
		cr_assert(p <= ns && p + ns / 4 + 1 >= ns, "%llu is shown as %llu", ns, p);
	}
}

Test(syscalls, percentiles_of_many)
{
	struct syscalls_stats s = {.calls = 100, .min_ns = 1000, .max_ns = 1000000};

	s.buckets[syscalls_bucket(1000)] = 97;
	s.buckets[syscalls_bucket(1000000)] = 3;
	cr_assert(syscalls_percentile(&s, 0.95) < 1300);
	cr_assert(syscalls_percentile(&s, 0.99) > 900000);
	cr_assert(syscalls_percentile(&s, 1) <= 1000000);
}

Test(syscalls, adds_what_cpus_have_counted)
{
	struct syscalls_stats sum = {}, a = {.calls = 1, .min_ns = 5, .max_ns = 5, .total_ns = 5},
			      none = {};

	syscalls_add_stats(&sum, &none);
	syscalls_add_stats(&sum, &a);
	a.min_ns = a.max_ns = a.total_ns = 9;
	a.errors = 1;
	syscalls_add_stats(&sum, &a);
	cr_assert(sum.calls == 2 && sum.errors == 1 && sum.min_ns == 5);
	cr_assert(sum.max_ns == 9 && sum.total_ns == 14);
}
