/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a JVM with virtual threads, made byte by byte at a fixed address of this process:
 * the values of HotSpot's tables, the JDK's classes with their fields, sets of threads, stacks of
 * interpreted and compiled frames. All offsets are invented.
 */
#pragma once

#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/runtime/hotspot/chunk.h"
#include "agent/runtime/hotspot/objects.h"

#define VIRTUAL_IMAGE 0x320000000000ULL
#define VIRTUAL_IMAGE_BYTES 0x80000u

enum virtual_place {
	VI_OFFSETS = 0x100, /* the values of enum hotspot_field, 8 bytes each */
	VI_STATICS = 0x800,
	VI_MARK_SHIFT = 0xa00,
	VI_FLAGS = 0xb00, /* the table of flags, and their names and values */
	VI_COLLECTOR = 0xf00,
	VI_LOADER = 0xf80,
	VI_CLASSES = 0x1000, /* 0x100 each: by enum java_class, then Object and an array's */
	VI_TEXTS = 0x3000,   /* symbols, constants, streams, mirrors */
	VI_SEGMAP = 0x7000,
	VI_METHOD = 0x7100,
	VI_NAMES = 0x7300, /* of blobs */
	VI_CODE = 0x8000,
	VI_STUB = 0x8400,
	VI_INTERPRETER = 0x9000,
	VI_CODE_END = 0xa000,
	VI_HEAP = 0x10000, /* Java objects */
};

enum virtual_offset {
	VO_CLASS_LAYOUT = 8,
	VO_CLASS_NAME = 16,
	VO_CLASS_MIRROR = 24,
	VO_CLASS_NEXT = 32,
	VO_CLASS_LOADER = 40,
	VO_CLASS_FIELDS = 48,
	VO_CLASS_POOL = 56,
	VO_POOL_BYTES = 16,
	VO_CHUNK_BYTES = 64,
	VO_FIRST_FIELD = 24,
	VO_STATIC = 64,
	VO_BLOB_NAME = 8,
	VO_BLOB_FRAME = 16,
	VO_BLOB_CODE = 20,
	VO_BLOB_CODE_END = 24,
	VO_BLOB_DEOPT = 28,
	VO_BLOB_ORIG_PC = 32,
	VO_BLOB_ID = 36,
	VO_BLOB_START = 0x180, /* of the code, from the blob */
	VO_CONST_NAMES = 32,
};

#define VI_FRAME_WORDS 6
#define VI_COMPILE_ID 77
#define VI_PARKED 4
#define VI_RUNNING 2
#define VI_SUSPENDED 256
#define VI_N_CLASSES (JC_N + 2)

struct virtual_image {
	struct hotspot_vm vm;
	struct elf_file elf; /* its machine only */
	struct procman_process process;
	struct runtime_process walker;
	bool narrow, compact;
	u64 texts, heap; /* the next free bytes */
	u32 fields[JF_N];
	u64 mirrors[JC_N];
	u64 nodes; /* class of an array */
};

static inline u8 *vi_at(u64 place)
{
	return (u8 *)(uintptr_t)(VIRTUAL_IMAGE + place);
}

static inline void vi_u64(u64 place, u64 v)
{
	memcpy(vi_at(place), &v, 8);
}

static inline void vi_u32(u64 place, u32 v)
{
	memcpy(vi_at(place), &v, 4);
}

static inline u64 vi_class(u32 class)
{
	return VI_CLASSES + class * 0x100u;
}

/* ---- classes ---- */

static inline u64 vi_take(struct virtual_image *v, u64 n)
{
	u64 at = v->texts;

	v->texts += (n + 15) & ~15ULL;
	return at;
}

static inline u64 vi_symbol(struct virtual_image *v, const char *text)
{
	u64 at = vi_take(v, strlen(text) + 8);
	u16 n = (u16)strlen(text);

	vi_u32(at, 0xbeef0001);
	memcpy(vi_at(at + 4), &n, 2);
	memcpy(vi_at(at + 6), text, n);
	return at;
}

/* UNSIGNED5 of 21: 1 is added to each byte. */
static inline void vi_number(u8 *to, u32 *n, u32 value)
{
	while (value >= 191) {
		to[(*n)++] = (u8)(192 + (value - 191) % 64);
		value = (value - 191) / 64;
	}
	to[(*n)++] = (u8)(value + 1);
}

struct vi_field {
	enum java_class class;
	enum java_field field;
	const char *name;
};

static const struct vi_field vi_fields[] = {
	{JC_VIRTUAL, JF_STATE, "state"},
	{JC_VIRTUAL, JF_CONT, "cont"},
	{JC_THREAD, JF_ID, "tid"},
	{JC_CONTINUATION, JF_TAIL, "tail"},
	{JC_CHUNK, JF_PARENT, "parent"},
	{JC_CHUNK, JF_SIZE, "size"},
	{JC_CHUNK, JF_SP, "sp"},
	{JC_CHUNK, JF_BOTTOM, "bottom"},
	{JC_CONTAINERS, JF_REGISTRY, "CONTAINER_REGISTRY"},
	{JC_TRACKING, JF_TRACKED, "VTHREADS"},
	{JC_PER_TASK, JF_PER_TASK, "threads"},
	{JC_SHARED, JF_SHARED, "virtualThreads"},
	{JC_VIEW, JF_VIEWED, "map"},
	{JC_MAP, JF_TABLE, "table"},
	{JC_NODE, JF_HASH, "hash"},
	{JC_NODE, JF_KEY, "key"},
	{JC_NODE, JF_NEXT, "next"},
	{JC_REFERENCE, JF_REFERENT, "referent"},
	{JC_VIRTUAL, JF_PARKED, "PARKED"},
	{JC_VIRTUAL, JF_TIMED_PARKED, "TIMED_PARKED"},
	{JC_VIRTUAL, JF_SUSPENDED, "SUSPENDED"},
};

static inline bool vi_is_static(enum java_field f)
{
	return f >= JF_PARKED || f == JF_REGISTRY || f == JF_TRACKED;
}

/* Writes the stream of a class's fields, and their names as constants. */
static inline void vi_class_fields(struct virtual_image *v, enum java_class class)
{
	u64 pool = vi_take(v, VO_POOL_BYTES + 8 * 16), stream = vi_take(v, 256);
	u32 n = 0, at = 0, offset[2] = {VO_FIRST_FIELD, VO_STATIC};
	u8 *to = vi_at(stream + 4);

	for (size_t i = 0; i < ARRAY_SIZE(vi_fields); i++)
		n += vi_fields[i].class == class;
	vi_number(to, &at, n + 1);
	vi_number(to, &at, 1);
	/* A field that is none of those: with an initial value and a generic signature. */
	vi_u64(pool + VO_POOL_BYTES, VIRTUAL_IMAGE + vi_symbol(v, "other"));
	for (u32 i = 0; i < 7; i++)
		vi_number(to, &at, i == 4 ? 5 : 0);
	n = 1;
	for (size_t i = 0; i < ARRAY_SIZE(vi_fields); i++) {
		const struct vi_field *f = &vi_fields[i];
		u32 *next = &offset[vi_is_static(f->field)];

		if (f->class != class)
			continue;
		/* The thread's own fields are behind those of its superclass. */
		if (f->field == JF_ID)
			*next = 64;
		vi_u64(pool + VO_POOL_BYTES + 8ULL * n, VIRTUAL_IMAGE + vi_symbol(v, f->name));
		v->fields[f->field] = *next;
		vi_number(to, &at, n++);
		vi_number(to, &at, 300);
		vi_number(to, &at, *next);
		vi_number(to, &at, 0);
		vi_number(to, &at, 0);
		*next += 8;
	}
	vi_u32(stream, at);
	vi_u64(vi_class(class) + VO_CLASS_FIELDS, VIRTUAL_IMAGE + stream);
	vi_u64(vi_class(class) + VO_CLASS_POOL, VIRTUAL_IMAGE + pool);
}

static inline void vi_classes(struct virtual_image *v)
{
	static const char *const names[JC_N] = {
		[JC_VIRTUAL] = "java/lang/VirtualThread",
		[JC_THREAD] = "java/lang/Thread",
		[JC_CONTINUATION] = "jdk/internal/vm/Continuation",
		[JC_CHUNK] = "jdk/internal/vm/StackChunk",
		[JC_CONTAINERS] = "jdk/internal/vm/ThreadContainers",
		[JC_TRACKING] =
			"jdk/internal/vm/ThreadContainers$RootContainer$TrackingRootContainer",
		[JC_COUNTING] = "demo/Other",
		[JC_PER_TASK] = "java/util/concurrent/ThreadPerTaskExecutor",
		[JC_SHARED] = "jdk/internal/vm/SharedThreadContainer",
		[JC_VIEW] = "java/util/concurrent/ConcurrentHashMap$CollectionView",
		[JC_MAP] = "java/util/concurrent/ConcurrentHashMap",
		[JC_NODE] = "java/util/concurrent/ConcurrentHashMap$Node",
		[JC_REFERENCE] = "java/lang/ref/Reference",
	};

	for (u32 i = 0; i < VI_N_CLASSES; i++) {
		u64 class = vi_class(i), handle = vi_take(v, 8), mirror = vi_take(v, 160);

		vi_u32(class + VO_CLASS_LAYOUT, VO_CHUNK_BYTES);
		vi_u64(class + VO_CLASS_NAME,
		       VIRTUAL_IMAGE + vi_symbol(v, i < JC_N ? names[i] : "demo/Array"));
		vi_u64(class + VO_CLASS_MIRROR, VIRTUAL_IMAGE + handle);
		vi_u64(handle, VIRTUAL_IMAGE + mirror);
		vi_u64(class + VO_CLASS_LOADER, VIRTUAL_IMAGE + VI_LOADER);
		vi_u64(class + VO_CLASS_NEXT,
		       i + 1 < VI_N_CLASSES ? VIRTUAL_IMAGE + vi_class(i + 1) : 0);
		if (i < JC_N) {
			v->mirrors[i] = mirror;
			vi_class_fields(v, i);
		}
	}
	/* Elements are at 16, or at 24 if a class is wide. */
	vi_u32(vi_class(JC_N + 1) + VO_CLASS_LAYOUT, 0x80000000u | 24u << 16);
	vi_u64(VI_LOADER + 8, VIRTUAL_IMAGE + vi_class(0));
	vi_u32(v->mirrors[JC_VIRTUAL] + v->fields[JF_PARKED], VI_PARKED);
	vi_u32(v->mirrors[JC_VIRTUAL] + v->fields[JF_TIMED_PARKED], 7);
	vi_u32(v->mirrors[JC_VIRTUAL] + v->fields[JF_SUSPENDED], VI_SUSPENDED);
}

/* ---- objects ---- */

static inline void vi_reference(const struct virtual_image *v, u64 at, u64 object)
{
	if (v->narrow)
		vi_u32(at, (u32)(object / 8));
	else
		vi_u64(at, object ? VIRTUAL_IMAGE + object : 0);
}

/* Returns the place of a new object of n bytes. */
static inline u64 vi_object(struct virtual_image *v, u32 class, u64 n)
{
	u64 at = v->heap;

	v->heap += (n + 15) & ~15ULL;
	if (v->compact)
		vi_u64(at, vi_class(class) / 8 << 42 | 1);
	else if (v->narrow)
		vi_u32(at + 8, (u32)(vi_class(class) / 8));
	else
		vi_u64(at + 8, VIRTUAL_IMAGE + vi_class(class));
	return at;
}

static inline u64 vi_array(struct virtual_image *v, u32 n)
{
	u64 at = vi_object(v, JC_N + 1, 24 + 8ULL * n);

	vi_u32(at + (v->compact ? 8 : v->narrow ? 12 : 16), n);
	return at;
}

static inline u64 vi_element(const struct virtual_image *v, u64 array, u32 i)
{
	return array + 24 + (v->narrow ? 4ULL : 8ULL) * i;
}

/* Returns a set with so many bins, and stores it at a field. */
static inline u64 vi_set(struct virtual_image *v, u64 field, u32 bins)
{
	u64 view = vi_object(v, JC_VIEW, 64), map = vi_object(v, JC_MAP, 64);
	u64 table = vi_array(v, bins);

	vi_reference(v, field, view);
	vi_reference(v, view + v->fields[JF_VIEWED], map);
	vi_reference(v, map + v->fields[JF_TABLE], table);
	return table;
}

/* Adds an object to a bin, at its begin. */
static inline void vi_add(struct virtual_image *v, u64 table, u32 bin, u64 object)
{
	u64 node = vi_object(v, JC_NODE, 64), at = vi_element(v, table, bin);

	vi_reference(v, node + v->fields[JF_KEY], object);
	memcpy(vi_at(node + v->fields[JF_NEXT]), vi_at(at), v->narrow ? 4 : 8);
	vi_reference(v, at, node);
}

/* Returns a chunk with these words. */
static inline u64 vi_chunk(struct virtual_image *v, const u64 *words, u32 n, u32 sp, u64 parent)
{
	u64 at = vi_object(v, JC_CHUNK, VO_CHUNK_BYTES + 8ULL * n);

	vi_reference(v, at + v->fields[JF_PARENT], parent);
	vi_u32(at + v->fields[JF_SIZE], n);
	vi_u32(at + v->fields[JF_SP], sp);
	vi_u32(at + v->fields[JF_BOTTOM], n);
	memcpy(vi_at(at + VO_CHUNK_BYTES), words, 8ULL * n);
	return at;
}

static inline u64 vi_thread(struct virtual_image *v, u64 id, u32 state, u64 chunk)
{
	u64 at = vi_object(v, JC_VIRTUAL, 128), cont = vi_object(v, JC_CONTINUATION, 64);

	vi_u64(at + v->fields[JF_ID], id);
	vi_u32(at + v->fields[JF_STATE], state);
	vi_reference(v, at + v->fields[JF_CONT], cont);
	vi_reference(v, cont + v->fields[JF_TAIL], chunk);
	return at;
}

/* ---- code ---- */

static inline u64 vi_pc(u32 position)
{
	return VIRTUAL_IMAGE + VI_CODE + 8 + VO_BLOB_START + position;
}

/*
 * Writes a compiled frame's words into `words` at sp: the frame's pc is before sp. Returns the sp
 * of its caller.
 */
static inline u32 vi_compiled(u64 *words, u32 sp, u64 pc)
{
	words[sp - 1] = pc;
	return sp + VI_FRAME_WORDS;
}

/* An interpreted frame with `extra` words of its own locals that its caller does not know of. */
static inline u32 vi_interpreted(u64 *words, u32 sp, u32 bci, u32 extra, u32 *ret_end)
{
	u32 fp = sp + 10;

	words[sp - 1] = VIRTUAL_IMAGE + VI_INTERPRETER + 0x40;
	words[sp - 2] = fp - (sp - 2);
	words[fp - 8] = VIRTUAL_IMAGE + VI_METHOD + 0x40 + 48 + bci;
	words[fp - 3] = VIRTUAL_IMAGE + VI_METHOD;
	words[fp - 1] = 2 + extra;
	*ret_end = fp + 2 + extra;
	return fp + 2;
}

static inline void vi_blob(u64 at, const char *name, u64 text)
{
	memcpy(vi_at(text), name, strlen(name) + 1);
	at += 8;
	vi_u64(at + VO_BLOB_NAME, VIRTUAL_IMAGE + text);
	vi_u32(at + VO_BLOB_FRAME, VI_FRAME_WORDS);
	vi_u32(at + VO_BLOB_CODE, VO_BLOB_START);
	vi_u32(at + VO_BLOB_CODE_END, VO_BLOB_START + 0x100);
	vi_u32(at + VO_BLOB_DEOPT, VO_BLOB_START + 0xf0);
	vi_u32(at + VO_BLOB_ORIG_PC, 16);
	vi_u32(at + VO_BLOB_ID, VI_COMPILE_ID);
}

static inline void vi_code(struct virtual_image *v)
{
	struct hotspot_process p = {
		.base = VIRTUAL_IMAGE + VI_CODE,
		.heaps = {{.segmap = VIRTUAL_IMAGE + VI_SEGMAP, .end = VI_CODE_END - VI_CODE}},
		.interpreter = VI_INTERPRETER - VI_CODE,
		.interpreter_end = VI_CODE_END - VI_CODE,
		.orig_pc = VO_BLOB_ORIG_PC,
		.deopt = VO_BLOB_DEOPT,
		.compile_id = VO_BLOB_ID,
		.segment_shift = 8,
		.block_header = 8,
		.flags = HOTSPOT_CODE_OFFSETS | HOTSPOT_HAS_MIRROR,
		.name = VO_BLOB_NAME,
		.frame_size = VO_BLOB_FRAME,
		.code = VO_BLOB_CODE,
		.code_end = VO_BLOB_CODE_END,
		.const_method = 8,
		.const_method_size = 48,
		.names = VO_CONST_NAMES,
	};

	memcpy(v->walker.room, &p, sizeof(p));
	for (u32 i = 0; i < 16; i++)
		*vi_at(VI_SEGMAP + i) = (u8)(i % 4);
	vi_blob(VI_CODE, "nmethod", VI_NAMES);
	vi_blob(VI_STUB, "runtime stub", VI_NAMES + 0x20);
	vi_u64(VI_METHOD + 8, VIRTUAL_IMAGE + VI_METHOD + 0x40);
}

/* ---- HotSpot's tables ---- */

static inline void vi_flag(u32 i, const char *name, bool value)
{
	u64 entry = VI_FLAGS + i * 24, text = VI_FLAGS + 0x100 + i * 0x20;

	memcpy(vi_at(text), name, strlen(name) + 1);
	*vi_at(VI_FLAGS + 0x200 + i) = value;
	vi_u64(entry, VIRTUAL_IMAGE + VI_FLAGS + 0x200 + i);
	vi_u64(entry + 8, VIRTUAL_IMAGE + text);
}

static inline void vi_tables(struct virtual_image *v)
{
	static const struct {
		enum hotspot_field field;
		u32 offset;
	} offsets[] = {
		{HF_NM_COMPILE_ID, VO_BLOB_ID},
		{HF_HEAP_SEGMAP, 64},
		{HF_SPACE_HIGH, 16},
		{HF_CLASS_NAME, VO_CLASS_NAME},
		{HF_SYMBOL_LENGTH, 4},
		{HF_SYMBOL_BODY, 6},
		{HF_FLAG_NAME, 8},
		{HF_FLAG_ADDRESS, 0},
		{HF_CLASS_LAYOUT, VO_CLASS_LAYOUT},
		{HF_CLASS_MIRROR, VO_CLASS_MIRROR},
		{HF_CLASS_NEXT, VO_CLASS_NEXT},
		{HF_CLASS_LOADER, VO_CLASS_LOADER},
		{HF_CLASS_FIELDS, VO_CLASS_FIELDS},
		{HF_CLASS_POOL, VO_CLASS_POOL},
		{HF_LOADER_CLASSES, 8},
		{HF_BYTES_DATA, 4},
		{HF_GC_ACTIVE, 16},
		{HF_GC_COUNT, 20},
	};
	struct hotspot_vm *vm = &v->vm;

	for (u32 i = 0; i < ARRAY_SIZE(offsets); i++) {
		vm->fields[offsets[i].field] = VI_OFFSETS + 8ULL * offsets[i].field;
		vi_u64(vm->fields[offsets[i].field], offsets[i].offset);
	}
	vm->first = VI_OFFSETS;
	vm->end = VI_OFFSETS + 8ULL * HF_N;
	for (u32 i = 0; i < HS_N; i++)
		vm->statics[i] = VI_STATICS + 8ULL * i;
	vm->statics[HS_JDK_VERSION] = 0;
	vm->mark_shift = VI_MARK_SHIFT;
	vm->sizes[HZ_CONSTANT_POOL] = VO_POOL_BYTES;
	vm->sizes[HZ_FLAG] = 24;
	vi_u64(VI_MARK_SHIFT, 42);
	vi_u32(vm->statics[HS_VM_MAJOR], 25);
	vi_u64(vm->statics[HS_FLAGS], VIRTUAL_IMAGE + VI_FLAGS);
	vi_u64(vm->statics[HS_N_FLAGS], 4);
	vi_flag(0, "UseCompressedOops", v->narrow);
	vi_flag(1, "UseCompressedClassPointers", v->narrow);
	vi_flag(2, "UseCompactObjectHeaders", v->compact);
	vi_flag(3, "UseZGC", false);
	vi_u64(vm->statics[HS_OOP_BASE], VIRTUAL_IMAGE);
	vi_u64(vm->statics[HS_CLASS_BASE], VIRTUAL_IMAGE);
	vi_u32(vm->statics[HS_OOP_SHIFT], 3);
	vi_u32(vm->statics[HS_CLASS_SHIFT], 3);
	vi_u64(vm->statics[HS_OBJECT_CLASS], VIRTUAL_IMAGE + vi_class(JC_N));
	vi_u64(vm->statics[HS_COLLECTED_HEAP], VIRTUAL_IMAGE + VI_COLLECTOR);
}

/* Maps and fills the image, without threads. False: this process uses the address. */
static inline bool vi_build(struct virtual_image *v, bool narrow, bool compact)
{
	static void *memory;

	if (!memory)
		memory = mmap((void *)(uintptr_t)VIRTUAL_IMAGE, VIRTUAL_IMAGE_BYTES,
			      PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	memset(memory, 0, VIRTUAL_IMAGE_BYTES);
	*v = (struct virtual_image){
		.elf.machine = EM_X86_64,
		.process.pid = (u32)getpid(),
		.narrow = narrow,
		.compact = compact,
		.texts = VI_TEXTS,
		.heap = VI_HEAP,
	};
	vi_tables(v);
	vi_classes(v);
	vi_code(v);
	return true;
}

static inline struct runtime_target vi_target(struct virtual_image *v)
{
	return (struct runtime_target){.memory.pid = v->process.pid,
				       .process = &v->process,
				       .elf = &v->elf,
				       .bias = VIRTUAL_IMAGE};
}

/* The place of a static field. */
static inline u64 vi_static(const struct virtual_image *v, enum java_class class,
			    enum java_field field)
{
	return v->mirrors[class] + v->fields[field];
}
