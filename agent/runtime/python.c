/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython, 3.6 and later: what agent/runtime asks of a runtime. The walker is bpf/unwind/python.h;
 * doc/runtimes/python.md says what is read and from where it is known.
 */
#include "agent/runtime/python.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_runtime(const struct procman_binary *b)
{
	return python_is_name(b->path) && python_has_loop(b->elf);
}

static void forget(void *learned)
{
	struct python_learned *l = learned;

	if (l)
		free(l->libc);
	free(l);
}

static int learn(const struct procman_binary *b, struct runtime_binary *ret_bpf, void **ret_learned,
		 struct diag *reterr_diag)
{
	struct python_learned *l = calloc(1, sizeof(*l));
	int r = -ENOMEM;

	if (l)
		l->libc = calloc(1, sizeof(*l->libc));
	if (l && l->libc)
		r = python_learn(b->elf, b->path, l, reterr_diag);
	if (r < 0) {
		forget(l);
		return r;
	}
	memcpy(ret_bpf->room, &l->bpf, sizeof(l->bpf));
	*ret_learned = l;
	return 0;
}

static int attach(const struct runtime_target *t, const void *learned, struct runtime_process *ret)
{
	const struct python_learned *l = learned;
	struct python_process p = {};
	int r;

	r = python_attach_thread(t, l, &l->bound, &p.bound);
	if (r == 0)
		r = python_attach_thread(t, l, &l->current, &p.current);
	if (r < 0)
		return r;
	memcpy(ret->room, &p, sizeof(p));
	return 0;
}

static int name(const struct runtime_target *t, const void *learned, u64 address, u64 where,
		struct runtime_names *ret)
{
	return python_name(&t->memory, learned, address, where, ret);
}

static bool covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	const struct python_binary *b = &((const struct python_learned *)learned)->bpf;
	u64 svma = avma - p->bias;

	if (b->shape == PYTHON_TAIL)
		return true;
	for (u32 i = 0; i < b->n_loops; i++)
		if (svma >= b->loops[i].start && svma < b->loops[i].end)
			return true;
	return false;
}

static void describe(const void *learned, char *ret, size_t n)
{
	const struct python_learned *l = learned;

	snprintf(ret, n, "CPython %u.%u%s, offsets from %s", l->version >> 8, l->version & 0xff,
		 l->free_threaded ? " free-threaded" : "",
		 l->published ? "_Py_DebugOffsets" : "a table");
}

const struct runtime_ops runtime_python = {
	.is_runtime = is_runtime,
	.learn = learn,
	.forget = forget,
	.attach = attach,
	.name = name,
	.covers = covers,
	.describe = describe,
	.walks_natively = true,
};
