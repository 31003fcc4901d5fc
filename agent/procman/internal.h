/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of procman.
 *
 *	sideband.c  bytes of the kernel → struct sideband
 *	ring.c      one CPU's ring → bytes
 *	round.c     the rings of all CPUs → records ordered by time
 *	binary.c    files, opened once
 *	mapping.c   sets of mappings, shared until they change
 *	process.c   one process: what a record does to it, what /proc says of it
 *	tell.c      what happened → listeners
 *	procman.c   the table of processes, the order of things, the public functions
 */
#pragma once

#include <time.h>

#include "agent/procman/binary.h"
#include "agent/procman/mapping.h"
#include "agent/procman/procman.h"
#include "agent/procman/round.h"
#include "base/clock.h"

static inline u64 now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* CPU time of this thread, to measure costs. */
static inline u64 cpu_now_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/*
 * The kernel sets start_stack twice during an exec, and events precede that. So it is read after
 * these times: when execve() has usually finished, and when it had to wait for the disk. An earlier
 * sample brings the value with it: procman_learn_image(). With options.execs_told it is read only
 * at the last time, if procman_learn_exec() was not called before.
 */
static const u64 exec_looks_ns[] = {1000000, 300000000};

struct process {
	struct procman_process pub; /* first, so that a pointer to it can be converted back */
	struct mapping_set *set;    /* owned reference; pub.mappings points into it */
	overlay changes;	    /* of this batch, not yet applied to the set */
	/* owned reference: the process's private code; NULL: none yet */
	struct procman_binary *anon;
	/* Events before this time are included in what was read from /proc. */
	u64 read_ns;
	u64 refresh_due_ns;   /* earliest time of the next procman_refresh() */
	u32 n_looks;	      /* if young: number of exec_looks_ns that have passed */
	u64 young_due_ns;     /* if young: time of the next one */
	u64 announce_due_ns;  /* earliest time of the next process_changed() */
	u64 announce_cost_ns; /* of the last one */
	u64 gone_due_ns;      /* when it is removed, if it is in the list of exited processes */
	struct process *exited_next;
	u64 seen; /* number of the last rescan that found it */

	bool dirty;	 /* in procman.dirty: is settled and announced at the end of the batch */
	bool exited;	 /* in the list of exited processes */
	bool replaced;	 /* its pid belongs to another process */
	bool wants_maps; /* only events are known: /proc/PID/maps is read at the end of the batch */
	bool young;	 /* in procman.young: start_stack is to be read after an exec */
	bool told_ended; /* process_ended() was called */
	bool borrowed_anon; /* has mappings of its parent's private code */
	bool leader_exited; /* the main thread has exited; other threads may run */
	/* has or had several threads: the exit of the leader may not be the end */
	bool threads;
};

static inline struct process *process_of(const struct procman_process *p)
{
	return container_of(p, struct process, pub);
}

struct procman {
	struct procman_options options; /* with all defaults filled in */
	struct listening {
		const struct procman_listener *l; /* borrowed */
		void *arg;
	} listeners[PROCMAN_MAX_LISTENERS];
	u32 n_listeners;
	struct procman_stats stats;
	struct binaries binaries;
	struct map by_pid; /* pid → struct process *, the latest incarnation */
	vec(struct process *) dirty;
	vec(struct process *) young;
	struct process *exited_first, *exited_last; /* ordered by gone_due_ns */
	struct round round;
	int epoll_fd, timer_fd; /* owned */
	u64 timer_ns;		/* expiry of the timer; ~0: not set */
	u64 next_set_id;
	u64 next_image;
	u64 next_seen;
	u64 rescan_due_ns; /* ~0: none */
	u64 rescan_not_before_ns;
	vec(u32) rescan_pids; /* pids being read again; new ones come first */
	size_t rescan_next;   /* index of the next pid */
	u64 rescan_begin_ns, rescan_cpu_ns;
	u64 rescan_slice_due_ns; /* when the rescan continues */
	u64 cpus_due_ns;
};

/* Makes procman_fd() readable. */
void procman_due_now(struct procman *pm);
/* Applies a record, which was read from `ring`; the end of the batch announces the changes. */
void procman_handle(struct procman *pm, const struct sideband *r, struct ring *ring);

/* ---- tell.c ---- */

/* The end of a batch: settles and announces each changed process once. */
void tell_changes(struct procman *pm);
void tell_exec(struct procman *pm, const struct process *p, u64 before);
/* Calls process_ended() first, if it was not called. */
void tell_gone(struct procman *pm, struct process *p);
void tell_binary_gone(void *arg, struct procman_binary *b);
void tell_cpus(struct procman *pm, const u32 *cpus, u32 n);

/* ---- process.c ---- */

/* A process without mappings, in no table. NULL: out of memory. */
struct process *process_create(struct procman *pm, u32 pid);
/* Frees the process, which is in no table or list any more. */
void process_destroy(struct procman *pm, struct process *p);
/* Marks the process to be settled and announced at the end of the batch. */
void process_touch(struct procman *pm, struct process *p);

/* A fork: p gets the mappings, name and start_stack of its parent. */
void process_inherit(struct procman *pm, struct process *p, struct process *parent);
/* An exec record: the process gets a new image without mappings. */
void process_exec(struct procman *pm, struct process *p, const struct sideband *r);
/* Sets the name; marks the process if the name has changed. */
void process_set_comm(struct procman *pm, struct process *p, const char *comm);
/* An mmap record: adds the mapping to the changes of this batch. */
void process_map(struct procman *pm, struct process *p, const struct sideband *r);

/*
 * Reads stat and mappings from /proc. -ESRCH: the process has exited, is a zombie, or its pid
 * belongs to another process (start_ticks differ); nothing has changed then. Unreadable mappings
 * count as read.
 */
int process_read(struct procman *pm, struct process *p);
/* At the end of a batch: applies changed mappings, and reads what /proc must supply. */
void process_settle(struct procman *pm, struct process *p);
/* Reads start_stack when the exec should have finished. */
void process_grown(struct procman *pm, struct process *p);

/* ---- CPUs (cpus.c) ---- */

/*
 * Opens rings of CPUs that came online and closes those of CPUs that went offline, whose events
 * have all been read. Events on a new CPU before this were not seen. A CPU that was offline between
 * two looks is told as gone, and then as new: perf events of others have died, too.
 */
int cpus_update(struct procman *pm);
