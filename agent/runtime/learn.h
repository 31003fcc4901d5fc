/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns runtimes' binaries in a thread of its own, as one may take a few 100 ms. A job belongs to
 * the owner, then to the worker, then to the owner again; the threads share nothing else. The owner
 * calls all functions.
 */
#pragma once

#include "agent/runtime/runtime.h"
#include "base/worker.h"

struct learner;

struct learn_job {
	struct worker_job base; /* the worker's */
	const struct runtime_ops *ops;
	struct procman_binary
		binary; /* kind is set, path and elf are the job's own; nothing else */
	void *user;
	/* Set by the worker. */
	int error;
	struct diag why;
	struct runtime_binary info;
	void *learned; /* without an error: for the taker to free with ops->forget() */
	double ms;     /* time that learning took */
};

/* The budget is borrowed until learner_destroy(), or NULL. */
int learner_create(struct budget *budget, struct learner **ret);
/* Waits for the job that is running, and drops all jobs. */
void learner_destroy(struct learner *l);
/* Readable when learner_take() has a job. */
int learner_fd(const struct learner *l);
/* Is any job queued or running? */
bool learner_busy(const struct learner *l);
/* Queues a job for a binary, which is opened a second time: `b` stays the caller's. */
int learner_ask(struct learner *l, const struct runtime_ops *ops, const struct procman_binary *b,
		void *user);
/* Returns a finished job, for the caller to free. NULL: none is ready; with `wait`, which waits for
 * one: none is under way. */
struct learn_job *learner_take(struct learner *l, bool wait);
/* Frees a job, but not `learned`. */
void learn_job_free(struct learn_job *job);
