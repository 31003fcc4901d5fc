/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/runtime/learn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Reading one binary may use a quarter of --memory-limit: V8's symbols take 30 MiB. */
#define SHARE 4
#define PAUSE_MS 500

struct learner {
	struct worker *worker;
	struct budget *budget; /* borrowed, or NULL */
};

void learn_job_free(struct learn_job *job)
{
	if (!job)
		return;
	elf_file_destroy(job->binary.elf);
	free((char *)job->binary.path);
	free(job);
}

static struct learn_job *job_of(struct worker_job *base)
{
	return base ? container_of(base, struct learn_job, base) : NULL;
}

static int learn_in_budget(struct learner *l, struct learn_job *job)
{
	u64 limit = budget_limit(l->budget) / SHARE, room = 0;
	const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
	int r;

	if (limit) {
		job->binary.elf->max_memory = limit;
		room = MIN(job->binary.elf->size, limit);
	}
	if (!budget_begin(l->budget, room)) {
		/* The owner may queue the binary again at once, so wait a little. */
		(void)nanosleep(&pause, NULL);
		return diag_set(&job->why, -ENOBUFS, "reading it would exceed --memory-limit");
	}
	r = job->ops->learn(&job->binary, &job->info, &job->learned, &job->why);
	if (limit)
		budget_end(l->budget, room);
	return r;
}

/* Runs in the worker's thread. */
static void run_job(void *arg, struct worker_job *base)
{
	struct learn_job *job = job_of(base);
	u64 begin = clock_ns(CLOCK_MONOTONIC);

	job->error = learn_in_budget(arg, job);
	job->ms = (double)(clock_ns(CLOCK_MONOTONIC) - begin) / 1e6;
}

static void drop_job(void *arg, struct worker_job *base, bool ran)
{
	struct learn_job *job = job_of(base);

	(void)arg;
	if (ran && job->error >= 0)
		job->ops->forget(job->learned);
	learn_job_free(job);
}

int learner_ask(struct learner *l, const struct runtime_ops *ops, const struct procman_binary *b,
		void *user)
{
	struct learn_job *job = calloc(1, sizeof(*job));
	int r = -ENOMEM;

	if (!job)
		return r;
	job->ops = ops;
	job->user = user;
	job->binary.kind = b->kind;
	job->binary.path = strdup(b->path);
	if (job->binary.path)
		r = elf_file_open_again(b->elf, &job->binary.elf);
	if (r < 0) {
		learn_job_free(job);
		return r;
	}
	worker_ask(l->worker, &job->base, 0);
	return 0;
}

struct learn_job *learner_take(struct learner *l, bool wait)
{
	return job_of(worker_take(l->worker, wait));
}

bool learner_busy(const struct learner *l)
{
	return worker_busy(l->worker);
}

int learner_fd(const struct learner *l)
{
	return worker_fd(l->worker);
}

int learner_create(struct budget *budget, struct learner **ret)
{
	struct learner *l = calloc(1, sizeof(*l));
	/* Priority above most threads, below the reader. */
	const struct worker_options o = {
		.name = "learner", .nice = -10, .run = run_job, .drop = drop_job, .arg = l};
	int r;

	if (!l)
		return -ENOMEM;
	l->budget = budget;
	r = worker_create(&o, &l->worker);
	if (r < 0) {
		free(l);
		return r;
	}
	*ret = l;
	return 0;
}

void learner_destroy(struct learner *l)
{
	if (!l)
		return;
	worker_destroy(l->worker);
	free(l);
}
