/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void str_deinit(struct str *s)
{
	free(s->data);
	*s = (struct str){};
}

void str_clear(struct str *s)
{
	s->n = 0;
	s->failed = false;
	if (s->data)
		s->data[0] = '\0';
}

static int str_reserve(struct str *s, size_t extra)
{
	size_t want, cap;
	char *p;

	if (s->failed)
		return -ENOMEM;
	if (__builtin_add_overflow(s->n, extra, &want) || __builtin_add_overflow(want, 1, &want))
		goto fail;
	if (want <= s->cap)
		return 0;
	cap = s->cap + s->cap / 2 + 64;
	if (cap < want)
		cap = want;
	p = realloc(s->data, cap);
	if (!p)
		goto fail;
	s->data = p;
	s->cap = cap;
	return 0;
fail:
	s->failed = true;
	return -ENOMEM;
}

int str_append(struct str *s, const void *bytes, size_t n)
{
	int r = str_reserve(s, n);

	if (r < 0)
		return r;
	if (n)
		memcpy(s->data + s->n, bytes, n);
	s->n += n;
	s->data[s->n] = '\0';
	return 0;
}

int str_puts(struct str *s, const char *text)
{
	return str_append(s, text, strlen(text));
}

int str_putc(struct str *s, char c)
{
	return str_append(s, &c, 1);
}

int str_vprintf(struct str *s, const char *fmt, va_list ap)
{
	va_list again;
	int n, r;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0) {
		s->failed = true;
		return -EINVAL;
	}
	r = str_reserve(s, (size_t)n);
	if (r < 0)
		return r;
	vsnprintf(s->data + s->n, (size_t)n + 1, fmt, ap);
	s->n += (size_t)n;
	return 0;
}

int str_printf(struct str *s, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = str_vprintf(s, fmt, ap);
	va_end(ap);
	return r;
}

const char *str_get(const struct str *s)
{
	return s->data ? s->data : "";
}

bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

bool str_same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

int str_to_u64(const char *s, int base, u64 *ret)
{
	char *end;
	u64 v;

	if (!isalnum((unsigned char)*s))
		return -EINVAL;
	errno = 0;
	v = strtoull(s, &end, base);
	if (errno == ERANGE)
		return -ERANGE;
	if (errno || *end)
		return -EINVAL;
	*ret = v;
	return 0;
}
