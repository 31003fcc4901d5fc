/* SPDX-License-Identifier: Apache-2.0 */
/* struct pipeline and what uses it in more than one file, for the files of agent/pipeline. */
#pragma once

#include "agent/pipeline/pipeline.h"

/* The interval at which the ring is read if nothing is urgent; doubled at low rates, and for
 * requests, which are kept long after. */
#define PERIOD_MS 50

/* The last wake-up of a thread. */
struct waking {
	u64 woken_ns;
	struct pipeline_waker waker; /* `next` is not set */
};

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
	bool walks; /* user stacks are taken */
	bool (*process_seen)(void *arg, const struct procman_process *p, struct runtimes *r);
	void (*jvm_seen)(void *arg, const struct procman_process *p, u64 avma);
	const char *jvm_flag;
	void *jvm_arg;
	void (*process_said)(void *arg, const struct procman_process *p,
			     const struct context_label *labels, u32 n);
	void (*interval)(void *arg, const struct record_interval *i);
	void *arg;
	bool requests;	       /* `sampled` are armed processes */
	struct map publishing; /* image → 1; only with `requests` */
	bool follow;	       /* a command that has not started yet is recorded */
	bool only_some;	       /* only the processes in `sampled` are recorded */
	/* pid → 1; with `follow` also the command's descendants; with `choose` → what it chose */
	struct map sampled;
	enum pipeline_choice (*choose)(void *arg, const struct procman_process *p);
	void *choose_arg;
	u64 drained_ns;	       /* time of the last complete drain */
	u64 retry_ns;	       /* when runtimes that had not started are attached again */
	u64 tell_ns;	       /* when what goes on for long is told again */
	struct parked *parked; /* owned: walks that wait for unwind pages */
	u64 parked_bytes, parked_max;
	bool has_execs;		   /* procman has learned of some while the ring was read */
	struct tasks *tasks;	   /* owned; NULL: waits are not recorded */
	struct traced *traced;	   /* owned; NULL: the sources are not those of a script */
	struct alloc *alloc;	   /* owned; NULL: allocations are not recorded */
	struct resident *resident; /* owned; NULL: resident memory is not followed */
	struct heaps *heaps;	   /* owned; NULL: memory profiles are not read */
	bool closing;		   /* nothing is parked, because the batch is about to be taken */
	u64 given_up;
	u64 batch_max; /* bytes of a batch; 0: no limit */
	vec(struct waking) wakings;
	struct map waking_index; /* tid → wakings */
	/* By id: entries whose values come later, in p->batch and in p->before; and values that
	 * came before their samples. */
	struct map expected[2], early_values, early_bytes;
	u64 scratch[SAMPLE_MAX_FRAMES];
	u64 lost[SAMPLER_MAX_SOURCES];	  /* of previous batches */
	u64 no_room[SAMPLER_MAX_SOURCES]; /* samples dropped so far because the batch was full */
	u64 stopped_ns;			  /* CLOCK_MONOTONIC; 0: not stopped */
	u64 stall_ns;
	const char *stall_what; /* static */
};

/*
 * When to look again at processes that may end soon, after a look that began at look_ns: after a
 * tenth of the time since began_ns, 50 ms to 1 s, and so late that looks take at most one of
 * `parts` of the time.
 */
u64 pipeline_next_look_ns(u64 began_ns, u64 look_ns, u64 parts);
/*
 * Records how long the ring was not read because of `what`, which began at begin_ns. Returns the
 * time.
 */
u64 pipeline_note_stall(struct pipeline *p, u64 begin_ns, const char *what);
/*
 * Raises the thread's priority. Until a new process is known and the rows of its code are loaded,
 * its samples carry copies of its stack, whose number is limited. On an overloaded machine that
 * could take many milliseconds; the work itself takes microseconds. Without the privilege the
 * priority is unchanged.
 */
void pipeline_set_urgent(struct pipeline *p, bool urgent);
