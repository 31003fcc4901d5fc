/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The data of the BEAM's walker (bpf/unwind/beam.h), laid over `room` in the structs of
 * abi/runtime.h, and what the walker sends for a frame.
 *
 * The address and the second word of a frame are, by enum beam_frame in the second word's upper
 * four bits:
 *
 *	CODE		pc			cookie of the code around pc
 *	FUNCTION	module, function	arity
 *	REGISTERED	name
 *	INITIAL		module, function	arity
 *
 * Module, function and name are indices in the table of atoms, of 28 bits each. An atom is never
 * removed, so only CODE has a cookie.
 */
#pragma once

#include "abi/runtime.h"
#include "abi/runtime_common.h"

enum beam_frame {
	BEAM_CODE = 1,	 /* code of a module */
	BEAM_FUNCTION,	 /* a function that is written in C: a BIF or a NIF */
	BEAM_REGISTERED, /* root frame: the process's registered name */
	BEAM_INITIAL,	 /* root frame: the function that the process was started with */
};
#define BEAM_FRAME_SHIFT 60
#define BEAM_ATOM_BITS 28
#define BEAM_ATOM_MASK ((1ULL << BEAM_ATOM_BITS) - 1)

/* Atoms are immediate terms (erts/emulator/beam/erl_term.h). */
#define BEAM_ATOM_TAG 0x0bULL
#define BEAM_ATOM_TAG_MASK 0x3fULL
#define BEAM_ATOM_SHIFT 6

/* struct ErtsCodeMFA: module, function, arity. */
#define BEAM_MFA_WORDS 3
/* struct reg_proc (register.h): a bucket of a hash table, the process, a port, the name. */
#define BEAM_REG_PROCESS 16
#define BEAM_REG_NAME 32

/* A function of the binary, by svmas; start == end: there is no such function. */
struct beam_part {
	__u32 start, end;
};
static inline int beam_in(const struct beam_part *part, __u64 svma)
{
	return svma >= part->start && svma < part->end;
}

/* C functions that run an Erlang function that is written in C. */
#define BEAM_MAX_CALLS 4

#define BEAM_MAX_LOADS 2

/* Overlays struct runtime_process.room. */
struct beam_process {
	struct runtime_range shared; /* avma of JIT code that belongs to no module */
	__u64 normal_exit;	     /* the return address of a process's first function */
	struct beam_part dirty;	     /* the loop of a dirty scheduler */
	struct beam_part schedule;   /* chooses the next process: no process runs */
	struct beam_part calls[BEAM_MAX_CALLS];
	/* Offsets of the loads from the thread pointer to the thread's ErtsSchedulerData. */
	__s32 scheduler[BEAM_MAX_LOADS];
	__u32 caller;	     /* svma: the return address of a scheduler's loop; 0: unknown */
	__u16 caller_fp;     /* frame pointer of that caller - its sp; 0: it has none */
	__u16 registers;     /* bytes that a scheduler's loop reserves on the C stack */
	__u16 current;	     /* ErtsSchedulerData → Process */
	__u16 stop;	     /* in Process: top of the Erlang stack */
	__u16 heap;	     /* in Process: start of the heap; the next word is its end */
	__u16 initial;	     /* in Process: an MFA; the next word points to the current MFA */
	__u16 registered;    /* in Process: pointer to struct reg_proc, or 0 */
	__u8 n_loads;	     /* in `scheduler` */
	__u8 frame_pointers; /* Erlang frames have a saved frame pointer */
	__u8 c_stack;	     /* displacement by which JIT code switches to the C stack */
	__u8 pad[3];
};
_Static_assert(sizeof(struct beam_process) <= sizeof(((struct runtime_process *)0)->room), "room");

/* The cookie of CODE, from the bytes [pc - 8, pc + 8). */
static inline __u64 beam_cookie(__u64 before, __u64 after)
{
	__u64 h = (before * 0x9fb21c651e98df25ULL) ^ after;

	return (h * 0x9fb21c651e98df25ULL) >> 32;
}
