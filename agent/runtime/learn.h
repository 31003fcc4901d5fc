/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns of runtimes' binaries in a thread of its own, as that may take a few 100 ms. A job is the
 * owner's, then the worker's, then the owner's again; nothing else is shared. All functions are the
 * owner's.
 */
#pragma once

#include "agent/runtime/runtime.h"
#include "base/worker.h"

struct learner;

struct learn_job {
	struct worker_job base; /* the worker's */
	const struct runtime_ops *ops;
	struct procman_binary binary; /* path and elf are its own, the rest is not set */
	void *user;
	/* The result. */
	int error;
	struct diag why;
	struct runtime_binary info;
	void *learned; /* the taker's, without an error */
	double ms;     /* that it took */
};

/* The budget is borrowed, or NULL. */
int learner_create(struct budget *budget, struct learner **ret);
/* Waits for what is under way, and drops it. */
void learner_destroy(struct learner *l);
/* Readable when there is something to take. */
int learner_fd(const struct learner *l);
/* Is anything under way? */
bool learner_busy(const struct learner *l);
/* `b` is opened a second time: it stays the caller's. */
int learner_ask(struct learner *l, const struct runtime_ops *ops, const struct procman_binary *b,
		void *user);
/* NULL: nothing is ready; with `wait`, nothing is under way. */
struct learn_job *learner_take(struct learner *l, bool wait);
/* All but what was learned. */
void learn_job_free(struct learn_job *job);
