/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns from a binary that contains CoreCLR: libcoreclr.so, or a program published as a single
 * file. Its data have the version, as "@(#)Version 9.0.725.31616 @Commit: …".
 */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "agent/runtime/dotnet/dotnet.h"
#include "base/str.h"

/*
 * From the sources of each version: RangeSection in codeman.h, Module in ceeload.h,
 * DynamicMethodDesc in method.hpp, and MethodTable in methodtable.h, all in src/coreclr/vm. .NET 9
 * and 10 publish most of them in DotNetRuntimeContractDescriptor.
 */
static const struct dotnet_layout layouts[] = {
	{
		.first = 3,
		.last = 6,
		.list = true,
		.next = 0x18,
		.section_flags = 0x28,
		.heap = 0x30,
		.module = 0x30,
		.simple_name = 8,
		.token_bits = 14,
		.dynamic_name = 24,
		.loader_module = true,
	},
	{
		.first = 8,
		.last = 8,
		.section_flags = 0x10,
		.heap = 0x28,
		.module = 0x20,
		.composite = 40,
		.simple_name = 0x108,
		.token_bits = 12,
		.dynamic_name = 24,
		.loader_module = true,
	},
	{
		.first = 9,
		.last = 9,
		.section_flags = 0x10,
		.heap = 0x28,
		.module = 0x20,
		.composite = 40,
		.simple_name = 0x108,
		.token_bits = 12,
		.dynamic_name = 32,
	},
	{
		.first = 10,
		.last = 10,
		.pointers = true,
		.section_flags = 0x10,
		.heap = 0x28,
		.module = 0x20,
		.composite = 40,
		.simple_name = 0xc0,
		.token_bits = 12,
		.dynamic_name = 32,
	},
};

static bool find_version(struct elf_file *elf, const char *section, struct dotnet_learned *l)
{
	static const char mark[] = "@(#)Version ";
	u32 build = 0;
	struct buf data;
	const u8 *at;
	char text[32];

	if (elf_file_section(elf, section, NULL, &data) < 0)
		return false;
	at = memmem(data.pos, buf_left(&data), mark, strlen(mark));
	if (!at || (size_t)(data.end - at) < strlen(mark) + sizeof(text))
		return false;
	memcpy(text, at + strlen(mark), sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	if (sscanf(text, "%3u.%5u.%5u", &l->major, &l->minor, &build) != 3)
		return false;
	l->patch = build / 100;
	/* .NET Core 3.1 counted as .NET Framework does. */
	if (l->major == 4 && l->minor == 700) {
		l->major = 3;
		l->minor = 1;
		l->patch = 0;
	}
	return true;
}

static const struct dotnet_layout *find_layout(u32 major)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
		if (major >= layouts[i].first && major <= layouts[i].last)
			return &layouts[i];
	return NULL;
}

static void find_ranges(struct elf_file *elf, struct dotnet_learned *l)
{
	l->image_start = l->data_start = ~0ULL;
	for (u32 i = 0; i < elf->n_segments; i++) {
		const struct elf_segment *s = &elf->segments[i];

		l->image_start = MIN(l->image_start, s->svma);
		l->image_end = MAX(l->image_end, s->svma + s->memsz);
		if (!(s->flags & PF_W))
			continue;
		/* The last writable segment: data, and what the file does not contain. */
		l->data_start = (s->svma + 7) & ~7ULL;
		l->data_end = s->svma + s->memsz;
	}
}

static int learn(struct elf_file *elf, struct dotnet_learned *l, struct diag *d)
{
	if (elf->machine != EM_X86_64)
		return diag_set(d, -ENOTSUP, ".NET is supported on x86-64 only");
	if (!find_version(elf, ".data", l) && !find_version(elf, ".rodata", l))
		return diag_set(d, -ENOTSUP, "the version of CoreCLR is not in its data");
	l->layout = find_layout(l->major);
	if (!l->layout)
		return diag_set(d, -ENOTSUP, "no offsets are known for .NET %u.%u.%u", l->major,
				l->minor, l->patch);
	find_ranges(elf, l);
	if (l->data_start >= l->data_end)
		return diag_set(d, -ENOTSUP, "CoreCLR has no writable data");
	if (!l->layout->list && !runtime_symbol(elf, "g_dacTable", &l->table, NULL))
		return diag_set(d, -ENOTSUP,
				"it does not export g_dacTable, which leads to the code");
	return 0;
}

int dotnet_learn(const struct procman_binary *b, struct runtime_binary *ret_bpf, void **ret_learned,
		 struct diag *reterr_diag)
{
	struct dotnet_learned *l = calloc(1, sizeof(*l));
	int r = -ENOMEM;

	if (l) {
		l->found = calloc(1, sizeof(*l->found));
		l->cache = calloc(1, sizeof(*l->cache));
	}
	if (l && l->found && l->cache)
		r = learn(b->elf, l, reterr_diag);
	if (r < 0) {
		dotnet_forget(l);
		return r;
	}
	*ret_bpf = (struct runtime_binary){};
	*ret_learned = l;
	return 0;
}

void dotnet_forget(void *learned)
{
	struct dotnet_learned *l = learned;

	if (!l)
		return;
	if (l->cache)
		dotnet_cache_clear(l->cache);
	free(l->cache);
	free(l->found);
	free(l);
}
