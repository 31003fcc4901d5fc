/* SPDX-License-Identifier: Apache-2.0 */
/* .NET (CoreCLR): its struct runtime_ops. See doc/runtimes/dotnet.md. */
#include "agent/runtime/dotnet/dotnet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "base/str.h"

/* A program that exports as many functions is not a published .NET program. */
#define MAX_EXPORTS_BYTES (64U << 10)

static bool is_runtime(const struct procman_binary *b)
{
	struct elf_section symbols;
	u64 svma;

	if (str_ends(b->path, "/libcoreclr.so"))
		return true;
	/* A program that contains the runtime. */
	return elf_file_section(b->elf, ".interp", NULL, NULL) == 0 &&
	       elf_file_section(b->elf, ".dynsym", &symbols, NULL) == 0 &&
	       symbols.size < MAX_EXPORTS_BYTES &&
	       runtime_symbol(b->elf, "DotNetRuntimeInfo", &svma, NULL) &&
	       runtime_symbol(b->elf, "g_dacTable", &svma, NULL);
}

struct learning {
	const struct dotnet_reader *r;
	struct dotnet_found found;
	u32 n; /* range sections */
};

static int learn_from_range(void *arg, const struct dotnet_range *range)
{
	struct learning *learning = arg;

	learning->n++;
	return range->module && dotnet_learn_image(learning->r, range, &learning->found) == 0;
}

static int dotnet_attach(const struct runtime_target *t, const void *learned,
			 struct runtime_process *ret)
{
	const struct dotnet_learned *l = learned;
	struct dotnet_reader r;
	struct learning learning = {.r = &r};
	int e = dotnet_reader_init(t, l, &r);

	if (e < 0)
		return e;
	if (!l->found->info) {
		learning.found = *l->found;
		e = dotnet_each_range(&r, learn_from_range, &learning);
		if (e < 0 || !learning.n)
			return -EAGAIN;
		if (e == 1)
			*l->found = learning.found;
		e = dotnet_reader_init(t, l, &r);
		if (e < 0)
			return e;
	}
	memcpy(ret->room, &r.p, sizeof(r.p));
	/* All images may be compiled by the JIT only. But mostly the first is not loaded yet. */
	return l->found->info || learning.n > 8 ? 0 : -EAGAIN;
}

static int dotnet_name_frame(const struct runtime_target *t, const void *learned, u64 address,
			     u64 where, struct runtime_names *ret)
{
	return dotnet_name(t, learned, address, where, ret);
}

static bool dotnet_covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	const struct dotnet_learned *l = learned;

	return avma - p->bias < l->image_start || avma - p->bias >= l->image_end;
}

static void dotnet_trim(void *learned)
{
	dotnet_cache_clear(((const struct dotnet_learned *)learned)->cache);
}

static void version(const struct dotnet_learned *l, char *ret, size_t n)
{
	if (l->major == 3)
		snprintf(ret, n, "%u.%u", l->major, l->minor);
	else
		snprintf(ret, n, "%u.%u.%u", l->major, l->minor, l->patch);
}

static void dotnet_describe(const void *learned, char *ret, size_t n)
{
	const struct dotnet_learned *l = learned;
	char text[40];

	version(l, text, sizeof(text));
	snprintf(ret, n, ".NET %s, offsets from a table, code by %s", text,
		 l->layout->list ? "a list in its data" : "g_dacTable");
}

static void otel_version(const void *learned, char *ret, size_t n)
{
	version(learned, ret, n);
}

const struct runtime_ops runtime_dotnet = {
	.is_runtime = is_runtime,
	.learn = dotnet_learn,
	.forget = dotnet_forget,
	.trim = dotnet_trim,
	.attach = dotnet_attach,
	.name = dotnet_name_frame,
	.covers = dotnet_covers,
	.describe = dotnet_describe,
	.otel_name = ".NET",
	.otel_version = otel_version,
	.jit_memory = 1u << JIT_MEMORY_ANON | 1u << JIT_MEMORY_SHARED | 1u << JIT_MEMORY_FILES,
	.native_text = true,
};
