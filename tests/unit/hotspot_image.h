/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small libjvm.so and the memory of a process that runs it, made byte by byte: the tables for
 * debuggers, a code heap with a method into which another is inlined, the interpreter's code, and
 * two classes. The image differs between versions as HotSpot does; the offsets of fields are
 * invented.
 *
 *	HOTSPOT_IMAGE	the library, with this bias: .data as in the file, and the values that the
 *			library's initialisers store
 *	…		the objects, at the places of enum image_place
 *
 * The image is mapped at a fixed address of this process, and tests read it like another process's.
 */
#pragma once

#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/runtime/hotspot/hotspot.h"
#include "elfwriter.h"

#define HOTSPOT_IMAGE 0x310000000000ULL
#define HOTSPOT_IMAGE_BYTES 0x10000u

/* Offsets from HOTSPOT_IMAGE. Those up to IMAGE_LIBRARY_END are svmas in the library, too. */
enum image_place {
	IMAGE_STRINGS = 0x100,	/* .rodata, in the file only */
	IMAGE_TABLES = 0x2000,	/* .data: the tables, then the variables */
	IMAGE_STATICS = 0x4000, /* the static fields */
	IMAGE_LIBRARY_END = 0x5000,
	IMAGE_SEGMAP = 0x5000,
	IMAGE_HEAP = 0x5100, /* the CodeHeap, the lists and names */
	IMAGE_OUTER = 0x6000,
	IMAGE_LEAF = 0x7000,
	IMAGE_METADATA = 0x8000, /* of versions whose nmethods have it elsewhere */
	IMAGE_DEBUG = 0x8100,
	IMAGE_CODE = 0x9000,	 /* the code heap */
	IMAGE_USED = 0x9000 + 4, /* of the HeapBlock: whether a method follows */
	IMAGE_NMETHOD = 0x9000 + 8,
	IMAGE_STUBS = 0xa000 + 8,
	IMAGE_INTERPRETER = 0xb000,
	IMAGE_CODE_END = 0xc000,
};

/* Offsets within an object. */
enum image_offset {
	AT_BLOB_NAME = 8,
	AT_BLOB_SIZE = 16,
	AT_BLOB_FRAME_SIZE = 20,
	AT_BLOB_COMPLETE = 24,
	AT_BLOB_CODE = 32,
	AT_BLOB_CODE_END = 40,
	AT_BLOB_DATA = 48,
	AT_BLOB_RELOCATION = 52,
	AT_BLOB_MUTABLE = 56,
	AT_BLOB_MUTABLE_SIZE = 64,
	AT_NM_METHOD = 72,
	AT_NM_COMPILE_ID = 80,
	AT_NM_ORIG_PC = 84,
	AT_NM_DEOPT = 88,
	AT_NM_METADATA = 96,
	AT_NM_SCOPES_BEGIN = 104,
	AT_NM_SCOPES_DATA = 112,
	AT_NM_SCOPES_PCS = 116,
	AT_NM_DEPENDENCIES = 120,
	AT_NM_IMMUTABLE = 128,
	AT_NM_IMMUTABLE_SIZE = 136,
	NM_CODE = 0x100, /* NM_…: parts of the nmethod */
	NM_CODE_BYTES = 0x40,
	NM_METADATA = 0x180,
	NM_SCOPES = 0x200,
	NM_PCS = 0x240,
	NM_DEPENDENCIES = 0x280,
	AT_METHOD_CONST = 8,
	AT_CONST_CONSTANTS = 8,
	AT_CONST_SIZE = 24,
	AT_CONST_FLAGS = 28,
	AT_CONST_CODE_SIZE = 30,
	AT_CONST_NAME = 32,
	CONST_BYTES = 48,
	AT_POOL_HOLDER = 16,
	AT_POOL_LENGTH = 24,
	AT_POOL_SOURCE = 28,
	POOL_BYTES = 64,
	AT_CLASS_NAME = 16,
	AT_CLASS_SOURCE = 40,
	AT_SYMBOL_COUNT = 0, /* references, then 16 bits of the symbol (since version 12) */
	AT_SYMBOL_LENGTH = 4,
	AT_SYMBOL_BODY = 6,
	PCDESC_BYTES = 16,
	FLAG_BYTES = 24,
	/* Parts of one of the two classes. */
	CLASS_METHOD = 0,
	CLASS_CONST = 0x100,
	CLASS_POOL = 0x300,
	CLASS_KLASS = 0x400,
	CLASS_SYMBOLS = 0x500, /* class, method, file; 0x100 each */
};

/* The id of the compilation, and the return addresses in its code: inlined call and own call. */
#define IMAGE_COMPILE_ID 77u
#define IMAGE_INLINED_AT 8u
#define IMAGE_OWN_AT 16u
#define IMAGE_ORIG_PC 12u
#define IMAGE_RELEASE                                                                              \
	"OpenJDK 64-Bit Server VM (25.1-b01) for linux-amd64 JRE (%u.0.1+2-Test), built"

static inline u8 *image_at(u64 place)
{
	return (u8 *)(uintptr_t)(HOTSPOT_IMAGE + place);
}

static inline void image_u64(u64 place, u64 v)
{
	memcpy(image_at(place), &v, 8);
}

static inline void image_u32(u64 place, u32 v)
{
	memcpy(image_at(place), &v, 4);
}

static inline void image_u16(u64 place, u16 v)
{
	memcpy(image_at(place), &v, 2);
}

/* ---- the tables ---- */

struct image_entry {
	u32 from, to; /* versions */
	const char *type, *field;
	u32 offset;	/* in the object; of a static field: from IMAGE_STATICS */
	bool is_static; /* the table has the field's address instead of its offset */
};

enum image_static {
	STATIC_HEAP = 0x000,
	STATIC_INTERPRETER = 0x008,
	STATIC_VERSION = 0x010,
	STATIC_MAJOR = 0x018,
	STATIC_FLAGS = 0x020,
	STATIC_N_FLAGS = 0x028,
	STATIC_STUB = 0x030,	   /* 8 stubs */
	STATIC_FLAG_TABLE = 0x100, /* two flags, their names and values */
	STATIC_FLAG_VALUES = 0x180,
	STATIC_FLAG_NAMES = 0x200,
};

#define ALL 0, 99
static const struct image_entry image_entries[] = {
	{0, 8, "CodeCache", "_heap", STATIC_HEAP, true},
	{9, 99, "CodeCache", "_heaps", STATIC_HEAP, true},
	{ALL, "AbstractInterpreter", "_code", STATIC_INTERPRETER, true},
	{0, 21, "JDK_Version", "_current", STATIC_VERSION, true},
	{9, 99, "Abstract_VM_Version", "_vm_major_version", STATIC_MAJOR, true},
	{0, 9, "Flag", "flags", STATIC_FLAGS, true},
	{10, 99, "JVMFlag", "flags", STATIC_FLAGS, true},
	{0, 9, "Flag", "numFlags", STATIC_N_FLAGS, true},
	{10, 99, "JVMFlag", "numFlags", STATIC_N_FLAGS, true},
	{0, 21, "StubRoutines", "_one", STATIC_STUB, true},
	{0, 21, "StubRoutines", "_two", STATIC_STUB + 8, true},
	{0, 21, "StubRoutines", "_call_stub_return_address", STATIC_STUB + 16, true},
	{0, 21, "StubRoutines", "_three", STATIC_STUB + 24, true},
	{ALL, "CodeBlob", "_name", AT_BLOB_NAME},
	{ALL, "CodeBlob", "_size", AT_BLOB_SIZE},
	{ALL, "CodeBlob", "_frame_size", AT_BLOB_FRAME_SIZE},
	{ALL, "CodeBlob", "_frame_complete_offset", AT_BLOB_COMPLETE},
	{9, 22, "CodeBlob", "_code_begin", AT_BLOB_CODE},
	{9, 22, "CodeBlob", "_code_end", AT_BLOB_CODE_END},
	{0, 8, "CodeBlob", "_code_offset", AT_BLOB_CODE},
	{23, 99, "CodeBlob", "_code_offset", AT_BLOB_CODE},
	{ALL, "CodeBlob", "_data_offset", AT_BLOB_DATA},
	{ALL, "CodeBlob", "_relocation_size", AT_BLOB_RELOCATION},
	{25, 99, "CodeBlob", "_mutable_data", AT_BLOB_MUTABLE},
	{25, 99, "CodeBlob", "_mutable_data_size", AT_BLOB_MUTABLE_SIZE},
	{ALL, "CodeHeap", "_memory", 16},
	{ALL, "CodeHeap", "_segmap", 64},
	{ALL, "CodeHeap", "_log2_segment_size", 8},
	{ALL, "HeapBlock::Header", "_used", 4},
	{ALL, "VirtualSpace", "_low_boundary", 8},
	{ALL, "VirtualSpace", "_high_boundary", 16},
	{ALL, "StubQueue", "_stub_buffer", 8},
	{ALL, "StubQueue", "_buffer_limit", 16},
	{9, 15, "GenericGrowableArray", "_len", 0},
	{16, 99, "GrowableArrayBase", "_len", 0},
	{9, 99, "GrowableArray<int>", "_data", 8},
	{ALL, "Method", "_constMethod", AT_METHOD_CONST},
	{ALL, "ConstMethod", "_constants", AT_CONST_CONSTANTS},
	{ALL, "ConstMethod", "_constMethod_size", AT_CONST_SIZE},
	{0, 20, "ConstMethod", "_flags", AT_CONST_FLAGS},
	{21, 99, "ConstMethod", "_flags._flags", AT_CONST_FLAGS},
	{ALL, "ConstMethod", "_code_size", AT_CONST_CODE_SIZE},
	{ALL, "ConstMethod", "_name_index", AT_CONST_NAME},
	{ALL, "ConstantPool", "_pool_holder", AT_POOL_HOLDER},
	{ALL, "ConstantPool", "_length", AT_POOL_LENGTH},
	{15, 99, "ConstantPool", "_source_file_name_index", AT_POOL_SOURCE},
	{0, 14, "InstanceKlass", "_source_file_name_index", AT_CLASS_SOURCE},
	{ALL, "Klass", "_name", AT_CLASS_NAME},
	{0, 11, "Symbol", "_refcount", AT_SYMBOL_COUNT},
	{12, 99, "Symbol", "_hash_and_refcount", AT_SYMBOL_COUNT},
	{ALL, "Symbol", "_length", AT_SYMBOL_LENGTH},
	{0, 8, "Symbol", "_body", AT_SYMBOL_BODY},
	{9, 99, "Symbol", "_body[0]", AT_SYMBOL_BODY},
	{ALL, "PcDesc", "_pc_offset", 0},
	{ALL, "PcDesc", "_scope_decode_offset", 4},
	{0, 8, "nmethod", "_method", AT_NM_METHOD},
	{9, 22, "CompiledMethod", "_method", AT_NM_METHOD},
	{23, 99, "nmethod", "_method", AT_NM_METHOD},
	{0, 8, "nmethod", "_deoptimize_offset", AT_NM_DEOPT},
	{9, 22, "CompiledMethod", "_deopt_handler_begin", AT_NM_DEOPT},
	{23, 25, "nmethod", "_deopt_handler_offset", AT_NM_DEOPT},
	{26, 99, "nmethod", "_deopt_handler_entry_offset", AT_NM_DEOPT},
	{ALL, "nmethod", "_orig_pc_offset", AT_NM_ORIG_PC},
	{ALL, "nmethod", "_compile_id", AT_NM_COMPILE_ID},
	{0, 24, "nmethod", "_metadata_offset", AT_NM_METADATA},
	{9, 22, "CompiledMethod", "_scopes_data_begin", AT_NM_SCOPES_BEGIN},
	{0, 8, "nmethod", "_scopes_data_offset", AT_NM_SCOPES_DATA},
	{23, 99, "nmethod", "_scopes_data_offset", AT_NM_SCOPES_DATA},
	{ALL, "nmethod", "_scopes_pcs_offset", AT_NM_SCOPES_PCS},
	{0, 22, "nmethod", "_dependencies_offset", AT_NM_DEPENDENCIES},
	{23, 99, "nmethod", "_immutable_data", AT_NM_IMMUTABLE},
	{23, 99, "nmethod", "_immutable_data_size", AT_NM_IMMUTABLE_SIZE},
	{ALL, "JavaThread", "_saved_exception_pc", 600},
	{0, 9, "Flag", "_name", 8},
	{10, 99, "JVMFlag", "_name", 8},
	{0, 9, "Flag", "_addr", 0},
	{10, 99, "JVMFlag", "_addr", 0},
};

struct image_type {
	const char *name;
	u32 size;
};

static const struct image_type image_types[] = {
	{"HeapBlock", 8},     {"ConstMethod", CONST_BYTES}, {"ConstantPool", POOL_BYTES},
	{"nmethod", NM_CODE}, {"PcDesc", PCDESC_BYTES},	    {"JVMFlag", FLAG_BYTES},
};

struct image_file {
	struct str strings, relocations, symbols, names;
	const char *without; /* a field that the tables leave out, or NULL */
};

static inline void image_file_deinit(struct image_file *f)
{
	str_deinit(&f->strings);
	str_deinit(&f->names);
	str_deinit(&f->symbols);
	str_deinit(&f->relocations);
}

static inline u64 image_string(struct image_file *f, const char *text)
{
	u64 at = IMAGE_STRINGS + f->strings.n;

	str_append(&f->strings, text, strlen(text) + 1);
	return at;
}

static inline void image_relocate(struct image_file *f, u64 at, u64 value)
{
	Elf64_Rela a = {at, ELF64_R_INFO(0, R_X86_64_RELATIVE), (Elf64_Sxword)value};

	str_append(&f->relocations, &a, sizeof(a));
}

static inline void image_symbol(struct image_file *f, const char *name, u64 at)
{
	Elf64_Sym s = {.st_name = (u32)f->names.n, .st_shndx = 1, .st_value = at};

	str_append(&f->names, name, strlen(name) + 1);
	str_append(&f->symbols, &s, sizeof(s));
}

/*
 * Writes the tables. Pointers are relocations of the file; offsets are only in memory, because
 * initialisers of the library store them. Returns the place of the table of types.
 */
static inline u64 image_tables(struct image_file *f, u32 version)
{
	u64 at = IMAGE_TABLES + 16, types;

	image_symbol(f, "gHotSpotVMStructs", IMAGE_TABLES);
	image_symbol(f, "gHotSpotVMTypes", IMAGE_TABLES + 8);
	image_relocate(f, IMAGE_TABLES, at);
	for (size_t i = 0; i < ARRAY_SIZE(image_entries); i++) {
		const struct image_entry *e = &image_entries[i];

		if (version < e->from || version > e->to ||
		    (f->without && !strcmp(e->field, f->without)))
			continue;
		image_relocate(f, at, image_string(f, e->type));
		image_relocate(f, at + 8, image_string(f, e->field));
		if (e->is_static)
			image_relocate(f, at + 40, IMAGE_STATICS + e->offset);
		else
			image_u64(at + 32, e->offset);
		at += 48;
	}
	types = at += 48;
	image_relocate(f, IMAGE_TABLES + 8, types);
	for (size_t i = 0; i < ARRAY_SIZE(image_types); i++, at += 40) {
		const char *name = image_types[i].name;

		image_relocate(
			f, at,
			image_string(f, version < 10 && !strcmp(name, "JVMFlag") ? "Flag" : name));
		image_u64(at + 32, image_types[i].size);
	}
	return types;
}

/*
 * Writes the file, after image_build(). It has the sizes of types, but not the offsets of fields.
 * The caller frees `ret`.
 */
static inline void image_write_file(u32 version, const char *without, struct str *ret)
{
	static u8 data[IMAGE_LIBRARY_END - IMAGE_TABLES];
	struct image_file f = {.without = without};
	struct elfw w = {};
	char release[128];
	u64 types;

	str_putc(&f.strings, 0);
	str_putc(&f.names, 0);
	str_append(&f.symbols, &(Elf64_Sym){}, sizeof(Elf64_Sym));
	snprintf(release, sizeof(release), IMAGE_RELEASE, version);
	image_string(&f, release);
	types = image_tables(&f, version);
	memset(data, 0, sizeof(data));
	memcpy(data + (types - IMAGE_TABLES), image_at(types), ARRAY_SIZE(image_types) * 40);
	memcpy(data + (IMAGE_STATICS + STATIC_MAJOR - IMAGE_TABLES), &version, 4);
	elfw_section(&w, ".rodata", SHT_PROGBITS, SHF_ALLOC, IMAGE_STRINGS, f.strings.data,
		     f.strings.n);
	elfw_section(&w, ".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, IMAGE_TABLES, data,
		     sizeof(data));
	elfw_section(&w, ".rela.dyn", SHT_RELA, 0, 0, f.relocations.data, f.relocations.n);
	elfw_section(&w, ".dynsym", SHT_DYNSYM, 0, 0, f.symbols.data, f.symbols.n);
	elfw_section(&w, ".dynstr", SHT_STRTAB, 0, 0, f.names.data, f.names.n);
	elfw_segment(&w, PT_LOAD, PF_R, IMAGE_STRINGS, f.strings.n, ".rodata");
	elfw_segment(&w, PT_LOAD, PF_R | PF_W, IMAGE_TABLES, sizeof(data), ".data");
	elfw_finish(&w);
	*ret = w.out;
	image_file_deinit(&f);
}

/* ---- the objects ---- */

static inline void image_symbol_object(u64 at, const char *text)
{
	image_u32(at + AT_SYMBOL_COUNT, 0xbeef0001);
	image_u16(at + AT_SYMBOL_LENGTH, (u16)strlen(text));
	memcpy(image_at(at + AT_SYMBOL_BODY), text, strlen(text));
}

/* Writes a class: ten bytecodes, the table of lines behind them, names as the first constants. */
static inline void image_class(u64 at, u32 version, const char *class, const char *method,
			       const char *file, const u8 *lines, size_t n_lines)
{
	u64 c = at + CLASS_CONST, pool = at + CLASS_POOL;
	const char *texts[] = {class, method, file};

	image_u64(at + CLASS_METHOD + AT_METHOD_CONST, HOTSPOT_IMAGE + c);
	image_u64(c + AT_CONST_CONSTANTS, HOTSPOT_IMAGE + pool);
	image_u32(c + AT_CONST_SIZE, (u32)(CONST_BYTES + 10 + n_lines + 7) / 8);
	image_u16(c + AT_CONST_FLAGS, n_lines ? 1 : 0);
	image_u16(c + AT_CONST_CODE_SIZE, 10);
	image_u16(c + AT_CONST_NAME, 2);
	memcpy(image_at(c + CONST_BYTES + 10), lines, n_lines);
	image_u64(pool + AT_POOL_HOLDER, HOTSPOT_IMAGE + at + CLASS_KLASS);
	image_u32(pool + AT_POOL_LENGTH, 4);
	if (version >= 15)
		image_u16(pool + AT_POOL_SOURCE, 3);
	else
		image_u16(at + CLASS_KLASS + AT_CLASS_SOURCE, 3);
	image_u64(at + CLASS_KLASS + AT_CLASS_NAME, HOTSPOT_IMAGE + at + CLASS_SYMBOLS);
	for (u64 i = 0; i < 3; i++) {
		u64 symbol = at + CLASS_SYMBOLS + i * 0x100;

		image_symbol_object(symbol, texts[i]);
		/* The lowest bit of an entry says that it is not resolved. */
		image_u64(pool + POOL_BYTES + 8 * (i + 1), (HOTSPOT_IMAGE + symbol) | (i & 1));
	}
}

static inline void image_pcdesc(u64 at, s32 pc, u32 scope)
{
	image_u32(at, (u32)pc);
	image_u32(at + 4, scope);
}

/* Writes two scopes: at 1 the method's, in bci 3; at 4 that of the inlined method, in bci 5. */
static inline void image_debug(u64 scopes, u64 pcs, u32 exclude)
{
	static const u8 numbers[] = {0, 0, 1, 4, 1, 2, 6};

	for (size_t i = 1; i < ARRAY_SIZE(numbers); i++)
		*image_at(scopes + i) = (u8)(numbers[i] + exclude);
	image_pcdesc(pcs, -1, 0);
	image_pcdesc(pcs + PCDESC_BYTES, IMAGE_INLINED_AT, 4);
	image_pcdesc(pcs + 2 * PCDESC_BYTES, IMAGE_OWN_AT, 1);
	image_pcdesc(pcs + 3 * PCDESC_BYTES, 0x7fffffff, 0);
}

static inline void image_nmethod(u32 version)
{
	u64 at = IMAGE_NMETHOD, a = HOTSPOT_IMAGE + at, metadata = at + NM_METADATA;
	u64 scopes = at + NM_SCOPES, pcs = at + NM_PCS;

	*image_at(IMAGE_USED) = 1;
	image_u64(at + AT_BLOB_NAME, HOTSPOT_IMAGE + IMAGE_HEAP + 0x80);
	image_u32(at + AT_BLOB_FRAME_SIZE, 6);
	image_u32(at + AT_BLOB_COMPLETE, 4);
	image_u64(at + AT_NM_METHOD, HOTSPOT_IMAGE + IMAGE_OUTER);
	image_u32(at + AT_NM_COMPILE_ID, IMAGE_COMPILE_ID);
	image_u32(at + AT_NM_ORIG_PC, IMAGE_ORIG_PC);
	if (version >= 9 && version <= 22) {
		image_u64(at + AT_BLOB_CODE, a + NM_CODE);
		image_u64(at + AT_BLOB_CODE_END, a + NM_CODE + NM_CODE_BYTES);
		image_u64(at + AT_NM_SCOPES_BEGIN, a + NM_SCOPES);
	} else {
		image_u32(at + AT_BLOB_CODE, NM_CODE);
		image_u32(at + AT_NM_SCOPES_DATA, NM_SCOPES);
	}
	image_u32(at + AT_BLOB_DATA, NM_CODE + NM_CODE_BYTES);
	image_u32(at + AT_NM_SCOPES_PCS, NM_PCS);
	image_u32(at + AT_NM_DEPENDENCIES, NM_DEPENDENCIES);
	image_u32(at + AT_NM_METADATA, NM_METADATA);
	if (version >= 23) {
		/* Immutable data: PcDescs, then scopes. */
		pcs = IMAGE_DEBUG;
		scopes = IMAGE_DEBUG + 0x40;
		image_u64(at + AT_NM_IMMUTABLE, HOTSPOT_IMAGE + IMAGE_DEBUG - 16);
		image_u32(at + AT_NM_IMMUTABLE_SIZE, 16 + 0x40 + 0x20);
		image_u32(at + AT_NM_SCOPES_PCS, 16);
		image_u32(at + AT_NM_SCOPES_DATA, 16 + 0x40);
		/* The offset has 16 bits and counts from the data. */
		image_u32(at + AT_NM_METADATA, 0xabc0000 | (NM_METADATA - NM_CODE - NM_CODE_BYTES));
	}
	if (version >= 25) {
		metadata = IMAGE_METADATA + 24;
		image_u64(at + AT_BLOB_MUTABLE, HOTSPOT_IMAGE + IMAGE_METADATA);
		image_u32(at + AT_BLOB_MUTABLE_SIZE, 24 + 16);
		image_u32(at + AT_BLOB_RELOCATION, 24);
	}
	image_u64(metadata, HOTSPOT_IMAGE + IMAGE_OUTER);
	image_u64(metadata + 8, HOTSPOT_IMAGE + IMAGE_LEAF);
	memset(image_at(at + NM_CODE), 0x90, NM_CODE_BYTES);
	*image_at(at + NM_CODE + NM_CODE_BYTES - 1) = 0xc3;
	image_debug(scopes, pcs, version >= 20);
}

/* Writes one code heap with segments of 256 bytes, and (since version 9) the list of heaps. */
static inline void image_heap(u32 version)
{
	u64 heap = IMAGE_HEAP, list = IMAGE_HEAP + 0x60, a = HOTSPOT_IMAGE;

	image_u32(heap + 8, 8);
	image_u64(heap + 16 + 8, a + IMAGE_CODE);
	image_u64(heap + 16 + 16, a + IMAGE_CODE_END);
	image_u64(heap + 64 + 8, a + IMAGE_SEGMAP);
	image_u32(list, 1);
	image_u64(list + 8, a + list + 16);
	image_u64(list + 16, a + heap);
	memcpy(image_at(heap + 0x80), "nmethod", 8);
	memcpy(image_at(heap + 0x90), "StubRoutines (1)", 17);
	image_u64(IMAGE_STATICS + STATIC_HEAP, a + (version < 9 ? heap : list));
	image_u64(IMAGE_STATICS + STATIC_INTERPRETER, a + heap + 0xb0);
	image_u64(heap + 0xb0 + 8, a + IMAGE_INTERPRETER);
	image_u32(heap + 0xb0 + 16, 0x800);
	image_u64(IMAGE_STUBS + AT_BLOB_NAME, a + heap + 0x90);
	for (u64 i = 0; i < 4; i++)
		image_u64(IMAGE_STATICS + STATIC_STUB + i * 8, a + IMAGE_STUBS + 0x100 + i * 0x20);
}

static inline void image_flags(bool debug_non_safepoints)
{
	u64 table = IMAGE_STATICS + STATIC_FLAG_TABLE, names = IMAGE_STATICS + STATIC_FLAG_NAMES;

	image_u64(IMAGE_STATICS + STATIC_FLAGS, HOTSPOT_IMAGE + table);
	image_u64(IMAGE_STATICS + STATIC_N_FLAGS, 3);
	memcpy(image_at(names), "Debug", 6);
	memcpy(image_at(names + 8), "DebugNonSafepoints", 19);
	for (u64 i = 0; i < 2; i++) {
		image_u64(table + i * FLAG_BYTES + 8, HOTSPOT_IMAGE + names + i * 8);
		image_u64(table + i * FLAG_BYTES,
			  HOTSPOT_IMAGE + IMAGE_STATICS + STATIC_FLAG_VALUES + i);
	}
	*image_at(IMAGE_STATICS + STATIC_FLAG_VALUES + 1) = debug_non_safepoints;
}

/* Writes lines for bytecodes 0, 4, 9 and 6: the short form once, and a step back at the end. */
static inline size_t image_lines(u8 *to, u32 line, u32 exclude)
{
	size_t n = 0;

	to[n++] = 0xff;
	to[n++] = (u8)exclude;		    /* bci 0 */
	to[n++] = (u8)(2 * line + exclude); /* line `line` */
	to[n++] = 0xff;
	to[n++] = (u8)(2 * 4 + exclude);
	to[n++] = (u8)(2 * 2 + exclude); /* bci 4, line + 2 */
	to[n++] = 5 << 3 | 1;		 /* bci 9, line + 3 */
	to[n++] = 0xff;
	to[n++] = (u8)((2 * 3 - 1) + exclude); /* bci 6 */
	to[n++] = (u8)((2 * 3 - 1) + exclude); /* line + 0 */
	to[n++] = 0;
	return n;
}

/* Maps and fills the image. False: this process uses the address for something else. */
static inline bool image_build(u32 version)
{
	struct image_file unused = {};
	static void *memory;
	u8 lines[16];
	size_t n = image_lines(lines, 40, version >= 20);

	if (!memory)
		memory = mmap((void *)(uintptr_t)HOTSPOT_IMAGE, HOTSPOT_IMAGE_BYTES,
			      PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	memset(memory, 0, HOTSPOT_IMAGE_BYTES);
	image_u32(IMAGE_STATICS + STATIC_VERSION, version << 0);
	image_u32(IMAGE_STATICS + STATIC_MAJOR, version);
	image_heap(version);
	image_flags(false);
	image_class(IMAGE_OUTER, version, "demo/Outer$$Lambda+0x000712345", "outer", "Outer.java",
		    lines, n);
	n = image_lines(lines, 10, version >= 20);
	image_class(IMAGE_LEAF, version, "demo/Leaf", "leaf", "Leaf.java", lines, n);
	image_nmethod(version);
	image_tables(&unused, version);
	image_file_deinit(&unused);
	return true;
}

static inline struct runtime_target image_target(const struct procman_process *p)
{
	return (struct runtime_target){.memory.pid = p->pid, .process = p, .bias = HOTSPOT_IMAGE};
}

/* Makes the second word of a frame. */
static inline u64 image_where(u32 kind, u32 position, u32 cookie)
{
	return (u64)kind << HOTSPOT_KIND_SHIFT | (u64)position << HOTSPOT_POSITION_SHIFT | cookie;
}

/* Makes the cookie that the walker makes for an undamaged class of the image. */
static inline u32 image_cookie(u64 class, u32 n_symbols)
{
	u64 names, word, hash;

	memcpy(&names, image_at(class + CLASS_CONST + AT_CONST_NAME), 8);
	hash = hotspot_mix(hotspot_mix(0, HOTSPOT_IMAGE + class + CLASS_CONST), names);
	for (u32 i = 0; i < n_symbols; i++) {
		u64 symbol = class + CLASS_SYMBOLS + i * 0x100;

		memcpy(&word, image_at(symbol), 8);
		hash = hotspot_mix_symbol(hash, HOTSPOT_IMAGE + symbol, word, AT_SYMBOL_COUNT);
	}
	return hotspot_cookie(hash, n_symbols);
}
