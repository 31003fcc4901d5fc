/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protocol buffers from foreign bytes, for any message that has a protobuf-c descriptor: memory
 * comes from an arena with a limit, and an error says where the bytes are damaged. Any thread.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"

/* Allocates in the arena and frees nothing. */
ProtobufCAllocator pb_allocator(struct arena *a);
/*
 * Reads a message, which lies in the arena with all that it points to. `what` names it in errors:
 * "an OTLP traces request". -EBADMSG: the bytes are damaged; -E2BIG: they need more memory than the
 * arena's limit.
 */
int pb_unpack(const ProtobufCMessageDescriptor *d, const char *what, const u8 *data, size_t n,
	      struct arena *a, ProtobufCMessage **ret, struct diag *reterr_diag);
/* Appends the message as bytes. */
int pb_pack(const ProtobufCMessage *m, struct str *out);
