/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a process context. The bytes are a target's: they are unpacked in an arena with a limit. */
#include <errno.h>

#include "base/arena.h"
#include "otlp/otlp.h"
#include "otlp/otlp_private.h"
#include "otlp/otlp_process_context.pb-c.h"

static int tell(Otlp__KeyValue *const *kvs, size_t n, bool of_resource,
		int (*fn)(void *arg, const struct otlp_said *s), void *arg)
{
	_cleanup_str_ struct str value = {};
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		const Otlp__AnyValue *v = kvs[i]->value;
		struct otlp_said said = {of_resource, kvs[i]->key, ""};

		if (!*said.name || !v)
			continue;
		str_clear(&value);
		if (v->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE) {
			said.value = v->string_value;
		} else {
			otlp_any_text(v, &value);
			said.value = str_get(&value);
		}
		r = value.failed ? -ENOMEM : fn(arg, &said);
	}
	return r;
}

int otlp_process_context_decode(const u8 *data, size_t n, size_t max_bytes,
				int (*fn)(void *arg, const struct otlp_said *s), void *arg)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(max_bytes);
	ProtobufCAllocator allocator = otlp_allocator(&arena);
	const Otlp__ProcessContext *in = otlp__process_context__unpack(&allocator, n, data);
	int r = 0;

	if (!in)
		return -EBADMSG;
	if (in->resource)
		r = tell(in->resource->attributes, in->resource->n_attributes, true, fn, arg);
	return r < 0 ? r : tell(in->attributes, in->n_attributes, false, fn, arg);
}
