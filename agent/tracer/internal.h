/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of this machine can be probed, and where: the answers to struct trace_target, and to those
 * who attach. One thread. Functions return 0 or a negative errno, and set the diag then; -ENOENT
 * means that what a point names does not exist.
 */
#pragma once

#include <stdio.h>

#include "agent/tracer/usdt.h"
#include "base/diag.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "elf/elf.h"
#include "symbol/signature.h"
#include "trace/trace.h"

struct btf;

/* ---- functions of an ELF file (functions.c) ---- */

struct tracer_function {
	const char *name; /* borrowed from the file */
	u64 svma, size;
	bool is_indirect; /* its code chooses the function: STT_GNU_IFUNC */
};

struct tracer_file {
	char *path;			       /* owned; as culprit opens it */
	struct elf_file *elf;		       /* owned */
	struct elf_file *debug, *mini;	       /* owned; more symbols, or NULL */
	vec(struct tracer_function) functions; /* by name, then address; aliases are separate */
	bool has_functions;		       /* they have been read */
	usdt_probes usdt;		       /* texts are borrowed from the file */
	bool has_usdt;
	bool is_go;
	bool has_go_registers;	       /* Go passes arguments in registers */
	struct signatures *signatures; /* owned; NULL: it has no debug information */
	struct elf_file *types;	       /* owned; the debug file that has it, or NULL */
	char *types_path;	       /* owned; of `types` */
	bool has_signatures;	       /* they have been looked for */
	vec(struct tracer_signature {
		u64 svma;
		struct signature *signature; /* owned */
	}) known_signatures;
};

int tracer_file_open(const char *path, struct diag *reterr_diag, struct tracer_file **ret);
void tracer_file_destroy(struct tracer_file *f);
int tracer_file_functions(struct tracer_file *f, struct diag *reterr_diag);
int tracer_file_usdt(struct tracer_file *f, struct diag *reterr_diag);
/* The function of this name; of several, a global one. NULL: there is none. */
const struct tracer_function *tracer_file_function(const struct tracer_file *f, const char *name);
/* The svma of a function or variable. -ENOENT */
int tracer_file_symbol(struct tracer_file *f, const char *name, u64 *ret);
/* The function that an address is in, or NULL. */
const struct tracer_function *tracer_file_at(const struct tracer_file *f, u64 svma);
/* Where an address of code is in the file. -EINVAL: it is no code. */
int tracer_file_offset(const struct tracer_file *f, u64 svma, u64 *ret_foff);
/* Whether an instruction begins at this address of a function. -EINVAL: it does not. */
int tracer_file_check(const struct tracer_file *f, const struct tracer_function *fn, u64 svma,
		      struct diag *reterr_diag);

/* ---- functions of Go (gofunction.c) ---- */

typedef vec(u64) tracer_addresses;
/* Appends the svmas of instructions at which a function returns. -ENOTSUP: some are unknown. */
int tracer_go_returns(const struct tracer_file *f, const struct tracer_function *fn,
		      tracer_addresses *ret, struct diag *reterr_diag);
/* The svma at which a call begins once, with its arguments in their places. */
u64 tracer_go_entry(const struct tracer_file *f, const struct tracer_function *fn);

/* ---- parameters (signatures.c) ---- */

/* Of the function that begins at svma. Borrowed from the file. -ENOENT: the diag says why. */
int tracer_file_signature(struct tracer_file *f, const struct tracer_function *fn,
			  const struct signature **ret, struct diag *reterr_diag);
void tracer_file_forget_signatures(struct tracer_file *f);
/* Appends the svmas at which a line of source begins. -ENOENT: the diag says what there is. */
int tracer_file_line(struct tracer_file *f, const char *source, u32 line, signature_places *ret,
		     struct diag *reterr_diag);

/* ---- the machine (target.c) ---- */

struct tracer_machine {
	struct trace_target target; /* arg: this */
	struct btf *btf;	    /* owned, or NULL */
	u32 pid;		    /* the process of -p or -c; 0: none */
	bool has_kprobe_multi, has_uprobe_multi;
	bool links_uprobes; /* each, because perf events of them are not permitted */
	u32 n_points, max_points;
	struct str missing;	 /* a line for each point that does not exist */
	struct strtab functions; /* that the kernel's BTF describes */
	bool has_functions;
	vec(struct tracer_file *) files; /* owned; opened so far */
};

/* -ENOMEM, or the kernel has no BPF: as probe_require() says. */
int tracer_machine_create(u32 pid, struct diag *reterr_diag, struct tracer_machine **ret);
void tracer_machine_destroy(struct tracer_machine *m);
/* Whether the kernel's BTF describes a function. */
bool tracer_machine_describes(struct tracer_machine *m, const char *name);
/* The file of a path that tracer_find_program() returned. Borrowed. */
int tracer_machine_file(struct tracer_machine *m, const char *path, struct diag *reterr_diag,
			struct tracer_file **ret);

/* ---- points (points.c) ---- */

bool tracer_is_glob(const char *text);
/* '*' and '?' and [sets]; a NULL glob matches all. */
bool tracer_matches(const char *glob, const char *text);
/* Whether `name`, of C++ or Rust, is `wanted` when demangled: "ns::f", or with its arguments. */
bool tracer_is_demangled(const char *wanted, const char *name);
/*
 * A list of points that a glob stands for. Texts are in the arena; `like` is the point as written.
 */
struct tracer_found {
	struct arena *arena;
	const struct trace_point *like;
	vec(struct trace_point) points;
	u32 max;
};
/* Adds PROVIDER:PART:PART. -E2BIG above the limit. */
int tracer_found_add(struct tracer_found *f, struct diag *d, const char *const *parts, u32 n);
int tracer_expand(void *arg, const struct trace_point *p, struct arena *a, struct trace_point **ret,
		  u32 *ret_n, struct diag *d);

/* Where a uprobe or USDT probe is. */
struct tracer_place {
	const char *path; /* borrowed from the file */
	u64 foff;
	u64 semaphore; /* file offset; 0: none */
};
/* `p` is a point that tracer_expand() returned. */
int tracer_find_place(struct tracer_machine *m, const struct trace_point *p,
		      struct tracer_place *ret, struct diag *d);
/* The function of a point of a program that tracer_expand() returned; NULL: it has an offset. */
const struct tracer_function *tracer_point_function(struct tracer_file *f,
						    const struct trace_point *p);
/* The USDT probe of a point that tracer_expand() returned. Borrowed. */
int tracer_find_usdt(struct tracer_machine *m, const struct trace_point *p,
		     const struct usdt_probe **ret, struct diag *d);

/* ---- events of perf (events.c) ---- */

int tracer_events_each(int (*fn)(void *arg, const char *provider, const char *name), void *arg);

/* ---- commands (system.c) ---- */

/*
 * Runs a command by /bin/sh, and appends what it prints, at most 1 MiB. It ends after
 * TRACER_COMMAND_S, or is killed.
 */
#define TRACER_COMMAND_S 10
int tracer_run_command(const char *command, struct str *out, struct diag *d);

/* ---- tracefs (tracefs.c) ---- */

/* Calls fn for each event, "CATEGORY", "NAME". */
int tracer_events_list(int (*fn)(void *arg, const char *category, const char *name), void *arg,
		       struct diag *d);
int tracer_event_id(const char *category, const char *name, u64 *ret, struct diag *d);
int tracer_event_fields(const char *category, const char *name, struct arena *a,
			struct trace_field **ret, u32 *ret_n, struct diag *d);
/* Parses the text of a format file. */
int tracer_fields_parse(const char *format, struct arena *a, struct trace_field **ret, u32 *ret_n);

/* ---- functions of the kernel (kernel.c) ---- */

/* Calls fn for each function that can be probed; `module` is "vmlinux" or a module's name. */
typedef int tracer_kernel_fn(void *arg, const char *module, const char *name);
int tracer_kernel_functions(tracer_kernel_fn *fn, void *arg, struct diag *d);
/* Whether the kernel has a function. Reads all symbols if BTF does not know it. */
bool tracer_kernel_has(struct tracer_machine *m, const char *name);
int tracer_kernel_symbol(const char *name, u64 *ret, struct diag *d);

/* ---- programs and libraries (paths.c) ---- */

/*
 * The path, as culprit opens it, of a program or library that a point names: a path, a name in
 * PATH, "libc" or "libc.so.6" of the process or of this machine. *ret is malloc()ed.
 */
int tracer_find_program(const char *name, u32 pid, struct diag *d, char **ret);
