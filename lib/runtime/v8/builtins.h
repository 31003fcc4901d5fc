/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds V8's builtins in a binary that has no symbols for them.
 *
 * V8 compiles the builtins when it is built, and embeds them in the binary as one range of code and
 * a table of their places in it (src/snapshot/embedded/embedded-data.h):
 *
 *	table		{u32 offset, u32 length, …} for each, rising; the first offset is 0
 *	code		each builtin, then 0xcc, at least once, up to the next multiple of 32 or 64
 *
 * Table and code are recognised only because they agree, in each of more than a thousand places.
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

/*
 * -ENOENT: there are none; -ENOMEM. Reads all segments that are not writable: about 1 ms per MiB.
 */
int v8_builtins_find(struct elf_file *elf, struct v8_builtins *ret);
void v8_builtins_deinit(struct v8_builtins *b);
