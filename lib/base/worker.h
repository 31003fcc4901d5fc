/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that does jobs for another, its owner.
 *
 *	owner ── jobs, urgent ones first ─→ worker
 *	owner ←─ the same jobs, done ────── worker
 *
 * A job is the owner's until it is asked for, and again once it is taken; embed a struct worker_job
 * in what the job needs and what it yields. Nothing is allocated here. All functions are the
 * owner's.
 */
#pragma once

#include "base/types.h"

#define WORKER_URGENCIES 3

struct worker;

struct worker_job {
	struct worker_job *next; /* the worker's, as the next */
	u32 urgency;
};

struct worker_options {
	const char *name; /* of the thread */
	int nice;	  /* without the privilege it stays as it is */
	/* In the thread. */
	void (*run)(void *arg, struct worker_job *job);
	/* A job that came to nothing: worker_destroy() had it not run, or not taken. */
	void (*drop)(void *arg, struct worker_job *job, bool ran);
	void *arg;
	/*
	 * The descriptor is readable for each job of urgency 0, and for others when there are so
	 * many, or none are left to do. 0 = 1.
	 */
	u32 tell_n;
};

int worker_create(const struct worker_options *o, struct worker **ret);
/* Waits for the job that is under way; NULL is fine. */
void worker_destroy(struct worker *w);
/* Readable when there is something to take. */
int worker_fd(const struct worker *w);
/* Is anything under way? */
bool worker_busy(const struct worker *w);
/* Behind those of its urgency, before all of a greater number. */
void worker_ask(struct worker *w, struct worker_job *job, u32 urgency);
/* NULL: nothing is done; with `wait`, nothing is under way. */
struct worker_job *worker_take(struct worker *w, bool wait);
/* Whether after a job of the greatest urgency there is a rest of 1.5 times its time. */
void worker_set_gentle(struct worker *w, bool gentle);
