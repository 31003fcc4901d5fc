/* SPDX-License-Identifier: Apache-2.0 */
/* What the rows of a file depend on besides the file, for caches on disk. */
#pragma once

#include "base/types.h"

#define UNWIND_VERSION_BYTES 32

/* A hash, in hex, of the sources that build rows (tools/hash-sources). */
extern const char unwind_version[UNWIND_VERSION_BYTES + 1];
/* The version of the library that decodes instructions: it is not a part of culprit. */
u32 unwind_disassembler(void);
