/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the BEAM runtime: beam.c has the runtime_ops, learn.c reads binaries,
 * bare.c those that export no variables, layout.c finds the offsets in a process's data, name.c
 * names frames.
 *
 * The emulator exports its variables (NIF libraries link to it), but not the layout of its structs.
 * The data of a running emulator shows the layout: each struct has fields with known relations, and
 * an offset is accepted only if the relations hold for all objects that are there.
 */
#pragma once

#include "abi/runtime_beam.h"
#include "agent/runtime/binary.h"
#include "agent/runtime/tls.h"

#define BEAM_MAX_RANGES (1u << 20) /* modules */
#define BEAM_MAX_FUNCTIONS 65536   /* of a module */

/* Code of the binary that the walker recognises. */
struct beam_code {
	struct beam_part dirty, schedule, calls[BEAM_MAX_CALLS];
	u32 caller; /* svma: return address of process_main(); 0: unknown */
	u16 caller_fp;
};

/* What the data of a process with this binary has shown. */
struct beam_layout {
	bool known;
	bool known_code; /* what only a bare binary needs: code, code_index */
	struct beam_code code;
	u64 code_index; /* svma; 0: unknown */
	u64 ranges;	/* svma of struct ranges [3], by code index */
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
	/* It exports no variables, so that data and code of a process have to show them. */
	bool bare;
	struct runtime_range data; /* what it can write to, if it is bare */
	struct beam_code code;	   /* unless it is bare */
	/* svmas; 0: a bare binary does not tell */
	u64 end; /* of the binary */
	u64 code_index, atom_table, normal_exit, frame_layout, near_ranges;
	u64 processes, processes_size;
	u64 schedulers[3];	      /* normal, dirty CPU, dirty IO */
	struct runtime_tls scheduler; /* the thread's ErtsSchedulerData */
	u16 current;		      /* of a bare binary: offset in ErtsSchedulerData_ */
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
int beam_learn(struct elf_file *elf, const char *path, struct beam_learned *ret,
	       struct diag *reterr_diag);
/* Where the thread's ErtsSchedulerData is, from the code of erts_get_scheduler_data(). */
int beam_find_key(struct elf_file *elf, u64 svma, struct beam_learned *l, struct diag *d);
/*
 * The frame pointer of the function that a return address is in, relative to the stack pointer
 * after the call; 0: the function has none, or it is not known.
 */
u16 beam_caller_fp(struct elf_file *elf, const struct runtime_functions *functions, u64 caller);

/* bare.c */
/* The same for a binary that exports the functions for NIFs only. */
int beam_learn_bare(struct elf_file *elf, const char *path, struct beam_learned *ret,
		    struct diag *reterr_diag);
/*
 * Fills ret->code and ret->code_index from the n bytes of JIT code that belong to no module, in
 * which a scheduler's loop is at `loop`, and from what the loop of this process has on the C stack.
 */
int beam_find_code(const struct beam_memory *m, struct elf_file *elf, const struct beam_process *p,
		   const u8 *code, size_t n, size_t loop, struct beam_layout *ret);

/* layout.c */
/* Fills *ret from a process. -EAGAIN: the emulator has not started far enough. */
int beam_find_layout(const struct beam_memory *m, struct beam_layout *ret);
/*
 * The return address of the first functions of most processes, and whether frames of these
 * processes have a saved frame pointer.
 */
int beam_find_stacks(const struct beam_memory *m, const struct beam_layout *layout,
		     u64 *ret_normal_exit, bool *ret_frame_pointers);

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
