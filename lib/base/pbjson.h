/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON mapping of protocol buffers, for any message that has a protobuf-c descriptor. Input is
 * foreign: memory comes from an arena with a limit, depth is bounded, and unknown fields are
 * skipped, as the mapping requires. Any thread.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"

/* Messages in bytes fields in one another (struct pbjson_dialect.packed). */
#define PBJSON_MAX_PACKED 8

/* How a protocol's JSON differs from the mapping. */
struct pbjson_dialect {
	const char *name; /* errors begin with it */
	/* Whether a bytes field is in hex, not in base64. NULL: none is. */
	bool (*hex)(const ProtobufCFieldDescriptor *f);
	/*
	 * The type of the message that a bytes field holds packed, and that JSON has as an object;
	 * NULL: the field holds bytes. NULL instead of the function: all do.
	 */
	const ProtobufCMessageDescriptor *(*packed)(const ProtobufCFieldDescriptor *f);
	/* Names of an enum that its type lacks are skipped, as unknown fields are. */
	bool skip_values;
};
extern const struct pbjson_dialect pbjson_plain;

/*
 * Reads a message from JSON. The message and all that it points to are in the arena, whose limit
 * bounds the memory of the JSON tree, too, while it lives. -EBADMSG for bad input, -E2BIG above the
 * limit.
 */
int pbjson_read(const struct pbjson_dialect *dialect, const ProtobufCMessageDescriptor *d,
		const char *text, size_t n, struct arena *a, ProtobufCMessage **ret,
		struct diag *reterr_diag);
/* Decodes base64 in either alphabet, padded or not, into `n` bytes at least. False: it is not. */
bool pbjson_base64(const char *s, size_t n, ProtobufCBinaryData *ret);
/* Appends the message as JSON. Fields with their default value are left out. */
void pbjson_write(const ProtobufCMessage *m, struct str *out);
