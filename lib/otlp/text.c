/* SPDX-License-Identifier: Apache-2.0 */
/* The names of frame kinds in OTLP, and values of attributes as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/vocab.h"
#include "otlp/otlp_private.h"

#define MAX_DEPTH 8 /* of values in values */
#define MAX_TEXT 4096
#define TEXT_ARENA_BYTES (16ULL << 20)

/* ---- kinds of frames ---- */

/* Types that no row of abi/tbl/frame_kind.tbl has, and the nearest kind. */
static const struct {
	const char *type;
	u8 kind;
} frame_types[] = {
	{"go", FRAME_NATIVE},
	{"rust", FRAME_NATIVE},
	{"phpjit", FRAME_PHP},
	{"luajit", FRAME_LUA},
};

const char *otlp_frame_type(u8 kind)
{
	return vocab_frame_kind(kind)->otlp;
}

u8 otlp_frame_kind(const char *type)
{
	for (u32 kind = 0; kind < FRAME_KIND_N; kind++)
		if (!strcmp(vocab_frame_kind(kind)->otlp, type))
			return (u8)kind;
	for (size_t i = 0; i < ARRAY_SIZE(frame_types); i++)
		if (!strcmp(frame_types[i].type, type))
			return frame_types[i].kind;
	return FRAME_KIND_N;
}

/* ---- attributes of samples ---- */

bool otlp_is_threads_own(const char *name)
{
	static const char *const own[] = {OTLP_THREAD_NAME, OTLP_THREAD_ID, OTLP_PID,
					  OTLP_EXECUTABLE,  OTLP_COMM,	    OTLP_CPU};

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (!strcmp(name, own[i]))
			return true;
	return false;
}

/* ---- values as text ---- */

static void append_value(const Otlp__AnyValue *v, struct arena *arena, u32 depth, struct str *out);

static void append_array(const ProtobufCBinaryData *bytes, struct arena *arena, u32 depth,
			 struct str *out)
{
	ProtobufCAllocator allocator = pb_allocator(arena);
	const Otlp__ArrayValue *a =
		depth < MAX_DEPTH ? otlp__array_value__unpack(&allocator, bytes->len, bytes->data)
				  : NULL;

	str_putc(out, '[');
	for (size_t i = 0; a && i < a->n_values && out->n < MAX_TEXT; i++) {
		str_puts(out, i ? "," : "");
		append_value(a->values[i], arena, depth + 1, out);
	}
	str_puts(out, a ? "]" : "...]");
}

static void append_list(const ProtobufCBinaryData *bytes, struct arena *arena, u32 depth,
			struct str *out)
{
	ProtobufCAllocator allocator = pb_allocator(arena);
	const Otlp__KeyValueList *l =
		depth < MAX_DEPTH
			? otlp__key_value_list__unpack(&allocator, bytes->len, bytes->data)
			: NULL;

	str_putc(out, '{');
	for (size_t i = 0; l && i < l->n_values && out->n < MAX_TEXT; i++) {
		str_puts(out, i ? "," : "");
		text_append_json(out, l->values[i]->key);
		str_putc(out, ':');
		if (l->values[i]->value)
			append_value(l->values[i]->value, arena, depth + 1, out);
		else
			str_puts(out, "null");
	}
	str_puts(out, l ? "}" : "...}");
}

static void append_double(double v, struct str *out)
{
	char text[40];

	snprintf(text, sizeof(text), "%.15g", v);
	if (strtod(text, NULL) != v)
		snprintf(text, sizeof(text), "%.17g", v);
	str_puts(out, text);
}

static void append_value(const Otlp__AnyValue *v, struct arena *arena, u32 depth, struct str *out)
{
	switch (v->value_case) {
	case OTLP__ANY_VALUE__VALUE_STRING_VALUE:
		text_append_json(out, v->string_value);
		break;
	case OTLP__ANY_VALUE__VALUE_BOOL_VALUE:
		str_puts(out, v->bool_value ? "true" : "false");
		break;
	case OTLP__ANY_VALUE__VALUE_INT_VALUE:
		str_printf(out, "%lld", (long long)v->int_value);
		break;
	case OTLP__ANY_VALUE__VALUE_DOUBLE_VALUE:
		append_double(v->double_value, out);
		break;
	case OTLP__ANY_VALUE__VALUE_BYTES_VALUE:
		for (size_t i = 0; i < v->bytes_value.len && out->n < MAX_TEXT; i++)
			str_printf(out, "%02x", v->bytes_value.data[i]);
		break;
	case OTLP__ANY_VALUE__VALUE_ARRAY_VALUE:
		append_array(&v->array_value, arena, depth, out);
		break;
	case OTLP__ANY_VALUE__VALUE_KVLIST_VALUE:
		append_list(&v->kvlist_value, arena, depth, out);
		break;
	default:
		break;
	}
}

void otlp_any_text(const Otlp__AnyValue *v, struct str *out)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(TEXT_ARENA_BYTES);

	append_value(v, &arena, 0, out);
}
