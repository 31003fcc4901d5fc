/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/symbolize/kernel.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "symbol/symbol.h"

/*
 * The kernel formats all of its 100,000 to 300,000 lines (30 to 100 ms) for each reading. The pause
 * between two readings is this many times the duration of the last one: shorter if something was
 * loaded, longer if an address has no name although nothing was, because trampolines have no
 * program.
 */
#define REST_CHANGED 100
#define REST_UNNAMED 1000

struct kernel_names {
	struct kernel_names_options options;
	struct kallsyms *kernel; /* owned: the kernel's own symbols */
	struct kallsyms *now;	 /* owned: symbols of loaded code at read_ns */
	struct kallsyms *before; /* owned; NULL: as `now`. Symbols at the start of the batch */
	struct map modules;	 /* hash of the name → address, at the start of the batch */
	struct map modules_read; /* the same at read_ns */
	u64 programs;		 /* hash of their ids */
	bool changed;		 /* since `now` was read */
	bool was_current;	 /* `now` was valid at the start of the period of the batch */
	bool can_list;		 /* BPF programs can be listed */
	u64 read_ns, took_ns;	 /* 0: read only with the kernel's own */
};

/* ---- what is loaded ---- */

static int hash_programs(u64 *ret_hash)
{
	u64 hash = 0;
	u32 id = 0;
	int r;

	while ((r = bpf_prog_get_next_id(id, &id)) == 0)
		hash = hash_u64(hash ^ id);
	if (r != -ENOENT)
		return r;
	*ret_hash = hash;
	return 0;
}

/* Lines `NAME SIZE USERS USED_BY STATE ADDRESS`; only name and address are stable. */
static int read_modules(const char *path, struct map *ret)
{
	FILE *f = fopen(path, "re");
	char line[4096], name[128];
	unsigned long long address;
	int r = 0;

	map_clear(ret);
	while (f && r == 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "%127s %*s %*s %*s %*s %llx", name, &address) == 2)
			r = map_put(ret, hash_bytes(name, strlen(name)) >> 1, address);
	if (f)
		fclose(f);
	return r;
}

static bool same_modules(const struct map *a, const struct map *b)
{
	if (a->n != b->n)
		return false;
	map_foreach (a, slot) {
		const u64 *other = map_get(b, slot->key);

		if (!other || *other != slot->value)
			return false;
	}
	return true;
}

void kernel_names_begin(struct kernel_names *k)
{
	u64 programs = 0;

	kallsyms_destroy(k->before);
	k->before = NULL;
	k->was_current = !k->changed && k->can_list;
	k->can_list = k->options.programs(&programs) == 0;
	k->changed |= !k->can_list || programs != k->programs;
	k->programs = programs;
	if (read_modules(k->options.modules, &k->modules) < 0)
		map_clear(&k->modules);
	k->changed |= !same_modules(&k->modules, &k->modules_read);
}

/* ---- names ---- */

static bool may_read(const struct kernel_names *k)
{
	u64 rest = k->changed && k->can_list ? REST_CHANGED : REST_UNNAMED;

	return !k->read_ns || k->options.read_always ||
	       clock_ns(CLOCK_MONOTONIC) > k->read_ns + rest * k->took_ns;
}

static void copy_map(const struct map *from, struct map *to)
{
	map_clear(to);
	map_foreach (from, slot)
		if (map_put(to, slot->key, slot->value) < 0)
			return;
}

/* Reads the symbols of loaded code; the previous ones are kept for this batch. */
static int read_loaded(struct kernel_names *k)
{
	u64 begin = clock_ns(CLOCK_MONOTONIC);
	struct kallsyms *fresh = NULL;
	int r = kallsyms_open_parts(k->options.kallsyms, NULL, &fresh);

	k->read_ns = clock_ns(CLOCK_MONOTONIC);
	k->took_ns = k->read_ns - begin;
	if (r < 0)
		return r;
	if (k->before || !k->was_current)
		kallsyms_destroy(k->now);
	else
		k->before = k->now;
	k->now = fresh;
	/* Changes during this batch are noticed at the start of the next one. */
	k->changed = false;
	copy_map(&k->modules, &k->modules_read);
	return 0;
}

/* Whether a module is at the address that it had when its symbols were read. */
static bool is_still_there(const struct kernel_names *k, const char *module)
{
	u64 key = hash_bytes(module, strlen(module)) >> 1;
	const u64 *read = map_get(&k->modules_read, key), *now = map_get(&k->modules, key);

	return read && now && *read == *now;
}

static int look_up_loaded(const struct kernel_names *k, u64 address, const char **ret_name,
			  const char **ret_module)
{
	const char *name, *module, *old_name, *old_module;
	int r = kallsyms_lookup(k->now, address, &name, &module);
	int old = k->before ? kallsyms_lookup(k->before, address, &old_name, &old_module) : -ENOENT;

	if (r < 0 && old < 0)
		return -ENOENT;
	if (r == 0 && old == 0 && (strcmp(name, old_name) || strcmp(module, old_module)))
		return -ENOENT;
	if (r == 0 && k->changed && !is_still_there(k, module))
		return -ENOENT;
	*ret_name = r == 0 ? name : old_name;
	*ret_module = r == 0 ? module : old_module;
	return 0;
}

int kernel_names_lookup(struct kernel_names *k, u64 address, const char **ret_name,
			const char **ret_module)
{
	int r = kallsyms_lookup(k->kernel, address, ret_name, ret_module);

	if (r == 0)
		return 0;
	r = k->changed ? -ENOENT : look_up_loaded(k, address, ret_name, ret_module);
	if (r == 0)
		return 0;
	if (may_read(k) && read_loaded(k) == -ENOMEM)
		return -ENOMEM;
	return look_up_loaded(k, address, ret_name, ret_module);
}

/* ---- life ---- */

int kernel_names_create(const struct kernel_names_options *o, struct kernel_names **ret)
{
	_cleanup_kernel_names_ struct kernel_names *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return -ENOMEM;
	k->options = *o;
	if (!k->options.kallsyms)
		k->options.kallsyms = "/proc/kallsyms";
	if (!k->options.modules)
		k->options.modules = "/proc/modules";
	if (!k->options.programs)
		k->options.programs = hash_programs;
	/* This reading does not count for the pause: the agent may load its programs after it. */
	k->can_list = k->options.programs(&k->programs) == 0;
	if (read_modules(k->options.modules, &k->modules_read) < 0)
		map_clear(&k->modules_read);
	r = kallsyms_open_parts(k->options.kallsyms, &k->kernel, &k->now);
	if (r < 0)
		return r;
	*ret = take_ptr(k);
	return 0;
}

void kernel_names_destroy(struct kernel_names *k)
{
	if (!k)
		return;
	kallsyms_destroy(k->kernel);
	kallsyms_destroy(k->now);
	kallsyms_destroy(k->before);
	map_deinit(&k->modules);
	map_deinit(&k->modules_read);
	free(k);
}

size_t kernel_names_memory(const struct kernel_names *k)
{
	return kallsyms_memory(k->kernel) + kallsyms_memory(k->now) + kallsyms_memory(k->before);
}
