/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the Lua runtime: lua.c has the runtime_ops, learn.c reads binaries,
 * offsets.c has the offsets of each version, name.c names functions, text.c is LuaJIT's as well.
 */
#pragma once

#include "abi/runtime_lua.h"
#include "agent/runtime/runtime.h"

/* Instructions that may call a metamethod. */
struct lua_event {
	u8 from, to;	  /* to: the last one */
	const char *name; /* NULL: operand C is the number of the metamethod */
};

/* The instructions of a version that naming looks at. */
struct lua_ops {
	const struct lua_event *events; /* the last one has no name, and from is 255 */
	u8 move, get_upvalue, get_global, get_table, get_field, self;
	u8 call, tail_call, iterate, jump;
	u8 closure, set_list; /* 5.1: words that are no instructions follow */
	/* 5.1 to 5.3: op 6 bits, A 8, C 9, B 9; from 5.4 on: op 7, A 8, k 1, B 8, C 8 */
	bool wide;
	/* Bits: the instructions that write register A, or registers from A on. */
	u64 writes[2], writes_from[2];
};

/* Offsets that only naming needs; those that BPF needs as well are in `bpf`. */
struct lua_objects {
	u32 proto_k, proto_lines, proto_abs_lines, proto_n_abs_lines, proto_variables,
		proto_n_variables;
	u32 proto_upvalues, proto_n_upvalues;
	u32 upvalue_bytes; /* of an upvalue's description, which begins with its name */
	u32 string_data;
};

struct lua_learned {
	u32 version; /* 0x0504 */
	u32 release; /* 4 of 5.4.4 */
	struct lua_binary bpf;
	struct lua_objects objects;
	const struct lua_ops *ops; /* static */
};

/* learn.c */
/* Fills *ret from a binary. On failure the diag says what is missing; *ret is untouched. */
int lua_learn(struct elf_file *elf, struct lua_learned *ret, struct diag *reterr_diag);

/* offsets.c: fills all but the loop for l->version and l->release. -ENOTSUP: it is unknown. */
int lua_offsets(struct lua_learned *l);

/* name.c */
/* Names a frame as runtime_ops.name() does. */
int lua_name(const struct runtime_memory *m, const struct lua_learned *l, u64 address, u64 where,
	     struct runtime_names *ret);
/*
 * The line of an instruction from 5.4 on: differences, and a table of some instructions and their
 * lines. 0: unknown.
 */
struct lua_line_at {
	s32 pc, line;
};
u32 lua_line_of_differences(const s8 *by, u32 n_by, const struct lua_line_at *table, u32 n_table,
			    u32 first, u32 pc);
