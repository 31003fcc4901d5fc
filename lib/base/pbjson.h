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

/*
 * Reads a message from JSON. The message and all that it points to are in the arena. -EBADMSG or
 * -E2BIG for bad input, and above the arena's limit.
 */
int pbjson_read(const ProtobufCMessageDescriptor *d, const char *text, size_t n, struct arena *a,
		ProtobufCMessage **ret, struct diag *reterr_diag);
/* Appends the message as JSON. Fields with their default value are left out. */
void pbjson_write(const ProtobufCMessage *m, struct str *out);
