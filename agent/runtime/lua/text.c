/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/runtime/lua/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define MAX_TEXT 1024
#define MAX_PROGRAM 60 /* bytes of a program that names its chunk, as LUA_IDSIZE */

int lua_text(const struct runtime_memory *m, u64 at, u64 n, struct arena *arena, const char **ret)
{
	char *text;

	n = MIN(n, (u64)MAX_TEXT);
	text = arena_alloc(arena, n + 1);
	if (!text)
		return -ENOMEM;
	if (n && runtime_read(m, at, text, n) < 0)
		return -EFAULT;
	text[n] = 0;
	text_clean(text);
	*ret = text;
	return 0;
}

const char *lua_file(const char *chunk, struct arena *arena)
{
	size_t n = MAX_PROGRAM + sizeof("[string \"...\"]");
	char *file;

	if (*chunk == '@' || *chunk == '=')
		return chunk + 1;
	file = arena_alloc(arena, n);
	if (file) {
		snprintf(file, n, "[string \"%.*s%s\"]", MAX_PROGRAM, chunk,
			 strlen(chunk) > MAX_PROGRAM ? "..." : "");
		text_clean(file);
	}
	return file;
}

const char *lua_unnamed(const char *file, u32 first_line, struct arena *arena)
{
	const char *slash = strrchr(file, '/');
	size_t n;
	char *name;

	if (!first_line)
		return "main chunk";
	file = slash && slash[1] ? slash + 1 : file;
	n = strlen(file) + 16;
	name = arena_alloc(arena, n);
	if (name)
		snprintf(name, n, "<%s:%u>", file, first_line);
	return name;
}
