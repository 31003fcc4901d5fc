/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `culprit doctor -p` reports about a JVM: its version, the origin of the offsets, and what of
 * this process the profile will omit. Stacks do not depend on this file.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/hotspot/hotspot.h"
#include "base/cleanup.h"

#define MAX_FLAGS 4096
#define MAX_FLAG_BYTES 128
/* The first release in which virtual threads are not a preview. */
#define FIRST_VIRTUAL 21
/* From 22 on the VM's tables contain only a few stubs; earlier ones contain more. */
#define FEW_STUBS 8

void hotspot_describe(const struct hotspot_vm *vm, char *ret, size_t n)
{
	u32 fields = 0;
	char which[64] = "of an unknown version";

	for (u32 i = 0; i < HF_N; i++)
		fields += vm->fields[i] != 0;
	if (*vm->release)
		snprintf(which, sizeof(which), "%s", vm->release);
	else if (vm->major)
		snprintf(which, sizeof(which), "%u", vm->major);
	snprintf(ret, n, "HotSpot %s, offsets from its vmStructs (%u fields, %u stubs)", which,
		 fields, vm->n_stubs);
}

enum flag { FLAG_UNKNOWN, FLAG_OFF, FLAG_ON };

/* Reads a flag of type bool from the VM's table of flags. */
static enum flag read_flag(const struct runtime_target *t, const struct hotspot_vm *vm,
			   const struct hotspot_offsets *o, const char *name)
{
	u32 size = vm->sizes[HZ_FLAG];
	_cleanup_free_ u8 *all = NULL;
	bool failed = false;
	u64 table, n;

	if (!vm->statics[HS_FLAGS] || !vm->statics[HS_N_FLAGS] || size > MAX_FLAG_BYTES ||
	    !hotspot_has(o, HF_FLAG_NAME) || !hotspot_has(o, HF_FLAG_ADDRESS) ||
	    o->of[HF_FLAG_NAME] + 8 > size || o->of[HF_FLAG_ADDRESS] + 8 > size)
		return FLAG_UNKNOWN;
	table = runtime_u64(&t->memory, vm->statics[HS_FLAGS] + t->bias, &failed);
	n = runtime_u64(&t->memory, vm->statics[HS_N_FLAGS] + t->bias, &failed);
	if (failed || !n || n > MAX_FLAGS)
		return FLAG_UNKNOWN;
	all = malloc(n * size);
	if (!all || runtime_read(&t->memory, table, all, n * size) < 0)
		return FLAG_UNKNOWN;
	for (u64 i = 0; i < n; i++) {
		const u8 *entry = all + i * size;
		u64 at, address;
		char text[32];
		u8 value;

		memcpy(&at, entry + o->of[HF_FLAG_NAME], 8);
		memcpy(&address, entry + o->of[HF_FLAG_ADDRESS], 8);
		/* The table's last entry has no name. */
		if (runtime_read(&t->memory, at, text, strlen(name) + 1) < 0 ||
		    memcmp(text, name, strlen(name) + 1) != 0)
			continue;
		if (runtime_read(&t->memory, address, &value, 1) < 0)
			return FLAG_UNKNOWN;
		return value ? FLAG_ON : FLAG_OFF;
	}
	return FLAG_UNKNOWN;
}

static void heaps_missing(const struct runtime_target *t, const struct hotspot_vm *vm,
			  const struct hotspot_offsets *o,
			  void (*line)(void *arg, const char *text), void *arg)
{
	bool failed = false;
	char text[128];
	u64 list;
	u32 n;

	if (!vm->statics[HS_HEAPS])
		return;
	list = runtime_u64(&t->memory, vm->statics[HS_HEAPS] + t->bias, &failed);
	n = failed || !list ? 0 : runtime_u32(&t->memory, list + o->of[HF_ARRAY_LEN], &failed);
	if (failed || n <= HOTSPOT_MAX_HEAPS)
		return;
	snprintf(text, sizeof(text), "Java frames: it has %u code heaps, of which %d can be walked",
		 n, HOTSPOT_MAX_HEAPS);
	line(arg, text);
}

void hotspot_missing(const struct runtime_target *t, const struct hotspot_vm *vm,
		     void (*line)(void *arg, const char *text), void *arg)
{
	struct hotspot_offsets o;
	int r = hotspot_vm_read(vm, t, &o);

	if (r == -EAGAIN)
		return; /* the VM is starting */
	if (r < 0) {
		line(arg, r == -EINVAL ? "Java frames: an offset in its vmStructs is not one"
				       : "Java frames: the memory of the process cannot be read");
		return;
	}
	heaps_missing(t, vm, &o, line, arg);
	if (read_flag(t, vm, &o, "DebugNonSafepoints") != FLAG_ON)
		line(arg,
		     "exact lines in compiled methods: lines are those of the next call or poll (-XX:+UnlockDiagnosticVMOptions -XX:+DebugNonSafepoints records more)");
	if (vm->n_stubs < FEW_STUBS) /* 22 and later */
		line(arg, "names of single stubs: its vmStructs do not contain their addresses");
	if (!hotspot_has(&o, HF_THREAD_SAVED_PC))
		line(arg, "callers of methods that are returning from a poll");
	if (!hotspot_has(&o, HF_POOL_SOURCE) && !hotspot_has(&o, HF_CLASS_SOURCE))
		line(arg, "names of source files");
	if (o.major >= FIRST_VIRTUAL)
		line(arg,
		     "frames of a virtual thread that were not copied back to its carrier's stack since it was parked");
}
