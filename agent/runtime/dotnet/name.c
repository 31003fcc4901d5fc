/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of managed methods. A MethodDesc (src/coreclr/vm/method.hpp) is in a chunk that has the
 * MethodTable of its class, which leads to the module with the metadata:
 *
 *	chunk:	u64 MethodTable … u16 flags and the token's upper bits	24 bytes
 *		MethodDesc: u16 flags and the token's lower bits, u8 index in the chunk, u16 flags …
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/dotnet/dotnet.h"

#define CHUNK_BYTES 24
#define CHUNK_TOKEN 18
#define METHOD_ALIGN 8
#define KIND_MASK 7 /* enum MethodClassification, in the last of the flags */
#define KIND_ARRAY 4
#define KIND_DYNAMIC 7

/* MethodTable */
#define TABLE_BYTES 64
#define TABLE_FLAGS2 8
#define TABLE_N_VIRTUALS 12
#define TABLE_MODULE 24
#define TABLE_CANONICAL 40
#define FLAG_COMPONENTS 0x80000000U /* an array or a string */
#define FLAG_GENERICS 0x30U
/* enum_flag_HasModuleOverride, and the optional slots before it */
#define FLAG2_OTHER_MODULE 0x10U
#define SLOT_BITS 0x1fU
#define FIRST_SLOT 48
#define SLOTS_INSIDE 2
#define VIRTUALS_PER_CHUNK 8

#define MAX_MODULES 4096

struct dotnet_module {
	u64 name; /* avma of the assembly's name, to see whether it is still the same module */
	bool has_metadata;
	struct dotnet_metadata metadata;
};

void dotnet_cache_clear(struct dotnet_cache *c)
{
	map_foreach (&c->modules, slot)
		free((struct dotnet_module *)slot->value);
	map_deinit(&c->modules);
	c->modules = (struct map){};
}

/* ---- modules ---- */

/* The module with the class's metadata, until .NET 8: the MethodTable has the loader's module. */
static u64 own_module(const struct runtime_memory *m, u64 table)
{
	u8 bytes[TABLE_BYTES];
	u32 flags, flags2, slot;
	u16 n_virtuals;
	u64 module, canonical, at;
	bool failed = false;

	for (u32 i = 0; i < 2; i++) {
		if (runtime_read(m, table, bytes, sizeof(bytes)) < 0)
			return 0;
		memcpy(&flags, bytes, 4);
		memcpy(&flags2, bytes + TABLE_FLAGS2, 4);
		memcpy(&n_virtuals, bytes + TABLE_N_VIRTUALS, 2);
		memcpy(&module, bytes + TABLE_MODULE, 8);
		memcpy(&canonical, bytes + TABLE_CANONICAL, 8);
		if (flags & FLAG_COMPONENTS || !(flags & FLAG_GENERICS))
			return module;
		/* An instance of a generic class: bit 0 marks its canonical MethodTable. */
		if (!(canonical & 1))
			break;
		table = canonical & ~1ULL;
	}
	if (!(flags2 & FLAG2_OTHER_MODULE))
		return module;
	slot = (u32)__builtin_popcount(flags2 & (FLAG2_OTHER_MODULE - 1) & SLOT_BITS);
	at = table + FIRST_SLOT + slot * 8;
	if (slot >= SLOTS_INSIDE)
		at += (u64)(n_virtuals + VIRTUALS_PER_CHUNK - 1) / VIRTUALS_PER_CHUNK * 8;
	module = runtime_u64(m, at, &failed);
	return failed ? 0 : module;
}

static struct dotnet_module *find_module(const struct dotnet_reader *r, u64 module)
{
	struct map *modules = &r->l->cache->modules;
	u64 pair[] = {r->t->process->image, module}, *known, key, name;
	struct dotnet_module *found;
	bool failed = false;

	name = runtime_u64(r->m, module + r->l->layout->simple_name, &failed);
	if (failed)
		return NULL;
	key = hash_bytes(pair, sizeof(pair)) >> 1;
	known = map_get(modules, key);
	if (known && ((struct dotnet_module *)*known)->name == name)
		return (struct dotnet_module *)*known;
	if (modules->n >= MAX_MODULES)
		dotnet_cache_clear(r->l->cache);
	else if (known)
		free((struct dotnet_module *)*known);
	map_del(modules, key, NULL);
	found = calloc(1, sizeof(*found));
	if (!found || map_put(modules, key, (u64)found) < 0) {
		free(found);
		return NULL;
	}
	found->name = name;
	found->has_metadata = dotnet_metadata_find(r->m, name, &found->metadata) == 0;
	return found;
}

/* ---- methods ---- */

static int copy_text(struct arena *arena, const char *text, const char **ret)
{
	size_t n = strlen(text) + 1;
	char *copy = arena_alloc(arena, n);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, n);
	*ret = copy;
	return 0;
}

/* A method that the runtime or the program has made at run time has only a name. */
static int name_dynamic(const struct dotnet_reader *r, u64 method, struct arena *arena,
			const char **ret)
{
	static const char class[] = "dynamicClass.";
	char text[sizeof(class) + DOTNET_MAX_TEXT];
	bool failed = false;
	u64 at = runtime_u64(r->m, method + r->l->layout->dynamic_name, &failed);

	memcpy(text, class, sizeof(class));
	if (failed || !at || dotnet_text(r->m, at, text + sizeof(class) - 1, DOTNET_MAX_TEXT) < 0)
		return copy_text(arena, "dynamicClass", ret);
	return copy_text(arena, text, ret);
}

static int name_method(const struct dotnet_reader *r, u64 method, struct arena *arena,
		       const char **ret)
{
	const u32 bits = r->l->layout->token_bits;
	const struct dotnet_module *module;
	u8 desc[8], chunk[CHUNK_BYTES];
	u16 low, high, flags;
	bool failed = false;
	u64 table;
	u32 token;

	if (!method || method & (METHOD_ALIGN - 1) ||
	    runtime_read(r->m, method, desc, sizeof(desc)) < 0 ||
	    runtime_read(r->m, method - desc[2] * METHOD_ALIGN - CHUNK_BYTES, chunk,
			 sizeof(chunk)) < 0)
		return -ESTALE;
	memcpy(&low, desc, 2);
	memcpy(&flags, desc + 6, 2);
	memcpy(&table, chunk, 8);
	memcpy(&high, chunk + CHUNK_TOKEN, 2);
	if ((flags & KIND_MASK) == KIND_DYNAMIC)
		return name_dynamic(r, method, arena, ret);
	if ((flags & KIND_MASK) == KIND_ARRAY)
		return copy_text(arena, "System.Array accessor", ret);
	token = (high & ((1U << (24 - bits)) - 1)) << bits | (low & ((1U << bits) - 1));
	module = find_module(r, r->l->layout->loader_module
					? own_module(r->m, table)
					: runtime_u64(r->m, table + TABLE_MODULE, &failed));
	if (!module || failed)
		return -ESTALE;
	if (!module->has_metadata)
		return copy_text(arena, "method of an assembly made at run time", ret);
	return dotnet_metadata_name(r->m, &module->metadata, token, arena, ret);
}

/* The MethodDesc of a frame. -ESTALE: the code is not that which the walker saw. */
static int find_method(const struct dotnet_reader *r, u64 address, u64 where, u64 *ret)
{
	struct dotnet_range range;
	bool failed = false;
	u64 header, functions, info;

	switch (where >> DOTNET_KIND_SHIFT) {
	case DOTNET_COMPILED:
		header = runtime_u64(r->m, address - 8, &failed);
		*ret = runtime_u64(r->m, header + DOTNET_HEADER_METHOD, &failed);
		return failed || dotnet_cookie(*ret, header) != (u32)where ? -ESTALE : 0;
	case DOTNET_READY:
		if (dotnet_find_range(r, address, &range) < 0 || !range.module)
			return -ESTALE;
		info = runtime_u64(r->m, range.module + r->p.info, &failed);
		if (r->p.composite)
			info = runtime_u64(r->m, info + r->p.composite, &failed);
		functions = runtime_u64(r->m, info + r->p.functions, &failed);
		if (failed || dotnet_cookie(functions, range.begin) != (u32)where)
			return -ESTALE;
		return dotnet_image_method(r, &range, address, ret) < 0 ? -ESTALE : 0;
	}
	return -EINVAL;
}

int dotnet_name(const struct runtime_target *t, const struct dotnet_learned *l, u64 address,
		u64 where, struct runtime_names *ret)
{
	struct runtime_frame frame = {};
	struct dotnet_reader r;
	u64 method, again;
	int e = dotnet_reader_init(t, l, &r);

	if (e == 0)
		e = find_method(&r, address, where, &method);
	if (e == 0)
		e = name_method(&r, method, ret->arena, &frame.function);
	if (e < 0)
		return e;
	ret->frames[ret->n++] = frame;
	/* It was the same method from the first read to the last. */
	return find_method(&r, address, where, &again) == 0 && again == method ? 0 : -ESTALE;
}
