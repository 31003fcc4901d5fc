/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where V8's builtins lie in a binary that has no symbols for them.
 *
 * V8 compiles them when it is built and puts them into the binary as one piece of code and a table
 * of where in it each of them is (src/snapshot/embedded/embedded-data.h):
 *
 *	table		{u32 offset, u32 length, …} for each, rising; the first at 0
 *	code		each of them, and at least one byte 0xcc up to the next multiple of 32 or 64
 *
 * Both are known by nothing else than that they agree, in each of more than a thousand places.
 */
#pragma once

#include "base/types.h"
#include "elf/elf.h"

struct v8_builtin {
	u32 offset, length;
};

struct v8_builtins {
	u64 start, end; /* svma of the code, end exclusive */
	u32 n;
	struct v8_builtin *list; /* owned, rising */
};

/* -ENOENT: there are none; -ENOMEM. Reads all read-only parts of the file: about 1 ms per MiB. */
int v8_builtins_find(struct elf_file *elf, struct v8_builtins *ret);
void v8_builtins_deinit(struct v8_builtins *b);
