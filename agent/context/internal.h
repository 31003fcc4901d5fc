/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of agent/context share. */
#pragma once

#include "abi/context.h"
#include "agent/context/context.h"
#include "base/diag.h"
#include "elf/elf.h"

/* ---- thread-local variables (tls.c) ---- */

enum tls_model {
	TLS_DESCRIPTOR,	 /* GOT: a resolver and its argument */
	TLS_MODULE,	 /* GOT: module and offset in its block */
	TLS_MODULE_SELF, /* GOT: module; the offset is the symbol's value */
	TLS_OFFSET,	 /* GOT: offset from the thread pointer */
	TLS_FIXED,	 /* `offset` from the thread pointer: an executable's own */
};

/* How code reaches a variable that its file exports. */
struct tls_variable {
	enum tls_model model;
	u64 got; /* svma */
	u64 value;
	s64 offset;
};

/* -ENOENT: the file exports no such thread-local variable, or code could not reach it. */
int tls_find(struct elf_file *elf, const char *name, struct tls_variable *ret);
/* The svma of a variable that is not thread-local; -ENOENT. */
int tls_find_plain(struct elf_file *elf, const char *name, u64 *ret_svma);
/* Where threads of the process have it. -EAGAIN: the loader has not been there yet. */
int tls_locate(const struct tls_variable *v, u32 pid, u64 bias, struct context_tls *ret);
/* How the process's C library keeps the blocks of its threads. */
void tls_describe_libc(const struct procman_process *p, struct context_process *ret);

/* ---- one for each line of abi/tbl/context.tbl ---- */

/* What is known of a file. */
struct context_binary {
	struct tls_variable tls;
	struct context_go go;
	u32 node_record;
	u64 storage; /* Elastic: svma of the pointer to what the process says */
};

struct context_target {
	const struct procman_process *process;
	const struct procman_mapping *mapping; /* one of the file's */
};

struct context_ops {
	/* Does the file publish? Asked once; -ENOENT is the usual answer. */
	int (*find)(const struct procman_binary *b, struct context_binary *ret);
	/* Adds what the reader in BPF needs. -EAGAIN: it is too early. */
	int (*attach)(const struct context_target *t, const struct context_binary *b,
		      struct context_process *ret);
};

#define CONTEXT(id, name, ...) extern const struct context_ops context_##name;
#include "abi/tbl/context.tbl"
#undef CONTEXT

/* ---- what Elastic's agents say of their process (elastic.c) ---- */

struct elastic_storage {
	char service[129], environment[129];
	char socket[CONTEXT_MAX_SOCKET];
};

/* -EAGAIN: it says nothing (yet, or any more). */
int elastic_read(const struct context_target *t, const struct context_binary *b,
		 struct elastic_storage *ret);
int elastic_parse(const u8 *bytes, size_t n, struct elastic_storage *ret);

/* ---- OpenTelemetry's process context, OTEP 4719 (process.c) ---- */

struct process_context {
	u64 header;    /* avma; 0: none was found */
	u64 published; /* its time: another one is another content */
};

/*
 * 1 when there is one that was not read before: label() was called for each of its attributes.
 * 0: nothing new; -ENOENT: none.
 */
int process_context_read(u32 pid, struct process_context *c,
			 int (*label)(void *arg, const char *name, const char *value), void *arg);
