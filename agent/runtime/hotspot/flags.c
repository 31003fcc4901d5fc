/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the VM's flags, the options of java, from the table that HotSpot exports. */
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/hotspot/hotspot.h"
#include "base/cleanup.h"

#define MAX_FLAGS 4096
#define MAX_FLAG_BYTES 128
#define NAME_BYTES 32
#define MAX_WANTED 8 /* of one walk over the table */

/* Where the values of those flags are whose names are given. */
static void find_flag(const struct hotspot_offsets *o, const struct runtime_target *t,
		      const u8 *entry, const char *const *names, u32 n, u64 *ret)
{
	u64 at, address;
	char text[NAME_BYTES];

	memcpy(&at, entry + o->of[HF_FLAG_NAME], 8);
	memcpy(&address, entry + o->of[HF_FLAG_ADDRESS], 8);
	/* The table's last entry has no name. */
	if (runtime_read(&t->memory, at, text, sizeof(text)) < 0)
		return;
	for (u32 i = 0; i < n; i++)
		if (!strncmp(text, names[i], sizeof(text)))
			ret[i] = address;
}

void hotspot_find_flags(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
			const struct runtime_target *t, const char *const *names, u32 n, u64 *ret)
{
	u32 size = vm->sizes[HZ_FLAG];
	_cleanup_free_ u8 *all = NULL;
	bool failed = false;
	u64 table, count;

	for (u32 i = 0; i < n; i++)
		ret[i] = 0;
	if (!vm->statics[HS_FLAGS] || !vm->statics[HS_N_FLAGS] || size > MAX_FLAG_BYTES ||
	    !hotspot_has(o, HF_FLAG_NAME) || !hotspot_has(o, HF_FLAG_ADDRESS) ||
	    o->of[HF_FLAG_NAME] + 8 > size || o->of[HF_FLAG_ADDRESS] + 8 > size)
		return;
	table = runtime_u64(&t->memory, vm->statics[HS_FLAGS] + t->bias, &failed);
	count = runtime_u64(&t->memory, vm->statics[HS_N_FLAGS] + t->bias, &failed);
	if (failed || !count || count > MAX_FLAGS)
		return;
	all = malloc(count * size);
	if (!all || runtime_read(&t->memory, table, all, count * size) < 0)
		return;
	for (u64 i = 0; i < count; i++)
		find_flag(o, t, all + i * size, names, n, ret);
}

void hotspot_read_flags(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
			const struct runtime_target *t, const char *const *names, u32 n,
			enum hotspot_flag *ret)
{
	for (u32 i = 0; i < n; i++)
		ret[i] = FLAG_UNKNOWN;
	for (u32 from = 0; from < n; from += MAX_WANTED) {
		u32 some = MIN(n - from, (u32)MAX_WANTED);
		u64 at[MAX_WANTED];
		u8 value;

		hotspot_find_flags(vm, o, t, names + from, some, at);
		for (u32 i = 0; i < some; i++)
			if (at[i] && runtime_read(&t->memory, at[i], &value, 1) == 0)
				ret[from + i] = value ? FLAG_ON : FLAG_OFF;
	}
}
