/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a function of the kernel or of programs: how often it is called, how long its calls
 * take, and its slow calls with arguments, stack and request. `culprit trace FUNCTION` prints it;
 * an agent does it for a server, whose page has asked for it ("measure this function").
 *
 * A measurement is a script of the tracing language (measure_script()) at work in a tracing
 * session, which gives its numbers as values instead of text.
 *
 * One thread. Functions return 0 or a negative errno, and set the diag then.
 */
#pragma once

#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"

#define MEASURE_MAX_ARGUMENTS 6
#define MEASURE_TEXT_BYTES 64
/* Histogram of latencies: buckets of trace_hist_bucket(ns, MEASURE_HIST_BITS). */
#define MEASURE_HIST_BITS 2
/* Before an argument's name in the script's printf(): an argument may be named "end" or "pid". */
#define MEASURE_ARGUMENT "args."

struct measure_options {
	const char *function;  /* a symbol; of Go also with its package: main.(*T).Method */
	const char *path;      /* the binary, as this process opens it; NULL: a kernel function */
	u32 pid;	       /* 0: all processes that run the binary */
	u64 slow_ns;	       /* calls that take at least this long are told one by one */
	u32 calls_per_second;  /* told at most; 0: a default */
	double budget_percent; /* of a CPU, for the probes; 0: a default. At the budget, calls are
				* thinned out, and counts are estimates */
	bool stacks;	       /* of slow calls */
};

/* Parts that all calls together have. Latencies are those of calls that have returned. */
struct measure_counts {
	u64 calls;	     /* begun */
	u64 returned;	     /* of these, since the start */
	u64 total_ns;	     /* of calls that have returned */
	u64 longest_ns;	     /* likewise */
	u64 slow;	     /* of these, at least slow_ns; some may not be told one by one */
	u64 lost;	     /* events that no number has, by any reason */
	double thinned;	     /* share of calls that were measured, 1: all */
	double cost_percent; /* of a CPU that the probes take, lately */
};

struct measure_argument {
	char name[MEASURE_TEXT_BYTES];	/* by DWARF or BTF; "arg0" if neither knows it */
	char value[MEASURE_TEXT_BYTES]; /* as C writes it: -1, 0x7f…, "text" */
};

/* A slow call. */
struct measure_call {
	u64 end_ns; /* CLOCK_MONOTONIC */
	u64 ns;
	u32 pid, tid;
	char comm[16];
	u8 trace_id[16], span_id[8]; /* zeros: the thread had none */
	u32 n_arguments;
	struct measure_argument arguments[MEASURE_MAX_ARGUMENTS];
	char result[MEASURE_TEXT_BYTES]; /* likewise; "": unknown */
	u64 stack;			 /* for measure_stack(); 0: none */
};

struct measure;
struct profile;

/* The script of a measurement, for people too: `culprit trace FUNCTION --show-script`. */
int measure_script(const struct measure_options *o, struct str *out, struct diag *reterr_diag);
/* Compiled, loaded, attached. -ENOENT: no such function; -ENOTSUP: it cannot be probed safely. */
int measure_create(const struct measure_options *o, struct diag *reterr_diag, struct measure **ret);
/* Takes in what has arrived; waits up to wait_ms. */
int measure_poll(struct measure *m, int wait_ms);
/* Sums since the start. */
void measure_counts(const struct measure *m, struct measure_counts *ret);
/* Calls by bucket since the start; *ret is borrowed until the next call. Returns their number. */
u32 measure_histogram(const struct measure *m, const u64 **ret);
/* The oldest slow calls that were not taken yet. Returns how many. */
u32 measure_take(struct measure *m, struct measure_call *ret, u32 max);
/* A call's stack: *ret_stack is one of the profile's, which is borrowed. NULL: it has none. */
const struct profile *measure_stack(struct measure *m, const struct measure_call *call,
				    u32 *ret_stack);
/*
 * The slow calls that were told, with their stacks, as a profile of their time. *ret is owned by
 * the caller. -EINVAL: the measurement is without stacks.
 */
int measure_profile(struct measure *m, struct profile **ret, struct diag *reterr_diag);
void measure_destroy(struct measure *m);
