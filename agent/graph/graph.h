/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a function of the kernel calls, and for how long, by the kernel's function_graph tracer.
 *
 *	graph_start → (wait, graph_poll) … → graph_stop → `calls` → graph_destroy
 *
 * Calls are merged by their path. The tracer works in an instance of tracefs of its own, or at the
 * top level if the kernel's instances cannot have this tracer (before 6.11) and nobody uses the
 * top level. What it has changed there is changed back by graph_stop(). One thread.
 */
#pragma once

#include "base/diag.h"
#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"

/* Paths and threads beyond these are counted as left out. */
#define GRAPH_MAX_CALLS (1u << 16)
#define GRAPH_MAX_DEPTH 128
#define GRAPH_MAX_THREADS 8192

/* All calls of a function with the same callers; 0 is the root, which is no function. */
struct graph_call {
	u32 name;			  /* of `names` */
	u32 parent, first_child, sibling; /* 0: none */
	u64 count;			  /* calls that have returned */
	u64 total_ns;
	u64 callees_ns; /* of total_ns */
};

struct graph_thread;

struct graph {
	const char *function; /* borrowed; only its calls are roots */
	struct strtab names;
	vec(struct graph_call) calls;
	struct map by_path;   /* parent << 32 | name → call */
	struct map by_thread; /* pid, or the CPU of an idle thread → index of threads */
	vec(struct graph_thread *) threads; /* owned */
	char line[512];			    /* one that has not arrived whole */
	u32 line_n;
	u64 lost;     /* events that the kernel dropped */
	u64 left_out; /* calls whose begin or end was not seen, or beyond the limits */
};

/* ---- the text of the tracer ---- */

/* -ENOMEM */
int graph_init(struct graph *g, const char *function);
void graph_deinit(struct graph *g);
/* Reads text of trace_pipe, in pieces of any size. -ENOMEM */
int graph_feed(struct graph *g, const char *text, size_t n);
/* Counts what has begun and not returned as left out. */
void graph_finish(struct graph *g);

/* ---- tracefs ---- */

struct graph_tracing;

/* pid: only this thread and those that it creates; 0: all. */
int graph_start(const char *function, u32 pid, struct diag *reterr_diag,
		struct graph_tracing **ret);
/* Reads what has arrived; waits up to wait_ms for it. */
int graph_poll(struct graph_tracing *t, int wait_ms);
/* Ends the tracer, reads the rest, and removes what graph_start() has made. */
void graph_stop(struct graph_tracing *t);
const struct graph *graph_of(const struct graph_tracing *t);
/* Stops it, too. */
void graph_destroy(struct graph_tracing *t);
