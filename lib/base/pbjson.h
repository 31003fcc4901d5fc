/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protocol buffers' JSON, for any message that protobuf-c has a descriptor of. What is read is
 * foreign: memory comes from an arena with a limit, depth is bounded, unknown fields are passed
 * over as the mapping asks for.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"

/* A message from its JSON or its bytes; in the arena, with all that it points to. */
int pbjson_read(const ProtobufCMessageDescriptor *d, const char *text, size_t n, struct arena *a,
		ProtobufCMessage **ret, struct diag *reterr_diag);
int pbjson_unpack(const ProtobufCMessageDescriptor *d, const u8 *data, size_t n, struct arena *a,
		  ProtobufCMessage **ret, struct diag *reterr_diag);
/* Fields that have their default are left out. */
void pbjson_write(const ProtobufCMessage *m, struct str *out);
int pbjson_pack(const ProtobufCMessage *m, struct str *out);
