/* SPDX-License-Identifier: Apache-2.0 */
/* struct pipeline, for the files of agent/pipeline. */
#pragma once

#include "agent/pipeline/pipeline.h"

struct pipeline {
	struct procman *procman; /* owned, like the next five */
	struct sampler *sampler;
	struct tables *tables;
	struct runtimes *runtimes;
	struct contexts *contexts;
	struct pipeline_batch *batch;  /* being recorded */
	struct pipeline_batch *before; /* borrowed: the previous batch, during pipeline_take() */
	int epoll_fd;
	int nice; /* nice value of the thread before pipeline_start() */
	bool keep_times;
	bool (*process_seen)(void *arg, const struct procman_process *p, struct runtimes *r);
	void (*process_said)(void *arg, const struct procman_process *p,
			     const struct context_label *labels, u32 n);
	void *arg;
	bool follow;	       /* a command that has not started yet is recorded */
	bool only_some;	       /* only the processes in `sampled` are recorded */
	struct map sampled;    /* pid → 1; with `follow` also the command's descendants */
	u64 drained_ns;	       /* time of the last complete drain */
	u64 retry_ns;	       /* when runtimes that had not started are attached again */
	struct parked *parked; /* owned: walks that wait for unwind pages */
	u64 parked_bytes, parked_max;
	bool has_execs; /* procman has learned of some while the ring was read */
	bool closing;	/* nothing is parked, because the batch is about to be taken */
	u64 given_up;
	u64 batch_max; /* bytes of a batch; 0: no limit */
	u64 scratch[SAMPLE_MAX_FRAMES];
	u64 lost[SAMPLER_MAX_SOURCES];	  /* of previous batches */
	u64 no_room[SAMPLER_MAX_SOURCES]; /* samples dropped so far because the batch was full */
	u64 stall_ns;
	const char *stall_what; /* static */
};
