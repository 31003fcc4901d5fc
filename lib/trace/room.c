/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of values, and the buckets of histograms: for the compiler and for printing. */
#include <stdint.h>

#include "trace/trace.h"

static u32 round_up(u32 n)
{
	return (n + 7) / 8 * 8;
}

u32 trace_type_room(const struct trace_type *t)
{
	u64 sum = 0;

	switch (t->kind) {
	case TRACE_STRING:
	case TRACE_VALUES:
		return round_up(t->bytes);
	case TRACE_BUFFER:
		return 8 + round_up(t->bytes);
	case TRACE_TUPLE:
		for (u32 i = 0; i < t->n; i++)
			sum += trace_type_room(t->fields[i]);
		return sum > INT32_MAX ? INT32_MAX / 8 * 8 : (u32)sum;
	case TRACE_USTACK:
	case TRACE_USYM:
	case TRACE_TIME:
	case TRACE_TRACE_ID:
	case TRACE_MIN:
	case TRACE_MAX:
	case TRACE_AVG:
	case TRACE_STATS:
		return 16;
	case TRACE_INET:
	case TRACE_OWNER:
		return 24;
	case TRACE_HIST:
		return 8 * trace_hist_buckets(t->n);
	case TRACE_SERIES:
		return 8 * TRACE_SERIES_WORDS * t->n;
	case TRACE_LHIST:
		return 8 * (u32)((t->high - t->low) / t->step + 2);
	default:
		return 8;
	}
}

bool trace_type_is_table(const struct trace_type *t)
{
	return t->kind == TRACE_HIST || t->kind == TRACE_LHIST || t->kind == TRACE_SERIES;
}

/* ---- histograms ---- */

u32 trace_hist_bucket(u64 value, u32 bits)
{
	u32 log;

	if (value >> 63)
		return 0;
	if (value < 1ull << bits)
		return (u32)value + 1;
	log = 63 - (u32)__builtin_clzll(value);
	return ((log - bits + 1) << bits) + ((u32)(value >> (log - bits)) & ((1u << bits) - 1)) + 1;
}

u64 trace_hist_low(u32 bucket, u32 bits)
{
	u32 i = bucket - 1, power;

	if (!bucket)
		return 0;
	if (i < 1u << bits)
		return i;
	power = (i >> bits) - 1;
	return ((u64)(i & ((1u << bits) - 1)) + (1ull << bits)) << power;
}

u32 trace_hist_buckets(u32 bits)
{
	return trace_hist_bucket(INT64_MAX, bits) + 1;
}
