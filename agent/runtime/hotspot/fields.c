/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields of a Java class. From 21 on, InstanceKlass::_fieldinfo_stream has them as numbers in
 * UNSIGNED5 (fieldInfo.hpp):
 *
 *	number of Java's fields, number of the VM's own fields, then for each field
 *	name, signature, offset, access flags, flags	name: an index into the constants
 *	[initial value] [generic signature] [group]	if bit 0, 2 and 4 of the flags are set
 *
 * Of a field of the VM itself (bit 1), the name is a number of another table; such are passed over.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/hotspot/objects.h"
#include "base/buf.h"
#include "base/cleanup.h"

#define MAX_STREAM_BYTES (64u << 10)
#define MAX_FIELDS 4096
#define MAX_NAME 96

enum field_flags {
	FIELD_INITIALIZED = 1,
	FIELD_OF_VM = 2,
	FIELD_GENERIC = 4,
	FIELD_CONTENDED = 16,
};

/* Reads a Symbol as a string. */
static int read_symbol(const struct hotspot_objects *o, const struct runtime_target *t, u64 symbol,
		       char *ret, size_t n)
{
	const u32 *of = o->offsets.of;
	u16 length;
	int r = runtime_read(&t->memory, symbol + of[HF_SYMBOL_LENGTH], &length, sizeof(length));

	if (r < 0)
		return r;
	length = (u16)MIN((size_t)length, n - 1);
	r = runtime_read(&t->memory, symbol + of[HF_SYMBOL_BODY], ret, length);
	if (r < 0)
		return r;
	ret[length] = 0;
	return 0;
}

int java_class_name(const struct hotspot_objects *o, const struct runtime_target *t, u64 class,
		    char *ret, size_t n)
{
	u64 symbol;
	int r = runtime_read(&t->memory, class + o->offsets.of[HF_CLASS_NAME], &symbol,
			     sizeof(symbol));

	return r < 0 ? r : read_symbol(o, t, symbol, ret, n);
}

struct java_field_info {
	u32 name, offset;
	bool of_vm;
};

static bool read_field(struct buf *b, u32 exclude, struct java_field_info *ret)
{
	u32 values[5], unused; /* name, signature, offset, access, flags */

	for (u32 i = 0; i < ARRAY_SIZE(values); i++)
		if (!hotspot_unsigned5(b, exclude, &values[i]))
			return false;
	for (u32 i = 0; i < 3; i++) {
		static const u32 more[] = {FIELD_INITIALIZED, FIELD_GENERIC, FIELD_CONTENDED};

		if (values[4] & more[i] && !hotspot_unsigned5(b, exclude, &unused))
			return false;
	}
	*ret = (struct java_field_info){values[0], values[2], values[4] & FIELD_OF_VM};
	return true;
}

static int field_name(const struct hotspot_vm *vm, const struct hotspot_objects *o,
		      const struct runtime_target *t, u64 pool, u32 index, char *ret)
{
	u64 symbol;
	int r = runtime_read(&t->memory, pool + vm->sizes[HZ_CONSTANT_POOL] + 8ULL * index, &symbol,
			     sizeof(symbol));

	return r < 0 ? r : read_symbol(o, t, symbol & ~1ULL, ret, MAX_NAME);
}

static int read_stream(const struct hotspot_objects *o, const struct runtime_target *t, u64 class,
		       u8 **ret, u32 *ret_n)
{
	const u32 *of = o->offsets.of;
	bool failed = false;
	u64 array = runtime_u64(&t->memory, class + of[HF_CLASS_FIELDS], &failed);
	u32 n = failed || !array ? 0 : runtime_u32(&t->memory, array, &failed);
	_cleanup_free_ u8 *bytes = NULL;
	int r;

	if (failed)
		return -EFAULT;
	if (!n || n > MAX_STREAM_BYTES)
		return -EINVAL;
	bytes = malloc(n);
	if (!bytes)
		return -ENOMEM;
	r = runtime_read(&t->memory, array + of[HF_BYTES_DATA], bytes, n);
	if (r < 0)
		return r;
	*ret = take_ptr(bytes);
	*ret_n = n;
	return 0;
}

int java_find_fields(const struct hotspot_vm *vm, const struct hotspot_objects *o,
		     const struct runtime_target *t, u64 class, const char *const *names, u32 n,
		     u32 *ret)
{
	_cleanup_free_ u8 *stream = NULL;
	struct java_field_info f;
	u32 n_stream, n_java, n_vm;
	char name[MAX_NAME];
	struct buf b;
	u64 pool;
	int r = read_stream(o, t, class, &stream, &n_stream);

	if (r == 0)
		r = runtime_read(&t->memory, class + o->offsets.of[HF_CLASS_POOL], &pool,
				 sizeof(pool));
	if (r < 0)
		return r;
	b = buf_of(stream, n_stream);
	if (!hotspot_unsigned5(&b, o->offsets.exclude, &n_java) ||
	    !hotspot_unsigned5(&b, o->offsets.exclude, &n_vm) || n_java > MAX_FIELDS)
		return -EINVAL;
	for (u32 k = 0; k < n; k++)
		ret[k] = HOTSPOT_NONE;
	for (u32 i = 0; i < n_java; i++) {
		if (!read_field(&b, o->offsets.exclude, &f))
			return -EINVAL;
		if (f.of_vm)
			continue;
		r = field_name(vm, o, t, pool, f.name, name);
		if (r < 0)
			return r;
		for (u32 k = 0; k < n; k++)
			if (!strcmp(name, names[k]))
				ret[k] = f.offset;
	}
	return 0;
}
