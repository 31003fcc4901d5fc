/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A script of the tracing language at work: compiled for this machine, loaded, attached, printing
 * what it prints.
 *
 *	create (compiled) → load → start (BEGIN has run, probes are attached) → poll … → end
 *	(detached, END has run, maps are printed) → destroy
 *
 * One thread. Functions return 0 or a negative errno, and set the diag then.
 */
#pragma once

#include <stdio.h>

#include "agent/tracer/cost.h"
#include "base/diag.h"
#include "base/vec.h"
#include "trace/trace.h"

/*
 * What walks the stacks of an action's event. A prog array holds programs of one type: slot 0
 * begins the walk, slot 1 + code is the second half of a code.
 */
struct tracer_walk_entry {
	enum bpf_prog_type type;
	int enter; /* borrowed */
};
struct tracer_walk {
	int stacks;	    /* the map TRACE_MAP_STACKS; borrowed */
	bool links_uprobes; /* as tracer_session_links_uprobes() */
	vec(struct tracer_walk_entry) entries;
	/* Who names the stacks: as in struct trace_names. */
	void *arg;
	const struct profile *(*stack)(void *arg, u64 id, u32 pid, u32 *ret_stack);
	u64 (*stack_id)(void *arg, u64 id);
	void (*want)(void *arg, u64 id, u32 pid);
};

struct tracer_session_options {
	const char *file; /* for errors; "": given with -e */
	const char *text; /* of the script, n bytes; borrowed until the session is destroyed */
	size_t n;
	const struct trace_parameters *parameters;
	u32 pid; /* probes of programs, and sampled events, are limited to it; 0: all processes */
	/* `pid` runs its program only when the script is attached: its runtime is not known yet. */
	bool is_command;
	FILE *out; /* borrowed */
	bool json;
	bool verbose; /* what the verifier says, on standard error */
	bool no_warnings;
	bool no_maps; /* maps are not printed at the end */
	/* The script may run commands, send signals and override results of functions. */
	bool unsafe;
	bool tells_errors; /* what fails in the kernel, such as a read of memory, is told */
	bool tells_places; /* errors of attaching begin with the place in the script, too */
	/*
	 * Takes the values of a printf(), which prints nothing then: argument i is at
	 * values + f->offsets[i]. Everything is borrowed until it returns. NULL: it is printed.
	 */
	void (*take)(void *arg, const struct trace_format *f, const u8 *values);
	void *arg;
	/* What the probes may cost, in percent of one CPU; 0: anything. What costs more is detached
	 * after some seconds, and a line says so. */
	double budget_percent;
	const char *cache_dir; /* of measured costs, or NULL; borrowed */
};

struct tracer_session;
struct profile;

/* A diag that begins "LINE:COL: " is an error of the script. */
int tracer_session_create(const struct tracer_session_options *o, struct diag *reterr_diag,
			  struct tracer_session **ret);
/* Bits 1 << enum bpf_prog_type: types of programs whose actions want stacks. 0: none does. */
u64 tracer_session_stack_types(const struct tracer_session *s);
/*
 * Whether these programs are those of uprobes that are linked: all programs of a prog array have
 * one attach type, also those that walk.
 */
bool tracer_session_links_uprobes(const struct tracer_session *s);
/* Whether an action wants the stack of the process, or its span. */
bool tracer_session_wants_user(const struct tracer_session *s);
/* `walk`: for these types, borrowed until the end; or NULL. */
int tracer_session_load(struct tracer_session *s, const struct tracer_walk *walk,
			struct diag *reterr_diag);
int tracer_session_start(struct tracer_session *s, struct diag *reterr_diag);
/* Number of probes that are attached, or run by user space. */
u32 tracer_session_probes(const struct tracer_session *s);
/*
 * Prints what has arrived, and waits up to wait_ms for something to print. 1: the script has called
 * exit(), or has nothing but iterators.
 */
int tracer_session_poll(struct tracer_session *s, int wait_ms);
/* Runs the script's probe self:signal:NAME. */
void tracer_session_signal(struct tracer_session *s, int number);
/*
 * Ends it: detaches, runs END, prints the rest and the maps. Returns the status that exit() was
 * given, or 0.
 */
int tracer_session_end(struct tracer_session *s);
/*
 * The first n words of a map without keys, added up over CPUs: of an aggregation as enum trace_kind
 * has them; zeros if nothing was entered yet. -ENOENT: the script has no such map.
 */
int tracer_session_read(struct tracer_session *s, const char *map, u64 *ret, u32 n);
/* As the script's clear(@map). -ENOENT: the script has no such map. */
int tracer_session_clear(struct tracer_session *s, const char *map);
/* Appends a value that `take` was given, as printf("%s") does. */
void tracer_session_text(const struct tracer_session *s, const struct trace_type *t,
			 const u8 *value, struct str *out);
/* Detaches the probes that the kernel runs, and attaches them again. Maps stay. */
void tracer_session_pause(struct tracer_session *s);
int tracer_session_resume(struct tracer_session *s, struct diag *reterr_diag);
/*
 * The map that is shown as a flame graph: the only one of counts or sums by stacks. -EINVAL: there
 * is none, or there are several. The second function reads it, also after the end; *ret is owned by
 * the caller.
 */
int tracer_session_profile_map(const struct tracer_session *s, u32 *ret_map,
			       struct diag *reterr_diag);
int tracer_session_profile(struct tracer_session *s, struct profile **ret,
			   struct diag *reterr_diag);
/* Events that were lost so far, by enum trace_loss. */
void tracer_session_losses(const struct tracer_session *s, u64 ret[TRACE_LOSS_N]);
void tracer_session_destroy(struct tracer_session *s);

struct tracer_list_options {
	const char *glob; /* "": all kinds; with -p also programs and libraries of the process */
	u32 pid;	  /* 0: none */
	bool arguments;	  /* also the arguments of each point */
	bool kinds;	  /* not points, but how many there are of each kind */
	bool json;	  /* an object a line */
	/* By enum tracer_kind: what an event costs is printed, too. NULL: it is not. */
	const struct tracer_cost *costs;
	FILE *out; /* borrowed, as all */
};

/*
 * Fills type and config of an event for perf_event_open(): "cycles", "software:page-faults", or a
 * tracepoint, "sched:sched_switch". -ENOENT: there is none of this name.
 */
struct perf_event_attr;
int tracer_event_attr(const char *name, struct perf_event_attr *ret, struct diag *reterr_diag);

/*
 * Prints the points that a glob stands for, one a line, as they are written in a script. Returns
 * the number of points, or a negative errno.
 */
int tracer_list(const struct tracer_list_options *o, struct diag *reterr_diag);

/* ---- functions by name ---- */

struct tracer_wanted {
	/* A symbol, or a name of C++ or Rust without arguments. "libc:NAME", "/PATH:NAME" and
	 * "kernel:NAME" say where it is. */
	const char *name;
	const char *binary;  /* where it is, as before the colon; or NULL */
	u32 pid;	     /* its program and libraries are searched; 0: none */
	const char *program; /* the program of a process that does not run it yet; or NULL */
};
struct tracer_function_place {
	char *path;	/* owned; as culprit opens it. NULL: the kernel */
	char *function; /* owned; the symbol */
};

/*
 * Searches the program, then its libraries, then the kernel. -ENOENT: the diag says which names are
 * like it; -EINVAL: several functions have the name.
 */
int tracer_find_function(const struct tracer_wanted *w, struct diag *reterr_diag,
			 struct tracer_function_place *ret);
void tracer_function_place_deinit(struct tracer_function_place *p);

#define TRACER_MAX_PARAMETERS 6
#define TRACER_PARAMETER_BYTES 64
/* What is known of a function's arguments by DWARF or BTF, without those that cannot be read. */
struct tracer_description {
	bool is_known;
	bool is_go;
	u32 n;
	struct tracer_parameter {
		char name[TRACER_PARAMETER_BYTES];
		char expression[TRACER_PARAMETER_BYTES]; /* at the entry: args.x, str(args.x) */
	} parameters[TRACER_MAX_PARAMETERS];
	char result[TRACER_PARAMETER_BYTES]; /* an expression, or "": it has none */
};
/* Functions of the kernel that are known can be probed with fentry. */
int tracer_describe(const struct tracer_function_place *place, struct diag *reterr_diag,
		    struct tracer_description *ret);
