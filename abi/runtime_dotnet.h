/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * .NET (CoreCLR): what user space tells the walker, and what the walker sends.
 *
 * CoreCLR describes all managed code by range sections: code heaps, which the JIT fills, and images
 * that were compiled ahead of time (ReadyToRun). A heap's nibble map says where the method around a
 * pc starts; an image has a sorted array of its functions. Both lead to unwind codes in the format
 * of Windows x64, which CoreCLR uses on Linux, too. A small method has no frame of its own, so the
 * chain of frame pointers would leave out the method's caller.
 *
 *	range section ─┬→ heap: nibble map ─→ start of the method
 *		       │	*(start - 8) ─→ header: MethodDesc, n, {begin, end, unwind} [n]
 *		       └→ module ─→ ReadyToRun info ─→ {begin, end, unwind} [n]
 *
 * The address of a runtime frame is the start of the method's (or funclet's) code; `where` is
 *
 *	63…62 enum dotnet_kind	61…32 position: pc - start	31…0 dotnet_cookie()
 */
#pragma once

#include "abi/runtime.h"

enum dotnet_flags {
	DOTNET_LIST = 1,     /* range sections are in a list; else in a tree of DOTNET_LEVELS */
	DOTNET_POINTERS = 2, /* words of a nibble map can be pointers (.NET 10) */
};

/* The tree: each level has 256 words; a leaf is for 128 KiB (codeman.h, RangeSectionMap). */
#define DOTNET_LEVELS 5
#define DOTNET_LEVEL_BITS 8
#define DOTNET_LEAF_BITS 17
/* Range sections in the list, and fragments of one leaf, that a reader visits. */
#define DOTNET_MAX_LIST 512
#define DOTNET_MAX_FRAGMENTS 16

/* enum RangeSection::RangeSectionFlags, the same in all versions. */
#define DOTNET_SECTION_CODE_HEAP 2U
#define DOTNET_SECTION_READY_LIST 4U /* in the list: an image */

#define DOTNET_SECTION_BYTES 64

/* Offsets in a heap, and in the header of a method's code, the same in all versions. */
#define DOTNET_HEAP_MAP_BASE 0x20
#define DOTNET_HEAP_NIBBLES 0x28
#define DOTNET_HEADER_METHOD 0x18 /* then u32 n, then the functions */
#define DOTNET_HEADER_FUNCTIONS 0x24

/* Headers below are no pointers, but say what kind of stub the code is. */
#define DOTNET_STUB_HEADERS 256

/* Overlays struct runtime_process.room. Offsets of 0 are unknown. */
struct dotnet_process {
	__u64 ranges; /* avma of the tree's first level, or of the word that points to the list */
	__u16 flags;  /* enum dotnet_flags */
	__u8 next;    /* offsets in a range section: of the list's next, */
	__u8 section_flags;
	__u8 heap;
	__u8 module;
	/* Offsets of the ReadyToRun info in the module, and in it, of the image's own info (0:
	 * there are no composite images), of the functions and of their number. */
	__u16 info;
	__u16 composite;
	__u16 functions;
	__u16 n_functions;
	__u16 pad;
};
_Static_assert(sizeof(struct dotnet_process) <= sizeof(((struct runtime_process *)0)->room),
	       "dotnet_process");

/* RUNTIME_FUNCTION: offsets from the image, or from the base that the JIT has chosen. */
struct dotnet_function {
	__u32 begin, end, unwind;
};

enum dotnet_kind {
	DOTNET_COMPILED = 1, /* by the JIT */
	DOTNET_READY = 2,    /* ahead of time */
};
#define DOTNET_KIND_SHIFT 62
#define DOTNET_POSITION_SHIFT 32
#define DOTNET_POSITION_MASK ((1U << 30) - 1)

/*
 * Identifies a method of the JIT by its MethodDesc and its header, and one of an image by the
 * array of the image's functions: other code at the same address has others.
 */
static inline __attribute__((always_inline)) __u32 dotnet_cookie(__u64 first, __u64 second)
{
	__u64 h = (first ^ second << 17 ^ second >> 47) * 0x9fb21c651e98df25ULL;

	return (__u32)(h >> 32);
}
