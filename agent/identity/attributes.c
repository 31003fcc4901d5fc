/* SPDX-License-Identifier: Apache-2.0 */
/* The text of OTEL_RESOURCE_ATTRIBUTES, and of labels that the user gives. */
#include <errno.h>
#include <string.h>

#include "agent/identity/identity.h"
#include "base/str.h"
#include "base/text.h"

/* Decodes %XX in place and removes surrounding spaces. -EINVAL: an invalid %, or a NUL. */
static int decode_percent(struct str *s)
{
	size_t n = 0, begin = 0;

	for (size_t i = 0; i < s->n; i++) {
		char c = s->data[i];

		if (c == '%') {
			int high = i + 2 < s->n ? text_hex_digit(s->data[i + 1]) : -1;
			int low = i + 2 < s->n ? text_hex_digit(s->data[i + 2]) : -1;

			if (high < 0 || low < 0 || (high | low) == 0)
				return -EINVAL;
			c = (char)(high << 4 | low);
			i += 2;
		}
		s->data[n++] = c;
	}
	while (n && s->data[n - 1] == ' ')
		n--;
	while (begin < n && s->data[begin] == ' ')
		begin++;
	memmove(s->data, s->data + begin, n - begin);
	s->n = n - begin;
	s->data[s->n] = '\0';
	return 0;
}

/* Splits one "key=value" of n bytes. */
static int split_pair(const char *text, size_t n, struct str *name, struct str *value)
{
	const char *equals = memchr(text, '=', n);
	int r;

	if (!equals || equals == text)
		return -EINVAL;
	str_clear(name);
	str_clear(value);
	r = str_append(name, text, (size_t)(equals - text));
	if (r == 0)
		r = str_append(value, equals + 1, n - (size_t)(equals + 1 - text));
	if (r == 0)
		r = decode_percent(name);
	return r < 0 || !value->n ? r : decode_percent(value);
}

int identity_parse_attributes(const char *text,
			      int (*fn)(void *arg, const char *name, const char *value), void *arg)
{
	_cleanup_str_ struct str name = {}, value = {}, clean = {};
	int r = 0;

	/* The first pass validates, the second calls fn. */
	for (int pass = 0; pass < 2; pass++) {
		for (const char *at = text; *at;) {
			size_t n = strcspn(at, ",");

			r = n ? split_pair(at, n, &name, &value) : 0;
			if (r < 0)
				return r;
			if (n && pass) {
				str_clear(&clean);
				text_append_clean(&clean, str_get(&name), 0);
				r = fn(arg, str_get(&clean), str_get(&value));
			}
			if (r)
				return r;
			at += n + (at[n] == ',');
		}
	}
	return 0;
}
