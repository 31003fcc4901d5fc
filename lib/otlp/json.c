/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP's JSON becomes the same messages as the binary form, so that one decoder serves both. It is
 * the mapping of protocol buffers, but trace, span and profile ids are in hex.
 */
#include <string.h>

#include "base/str.h"
#include "otlp/otlp.h"
#include "otlp/otlp_private.h"

static bool in_hex(const ProtobufCFieldDescriptor *f)
{
	return str_ends(f->name, "_id");
}

/* Our AnyValue has arrays and lists as packed bytes. */
static const ProtobufCMessageDescriptor *type_of_packed(const ProtobufCFieldDescriptor *f)
{
	if (!strcmp(f->name, "array_value"))
		return &otlp__array_value__descriptor;
	return !strcmp(f->name, "kvlist_value") ? &otlp__key_value_list__descriptor : NULL;
}

const struct pbjson_dialect otlp_json = {
	.name = "OTLP JSON", .hex = in_hex, .packed = type_of_packed};

int otlp_profiles_decode_json(const char *data, size_t n, size_t max_bytes,
			      struct otlp_profiles *ret, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(max_bytes);
	ProtobufCMessage *in = NULL;
	int r = pbjson_read(&otlp_json, &otlp__export_profiles_service_request__descriptor, data, n,
			    &arena, &in, reterr_diag);

	return r < 0 ? r
		     : otlp_decode_request((const Otlp__ExportProfilesServiceRequest *)in, &arena,
					   ret, reterr_diag);
}
