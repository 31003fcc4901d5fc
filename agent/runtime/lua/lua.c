/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lua of PUC-Rio, 5.1 and 5.3 to 5.5: its struct runtime_ops. The walker is bpf/unwind/lua.h;
 * doc/runtimes/lua.md says what is read and which source defines it.
 */
#include "agent/runtime/lua/lua.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "base/cleanup.h"

/* Parts of the names of libraries and programs that may contain Lua. */
static const char *const names[] = {"lua", "redis-server", "haproxy", "nginx", "nmap", "rpm"};

static bool is_runtime(const struct procman_binary *b)
{
	const char *base = runtime_file_name(b->path);
	u64 svma;

	for (u32 i = 0; i < ARRAY_SIZE(names); i++)
		if (strstr(base, names[i]))
			return runtime_symbol(b->elf, "lua_newstate", &svma, NULL) &&
			       !runtime_symbol(b->elf, "luaJIT_setmode", &svma, NULL);
	return false;
}

static int learn(const struct procman_binary *b, struct runtime_binary *ret_bpf, void **ret_learned,
		 struct diag *reterr_diag)
{
	_cleanup_free_ struct lua_learned *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	r = lua_learn(b->elf, l, reterr_diag);
	if (r < 0)
		return r;
	memcpy(ret_bpf->room, &l->bpf, sizeof(l->bpf));
	*ret_learned = take_ptr(l);
	return 0;
}

static int attach(const struct runtime_target *t, const void *learned, struct runtime_process *ret)
{
	/* The walker finds everything from the native stack. */
	return 0;
}

static int name(const struct runtime_target *t, const void *learned, u64 address, u64 where,
		struct runtime_names *ret)
{
	return lua_name(&t->memory, learned, address, where, ret);
}

static bool covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	const struct lua_binary *b = &((const struct lua_learned *)learned)->bpf;

	return runtime_in_any(b->loops, b->n_loops, LUA_MAX_RANGES, avma - p->bias);
}

static void describe(const void *learned, char *ret, size_t n)
{
	const struct lua_learned *l = learned;

	snprintf(ret, n, "Lua %u.%u.%u, offsets from a table", l->version >> 8, l->version & 0xff,
		 l->release);
}

static void otel_version(const void *learned, char *ret, size_t n)
{
	const struct lua_learned *l = learned;

	snprintf(ret, n, "%u.%u.%u", l->version >> 8, l->version & 0xff, l->release);
}

const struct runtime_ops runtime_lua = {
	.is_runtime = is_runtime,
	.learn = learn,
	.forget = free,
	.attach = attach,
	.name = name,
	.covers = covers,
	.describe = describe,
	.otel_name = "lua",
	.otel_version = otel_version,
	.named_by_caller = true,
	.walks_natively = true,
};
