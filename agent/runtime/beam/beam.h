/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the BEAM runtime: beam.c has the runtime_ops, learn.c reads binaries,
 * layout.c finds the offsets in a process's data, name.c names frames.
 *
 * The emulator exports its variables (NIF libraries link to it), but not the layout of its structs.
 * The data of a running emulator shows the layout: each struct has fields with known relations, and
 * an offset is accepted only if the relations hold for all objects that are there.
 */
#pragma once

#include "abi/runtime_beam.h"
#include "agent/runtime/tls.h"

#define BEAM_MAX_RANGES (1u << 20) /* modules */
#define BEAM_MAX_FUNCTIONS 65536   /* of a module */

/* What the data of a process with this binary has shown. */
struct beam_layout {
	bool known;
	u64 ranges; /* svma of struct ranges [3], by code index */
	/* struct beam_code_header */
	u16 functions;
	/* struct atom */
	bool boxed_names; /* the name is a bitstring, not an array of bytes */
	/* struct process */
	u16 stop, heap, initial, registered;
	/* struct ErtsSchedulerData_ */
	u16 current;
};

struct beam_learned {
	char release[16]; /* 25 */
	char version[32]; /* of ERTS: 13.1.5 */
	struct beam_binary bpf;
	/* svmas */
	u64 end; /* of the binary */
	u64 code_index, atom_table, normal_exit, frame_layout, near_ranges;
	u64 processes, processes_size;
	u64 schedulers[3];	      /* normal, dirty CPU, dirty IO */
	struct runtime_tls scheduler; /* the thread's ErtsSchedulerData */
	u64 caller;		      /* return address of process_main(); 0: unknown */
	struct beam_layout *layout;   /* owned */
	struct runtime_libc *libc;    /* owned */
};

/* A process whose memory is read. */
struct beam_memory {
	const struct runtime_memory *memory;
	const struct beam_learned *l;
	u64 bias;
};

/* learn.c */
/* Fills *ret from a binary. On failure the diag says what is missing. */
int beam_learn(struct elf_file *elf, struct beam_learned *ret, struct diag *reterr_diag);

/* layout.c */
/* Fills *ret from a process. -EAGAIN: the emulator has not started far enough. */
int beam_find_layout(const struct beam_memory *m, struct beam_layout *ret);

/* name.c */
static inline bool beam_is_atom(u64 term)
{
	return (term & BEAM_ATOM_TAG_MASK) == BEAM_ATOM_TAG &&
	       term >> BEAM_ATOM_SHIFT <= BEAM_ATOM_MASK;
}

#define BEAM_MAX_ATOM 1024 /* bytes: 255 characters of UTF-8 and a NUL fit */
/* Reads an atom's text. -EINVAL: there is no such atom. */
int beam_atom(const struct beam_memory *m, bool boxed_names, u64 index, char *ret);

struct beam_module {
	u64 start, end;
};
/* The number of modules, and where struct Range [n] is. -EAGAIN: there are none yet. */
int beam_modules(const struct beam_memory *m, u64 ranges, u64 *ret_at, u32 *ret_n);
/* The module that contains an address. -ENOENT: there is none. */
int beam_find_module(const struct beam_memory *m, u64 avma, struct beam_module *ret);
/* Names a frame as runtime_ops.name() does. */
int beam_name(const struct beam_memory *m, u64 address, u64 where, struct runtime_names *ret);
