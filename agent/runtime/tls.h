/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the variables that a runtime keeps for each thread. What the runtime's code does to read
 * such a variable, executed symbolically (disasm/exec.h), shows where the variable is; the
 * process's memory completes it to a chain of loads from the thread pointer, for BPF.
 *
 * pthread_getspecific() is read from the process's libc: glibc keeps the values in the thread
 * control block, musl behind a pointer in it.
 */
#pragma once

#include "abi/runtime_common.h"
#include "agent/runtime/runtime.h"
#include "disasm/exec.h"

/* How code finds a variable of the thread. Addresses are svmas. */
enum runtime_tls_kind {
	RUNTIME_TLS_NONE,
	RUNTIME_TLS_FIXED,  /* thread pointer + offset */
	RUNTIME_TLS_WORD,   /* thread pointer + the word at `slot` + offset */
	RUNTIME_TLS_MODULE, /* __tls_get_addr() of the two words at `slot`, + offset */
	RUNTIME_TLS_KEY,    /* pthread_getspecific() of the key at `slot` */
};

struct runtime_tls {
	u32 kind;
	u64 slot;
	s64 offset;
};

/* How pthread_getspecific() works in the libc that was analysed last; zero at first. */
struct runtime_libc {
	u32 file_id;
	u64 first_seen_ns; /* of the file; ids are reused */
	bool known;
	s64 direct;   /* thread pointer + direct + scale × key, when indirect < 0 */
	s64 indirect; /* else *(thread pointer + direct) + indirect + scale × key */
	u32 scale;
};

/* Whether a value is 8 bytes loaded from a variable of the thread. */
bool runtime_is_tls(const struct exec *x, const struct exec_value *v, struct runtime_tls *ret);

/* Whether the argument of a call may be a key for pthread_getspecific(): 4 bytes of a variable. */
bool runtime_is_key(const struct exec *x, const struct exec_value *v, struct runtime_tls *ret);

/*
 * Determines, for a process, how to get from the thread pointer to the content of the variable.
 * `libc` is filled when it is needed and kept for the next call. With RUNTIME_TLS_NONE *ret stays
 * unchanged. -EAGAIN: the process has not started far enough.
 */
int runtime_attach_tls(const struct runtime_target *t, const struct runtime_tls *tls,
		       struct runtime_libc *libc, struct runtime_chain *ret);

/*
 * Determines from its code how a libc's pthread_getspecific() works. -ENOENT: the file has no such
 * function.
 */
int runtime_learn_libc(struct elf_file *elf, struct runtime_libc *ret);
