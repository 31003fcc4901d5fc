/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What the HotSpot walker needs to know about a JVM, and what the walker sends for a frame.
 *
 * All code of a JVM is in the JVM's code heaps, which are within 2 GiB of each other. A heap is
 * divided into segments. The heap's segment map has a byte for each segment, which says how far
 * back the segment's blob starts. A blob starts with a header that HotSpot calls CodeBlob (nmethod,
 * for compiled methods). Offsets in the header differ between builds; user space reads the offsets
 * from the process.
 */
#pragma once

#include "abi/runtime.h"

#define HOTSPOT_MAX_HEAPS 4
/* Bytes of a blob's header that the walker reads; all offsets are below this limit. */
#define HOTSPOT_HEADER_BYTES 384

struct hotspot_heap {
	__u64 segmap; /* avma */
	__u32 start;  /* from hotspot_process.base; start == end: unused */
	__u32 end;
};

enum hotspot_flags {
	HOTSPOT_CODE_OFFSETS = 1, /* code, code_end and deopt are u32 from the blob, not pointers */
	HOTSPOT_SHORT_COMPLETE = 2, /* frame_complete is s16, not s32 */
	HOTSPOT_HAS_MIRROR = 4,	    /* interpreter frames have a slot for the mirror */
	HOTSPOT_TELLS_CLASSES = 8,  /* all offsets for hotspot_cookie() are known */
	HOTSPOT_COUNT = 3 << 4,	    /* two bits: half of the offset of a Symbol's reference count */
};

struct hotspot_process {
	__u64 base; /* avma of the lowest heap */
	struct hotspot_heap heaps[HOTSPOT_MAX_HEAPS];
	__u32 interpreter; /* start of the interpreter's code, from base */
	__u32 interpreter_end;
	__u16 orig_pc; /* offsets in the header */
	__u16 deopt;
	__u16 compile_id;
	__u8 segment_shift;
	__u8 block_header; /* bytes between a segment's start and its blob */
	__u8 flags;
	__u8 name;
	__u8 frame_complete;
	__u8 frame_size;
	__u8 code;
	__u8 code_end;
	__u8 const_method;	/* in Method */
	__u8 const_method_size; /* bytecodes follow the ConstMethod */
	__u16 saved_pc;		/* in JavaThread: pc of the poll that the thread met; 0: unknown */
	__u8 entry_words;	/* words of a ContinuationEntry on the stack */
	/* For hotspot_cookie(): offsets in ConstMethod (two), ConstantPool and Klass. */
	__u8 constants;
	__u8 names;
	__u8 holder;
	__u8 class_name;
	__u8 pool_size; /* bytes of a ConstantPool; the constants follow it */
};
_Static_assert(sizeof(struct hotspot_process) <= sizeof(((struct runtime_process *)0)->room),
	       "hotspot_process");

/*
 * A frame. The address is that of the Method (interpreted) or of the blob; the other word is
 *
 *	kind << 60 | position << 32 | cookie
 *
 *	INTERPRETED	position: bytecode index, or HOTSPOT_NO_POSITION; cookie: hotspot_cookie()
 *	COMPILED	position: pc - code, or HOTSPOT_NO_POSITION in a prologue;
 *			cookie: the compilation's number
 *	STUB		position: pc - code; cookie: pc's lower half
 */
enum hotspot_kind {
	HOTSPOT_INTERPRETED = 1,
	HOTSPOT_COMPILED = 2,
	HOTSPOT_STUB = 3,
};
#define HOTSPOT_KIND_SHIFT 60
#define HOTSPOT_POSITION_SHIFT 32
#define HOTSPOT_NO_POSITION ((1U << 28) - 1)

/*
 * Identifies a method. After HotSpot has freed a method, a method of another class may be at the
 * same addresses if it has the same shape. But then the names of the class and of the method are
 * other Symbols, or at least newer Symbols: a Symbol has a random number beside the reference
 * count, and the cookie includes the random number and excludes the reference count. `names` are
 * four indices of 16 bits into the constants; the first is the index of the method's name.
 *
 * Symbols of classes from an archive may not be in memory when BPF reads them: the lowest bits of
 * the cookie say how many Symbols the cookie includes, the class's first.
 */
#define HOTSPOT_COOKIE_SYMBOLS 3U

static inline __attribute__((always_inline)) __u64 hotspot_mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9fb21c651e98df25ULL;
	return hash ^ (hash >> 32);
}

/* `word`: the Symbol's first 8 bytes, with the reference count at byte `count`. */
static inline __attribute__((always_inline)) __u64 hotspot_mix_symbol(__u64 hash, __u64 symbol,
								      __u64 word, __u32 count)
{
	word &= ~(0xffffULL << (count & 6) * 8);
	return hotspot_mix(hotspot_mix(hash, symbol), word);
}

static inline __attribute__((always_inline)) __u32 hotspot_cookie(__u64 hash, __u32 n_symbols)
{
	return ((__u32)hash & ~HOTSPOT_COOKIE_SYMBOLS) | n_symbols;
}
