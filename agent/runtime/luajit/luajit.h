/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the LuaJIT runtime: luajit.c has the runtime_ops, learn.c reads binaries,
 * name.c names functions, trace.c finds the functions in a trace.
 */
#pragma once

#include "abi/runtime_luajit.h"
#include "agent/runtime/runtime.h"

struct luajit_learned {
	char version[48];	  /* "2.1.0-beta3" */
	u64 text_start, text_end; /* svma */
	struct luajit_binary bpf;
};

/* learn.c */
/* Fills *ret from a binary. On failure the diag says what is missing; *ret is untouched. */
int luajit_learn(struct elf_file *elf, struct luajit_learned *ret, struct diag *reterr_diag);

/* name.c */
/* A function's bytecode and what describes it. */
struct luajit_proto {
	u64 at;
	u32 n_code;
	u64 constants, chunk, lines, upvalues, variables, end;
	u32 first_line, n_lines;
	u32 n_upvalues;
};
/* Where a function is: the instruction before the n-th is the current one. */
struct luajit_place {
	struct luajit_proto proto;
	u32 n; /* LUAJIT_NO_POSITION: unknown */
};

/* Names a frame as runtime_ops.name() does. */
int luajit_name(const struct runtime_memory *m, u64 address, u64 where, struct runtime_names *ret);
/* -EFAULT, or -ESTALE: there is no function at the address. */
int luajit_read_proto(const struct runtime_memory *m, u64 at, struct luajit_proto *ret);
/* Describes a frame whose function the instruction at `caller` names; NULL: nothing does. */
int luajit_describe(const struct runtime_memory *m, const struct luajit_place *at,
		    const struct luajit_place *caller, struct arena *arena,
		    struct runtime_frame *ret);
/*
 * The name that the current instruction has for the function that it calls. -ENOENT: none.
 */
int luajit_callee(const struct runtime_memory *m, const struct luajit_place *at,
		  struct arena *arena, const char **ret);

/* trace.c */
struct luajit_trace {
	u64 at, proto, pc, mcode;
	u64 snapshots, map, code; /* code: of the intermediate representation */
	u32 n_snapshots, n_map, first_constant;
	u32 mcode_bytes;
	u16 number, root;
};
/* -ESTALE: another trace is at the address than the one with this cookie. */
int luajit_read_trace(const struct runtime_memory *m, u64 at, u64 where, struct luajit_trace *ret);
/*
 * The functions that the trace runs at an offset in its machine code, innermost first. Returns
 * their number, or a negative errno.
 */
int luajit_trace_places(const struct runtime_memory *m, const struct luajit_trace *t, u32 offset,
			struct luajit_place *ret, u32 max);
