/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in the metadata of a module (ECMA-335, part II, 22 to 24), read row by row from the memory
 * of the process, where CoreCLR has mapped or copied it.
 *
 *	root: "BSJB" … {offset, size, name} of each stream
 *	"#~": valid tables, the number of rows of each, then the tables
 *	"#Strings": UTF-8, with NULs
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/dotnet/dotnet.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

#define SIGNATURE 0x424a5342U /* "BSJB" */
/* How far before one of its strings metadata can begin. */
#define MAX_METADATA (64U << 20)
#define CHUNK (64U << 10)
#define ROOT_BYTES 512
#define MAX_STREAMS 16
#define MAX_ROWS (1U << 24) /* of a token */
#define MAX_NESTING 32

enum table {
	MODULE,
	TYPE_REF,
	TYPE_DEF,
	FIELD_PTR,
	FIELD,
	METHOD_PTR,
	METHOD_DEF,
	PARAM_PTR,
	PARAM,
	INTERFACE_IMPL,
	MEMBER_REF,
	CONSTANT,
	CUSTOM_ATTRIBUTE,
	FIELD_MARSHAL,
	DECL_SECURITY,
	CLASS_LAYOUT,
	FIELD_LAYOUT,
	STANDALONE_SIG,
	EVENT_MAP,
	EVENT_PTR,
	EVENT,
	PROPERTY_MAP,
	PROPERTY_PTR,
	PROPERTY,
	METHOD_SEMANTICS,
	METHOD_IMPL,
	MODULE_REF,
	TYPE_SPEC,
	IMPL_MAP,
	FIELD_RVA,
	ENC_LOG,
	ENC_MAP,
	ASSEMBLY,
	ASSEMBLY_PROCESSOR,
	ASSEMBLY_OS,
	ASSEMBLY_REF,
	ASSEMBLY_REF_PROCESSOR,
	ASSEMBLY_REF_OS,
	FILE_TABLE,
	EXPORTED_TYPE,
	MANIFEST_RESOURCE,
	NESTED_CLASS,
	GENERIC_PARAM,
	METHOD_SPEC,
	GENERIC_PARAM_CONSTRAINT,
	N_TABLES,

	/* Columns that are not an index of one table. */
	END = 0x40,
	U16,
	U32,
	STRING,
	GUID,
	BLOB,
	FIRST_CODED,
	TYPE_DEF_OR_REF = FIRST_CODED,
	HAS_CONSTANT,
	HAS_CUSTOM_ATTRIBUTE,
	HAS_FIELD_MARSHAL,
	HAS_DECL_SECURITY,
	MEMBER_REF_PARENT,
	HAS_SEMANTICS,
	METHOD_DEF_OR_REF,
	MEMBER_FORWARDED,
	IMPLEMENTATION,
	CUSTOM_ATTRIBUTE_TYPE,
	RESOLUTION_SCOPE,
	N_COLUMNS,
};

/* The columns of each table up to the last that is read; MODULE is 0, so END ends a row. */
static const u8 columns[NESTED_CLASS + 1][10] = {
	[MODULE] = {U16, STRING, GUID, GUID, GUID, END},
	[TYPE_REF] = {RESOLUTION_SCOPE, STRING, STRING, END},
	[TYPE_DEF] = {U32, STRING, STRING, TYPE_DEF_OR_REF, FIELD, METHOD_DEF, END},
	[FIELD_PTR] = {FIELD, END},
	[FIELD] = {U16, STRING, BLOB, END},
	[METHOD_PTR] = {METHOD_DEF, END},
	[METHOD_DEF] = {U32, U16, U16, STRING, BLOB, PARAM, END},
	[PARAM_PTR] = {PARAM, END},
	[PARAM] = {U16, U16, STRING, END},
	[INTERFACE_IMPL] = {TYPE_DEF, TYPE_DEF_OR_REF, END},
	[MEMBER_REF] = {MEMBER_REF_PARENT, STRING, BLOB, END},
	[CONSTANT] = {U16, HAS_CONSTANT, BLOB, END},
	[CUSTOM_ATTRIBUTE] = {HAS_CUSTOM_ATTRIBUTE, CUSTOM_ATTRIBUTE_TYPE, BLOB, END},
	[FIELD_MARSHAL] = {HAS_FIELD_MARSHAL, BLOB, END},
	[DECL_SECURITY] = {U16, HAS_DECL_SECURITY, BLOB, END},
	[CLASS_LAYOUT] = {U16, U32, TYPE_DEF, END},
	[FIELD_LAYOUT] = {U32, FIELD, END},
	[STANDALONE_SIG] = {BLOB, END},
	[EVENT_MAP] = {TYPE_DEF, EVENT, END},
	[EVENT_PTR] = {EVENT, END},
	[EVENT] = {U16, STRING, TYPE_DEF_OR_REF, END},
	[PROPERTY_MAP] = {TYPE_DEF, PROPERTY, END},
	[PROPERTY_PTR] = {PROPERTY, END},
	[PROPERTY] = {U16, STRING, BLOB, END},
	[METHOD_SEMANTICS] = {U16, METHOD_DEF, HAS_SEMANTICS, END},
	[METHOD_IMPL] = {TYPE_DEF, METHOD_DEF_OR_REF, METHOD_DEF_OR_REF, END},
	[MODULE_REF] = {STRING, END},
	[TYPE_SPEC] = {BLOB, END},
	[IMPL_MAP] = {U16, MEMBER_FORWARDED, STRING, MODULE_REF, END},
	[FIELD_RVA] = {U32, FIELD, END},
	[ENC_LOG] = {U32, U32, END},
	[ENC_MAP] = {U32, END},
	[ASSEMBLY] = {U32, U32, U32, U32, BLOB, STRING, STRING, END},
	[ASSEMBLY_PROCESSOR] = {U32, END},
	[ASSEMBLY_OS] = {U32, U32, U32, END},
	[ASSEMBLY_REF] = {U32, U32, U32, BLOB, STRING, STRING, BLOB, END},
	[ASSEMBLY_REF_PROCESSOR] = {U32, ASSEMBLY_REF, END},
	[ASSEMBLY_REF_OS] = {U32, U32, U32, ASSEMBLY_REF, END},
	[FILE_TABLE] = {U32, STRING, BLOB, END},
	[EXPORTED_TYPE] = {U32, U32, STRING, STRING, IMPLEMENTATION, END},
	[MANIFEST_RESOURCE] = {U32, U32, STRING, IMPLEMENTATION, END},
	[NESTED_CLASS] = {TYPE_DEF, TYPE_DEF, END},
};

/* The tables that a coded index selects from, and the bits of the selection. */
static const struct {
	u8 bits;
	u8 n;
	u8 tables[22];
} coded[N_COLUMNS - FIRST_CODED] = {
	[TYPE_DEF_OR_REF - FIRST_CODED] = {2, 3, {TYPE_DEF, TYPE_REF, TYPE_SPEC}},
	[HAS_CONSTANT - FIRST_CODED] = {2, 3, {FIELD, PARAM, PROPERTY}},
	[HAS_CUSTOM_ATTRIBUTE - FIRST_CODED] = {5,
						22,
						{METHOD_DEF,
						 FIELD,
						 TYPE_REF,
						 TYPE_DEF,
						 PARAM,
						 INTERFACE_IMPL,
						 MEMBER_REF,
						 MODULE,
						 DECL_SECURITY,
						 PROPERTY,
						 EVENT,
						 STANDALONE_SIG,
						 MODULE_REF,
						 TYPE_SPEC,
						 ASSEMBLY,
						 ASSEMBLY_REF,
						 FILE_TABLE,
						 EXPORTED_TYPE,
						 MANIFEST_RESOURCE,
						 GENERIC_PARAM,
						 METHOD_SPEC,
						 GENERIC_PARAM_CONSTRAINT}},
	[HAS_FIELD_MARSHAL - FIRST_CODED] = {1, 2, {FIELD, PARAM}},
	[HAS_DECL_SECURITY - FIRST_CODED] = {2, 3, {TYPE_DEF, METHOD_DEF, ASSEMBLY}},
	[MEMBER_REF_PARENT -
		FIRST_CODED] = {3, 5, {TYPE_DEF, TYPE_REF, MODULE_REF, METHOD_DEF, TYPE_SPEC}},
	[HAS_SEMANTICS - FIRST_CODED] = {1, 2, {EVENT, PROPERTY}},
	[METHOD_DEF_OR_REF - FIRST_CODED] = {1, 2, {METHOD_DEF, MEMBER_REF}},
	[MEMBER_FORWARDED - FIRST_CODED] = {1, 2, {FIELD, METHOD_DEF}},
	[IMPLEMENTATION - FIRST_CODED] = {2, 3, {FILE_TABLE, ASSEMBLY_REF, EXPORTED_TYPE}},
	[CUSTOM_ATTRIBUTE_TYPE - FIRST_CODED] = {3, 2, {METHOD_DEF, MEMBER_REF}},
	[RESOLUTION_SCOPE - FIRST_CODED] = {2, 4, {MODULE, MODULE_REF, ASSEMBLY_REF, TYPE_REF}},
};

/* ---- tables ---- */

struct tables {
	u32 rows[64];
	u8 heap_sizes; /* bits: indices of strings, GUIDs and blobs have 4 bytes */
};

static u32 column_bytes(const struct tables *t, u8 column)
{
	u32 most = 0;

	switch (column) {
	case U16:
		return 2;
	case U32:
		return 4;
	case STRING:
		return t->heap_sizes & 1 ? 4 : 2;
	case GUID:
		return t->heap_sizes & 2 ? 4 : 2;
	case BLOB:
		return t->heap_sizes & 4 ? 4 : 2;
	}
	if (column < N_TABLES)
		return t->rows[column] < 1 << 16 ? 2 : 4;
	column = (u8)(column - FIRST_CODED);
	for (u32 i = 0; i < coded[column].n; i++)
		most = MAX(most, t->rows[coded[column].tables[i]]);
	return most < 1U << (16 - coded[column].bits) ? 2 : 4;
}

/* The bytes of the columns before column n of a table. */
static u32 bytes_before(const struct tables *t, enum table table, u32 n)
{
	u32 bytes = 0;

	for (u32 i = 0; i < n && columns[table][i] != END; i++)
		bytes += column_bytes(t, columns[table][i]);
	return bytes;
}

/* Sets the places of the tables that are read, from the stream "#~" at an avma. */
static int read_tables(const struct runtime_memory *m, u64 at, u32 size, struct dotnet_metadata *d)
{
	struct tables t = {};
	u8 head[24];
	u64 valid, used = sizeof(head);

	if (size < sizeof(head) || runtime_read(m, at, head, sizeof(head)) < 0)
		return -EFAULT;
	t.heap_sizes = head[6];
	memcpy(&valid, head + 8, sizeof(valid));
	for (u32 i = 0; i < 64; i++) {
		if (!(valid >> i & 1))
			continue;
		if (used + 4 > size || runtime_read(m, at + used, &t.rows[i], 4) < 0 ||
		    t.rows[i] >= MAX_ROWS)
			return -EINVAL;
		used += 4;
	}
	if (t.heap_sizes & 0x40) /* a word more after the numbers of rows */
		used += 4;
	/* Names need them in the order of declaration. */
	if (t.rows[METHOD_PTR])
		return -ENOTSUP;
	for (enum table i = MODULE; i <= NESTED_CLASS; i++) {
		u32 row = bytes_before(&t, i, ~0U);

		if (i == TYPE_DEF)
			d->type = at + used;
		else if (i == METHOD_DEF)
			d->method = at + used;
		else if (i == NESTED_CLASS)
			d->nested = at + used;
		used += (u64)row * t.rows[i];
	}
	if (used > size)
		return -EINVAL;
	d->n_types = t.rows[TYPE_DEF];
	d->n_methods = t.rows[METHOD_DEF];
	d->n_nested = t.rows[NESTED_CLASS];
	d->string_bytes = (u8)column_bytes(&t, STRING);
	d->type_row = (u8)bytes_before(&t, TYPE_DEF, ~0U);
	d->method_row = (u8)bytes_before(&t, METHOD_DEF, ~0U);
	d->nested_row = (u8)bytes_before(&t, NESTED_CLASS, ~0U);
	d->type_list = (u8)bytes_before(&t, TYPE_DEF, 5);
	d->method_index = (u8)column_bytes(&t, METHOD_DEF);
	d->type_index = (u8)column_bytes(&t, TYPE_DEF);
	return 0;
}

/* ---- the root ---- */

/* Reads the root at an avma, which must contain the string at `inside`. */
static int read_root(const struct runtime_memory *m, u64 at, u64 inside,
		     struct dotnet_metadata *ret)
{
	struct dotnet_metadata d = {};
	u8 bytes[ROOT_BYTES];
	struct buf b = buf_of(bytes, sizeof(bytes));
	u64 tables = 0;
	u32 version, n_tables = 0;
	u16 flags, n;

	if (runtime_read(m, at, bytes, sizeof(bytes)) < 0)
		return -EFAULT;
	if (!buf_skip(&b, 12) || !buf_u32(&b, &version) || !buf_skip(&b, version) ||
	    !buf_u16(&b, &flags) || !buf_u16(&b, &n) || n > MAX_STREAMS)
		return -EINVAL;
	for (u32 i = 0; i < n; i++) {
		u32 offset, size;
		const u8 *name, *end;

		if (!buf_u32(&b, &offset) || !buf_u32(&b, &size))
			return -EINVAL;
		name = b.pos;
		end = memchr(name, 0, buf_left(&b));
		if (!end || !buf_skip(&b, ((u64)(end - name) + 4) & ~3ULL))
			return -EINVAL;
		if (!strcmp((const char *)name, "#~")) {
			tables = at + offset;
			n_tables = size;
		} else if (!strcmp((const char *)name, "#Strings")) {
			d.strings = at + offset;
			d.n_strings = size;
		}
	}
	if (!tables || inside < d.strings || inside - d.strings >= d.n_strings)
		return -ENOENT;
	if (read_tables(m, tables, n_tables, &d) < 0)
		return -EINVAL;
	*ret = d;
	return 0;
}

int dotnet_metadata_find(const struct runtime_memory *m, u64 inside, struct dotnet_metadata *ret)
{
	_cleanup_free_ u32 *words = malloc(CHUNK);
	u64 at = inside & ~3ULL;

	if (!words)
		return -ENOMEM;
	while (at > CHUNK && inside - at < MAX_METADATA) {
		/* The last chunk of a mapping may be smaller. */
		u64 n = CHUNK;

		while (n >= 4096 && runtime_read(m, at - n, words, n) < 0)
			n = n > 4096 ? (n / 2) & ~4095ULL : 0;
		if (n < 4096) {
			n = at & 4095;
			if (!n || runtime_read(m, at - n, words, n) < 0)
				return -ENOENT;
		}
		for (u64 i = n / 4; i-- > 0;)
			if (words[i] == SIGNATURE && read_root(m, at - n + i * 4, inside, ret) == 0)
				return 0;
		at -= n;
	}
	return -ENOENT;
}

/* ---- rows ---- */

static u32 read_index(const struct runtime_memory *m, u64 at, u32 bytes, bool *failed)
{
	u32 v = 0;

	if (runtime_read(m, at, &v, bytes) < 0)
		*failed = true;
	return v;
}

int dotnet_text(const struct runtime_memory *m, u64 at, char *ret, size_t n)
{
	size_t used = 0;

	/* A page at a time: the text may be the last of its mapping. */
	while (used < n) {
		size_t part = MIN(n - used, 4096 - ((at + used) & 4095));

		if (runtime_read(m, at + used, ret + used, part) < 0)
			return -EFAULT;
		if (memchr(ret + used, 0, part))
			break;
		used += part;
	}
	ret[n - 1] = 0;
	text_clean(ret);
	return 0;
}

static int read_string(const struct runtime_memory *m, const struct dotnet_metadata *d, u64 at,
		       char *ret, size_t n)
{
	bool failed = false;
	u32 index = read_index(m, at, d->string_bytes, &failed);

	if (failed || index >= d->n_strings)
		return -EINVAL;
	return dotnet_text(m, d->strings + index, ret, MIN(n, d->n_strings - index + 1));
}

/* The row of TypeDef that contains a row of MethodDef: the last whose methods start before it. */
static u32 type_of(const struct runtime_memory *m, const struct dotnet_metadata *d, u32 method)
{
	u32 lo = 0, hi = d->n_types;
	bool failed = false;

	while (lo < hi && !failed) {
		u32 mid = lo + (hi - lo) / 2;

		if (read_index(m, d->type + (u64)mid * d->type_row + d->type_list, d->method_index,
			       &failed) <= method)
			lo = mid + 1;
		else
			hi = mid;
	}
	return failed ? 0 : lo;
}

/* The row of the type around a nested type; 0: the type is not nested. */
static u32 type_around(const struct runtime_memory *m, const struct dotnet_metadata *d, u32 type)
{
	u32 lo = 0, hi = d->n_nested, at;
	bool failed = false;

	while (lo < hi && !failed) {
		u32 mid = lo + (hi - lo) / 2;
		u64 row = d->nested + (u64)mid * d->nested_row;

		at = read_index(m, row, d->type_index, &failed);
		if (at == type)
			return read_index(m, row + d->type_index, d->type_index, &failed);
		if (at < type)
			lo = mid + 1;
		else
			hi = mid;
	}
	return 0;
}

/* Puts a text and a separator in front of what `text` holds from *at on. */
static void put_before(char *text, size_t *at, const char *part, const char *separator)
{
	size_t n = strlen(part), k = strlen(separator);

	if (!n)
		return;
	if (n + k > *at) /* too long: the beginning is left out */
		return;
	*at -= k;
	memcpy(text + *at, separator, k);
	*at -= n;
	memcpy(text + *at, part, n);
}

int dotnet_metadata_name(const struct runtime_memory *m, const struct dotnet_metadata *d,
			 u32 method, struct arena *arena, const char **ret)
{
	char text[4 * DOTNET_MAX_TEXT], part[DOTNET_MAX_TEXT], *copy;
	size_t at = sizeof(text) - 1;
	u32 type;

	if (!method || method > d->n_methods)
		return -EINVAL;
	/* After U32, U16, U16 */
	if (read_string(m, d, d->method + (u64)(method - 1) * d->method_row + 8, part,
			sizeof(part)) < 0)
		return -EFAULT;
	text[at] = 0;
	put_before(text, &at, part, "");
	type = type_of(m, d, method);
	/* The first row is for functions without a type. */
	for (u32 i = 0; type > 1 && type <= d->n_types && i < MAX_NESTING; i++) {
		u64 row = d->type + (u64)(type - 1) * d->type_row + 4;

		if (read_string(m, d, row, part, sizeof(part)) < 0)
			return -EFAULT;
		put_before(text, &at, part, ".");
		if (read_string(m, d, row + d->string_bytes, part, sizeof(part)) < 0)
			return -EFAULT;
		put_before(text, &at, part, ".");
		type = type_around(m, d, type);
	}
	if (!text[at])
		return -EINVAL;
	copy = arena_alloc(arena, sizeof(text) - at);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text + at, sizeof(text) - at);
	*ret = copy;
	return 0;
}
