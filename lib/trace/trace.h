/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit's tracing language, which is bpftrace's: from text to a syntax tree (ast.h), from that to
 * maps and BPF instructions (program.h), and from what the program writes to text. Loading and
 * attaching is agent/trace.
 */
#pragma once

#include "base/diag.h"
#include "base/str.h"
#include "trace/ast.h"
#include "trace/program.h"

/* ---- parser ---- */

/* What the command line gives a script. Everything is borrowed; the tree keeps copies. */
struct trace_parameters {
	const char *const *values; /* $1 is values[0] */
	u32 n;
	const char *const *options; /* of getopt(): "--name=value" or "--name" */
	u32 n_options;
};

/*
 * The tree of a script, with macros, #define, parameters and options put in their places. `file` is
 * for errors; it and `text` must live as long as the tree. p may be NULL: no parameters.
 * -EINVAL: the diag says "LINE:COLUMN: what"; -E2BIG: the script is too large; -ENOMEM.
 */
int trace_parse(const char *file, const char *text, size_t n, const struct trace_parameters *p,
		struct diag *d, struct trace_script **ret);
void trace_script_destroy(struct trace_script *s);
static inline void cleanup_trace_script(struct trace_script **s)
{
	trace_script_destroy(*s);
}
#define _cleanup_trace_script_ _cleanup_(trace_script)

/*
 * Appends an error with its place: "FILE:LINE:COLUMN: error: what", the line of the source, and a
 * caret below the column. `error` is the text of a diag: "LINE:COLUMN: what", or only what.
 */
void trace_error_show(const char *file, const char *text, size_t n, const char *error,
		      struct str *out);
/* A whole text that is a number as the language has them: 1e6, 0x10, 5ms. -EINVAL or -ERANGE. */
int trace_number(const char *s, u64 *ret);

/* ---- compiler ---- */

/*
 * Checks the types of the script and makes its instructions. The program borrows nothing of the
 * script but texts in its arena: destroy it first. -EINVAL: the diag begins with "LINE:COL: ";
 * -E2BIG: the script is too long; -ENOMEM.
 */
int trace_compile(struct trace_script *s, const struct trace_target *t, struct diag *d,
		  struct trace_program **ret);
void trace_program_destroy(struct trace_program *p);
/* The bytes of a value in a key, a map or a record: a multiple of 8. */
u32 trace_type_room(const struct trace_type *t);
/* Histograms and series, which are lines of their own. */
bool trace_type_is_table(const struct trace_type *t);
/*
 * Histograms of hist(value, bits): bucket 0 has negative values, bucket 1 zero, and from there on
 * each power of two has 2^bits buckets; small values have a bucket each. trace_hist_low() is the
 * first value of a bucket, trace_hist_buckets() their number.
 */
u32 trace_hist_bucket(u64 value, u32 bits);
u64 trace_hist_low(u32 bucket, u32 bits);
u32 trace_hist_buckets(u32 bits);

/* ---- printing ---- */

/*
 * What records and maps look like: as bpftrace has it, in text or in lines of JSON. All functions
 * append to a string and never read outside of what they are given: sizes are checked.
 */

struct profile;

/* How stacks look: modes of bpftrace. */
enum trace_stack_mode {
	TRACE_STACK_NAMES, /* function, file and line, runtime: culprit's own */
	TRACE_STACK_PERF,  /* as perf script: address, function, binary */
	TRACE_STACK_RAW,   /* addresses */
};

/* What the machine knows. NULL: nobody does, and a number is printed. */
struct trace_names {
	void *arg;
	/* Names a stack: *ret_stack is one of the profile's. NULL: out of memory. pid: 0 for kernel
	 * stacks. */
	const struct profile *(*stack)(void *arg, u64 id, u32 pid, u32 *ret_stack);
	/* The id by which equal stacks are equal. */
	u64 (*stack_id)(void *arg, u64 id);
	/* stack() will be called for it: many are named faster together than one by one. */
	void (*want)(void *arg, u64 id, u32 pid);
	/* These append the name, and return false if there is none. */
	bool (*kernel_symbol)(void *arg, u64 address, struct str *out);
	bool (*user_symbol)(void *arg, u64 address, u32 pid, struct str *out);
	bool (*cgroup)(void *arg, u64 id, struct str *out);
	/* The service, container or pod of a process, which may have ended; "" is a name: it has
	 * none. `comm`: its name at the event; "": as in the last call for this pid. */
	bool (*owner)(void *arg, enum trace_owner o, u32 pid, const char *comm, struct str *out);
	/* The process by which processes of one owner are equal. */
	u32 (*owner_id)(void *arg, enum trace_owner o, u32 pid, const char *comm);
	bool (*enumerator)(void *arg, u32 btf, u64 value, struct str *out);
	bool (*system_call)(void *arg, u64 number, struct str *out);
};

struct trace_printer {
	const struct trace_program *program; /* borrowed */
	struct trace_names names;
	bool json;
	u32 cpus;    /* possible ones: values in a per-CPU map */
	u64 boot_ns; /* when the machine was booted, since the epoch */
};

/* What a record asks of whoever has the maps, or may run commands. */
struct trace_request {
	enum trace_record_type type; /* PRINT of a map, CLEAR, ZERO, EXIT, SYSTEM; 0: nothing */
	u32 map;
	const struct trace_print *print; /* PRINT */
	u32 status;			 /* EXIT */
	struct str command;		 /* SYSTEM; the caller deinits it */
};

/* Entries of a map, in any order. */
struct trace_entries {
	const u8 *keys;	  /* n times key_bytes */
	const u8 *values; /* n times value_bytes, rounded up to 8, for each CPU if map.per_cpu */
	size_t n;
};

/*
 * Appends what a record of the ring prints; what goes to standard error to `err`. -EBADMSG: the
 * record is too short, or refers to nothing.
 */
int trace_print_record(const struct trace_printer *p, const void *record, size_t n, struct str *out,
		       struct str *err, struct trace_request *ret);
/*
 * Appends a map. print: what print() asked for, or NULL: the end of the script, where an empty map
 * is not shown. -ENOMEM.
 */
int trace_print_map(const struct trace_printer *p, u32 map, const struct trace_entries *e,
		    const struct trace_print *print, struct str *out);
/*
 * A value as text, also one of an aggregation, added up over CPUs. div: divides numbers; 0, 1: does
 * not.
 */
void trace_value_text(const struct trace_printer *p, const struct trace_type *t, const u8 *value,
		      u64 div, struct str *out);
/*
 * The first n words of a map without keys, added up over CPUs, as enum trace_kind has them; zeros
 * where it has none. -ENOMEM, -EBADMSG.
 */
int trace_map_words(const struct trace_printer *p, u32 map, const struct trace_entries *e, u64 *ret,
		    u32 n);
/* What a command of system() printed. */
void trace_print_system(const struct trace_printer *p, const char *output, struct str *out);
void trace_print_attached(const struct trace_printer *p, u32 probes, struct str *out);
/* Probes, of which one is named, were detached, because they cost more than the budget. */
void trace_print_detached(const struct trace_printer *p, const char *probe, u32 n, double percent,
			  double budget, struct str *out);
/* What was lost by reason (enum trace_loss), as a line; nothing if all are 0. */
void trace_print_lost(const struct trace_printer *p, const u64 lost[TRACE_LOSS_N], struct str *out);
/* Checks a format of printf() against its arguments. -EINVAL: the diag says what is wrong. */
int trace_format_check(const struct trace_text *format, const struct trace_type *arguments, u32 n,
		       struct diag *d);
/* Whether a map can be shown as a flame graph. */
bool trace_map_is_profile(const struct trace_map *m);
/*
 * A map whose key has one stack or a kernel and a user stack, as a profile: the other parts of the
 * key become frames at the root. -EINVAL: the map is not of this kind; the diag says why.
 */
int trace_map_profile(const struct trace_printer *p, u32 map, const struct trace_entries *e,
		      struct profile **ret, struct diag *d);
