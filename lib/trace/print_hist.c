/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histograms. A bucket is shown with its bounds, [from, to): from is in it, to is not. Buckets from
 * the first to the last that has values are shown.
 */
#include <stdio.h>
#include <string.h>

#include "trace/print.h"

#define BAR 52

struct shown {
	const struct trace_type *t;
	u32 first, last; /* buckets */
	u64 div, most;
	bool none;
};

static u32 buckets_of(const struct trace_type *t)
{
	return trace_type_room(t) / 8;
}

static struct shown find_shown(const struct trace_type *t, const u8 *value, u64 div)
{
	/* lhist() ignores the divisor. */
	struct shown s = {.t = t, .div = t->kind == TRACE_HIST && div ? div : 1, .none = true};
	u32 n = buckets_of(t);

	for (u32 i = 0; i < n; i++) {
		u64 count = trace_word(value, i);

		if (!count)
			continue;
		s.first = s.none ? i : s.first;
		s.last = i;
		s.none = false;
		s.most = MAX(s.most, count / s.div);
	}
	return s;
}

/* The bounds of a bucket; false: it has no lower, no upper one. */
static bool lower(const struct shown *s, u32 bucket, s64 *ret)
{
	if (!bucket)
		return false;
	*ret = s->t->kind == TRACE_HIST ? (s64)trace_hist_low(bucket, s->t->n)
					: s->t->low + (s64)(bucket - 1) * s->t->step;
	return true;
}

static bool upper(const struct shown *s, u32 bucket, u64 *ret)
{
	if (s->t->kind == TRACE_HIST) {
		*ret = bucket ? trace_hist_low(bucket + 1, s->t->n) : 0;
		return true;
	}
	*ret = (u64)(s->t->low + (s64)bucket * s->t->step);
	return bucket + 1 < buckets_of(s->t);
}

/* Large bounds are multiples of 1024 with a letter. */
static void put_bound(const struct shown *s, u64 bound, struct str *out)
{
	s64 number = (s64)bound;

	if (s->t->kind == TRACE_HIST) {
		u32 power = bound ? 63 - (u32)__builtin_clzll(bound) : 0;
		u32 tens = power > s->t->n ? (power - s->t->n) / 10 : 0;

		str_printf(out, "%llu", bound >> (10 * tens));
		if (tens)
			str_putc(out, "KMGTPE"[tens - 1]);
		return;
	}
	if (s->t->step % 1024 || !number || number % 1024)
		str_printf(out, "%lld", number);
	else if (number % (1 << 20))
		str_printf(out, "%lldK", number / 1024);
	else
		str_printf(out, "%lldM", number / (1 << 20));
}

static void put_bounds(const struct shown *s, u32 bucket, struct str *out)
{
	s64 low;
	u64 high;
	bool has_low = lower(s, bucket, &low), has_high = upper(s, bucket, &high);

	str_puts(out, has_low ? "[" : "(...");
	if (has_low)
		put_bound(s, (u64)low, out);
	if (has_low && has_high && (u64)low + 1 == high) {
		str_putc(out, ']');
		return;
	}
	str_puts(out, ", ");
	if (has_high)
		put_bound(s, high, out);
	else
		str_puts(out, "...");
	str_putc(out, ')');
}

void trace_hist_text(const struct trace_type *t, const u8 *value, u64 div, struct str *out)
{
	struct shown s = find_shown(t, value, div);
	_cleanup_str_ struct str bounds = {};

	for (u32 i = s.first; i <= s.last && !s.none; i++) {
		u64 count = trace_word(value, i) / s.div;
		/* In single precision, as bpftrace: the same bars. */
		int bar = s.most ? (int)((float)count / (float)s.most * BAR) : 0;

		str_clear(&bounds);
		put_bounds(&s, i, &bounds);
		str_printf(out, "%-16s%8llu |", str_get(&bounds), count);
		for (int k = 0; k < BAR; k++)
			str_putc(out, k < bar ? '@' : ' ');
		str_puts(out, "|\n");
	}
}

void trace_hist_json(const struct trace_type *t, const u8 *value, u64 div, struct json_writer *w,
		     const char *key)
{
	struct shown s = find_shown(t, value, div);

	json_open_array(w, key);
	for (u32 i = s.first; i <= s.last && !s.none; i++) {
		s64 low;
		u64 high;

		json_open_object(w, NULL);
		if (lower(&s, i, &low))
			json_put_s64(w, "min", low);
		if (upper(&s, i, &high))
			json_put_s64(w, "max", (s64)(high - 1));
		json_put_u64(w, "count", trace_word(value, i) / s.div);
		json_close(w);
	}
	json_close(w);
}
