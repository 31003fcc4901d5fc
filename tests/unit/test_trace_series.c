/* SPDX-License-Identifier: Apache-2.0 */
/* What time series look like: as bpftrace's documents show them. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "trace/trace.h"

/* Appends the map @x with this value, one for each CPU. */
static void show(const struct trace_type *t, const void *values, u32 cpus, bool json,
		 struct str *out)
{
	static const u8 key[4];
	struct trace_map map = {.name = "x",
				.value = *t,
				.key_bytes = 4,
				.value_bytes = trace_type_room(t),
				.per_cpu = true,
				.is_scalar = true};
	struct trace_program program = {.maps = {.data = &map, .n = 1}};
	const struct trace_printer printer = {.program = &program, .json = json, .cpus = cpus};

	cr_assert_eq(
		trace_print_map(&printer, 0, &(struct trace_entries){key, values, 1}, NULL, out),
		0);
}

/* Two CPUs; n: what each has of an interval. */
static void check_series(enum trace_series how, const char *expected)
{
	const u64 cpus[2][3][4] = {
		/* intervals 6, 4 and 5; an older one is still in the place of 4 */
		{{7, 10, 2, 100}, {2, 99, 1, 20}, {6, 3, 1, 80}},
		{{7, (u64)-4, 2, 90}, {5, 5, 1, 70}, {}},
	};
	struct trace_type t = {
		.kind = TRACE_SERIES, .is_signed = true, .n = 3, .step = 1000000000, .bytes = how};
	_cleanup_str_ struct str out = {};
	json_t *found;
	_cleanup_str_ struct str values = {};
	size_t i;
	json_t *v;

	show(&t, cpus, 2, true, &out);
	found = json_loads(str_get(&out), 0, NULL);
	cr_assert_str_eq(json_string_value(json_object_get(found, "type")), "tseries");
	json_array_foreach(json_object_get(json_object_get(found, "data"), "@x"), i, v)
	{
		str_printf(&values, "%lld ", json_integer_value(json_object_get(v, "value")));
	}
	cr_assert_str_eq(str_get(&values), expected);
	json_decref(found);
}

Test(trace_series, series_of_cpus_are_added_up)
{
	check_series(TRACE_SERIES_LAST, "5 3 10 ");
	check_series(TRACE_SERIES_SUM, "5 3 6 ");
	check_series(TRACE_SERIES_AVG, "5 3 1 ");
	check_series(TRACE_SERIES_MIN, "5 3 -4 ");
	check_series(TRACE_SERIES_MAX, "5 3 10 ");
}

Test(trace_series, series)
{
	const u64 values[4][4] = {{5, (u64)-5, 1, 1}, {6, 5, 1, 1}, {}, {8, 0, 1, 1}};
	struct trace_type t = {.kind = TRACE_SERIES, .is_signed = true, .n = 4, .step = 100000000};
	_cleanup_str_ struct str out = {};

	setenv("TZ", "UTC", 1);
	show(&t, values, 1, false, &out);
	cr_assert_str_eq(str_get(&out),
			 "@x:\n"
			 "             -5                                                  5\n"
			 "hh:mm:ss.ms  |___________________________________________________|\n"
			 "00:00:00.400 *                         .                         | -5\n"
			 "00:00:00.500 |                         .                         * 5\n"
			 "00:00:00.600 |                         .                         | -\n"
			 "00:00:00.700 |                         *                         | 0\n"
			 "             v___________________________________________________v\n"
			 "             -5                                                  5\n\n");
}
