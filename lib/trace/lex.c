/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/lex.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int trace_error(struct diag *d, struct trace_at at, int error, const char *fmt, ...)
{
	char what[sizeof(d->text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return diag_set(d, error, "%u:%u: %s", at.line, at.column, what);
}

int trace_copy(struct trace_lexer *l, struct trace_at at, const char *s, size_t n, const char **ret)
{
	char *p = arena_alloc(l->arena, n + 1);

	if (!p)
		return trace_error(l->diag, at, -ENOMEM, "the script needs too much memory");
	memcpy(p, s, n);
	p[n] = '\0';
	*ret = p;
	return 0;
}

void trace_lexer_init(struct trace_lexer *l, const char *text, size_t n, struct arena *a,
		      struct diag *d)
{
	*l = (struct trace_lexer){.text = text, .n = n, .line = 1, .arena = a, .diag = d};
}

struct trace_at trace_lexer_at(const struct trace_lexer *l)
{
	return (struct trace_at){l->line, (u32)(l->pos - l->line_begin) + 1};
}

static char peek(const struct trace_lexer *l, size_t ahead)
{
	return ahead < l->n - l->pos ? l->text[l->pos + ahead] : '\0';
}

void trace_lexer_step(struct trace_lexer *l)
{
	if (l->text[l->pos++] == '\n') {
		l->line++;
		l->line_begin = l->pos;
	}
}

static int skip_comment(struct trace_lexer *l)
{
	struct trace_at at = trace_lexer_at(l);

	for (l->pos += 2; l->pos < l->n; trace_lexer_step(l)) {
		if (peek(l, 0) == '*' && peek(l, 1) == '/') {
			l->pos += 2;
			return 0;
		}
	}
	return trace_error(l->diag, at, -EINVAL, "the comment has no end: */ is missing");
}

int trace_lexer_skip(struct trace_lexer *l)
{
	while (l->pos < l->n) {
		char c = peek(l, 0), next = peek(l, 1);

		if (trace_is_space(c)) {
			trace_lexer_step(l);
		} else if (c == '/' && next == '/') {
			while (l->pos < l->n && peek(l, 0) != '\n')
				l->pos++;
		} else if (c == '/' && next == '*') {
			int r = skip_comment(l);

			if (r < 0)
				return r;
		} else {
			break;
		}
	}
	return 0;
}

/* ---- numbers ---- */

static int digit_of(char c)
{
	if (trace_is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

/* Digits with _ between them. */
static int read_digits(const char *s, size_t n, u64 base, u64 *ret, size_t *pos)
{
	u64 value = 0;
	bool any = false;

	for (; *pos < n; ++*pos) {
		u64 digit = (u64)digit_of(s[*pos]);

		if (s[*pos] == '_' && any)
			continue;
		if (digit >= base)
			break;
		if (__builtin_mul_overflow(value, base, &value) ||
		    __builtin_add_overflow(value, digit, &value))
			return -ERANGE;
		any = true;
	}
	if (!any || s[*pos - 1] == '_')
		return -EINVAL;
	*ret = value;
	return 0;
}

/* ns, us, ms, s, m, h, d multiply; C's u, l, ul, ull do nothing. */
static int read_suffix(const char *s, size_t n, u64 *value, size_t *pos)
{
	static const struct {
		const char *name;
		u64 factor;
	} suffixes[] = {
		{"ns", 1},
		{"us", 1000},
		{"ms", 1000000},
		{"s", 1000000000},
		{"m", 60000000000ULL},
		{"h", 3600000000000ULL},
		{"d", 86400000000000ULL},
		{"u", 1},
		{"ul", 1},
		{"ull", 1},
		{"l", 1},
		{"ll", 1},
		{"lu", 1},
		{"llu", 1},
	};
	char suffix[4] = {};
	size_t k = 0;

	while (*pos + k < n && trace_is_name_part(s[*pos + k])) {
		char c = s[*pos + k];

		if (k == sizeof(suffix) - 1)
			return -EINVAL;
		suffix[k++] = c == 'U' || c == 'L' ? (char)(c + 'a' - 'A') : c;
	}
	*pos += k;
	if (!k)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		if (strcmp(suffixes[i].name, suffix) == 0)
			return __builtin_mul_overflow(*value, suffixes[i].factor, value) ? -ERANGE
											 : 0;
	}
	return -EINVAL;
}

int trace_number_prefix(const char *s, size_t n, u64 *ret, size_t *ret_used)
{
	u64 value = 0, exponent = 0, base = 10;
	size_t pos = 0;
	int r;

	if (n > 1 && s[0] == '0') {
		if (s[1] == 'x' || s[1] == 'X')
			base = 16;
		else if (s[1] == 'b' || s[1] == 'B')
			base = 2;
		else if (trace_is_digit(s[1]))
			base = 8;
		pos = base == 16 || base == 2 ? 2 : 0;
	}
	r = read_digits(s, n, base, &value, &pos);
	if (r < 0)
		return r;
	if (base == 10 && pos + 1 < n && (s[pos] == 'e' || s[pos] == 'E') &&
	    trace_is_digit(s[pos + 1])) {
		pos++;
		r = read_digits(s, n, 10, &exponent, &pos);
		if (r == 0 && exponent > 19 && value)
			r = -ERANGE;
		for (; r == 0 && exponent && value; exponent--)
			r = __builtin_mul_overflow(value, (u64)10, &value) ? -ERANGE : 0;
		if (r < 0)
			return r;
	}
	r = read_suffix(s, n, &value, &pos);
	if (r < 0)
		return r;
	*ret = value;
	*ret_used = pos;
	return 0;
}

static int read_number(struct trace_lexer *l, struct trace_token *t)
{
	const char *s = l->text + l->pos;
	size_t used = 0, n = l->n - l->pos, word = 0;
	int r = trace_number_prefix(s, n, &t->number, &used);

	t->kind = TOKEN_NUMBER;
	l->pos += used;
	if (r == 0)
		return 0;
	while (word < n && word < 40 && trace_is_name_part(s[word]))
		word++;
	if (r == -ERANGE)
		return trace_error(l->diag, t->at, -EINVAL, "%.*s has more than 64 bits", (int)word,
				   s);
	return trace_error(l->diag, t->at, -EINVAL,
			   "%.*s is not a number: after the digits may stand ns, us, ms, s, m, h, "
			   "d, or u, l, ul, ull",
			   (int)word, s);
}

/* ---- texts ---- */

/* \ooo, \xhh. The \ is read; pos is at the next character. */
static int read_code(struct trace_lexer *l, struct trace_at at, char *ret)
{
	bool hex = peek(l, 0) == 'x' || peek(l, 0) == 'X';
	u32 value = 0, digits = 0, most = hex ? 2 : 3, base = hex ? 16 : 8;

	l->pos += hex;
	for (; digits < most && l->pos < l->n; digits++, l->pos++) {
		u32 digit = (u32)digit_of(peek(l, 0));

		if (digit >= base)
			break;
		value = value * base + digit;
	}
	if (!digits)
		return trace_error(l->diag, at, -EINVAL, "\\x needs one or two hex digits");
	if (value > 255)
		return trace_error(l->diag, at, -EINVAL,
				   "\\%o is more than a byte: \\377 is the largest", value);
	*ret = (char)value;
	return 0;
}

static int read_escape(struct trace_lexer *l, char *ret)
{
	static const char from[] = "ntrabfve\"\\'?", to[] = "\n\t\r\a\b\f\v\033\"\\'?";
	struct trace_at at = trace_lexer_at(l);
	char c = peek(l, 1);
	const char *known = c ? strchr(from, c) : NULL;

	l->pos++;
	if ((c >= '0' && c <= '7') || c == 'x' || c == 'X')
		return read_code(l, at, ret);
	if (!known)
		return trace_error(l->diag, at, -EINVAL,
				   "\\%c is no escape; write \\\\ for a backslash", c ? c : ' ');
	l->pos++;
	*ret = to[known - from];
	return 0;
}

static int read_string(struct trace_lexer *l, struct trace_token *t)
{
	char quote = peek(l, 0), *out;
	size_t n = 0, most = 1;

	while (most < l->n - l->pos && peek(l, most) != quote && peek(l, most) != '\n')
		most += peek(l, most) == '\\' ? 2 : 1;
	out = arena_alloc(l->arena, most + 1);
	if (!out)
		return trace_error(l->diag, t->at, -ENOMEM, "the script needs too much memory");
	l->pos++;
	while (l->pos < l->n && peek(l, 0) != quote && peek(l, 0) != '\n') {
		char c = peek(l, 0);

		if (c == '\\') {
			int r = read_escape(l, &c);

			if (r < 0)
				return r;
		} else {
			l->pos++;
		}
		out[n++] = c;
	}
	if (l->pos >= l->n || peek(l, 0) != quote)
		return trace_error(l->diag, t->at, -EINVAL,
				   "the text has no end on its line: %c is missing", quote);
	l->pos++;
	out[n] = '\0';
	t->kind = TOKEN_STRING;
	t->text = (struct trace_text){out, (u32)n};
	if (quote == '"')
		return 0;
	if (n != 1)
		return trace_error(l->diag, t->at, -EINVAL,
				   "one character stands between ' '; texts stand between \" \"");
	t->kind = TOKEN_NUMBER;
	t->number = (u8)out[0];
	return 0;
}

/* ---- names and signs ---- */

static int read_name(struct trace_lexer *l, enum trace_token_kind kind, size_t prefix,
		     struct trace_token *t)
{
	size_t n = 0;
	const char *copy;
	int r;

	l->pos += prefix;
	while (trace_is_name_part(peek(l, n)))
		n++;
	r = trace_copy(l, t->at, l->text + l->pos, n, &copy);
	if (r < 0)
		return r;
	l->pos += n;
	t->kind = kind;
	t->text = (struct trace_text){copy, (u32)n};
	return 0;
}

static int read_dollar(struct trace_lexer *l, struct trace_token *t)
{
	char c = peek(l, 1);

	if (trace_is_name_start(c))
		return read_name(l, TOKEN_VARIABLE, 1, t);
	l->pos++;
	t->kind = TOKEN_PARAMETER;
	t->number = 0;
	if (c == '#') {
		l->pos++;
		return 0;
	}
	if (!trace_is_digit(c) || c == '0')
		return trace_error(l->diag, t->at, -EINVAL,
				   "after $ stands the name of a variable, the number of a "
				   "parameter ($1 is the first), or #");
	for (; trace_is_digit(peek(l, 0)); l->pos++) {
		t->number = t->number * 10 + (u64)(peek(l, 0) - '0');
		if (t->number > 10000)
			return trace_error(l->diag, t->at, -EINVAL,
					   "there are no parameters above $10000");
	}
	return 0;
}

static int read_sign(struct trace_lexer *l, struct trace_token *t)
{
	static const char signs[][4] = {
		"<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--",
		"->",  "..",  "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "?:"};
	char c = peek(l, 0);

	t->kind = TOKEN_SIGN;
	for (size_t i = 0; i < ARRAY_SIZE(signs); i++) {
		size_t n = strlen(signs[i]);

		if (n > l->n - l->pos || strncmp(l->text + l->pos, signs[i], n) != 0)
			continue;
		t->number = TRACE_SIGN3(signs[i][0], signs[i][1], n == 3 ? signs[i][2] : '\0');
		l->pos += n;
		return 0;
	}
	if (c > ' ' && c < 127 && !strchr("+-*/%&|^~!<>=?:;,.(){}[]", c))
		return trace_error(l->diag, t->at, -EINVAL, "the language has no sign %c", c);
	if (c <= ' ' || c == 127)
		return trace_error(l->diag, t->at, -EINVAL,
				   "byte 0x%02x can only stand in a text between \" \"", (u8)c);
	t->number = (u8)c;
	l->pos++;
	return 0;
}

int trace_lexer_next(struct trace_lexer *l, struct trace_token *ret)
{
	struct trace_token t = {};
	int r = trace_lexer_skip(l);
	char c = peek(l, 0);

	if (r < 0)
		return r;
	t.at = trace_lexer_at(l);
	t.begin = l->pos;
	if (l->pos >= l->n)
		r = 0;
	else if (trace_is_name_start(c))
		r = read_name(l, TOKEN_NAME, 0, &t);
	else if (trace_is_digit(c))
		r = read_number(l, &t);
	else if (c == '"' || c == '\'')
		r = read_string(l, &t);
	else if (c == '$')
		r = read_dollar(l, &t);
	else if (c == '@')
		r = read_name(l, TOKEN_MAP, 1, &t);
	else
		r = read_sign(l, &t);
	if (r < 0)
		return r;
	t.end = l->pos;
	*ret = t;
	return 0;
}
