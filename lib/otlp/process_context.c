/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a process context. The bytes come from a target, so they are unpacked into an arena with a
 * limit.
 */
#include <errno.h>
#include <string.h>

#include "base/arena.h"
#include "otlp/otlp.h"
#include "otlp/otlp_private.h"
#include "otlp/otlp_process_context.pb-c.h"

#define KEY_MAP OTLP_THREADLOCAL "attribute_key_map"

struct teller {
	struct arena *arena;
	int (*fn)(void *arg, const struct otlp_said *s);
	void *arg;
};

/* A name that is not text keeps its number, and is empty. */
static int tell_keys(struct teller *t, const Otlp__AnyValue *v)
{
	ProtobufCAllocator allocator = pb_allocator(t->arena);
	const Otlp__ArrayValue *a;
	int r = 0;

	if (v->value_case != OTLP__ANY_VALUE__VALUE_ARRAY_VALUE)
		return 0;
	a = otlp__array_value__unpack(&allocator, v->array_value.len, v->array_value.data);
	for (size_t i = 0; a && i < a->n_values && r == 0; i++) {
		const Otlp__AnyValue *e = a->values[i];
		bool is_text = e->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE;

		r = t->fn(t->arg, &(struct otlp_said){OTLP_SAID_KEY, KEY_MAP,
						      is_text ? e->string_value : ""});
	}
	return r;
}

static int tell(struct teller *t, Otlp__KeyValue *const *kvs, size_t n, enum otlp_said_of of)
{
	_cleanup_str_ struct str value = {};
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		const Otlp__AnyValue *v = kvs[i]->value;
		struct otlp_said said = {of, kvs[i]->key, ""};

		if (!*said.name || !v)
			continue;
		if (of == OTLP_SAID_PROCESS && str_starts(said.name, OTLP_THREADLOCAL)) {
			r = strcmp(said.name, KEY_MAP) ? 0 : tell_keys(t, v);
			continue;
		}
		str_clear(&value);
		if (v->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE) {
			said.value = v->string_value;
		} else {
			otlp_any_text(v, &value);
			said.value = str_get(&value);
		}
		r = value.failed ? -ENOMEM : t->fn(t->arg, &said);
	}
	return r;
}

int otlp_process_context_decode(const u8 *data, size_t n, size_t max_bytes,
				int (*fn)(void *arg, const struct otlp_said *s), void *arg)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(max_bytes);
	ProtobufCAllocator allocator = pb_allocator(&arena);
	const Otlp__ProcessContext *in = otlp__process_context__unpack(&allocator, n, data);
	struct teller t = {&arena, fn, arg};
	int r;

	if (!in)
		return -EBADMSG;
	r = tell(&t, in->attributes, in->n_attributes, OTLP_SAID_PROCESS);
	if (r == 0 && in->resource)
		r = tell(&t, in->resource->attributes, in->resource->n_attributes,
			 OTLP_SAID_RESOURCE);
	return r;
}
