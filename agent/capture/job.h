/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of capture: profiles of some requests. Capture's thread gathers what belongs to them
 * (gather.c); a thread of the job names the stacks and passes the profiles on (decide.c).
 */
#pragma once

#include "agent/capture/internal.h"

/* Labels of the profiles (doc/design/0019-kept-requests.md). */
#define LABEL_TASK "task"
#define LABEL_KEPT "kept"

/* The events of a request in one batch. */
struct part {
	const struct pipeline_batch *batch; /* borrowed until the job is done */
	u32 wish;			    /* index of job.wishes */
	vec(struct symbolizer_event) events;
};

/* A process with its resource in both profiles. */
struct told_process {
	u64 image;
	u32 in_wall, in_time;
};

struct job {
	struct recorder *r; /* borrowed */
	capture_wishes wishes;
	vec(struct control_kept) results; /* of each; .samples */
	vec(struct part) parts;
	vec(struct told_process) processes;
	struct profile *wall, *time; /* owned */
	u64 lost;		     /* samples and intervals since the last job */
	pthread_t thread;
	bool done; /* atomic */
};

/*
 * Gathers a request: its events to job.parts, its ledger to job.time, its processes to both
 * profiles. -ESRCH: nothing was seen of it.
 */
int gather(struct recorder *r, struct job *j, u32 wish);
