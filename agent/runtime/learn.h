/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns the binaries of runtimes in a thread of its own, because one may take a few 100 ms. A job
 * belongs to the owner, then to the worker, then to the owner again; the threads share nothing
 * else. The owner calls all functions.
 */
#pragma once

#include "agent/runtime/runtime.h"
#include "base/worker.h"

struct learner;

struct learn_job {
	struct worker_job base; /* used by the worker */
	const struct runtime_ops *ops;
	struct procman_binary
		binary; /* kind is set; path and elf belong to the job; other fields are unset */
	void *user;
	/* Set by the worker. */
	int error;
	struct diag why;
	struct runtime_binary info;
	void *learned; /* set if there is no error; the taker frees it with ops->forget() */
	double ms;     /* time that learning took */
};

/* The budget is borrowed until learner_destroy(); it may be NULL. */
int learner_create(struct budget *budget, struct learner **ret);
/* Waits for the job that is running, and drops all others. */
void learner_destroy(struct learner *l);
/* Readable when learner_take() has a job. */
int learner_fd(const struct learner *l);
/* Whether a job is queued or running. */
bool learner_busy(const struct learner *l);
/* Queues a job for a binary. The job opens the file again: `b` stays with the caller. */
int learner_ask(struct learner *l, const struct runtime_ops *ops, const struct procman_binary *b,
		void *user);
/*
 * Returns a finished job, which the caller frees. NULL: no job is finished. With `wait`, waits for
 * one; NULL then means that none is queued or running.
 */
struct learn_job *learner_take(struct learner *l, bool wait);
/* Frees a job, but not `learned`. */
void learn_job_free(struct learn_job *job);
