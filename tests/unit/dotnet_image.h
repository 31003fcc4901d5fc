/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small libcoreclr.so and the memory of a process that runs it, made byte by byte: range
 * sections, a code heap with one method, an image that was compiled ahead of time with one method
 * and its funclet, and metadata with a nested class. The image of memory is mapped at a fixed
 * address of this process, and tests read it like another process's.
 *
 *	Demo.Outer.Inner.Compiled	in the heap
 *	Demo.Outer.Ready		in the image
 */
#pragma once

#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/runtime/dotnet/dotnet.h"
#include "elfwriter.h"

#define DOTNET_IMAGE 0x320000000000ULL
#define DOTNET_IMAGE_BYTES 0x10000u

/* Offsets from DOTNET_IMAGE; up to IMAGE_DATA_END they are svmas in the library, too. */
enum image_place {
	IMAGE_TEXT = 0x1000,
	IMAGE_DATA = 0x2000,
	IMAGE_LIST = 0x2100,	/* points to the list of range sections */
	IMAGE_TABLE = 0x2200,	/* g_dacTable */
	IMAGE_MANAGER = 0x2400, /* its first word is in the library */
	IMAGE_DATA_END = 0x2800,
	IMAGE_LEVELS = 0x3000, /* DOTNET_LEVELS of the tree */
	IMAGE_FRAGMENTS = 0x5800,
	IMAGE_SECTIONS = 0x5900,
	IMAGE_HEAP = 0x5a00,
	IMAGE_NIBBLES = 0x5b00,
	IMAGE_HEADER = 0x5c00,
	IMAGE_CHUNK = 0x5d00,	/* MethodDescs */
	IMAGE_CLASSES = 0x5e00, /* MethodTables: of Inner, of Outer */
	IMAGE_MODULE = 0x6000,
	IMAGE_INFO = 0x6800,
	IMAGE_METHODS = 0x6c00, /* hash table: 6 buckets */
	IMAGE_CODE = 0x8000,
	IMAGE_METHOD = 0x8140,
	IMAGE_CODE_END = 0x9000,
	IMAGE_READY = 0xa000, /* the image */
	IMAGE_READY_HEADER = 0xa100,
	IMAGE_FUNCTIONS = 0xa200,
	IMAGE_METADATA = 0xb000,
	IMAGE_READY_CODE = 0xc000,
	IMAGE_READY_END = 0xd000,
	IMAGE_NAME = 0xe000, /* of a method that was made at run time */
};

enum {
	IMAGE_INFO_AT = 0x2c0, /* of the info in the module */
	IMAGE_FUNCTIONS_AT = 0x50,
	IMAGE_METHODS_AT = 0x178,
	IMAGE_BUCKETS = 5,
	IMAGE_READY_AT = IMAGE_READY_CODE - IMAGE_READY, /* of the method in the image */
	IMAGE_READY_BYTES = 0x40,
};

static inline u8 *image_at(u64 place)
{
	return (u8 *)(uintptr_t)(DOTNET_IMAGE + place);
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

static inline u64 image_word(u64 place)
{
	u64 v;

	memcpy(&v, image_at(place), 8);
	return v;
}

/* ---- the library ---- */

/* Writes the file; the caller frees `ret`. */
static inline void image_write_file(const char *version, bool exports, struct str *ret)
{
	static u8 data[IMAGE_DATA_END - IMAGE_DATA], text[16];
	static const char names[] = "\0g_dacTable";
	Elf64_Sym symbols[] = {{}, {.st_name = 1, .st_shndx = 2, .st_value = IMAGE_TABLE}};
	struct elfw w = {.machine = EM_X86_64};

	memset(data, 0, sizeof(data));
	snprintf((char *)data, 64, "@(#)Version %s @Commit: 0123456789", version);
	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, IMAGE_TEXT, text,
		     sizeof(text));
	elfw_section(&w, ".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, IMAGE_DATA, data,
		     sizeof(data));
	elfw_section(&w, ".dynsym", SHT_DYNSYM, 0, 0, symbols, exports ? sizeof(symbols) : 24);
	elfw_section(&w, ".dynstr", SHT_STRTAB, 0, 0, names, sizeof(names));
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, IMAGE_TEXT, sizeof(text), ".text");
	elfw_segment(&w, PT_LOAD, PF_R | PF_W, IMAGE_DATA, sizeof(data), ".data");
	elfw_finish(&w);
	*ret = w.out;
}

/* ---- range sections ---- */

static inline void image_section(u64 at, u64 begin, u64 end, bool heap, bool list, u64 next)
{
	image_u64(at, DOTNET_IMAGE + begin);
	image_u64(at + 8, DOTNET_IMAGE + end);
	if (list) {
		image_u64(at + 0x10, DOTNET_IMAGE + IMAGE_MANAGER);
		image_u64(at + 0x18, next ? DOTNET_IMAGE + next : 0);
		image_u32(at + 0x28, heap ? 2 : 4);
		image_u64(at + 0x30, DOTNET_IMAGE + (heap ? IMAGE_HEAP : IMAGE_MODULE));
	} else {
		image_u32(at + 0x10, heap ? 2 : 0);
		image_u64(at + (heap ? 0x28 : 0x20),
			  DOTNET_IMAGE + (heap ? IMAGE_HEAP : IMAGE_MODULE));
	}
}

/* All is within one leaf of the tree. */
static inline void image_tree(void)
{
	u64 level = IMAGE_LEVELS;

	image_u64(IMAGE_TABLE, DOTNET_IMAGE + IMAGE_LEVELS);
	for (int shift = DOTNET_LEAF_BITS + 8 * (DOTNET_LEVELS - 1); shift >= DOTNET_LEAF_BITS;
	     shift -= 8, level += 0x800)
		image_u64(level + (DOTNET_IMAGE >> shift & 255) * 8,
			  DOTNET_IMAGE +
				  (shift > DOTNET_LEAF_BITS ? level + 0x800 : IMAGE_FRAGMENTS));
	for (u64 i = 0; i < 2; i++) {
		u64 at = IMAGE_FRAGMENTS + i * 0x40;

		image_u64(at, i ? 0 : DOTNET_IMAGE + at + 0x40);
		image_u64(at + 8, DOTNET_IMAGE + (i ? IMAGE_READY : IMAGE_CODE));
		image_u64(at + 16, DOTNET_IMAGE + (i ? IMAGE_READY_END : IMAGE_CODE_END));
		image_u64(at + 24, DOTNET_IMAGE + IMAGE_SECTIONS + i * 0x40);
	}
}

/* ---- metadata ---- */

/* Appends a text to #Strings, and returns its index. */
static inline u16 image_text(u64 strings, u16 *used, const char *text)
{
	u16 at = *used;

	memcpy(image_at(strings + at), text, strlen(text) + 1);
	*used = (u16)(at + strlen(text) + 1);
	return at;
}

/*
 * Three types: functions without a type, Demo.Outer, and Inner in it; a method in each, but two in
 * the second. Returns the place of the assembly's name.
 */
static inline u64 image_metadata(void)
{
	u64 root = IMAGE_METADATA, tables = root + 0x100, strings = root + 0x300;
	u16 used = 1;
	u16 assembly = image_text(strings, &used, "Demo.Assembly");
	struct {
		const char *type, *space;
		u16 first_method;
	} types[] = {{"<Module>", "", 1}, {"Outer", "Demo", 2}, {"Inner", "", 4}};
	static const char *const methods[] = {"global", "Ready", "Other", "Compiled"};
	u64 at;

	memcpy(image_at(root), "BSJB\1\0\1\0\0\0\0\0\4\0\0\0v1\0\0\0\0\2\0", 24);
	image_u32(root + 24, 0x100);
	image_u32(root + 28, 0x200);
	memcpy(image_at(root + 32), "#~\0", 4);
	image_u32(root + 36, 0x300);
	image_u32(root + 40, 0x100);
	memcpy(image_at(root + 44), "#Strings\0\0\0", 12);
	image_u64(tables + 8, 1ULL << 0 | 1ULL << 2 | 1ULL << 6 | 1ULL << 0x29);
	image_u32(tables + 24, 1);
	image_u32(tables + 28, ARRAY_SIZE(types));
	image_u32(tables + 32, ARRAY_SIZE(methods));
	image_u32(tables + 36, 1);
	at = tables + 40 + 10; /* after a row of Module */
	for (size_t i = 0; i < ARRAY_SIZE(types); i++, at += 14) {
		image_u16(at + 4, image_text(strings, &used, types[i].type));
		image_u16(at + 6, *types[i].space ? image_text(strings, &used, types[i].space) : 0);
		image_u16(at + 12, types[i].first_method);
	}
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++, at += 14)
		image_u16(at + 8, image_text(strings, &used, methods[i]));
	image_u16(at, 3);
	image_u16(at + 2, 2);
	return strings + assembly;
}

/* ---- methods ---- */

/* Three MethodDescs: rows 4 and 2 of the metadata, and one made at run time. */
static inline void image_descs(const struct dotnet_layout *o)
{
	static const u32 rows[] = {4, 2, 0};

	image_u64(IMAGE_CHUNK, DOTNET_IMAGE + IMAGE_CLASSES);
	for (u8 i = 0; i < ARRAY_SIZE(rows); i++) {
		/* Each needs more than 8 bytes. */
		u64 at = IMAGE_CHUNK + 24 + i * 48ULL;

		image_u16(at, (u16)(rows[i] | 1u << 15)); /* a flag above the token */
		*image_at(at + 2) = (u8)(i * 6);
		image_u16(at + 6, rows[i] ? 0 : 7);
		if (!rows[i])
			image_u64(at + o->dynamic_name, DOTNET_IMAGE + IMAGE_NAME);
	}
	memcpy(image_at(IMAGE_NAME), "Made", 5);
	image_u64(IMAGE_CLASSES + 24, DOTNET_IMAGE + IMAGE_MODULE);
}

static inline u64 image_desc(u32 i)
{
	return DOTNET_IMAGE + IMAGE_CHUNK + 24 + i * 48ULL;
}

static inline void image_ready(const struct dotnet_layout *o)
{
	u64 info = IMAGE_INFO, key = DOTNET_IMAGE + IMAGE_READY_CODE;
	u64 bucket = IMAGE_METHODS + (1 + (u32)(key >> 2) % IMAGE_BUCKETS) * 64;

	image_u64(IMAGE_MODULE + IMAGE_INFO_AT, DOTNET_IMAGE + info);
	image_u64(info, DOTNET_IMAGE + IMAGE_MODULE);
	image_u64(info + 16, DOTNET_IMAGE + IMAGE_READY_HEADER);
	if (o->composite)
		image_u64(info + o->composite, DOTNET_IMAGE + info);
	image_u64(info + IMAGE_FUNCTIONS_AT, DOTNET_IMAGE + IMAGE_FUNCTIONS);
	image_u32(info + IMAGE_FUNCTIONS_AT + 8, 2);
	image_u64(info + IMAGE_METHODS_AT, DOTNET_IMAGE + IMAGE_METHODS);
	memcpy(image_at(IMAGE_READY_HEADER), "RTR", 4);
	for (u32 i = 0; i < 2; i++) { /* the method and its funclet */
		u64 at = IMAGE_FUNCTIONS + i * 12ULL;

		image_u32(at, IMAGE_READY_AT + i * IMAGE_READY_BYTES);
		image_u32(at + 4, IMAGE_READY_AT + (i + 1) * IMAGE_READY_BYTES);
		image_u32(at + 8, 0x800);
	}
	image_u64(IMAGE_METHODS, IMAGE_BUCKETS);
	image_u64(bucket, key);
	image_u64(bucket + 32, image_desc(1) >> 1);
}

/* Maps and fills the image. False: this process uses the address for something else. */
static inline bool image_build(const struct dotnet_layout *o)
{
	static void *memory;

	if (!memory)
		memory = mmap(image_at(0), DOTNET_IMAGE_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (memory != (void *)image_at(0))
		return false;
	memset(memory, 0, DOTNET_IMAGE_BYTES);
	image_u64(IMAGE_MANAGER, DOTNET_IMAGE + IMAGE_TEXT);
	/* The list has the highest address first. */
	image_section(IMAGE_SECTIONS, IMAGE_CODE, IMAGE_CODE_END, true, o->list, 0);
	image_section(IMAGE_SECTIONS + 0x40, IMAGE_READY, IMAGE_READY_END, false, o->list,
		      IMAGE_SECTIONS);
	image_u64(IMAGE_LIST, DOTNET_IMAGE + IMAGE_SECTIONS + 0x40);
	if (!o->list)
		image_tree();
	image_u64(IMAGE_HEAP + DOTNET_HEAP_MAP_BASE, DOTNET_IMAGE + IMAGE_CODE);
	image_u64(IMAGE_HEAP + DOTNET_HEAP_NIBBLES, DOTNET_IMAGE + IMAGE_NIBBLES);
	image_u64(IMAGE_METHOD - 8, DOTNET_IMAGE + IMAGE_HEADER);
	image_u64(IMAGE_HEADER + DOTNET_HEADER_METHOD, image_desc(0));
	image_u32(IMAGE_HEADER + DOTNET_HEADER_METHOD + 8, 1);
	image_descs(o);
	image_u64(IMAGE_MODULE + o->simple_name, DOTNET_IMAGE + image_metadata());
	image_ready(o);
	return true;
}

static inline struct runtime_target image_target(const struct procman_process *process)
{
	return (struct runtime_target){
		.memory.pid = (u32)getpid(),
		.process = process,
		.bias = DOTNET_IMAGE,
	};
}

static inline u64 image_where(enum dotnet_kind kind, u32 position, u32 cookie)
{
	return (u64)kind << DOTNET_KIND_SHIFT | (u64)position << DOTNET_POSITION_SHIFT | cookie;
}

static inline u64 image_where_compiled(void)
{
	return image_where(DOTNET_COMPILED, 5,
			   dotnet_cookie(image_word(IMAGE_HEADER + DOTNET_HEADER_METHOD),
					 image_word(IMAGE_METHOD - 8)));
}

static inline u64 image_where_ready(void)
{
	return image_where(
		DOTNET_READY, 5,
		dotnet_cookie(DOTNET_IMAGE + IMAGE_FUNCTIONS, DOTNET_IMAGE + IMAGE_READY));
}
