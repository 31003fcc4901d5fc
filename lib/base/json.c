/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Appends a JSON string with all characters of s. */
static void append_exact(struct str *out, const char *s)
{
	size_t left = strlen(s);

	str_putc(out, '"');
	while (left) {
		u32 c = 0;
		size_t n = text_decode(s, left, &c);

		if (!n)
			str_puts(out, "\xef\xbf\xbd");
		else if (c < 0x20)
			str_printf(out, "\\u%04x", c);
		else if (c == '"' || c == '\\')
			str_printf(out, "\\%c", (char)c);
		else
			str_append(out, s, n);
		n = n ? n : 1;
		s += n;
		left -= n;
	}
	str_putc(out, '"');
}

/* Puts the comma and the key before a value, and checks that a value may come here. */
static void begin_value(struct json_writer *w, const char *key)
{
	bool in_object = w->objects & 1, first = !(w->filled & 1);

	assert(in_object == (key != NULL));
	assert(w->depth || first);
	w->filled |= 1;
	if (!first)
		str_putc(w->out, ',');
	if (key) {
		text_append_json(w->out, key);
		str_putc(w->out, ':');
	}
}

static void open_level(struct json_writer *w, const char *key, bool object)
{
	begin_value(w, key);
	assert(w->depth < JSON_MAX_DEPTH);
	w->depth++;
	w->objects = w->objects << 1 | object;
	w->filled <<= 1;
	str_putc(w->out, object ? '{' : '[');
}

void json_open_object(struct json_writer *w, const char *key)
{
	open_level(w, key, true);
}

void json_open_array(struct json_writer *w, const char *key)
{
	open_level(w, key, false);
}

void json_close(struct json_writer *w)
{
	assert(w->depth);
	str_putc(w->out, w->objects & 1 ? '}' : ']');
	w->depth--;
	w->objects >>= 1;
	w->filled >>= 1;
}

void json_put_text(struct json_writer *w, const char *key, const char *text)
{
	begin_value(w, key);
	text_append_json(w->out, text);
}

void json_put_exact(struct json_writer *w, const char *key, const char *text)
{
	begin_value(w, key);
	append_exact(w->out, text);
}

/* Not printf(), which is slow: most of a large answer is integers. */
static void append_u64(struct str *out, u64 v)
{
	char digits[20], *at = digits + sizeof(digits);

	do
		*--at = (char)('0' + v % 10);
	while (v /= 10);
	str_append(out, at, (size_t)(digits + sizeof(digits) - at));
}

void json_put_u64(struct json_writer *w, const char *key, u64 v)
{
	begin_value(w, key);
	append_u64(w->out, v);
}

void json_put_s64(struct json_writer *w, const char *key, s64 v)
{
	begin_value(w, key);
	if (v < 0)
		str_putc(w->out, '-');
	append_u64(w->out, v < 0 ? 0 - (u64)v : (u64)v);
}

void json_put_fixed(struct json_writer *w, const char *key, double v, u32 decimals)
{
	if (!isfinite(v)) {
		json_put_null(w, key);
		return;
	}
	begin_value(w, key);
	str_printf(w->out, "%.*f", (int)decimals, v);
}

void json_put_scaled(struct json_writer *w, const char *key, u64 v, u32 decimals)
{
	u64 unit = 1;

	assert(decimals && decimals < 20);
	for (u32 i = 0; i < decimals; i++)
		unit *= 10;
	begin_value(w, key);
	str_printf(w->out, "%llu.%0*llu", v / unit, (int)decimals, v % unit);
}

void json_put_double(struct json_writer *w, const char *key, double v)
{
	char text[32];

	if (!isfinite(v)) {
		json_put_null(w, key);
		return;
	}
	snprintf(text, sizeof(text), "%.15g", v);
	if (strtod(text, NULL) != v)
		snprintf(text, sizeof(text), "%.17g", v);
	begin_value(w, key);
	str_puts(w->out, text);
}

void json_put_bool(struct json_writer *w, const char *key, bool v)
{
	begin_value(w, key);
	str_puts(w->out, v ? "true" : "false");
}

void json_put_null(struct json_writer *w, const char *key)
{
	begin_value(w, key);
	str_puts(w->out, "null");
}

void json_put_written(struct json_writer *w, const char *key, const char *json)
{
	begin_value(w, key);
	str_puts(w->out, json);
}

u64 json_tree_bytes(const char *text, size_t n)
{
	u64 bytes = n;

	for (size_t i = 0; i < n; i++)
		switch (text[i]) {
		case '{':
			bytes += 400;
			break;
		case '[':
			bytes += 200;
			break;
		case ',':
		case ':':
			bytes += 150;
			break;
		default:
			break;
		}
	return bytes;
}

int json_read(const char *text, size_t n, size_t flags, struct json_t **ret,
	      struct diag *reterr_diag)
{
	json_error_t error = {};
	json_t *j = json_loadb(text, n, flags, &error);

	if (!j)
		return diag_set_at(reterr_diag, -EBADMSG, (u64)MAX(error.position, 0),
				   "not JSON: line %d: %s", error.line, error.text);
	*ret = j;
	return 0;
}
