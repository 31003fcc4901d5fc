/* SPDX-License-Identifier: Apache-2.0 */
/* V8, as in Node.js: its struct runtime_ops. See doc/runtimes/v8.md. */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "agent/runtime/v8/v8.h"

/* More code than any launcher of a libnode.so has, and less than any V8. */
#define V8_LEAST_TEXT (4ULL << 20)

static bool has_text(const struct elf_file *elf, u64 n)
{
	for (u32 i = 0; i < elf->n_segments; i++)
		if (elf->segments[i].flags & PF_X && elf->segments[i].memsz >= n)
			return true;
	return false;
}

static bool v8_is_runtime(const struct procman_binary *b)
{
	const char *name = runtime_file_name(b->path);
	struct buf bytes;

	if (strncmp(name, "node", 4) != 0 && strncmp(name, "libnode.so", 10) != 0 &&
	    strncmp(name, "nsolid", 6) != 0 && strcmp(name, "deno") != 0)
		return false;
	return has_text(b->elf, V8_LEAST_TEXT) &&
	       elf_file_section(b->elf, ".dynsym", NULL, &bytes) == 0;
}

static int v8_attach(const struct runtime_target *t, const void *learned,
		     struct runtime_process *ret)
{
	/* Frames contain all that naming needs; nothing is stored per process. */
	return 0;
}

static bool v8_covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	const struct v8_learned *v = learned;

	/* Anonymous memory contains only V8's code; in the binary only the builtins count. */
	return avma - p->bias < v->text_start || avma - p->bias >= v->text_end ||
	       (avma - p->bias >= v->builtins_start && avma - p->bias < v->builtins_end);
}

static void v8_describe(const void *learned, char *ret, size_t n)
{
	const struct v8_learned *v = learned;

	snprintf(ret, n, "V8 %u.%u.%u; offsets from %u v8dbg_* constants, builtins %s%s", v->major,
		 v->minor, v->build, v->n_constants,
		 v->by_symbols ? "by their symbols"
			       : "by the table of the embedded blob (stripped)",
		 v->bytecode_sizes || v->layout.kind_baseline < 0
			 ? ""
			 : "; missing: lengths of bytecodes, so no lines in Sparkplug's code");
}

static bool cookie_matches(const struct v8_heap *h, u64 shared, u64 where)
{
	u64 words[2];

	if (runtime_read(h->memory, shared - 1 + (u64)h->v->layout.shared_length, words,
			 sizeof(words)) < 0)
		return false;
	return v8_cookie(words[0], words[1]) == (where >> V8_COOKIE_SHIFT & V8_COOKIE_MASK);
}

/* The position of the frame itself, and the functions inlined into it. */
static u32 find_positions(const struct v8_heap *h, u64 shared, u64 where, struct v8_inlined *ret)
{
	u64 position = where & V8_POSITION_MASK;
	int n = 0;

	ret[0] = (struct v8_inlined){shared, V8_NO_POSITION};
	switch (where >> V8_FRAME_SHIFT) {
	case V8_FRAME_INTERPRETED:
		/* The offset is relative to the array's tagged address. */
		ret[0].position = v8_bytecode_position(
			h, shared, (s64)position - (h->v->layout.bytecode_data - 1));
		return 1;
	case V8_FRAME_COMPILED:
		n = v8_code_position(h, shared, position, ret, RUNTIME_MAX_INLINED);
		break;
	}
	if (n > 0)
		return (u32)n;
	ret[0] = (struct v8_inlined){shared, V8_NO_POSITION};
	return 1;
}

static int v8_name(const struct runtime_target *t, const void *learned, u64 address, u64 where,
		   struct runtime_names *ret)
{
	struct v8_inlined at[RUNTIME_MAX_INLINED];
	struct v8_heap h = {
		.memory = &t->memory,
		.v = learned,
		.process = t->process->image,
		.arena = ret->arena,
	};
	u64 shared = address | 1;
	u32 n;

	if (v8_type(&h, shared) != h.v->layout.type_shared || !cookie_matches(&h, shared, where))
		return -ESTALE;
	n = find_positions(&h, shared, where, at);
	for (u32 i = 0; i < n; i++) {
		struct runtime_frame f = {};
		int r = v8_function_name(&h, at[i].shared, &f.function);

		if (r < 0)
			return r;
		v8_place(&h, at[i].shared, at[i].position, &f);
		ret->frames[ret->n++] = f;
	}
	/* It was the same function from the first read to the last. */
	return cookie_matches(&h, shared, where) ? 0 : -ESTALE;
}

const struct runtime_ops runtime_v8 = {
	.is_runtime = v8_is_runtime,
	.learn = v8_learn,
	.forget = v8_forget,
	.trim = v8_trim,
	.attach = v8_attach,
	.name = v8_name,
	.covers = v8_covers,
	.describe = v8_describe,
	.otel_name = "nodejs", /* V8 does not know the version of Node.js */
	.jit_memory = 1u << JIT_MEMORY_ANON,
	.walks_natively = true,
};
