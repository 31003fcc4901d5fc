/* SPDX-License-Identifier: Apache-2.0 */
/*
 * printf(): "%-10s %5d %llx %r". Flags, width and precision are C's; %d, %u, %x and %o without a
 * length take as many bytes of a number as its type has, at least 4. (bpftrace takes 4, and cuts
 * larger numbers.) Besides C's there are
 *
 *	%s	a value of any type
 *	%r, %rx, %rh	a buffer: text with escapes, all bytes escaped, hexadecimal
 *	%gr	flags of an allocation in the kernel, as a number
 *
 * A % that begins none of these is text.
 */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "trace/print.h"

/* A width above this is a mistake that would fill memory. */
#define WIDTH_MAX 4096

struct spec {
	bool left, plus, space, alternate, zeros;
	u32 width;
	s32 precision; /* -1: none */
	u32 bytes;     /* by the length modifier; 0: none */
	char what;     /* d u x X o c s p r R (rx) h (rh) g (gr) */
	u32 n;	       /* characters */
};

static u32 number_at(const char **c, const char *end)
{
	u32 n = 0;

	for (; *c < end && isdigit((u8) * *c); ++*c)
		n = MIN(n * 10 + (u32)(**c - '0'), (u32)WIDTH_MAX);
	return n;
}

static bool flag_at(char c, struct spec *s)
{
	switch (c) {
	case '-':
		return s->left = true;
	case '+':
		return s->plus = true;
	case ' ':
		return s->space = true;
	case '#':
		return s->alternate = true;
	case '0':
		return s->zeros = true;
	default:
		return false;
	}
}

/* The length modifiers: hh, h, or 8 bytes. */
static const char *length_at(const char *c, const char *end, struct spec *s)
{
	u32 h = 0;

	for (; c < end && strchr("hlLjzt", *c) && *c; c++) {
		h += *c == 'h';
		s->bytes = h == 1 ? 2 : h ? 1 : 8;
	}
	return c;
}

/* Reads what follows a %. False: it is text. */
static bool spec_at(const char *c, const char *end, struct spec *ret)
{
	struct spec s = {.precision = -1};
	const char *begin = c;

	while (c < end && flag_at(*c, &s))
		c++;
	if (c < end && *c == '*')
		c++; /* bpftrace takes it, and has no argument for it */
	else
		s.width = number_at(&c, end);
	if (c < end && *c == '.') {
		c++;
		if (c < end && *c == '*')
			c++;
		else
			s.precision = (s32)number_at(&c, end);
	}
	c = length_at(c, end, &s);
	if (c >= end || !*c || !strchr("diuxXocspr%g", *c))
		return false;
	s.what = *c == 'i' ? 'd' : *c;
	c++;
	if (s.what == 'g' && (c >= end || *c++ != 'r'))
		return false;
	if (s.what == 'r' && c < end && (*c == 'x' || *c == 'h'))
		s.what = *c++ == 'x' ? 'R' : 'h';
	s.n = (u32)(c - begin);
	*ret = s;
	return true;
}

/* ---- numbers ---- */

static void pad(const struct spec *s, size_t n, char with, struct str *out)
{
	for (; n < s->width; n++)
		str_putc(out, with);
}

static void put_padded(const struct spec *s, const char *text, size_t n, struct str *out)
{
	if (!s->left)
		pad(s, n, ' ', out);
	str_append(out, text, n);
	if (s->left)
		pad(s, n, ' ', out);
}

/* {sign, prefix}, zeros up to the width or the precision, digits */
static void put_digits(const struct spec *s, const char *before, u64 value, u32 base,
		       struct str *out)
{
	static const char digits[] = "0123456789abcdef", large[] = "0123456789ABCDEF";
	char text[24 + WIDTH_MAX];
	size_t at = sizeof(text), n_before = strlen(before), least = 1;

	if (s->precision >= 0)
		least = (size_t)s->precision;
	else if (s->zeros && !s->left && s->width > n_before)
		least = MAX(s->width - n_before, least);
	while ((value || sizeof(text) - at < least) && at > n_before) {
		text[--at] = s->what == 'X' ? large[value % base] : digits[value % base];
		value /= base;
	}
	at -= n_before;
	memcpy(text + at, before, n_before);
	put_padded(s, text + at, sizeof(text) - at, out);
}

/* The lowest bytes of a number. */
static u64 cut(u64 value, u32 bytes, bool is_signed)
{
	u32 shift = 64 - 8 * MIN(MAX(bytes, 1u), 8u);

	return is_signed ? (u64)((s64)(value << shift) >> shift) : value << shift >> shift;
}

static u32 bytes_of(const struct spec *s, const struct trace_type *t, u64 value)
{
	u32 own = (t->kind == TRACE_INT || t->kind == TRACE_ENUM_NAME) && t->bytes ? t->bytes : 8;

	if (s->bytes)
		return s->bytes;
	/* A small negative number is an int in C: %x of -1 has 8 digits. */
	if (trace_value_is_signed(t) && s->what != 'd' && (s64)value < 0 && (s64)value >= INT32_MIN)
		return 4;
	/* C's integers have at least four bytes. */
	return own < 4 ? 4 : own;
}

static void put_integer(const struct spec *s, const struct trace_type *t, u64 value,
			struct str *out)
{
	u32 bytes = bytes_of(s, t, value);
	const char *sign = s->plus ? "+" : s->space ? " " : "";

	switch (s->what) {
	case 'd':
		value = cut(value, bytes, true);
		if ((s64)value < 0)
			put_digits(s, "-", -value, 10, out);
		else
			put_digits(s, sign, value, 10, out);
		break;
	case 'x':
	case 'X':
		value = cut(value, bytes, false);
		put_digits(s,
			   !s->alternate || !value ? ""
			   : s->what == 'x'	   ? "0x"
						   : "0X",
			   value, 16, out);
		break;
	case 'o':
		put_digits(s, s->alternate ? "0" : "", cut(value, bytes, false), 8, out);
		break;
	case 'p':
	case 'g':
		put_digits(s, "0x", value, 16, out);
		break;
	case 'c': {
		char c = (char)value;

		put_padded(s, &c, 1, out);
		break;
	}
	default:
		put_digits(s, "", cut(value, bytes, false), 10, out);
	}
}

/* ---- values ---- */

static bool is_integer(const struct trace_type *t)
{
	switch (t->kind) {
	case TRACE_INT:
	case TRACE_BOOL:
	case TRACE_POINTER:
	case TRACE_RECORD:
	case TRACE_ARRAY:
	case TRACE_ENUM_NAME:
	case TRACE_COUNT:
	case TRACE_SUM:
	case TRACE_MIN:
	case TRACE_MAX:
	case TRACE_AVG:
		return true;
	default:
		return false;
	}
}

static bool is_bytes(const struct spec *s)
{
	return s->what == 'r' || s->what == 'R' || s->what == 'h';
}

static void put_buffer(const struct spec *s, const struct trace_type *t, const u8 *value,
		       struct str *out)
{
	enum trace_bytes how = s->what == 'r'	? TRACE_BYTES_TEXT
			       : s->what == 'R' ? TRACE_BYTES_ESCAPED
						: TRACE_BYTES_HEX;
	_cleanup_str_ struct str text = {};

	trace_bytes_text(value + 8, MIN(trace_word(value, 0), (u64)t->bytes), how, &text);
	put_padded(s, str_get(&text), text.n, out);
}

static void put_argument(const struct trace_printer *p, const struct spec *s,
			 const struct trace_type *t, const u8 *value, struct str *out)
{
	_cleanup_str_ struct str text = {};
	size_t n;

	if (is_bytes(s) && t->kind == TRACE_BUFFER) {
		put_buffer(s, t, value, out);
		return;
	}
	if (s->what != 's' && is_integer(t)) {
		u64 word =
			t->kind == TRACE_AVG ? trace_value_average(t, value) : trace_word(value, 0);

		put_integer(s, t, word, out);
		return;
	}
	trace_value_text(p, t, value, 1, &text);
	n = s->precision >= 0 ? MIN(text.n, (size_t)s->precision) : text.n;
	put_padded(s, str_get(&text), n, out);
}

/* Whether the argument is in the record. */
static bool is_inside(const struct trace_format *f, u32 i, size_t n)
{
	u32 room = trace_type_room(&f->arguments[i]);

	return f->offsets[i] <= n && room <= n - f->offsets[i];
}

bool trace_format_text(const struct trace_printer *p, const struct trace_format *f,
		       const u8 *arguments, size_t n, struct str *out)
{
	const char *c = f->text.data, *end = c + f->text.n;
	u32 argument = 0;
	struct spec s;

	for (u32 i = 0; i < f->n; i++)
		if (!is_inside(f, i, n))
			return false;
	for (; c < end; c++) {
		if (*c != '%' || !spec_at(c + 1, end, &s)) {
			str_putc(out, *c);
			continue;
		}
		c += s.n;
		if (s.what == '%')
			str_putc(out, '%');
		else if (argument < f->n) {
			put_argument(p, &s, &f->arguments[argument],
				     arguments + f->offsets[argument], out);
			argument++;
		}
	}
	return true;
}

static const char *kind_of(const struct trace_type *t)
{
	switch (t->kind) {
	case TRACE_STRING:
		return "a string";
	case TRACE_BUFFER:
		return "a buffer";
	case TRACE_TUPLE:
		return "a tuple";
	case TRACE_KSTACK:
	case TRACE_USTACK:
		return "a stack";
	default:
		return is_integer(t) ? "a number" : "a name";
	}
}

int trace_format_check(const struct trace_text *format, const struct trace_type *arguments, u32 n,
		       struct diag *d)
{
	const char *c = format->data, *end = c + format->n;
	struct spec s;
	u32 wanted = 0;

	for (; c < end; c++) {
		const char *begin = c + 1;

		if (*c != '%' || !spec_at(begin, end, &s))
			continue;
		c += s.n;
		if (s.what == '%')
			continue;
		if (wanted < n && is_bytes(&s) && arguments[wanted].kind != TRACE_BUFFER)
			return diag_set(d, -EINVAL, "%%%.*s prints a buffer (buf()), not %s",
					(int)s.n, begin, kind_of(&arguments[wanted]));
		if (wanted < n && !is_bytes(&s) && s.what != 's' && !is_integer(&arguments[wanted]))
			return diag_set(d, -EINVAL, "%%%.*s prints a number, not %s: write %%s",
					(int)s.n, begin, kind_of(&arguments[wanted]));
		if (wanted < n && arguments[wanted].kind == TRACE_NONE)
			return diag_set(d, -EINVAL, "argument %u of the format has no value",
					wanted + 1);
		wanted++;
	}
	if (wanted != n)
		return diag_set(d, -EINVAL, "the format has %u argument%s, but %u %s given", wanted,
				wanted == 1 ? "" : "s", n, n == 1 ? "is" : "are");
	return 0;
}
