/* SPDX-License-Identifier: Apache-2.0 */
/* struct allocs, and what its files share: alloc.c, later.c, windows.c. */
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

/* Probes that are inserted or removed (later.c). */
struct work_item {
	size_t part; /* index */
	int fd;
	const struct alloc_sites *sites; /* both borrowed: a busy process is not destroyed */
	struct alloc_probes probes;
};

struct work {
	struct work *next;
	struct allocs *a; /* borrowed */
	u64 image;
	u32 pid;
	bool inserts;
	int result; /* 0, or a negative errno: nothing is inserted */
	vec(struct work_item) items;
};

enum probed_state {
	PROBED_NOT,	/* between two windows; or it cannot be probed */
	PROBED_OPENING, /* probes of a window are being inserted */
	PROBED_ALWAYS,
	PROBED_WINDOW,
};

/*
 * Sums over the last windows of a process, older ones with less weight. A single window says
 * little: it has the whole of a burst, or nothing.
 */
struct window_means {
	double windows;
	double open_ns;	 /* in which calls counted */
	double costs_ns; /* what probes took of all threads then */
	double most_ns;	 /* and of the thread of which they took most */
	double spent_ns; /* what probes took of all threads, also before and after */
};

/* What a thread had when its last window closed. */
struct thread_time {
	u32 tid;
	u64 cpu_ns, delay_ns; /* on a CPU, and waiting for one */
};

/* A process image. */
struct probed {
	u64 image;
	u32 pid;
	vec(struct part) parts;
	enum probed_state state;
	bool failed;	  /* its probes cannot be inserted, or it is not to be probed any more */
	bool is_busy;	  /* its probes are being inserted or removed */
	bool is_gone;	  /* it is destroyed when it is not busy any more */
	u64 due_ns;	  /* when the state changes */
	u64 begin_ns;	  /* of the state ALWAYS or WINDOW */
	u64 wanted_ns;	  /* how long the window is, without the time that probes take */
	u64 stands_ns;	  /* the time that is told of so far */
	double credit_ns; /* what probes may take now; negative: they have taken too much */
	u64 ticked_ns, cpu_ns;
	u64 cost_ns;	  /* of all threads, when it was ticked */
	u64 closed_ns;	  /* likewise, when the last window closed */
	u64 outside_ns;	  /* what probes have taken outside of windows since then */
	double cpu;	  /* CPUs that it uses, on average */
	double need;	  /* CPUs that probes would take if it were probed all the time */
	double allowance; /* CPUs that probes may take */
	struct window_means means;
	vec(struct thread_time) times;
	u32 window; /* number of the last one */
	u32 walks;  /* alloc_process.walks */
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
	struct work *done;   /* owned */
	u32 n_works;	     /* under way */
	bool ends;
	struct alloc_stats stats;

	/* The thread's. */
	struct map processes; /* image → struct probed *, owned */
	u64 shared_ns;	      /* when the machine's budget was divided among the processes */
	u64 tick_ns;
	u32 windows;
	vec(u64) thread_keys;
	vec(struct alloc_thread) threads;
	u64 random;
};

/* ---- later.c: called by the thread ---- */

/* Makes the process busy, until works_done() returns the work. Parts have their probes then. */
int probes_insert(struct allocs *a, struct probed *p);
/* Parts have no probes any more, but the kernel may still run their programs. */
void probes_remove(struct allocs *a, struct probed *p);
/* A work that is done; the caller destroys it. NULL: there is none. */
struct work *works_done(struct allocs *a);
/* Removes the probes that it has. */
void work_destroy(struct work *w);
/* Returns when no work is under way, and destroys those that are done. */
void works_end(struct allocs *a);

/* ---- windows.c: called by the thread ---- */

void windows_add(struct allocs *a, u64 image, u32 pid, struct part *part);
void windows_remove(struct allocs *a, u64 image);
/* Takes what was inserted and removed. */
void windows_take_works(struct allocs *a);
/* `all`: also of processes that are probed all the time. */
void windows_close(struct allocs *a, bool all);
/* Does what is due. Returns when it is to be called again (CLOCK_MONOTONIC). */
u64 windows_run(struct allocs *a);
void probed_destroy(struct allocs *a, struct probed *p);
