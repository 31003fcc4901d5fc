/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the HotSpot runtime: Java objects of a JVM, as far as virtual threads need them.
 *
 * A class is found by its name in the list of the boot loader's classes, the offset of a field in
 * the class's description of its fields, and an object's class in its header. Objects move while
 * the collector stops the threads; hotspot_gc_read() tells whether it has done so.
 */
#pragma once

#include "agent/runtime/hotspot/hotspot.h"

enum java_class {
	JC_VIRTUAL,
	JC_THREAD,
	JC_CONTINUATION,
	JC_CHUNK,
	JC_CONTAINERS,
	JC_TRACKING,
	JC_COUNTING,
	JC_PER_TASK,
	JC_SHARED,
	JC_VIEW,
	JC_MAP,
	JC_NODE,
	JC_REFERENCE,
	JC_N
};

enum java_field {
	JF_STATE,
	JF_CONT,
	JF_ID,
	JF_TAIL,
	JF_PARENT,
	JF_SIZE,
	JF_SP,
	JF_BOTTOM,
	JF_REGISTRY,
	JF_TRACKED,
	JF_PER_TASK,
	JF_SHARED,
	JF_VIEWED,
	JF_TABLE,
	JF_HASH,
	JF_KEY,
	JF_NEXT,
	JF_REFERENT,
	/* The states in which a virtual thread waits; static. The first two are in all releases. */
	JF_PARKED,
	JF_TIMED_PARKED,
	JF_BLOCKED,
	JF_WAIT,
	JF_TIMED_WAIT,
	JF_SUSPENDED,
	JF_N
};

/* Bytes of an object before which its fields are expected. */
#define JAVA_OBJECT_BYTES 512

struct hotspot_objects {
	struct hotspot_offsets offsets;
	bool narrow_oops, narrow_classes, compact;
	u64 oop_base, class_base;
	u32 oop_shift, class_shift, mark_shift;
	/* The list of classes: it grows at its head. */
	u64 list; /* avma of the head */
	u64 known, at,
		first; /* the head when a walk was complete; where the current one is and began */
	u32 n_walked;
	u64 classes[JC_N]; /* 0: not loaded */
	u32 fields[JF_N];  /* HOTSPOT_NONE: not known */
};

/*
 * Learns how objects lie. -EAGAIN: the VM is starting; -ENOTSUP: *ret_why says what is not
 * supported.
 */
int hotspot_objects_init(const struct hotspot_vm *vm, const struct runtime_target *t,
			 struct hotspot_objects *o, const char **ret_why);
/*
 * Looks for classes that were loaded since. -EAGAIN: time is over; the next call goes on; -ENOTSUP:
 * a class has not the fields that are expected.
 */
int hotspot_objects_follow(const struct hotspot_vm *vm, const struct runtime_target *t,
			   struct hotspot_objects *o, u64 until_ns);

/* The reference at a place of bytes that were read; 0: null. */
u64 java_reference(const struct hotspot_objects *o, const u8 *bytes);
/* Bytes of a reference. */
static inline u32 java_reference_bytes(const struct hotspot_objects *o)
{
	return o->narrow_oops ? 4 : 8;
}
int java_read_reference(const struct hotspot_objects *o, const struct runtime_target *t,
			u64 address, u64 *ret);
/* The address of an object's class; `header` is its first 16 bytes. */
u64 java_class_of(const struct hotspot_objects *o, const u8 *header);
/* Reads n bytes of an object, and checks that it is of a class: else -EINVAL. */
int java_read_object(const struct hotspot_objects *o, const struct runtime_target *t, u64 address,
		     enum java_class class, void *to, u32 n);
/* The address of a static field. */
int java_static(const struct hotspot_objects *o, const struct runtime_target *t,
		enum java_class class, enum java_field field, u64 *ret);
/* An array of references: the address of its first element, and how many it has. */
int java_read_array(const struct hotspot_objects *o, const struct runtime_target *t, u64 address,
		    u64 *ret_first, u32 *ret_n);
/* Bytes of an object's fields. */
int java_size(const struct hotspot_objects *o, const struct runtime_target *t,
	      enum java_class class, u32 *ret);

/* The collector's count of collections; -EBUSY: it collects now, and may move objects. */
int hotspot_gc_read(const struct hotspot_vm *vm, const struct hotspot_objects *o,
		    const struct runtime_target *t, u32 *ret);

/* fields.c */
/* The class's name, cut to n - 1 bytes. */
int java_class_name(const struct hotspot_objects *o, const struct runtime_target *t, u64 class,
		    char *ret, size_t n);
/*
 * Finds fields of a class by their names; `ret` has the offsets, HOTSPOT_NONE for fields that the
 * class lacks.
 */
int java_find_fields(const struct hotspot_vm *vm, const struct hotspot_objects *o,
		     const struct runtime_target *t, u64 class, const char *const *names, u32 n,
		     u32 *ret);
