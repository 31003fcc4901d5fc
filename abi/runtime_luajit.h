/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * LuaJIT: what user space tells the walker (bpf/unwind/luajit.h), and what the walker sends.
 *
 * Each entry from C to the VM makes a C frame on the native stack. The VM and traces run on top of
 * it. The Lua stack of a coroutine (a lua_State) is a list of frames of its own, in which marks
 * divide the parts that belong to the C frames:
 *
 *	native stack			Lua stack of L
 *	VM or trace
 *	C frame {L, pc, previous} ─→	f(), g(), h() up to a frame of type C
 *	C function
 *	C frame {L, pc, previous} ─→	the C function, main chunk, …
 *
 *	base - 32, - 24		of a continuation: its kind, and the pc of the caller
 *	base - 16		function, a tagged pointer
 *	base - 8		pc of the caller, or bytes to the caller's base; the type in 3 bits
 *	base			slots of the function
 *
 * All of this is the layout of builds with 64-bit pointers to objects (LJ_GC64; lj_frame.h,
 * lj_obj.h).
 *
 * The address of a runtime frame is the GCproto, the GCfuncC or the GCtrace; `where` is
 *
 *	63…36 cookie  35 the caller's instruction names the function  34…32 enum luajit_kind
 *	31…0 position
 */
#pragma once

#include "abi/runtime.h"

enum luajit_kind {
	LUAJIT_LUA,   /* position: number of the instruction after the current one */
	LUAJIT_C,     /* a function of C or of the VM; no position */
	LUAJIT_TRACE, /* the functions in a trace; position: bytes of machine code */
	LUAJIT_MARK,  /* the trace itself */
};
#define LUAJIT_KIND_SHIFT 32
#define LUAJIT_KIND_MASK 7
#define LUAJIT_NAMED (1ULL << 35)
#define LUAJIT_COOKIE_SHIFT 36
#define LUAJIT_NO_POSITION 0xffffffffU

/* Offsets in objects (lj_obj.h, lj_jit.h). */
#define LUAJIT_STATE_G 16
#define LUAJIT_STATE_BASE 32
#define LUAJIT_STATE_STACK 56
#define LUAJIT_STATE_CFRAME 80
#define LUAJIT_OBJECT_TYPE 9
#define LUAJIT_TYPE_PROTO 7
#define LUAJIT_TYPE_FUNCTION 8
#define LUAJIT_FUNCTION_FFID 10
#define LUAJIT_FUNCTION_PC 32
#define LUAJIT_FUNCTION_C 40
#define LUAJIT_PROTO_BYTES 104 /* the bytecode follows */
#define LUAJIT_PROTO_SIZE 12
#define LUAJIT_PROTO_CHUNK 64
#define LUAJIT_PROTO_LINES 72 /* first line, number of lines: u32 each */
#define LUAJIT_TRACE_BYTES 112
#define LUAJIT_TRACE_PROTO 64
#define LUAJIT_TRACE_PC 72
#define LUAJIT_TRACE_SIZE 84
#define LUAJIT_TRACE_MCODE 88
#define LUAJIT_TRACE_NUMBER 104
/* Values of vmstate: the number of the running trace, if positive, or what runs. */
#define LUAJIT_VMSTATE_INTERPRETER (-1)
#define LUAJIT_VMSTATE_C (-2)
/* The upper 17 bits of a value are its tag. */
#define LUAJIT_POINTER ((1ULL << 47) - 1)

/* Overlays struct runtime_binary. */
struct luajit_binary {
	__u64 start, end; /* svma: the VM */
	/* Offsets in global_State. */
	__s32 jit_base;
	__s32 vmstate; /* LUAJIT_VMSTATE_*, or the number of the running trace */
	__s32 traces;  /* array of GCtrace, by number */
	/* Offsets in a C frame. */
	__u32 cframe_l, cframe_pc, cframe_nres, cframe_previous;
	__u32 cframe_bytes;
	__u32 cframe_fp, cframe_ra; /* saved registers */
	/* DWARF numbers of the registers with the base and the pc. */
	__u32 reg_base, reg_pc;
};
_Static_assert(sizeof(struct luajit_binary) <= sizeof(((struct runtime_binary *)0)->room),
	       "luajit_binary");

/* 28 bits of three words that do not change as long as the object lives. */
static inline __attribute__((always_inline)) __u64 luajit_cookie(__u64 a, __u64 b, __u64 c)
{
	__u64 h = a * 0x9fb21c651e98df25ULL;

	h = ((h ^ (h >> 29)) + b) * 0x9fb21c651e98df25ULL;
	h = ((h ^ (h >> 29)) + c) * 0x9fb21c651e98df25ULL;
	return h >> LUAJIT_COOKIE_SHIFT << LUAJIT_COOKIE_SHIFT;
}
