/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline as its own files see it. */
#pragma once

#include "agent/pipeline/pipeline.h"

struct pipeline {
	struct procman *procman; /* owned, as the next five */
	struct sampler *sampler;
	struct tables *tables;
	struct runtimes *runtimes;
	struct contexts *contexts;
	struct pipeline_batch *batch;  /* being recorded */
	struct pipeline_batch *before; /* borrowed: the one before, during pipeline_take() */
	int epoll_fd;
	int nice; /* of the thread before pipeline_start() */
	bool keep_times;
	bool (*process_seen)(void *arg, const struct procman_process *p, struct runtimes *r);
	void (*process_said)(void *arg, const struct procman_process *p,
			     const struct context_label *labels, u32 n);
	void *arg;
	bool follow;	       /* a command that has not been started yet */
	bool only_some;	       /* processes, by their pids: those of `sampled` */
	struct map sampled;    /* pid → 1; with `follow` also the command's descendants */
	u64 drained_ns;	       /* when all that there was had been handled */
	u64 retry_ns;	       /* when runtimes that were too early are asked again */
	struct parked *parked; /* owned: walks that wait for unwind pages */
	u64 parked_bytes, parked_max;
	bool has_execs; /* procman has learned of some while the ring was read */
	bool closing;	/* nothing is parked: the batch is about to be taken */
	u64 given_up;
	u64 batch_max; /* bytes of a batch; 0: no limit */
	u64 scratch[SAMPLE_MAX_FRAMES];
	u64 lost[SAMPLER_MAX_SOURCES];	  /* of the batches before */
	u64 no_room[SAMPLER_MAX_SOURCES]; /* samples dropped for batch_max so far */
	u64 stall_ns;
	const char *stall_what; /* static */
};
