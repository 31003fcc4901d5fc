/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What maps and records of a script look like. The texts are those of bpftrace, whose tests and
 * documents say them.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "profile/profile.h"
#include "trace/trace.h"

static const struct trace_type type_int = {.kind = TRACE_INT, .bytes = 8, .is_signed = true};
static const struct trace_type type_u64 = {.kind = TRACE_INT, .bytes = 8};
static const struct trace_type type_s32 = {.kind = TRACE_INT, .bytes = 4, .is_signed = true};
static const struct trace_type type_string = {.kind = TRACE_STRING, .bytes = 16};
static const struct trace_type type_buffer = {.kind = TRACE_BUFFER, .bytes = 16};
static const struct trace_type type_count = {.kind = TRACE_COUNT};

/* A program and its printer, with one of everything. */
struct fixture {
	struct trace_program program;
	struct trace_printer printer;
	struct trace_map maps[1];
	struct trace_print prints[1];
	struct trace_format formats[1];
	struct trace_text texts[2], errors[1];
	struct trace_compiled probes[1];
	struct str out, err;
};

static void fixture_init(struct fixture *f)
{
	*f = (struct fixture){.printer = {.cpus = 1}};
	f->printer.program = &f->program;
	f->texts[0] = (struct trace_text){"%H:%M:%S", 8};
	f->texts[1] = (struct trace_text){", ", 2};
	f->errors[0] = (struct trace_text){"1:5: probe_read_user", 20};
	f->probes[0] = (struct trace_compiled){.name = (char *)"kprobe:vfs_read"};
#define SET(member)                                                                                \
	f->program.member.data = f->member;                                                        \
	f->program.member.n = sizeof(f->member) / sizeof(f->member[0])
	SET(maps);
	SET(prints);
	SET(formats);
	SET(texts);
	SET(errors);
	SET(probes);
	f->program.join_bytes = 8;
}

static void fixture_deinit(struct fixture *f)
{
	str_deinit(&f->out);
	str_deinit(&f->err);
}
#define _cleanup_fixture_ __attribute__((cleanup(fixture_deinit)))

/* ---- maps ---- */

static void set_map(struct fixture *f, const struct trace_type *key, const struct trace_type *value)
{
	u32 key_bytes = key ? trace_type_room(key) : 4;

	f->maps[0] = (struct trace_map){.name = "x",
					.value = *value,
					.key_bytes = key_bytes,
					.value_bytes = trace_type_room(value),
					.per_cpu = value->kind >= TRACE_COUNT,
					.is_scalar = !key};
	if (key)
		f->maps[0].key = *key;
}

static const char *show(struct fixture *f, const void *keys, const void *values, size_t n,
			const struct trace_print *print)
{
	struct trace_entries e = {.keys = keys, .values = values, .n = n};

	str_clear(&f->out);
	cr_assert_eq(trace_print_map(&f->printer, 0, &e, print, &f->out), 0);
	return str_get(&f->out);
}

/* A scalar map with this value. */
static const char *scalar(struct fixture *f, const struct trace_type *t, const void *value,
			  const struct trace_print *print)
{
	static const u8 key[4];

	set_map(f, NULL, t);
	return show(f, key, value, value ? 1 : 0, print);
}

Test(trace_print, scalars)
{
	_cleanup_fixture_ struct fixture f;
	struct trace_type string = type_string, u = {.kind = TRACE_SUM};
	char full[16] = "0123456789abcdef";

	fixture_init(&f);
	cr_assert_str_eq(scalar(&f, &type_int, &(s64){-5}, NULL), "@x: -5\n");
	cr_assert_str_eq(scalar(&f, &type_u64, &(s64){-1}, NULL), "@x: 18446744073709551615\n");
	cr_assert_str_eq(scalar(&f, &u, &(u64){7}, NULL), "@x: 7\n");
	cr_assert_str_eq(scalar(&f, &string, "abc\0\0\0\0\0\0\0\0\0\0\0\0", NULL), "@x: abc\n");
	/* A text without its NUL was cut. */
	cr_assert_str_eq(scalar(&f, &string, full, NULL), "@x: 0123456789abcdef..\n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_BOOL}, &(u64){1}, NULL),
			 "@x: true\n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_POINTER}, &(u64){255}, NULL),
			 "@x: 0xff\n");
	/* At the end, what was never set is not shown; print() shows 0. */
	cr_assert_str_eq(scalar(&f, &type_int, NULL, NULL), "");
	cr_assert_str_eq(scalar(&f, &type_int, NULL, &(struct trace_print){}), "@x: 0\n");
	cr_assert_str_eq(scalar(&f, &type_int, &(s64){1000}, &(struct trace_print){.divisor = 8}),
			 "@x: 125\n");
}

Test(trace_print, names)
{
	_cleanup_fixture_ struct fixture f;
	struct {
		u64 family;
		u8 address[16];
	} inet = {AF_INET, {127, 0, 0, 1}}, inet6 = {AF_INET6, {[15] = 1}};

	fixture_init(&f);
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_INET}, &inet, NULL),
			 "@x: 127.0.0.1\n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_INET}, &inet6, NULL),
			 "@x: ::1\n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_MAC},
				(u8[8]){0, 0x1a, 0xff, 3, 4, 5}, NULL),
			 "@x: 00:1A:FF:03:04:05\n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_USERNAME}, &(u64){0}, NULL),
			 "@x: root\n");
	cr_assert_str_eq(
		scalar(&f, &(struct trace_type){.kind = TRACE_USERNAME}, &(u64){4000000000}, NULL),
		"@x: \n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_ERROR}, &(u64){7}, NULL),
			 "@x: Argument list too long\n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_SIGNAL}, &(u64){11}, NULL),
			 "@x: SIGSEGV\n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_SIGNAL}, &(s64){-1}, NULL),
			 "@x: -1\n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_SYSCALL}, &(u64){7}, NULL),
			 "@x: 7\n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_PROBE}, &(u64){0}, NULL),
			 "@x: kprobe:vfs_read\n");
	/* Damage prints nothing. */
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_PROBE}, &(u64){9}, NULL),
			 "@x: \n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_TIME}, (u64[]){5, 7}, NULL),
			 "@x: \n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_KSYM}, &(u64){4096}, NULL),
			 "@x: 0x1000\n");
}

Test(trace_print, times)
{
	_cleanup_fixture_ struct fixture f;
	struct trace_type t = {.kind = TRACE_TIME};

	setenv("TZ", "UTC", 1);
	fixture_init(&f);
	f.printer.boot_ns = 1700000000ULL * 1000000000;
	cr_assert_str_eq(scalar(&f, &t, (u64[]){5000000000, 0}, NULL), "@x: 22:13:25\n");
	f.texts[0] = (struct trace_text){"%M.%f %l %k %%f", 15};
	cr_assert_str_eq(scalar(&f, &t, (u64[]){5001002003, 0}, NULL),
			 "@x: 13.001002 001 001002003 %f\n");
}

Test(trace_print, keys_are_sorted_by_value)
{
	_cleanup_fixture_ struct fixture f;
	const struct trace_type *fields[] = {&type_int, &type_string};
	struct trace_type key = {.kind = TRACE_TUPLE, .n = 2, .fields = fields};
	struct {
		s64 a;
		char b[16];
	} keys[] = {{1, "one"}, {2, "two"}, {-3, "three"}, {0, "zero"}};
	s64 values[] = {30, -1, 20, 20};

	fixture_init(&f);
	set_map(&f, &key, &type_int);
	cr_assert_str_eq(show(&f, keys, values, 4, NULL), "@x[2, two]: -1\n"
							  "@x[-3, three]: 20\n"
							  "@x[0, zero]: 20\n"
							  "@x[1, one]: 30\n");
	cr_assert_str_eq(show(&f, keys, values, 4, &(struct trace_print){.top = 2}),
			 "@x[0, zero]: 20\n@x[1, one]: 30\n");
	cr_assert_str_eq(show(&f, keys, values, 4, &(struct trace_print){.top = 9, .divisor = 10}),
			 "@x[2, two]: 0\n@x[-3, three]: 2\n@x[0, zero]: 2\n@x[1, one]: 3\n");
	cr_assert_str_eq(show(&f, keys, values, 0, NULL), "");
	/* As unsigned numbers, -1 is the largest. */
	set_map(&f, &key, &type_u64);
	cr_assert(str_ends(show(&f, keys, values, 4, NULL), "@x[2, two]: 18446744073709551615\n"));
	/* Values that are no numbers: by key. */
	set_map(&f, &key, &(struct trace_type){.kind = TRACE_BOOL});
	cr_assert_str_eq(show(&f, keys, values, 4, NULL),
			 "@x[-3, three]: true\n@x[0, zero]: true\n@x[1, one]: true\n"
			 "@x[2, two]: true\n");
}

Test(trace_print, cpus_are_added_up)
{
	_cleanup_fixture_ struct fixture f;
	struct trace_type t = {.kind = TRACE_MIN, .is_signed = true};
	/* {value, is set} on three CPUs */
	s64 extremes[] = {0, 0, -4, 1, 9, 1};
	/* {sum, n} */
	s64 sums[] = {-10, 2, 0, 0, 3, 1};

	fixture_init(&f);
	f.printer.cpus = 3;
	cr_assert_str_eq(scalar(&f, &type_count, (u64[]){1, 2, 4}, NULL), "@x: 7\n");
	cr_assert_str_eq(scalar(&f, &t, extremes, NULL), "@x: -4\n");
	t.kind = TRACE_MAX;
	cr_assert_str_eq(scalar(&f, &t, extremes, NULL), "@x: 9\n");
	/* The 0 of the CPU that has no value does not count. */
	extremes[4] = -7;
	cr_assert_str_eq(scalar(&f, &t, extremes, NULL), "@x: -4\n");
	t.is_signed = false;
	cr_assert_str_eq(scalar(&f, &t, extremes, NULL), "@x: 18446744073709551612\n");
	t = (struct trace_type){.kind = TRACE_AVG, .is_signed = true};
	cr_assert_str_eq(scalar(&f, &t, sums, NULL), "@x: -2\n");
	t.kind = TRACE_STATS;
	cr_assert_str_eq(scalar(&f, &t, sums, NULL),
			 "@x: { .count = 3, .average = -2, .total = -7 }\n");
	cr_assert_str_eq(scalar(&f, &t, (s64[6]){}, NULL),
			 "@x: { .count = 0, .average = 0, .total = 0 }\n");
}

Test(trace_print, tuples)
{
	_cleanup_fixture_ struct fixture f;
	const struct trace_type *inner_fields[] = {&type_int, &type_int};
	struct trace_type inner = {.kind = TRACE_TUPLE, .n = 2, .fields = inner_fields};
	const struct trace_type *fields[] = {&type_int, &type_string, &inner};
	struct trace_type t = {.kind = TRACE_TUPLE, .n = 3, .fields = fields};
	struct {
		s64 a;
		char b[16];
		s64 c, d;
	} value = {1, "b", 2, 3};

	fixture_init(&f);
	cr_assert_str_eq(scalar(&f, &t, &value, NULL), "@x: (1, b, (2, 3))\n");
	set_map(&f, &t, &type_int);
	cr_assert_str_eq(show(&f, &value, &(s64){5}, 1, NULL), "@x[1, b, (2, 3)]: 5\n");
	f.printer.json = true;
	cr_assert_str_eq(scalar(&f, &t, &value, NULL),
			 "{\"type\":\"map\",\"data\":{\"@x\":[1,\"b\",[2,3]]}}\n");
	set_map(&f, &t, &type_int);
	cr_assert_str_eq(show(&f, &value, &(s64){5}, 1, NULL),
			 "{\"type\":\"map\",\"data\":{\"@x\":{\"1,b,(2, 3)\":5}}}\n");
}

/* ---- histograms ---- */

/* A scalar histogram of these values. */
static const char *hist_of(struct fixture *f, const struct trace_type *t, const s64 *values,
			   size_t n)
{
	_cleanup_free_ u64 *buckets = calloc(trace_type_room(t), 1);

	for (size_t i = 0; i < n; i++) {
		s64 v = values[i];
		u32 at = t->kind == TRACE_HIST ? trace_hist_bucket((u64)v, t->n)
			 : v < t->low	       ? 0
			 : v >= t->high	       ? trace_type_room(t) / 8 - 1
					       : (u32)((v - t->low) / t->step) + 1;

		buckets[at]++;
	}
	return scalar(f, t, buckets, NULL);
}

Test(trace_print, records_have_names)
{
	static const char *names[] = {"color", "size"};
	const struct trace_type *fields[] = {&type_string, &type_int};
	struct trace_type t = {.kind = TRACE_TUPLE, .n = 2, .fields = fields, .names = names};
	_cleanup_fixture_ struct fixture f;
	struct {
		char color[16];
		s64 size;
	} value = {"green", 2};

	fixture_init(&f);
	cr_assert_str_eq(scalar(&f, &t, &value, NULL), "@x: { .color = green, .size = 2 }\n");
	f.printer.json = true;
	cr_assert_str_eq(scalar(&f, &t, &value, NULL),
			 "{\"type\":\"map\",\"data\":{\"@x\":{\"color\":\"green\",\"size\":2}}}\n");
}

Test(trace_print, arrays_that_are_values)
{
	struct trace_type of = {.kind = TRACE_INT, .bytes = 2, .is_signed = true};
	struct trace_type t = {.kind = TRACE_VALUES, .n = 3, .bytes = 6, .of = &of};
	_cleanup_fixture_ struct fixture f;

	fixture_init(&f);
	cr_assert_str_eq(scalar(&f, &t, (s16[4]){1, -2, 300, 9}, NULL), "@x: [1,-2,300]\n");
	f.printer.json = true;
	cr_assert_str_eq(scalar(&f, &t, (s16[4]){1, -2, 300, 9}, NULL),
			 "{\"type\":\"map\",\"data\":{\"@x\":[1,-2,300]}}\n");
}

Test(trace_print, powers_of_two)
{
	_cleanup_fixture_ struct fixture f;
	struct trace_type t = {.kind = TRACE_HIST};

	fixture_init(&f);
	cr_assert_str_eq(
		hist_of(&f, &t, (s64[]){-1, 3, 3, 7, 31}, 5),
		"@x:\n"
		"(..., 0)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n"
		"[0]                    0 |                                                    |\n"
		"[1]                    0 |                                                    |\n"
		"[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n"
		"[4, 8)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n"
		"[8, 16)                0 |                                                    |\n"
		"[16, 32)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n\n");
	cr_assert_str_eq(
		hist_of(&f, &t, (s64[]){1000, 1025}, 2),
		"@x:\n"
		"[512, 1K)              1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n"
		"[1K, 2K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n");
	cr_assert_str_eq(hist_of(&f, &t, (s64[]){1 << 20, INT64_MAX}, 2) + strlen("@x:\n"),
			 strstr(str_get(&f.out), "[1M, 2M)               1 |"));
	cr_assert(strstr(str_get(&f.out), "\n[512M, 1G)             0 |"));
	cr_assert(strstr(str_get(&f.out), "\n[4E, 8E)               1 |"));
	/* No value: no line. */
	cr_assert_str_eq(hist_of(&f, &t, NULL, 0), "@x:\n\n");
}

Test(trace_print, finer_powers)
{
	_cleanup_fixture_ struct fixture f;
	struct trace_type t = {.kind = TRACE_HIST, .n = 2};

	fixture_init(&f);
	/* 4 to 7 have a bucket each, from 8 on one of four numbers has a quarter of its power. */
	cr_assert_str_eq(
		hist_of(&f, &t, (s64[]){7, 8, 11}, 3),
		"@x:\n"
		"[7]                    1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n"
		"[8, 10)                1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n"
		"[10, 12)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n");
	cr_assert(strstr(hist_of(&f, &t, (s64[]){4096}, 1), "[4K, 5K)               1 |"));
	cr_assert(strstr(hist_of(&f, &t, (s64[]){2048}, 1), "[2048, 2560)           1 |"));
}

Test(trace_print, linear)
{
	_cleanup_fixture_ struct fixture f;
	struct trace_type t = {.kind = TRACE_LHIST, .low = 0, .high = 10, .step = 2};

	fixture_init(&f);
	cr_assert_str_eq(
		hist_of(&f, &t, (s64[]){-1, 3, 3, 7, 11}, 5),
		"@x:\n"
		"(..., 0)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n"
		"[0, 2)                 0 |                                                    |\n"
		"[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n"
		"[4, 6)                 0 |                                                    |\n"
		"[6, 8)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n"
		"[8, 10)                0 |                                                    |\n"
		"[10, ...)              1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n\n");
	t.step = 1;
	cr_assert(strstr(hist_of(&f, &t, (s64[]){4}, 1), "@x:\n[4]                    1 |"));
	t = (struct trace_type){.kind = TRACE_LHIST, .low = -2048, .high = 4 << 20, .step = 1024};
	cr_assert(strstr(hist_of(&f, &t, (s64[]){-2000}, 1), "[-2K, -1K)             1 |"));
	cr_assert(strstr(hist_of(&f, &t, (s64[]){0}, 1), "[0, 1K)                1 |"));
	cr_assert(strstr(hist_of(&f, &t, (s64[]){(1 << 20) - 1}, 1), "[1023K, 1M)            1 |"));
}

Test(trace_print, histograms_with_keys)
{
	_cleanup_fixture_ struct fixture f;
	struct trace_type t = {.kind = TRACE_HIST};
	u32 room = trace_type_room(&t);
	_cleanup_free_ u64 *values = calloc(2, room);
	s64 keys[] = {1, 2};

	fixture_init(&f);
	/* Sorted by the number of values. */
	values[1] = 5;
	values[room / 8 + 2] = 4;
	set_map(&f, &type_int, &t);
	cr_assert_str_eq(
		show(&f, keys, values, 2, &(struct trace_print){.divisor = 2}),
		"@x[2]:\n"
		"[1]                    2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n"
		"@x[1]:\n"
		"[0]                    2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n");
	f.printer.json = true;
	cr_assert_str_eq(show(&f, keys, values, 2, NULL),
			 "{\"type\":\"hist\",\"data\":{\"@x\":{"
			 "\"2\":[{\"min\":1,\"max\":1,\"count\":4}],"
			 "\"1\":[{\"min\":0,\"max\":0,\"count\":5}]}}}\n");
}

/* ---- JSON ---- */

Test(trace_print, json)
{
	_cleanup_fixture_ struct fixture f;
	struct trace_type t = {.kind = TRACE_HIST};
	s64 sums[] = {12, 2};

	fixture_init(&f);
	f.printer.json = true;
	cr_assert_str_eq(scalar(&f, &type_int, &(s64){5}, NULL),
			 "{\"type\":\"map\",\"data\":{\"@x\":5}}\n");
	/* Numbers that a double does not hold are texts. */
	cr_assert_str_eq(scalar(&f, &type_u64, &(u64){(1ULL << 53) + 1}, NULL),
			 "{\"type\":\"map\",\"data\":{\"@x\":\"9007199254740993\"}}\n");
	cr_assert_str_eq(scalar(&f, &type_u64, &(s64){-1}, NULL),
			 "{\"type\":\"map\",\"data\":{\"@x\":\"18446744073709551615\"}}\n");
	cr_assert_str_eq(scalar(&f, &type_int, &(s64){INT64_MIN}, NULL),
			 "{\"type\":\"map\",\"data\":{\"@x\":-9223372036854775808}}\n");
	cr_assert_str_eq(scalar(&f, &type_string, "a b \n d e\0\0\0\0\0\0", NULL),
			 "{\"type\":\"map\",\"data\":{\"@x\":\"a b \\u000a d e\"}}\n");
	cr_assert_str_eq(
		scalar(&f, &(struct trace_type){.kind = TRACE_STATS}, sums, NULL),
		"{\"type\":\"stats\",\"data\":{\"@x\":{\"count\":2,\"average\":6,\"total\":12}}}\n");
	cr_assert_str_eq(scalar(&f, &(struct trace_type){.kind = TRACE_AVG}, sums, NULL),
			 "{\"type\":\"stats\",\"data\":{\"@x\":6}}\n");
	cr_assert_str_eq(hist_of(&f, &t, (s64[]){-1, 2}, 2),
			 "{\"type\":\"hist\",\"data\":{\"@x\":[{\"max\":-1,\"count\":1},"
			 "{\"min\":0,\"max\":0,\"count\":0},{\"min\":1,\"max\":1,\"count\":0},"
			 "{\"min\":2,\"max\":3,\"count\":1}]}}\n");
	cr_assert_str_eq(hist_of(&f, &t, NULL, 0), "{\"type\":\"hist\",\"data\":{\"@x\":[]}}\n");
	set_map(&f, &type_int, &type_int);
	cr_assert_str_eq(show(&f, NULL, NULL, 0, NULL), "");
	f.printer.json = false;
	trace_print_lost(&f.printer, (u64[TRACE_LOSS_N]){}, &f.out);
	trace_print_lost(&f.printer, (u64[TRACE_LOSS_N]){1, 2}, &f.out);
	trace_print_attached(&f.printer, 1, &f.out);
	cr_assert_str_eq(str_get(&f.out),
			 "lost: 1 of output, because it came faster than it was read; 2 of new "
			 "keys, because a map was full\nAttached 1 probe\n");
	f.printer.json = true;
	str_clear(&f.out);
	trace_print_attached(&f.printer, 3, &f.out);
	trace_print_lost(&f.printer, (u64[TRACE_LOSS_N]){[TRACE_LOST_MAP] = 2}, &f.out);
	cr_assert_str_eq(
		str_get(&f.out),
		"{\"type\":\"attached_probes\",\"count\":3,\"data\":{\"probes\":3}}\n"
		"{\"type\":\"lost_events\",\"count\":2,\"data\":{\"events\":2,\"output\":0,"
		"\"map_full\":2,\"nested\":0,\"stacks\":0,\"missed\":0}}\n");
}

/* ---- printf ---- */

/* One argument. */
static const char *one(struct fixture *f, const char *format, const struct trace_type *t,
		       const void *value)
{
	struct {
		struct trace_record head;
		u8 data[64];
	} record = {.head = {.type = TRACE_RECORD_PRINTF}};
	struct trace_type type = *t;
	u32 offset = 0, room = trace_type_room(t);
	struct trace_request r;

	cr_assert_leq(room, sizeof(record.data));
	memcpy(record.data, value, room);
	f->formats[0] = (struct trace_format){.text = {format, (u32)strlen(format)},
					      .arguments = &type,
					      .offsets = &offset,
					      .n = 1,
					      .bytes = room};
	str_clear(&f->out);
	cr_assert_eq(trace_format_check(&f->formats[0].text, &type, 1, &(struct diag){}), 0, "%s",
		     format);
	cr_assert_eq(trace_print_record(&f->printer, &record, sizeof(record.head) + room, &f->out,
					&f->err, &r),
		     0);
	/* A record that is a byte too short is refused. */
	if (room)
		cr_assert_eq(trace_print_record(&f->printer, &record,
						sizeof(record.head) + room - 1, &f->err, &f->err,
						&r),
			     -EBADMSG);
	return str_get(&f->out);
}

static const char *number(struct fixture *f, const char *format, const struct trace_type *t, s64 v)
{
	return one(f, format, t, &v);
}

Test(trace_print, formats_of_numbers)
{
	static const struct {
		const char *format;
		s64 value;
		const char *text;
	} rows[] = {
		{"%d", 5, "5"},
		{"<%5d>", 7, "<    7>"},
		{"<%-5d>", 7, "<7    >"},
		{"<%05d>", 7, "<00007>"},
		{"<%05d>", -7, "<-0007>"},
		{"<%+d>", 7, "<+7>"},
		{"<% d>", 7, "< 7>"},
		{"<%.3d>", 7, "<007>"},
		{"<%6.3d>", 7, "<   007>"},
		{"%ld %%", -1, "-1 %"},
		{"%lld", INT64_MIN, "-9223372036854775808"},
		{"%d", 0x1ffffffff, "8589934591"},
		{"%u", -1, "4294967295"},
		{"%x", -1, "ffffffff"},
		{"%lu", -1, "18446744073709551615"},
		{"%llx", -1, "ffffffffffffffff"},
		{"%x", -0x80000001LL, "ffffffff7fffffff"},
		{"%x", 0x1ffffffff, "1ffffffff"},
		{"%llx", 255, "ff"},
		{"%X", 255, "FF"},
		{"%#x", 255, "0xff"},
		{"%#x", 0, "0"},
		{"%08x", 255, "000000ff"},
		{"%#08x", 255, "0x0000ff"},
		{"%o", 8, "10"},
		{"%p", 4096, "0x1000"},
		{"%hhd", 300, "44"},
		{"%hd", 0x18000, "-32768"},
		{"%hhu", 300, "44"},
		{"%c", 'A', "A"},
		{"<%3c>", 'A', "<  A>"},
		{"%s", -3, "-3"},
		{"<%4s>", -3, "<  -3>"},
		{"%gr", 16, "0x10"},
		{"%i", 3, "3"},
		{"%zd", 3, "3"},
		{"%d %", 1, "1 %"},
		{"%d %y", 1, "1 %y"},
	};
	_cleanup_fixture_ struct fixture f;

	fixture_init(&f);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cr_assert_str_eq(number(&f, rows[i].format, &type_int, rows[i].value), rows[i].text,
				 "%s: %s", rows[i].format, str_get(&f.out));
	}
	/* A number has the bytes of its type. */
	cr_assert_str_eq(number(&f, "%x", &type_s32, -1), "ffffffff");
	cr_assert_str_eq(number(&f, "%u", &type_s32, -1), "4294967295");
	cr_assert_str_eq(number(&f, "%d", &type_s32, -1), "-1");
	cr_assert_str_eq(number(&f, "%lx", &type_s32, -1), "ffffffffffffffff");
	cr_assert_str_eq(number(&f, "%x", &type_u64, -1), "ffffffffffffffff");
	cr_assert_str_eq(
		number(&f, "%ld", &(struct trace_type){.kind = TRACE_INT, .bytes = 4}, 0xffffffff),
		"4294967295");
	/* A width is bounded. */
	cr_assert_eq(strlen(number(&f, "%999999999d", &type_int, 1)), 4096u);
	cr_assert_eq(strlen(number(&f, "%.999999999d", &type_int, 1)), 4096u);
	cr_assert_eq(strlen(number(&f, "%#0999999999x", &type_int, 1)), 4096u);
	cr_assert_eq(strlen(number(&f, "%#.999999999x", &type_int, 1)), 4098u);
}

Test(trace_print, formats_of_texts)
{
	_cleanup_fixture_ struct fixture f;
	struct {
		u64 n;
		char bytes[16];
	} buffer = {4, "a\x01\xff~ beyond"}, damaged = {1000, "0123456789abcdef"};
	char text[16] = "abc";

	fixture_init(&f);
	cr_assert_str_eq(one(&f, "%s", &type_string, text), "abc");
	cr_assert_str_eq(one(&f, "<%10s>", &type_string, text), "<       abc>");
	cr_assert_str_eq(one(&f, "<%-10s>", &type_string, text), "<abc       >");
	cr_assert_str_eq(one(&f, "<%.2s>", &type_string, text), "<ab>");
	cr_assert_str_eq(one(&f, "<%*s>", &type_string, text), "<abc>");
	cr_assert_str_eq(one(&f, "%r", &type_buffer, &buffer), "a\\x01\\xff~");
	cr_assert_str_eq(one(&f, "%rx", &type_buffer, &buffer), "\\x61\\x01\\xff\\x7e");
	cr_assert_str_eq(one(&f, "%rh", &type_buffer, &buffer), "61 01 ff 7e");
	cr_assert_str_eq(one(&f, "%s", &type_buffer, &buffer), "a\\x01\\xff~");
	/* A length beyond its room is cut. */
	cr_assert_str_eq(one(&f, "%r", &type_buffer, &damaged), "0123456789abcdef");
	f.printer.json = true;
	cr_assert_str_eq(
		one(&f, "test \r \n \t \\ \" %s", &type_string, text),
		"{\"type\":\"printf\",\"data\":\"test \\u000d \\u000a \\u0009 \\\\ \\\" abc\"}\n");
}

Test(trace_print, formats_are_checked)
{
	static const struct {
		const char *format;
		const struct trace_type *t[2];
		const char *error;
	} rows[] = {
		{"%d %d", {&type_int}, "the format has 2 arguments, but 1 is given"},
		{"x", {&type_int}, "the format has 0 arguments, but 1 is given"},
		{"%d", {&type_int, &type_int}, "the format has 1 argument, but 2 are given"},
		{"%-5d", {&type_string}, "%-5d prints a number, not a string: write %s"},
		{"%s %r", {&type_int, &type_int}, "%r prints a buffer (buf()), not a number"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct trace_text text = {rows[i].format, (u32)strlen(rows[i].format)};
		struct trace_type types[2];
		struct diag d = {};
		u32 n = 0;

		for (; n < 2 && rows[i].t[n]; n++)
			types[n] = *rows[i].t[n];
		cr_assert_eq(trace_format_check(&text, types, n, &d), -EINVAL);
		cr_assert_str_eq(d.text, rows[i].error);
	}
}

/* ---- records ---- */

/* A record with these words behind its head. */
static int record(struct fixture *f, u16 type, u32 index, const void *data, size_t n,
		  struct trace_request *ret)
{
	_cleanup_free_ u8 *bytes = malloc(sizeof(struct trace_record) + n);
	struct trace_record head = {.type = type, .index = index};
	int r;

	memcpy(bytes, &head, sizeof(head));
	if (n)
		memcpy(bytes + sizeof(head), data, n);
	str_clear(&f->out);
	str_clear(&f->err);
	r = trace_print_record(&f->printer, bytes, sizeof(head) + n, &f->out, &f->err, ret);
	return r;
}

Test(trace_print, records)
{
	_cleanup_fixture_ struct fixture f;
	struct trace_request r;
	struct {
		u64 n;
		char texts[2][8];
	} join = {2, {"/bin/ls", "-l"}};
	s64 result = -EFAULT;

	fixture_init(&f);
	set_map(&f, NULL, &type_int);
	f.prints[0] = (struct trace_print){.map = -1, .type = type_int};
	cr_assert_eq(record(&f, TRACE_RECORD_PRINT, 0, &(s64){5}, 8, &r), 0);
	cr_assert_str_eq(str_get(&f.out), "5\n");
	cr_assert_eq(r.type, 0);
	f.prints[0] = (struct trace_print){.map = 0, .top = 3};
	cr_assert_eq(record(&f, TRACE_RECORD_PRINT, 0, NULL, 0, &r), 0);
	cr_assert(r.type == TRACE_RECORD_PRINT && r.map == 0 && r.print->top == 3);
	cr_assert_eq(record(&f, TRACE_RECORD_ZERO, 0, NULL, 0, &r), 0);
	cr_assert_eq(r.type, TRACE_RECORD_ZERO);
	cr_assert_eq(record(&f, TRACE_RECORD_EXIT, 0, &(u64){3}, 8, &r), 0);
	cr_assert(r.type == TRACE_RECORD_EXIT && r.status == 3);
	cr_assert_eq(record(&f, TRACE_RECORD_JOIN, 1, &join, sizeof(join), &r), 0);
	cr_assert_str_eq(str_get(&f.out), "/bin/ls, -l\n");
	cr_assert_eq(record(&f, TRACE_RECORD_ERROR, 0, &result, 8, &r), 0);
	cr_assert_str_eq(str_get(&f.err), "1:5: probe_read_user: Bad address\n");
	cr_assert_eq(record(&f, TRACE_RECORD_TIME, 0, NULL, 0, &r), 0);
	cr_assert_eq(f.out.n, 8u);
	f.formats[0] = (struct trace_format){.text = {"ls %d", 5},
					     .arguments = (struct trace_type[]){type_int},
					     .offsets = (u32[]){0},
					     .n = 1,
					     .bytes = 8};
	cr_assert_eq(record(&f, TRACE_RECORD_SYSTEM, 0, &(s64){7}, 8, &r), 0);
	cr_assert_str_eq(str_get(&r.command), "ls 7");
	cr_assert_str_eq(str_get(&f.out), "");
	str_deinit(&r.command);
	f.printer.json = true;
	cr_assert_eq(record(&f, TRACE_RECORD_JOIN, 1, &join, sizeof(join), &r), 0);
	cr_assert_str_eq(str_get(&f.out), "{\"type\":\"join\",\"data\":\"/bin/ls, -l\"}\n");
}

Test(trace_print, damaged_records_are_refused)
{
	_cleanup_fixture_ struct fixture f;
	struct trace_request r;
	u64 n = 3, many = 1ULL << 61;

	fixture_init(&f);
	set_map(&f, NULL, &type_int);
	f.prints[0] = (struct trace_print){.map = -1, .type = type_string};
	cr_assert_eq(record(&f, TRACE_RECORD_PRINT, 0, &n, 8, &r), -EBADMSG);
	f.prints[0] = (struct trace_print){.map = 5};
	cr_assert_eq(record(&f, TRACE_RECORD_PRINT, 0, &n, 8, &r), -EBADMSG);
	cr_assert_eq(record(&f, TRACE_RECORD_PRINT, 1, &n, 8, &r), -EBADMSG);
	cr_assert_eq(record(&f, TRACE_RECORD_PRINTF, 1, &n, 8, &r), -EBADMSG);
	cr_assert_eq(record(&f, TRACE_RECORD_CLEAR, 1, &n, 8, &r), -EBADMSG);
	cr_assert_eq(record(&f, TRACE_RECORD_TIME, 2, &n, 8, &r), -EBADMSG);
	cr_assert_eq(record(&f, TRACE_RECORD_JOIN, 1, &n, 8, &r), -EBADMSG);
	cr_assert_eq(record(&f, TRACE_RECORD_JOIN, 1, &many, 8, &r), -EBADMSG);
	cr_assert_eq(record(&f, TRACE_RECORD_JOIN, 1, &n, 4, &r), -EBADMSG);
	cr_assert_eq(record(&f, TRACE_RECORD_ERROR, 0, &n, 4, &r), -EBADMSG);
	cr_assert_eq(record(&f, TRACE_RECORD_SYSTEM, 1, &n, 8, &r), -EBADMSG);
	cr_assert_eq(record(&f, 99, 0, &n, 8, &r), -EBADMSG);
	cr_assert_eq(trace_print_record(&f.printer, &n, 8, &f.out, &f.err, &r), -EBADMSG);
	cr_assert_str_eq(str_get(&f.out), "");
}

Test(trace_print, files)
{
	_cleanup_fixture_ struct fixture f;
	char path[16] = "/proc/version", none[16] = "/nowhere", null[16] = "/dev/zero";

	fixture_init(&f);
	f.program.formats.n = 1;
	f.formats[0] = (struct trace_format){.text = {"%s", 2},
					     .arguments = (struct trace_type[]){type_string},
					     .offsets = (u32[]){0},
					     .n = 1};
	cr_assert_eq(record(&f, TRACE_RECORD_CAT, 0, path, 16, &(struct trace_request){}), 0);
	cr_assert(str_starts(str_get(&f.out), "Linux version"));
	cr_assert_eq(record(&f, TRACE_RECORD_CAT, 0, none, 16, &(struct trace_request){}), 0);
	cr_assert_str_eq(str_get(&f.err), "cat: /nowhere: No such file or directory\n");
	/* A file without an end is cut. */
	cr_assert_eq(record(&f, TRACE_RECORD_CAT, 0, null, 16, &(struct trace_request){}), 0);
}

/* ---- stacks ---- */

/* Two stacks; id 7 is the name of a walk that the host has finished as stack 1. */
static u64 whole_id(void *arg, u64 id)
{
	return id == 7 ? 1 : id;
}

static const struct profile *named(void *arg, u64 id, u32 pid, u32 *ret_stack)
{
	const struct profile *p = arg;

	cr_assert(id == 1 || id == 2);
	*ret_stack = (u32)id - 1;
	return p;
}

static u32 text_id(struct profile *p, const char *text)
{
	u32 id = 0;

	cr_assert_eq(profile_add_string(p, text, strlen(text), &id), 0);
	return id;
}

static u32 frame(struct profile *p, u8 kind, const char *name, const char *file, u32 line)
{
	struct profile_function fn = {.name = text_id(p, name), .file = text_id(p, file)};
	struct profile_frame f = {.kind = kind, .line = line, .address = 0x1000 + line};
	struct profile_mapping m = {.path = text_id(p, "/usr/bin/calls")};
	u32 id = 0;

	fn.system_name = fn.name;
	cr_assert_eq(profile_add_function(p, &fn, &f.function), 0);
	cr_assert_eq(profile_add_mapping(p, &m, &f.mapping), 0);
	cr_assert_eq(profile_add_frame(p, &f, &id), 0);
	return id;
}

static struct profile *two_stacks(void)
{
	struct profile *p = profile_create();
	u32 frames[] = {frame(p, FRAME_NATIVE, "leaf", "/src/calls.c", 4),
			frame(p, FRAME_PYTHON, "chain_py", "calls.py", 6),
			frame(p, FRAME_NATIVE, "main", "", 0)};
	u32 id;

	cr_assert_eq(profile_add_stack(p, frames, 3, &id), 0);
	cr_assert_eq(profile_add_stack(p, frames + 1, 2, &id), 0);
	return p;
}

#define STACK_1 "\n        leaf (calls.c:4)\n        chain_py (calls.py:6) [python]\n        main\n"
#define STACK_2 "\n        chain_py (calls.py:6) [python]\n        main\n"

Test(trace_print, equal_stacks_are_merged)
{
	_cleanup_fixture_ struct fixture f;
	_cleanup_profile_ struct profile *p = two_stacks();
	struct trace_type ustack = {.kind = TRACE_USTACK};
	const struct trace_type *fields[] = {&ustack, &type_string};
	struct trace_type key = {.kind = TRACE_TUPLE, .n = 2, .fields = fields};
	struct {
		u64 id, pid;
		char comm[16];
	} keys[] = {{1, 9, "a"}, {7, 9, "a"}, {2, 9, "a"}, {7, 9, "b"}};
	u64 counts[] = {1, 0, 2, 3, 4, 0, 8, 0};

	fixture_init(&f);
	f.printer.cpus = 2;
	f.printer.names = (struct trace_names){.arg = p, .stack = named, .stack_id = whole_id};
	set_map(&f, &key, &type_count);
	cr_assert_str_eq(show(&f, keys, counts, 4, NULL),
			 "@x[" STACK_2 ", a]: 4\n@x[" STACK_1 ", a]: 6\n@x[" STACK_1 ", b]: 8\n");
	ustack.bytes = TRACE_STACK_PERF;
	cr_assert(strstr(show(&f, keys, counts, 1, NULL), "\n\t1004 leaf (/usr/bin/calls)\n"));
	ustack.bytes = TRACE_STACK_RAW;
	cr_assert(strstr(show(&f, keys, counts, 1, NULL), "\n1004\n1006\n1000\n"));
}

Test(trace_print, numbers_that_are_set_are_not_added_up)
{
	_cleanup_fixture_ struct fixture f;
	_cleanup_profile_ struct profile *p = two_stacks();
	struct trace_type ustack = {.kind = TRACE_USTACK};
	u64 keys[][2] = {{1, 9}, {7, 9}}, values[] = {5, 5};

	fixture_init(&f);
	f.printer.names = (struct trace_names){.arg = p, .stack = named, .stack_id = whole_id};
	set_map(&f, &ustack, &type_int);
	cr_assert_str_eq(show(&f, keys, values, 2, NULL), "@x[" STACK_1 "]: 10\n");
	f.maps[0].is_assigned = true;
	cr_assert_str_eq(show(&f, keys, values, 2, NULL), "@x[" STACK_1 "]: 5\n");
}

/* Processes 4 and 6 are of one service. */
static bool owner_name(void *arg, enum trace_owner o, u32 pid, const char *comm, struct str *out)
{
	return str_printf(out, "%s-%u", o == TRACE_OWNER_SERVICE ? "service" : "pod", pid) == 0;
}

static u32 owner_id(void *arg, enum trace_owner o, u32 pid, const char *comm)
{
	return pid == 6 ? 4 : pid;
}

Test(trace_print, traces_spans_and_owners)
{
	_cleanup_fixture_ struct fixture f;
	static const struct trace_type trace = {.kind = TRACE_TRACE_ID},
				       span = {.kind = TRACE_SPAN_ID},
				       service = {.kind = TRACE_OWNER,
						  .bytes = TRACE_OWNER_SERVICE};
	const struct trace_type *fields[] = {&trace, &span};
	struct trace_type ids = {.kind = TRACE_TUPLE, .n = 2, .fields = fields};
	struct {
		u8 trace[16], span[8];
	} of[] = {{{}, {}}, {{0x4b, 0xf9, [15] = 1}, {[7] = 0xa}}};
	struct {
		u64 pid;
		char comm[16];
	} pids[] = {{4, "a"}, {5, "b"}, {6, "c"}};
	u64 counts[] = {1, 2, 4};

	fixture_init(&f);
	set_map(&f, &ids, &type_count);
	cr_assert_str_eq(show(&f, of, counts, 2, NULL),
			 "@x[, ]: 1\n"
			 "@x[4bf90000000000000000000000000001, 000000000000000a]: 2\n");
	f.printer.names = (struct trace_names){.owner = owner_name, .owner_id = owner_id};
	set_map(&f, &service, &type_count);
	cr_assert_str_eq(show(&f, pids, counts, 3, NULL), "@x[service-5]: 2\n@x[service-4]: 5\n");
}

/* The frames of a sample, leaf first, with its value. */
static const char *sample_text(const struct profile *p, size_t i, struct str *out)
{
	const struct profile_sample *s = profile_sample(p, i);
	const struct profile_stack *stack = &p->stacks.data[s->stack];
	_cleanup_str_ struct str scratch = {};

	str_clear(out);
	for (u32 k = 0; k < stack->n; k++)
		str_printf(out, "%s;",
			   profile_frame_name(p, p->stack_frames.data[stack->first + k], &scratch));
	str_printf(out, " %lld", s->value[0]);
	return str_get(out);
}

Test(trace_print, maps_as_flame_graphs)
{
	_cleanup_fixture_ struct fixture f;
	_cleanup_profile_ struct profile *p = two_stacks(), *made = NULL;
	static const struct trace_type ustack = {.kind = TRACE_USTACK},
				       kstack = {.kind = TRACE_KSTACK};
	const struct trace_type *fields[] = {&type_string, &ustack, &kstack, &type_int};
	struct trace_type key = {.kind = TRACE_TUPLE, .n = 4, .fields = fields};
	struct {
		char comm[16];
		u64 user, pid, kernel, number;
	} keys[] = {{"a", 7, 9, 2, 5}, {"a", 1, 9, 2, 5}, {"b", 2, 9, 0, 5}};
	struct trace_entries e = {
		.keys = (const u8 *)keys, .values = (const u8 *)(u64[]){1, 2, 40}, .n = 3};
	_cleanup_str_ struct str text = {};
	struct diag d = {};

	fixture_init(&f);
	f.printer.names = (struct trace_names){.arg = p, .stack = named, .stack_id = whole_id};
	set_map(&f, &key, &type_count);
	cr_assert_eq(trace_map_profile(&f.printer, 0, &e, &made, &d), 0);
	cr_assert_eq(made->n_samples, 2u);
	/* Kernel frames, user frames, the rest of the key: its first part is outermost. */
	cr_assert_str_eq(sample_text(made, 0, &text), "chain_py;main;leaf;chain_py;main;5;a; 3");
	cr_assert_str_eq(sample_text(made, 1, &text), "chain_py;main;5;b; 40");
	cr_assert_eq(made->quality.samples, 43, "each count is an event");
	set_map(&f, &type_int, &type_count);
	cr_assert_eq(trace_map_profile(&f.printer, 0, &e, &made, &d), -EINVAL);
	cr_assert(strstr(d.text, "@x is no flame graph"));
}

Test(trace_print, stacks_in_formats)
{
	_cleanup_fixture_ struct fixture f;
	_cleanup_profile_ struct profile *p = two_stacks();
	struct trace_type t = {.kind = TRACE_USTACK};

	fixture_init(&f);
	f.printer.names = (struct trace_names){.arg = p, .stack = named, .stack_id = whole_id};
	cr_assert_str_eq(one(&f, "%s|", &t, (u64[]){1, 9}), STACK_1 "|");
	t.n = 1;
	cr_assert_str_eq(one(&f, "%s|", &t, (u64[]){1, 9}), "\n        leaf (calls.c:4)\n|");
	/* No stack was taken. */
	cr_assert_str_eq(one(&f, "%s|", &t, (u64[]){0, 9}), "\n|");
	t.kind = TRACE_KSTACK;
	t.n = 0;
	cr_assert_str_eq(one(&f, "%s|", &t, (u64[]){2}), STACK_2 "|");
}

Test(trace_print, keys_of_json_are_unique)
{
	_cleanup_fixture_ struct fixture f;
	_cleanup_profile_ struct profile *p = two_stacks();
	static const struct trace_type kstack = {.kind = TRACE_KSTACK, .n = 0};
	json_error_t error;
	json_t *j;

	fixture_init(&f);
	f.printer.json = true;
	f.printer.names = (struct trace_names){.arg = p, .stack = named};
	set_map(&f, &kstack, &type_count);
	/* Without stack_id() the two are different keys with one name. */
	show(&f, (u64[]){2, 2}, (u64[]){1, 5}, 2, NULL);
	j = json_loads(str_get(&f.out), JSON_REJECT_DUPLICATES, &error);
	cr_assert(j, "%s", error.text);
	cr_assert_eq(json_object_size(json_object_get(json_object_get(j, "data"), "@x")), 2u);
	json_decref(j);
}
