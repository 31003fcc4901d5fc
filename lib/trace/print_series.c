/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time series of tseries(). Each interval is a line with a mark between the smallest and the
 * largest value; intervals without values, between the first and the last that have some, are lines
 * without a mark. A point in a line is where 0 is.
 */
#include <string.h>

#include "trace/print.h"

#define WIDTH 52 /* where the mark of the largest value is; that of the smallest is at 0 */

struct interval {
	u64 number, value, n, last_ns;
};

static struct interval interval_at(const struct trace_type *t, const u8 *value, u64 number)
{
	struct interval i;

	memcpy(&i, value + number % t->n * sizeof(i), sizeof(i));
	return i;
}

_Static_assert(sizeof(struct interval) == 8 * TRACE_SERIES_WORDS, "interval");

/* ---- adding up ---- */

static bool is_less(const struct trace_type *t, u64 a, u64 b)
{
	return t->is_signed ? (s64)a < (s64)b : a < b;
}

static void add_interval(const struct trace_type *t, struct interval *to, const struct interval *i)
{
	bool takes = false;

	switch (t->bytes) {
	case TRACE_SERIES_AVG:
	case TRACE_SERIES_SUM:
		to->value += i->value;
		break;
	case TRACE_SERIES_MAX:
		takes = is_less(t, to->value, i->value);
		break;
	case TRACE_SERIES_MIN:
		takes = is_less(t, i->value, to->value);
		break;
	default:
		takes = i->last_ns > to->last_ns;
	}
	if (takes)
		to->value = i->value;
	to->n += i->n;
	to->last_ns = MAX(to->last_ns, i->last_ns);
}

void trace_series_add(const struct trace_type *t, u8 *sum, const u8 *more)
{
	for (u32 k = 0; k < t->n; k++) {
		struct interval to = interval_at(t, sum, k), from = interval_at(t, more, k);

		if (from.number > to.number)
			to = from;
		else if (from.number && from.number == to.number)
			add_interval(t, &to, &from);
		memcpy(sum + k * sizeof(to), &to, sizeof(to));
	}
}

/* ---- output ---- */

struct series {
	const struct trace_printer *p;
	const struct trace_type *t;
	const u8 *value;
	u64 div;
	u64 first, last; /* numbers; 0: there is none */
	s64 low, high;
};

/* False: the interval has no value, or an older one is in its place. */
static bool value_of(const struct series *s, u64 number, s64 *ret)
{
	struct interval i = interval_at(s->t, s->value, number - 1);
	u64 div = s->t->bytes == TRACE_SERIES_AVG ? i.n : 1;

	if (i.number != number || !i.n)
		return false;
	*ret = s->t->is_signed ? (s64)i.value / (s64)div : (s64)(i.value / div);
	if (s->div > 1)
		*ret /= (s64)s->div;
	return true;
}

static struct series find_series(const struct trace_printer *p, const struct trace_type *t,
				 const u8 *value, u64 div)
{
	struct series s = {.p = p, .t = t, .value = value, .div = div};
	bool is_first = true;
	s64 v;

	for (u32 k = 0; k < t->n; k++)
		s.last = MAX(s.last, interval_at(t, value, k).number);
	/* Those of before the window have been overwritten, or are too old. */
	for (u64 n = s.last > t->n ? s.last - t->n + 1 : 1; n <= s.last && s.last; n++) {
		if (!value_of(&s, n, &v))
			continue;
		s.first = s.first ? s.first : n;
		s.low = is_first ? v : MIN(s.low, v);
		s.high = is_first ? v : MAX(s.high, v);
		is_first = false;
	}
	return s;
}

static u32 column_of(const struct series *s, s64 v)
{
	double range = (double)s->high - (double)s->low;

	return range > 0 ? (u32)(((double)v - (double)s->low) / range * WIDTH) : 0;
}

static void put_begin(const struct series *s, u64 number, struct str *out)
{
	trace_time_text("%H:%M:%S.%l", s->p->boot_ns + (number - 1) * (u64)s->t->step, true, out);
}

/* "             LOW    HIGH" */
static void put_bounds(const struct series *s, struct str *out)
{
	_cleanup_str_ struct str low = {};

	str_printf(&low, "%lld", s->low);
	str_printf(out, "%13s%s%*s%lld\n", "", str_get(&low), (int)MAX(52 - (s64)low.n, 1), "",
		   s->high);
}

static void put_line(const struct series *s, u64 number, struct str *out)
{
	char line[WIDTH + 2];
	s64 v;

	memset(line, ' ', WIDTH + 1);
	line[WIDTH + 1] = '\0';
	line[0] = line[WIDTH] = '|';
	if (s->low < 0 && s->high > 0)
		line[column_of(s, 0)] = '.';
	put_begin(s, number, out);
	if (value_of(s, number, &v)) {
		line[column_of(s, v)] = '*';
		str_printf(out, " %s %lld\n", line, v);
	} else {
		str_printf(out, " %s -\n", line);
	}
}

static void put_rule(const char *before, char end, struct str *out)
{
	str_printf(out, "%-13s%c", before, end);
	for (u32 i = 1; i < WIDTH; i++)
		str_putc(out, '_');
	str_printf(out, "%c\n", end);
}

void trace_series_text(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		       u64 div, struct str *out)
{
	struct series s = find_series(p, t, value, div);

	if (!s.first)
		return;
	put_bounds(&s, out);
	put_rule("hh:mm:ss.ms", '|', out);
	for (u64 n = s.first; n <= s.last; n++)
		put_line(&s, n, out);
	put_rule("", 'v', out);
	put_bounds(&s, out);
}

void trace_series_json(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		       u64 div, struct json_writer *w, const char *key)
{
	struct series s = find_series(p, t, value, div);

	json_open_array(w, key);
	for (u64 n = s.first; n && n <= s.last; n++) {
		_cleanup_str_ struct str begin = {};
		s64 v;

		if (!value_of(&s, n, &v))
			continue;
		put_begin(&s, n, &begin);
		json_open_object(w, NULL);
		json_put_text(w, "interval_start", str_get(&begin));
		json_put_s64(w, "value", v);
		json_close(w);
	}
	json_close(w);
}
