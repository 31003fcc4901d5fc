/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that does jobs for another thread, its owner.
 *
 *	owner ── jobs, urgent ones first ─→ worker
 *	owner ←─ the same jobs, done ────── worker
 *
 * The owner owns a job until worker_ask() and again after worker_take(). A struct worker_job is
 * embedded in the owner's struct with the job's input and result; nothing is allocated here. Only
 * the owner's thread may call these functions.
 */
#pragma once

#include "base/types.h"

#define WORKER_URGENCIES 3

struct worker;

struct worker_job {
	struct worker_job *next; /* the worker's, like the next member */
	u32 urgency;
};

struct worker_options {
	const char *name; /* name of the thread */
	int nice;	  /* nice value; ignored without the privilege to set it */
	/* Does the job; called in the worker's thread. */
	void (*run)(void *arg, struct worker_job *job);
	/* Releases a job that worker_destroy() found not run (`ran` false) or not taken. */
	void (*drop)(void *arg, struct worker_job *job, bool ran);
	void *arg;
	/*
	 * worker_fd() becomes readable for each finished job of urgency 0; for other jobs when this
	 * many are finished, or no job is left to do. 0 = 1.
	 */
	u32 tell_n;
};

/* Starts the thread. -ENOMEM, or the error of a system call. */
int worker_create(const struct worker_options *o, struct worker **ret);
/* Waits for the job that is being run, and drops all others. NULL is fine. */
void worker_destroy(struct worker *w);
/* A descriptor that is readable when worker_take() has a job. */
int worker_fd(const struct worker *w);
/* Whether any job is waiting or being run. */
bool worker_busy(const struct worker *w);
/* Queues a job after those of the same urgency and before all of a greater number. */
void worker_ask(struct worker *w, struct worker_job *job, u32 urgency);
/*
 * A finished job, or NULL. With `wait` it waits for one, and returns NULL only if no job is left.
 */
struct worker_job *worker_take(struct worker *w, bool wait);
/*
 * If gentle, the worker pauses after a job of the greatest urgency number for 1.5 times the job's
 * duration.
 */
void worker_set_gentle(struct worker *w, bool gentle);
