/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a short function computes, found by executing its code on symbols instead of numbers: which
 * address it passes on, which word relative to the thread pointer it returns.
 *
 * A value is a sum: constant + factor × symbol + …; a symbol is an argument, the thread pointer,
 * what some address holds, or what a call has returned. Anything else is unknown, and what is
 * computed from it as well; nothing is ever guessed. Memory that the code itself writes is not
 * followed.
 *
 * Both ways of a branch are taken, as the code is reached, up to EXEC_MAX_PATHS of them.
 */
#pragma once

#include "base/buf.h"
#include "base/types.h"

#define EXEC_MAX_TERMS 3
#define EXEC_MAX_SYMBOLS 48
#define EXEC_MAX_PATHS 24
#define EXEC_MAX_INSNS 96 /* of a path */
#define EXEC_N_REGS 32

enum exec_symbol_kind {
	EXEC_ARG,    /* the first argument */
	EXEC_THREAD, /* the thread pointer */
	EXEC_LOAD,   /* `size` bytes at `at` */
	EXEC_RESULT, /* of a call; `at` was its first argument */
};

struct exec_term {
	u32 symbol;
	s64 factor;
};

struct exec_value {
	bool known;
	u8 n;
	u64 constant;
	struct exec_term terms[EXEC_MAX_TERMS];
};

struct exec_symbol {
	u8 kind; /* enum exec_symbol_kind */
	u8 size;
	struct exec_value at;
};

struct exec {
	struct exec_symbol symbols[EXEC_MAX_SYMBOLS];
	u32 n_symbols;
	struct exec_value regs[EXEC_N_REGS];
};

enum exec_event {
	EXEC_CALLS,   /* or jumps: the first argument */
	EXEC_RETURNS, /* the value */
};

struct exec_program {
	/* Code at svma, up to `n` bytes; borrowed until the next call. */
	bool (*code)(void *arg, u64 svma, size_t n, struct buf *ret);
	/* A word of memory that never changes, such as the GOT's; false: not known. */
	bool (*constant)(void *arg, u64 svma, u64 *ret);
	/* True: enough is known, stop. */
	bool (*event)(void *arg, const struct exec *x, enum exec_event event,
		      const struct exec_value *value);
	void *arg;
};

/* Runs the function at svma. 0, or -ENOTSUP for a machine that is not understood, -ENOMEM. */
int exec_run(const struct exec_program *p, u16 e_machine, u64 svma);

/* The address that `value` was loaded from (`size` bytes), when it is nothing but that. */
bool exec_is_load(const struct exec *x, const struct exec_value *value, u8 size,
		  struct exec_value *ret_at);
/* constant, and no symbol. */
bool exec_is_constant(const struct exec_value *value, u64 *ret);
/* The factor of the first symbol of a kind, 0 when there is none. */
s64 exec_factor(const struct exec *x, const struct exec_value *value, enum exec_symbol_kind kind,
		u32 *ret_symbol);
