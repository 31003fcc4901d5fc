/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Lua of PUC-Rio: what user space tells the walker (bpf/unwind/lua.h), and what the walker sends.
 *
 * The interpreter's loop is luaV_execute(). Each call of it runs a part of the list of CallInfos of
 * one coroutine (a lua_State), up to a CallInfo that was called from C. CallInfos of C functions
 * are between the parts:
 *
 *	native stack		L.ci
 *	luaV_execute	─→	h(), g() (fresh)
 *	lua_call, a C function	the C function
 *	luaV_execute	─→	f(), main chunk (fresh)
 *
 * The address of a runtime frame is the Proto, or the value of a C function; `where` is
 *
 *	63…36 cookie  35 the caller's instruction names the function  34…32 enum lua_kind
 *	31…0 number of the instruction after the current one
 */
#pragma once

#include "abi/runtime.h"
#include "abi/runtime_common.h"

enum lua_kind {
	LUA_LUA,
	LUA_C, /* no position and no cookie */
};
#define LUA_KIND_SHIFT 32
#define LUA_KIND_MASK 7
#define LUA_NAMED (1ULL << 35)
#define LUA_COOKIE_SHIFT 36
#define LUA_NO_POSITION 0xffffffffU

#define LUA_MAX_RANGES 4
#define LUA_STATE_BYTES 184 /* that the walker reads of a lua_State */
#define LUA_CI_BYTES 72
#define LUA_PROTO_BYTES 128
#define LUA_TYPE_THREAD 8
#define LUA_TYPE_FUNCTION 6

struct lua_binary {
	struct runtime_range loops[LUA_MAX_RANGES]; /* the interpreter's loop */
	__u32 n_loops;
	/* 5.1: CallInfos are an array, and have no flags. */
	__u32 is_51;
	/* Offsets in a lua_State; all are below LUA_STATE_BYTES. */
	__u32 state_ci, state_stack, state_last, state_base_ci;
	__u32 state_jump; /* list of the setjmp() buffers on the native stack */
	__u32 state_pc;	  /* 5.1: pc of the current function */
	/* Offsets in a CallInfo; all are below LUA_CI_BYTES. */
	__u32 ci_bytes; /* 5.1: size of a CallInfo */
	__u32 ci_func, ci_previous, ci_pc, ci_status;
	/* Flags of a CallInfo: status & mask == value. */
	__u32 c_mask, c_value;	       /* a C function */
	__u32 fresh_mask, fresh_value; /* the first function of a call of the loop */
	__u32 tail_mask;
	__u32 closure_proto;
	/* Offsets in a Proto; all are below LUA_PROTO_BYTES. */
	__u32 proto_code, proto_n_code;
	__u32 proto_lines; /* first and last line of the definition, u32 each; not aligned */
	__u32 proto_source;
	/* 5.1: instructions whose callee runs in the same call of the loop. */
	__u32 op_call, op_tailcall;
};
_Static_assert(sizeof(struct lua_binary) <= sizeof(((struct runtime_binary *)0)->room),
	       "lua_binary");

/* 28 bits of words of a Proto that do not change as long as it lives. */
static inline __attribute__((always_inline)) __u64 lua_cookie(__u64 source, __u64 lines,
							      __u64 n_code)
{
	__u64 h = source * 0x9fb21c651e98df25ULL;

	h = ((h ^ (h >> 29)) + lines) * 0x9fb21c651e98df25ULL;
	h = ((h ^ (h >> 29)) + n_code) * 0x9fb21c651e98df25ULL;
	return h >> LUA_COOKIE_SHIFT << LUA_COOKIE_SHIFT;
}
