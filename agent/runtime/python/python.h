/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the Python runtime: python.c has the runtime_ops, learn.c reads binaries,
 * offsets.c has the offsets of each version, thread.c finds a thread's state, name.c reads objects.
 */
#pragma once

#include "abi/runtime_python.h"
#include "agent/runtime/tls.h"

/* Offsets that only naming needs; those that BPF needs as well are in `bpf`. */
struct python_objects {
	u32 code_filename;
	u32 code_name; /* since 3.11 the qualified name */
	u32 code_firstlineno;
	u32 code_lines; /* lnotab or linetable */
	u32 bytes_size, bytes_data;
	u32 str_length, str_state;
	u32 str_ascii, str_compact; /* offset of the data */
	u32 str_kind_shift;
};

/* How to find the GIL of the main interpreter, and offsets in it. */
struct python_gil {
	u32 of_runtime;	    /* up to 3.11: offset of the struct in _PyRuntime; 0: it is elsewhere */
	u32 of_interpreter; /* offset of the pointer to it in an interpreter's state; 0: likewise */
	u32 holder, locked, cond;
	u32 thread_native, thread_id; /* offsets in a thread state, as in python_lock */
};

struct python_learned {
	u32 version; /* 0x030b for 3.11 */
	bool free_threaded;
	bool published; /* the offsets are from _Py_DebugOffsets */
	bool jit;	/* built with the JIT, which may be disabled */
	struct python_binary bpf;
	struct python_objects objects;
	struct python_gil gil;
	struct runtime_tls current, bound;
	u16 machine;
	u64 runtime;		   /* _PyRuntime, 0 before 3.7 */
	struct runtime_libc *libc; /* owned */
};

/* learn.c */
/* Fills *ret from a binary. On failure the diag says what is missing; *ret is untouched. */
int python_learn(struct elf_file *elf, const char *path, struct python_learned *ret,
		 struct diag *reterr_diag);
/* Whether a path looks like CPython's executable or library. */
bool python_is_name(const char *path);
/* Whether the file contains the interpreter's loop. */
bool python_has_loop(struct elf_file *elf);

/* offsets.c: fills l->bpf and l->objects for l->version. On failure the diag says why. */
int python_offsets(struct elf_file *elf, struct python_learned *l, struct diag *reterr_diag);

/* thread.c */
/* Determines how the binary's code finds a thread's state. */
int python_learn_thread(struct elf_file *elf, struct python_learned *l, struct diag *reterr_diag);
/*
 * Determines, for a process, how to get from the thread pointer to the variable that `tls`
 * describes. -EAGAIN: the process has not started far enough.
 */
int python_attach_thread(const struct runtime_target *t, const struct python_learned *l,
			 const struct runtime_tls *tls, struct runtime_chain *ret);

/* Finds the GIL of the process's main interpreter. 1: there is none yet. */
int python_attach_gil(const struct runtime_target *t, const struct python_learned *l,
		      struct python_lock *ret);

/* name.c */
/* Names a frame as runtime_ops.name() does. */
int python_name(const struct runtime_memory *m, const struct python_learned *l, u64 address,
		u64 where, struct runtime_names *ret);
/*
 * Returns the line of a position, in bytes of bytecode, from a line table; `first` is the first
 * line of the function. 0: no line.
 */
u32 python_line_of_lnotab(const u8 *table, size_t n, u32 first, s64 at);
u32 python_line_of_linetable_310(const u8 *table, size_t n, u32 first, s64 at);
u32 python_line_of_locations(const u8 *table, size_t n, u32 first, s64 at);
