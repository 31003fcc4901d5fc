/* SPDX-License-Identifier: Apache-2.0 */
/* struct allocs, and what its files share: alloc.c, windows.c. */
#pragma once

#include <pthread.h>

#include "agent/alloc/alloc.h"
#include "agent/alloc/attach.h"
#include "agent/alloc/calibrate.h"
#include "base/map.h"

/* A file of a process with an allocator. */
struct part {
	int fd; /* owned */
	u64 bias;
	struct alloc_sites *sites; /* owned */
	struct alloc_probes probes;
};

enum probed_state {
	PROBED_NOT, /* between two windows; or it cannot be probed */
	PROBED_ALWAYS,
	PROBED_WINDOW,
};

/* A process image. */
struct probed {
	u64 image;
	u32 pid;
	vec(struct part) parts;
	enum probed_state state;
	bool failed;	  /* its probes cannot be inserted */
	u64 due_ns;	  /* when the state changes */
	u64 begin_ns;	  /* of the state ALWAYS or WINDOW */
	u64 stands_ns;	  /* the time that is told of so far */
	u64 probed_ns;	  /* when the first probe of the window was inserted */
	double credit_ns; /* what probes may take now */
	u64 ticked_ns, cpu_ns;
	u64 cost_ns;  /* of all threads, when it was ticked */
	double cpu;   /* CPUs that it uses, on average */
	double share; /* part of the time that probes take of the busiest thread, in a window */
	double costs; /* CPUs that probes take, in a window */
	u32 window;   /* number of the last one */
	u32 walks;    /* alloc_process.walks */
};

enum command_kind {
	COMMAND_ADD,
	COMMAND_REMOVE,
	COMMAND_CLOSE, /* windows; the sender waits */
	COMMAND_STOP,  /* all; likewise */
};

struct command {
	enum command_kind kind;
	u64 image;
	u32 pid;
	struct part part; /* ADD */
};

struct allocs {
	struct alloc_programs programs;
	struct alloc_costs costs;
	double budget; /* a share of the time of a process */
	long cpus;
	pthread_t thread;
	bool has_thread;

	/* Under the lock. */
	pthread_mutex_t lock;
	pthread_cond_t wake; /* both sides wait for it */
	vec(struct command) commands;
	vec(struct alloc_report) reports;
	u64 asked, answered; /* CLOSE and STOP */
	bool ends;
	struct alloc_stats stats;

	/* The thread's. */
	struct map processes; /* image → struct probed *, owned */
	double least_cpu;     /* CPUs that a process counts as if it uses fewer */
	u64 tick_ns;
	u32 windows;
	vec(u64) thread_keys;
	vec(struct alloc_thread) threads;
	u64 random;
};

/* ---- windows.c: called by the thread ---- */

void windows_add(struct allocs *a, u64 image, u32 pid, struct part *part);
void windows_remove(struct allocs *a, u64 image);
/* `all`: also of processes that are probed all the time. */
void windows_close(struct allocs *a, bool all);
/* Does what is due. Returns when it is to be called again (CLOCK_MONOTONIC). */
u64 windows_run(struct allocs *a);
void probed_destroy(struct allocs *a, struct probed *p);
