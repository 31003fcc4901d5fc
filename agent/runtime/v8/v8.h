/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the V8 runtime: what a binary contains about its V8, and how to read a
 * heap.
 *
 * Tagged words: a small integer (Smi) has its value in the upper half and 0 in the lower; a pointer
 * has the low bits 01, a weak pointer 11. Builds with 31-bit Smis (pointer compression: browsers,
 * not Node) are refused.
 */
#pragma once

#include "abi/runtime_v8.h"
#include "agent/runtime/runtime.h"
#include "base/map.h"
#include "base/vec.h"

#define V8_NO_POSITION (-1)
#define V8_VERSION(major, minor, build) ((major)*1000000u + (minor)*1000u + (build))

/*
 * Offsets in objects, without the tag, and instance types, from the binary's v8dbg_* constants or,
 * if they are missing, from the version. -1: unknown.
 */
struct v8_layout {
	s32 smi_shift_size;

	s32 first_nonstring, string_mask, string_encoding_mask, one_byte;
	s32 cons, external, sliced, thin; /* string representations; sequential is 0 */
	s32 string_length, chars, cons_first, cons_second, sliced_parent, sliced_offset;
	s32 thin_actual, external_data;

	s32 map_instance_type;
	s32 type_function, type_first_function, type_last_function;
	s32 type_shared, type_script, type_scope_info, type_bytecode_array, type_code;
	s32 type_stream; /* InstructionStream; -1: a Code holds the instructions itself */
	s32 type_interpreter_data, type_code_wrapper, type_uncompiled_first, type_uncompiled_last;
	s32 type_baseline_data; /* V8 9.0 to 9.6: {map, Code, source of the Code} */

	s32 function_shared;
	s32 shared_name, shared_data, shared_script, shared_length, wrapper_shared;
	s32 scope_first_vars, scope_n_locals;		/* indices of words after the header */
	s32 scope_header, scope_positions;		/* offset; index or -1: after the names */
	s32 scope_saved_class, scope_function_variable; /* bits in its flags; -1: there is none */
	s32 uncompiled_start;
	s32 script_name, script_source, script_line_ends;

	s32 array_length, array_data; /* FixedArray, ByteArray and derived types */
	s32 bytecode_positions, bytecode_data, bytecode_length;
	s32 interpreter_bytecode; /* offset in InterpreterData */

	s32 code_deopt, code_positions, code_start, code_size, code_flags;
	s32 stream_code; /* offset of the Code in InstructionStream */
	s32 kind_mask, kind_baseline;
	s32 deopt_literals, deopt_shared, deopt_inlining;
	s32 deopt_wrapped; /* replaces deopt_shared if that is in a wrapper */

	s32 fp_context, fp_function, fp_bytecode_array, fp_bytecode_offset;
	s32 frame_entry, frame_construct_entry, frame_exit, frame_builtin_exit;
	s32 reg_function, reg_bytecode_array, reg_bytecode_offset;
};

struct v8_lines {
	u64 key, source;
	u32 *ends; /* owned; position of each line's terminator, rising */
	u32 n;
	u64 bytes;     /* bytes that `ends` takes */
	bool too_long; /* the script is too long or has too many lines: unknown */
};

/* What was read before. All of it can be read again, so it may be dropped at any time. */
struct v8_cache {
	struct map stream_maps; /* process → the tagged map of instruction streams */
	struct map scripts;	/* hash of process and script → lines */
	vec(struct v8_lines) lines;
	u64 bytes;
};

struct v8_learned {
	u32 version;
	u32 major, minor, build;
	u32 n_constants;		  /* v8dbg_* in the binary */
	bool by_symbols;		  /* the binary has symbols of the builtins */
	u64 text_start, text_end;	  /* svma of all code in the file */
	u64 builtins_start, builtins_end; /* of the embedded builtins */
	struct v8_layout layout;
	u8 *bytecode_sizes; /* owned: bytes, [3][n_bytecodes] */
	u32 n_bytecodes;
	struct v8_cache *cache; /* owned */
};

/* A process whose heap is being read. */
struct v8_heap {
	const struct runtime_memory *memory;
	const struct v8_learned *v;
	u64 process; /* key of the process in the cache */
	struct arena *arena;
};

/* ---- learn.c ---- */

int v8_learn(const struct procman_binary *b, struct runtime_binary *ret_bpf, void **ret_learned,
	     struct diag *reterr_diag);
void v8_forget(void *learned);

/* ---- heap.c ---- */

static inline bool v8_is_pointer(u64 word)
{
	return (word & 3) == 1 && word > 4096;
}

static inline bool v8_is_smi(u64 word)
{
	return !(word & 0xffffffff);
}

static inline s32 v8_smi(u64 word)
{
	return (s32)(word >> 32);
}

/*
 * Reads the word at an offset, in bytes, of a tagged object. -EFAULT: it cannot be read; -ESTALE:
 * `tagged` is no pointer to an object.
 */
int v8_field(const struct v8_heap *h, u64 tagged, s32 off, u64 *ret);
/* The instance type of a tagged object, or -1. */
s32 v8_type(const struct v8_heap *h, u64 tagged);
/* Copies a string into the arena as UTF-8, at most `max` UTF-16 units of it. */
int v8_string(const struct v8_heap *h, u64 tagged, u32 max, const char **ret);
/* The length of a FixedArray, ByteArray or the like, if it is at most `max`. */
int v8_array_length(const struct v8_heap *h, u64 tagged, u32 max, u32 *ret);
/* The name of a function by its tagged SharedFunctionInfo, in the arena. -ESTALE: it is none. */
int v8_function_name(const struct v8_heap *h, u64 shared, const char **ret);
/*
 * Fills all of *ret but the name from a position in the source; with V8_NO_POSITION, only where the
 * function starts.
 */
void v8_place(const struct v8_heap *h, u64 shared, s32 position, struct runtime_frame *ret);
void v8_cache_destroy(struct v8_cache *c);
/* Forgets the lines of scripts. `learned` is a struct v8_learned. */
void v8_trim(void *learned);

/* ---- code.c ---- */

struct v8_inlined {
	u64 shared; /* tagged */
	s32 position;
};

/* The source position of a bytecode, `offset` bytes from the first; V8_NO_POSITION: unknown. */
s32 v8_bytecode_position(const struct v8_heap *h, u64 shared, s64 offset);
/*
 * Writes the functions at a pc (avma) in compiled code of `shared`, innermost first, at most n.
 * Returns their number, or -ENOENT: the code is gone.
 */
int v8_code_position(const struct v8_heap *h, u64 shared, u64 pc, struct v8_inlined *ret, u32 n);
