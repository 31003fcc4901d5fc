/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Java objects. The first words of an object:
 *
 *	u64 mark, then its class: u32 (narrow), u64, or a part of the mark (compact headers)
 *	of an array, the length follows as u32, then the elements
 *
 * A narrow reference or class is a number to be shifted and added to a base.
 */
#include "agent/runtime/hotspot/objects.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"

#define HEADER_BYTES 16
#define MAX_SHIFT 16
#define MAX_CLASSES (1u << 20)
#define CLOCK_EACH 32
#define MAX_NAME 96
#define MAX_ARRAY (1u << 28)

static const char *const class_names[JC_N] = {
	[JC_VIRTUAL] = "java/lang/VirtualThread",
	[JC_THREAD] = "java/lang/Thread",
	[JC_CONTINUATION] = "jdk/internal/vm/Continuation",
	[JC_CHUNK] = "jdk/internal/vm/StackChunk",
	[JC_CONTAINERS] = "jdk/internal/vm/ThreadContainers",
	[JC_TRACKING] = "jdk/internal/vm/ThreadContainers$RootContainer$TrackingRootContainer",
	[JC_COUNTING] = "jdk/internal/vm/ThreadContainers$RootContainer$CountingRootContainer",
	[JC_PER_TASK] = "java/util/concurrent/ThreadPerTaskExecutor",
	[JC_SHARED] = "jdk/internal/vm/SharedThreadContainer",
	[JC_VIEW] = "java/util/concurrent/ConcurrentHashMap$CollectionView",
	[JC_MAP] = "java/util/concurrent/ConcurrentHashMap",
	[JC_NODE] = "java/util/concurrent/ConcurrentHashMap$Node",
	[JC_REFERENCE] = "java/lang/ref/Reference",
};

static const struct {
	enum java_class class;
	const char *name;
	bool optional;
} field_names[JF_N] = {
	[JF_STATE] = {JC_VIRTUAL, "state"},
	[JF_CONT] = {JC_VIRTUAL, "cont"},
	[JF_ID] = {JC_THREAD, "tid"},
	[JF_TAIL] = {JC_CONTINUATION, "tail"},
	[JF_PARENT] = {JC_CHUNK, "parent"},
	[JF_SIZE] = {JC_CHUNK, "size"},
	[JF_SP] = {JC_CHUNK, "sp"},
	[JF_BOTTOM] = {JC_CHUNK, "bottom"},
	[JF_REGISTRY] = {JC_CONTAINERS, "CONTAINER_REGISTRY"},
	[JF_TRACKED] = {JC_TRACKING, "VTHREADS"},
	[JF_PER_TASK] = {JC_PER_TASK, "threads"},
	[JF_SHARED] = {JC_SHARED, "virtualThreads"},
	[JF_VIEWED] = {JC_VIEW, "map"},
	[JF_TABLE] = {JC_MAP, "table"},
	[JF_HASH] = {JC_NODE, "hash"},
	[JF_KEY] = {JC_NODE, "key"},
	[JF_NEXT] = {JC_NODE, "next"},
	[JF_REFERENT] = {JC_REFERENCE, "referent"},
	[JF_PARKED] = {JC_VIRTUAL, "PARKED"},
	[JF_TIMED_PARKED] = {JC_VIRTUAL, "TIMED_PARKED"},
	[JF_BLOCKED] = {JC_VIRTUAL, "BLOCKED", true}, /* from 24 on, like the next two */
	[JF_WAIT] = {JC_VIRTUAL, "WAIT", true},
	[JF_TIMED_WAIT] = {JC_VIRTUAL, "TIMED_WAIT", true},
	[JF_SUSPENDED] = {JC_VIRTUAL, "SUSPENDED"},
};

/* ---- how objects lie ---- */

static const char *check_exports(const struct hotspot_vm *vm, const struct runtime_target *t,
				 const struct hotspot_offsets *o)
{
	static const enum hotspot_field needed[] = {
		HF_CLASS_LAYOUT, HF_CLASS_MIRROR, HF_CLASS_NEXT,     HF_CLASS_LOADER,
		HF_CLASS_FIELDS, HF_CLASS_POOL,	  HF_LOADER_CLASSES, HF_BYTES_DATA,
		HF_GC_ACTIVE,	 HF_GC_COUNT,	  HF_CLASS_NAME,
	};
	static const enum hotspot_static addresses[] = {
		HS_COLLECTED_HEAP, HS_OBJECT_CLASS, HS_OOP_BASE,
		HS_OOP_SHIFT,	   HS_CLASS_BASE,   HS_CLASS_SHIFT,
	};

	for (u32 i = 0; i < ARRAY_SIZE(needed); i++)
		if (!hotspot_has(o, needed[i]))
			return "virtual threads that wait: its vmStructs lack fields of classes";
	for (u32 i = 0; i < ARRAY_SIZE(addresses); i++)
		if (!vm->statics[addresses[i]])
			return "virtual threads that wait: its vmStructs lack where objects are";
	if (t->elf->machine != EM_X86_64)
		return "virtual threads that wait: only x86-64 is supported";
	return NULL;
}

static const char *read_layout(const struct hotspot_vm *vm, const struct runtime_target *t,
			       struct hotspot_objects *o)
{
	enum { Z, SHENANDOAH, OOPS, CLASSES, COMPACT, N };
	static const char *const names[N] = {
		[Z] = "UseZGC",
		[SHENANDOAH] = "UseShenandoahGC",
		[OOPS] = "UseCompressedOops",
		[CLASSES] = "UseCompressedClassPointers",
		[COMPACT] = "UseCompactObjectHeaders",
	};
	enum hotspot_flag flags[N];

	hotspot_read_flags(vm, &o->offsets, t, names, N, flags);
	if (flags[Z] == FLAG_ON)
		return "virtual threads that wait: ZGC moves objects while threads run";
	if (flags[SHENANDOAH] == FLAG_ON)
		return "virtual threads that wait: Shenandoah moves objects while threads run";
	if (flags[OOPS] == FLAG_UNKNOWN)
		return "virtual threads that wait: its flags are not readable";
	o->narrow_oops = flags[OOPS] == FLAG_ON;
	/* From 27 on, classes are always narrow, and there may be no such flag. */
	o->narrow_classes = flags[CLASSES] != FLAG_OFF;
	o->compact = flags[COMPACT] == FLAG_ON;
	if (o->compact && !vm->mark_shift)
		return "virtual threads that wait: its vmStructs do not tell where an object's class is";
	return NULL;
}

static int read_bases(const struct hotspot_vm *vm, const struct runtime_target *t,
		      struct hotspot_objects *o)
{
	const struct runtime_memory *m = &t->memory;
	const u64 *at = vm->statics;
	bool failed = false;
	u64 class;

	o->oop_base = runtime_u64(m, at[HS_OOP_BASE] + t->bias, &failed);
	o->oop_shift = runtime_u32(m, at[HS_OOP_SHIFT] + t->bias, &failed);
	o->class_base = runtime_u64(m, at[HS_CLASS_BASE] + t->bias, &failed);
	o->class_shift = runtime_u32(m, at[HS_CLASS_SHIFT] + t->bias, &failed);
	if (o->compact)
		o->mark_shift = (u32)runtime_u64(m, vm->mark_shift + t->bias, &failed);
	class = runtime_u64(m, at[HS_OBJECT_CLASS] + t->bias, &failed);
	if (failed)
		return -EFAULT;
	if (!class)
		return -EAGAIN;
	if (o->oop_shift > MAX_SHIFT || o->class_shift > MAX_SHIFT || o->mark_shift >= 64)
		return -EINVAL;
	/* Object's loader is the boot loader. */
	o->list = runtime_u64(m, class + o->offsets.of[HF_CLASS_LOADER], &failed) +
		  o->offsets.of[HF_LOADER_CLASSES];
	return failed ? -EFAULT : 0;
}

int hotspot_objects_init(const struct hotspot_vm *vm, const struct runtime_target *t,
			 struct hotspot_objects *o, const char **ret_why)
{
	const char *why;
	int r;

	memset(o, 0, sizeof(*o));
	r = hotspot_vm_read(vm, t, &o->offsets);
	if (r < 0)
		return r;
	why = check_exports(vm, t, &o->offsets);
	why = why ? why : read_layout(vm, t, o);
	if (why) {
		*ret_why = why;
		return -ENOTSUP;
	}
	for (u32 i = 0; i < JF_N; i++)
		o->fields[i] = HOTSPOT_NONE;
	return read_bases(vm, t, o);
}

/* ---- classes ---- */

/* Finds the fields of a class that was found. */
static int find_fields(const struct hotspot_vm *vm, const struct runtime_target *t,
		       struct hotspot_objects *o, enum java_class class, u64 address)
{
	enum java_field which[JF_N];
	const char *names[JF_N];
	u32 offsets[JF_N], n = 0;
	int r;

	for (enum java_field i = 0; i < JF_N; i++) {
		if (field_names[i].class != class)
			continue;
		which[n] = i;
		names[n++] = field_names[i].name;
	}
	if (!n)
		return 0;
	r = java_find_fields(vm, o, t, address, names, n, offsets);
	for (u32 i = 0; r == 0 && i < n; i++) {
		if (offsets[i] == HOTSPOT_NONE && !field_names[which[i]].optional)
			return -ENOTSUP;
		if (offsets[i] != HOTSPOT_NONE && offsets[i] + 8 > JAVA_OBJECT_BYTES)
			return -ENOTSUP;
		o->fields[which[i]] = offsets[i];
	}
	return r;
}

static int take_class(const struct hotspot_vm *vm, const struct runtime_target *t,
		      struct hotspot_objects *o, u64 class)
{
	char name[MAX_NAME];
	int r = java_class_name(o, t, class, name, sizeof(name));

	for (u32 i = 0; r == 0 && i < JC_N; i++) {
		if (o->classes[i] || strcmp(name, class_names[i]) != 0)
			continue;
		r = find_fields(vm, t, o, i, class);
		if (r == 0)
			o->classes[i] = class;
		return r;
	}
	return r;
}

int hotspot_objects_follow(const struct hotspot_vm *vm, const struct runtime_target *t,
			   struct hotspot_objects *o, u64 until_ns)
{
	int r;

	if (!o->at) {
		r = runtime_read(&t->memory, o->list, &o->first, sizeof(o->first));
		if (r < 0)
			return r;
		if (o->first == o->known)
			return 0;
		o->at = o->first;
		o->n_walked = 0;
	}
	while (o->at && o->at != o->known) {
		if (o->n_walked++ % CLOCK_EACH == 0 && clock_ns(CLOCK_MONOTONIC) > until_ns)
			return -EAGAIN;
		if (o->n_walked > MAX_CLASSES)
			return -ENOTSUP;
		r = take_class(vm, t, o, o->at);
		if (r == 0)
			r = runtime_read(&t->memory, o->at + o->offsets.of[HF_CLASS_NEXT], &o->at,
					 sizeof(o->at));
		if (r < 0)
			return r;
	}
	o->known = o->first;
	o->at = 0;
	return 0;
}

/* ---- objects ---- */

u64 java_reference(const struct hotspot_objects *o, const u8 *bytes)
{
	u32 narrow;
	u64 wide;

	if (!o->narrow_oops) {
		memcpy(&wide, bytes, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, bytes, sizeof(narrow));
	return narrow ? o->oop_base + ((u64)narrow << o->oop_shift) : 0;
}

int java_read_reference(const struct hotspot_objects *o, const struct runtime_target *t,
			u64 address, u64 *ret)
{
	u8 bytes[8];
	int r = runtime_read(&t->memory, address, bytes, java_reference_bytes(o));

	if (r == 0)
		*ret = java_reference(o, bytes);
	return r;
}

u64 java_class_of(const struct hotspot_objects *o, const u8 *header)
{
	u64 mark, wide;
	u32 narrow;

	memcpy(&mark, header, sizeof(mark));
	memcpy(&narrow, header + 8, sizeof(narrow));
	memcpy(&wide, header + 8, sizeof(wide));
	if (o->compact)
		return o->class_base + (mark >> o->mark_shift << o->class_shift);
	return o->narrow_classes ? o->class_base + ((u64)narrow << o->class_shift) : wide;
}

int java_read_object(const struct hotspot_objects *o, const struct runtime_target *t, u64 address,
		     enum java_class class, void *to, u32 n)
{
	int r = address && address % 8 == 0 && n >= HEADER_BYTES
			? runtime_read(&t->memory, address, to, n)
			: -EINVAL;

	if (r < 0)
		return r;
	return o->classes[class] && java_class_of(o, to) == o->classes[class] ? 0 : -EINVAL;
}

int java_static(const struct hotspot_objects *o, const struct runtime_target *t,
		enum java_class class, enum java_field field, u64 *ret)
{
	bool failed = false;
	u64 handle, mirror;

	if (!o->classes[class] || o->fields[field] == HOTSPOT_NONE)
		return -ENOENT;
	handle = runtime_u64(&t->memory, o->classes[class] + o->offsets.of[HF_CLASS_MIRROR],
			     &failed);
	mirror = failed || !handle ? 0 : runtime_u64(&t->memory, handle, &failed);
	if (failed)
		return -EFAULT;
	if (!mirror)
		return -EINVAL;
	*ret = mirror + o->fields[field];
	return 0;
}

static int read_class_layout(const struct hotspot_objects *o, const struct runtime_target *t,
			     u64 class, u32 *ret)
{
	return runtime_read(&t->memory, class + o->offsets.of[HF_CLASS_LAYOUT], ret, sizeof(*ret));
}

/*
 * The layout of an array's class (klass.hpp) is negative: the third byte is how many bytes are
 * before the elements.
 */
int java_read_array(const struct hotspot_objects *o, const struct runtime_target *t, u64 address,
		    u64 *ret_first, u32 *ret_n)
{
	u32 at = o->compact ? 8 : o->narrow_classes ? 12 : 16, layout, before, n;
	u8 header[HEADER_BYTES + 8];
	int r = address && address % 8 == 0
			? runtime_read(&t->memory, address, header, sizeof(header))
			: -EINVAL;

	if (r == 0)
		r = read_class_layout(o, t, java_class_of(o, header), &layout);
	if (r < 0)
		return r;
	before = layout >> 16 & 0xff;
	memcpy(&n, header + at, sizeof(n));
	if (!(layout & 1u << 31) || before < at + 4 || before > 32 || n > MAX_ARRAY)
		return -EINVAL;
	*ret_first = address + before;
	*ret_n = n;
	return 0;
}

/* The layout of another class is the bytes of an object; bit 0 is a mark. */
int java_size(const struct hotspot_objects *o, const struct runtime_target *t,
	      enum java_class class, u32 *ret)
{
	u32 layout;
	int r = read_class_layout(o, t, o->classes[class], &layout);

	if (r < 0)
		return r;
	layout &= ~7u;
	if (layout < HEADER_BYTES || layout > JAVA_OBJECT_BYTES)
		return -EINVAL;
	*ret = layout;
	return 0;
}

int hotspot_gc_read(const struct hotspot_vm *vm, const struct hotspot_objects *o,
		    const struct runtime_target *t, u32 *ret)
{
	const u32 *of = o->offsets.of;
	u32 first = MIN(of[HF_GC_ACTIVE], of[HF_GC_COUNT]);
	u32 n = MAX(of[HF_GC_ACTIVE], of[HF_GC_COUNT]) - first + 4;
	u8 bytes[JAVA_OBJECT_BYTES];
	u64 heap;
	int r = runtime_read(&t->memory, vm->statics[HS_COLLECTED_HEAP] + t->bias, &heap,
			     sizeof(heap));

	if (r < 0)
		return r;
	if (!heap || n > sizeof(bytes))
		return -EAGAIN;
	r = runtime_read(&t->memory, heap + first, bytes, n);
	if (r < 0)
		return r;
	if (bytes[of[HF_GC_ACTIVE] - first])
		return -EBUSY;
	memcpy(ret, bytes + of[HF_GC_COUNT] - first, sizeof(*ret));
	return 0;
}
