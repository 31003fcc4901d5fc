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
	static const char *const flags[] = {"DebugNonSafepoints"};
	enum hotspot_flag has_lines;
	struct hotspot_offsets o;
	const char *missing;
	int r = hotspot_vm_read(vm, t, &o);

	if (r == -EAGAIN)
		return; /* the VM is starting */
	if (r < 0) {
		line(arg, r == -EINVAL ? "Java frames: an offset in its vmStructs is not one"
				       : "Java frames: the memory of the process cannot be read");
		return;
	}
	heaps_missing(t, vm, &o, line, arg);
	hotspot_read_flags(vm, &o, t, flags, 1, &has_lines);
	if (has_lines != FLAG_ON)
		line(arg,
		     "exact lines in compiled methods: lines are those of the next call or poll (-XX:+UnlockDiagnosticVMOptions -XX:+DebugNonSafepoints records more)");
	if (vm->n_stubs < FEW_STUBS) /* 22 and later */
		line(arg, "names of single stubs: its vmStructs do not contain their addresses");
	if (!hotspot_has(&o, HF_THREAD_SAVED_PC))
		line(arg, "callers of methods that are returning from a poll");
	if (!hotspot_has(&o, HF_POOL_SOURCE) && !hotspot_has(&o, HF_CLASS_SOURCE))
		line(arg, "names of source files");
	if (o.major < FIRST_VIRTUAL)
		return;
	line(arg,
	     "frames of a running virtual thread that were not copied back to its carrier's stack since it was parked");
	missing = hotspot_virtual_missing(vm, t);
	if (missing)
		line(arg, missing);
}
