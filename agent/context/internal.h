/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of agent/context. */
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

/* How code finds a variable that its file exports. */
struct tls_variable {
	enum tls_model model;
	u64 got; /* svma */
	u64 got_foff;
	u64 value;
	s64 offset;
};

/* -ENOENT: the file exports no such thread-local variable, or its code could not find it. */
int tls_find(struct elf_file *elf, const char *name, struct tls_variable *ret);
/* The svma of a variable that is not thread-local. -ENOENT: there is none. */
int tls_find_plain(struct elf_file *elf, const char *name, u64 *ret_svma);
/* Finds the variable's place in the threads of a process. -EAGAIN: the loader is not done yet. */
int tls_locate(const struct tls_variable *v, u32 pid, u64 bias, struct context_tls *ret);
/* Describes how the process's C library finds the TLS blocks of its threads. */
void tls_describe_libc(const struct procman_process *p, struct context_process *ret);

/* ---- one reader for each line of abi/tbl/context.tbl ---- */

/* What was found in a file. */
struct context_binary {
	struct tls_variable tls;
	struct context_go go;
	u32 node_record;
	u64 storage; /* Elastic: svma of the pointer to the attributes of the process */
};

struct context_target {
	const struct procman_process *process;
	const struct procman_mapping *mapping; /* a mapping of the file */
};

struct context_ops {
	const char *symbol; /* the exported thread-local variable; NULL: none */
	/* Whether the file publishes. Called once per file; -ENOENT is the usual answer. */
	int (*find)(const struct procman_binary *b, struct context_binary *ret);
	/* Adds what the reader in BPF needs. -EAGAIN: the loader is not done yet. */
	int (*attach)(const struct context_target *t, const struct context_binary *b,
		      struct context_process *ret);
};

#define CONTEXT(id, name, ...) extern const struct context_ops context_##name;
#include "abi/tbl/context.tbl"
#undef CONTEXT

/* ---- the storage of Elastic's agents (elastic.c) ---- */

struct elastic_storage {
	char service[129], environment[129];
	char socket[CONTEXT_MAX_SOCKET];
};

/* -EAGAIN: the process publishes nothing now. */
int elastic_read(const struct context_target *t, const struct context_binary *b,
		 struct elastic_storage *ret);
/* elastic_read() for the bytes of the storage, for the fuzzer. -EINVAL: damaged. */
int elastic_parse(const u8 *bytes, size_t n, struct elastic_storage *ret);

/* ---- OpenTelemetry's process context, OTEP 4719 (process.c) ---- */

struct process_context {
	u64 header;    /* avma; 0: none */
	u64 published; /* its time; it changes with the content */
};

/*
 * Returns 1 if there is a new context: said() was called for each of its attributes. 0: it has not
 * changed; -ENOENT: there is none; -EAGAIN: it is being written.
 */
int process_context_read(u32 pid, struct process_context *c,
			 int (*said)(void *arg, const struct otlp_said *s), void *arg);

/* ---- attributes that threads publish (attributes.c) ---- */

/* One attribute of a record. Texts are any bytes, borrowed. */
struct attribute {
	u32 number;	 /* ATTRIBUTES_NUMBERED: index of its name */
	struct buf name; /* ATTRIBUTES_NAMED */
	struct buf text;
	bool cut; /* the record has only the start of the text */
};

/* False: the record ends, or the next attribute is incomplete. */
bool attribute_next(struct buf *b, u32 form, struct attribute *ret);
/* Whether the name is an id, or one that identifies a thread or process: no attribute. */
bool attribute_is_taken(const char *name);

/* The names of a process's numbered attributes, from 0 on. */
#define ATTRIBUTES_MAX_NAMES 256
struct attribute_names {
	struct str text; /* name, NUL, … */
	vec(u32) at;
};
void attribute_names_deinit(struct attribute_names *n);
/* Appends the next name; above ATTRIBUTES_MAX_NAMES it is ignored. -ENOMEM. */
int attribute_names_add(struct attribute_names *n, const char *name);
/* Whether the name of each attribute in the record is known. */
bool attributes_have_names(const struct record_attributes *head, const u8 *bytes,
			   const struct attribute_names *names);

/* Bounds per hour: on all processes together, then on each. */
#define ATTRIBUTES_MAX_KNOWN 65536
#define ATTRIBUTES_MAX_OF_NAME 128
#define ATTRIBUTES_MAX_TEXTS 1024
#define ATTRIBUTES_MAX_SETS 1024
struct attribute_bounds {
	struct map known; /* keys of names and values; for a name: its number of values */
	u64 since_ns;
	u32 hour;
};
struct attribute_share {
	u64 owner; /* the process's image */
	u32 hour;
	u32 n_texts, n_sets;
	bool said; /* the warning was logged */
};
void attribute_bounds_deinit(struct attribute_bounds *b);
/* Starts a new hour if the last one is over. */
void attribute_bounds_begin(struct attribute_bounds *b, u64 now_ns);
/* Whether the value of an attribute is within the bounds; counts a new one. */
bool attribute_admit(struct attribute_bounds *b, struct attribute_share *s, const char *name,
		     const char *text);

/*
 * Returns the number of labels, whose texts are in `texts` until it changes. *ret_partial: some
 * were omitted.
 */
u32 attributes_decode(const struct record_attributes *head, const u8 *bytes,
		      const struct attribute_names *names, struct attribute_bounds *bounds,
		      struct attribute_share *share, struct str *texts,
		      struct context_label ret[CONTEXT_MAX_ATTRIBUTES], bool *ret_partial);
