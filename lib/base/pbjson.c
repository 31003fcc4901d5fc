/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pbjson.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"

#define MAX_DEPTH 64
#define MAX_NAME 64

/* Connect's JSON is read so: a newer client's value is not an error. */
const struct pbjson_dialect pbjson_plain = {.name = "JSON", .skip_values = true};

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
	const struct pbjson_dialect *dialect;
	struct arena *arena;
	struct diag *diag;
	u32 depth;  /* of messages */
	u32 packed; /* of messages in bytes */
};

static int read_message(struct json_reader *r, const ProtobufCMessageDescriptor *d, json_t *j,
			ProtobufCMessage **ret);

static int wrong_type(struct json_reader *r, const char *name, const char *what)
{
	return diag_set(r->diag, -EBADMSG, "%s: %s is not %s", r->dialect->name, name, what);
}

/* ---- numbers ---- */

/*
 * Reads a number, or a string with one. An unsigned number above 63 bits is returned as its two's
 * complement.
 */
static bool get_integer(json_t *j, bool is_signed, s64 *ret)
{
	const char *s = json_string_value(j);
	char *end;

	if (json_is_integer(j)) {
		*ret = json_integer_value(j);
		return is_signed || *ret >= 0;
	}
	if (json_is_real(j)) {
		double d = json_real_value(j);

		if (!(fabs(d) < 9e18) || d != floor(d) || (!is_signed && d < 0))
			return false;
		*ret = (s64)d;
		return true;
	}
	if (!s || !*s || (!isdigit((u8)*s) && (*s != '-' || !is_signed)))
		return false;
	errno = 0;
	*ret = is_signed ? strtoll(s, &end, 10) : (s64)strtoull(s, &end, 10);
	return !errno && !*end;
}

static int read_32(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		   bool is_signed, u32 *at)
{
	s64 v;

	if (!get_integer(j, is_signed, &v))
		return wrong_type(r, f->name, "a number");
	if (is_signed ? v != (s32)v : (u64)v > UINT32_MAX)
		return wrong_type(r, f->name, "a 32-bit number");
	*at = (u32)v;
	return 0;
}

static int read_64(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		   bool is_signed, s64 *at)
{
	return get_integer(j, is_signed, at) ? 0 : wrong_type(r, f->name, "a number");
}

static int read_enum(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j, u32 *at)
{
	const ProtobufCEnumValue *v;

	if (!json_is_string(j))
		return read_32(r, f, j, true, at);
	v = protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, json_string_value(j));
	if (!v && !r->dialect->skip_values)
		return wrong_type(r, f->name, "a value that the type has");
	*at = v ? (u32)v->value : 0;
	return 0;
}

static int read_double(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		       double *at)
{
	const char *s = json_string_value(j);
	char *end;

	if (json_is_number(j)) {
		*at = json_number_value(j);
		return 0;
	}
	if (!s || !*s)
		return wrong_type(r, f->name, "a number");
	*at = strtod(s, &end);
	return *end ? wrong_type(r, f->name, "a number") : 0;
}

static int read_number(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		       void *at)
{
	double d = 0;
	int e;

	switch (f->type) {
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)at = json_is_true(j);
		return json_is_boolean(j) ? 0 : wrong_type(r, f->name, "true or false");
	case PROTOBUF_C_TYPE_ENUM:
		return read_enum(r, f, j, at);
	case PROTOBUF_C_TYPE_FLOAT:
		e = read_double(r, f, j, &d);
		*(float *)at = (float)d;
		return e;
	case PROTOBUF_C_TYPE_DOUBLE:
		return read_double(r, f, j, at);
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return read_32(r, f, j, false, at);
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return read_32(r, f, j, true, at);
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return read_64(r, f, j, false, at);
	default:
		return read_64(r, f, j, true, at);
	}
}

/* ---- texts and bytes ---- */

static int read_text(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j, char **at)
{
	size_t n = json_string_length(j);
	char *s;

	if (!json_is_string(j))
		return wrong_type(r, f->name, "a string");
	s = arena_alloc(r->arena, n + 1);
	if (!s)
		return -E2BIG;
	memcpy(s, json_string_value(j), n + 1);
	*at = s;
	return 0;
}

/* Decodes digits of `bits` bits each; skips padding at the end. False: another character. */
static bool decode_digits(const char *s, size_t n, int (*digit)(char), u32 bits,
			  ProtobufCBinaryData *ret)
{
	u32 have = 0, value = 0;

	while (n && s[n - 1] == '=')
		n--;
	for (size_t i = 0; i < n; i++) {
		int v = digit(s[i]);

		if (v < 0)
			return false;
		value = value << bits | (u32)v;
		have += bits;
		if (have >= 8) {
			have -= 8;
			ret->data[ret->len++] = (u8)(value >> have);
		}
	}
	return true;
}

bool pbjson_base64(const char *s, size_t n, ProtobufCBinaryData *ret)
{
	return decode_digits(s, n, text_base64_digit, 6, ret);
}

static int read_bytes(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		      ProtobufCBinaryData *at)
{
	bool hex = r->dialect->hex && r->dialect->hex(f);
	ProtobufCBinaryData out = {};

	if (!json_is_string(j))
		return wrong_type(r, f->name, "a string");
	out.data = arena_alloc(r->arena, json_string_length(j) + 1);
	if (!out.data)
		return -E2BIG;
	if (!decode_digits(json_string_value(j), json_string_length(j),
			   hex ? text_hex_digit : text_base64_digit, hex ? 4 : 6, &out))
		return wrong_type(r, f->name, hex ? "hex" : "base64");
	*at = out;
	return 0;
}

static int read_packed(struct json_reader *r, const ProtobufCMessageDescriptor *d, json_t *j,
		       ProtobufCBinaryData *at)
{
	ProtobufCMessage *m = NULL;
	int e;

	if (r->packed == PBJSON_MAX_PACKED)
		return diag_set(r->diag, -EBADMSG, "%s: values more than %d deep", r->dialect->name,
				PBJSON_MAX_PACKED);
	r->packed++;
	e = read_message(r, d, j, &m);
	r->packed--;
	if (e < 0)
		return e;
	at->len = protobuf_c_message_get_packed_size(m);
	at->data = arena_alloc(r->arena, at->len);
	if (!at->data)
		return -E2BIG;
	protobuf_c_message_pack(m, at->data);
	return 0;
}

/* ---- messages ---- */

static int read_value(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j, void *at)
{
	const ProtobufCMessageDescriptor *packed;

	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		return read_text(r, f, j, at);
	case PROTOBUF_C_TYPE_BYTES:
		packed = r->dialect->packed ? r->dialect->packed(f) : NULL;
		return packed ? read_packed(r, packed, j, at) : read_bytes(r, f, j, at);
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

static int read_values(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		       ProtobufCMessage *m)
{
	size_t n = json_array_size(j), size = value_size(f);
	u8 *values;
	int e = 0;

	if (!json_is_array(j))
		return wrong_type(r, f->name, "an array");
	values = arena_calloc(r->arena, n + 1, size);
	if (!values)
		return -E2BIG;
	for (size_t i = 0; i < n && e == 0; i++)
		e = read_value(r, f, json_array_get(j, i), values + i * size);
	memcpy((u8 *)m + f->offset, &values, sizeof(values));
	memcpy((u8 *)m + f->quantifier_offset, &n, sizeof(n));
	return e;
}

static int read_field(struct json_reader *r, const ProtobufCFieldDescriptor *f, json_t *j,
		      ProtobufCMessage *m)
{
	u32 *which = (u32 *)(void *)((u8 *)m + f->quantifier_offset);
	bool oneof = f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;

	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return read_values(r, f, j, m);
	/* The second member of a oneof would overwrite the first. */
	if (oneof && *which)
		return wrong_type(r, f->name, "the only value");
	if (oneof)
		*which = f->id;
	return read_value(r, f, j, (u8 *)m + f->offset);
}

static int fill_message(struct json_reader *r, json_t *j, ProtobufCMessage *m)
{
	const ProtobufCMessageDescriptor *d = m->descriptor;
	char name[MAX_NAME];
	int e = 0;

	for (unsigned int i = 0; i < d->n_fields && e == 0; i++) {
		json_t *value;

		json_name(d->fields[i].name, name);
		value = json_object_get(j, name);
		if (!value)
			value = json_object_get(j, d->fields[i].name);
		if (value && !json_is_null(value))
			e = read_field(r, &d->fields[i], value, m);
	}
	return e;
}

static int read_message(struct json_reader *r, const ProtobufCMessageDescriptor *d, json_t *j,
			ProtobufCMessage **ret)
{
	ProtobufCMessage *m;
	int e;

	if (!json_is_object(j))
		return wrong_type(r, d->short_name, "an object");
	if (r->depth >= MAX_DEPTH)
		return diag_set(r->diag, -EBADMSG, "%s: messages more than %d deep",
				r->dialect->name, MAX_DEPTH);
	m = arena_calloc(r->arena, 1, d->sizeof_message);
	if (!m)
		return -E2BIG;
	protobuf_c_message_init(d, m);
	r->depth++;
	e = fill_message(r, j, m);
	r->depth--;
	if (e == 0)
		*ret = m;
	return e;
}

int pbjson_read(const struct pbjson_dialect *dialect, const ProtobufCMessageDescriptor *d,
		const char *text, size_t n, struct arena *a, ProtobufCMessage **ret,
		struct diag *reterr_diag)
{
	struct json_reader r = {.dialect = dialect, .arena = a, .diag = reterr_diag};
	u64 limit = a->limit, tree_bytes = json_tree_bytes(text, n);
	_cleanup_(json) json_t *j = NULL;
	int e = -E2BIG;

	if (a->used + tree_bytes < limit) {
		a->limit -= tree_bytes;
		e = json_read(text, n, JSON_REJECT_DUPLICATES, &j, reterr_diag);
		e = e < 0 ? e : read_message(&r, d, j, ret);
		a->limit = limit;
	}
	return e == -E2BIG ? diag_set(reterr_diag, e,
				      "the request needs more than %llu bytes of memory", limit)
			   : e;
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
