/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of agent/context share. */
#pragma once

#include "abi/context.h"
#include "abi/sample.h"
#include "agent/context/context.h"
#include "base/buf.h"
#include "base/diag.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "elf/elf.h"
#include "otlp/otlp.h"

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
	u64 got_foff;
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
	const char *symbol; /* the exported thread-local variable; NULL: none */
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
 * 1 when there is one that was not read before: said() was called for each thing that it says.
 * 0: nothing new; -ENOENT: none.
 */
int process_context_read(u32 pid, struct process_context *c,
			 int (*said)(void *arg, const struct otlp_said *s), void *arg);

/* ---- what threads say of their work (attributes.c) ---- */

/* One attribute as it is in a record; texts are any bytes, borrowed. */
struct attribute {
	u32 number;	 /* ATTRIBUTES_NUMBERED: of its name */
	struct buf name; /* ATTRIBUTES_NAMED */
	struct buf text;
	bool cut; /* the text goes on */
};

/* False at the end, or where what follows is not whole. */
bool attribute_next(struct buf *b, u32 form, struct attribute *ret);
/* Ids, and names that say who a thread or process is: not attributes. */
bool attribute_is_taken(const char *name);

/* The names that a process has given numbers to, from 0 on. */
#define ATTRIBUTES_MAX_NAMES 256
struct attribute_names {
	struct str text; /* name, NUL, … */
	vec(u32) at;
};
void attribute_names_deinit(struct attribute_names *n);
int attribute_names_add(struct attribute_names *n, const char *name);
/* Does it know the name of each? */
bool attributes_have_names(const struct record_attributes *head, const u8 *bytes,
			   const struct attribute_names *names);

/* What is kept apart in an hour: of all processes, and of one. */
#define ATTRIBUTES_MAX_KNOWN 65536
#define ATTRIBUTES_MAX_OF_NAME 128
#define ATTRIBUTES_MAX_TEXTS 1024
#define ATTRIBUTES_MAX_SETS 1024
struct attribute_bounds {
	struct map known; /* hashes of what there is; of a name: how many */
	u64 since_ns;
	u32 hour;
};
struct attribute_share {
	u64 owner; /* which process image */
	u32 hour;
	u32 n_texts, n_sets;
	bool said; /* that there is more */
};
void attribute_bounds_deinit(struct attribute_bounds *b);
/* Another hour may have begun. */
void attribute_bounds_begin(struct attribute_bounds *b, u64 now_ns);
bool attribute_admit(struct attribute_bounds *b, struct attribute_share *s, const char *name,
		     const char *text);

/* How many labels; they lie in `texts` until that changes. Partial: some were left out. */
u32 attributes_decode(const struct record_attributes *head, const u8 *bytes,
		      const struct attribute_names *names, struct attribute_bounds *bounds,
		      struct attribute_share *share, struct str *texts,
		      struct context_label ret[CONTEXT_MAX_ATTRIBUTES], bool *ret_partial);
