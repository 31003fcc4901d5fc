/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads OTLP's JSON into the same messages as the binary form, by their descriptors, so that one
 * decoder serves both. Names are in lowerCamelCase (or as in the .proto), 64-bit numbers are
 * strings or numbers, trace, span and profile ids are in hex, and other bytes in base64. Unknown
 * members are skipped.
 */
#include "otlp/otlp.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "otlp/otlp_private.h"

#define MAX_DEPTH 8 /* of values in values */

struct json_reader {
	struct arena *arena;
	struct diag *diag;
	u32 depth; /* of AnyValues */
};

static int fill_message(struct json_reader *j, json_t *in, ProtobufCMessage *m);

/* ---- numbers ---- */

static int wrong(struct json_reader *j, const ProtobufCFieldDescriptor *f, const char *what)
{
	return diag_set(j->diag, -EBADMSG, "OTLP JSON: %s is not %s", f->name, what);
}

/*
 * Reads a number, or a string with one. An unsigned number above 63 bits is returned as its two's
 * complement.
 */
static bool get_integer(json_t *in, bool is_unsigned, s64 *ret)
{
	const char *s = json_string_value(in);
	char *end;

	if (json_is_integer(in)) {
		*ret = json_integer_value(in);
		return !is_unsigned || *ret >= 0;
	}
	if (json_is_real(in)) {
		double d = json_real_value(in);

		if (!(fabs(d) < 9e18) || d != floor(d) || (is_unsigned && d < 0))
			return false;
		*ret = (s64)d;
		return true;
	}
	if (!s || !*s || (!isdigit((u8)*s) && (*s != '-' || is_unsigned)))
		return false;
	errno = 0;
	*ret = is_unsigned ? (s64)strtoull(s, &end, 10) : strtoll(s, &end, 10);
	return !errno && !*end;
}

static int read_integer(struct json_reader *j, json_t *in, const ProtobufCFieldDescriptor *f,
			void *at)
{
	bool small = f->type == PROTOBUF_C_TYPE_INT32 || f->type == PROTOBUF_C_TYPE_UINT32 ||
		     f->type == PROTOBUF_C_TYPE_FIXED32;
	bool is_unsigned = f->type == PROTOBUF_C_TYPE_UINT32 || f->type == PROTOBUF_C_TYPE_UINT64 ||
			   f->type == PROTOBUF_C_TYPE_FIXED32 || f->type == PROTOBUF_C_TYPE_FIXED64;
	s64 v;

	if (!get_integer(in, is_unsigned, &v))
		return wrong(j, f, "a number");
	if (small && (is_unsigned ? (u64)v > UINT32_MAX : v != (s32)v))
		return wrong(j, f, "a 32-bit number");
	memcpy(at, small ? (const void *)&(u32){(u32)v} : (const void *)&v, small ? 4 : 8);
	return 0;
}

static int read_double(struct json_reader *j, json_t *in, const ProtobufCFieldDescriptor *f,
		       double *at)
{
	const char *s = json_string_value(in);
	char *end;

	if (json_is_number(in)) {
		*at = json_number_value(in);
		return 0;
	}
	if (!s || !*s)
		return wrong(j, f, "a number");
	*at = strtod(s, &end);
	return *end ? wrong(j, f, "a number") : 0;
}

/* ---- texts and bytes ---- */

static int read_text(struct json_reader *j, json_t *in, const ProtobufCFieldDescriptor *f,
		     char **at)
{
	size_t n = json_string_length(in);
	char *copy;

	if (!json_is_string(in))
		return wrong(j, f, "a string");
	copy = arena_alloc(j->arena, n + 1);
	if (!copy)
		return -E2BIG;
	memcpy(copy, json_string_value(in), n + 1);
	*at = copy;
	return 0;
}

static int base64_digit(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c == '-' ? '+' : c == '_' ? '/' : c) : NULL;

	return at ? (int)(at - digits) : -1;
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

static int read_bytes(struct json_reader *j, json_t *in, const ProtobufCFieldDescriptor *f,
		      ProtobufCBinaryData *at)
{
	bool hex = str_ends(f->name, "_id");
	ProtobufCBinaryData out = {};

	if (!json_is_string(in))
		return wrong(j, f, "a string");
	out.data = arena_alloc(j->arena, json_string_length(in) + 1);
	if (!out.data)
		return -E2BIG;
	if (!decode_digits(json_string_value(in), json_string_length(in),
			   hex ? text_hex_digit : base64_digit, hex ? 4 : 6, &out))
		return wrong(j, f, hex ? "hex" : "base64");
	*at = out;
	return 0;
}

/* ---- messages ---- */

static int new_message(struct json_reader *j, json_t *in, const ProtobufCMessageDescriptor *type,
		       ProtobufCMessage **ret)
{
	ProtobufCMessage *m = arena_alloc(j->arena, type->sizeof_message);
	int r;

	if (!m)
		return -E2BIG;
	protobuf_c_message_init(type, m);
	r = fill_message(j, in, m);
	if (r == 0)
		*ret = m;
	return r;
}

/* Reads an arrayValue or kvlistValue. Our AnyValue has it as packed bytes. */
static int read_nested(struct json_reader *j, json_t *in, const ProtobufCFieldDescriptor *f,
		       ProtobufCBinaryData *at)
{
	const ProtobufCMessageDescriptor *type = !strcmp(f->name, "array_value")
							 ? &otlp__array_value__descriptor
							 : &otlp__key_value_list__descriptor;
	ProtobufCMessage *m = NULL;
	int r;

	if (j->depth == MAX_DEPTH)
		return diag_set(j->diag, -EBADMSG, "OTLP JSON: values more than %d deep",
				MAX_DEPTH);
	j->depth++;
	r = new_message(j, in, type, &m);
	j->depth--;
	if (r < 0)
		return r;
	at->len = protobuf_c_message_get_packed_size(m);
	at->data = arena_alloc(j->arena, at->len);
	if (!at->data)
		return -E2BIG;
	protobuf_c_message_pack(m, at->data);
	return 0;
}

static int read_one(struct json_reader *j, json_t *in, const ProtobufCFieldDescriptor *f, void *at)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		return read_text(j, in, f, at);
	case PROTOBUF_C_TYPE_BYTES:
		return !strcmp(f->name, "array_value") || !strcmp(f->name, "kvlist_value")
			       ? read_nested(j, in, f, at)
			       : read_bytes(j, in, f, at);
	case PROTOBUF_C_TYPE_BOOL:
		if (!json_is_boolean(in))
			return wrong(j, f, "true or false");
		*(protobuf_c_boolean *)at = json_is_true(in);
		return 0;
	case PROTOBUF_C_TYPE_DOUBLE:
		return read_double(j, in, f, at);
	case PROTOBUF_C_TYPE_MESSAGE:
		return new_message(j, in, f->descriptor, at);
	default:
		return read_integer(j, in, f, at);
	}
}

static size_t size_of(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_BOOL:
		return 4;
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return 8;
	}
}

static int read_many(struct json_reader *j, json_t *in, const ProtobufCFieldDescriptor *f,
		     ProtobufCMessage *m)
{
	size_t n = json_array_size(in), size = size_of(f);
	u8 *items;
	int r = 0;

	if (!json_is_array(in))
		return wrong(j, f, "an array");
	items = arena_calloc(j->arena, n, size);
	if (!items)
		return -E2BIG;
	for (size_t i = 0; i < n && r == 0; i++)
		r = read_one(j, json_array_get(in, i), f, items + i * size);
	memcpy((u8 *)m + f->offset, &items, sizeof(items));
	memcpy((u8 *)m + f->quantifier_offset, &n, sizeof(n));
	return r;
}

/* array_value → arrayValue */
static const char *camel_case(const char *name, char *out, size_t size)
{
	size_t n = 0;

	for (; *name && n + 1 < size; name++) {
		if (*name == '_' && name[1])
			out[n++] = (char)toupper((u8) * ++name);
		else
			out[n++] = *name;
	}
	out[n] = 0;
	return out;
}

static int read_field(struct json_reader *j, json_t *in, const ProtobufCFieldDescriptor *f,
		      ProtobufCMessage *m)
{
	int r;

	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return read_many(j, in, f, m);
	r = read_one(j, in, f, (u8 *)m + f->offset);
	/* Set which member of the oneof it is. */
	if (r == 0 && (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
		memcpy((u8 *)m + f->quantifier_offset, &f->id, sizeof(f->id));
	return r;
}

static int fill_message(struct json_reader *j, json_t *in, ProtobufCMessage *m)
{
	const ProtobufCMessageDescriptor *d = m->descriptor;
	u32 oneof_at = 0;
	int r = 0;

	if (!json_is_object(in))
		return diag_set(j->diag, -EBADMSG, "OTLP JSON: a %s is not an object",
				d->short_name);
	for (unsigned int i = 0; i < d->n_fields && r == 0; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];
		char name[64];
		json_t *value = json_object_get(in, camel_case(f->name, name, sizeof(name)));

		if (!value)
			value = json_object_get(in, f->name);
		if (!value || json_is_null(value))
			continue;
		if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
			/* Two members of a oneof: the second would overwrite the first. */
			if (oneof_at)
				return wrong(j, f, "the only value");
			oneof_at = f->id;
		}
		r = read_field(j, value, f, m);
	}
	return r;
}

int otlp_json_read(const char *data, size_t n, size_t max_bytes, struct arena *arena,
		   ProtobufCMessage *m, struct diag *reterr_diag)
{
	u64 text_bytes = json_tree_bytes(data, n);
	struct json_reader j = {.arena = arena, .diag = reterr_diag};
	json_t *root = NULL;
	int r;

	arena->limit = text_bytes < max_bytes ? max_bytes - text_bytes : 0;
	if (!arena->limit)
		return diag_set(reterr_diag, -E2BIG,
				"the request needs more than %zu bytes of memory", max_bytes);
	r = json_read(data, n, JSON_REJECT_DUPLICATES, &root, reterr_diag);
	if (r < 0)
		return r;
	r = fill_message(&j, root, m);
	json_decref(root);
	return r == -E2BIG ? diag_set(reterr_diag, r,
				      "the request needs more than %zu bytes of memory", max_bytes)
			   : r;
}

int otlp_profiles_decode_json(const char *data, size_t n, size_t max_bytes,
			      struct otlp_profiles *ret, struct diag *reterr_diag)
{
	Otlp__ExportProfilesServiceRequest in = OTLP__EXPORT_PROFILES_SERVICE_REQUEST__INIT;
	_cleanup_arena_ struct arena arena = {};
	int r = otlp_json_read(data, n, max_bytes, &arena, &in.base, reterr_diag);

	return r < 0 ? r : otlp_decode_request(&in, &arena, ret, reterr_diag);
}
