/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names come from binaries, processes and files that are not trusted; these functions make them
 * safe to show.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#include "base/cleanup.h"
#include "base/vocab.h"

size_t text_decode(const char *s, size_t n, u32 *ret_code_point)
{
	static const u32 least[] = {0, 0, 0x80, 0x800, 0x10000};
	const u8 *b = (const u8 *)s;
	size_t len;
	u32 c;

	if (!n)
		return 0;
	if (b[0] < 0x80) {
		*ret_code_point = b[0];
		return 1;
	}
	len = b[0] >= 0xf0 ? 4 : b[0] >= 0xe0 ? 3 : 2;
	if (b[0] < 0xc2 || b[0] > 0xf4 || len > n)
		return 0;
	c = b[0] & (0x7f >> len);
	for (size_t i = 1; i < len; i++) {
		if ((b[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (b[i] & 0x3f);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*ret_code_point = c;
	return len;
}

/*
 * Control characters, characters that XML forbids, and those that make a terminal or a browser show
 * a text other than the one given.
 */
static bool is_control(u32 c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 ||
	       (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfffe ||
	       c == 0xffff;
}

/* Appends the next character cleaned; returns how many bytes of s it took. */
static size_t append_next(struct str *out, const char *s, size_t n, u32 *ret_code_point)
{
	u32 c;
	size_t len = text_decode(s, n, &c);

	if (!len) {
		str_puts(out, "\xef\xbf\xbd");
		*ret_code_point = 0xfffd;
		return 1;
	}
	if (is_control(c))
		str_putc(out, ' ');
	else
		str_append(out, s, len);
	*ret_code_point = c;
	return len;
}

/* Removes spaces at both ends of the text that was appended from `begin` on. */
static void trim_from(struct str *out, size_t begin)
{
	size_t spaces = 0;

	if (out->failed || out->n == begin)
		return;
	while (out->n > begin && out->data[out->n - 1] == ' ')
		out->n--;
	while (begin + spaces < out->n && out->data[begin + spaces] == ' ')
		spaces++;
	memmove(out->data + begin, out->data + begin + spaces, out->n - begin - spaces);
	out->n -= spaces;
	out->data[out->n] = '\0';
}

void text_append_clean(struct str *out, const char *s, char instead_of_semicolon)
{
	size_t n = strlen(s), begin = out->n;
	u32 c;

	for (size_t i = 0; i < n;) {
		if (s[i] == ';' && instead_of_semicolon) {
			str_putc(out, instead_of_semicolon);
			i++;
			continue;
		}
		i += append_next(out, s + i, n - i, &c);
	}
	trim_from(out, begin);
}

void text_clean(char *s)
{
	for (size_t n = strlen(s), len; n; s += len, n -= len) {
		u32 c;

		len = text_decode(s, n, &c);
		if (!len || is_control(c))
			memset(s, len ? ' ' : '?', len ? len : 1);
		len = MAX(len, (size_t)1);
	}
}

void text_append_xml(struct str *out, const char *s)
{
	size_t n = strlen(s);
	u32 c;

	for (size_t i = 0; i < n;) {
		const char *entity = s[i] == '&'    ? "&amp;"
				     : s[i] == '<'  ? "&lt;"
				     : s[i] == '>'  ? "&gt;"
				     : s[i] == '"'  ? "&quot;"
				     : s[i] == '\'' ? "&#39;"
						    : NULL;

		if (entity) {
			str_puts(out, entity);
			i++;
			continue;
		}
		i += append_next(out, s + i, n - i, &c);
	}
}

static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void text_append_base64(struct str *out, const u8 *data, size_t n)
{
	for (size_t i = 0; i < n; i += 3) {
		u32 v = (u32)data[i] << 16 | (i + 1 < n ? (u32)data[i + 1] << 8 : 0) |
			(i + 2 < n ? data[i + 2] : 0);
		char quad[4] = {base64[v >> 18], base64[v >> 12 & 63],
				i + 1 < n ? base64[v >> 6 & 63] : '=',
				i + 2 < n ? base64[v & 63] : '='};

		str_append(out, quad, sizeof(quad));
	}
}

int text_base64_digit(char c)
{
	const char *at = c ? strchr(base64, c == '-' ? '+' : c == '_' ? '/' : c) : NULL;

	return at ? (int)(at - base64) : -1;
}

size_t text_columns(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += ((u8)*s & 0xc0) != 0x80;
	return n;
}

void text_append_json(struct str *out, const char *s)
{
	_cleanup_str_ struct str clean = {};

	text_append_clean(&clean, s, 0);
	out->failed |= clean.failed;
	str_putc(out, '"');
	for (size_t i = 0; i < clean.n; i++) {
		if (clean.data[i] == '"' || clean.data[i] == '\\')
			str_putc(out, '\\');
		str_putc(out, clean.data[i]);
	}
	str_putc(out, '"');
}

/* Bytes of s up to its n-th character. */
static size_t bytes_of(const char *s, size_t n)
{
	size_t i = 0;

	for (; s[i]; i++) {
		if (((u8)s[i] & 0xc0) != 0x80 && n-- == 0)
			break;
	}
	return i;
}

void text_append_cut(struct str *out, const char *s, size_t columns)
{
	_cleanup_str_ struct str clean = {};
	size_t n, head;
	const char *text;

	text_append_clean(&clean, s, 0);
	text = str_get(&clean);
	n = text_columns(text);
	if (!columns || n <= columns) {
		str_puts(out, text);
		return;
	}
	if (columns <= 6) {
		str_append(out, text, bytes_of(text, columns));
		return;
	}
	/* The start of a name matters most, then its end, then its middle. */
	head = (columns - 2) * 2 / 3;
	str_append(out, text, bytes_of(text, head));
	str_puts(out, "..");
	str_puts(out, text + bytes_of(text, n - (columns - 2 - head)));
}

void text_append_count(struct str *out, s64 v)
{
	char digits[24];
	int n = snprintf(digits, sizeof(digits), "%lld", v), i = 0;

	if (digits[0] == '-')
		str_putc(out, digits[i++]);
	for (; i < n; i++) {
		str_putc(out, digits[i]);
		if ((n - i) % 3 == 1 && i + 1 < n)
			str_putc(out, ',');
	}
}

static void append_time(struct str *out, double ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"s", 1e9}, {"ms", 1e6}, {"\xc2\xb5s", 1e3}, {"ns", 1}};
	size_t i = 0;
	double v;

	/* What rounds to 1000 of a unit is 1 of the next. */
	while (i + 1 < ARRAY_SIZE(units) && fabs(ns) < 0.9995 * units[i].ns)
		i++;
	v = ns / units[i].ns;
	str_printf(out, "%.*f %s",
		   i == ARRAY_SIZE(units) - 1 || fabs(v) >= 99.95 ? 0
		   : fabs(v) >= 9.995				  ? 1
								  : 2,
		   v, units[i].name);
}

void text_append_value(struct str *out, s64 v, const char *unit)
{
	u64 per_second = vocab_per_second(unit);

	if (per_second) {
		append_time(out, (double)v * (1e9 / (double)per_second));
		return;
	}
	text_append_count(out, v);
	str_putc(out, ' ');
	text_append_clean(out, unit, 0);
}

void text_hex(const u8 *bytes, size_t n, char *ret)
{
	for (size_t i = 0; i < n; i++) {
		*ret++ = "0123456789abcdef"[bytes[i] >> 4];
		*ret++ = "0123456789abcdef"[bytes[i] & 15];
	}
	*ret = 0;
}

int text_hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

bool text_unhex(const char *s, size_t n, u8 *ret)
{
	if (strlen(s) != 2 * n || strspn(s, "0123456789abcdefABCDEF") != 2 * n)
		return false;
	for (size_t i = 0; i < n; i++)
		ret[i] = (u8)(text_hex_digit(s[2 * i]) << 4 | text_hex_digit(s[2 * i + 1]));
	return true;
}
