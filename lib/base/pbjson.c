/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pbjson.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

#define MAX_DEPTH 32
#define MAX_NAME 64

static inline void cleanup_json(json_t **j)
{
	json_decref(*j);
}

/* "profile_typeID" -> "profileTypeID" */
static void json_name(const char *name, char ret[MAX_NAME])
{
	size_t n = 0;
	bool upper = false;

	for (; *name && n + 1 < MAX_NAME; name++) {
		if (*name == '_') {
			upper = true;
			continue;
		}
		ret[n++] = upper && *name >= 'a' && *name <= 'z' ? (char)(*name - 32) : *name;
		upper = false;
	}
	ret[n] = '\0';
}

/* ---- reading ---- */

struct json_reader {
	struct arena *arena;
	struct diag *diag;
	u32 depth;
};

static int read_message(struct json_reader *r, const ProtobufCMessageDescriptor *d, json_t *j,
			ProtobufCMessage **ret);

static int wrong(struct json_reader *r, const ProtobufCFieldDescriptor *f)
{
	return diag_set(r->diag, -EBADMSG, "JSON: '%s' has a value of another type", f->name);
}

static int read_integer(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
			bool is_signed, u64 *ret)
{
	const char *s;
	char *end;

	if (json_is_integer(j)) {
		*ret = (u64)json_integer_value(j);
		return !is_signed && json_integer_value(j) < 0 ? wrong(r, f) : 0;
	}
	if (json_is_real(j)) {
		double v = json_real_value(j);

		if (v != trunc(v) || fabs(v) > 9007199254740992.0 || (!is_signed && v < 0))
			return wrong(r, f);
		*ret = (u64)(s64)v;
		return 0;
	}
	s = json_string_value(j);
	if (!s || !*s)
		return wrong(r, f);
	errno = 0;
	*ret = is_signed ? (u64)strtoll(s, &end, 10) : strtoull(s, &end, 10);
	return errno || *end || (!is_signed && *s == '-') ? wrong(r, f) : 0;
}

static int read_enum(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j, int *ret)
{
	const ProtobufCEnumDescriptor *d = f->descriptor;
	const ProtobufCEnumValue *v;
	u64 n;
	int e;

	if (json_is_string(j)) {
		v = protobuf_c_enum_descriptor_get_value_by_name(d, json_string_value(j));
		if (!v)
			return diag_set(r->diag, -EBADMSG, "JSON: '%s' has no such value", f->name);
		*ret = v->value;
		return 0;
	}
	e = read_integer(r, f, j, true, &n);
	if (e == 0)
		*ret = (int)n;
	return e;
}

static int read_text(struct json_reader *r, json_t *j, char **ret)
{
	size_t n = json_string_length(j);
	char *s = arena_alloc(r->arena, n + 1);

	if (!s)
		return -E2BIG;
	memcpy(s, json_string_value(j), n);
	s[n] = '\0';
	*ret = s;
	return 0;
}

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

/* Base64 in either alphabet, with or without padding, as the mapping allows. */
static int read_bytes(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		      ProtobufCBinaryData *ret)
{
	const char *s = json_string_value(j);
	size_t n = json_string_length(j), len = 0;
	u8 *out = arena_alloc(r->arena, n / 4 * 3 + 4);
	u32 bits = 0, have = 0;

	if (!out)
		return -E2BIG;
	while (n && s[n - 1] == '=')
		n--;
	for (size_t i = 0; i < n; i++) {
		int d = base64_digit(s[i]);

		if (d < 0)
			return diag_set(r->diag, -EBADMSG, "JSON: '%s' is not base64", f->name);
		bits = bits << 6 | (u32)d;
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[len++] = (u8)(bits >> have);
		}
	}
	*ret = (ProtobufCBinaryData){.len = len, .data = out};
	return 0;
}

static int read_double(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		       double *ret)
{
	char *end;

	if (json_is_number(j)) {
		*ret = json_number_value(j);
		return 0;
	}
	if (!json_is_string(j))
		return wrong(r, f);
	*ret = strtod(json_string_value(j), &end);
	return *end ? wrong(r, f) : 0;
}

static int read_number(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		       void *at)
{
	double d = 0;
	u64 n = 0;
	int e;

	switch (f->type) {
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)at = json_is_true(j);
		return json_is_boolean(j) ? 0 : wrong(r, f);
	case PROTOBUF_C_TYPE_ENUM:
		return read_enum(r, f, j, at);
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_DOUBLE:
		e = read_double(r, f, j, &d);
		if (f->type == PROTOBUF_C_TYPE_FLOAT)
			*(float *)at = (float)d;
		else
			*(double *)at = d;
		return e;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		e = read_integer(r, f, j, false, &n);
		*(u32 *)at = (u32)n;
		return e == 0 && n > UINT32_MAX ? wrong(r, f) : e;
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		e = read_integer(r, f, j, true, &n);
		*(s32 *)at = (s32)n;
		return e == 0 && (s64)n != (s32)n ? wrong(r, f) : e;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return read_integer(r, f, j, false, at);
	default:
		return read_integer(r, f, j, true, at);
	}
}

static int read_value(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j, void *at)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		return json_is_string(j) ? read_text(r, j, at) : wrong(r, f);
	case PROTOBUF_C_TYPE_BYTES:
		return json_is_string(j) ? read_bytes(r, f, j, at) : wrong(r, f);
	case PROTOBUF_C_TYPE_MESSAGE:
		return read_message(r, f->descriptor, j, at);
	default:
		return read_number(r, f, j, at);
	}
}

static size_t value_size(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return 4;
	default:
		return 8;
	}
}

static int read_field(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		      ProtobufCMessage *m)
{
	size_t n = json_array_size(j), size = value_size(f);
	u8 *values, *base = (u8 *)m;
	int e = 0;

	if (json_is_null(j))
		return 0;
	if (f->label != PROTOBUF_C_LABEL_REPEATED)
		return read_value(r, f, j, base + f->offset);
	if (!json_is_array(j))
		return wrong(r, f);
	values = arena_calloc(r->arena, n + 1, size);
	if (!values)
		return -E2BIG;
	for (size_t i = 0; i < n && e == 0; i++)
		e = read_value(r, f, json_array_get(j, i), values + i * size);
	*(u8 **)(base + f->offset) = values;
	*(size_t *)(base + f->quantifier_offset) = n;
	return e;
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *d,
						  const char *name)
{
	char camel[MAX_NAME];

	for (unsigned int i = 0; i < d->n_fields; i++) {
		json_name(d->fields[i].name, camel);
		if (!strcmp(camel, name) || !strcmp(d->fields[i].name, name))
			return &d->fields[i];
	}
	return NULL;
}

static int read_message(struct json_reader *r, const ProtobufCMessageDescriptor *d, json_t *j,
			ProtobufCMessage **ret)
{
	ProtobufCMessage *m;
	const char *name;
	json_t *value;
	int e = 0;

	if (!json_is_object(j))
		return diag_set(r->diag, -EBADMSG, "JSON: %s is not an object", d->short_name);
	if (r->depth >= MAX_DEPTH)
		return diag_set(r->diag, -E2BIG, "JSON: nested too deeply");
	m = arena_calloc(r->arena, 1, d->sizeof_message);
	if (!m)
		return -E2BIG;
	d->message_init(m);
	r->depth++;
	json_object_foreach(j, name, value)
	{
		const ProtobufCFieldDescriptor *f = find_field(d, name);

		if (f && e == 0)
			e = read_field(r, f, value, m);
	}
	r->depth--;
	if (e == 0)
		*ret = m;
	return e;
}

int pbjson_read(const ProtobufCMessageDescriptor *d, const char *text, size_t n, struct arena *a,
		ProtobufCMessage **ret, struct diag *reterr_diag)
{
	struct json_reader r = {.arena = a, .diag = reterr_diag};
	_cleanup_(json) json_t *j = NULL;
	int e = json_read(text, n, 0, &j, reterr_diag);

	if (e < 0)
		return e;
	e = read_message(&r, d, j, ret);
	return e == -E2BIG ? diag_set(reterr_diag, e, "the request needs too much memory") : e;
}

/* ---- writing ---- */

static void write_message(struct json_writer *w, const char *key, const ProtobufCMessage *m);

static void write_bytes(struct json_writer *w, const char *key, const ProtobufCBinaryData *b)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	_cleanup_str_ struct str text = {};

	for (size_t i = 0; i < b->len; i += 3) {
		size_t n = MIN(b->len - i, (size_t)3);
		u32 v = (u32)b->data[i] << 16 | (n > 1 ? (u32)b->data[i + 1] << 8 : 0) |
			(n > 2 ? b->data[i + 2] : 0);

		str_putc(&text, digits[v >> 18]);
		str_putc(&text, digits[v >> 12 & 63]);
		str_putc(&text, n > 1 ? digits[v >> 6 & 63] : '=');
		str_putc(&text, n > 2 ? digits[v & 63] : '=');
	}
	w->out->failed |= text.failed;
	json_put_exact(w, key, str_get(&text));
}

static void write_double(struct json_writer *w, const char *key, double v)
{
	if (isfinite(v))
		json_put_double(w, key, v);
	else
		json_put_exact(w, key, isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity");
}

static void write_enum(struct json_writer *w, const char *key, const ProtobufCFieldDescriptor *f,
		       int value)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(f->descriptor, value);

	if (v)
		json_put_exact(w, key, v->name);
	else
		json_put_s64(w, key, value);
}

/* The mapping makes strings of 64-bit integers, which JavaScript cannot hold. */
static void write_64(struct json_writer *w, const char *key, bool is_signed, u64 v)
{
	char text[24];

	if (is_signed)
		snprintf(text, sizeof(text), "%lld", (long long)v);
	else
		snprintf(text, sizeof(text), "%llu", v);
	json_put_exact(w, key, text);
}

static void write_value(struct json_writer *w, const char *key, const ProtobufCFieldDescriptor *f,
			const void *at)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		json_put_exact(w, key, *(char *const *)at ? *(char *const *)at : "");
		return;
	case PROTOBUF_C_TYPE_BYTES:
		write_bytes(w, key, at);
		return;
	case PROTOBUF_C_TYPE_MESSAGE:
		write_message(w, key, *(ProtobufCMessage *const *)at);
		return;
	case PROTOBUF_C_TYPE_BOOL:
		json_put_bool(w, key, *(const protobuf_c_boolean *)at);
		return;
	case PROTOBUF_C_TYPE_ENUM:
		write_enum(w, key, f, *(const int *)at);
		return;
	case PROTOBUF_C_TYPE_FLOAT:
		write_double(w, key, (double)*(const float *)at);
		return;
	case PROTOBUF_C_TYPE_DOUBLE:
		write_double(w, key, *(const double *)at);
		return;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		json_put_u64(w, key, *(const u32 *)at);
		return;
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		json_put_s64(w, key, *(const s32 *)at);
		return;
	default:
		write_64(w, key,
			 f->type != PROTOBUF_C_TYPE_UINT64 && f->type != PROTOBUF_C_TYPE_FIXED64,
			 *(const u64 *)at);
		return;
	}
}

static bool is_default(const ProtobufCFieldDescriptor *f, const u8 *at)
{
	static const u8 zero[8];

	if (f->type == PROTOBUF_C_TYPE_STRING)
		return !*(char *const *)at || !**(char *const *)at;
	if (f->type == PROTOBUF_C_TYPE_MESSAGE)
		return !*(void *const *)at;
	if (f->type == PROTOBUF_C_TYPE_BYTES)
		return !((const ProtobufCBinaryData *)at)->len;
	return !memcmp(at, zero, value_size(f));
}

static void write_field(struct json_writer *w, const ProtobufCFieldDescriptor *f, const u8 *base)
{
	bool list = f->label == PROTOBUF_C_LABEL_REPEATED;
	size_t n = list ? *(const size_t *)(base + f->quantifier_offset) : 0;
	const u8 *values = base + f->offset;
	char name[MAX_NAME];

	if (list ? !n : is_default(f, values))
		return;
	json_name(f->name, name);
	if (!list) {
		write_value(w, name, f, values);
		return;
	}
	memcpy(&values, base + f->offset, sizeof(values));
	json_open_array(w, name);
	for (size_t i = 0; i < n; i++)
		write_value(w, NULL, f, values + i * value_size(f));
	json_close(w);
}

static void write_message(struct json_writer *w, const char *key, const ProtobufCMessage *m)
{
	json_open_object(w, key);
	for (unsigned int i = 0; i < m->descriptor->n_fields; i++)
		write_field(w, &m->descriptor->fields[i], (const u8 *)m);
	json_close(w);
}

void pbjson_write(const ProtobufCMessage *m, struct str *out)
{
	struct json_writer w = {.out = out};

	write_message(&w, NULL, m);
}
