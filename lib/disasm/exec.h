/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes a short function symbolically to find out what it computes: for example which address it
 * passes on, or which word relative to the thread pointer it returns.
 *
 * A value is a sum: constant + factor × symbol + …. A symbol is an argument, the thread pointer,
 * the content of an address, or the result of a call. Any other value is unknown, and so is
 * everything computed from it; nothing is guessed. Memory that the code writes is not tracked.
 *
 * Both sides of a branch are executed, up to EXEC_MAX_PATHS paths in all.
 */
#pragma once

#include "base/buf.h"
#include "base/types.h"

#define EXEC_MAX_TERMS 3
#define EXEC_MAX_SYMBOLS 48
#define EXEC_MAX_PATHS 24
#define EXEC_MAX_INSNS 96 /* instructions of a path */
#define EXEC_N_REGS 32

enum exec_symbol_kind {
	EXEC_ARG,    /* the first argument */
	EXEC_THREAD, /* the thread pointer */
	EXEC_LOAD,   /* `size` bytes at `at` */
	EXEC_RESULT, /* the result of a call; `at` was its first argument */
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
	EXEC_CALLS,   /* a call, or a jump out: `value` is the first argument */
	EXEC_RETURNS, /* `value` is the result */
};

struct exec_program {
	/* Returns up to n bytes of code at svma, borrowed until the next call. False: there is no
	 * code. */
	bool (*code)(void *arg, u64 svma, size_t n, struct buf *ret);
	/* Returns a word of memory that never changes, such as one of the GOT. False: it is
	 * unknown. */
	bool (*constant)(void *arg, u64 svma, u64 *ret);
	/* Receives an event. True: stop. */
	bool (*event)(void *arg, const struct exec *x, enum exec_event event,
		      const struct exec_value *value);
	void *arg;
};

/* Runs the function at svma. -ENOTSUP: the machine is unknown; -ENOMEM. */
int exec_run(const struct exec_program *p, u16 e_machine, u64 svma);

/* Whether `value` is nothing but `size` bytes loaded from an address. */
bool exec_is_load(const struct exec *x, const struct exec_value *value, u8 size,
		  struct exec_value *ret_at);
/* Whether `value` is a constant, without any symbol. */
bool exec_is_constant(const struct exec_value *value, u64 *ret);
/* Returns the factor of the first symbol of a kind; 0: there is none. */
s64 exec_factor(const struct exec *x, const struct exec_value *value, enum exec_symbol_kind kind,
		u32 *ret_symbol);
