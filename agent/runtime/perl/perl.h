/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the Perl runtime: perl.c has the runtime_ops, learn.c reads binaries,
 * name.c reads objects.
 */
#pragma once

#include "abi/runtime_perl.h"
#include "agent/runtime/tls.h"

struct perl_learned {
	u32 version, subversion; /* 36 and 0 for 5.36.0 */
	bool threaded;
	struct perl_binary bpf;
	/* With threads: */
	struct runtime_tls thread; /* a thread's interpreter, by the key PL_thr_key */
	u64 interpreter;	   /* svma of PL_curinterp: the process's first interpreter */
	struct runtime_libc *libc; /* owned */
};

/* learn.c */
/* Whether a path looks like Perl's executable or library. */
bool perl_is_name(const char *path);
/* Whether the file contains Perl's loop. */
bool perl_has_loop(struct elf_file *elf);
/* Fills *ret from a binary. On failure the diag says what is missing. */
int perl_learn(struct elf_file *elf, struct perl_learned *ret, struct diag *reterr_diag);

/* name.c */
/* Names a frame as runtime_ops.name() does; `bias` is avma - svma of the binary. */
int perl_name(const struct runtime_memory *m, const struct perl_learned *l, u64 bias, u64 address,
	      u64 where, struct runtime_names *ret);
