/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LuaJIT 2.1: its struct runtime_ops. The walker is bpf/unwind/luajit.h; doc/runtimes/luajit.md
 * says what is read and which source defines it.
 */
#include "agent/runtime/luajit/luajit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "base/cleanup.h"

/* Programs that contain LuaJIT or whose library's name is another one. */
static const char *const names[] = {"lua", "nginx", "openresty", "nvim", "tarantool"};

static bool is_runtime(const struct procman_binary *b)
{
	const char *base = runtime_file_name(b->path);
	u64 svma;

	for (u32 i = 0; i < ARRAY_SIZE(names); i++)
		if (strstr(base, names[i]))
			return runtime_symbol(b->elf, "luaJIT_setmode", &svma, NULL);
	return false;
}

static int learn(const struct procman_binary *b, struct runtime_binary *ret_bpf, void **ret_learned,
		 struct diag *reterr_diag)
{
	_cleanup_free_ struct luajit_learned *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	r = luajit_learn(b->elf, l, reterr_diag);
	if (r < 0)
		return r;
	memcpy(ret_bpf->room, &l->bpf, sizeof(l->bpf));
	*ret_learned = take_ptr(l);
	return 0;
}

static int attach(const struct runtime_target *t, const void *learned, struct runtime_process *ret)
{
	/* The walker finds everything from the C frames on the stack. */
	return 0;
}

static int name(const struct runtime_target *t, const void *learned, u64 address, u64 where,
		struct runtime_names *ret)
{
	return luajit_name(&t->memory, address, where, ret);
}

static bool covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	const struct luajit_learned *l = learned;
	u64 svma = avma - p->bias;

	/* Anonymous memory has only the code of traces; in the binary only the VM counts. */
	return svma < l->text_start || svma >= l->text_end ||
	       (svma >= l->bpf.start && svma < l->bpf.end);
}

static void describe(const void *learned, char *ret, size_t n)
{
	const struct luajit_learned *l = learned;

	snprintf(ret, n, "LuaJIT %s, offsets from the VM's code", l->version);
}

static void otel_version(const void *learned, char *ret, size_t n)
{
	const struct luajit_learned *l = learned;

	snprintf(ret, n, "%s", l->version);
}

const struct runtime_ops runtime_luajit = {
	.is_runtime = is_runtime,
	.learn = learn,
	.forget = free,
	.attach = attach,
	.name = name,
	.covers = covers,
	.describe = describe,
	.otel_name = "luajit",
	.otel_version = otel_version,
	.named_by_caller = true,
	.jit_memory = 1u << JIT_MEMORY_ANON,
};
