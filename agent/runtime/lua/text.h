/* SPDX-License-Identifier: Apache-2.0 */
/* Names that Lua and LuaJIT share. Texts go into an arena. */
#pragma once

#include "agent/runtime/runtime.h"

/* Copies n bytes of the process as clean UTF-8; long texts are cut. -EFAULT, -ENOMEM. */
int lua_text(const struct runtime_memory *m, u64 at, u64 n, struct arena *arena, const char **ret);
/*
 * The file of a chunk by the chunk's name: "@FILE", "=TEXT" or the program itself. NULL: no memory.
 */
const char *lua_file(const char *chunk, struct arena *arena);
/*
 * The name of a function that its caller does not name: "main chunk", or "<FILE:LINE>" as in Lua's
 * tracebacks. NULL: no memory.
 */
const char *lua_unnamed(const char *file, u32 first_line, struct arena *arena);
