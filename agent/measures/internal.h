/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of agent/measures. */
#pragma once

#include <pthread.h>

#include "agent/measure/measure.h"
#include "agent/measures/measures.h"
#include "base/vec.h"

/* A measure of a server, and what it is told. */
struct measures_listed {
	struct control_measure asked;
	u32 server;
	u64 serial;
	struct control_measurement seen;
	vec(struct control_call) calls;
	size_t n_told; /* of these: in the last report */
};

/* A binary of a measurement, and the processes that run it; or the kernel. */
struct measures_binary {
	u64 dev, inode;	    /* 0 of the kernel */
	u32 pid;	    /* the only process; 0: several run it */
	u32 n_now, now_pid; /* processes that run it at the last look, and one of these */
	bool is_stale;	    /* `measure` is of another process */
	int fd;		    /* owned; -1 of the kernel */
	bool was_tried;
	struct measure *measure; /* owned; NULL: it could not be begun */
};

struct measures_process {
	u32 pid;
	u64 image;
};

/* The thread's own: a measurement at work. */
struct measures_work {
	struct control_measure asked;
	u64 serial;
	bool is_listed, has_begun, is_over;
	u64 end_ns, look_ns, learnt_ns; /* CLOCK_MONOTONIC; learnt_ns 0: the threshold is final */
	u64 slow_ns;
	u64 measured_ns, since_ns; /* counted so far, up to since_ns */
	vec(struct measures_binary) binaries;
	u32 n_measured; /* of these */
	vec(struct measures_process) processes;
	char refused[CONTROL_TEXT_BYTES]; /* why the last binary is not measured, or "" */
	/* Of measures that have ended: those before the threshold was known. */
	struct control_measurement before;
	struct control_measurement seen;
	struct profile *profile; /* owned; NULL: no slow call since the last */
	u64 profile_ns;
	u32 labelled; /* calls whose arguments have become labels */
};

struct measures {
	struct measures_options options;
	pthread_t thread;
	bool started;
	s64 epoch_ns; /* the realtime clock minus the monotonic one; the thread's */
	vec(struct measures_work *) work; /* owned; the thread's */

	pthread_mutex_t lock; /* of all fields below */
	pthread_cond_t wake;
	bool ending;
	u64 last_serial;
	vec(struct measures_listed) list;
};

/* ---- processes.c ---- */

/* Finds processes of the service that run the binary, and adds binaries that are new. */
int measures_find(struct measures *m, struct measures_work *w);

/* ---- calls.c ---- */

/* Takes the slow calls of a binary; appends them to `to`. */
int measures_take_calls(struct measures *m, struct measures_work *w, struct measures_binary *b,
			struct control_request *to);
/* Passes on the profile of slow calls so far. */
void measures_flush(struct measures *m, struct measures_work *w);
