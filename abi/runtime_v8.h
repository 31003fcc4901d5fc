/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * V8: what user space tells the walker, and what the walker sends.
 *
 * Every V8 frame has {saved fp, return address} at fp. The word below fp is either a marker (a
 * small number, shifted left by one) with the frame's type, or the context of a JavaScript frame.
 * The function of a JavaScript frame is in the next word:
 *
 *	fp + 8	return address
 *	fp	saved fp
 *	fp - 8	context			or: type << 1
 *	fp - 16	JSFunction
 *	…	bytecode array and the offset in the array (interpreted frames)
 *
 * The address of a runtime frame is the SharedFunctionInfo, without tag; `where` is
 *
 *	63…60 enum v8_frame  59…48 cookie of the SharedFunctionInfo  47…0 position
 */
#pragma once

#include "abi/runtime.h"

enum v8_frame {
	V8_FRAME_INTERPRETED = 1, /* position: bytecode offset from the array's tagged address */
	V8_FRAME_COMPILED,	  /* position: pc of the instruction to look up */
	V8_FRAME_BUILTIN,	  /* a function of JavaScript's library; no position */
};
#define V8_FRAME_SHIFT 60
#define V8_COOKIE_SHIFT 48
#define V8_COOKIE_MASK 0xfffULL
#define V8_POSITION_MASK ((1ULL << V8_COOKIE_SHIFT) - 1)

/* Overlays struct runtime_binary. Addresses are svma, ends exclusive. */
struct runtime_v8_binary {
	__u64 builtins_start, builtins_end; /* embedded builtins */
	struct {
		__u64 start, end; /* InterpreterEntryTrampoline and its variant; or 0 */
	} interpreter[2];
	/* Offsets from fp: negative multiples of 8, at least -48. */
	__s32 off_context, off_function, off_bytecode_array, off_bytecode_offset;
	__u32 instance_type;		     /* u16 in Map */
	__u32 first_function, last_function; /* instance types of JSFunction */
	__u32 bytecode_array;		     /* instance type */
	__u32 shared;			     /* in JSFunction, at most 40 */
	__u32 cookie;			     /* in SharedFunctionInfo: 16 bytes, see v8_cookie() */
	__u32 frame_entry, frame_construct_entry, frame_exit, frame_builtin_exit;
	/* DWARF numbers of the registers that hold these values before a frame exists. */
	__u32 reg_function, reg_bytecode_array, reg_bytecode_offset;
	__u32 pad;
};
_Static_assert(sizeof(struct runtime_v8_binary) <= sizeof(struct runtime_binary), "room");

/*
 * The fields of a SharedFunctionInfo that never change: the formal parameters in `first` = {u16
 * length, u16 formal parameters, …}, and the literal's id in `second` = {u32 flags, i32 id of the
 * function literal in its script}. V8 sets the length late.
 */
static inline __u64 v8_cookie(__u64 first, __u64 second)
{
	__u64 h = (first >> 16 & 0xffff) ^ (second >> 32) << 16;

	return (h * 0x9fb21c651e98df25ULL) >> 52;
}
