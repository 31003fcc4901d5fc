/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/runtime/learn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* First in, first out. */
struct jobs {
	struct learn_job *first, **end;
};

struct learner {
	pthread_t thread;
	bool running;
	int event_fd;
	u32 n_jobs; /* under way; the owner's */

	pthread_mutex_t lock; /* the rest */
	pthread_cond_t to_worker, to_owner;
	struct jobs asked, done;
	bool stop;
};

static void jobs_init(struct jobs *q)
{
	q->first = NULL;
	q->end = &q->first;
}

static void jobs_add(struct jobs *q, struct learn_job *job)
{
	job->next = NULL;
	*q->end = job;
	q->end = &job->next;
}

static struct learn_job *jobs_take(struct jobs *q)
{
	struct learn_job *job = q->first;

	if (!job)
		return NULL;
	q->first = job->next;
	if (!q->first)
		q->end = &q->first;
	return job;
}

void learn_job_free(struct learn_job *job)
{
	if (!job)
		return;
	elf_file_destroy(job->binary.elf);
	free((char *)job->binary.path);
	free(job);
}

/* ---- the worker ---- */

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void *work(void *arg)
{
	struct learner *l = arg;
	u64 one = 1;

	/* Before most others, behind the reader; without the privilege it stays as it is. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), -10);
	pthread_mutex_lock(&l->lock);
	while (!l->stop) {
		struct learn_job *job = jobs_take(&l->asked);

		if (!job) {
			pthread_cond_wait(&l->to_worker, &l->lock);
			continue;
		}
		pthread_mutex_unlock(&l->lock);
		job->ms = now_ms();
		job->error = job->ops->learn(&job->binary, &job->info, &job->learned, &job->why);
		job->ms = now_ms() - job->ms;
		pthread_mutex_lock(&l->lock);
		jobs_add(&l->done, job);
		pthread_cond_signal(&l->to_owner);
		(void)!write(l->event_fd, &one, sizeof(one));
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* ---- the owner ---- */

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
	pthread_mutex_lock(&l->lock);
	jobs_add(&l->asked, job);
	pthread_cond_signal(&l->to_worker);
	pthread_mutex_unlock(&l->lock);
	l->n_jobs++;
	return 0;
}

struct learn_job *learner_take(struct learner *l, bool wait)
{
	struct learn_job *job;
	u64 n;

	if (!l->n_jobs)
		return NULL;
	pthread_mutex_lock(&l->lock);
	while (wait && !l->done.first)
		pthread_cond_wait(&l->to_owner, &l->lock);
	job = jobs_take(&l->done);
	if (!l->done.first)
		(void)!read(l->event_fd, &n, sizeof(n));
	pthread_mutex_unlock(&l->lock);
	l->n_jobs -= job != NULL;
	return job;
}

bool learner_busy(const struct learner *l)
{
	return l->n_jobs;
}

int learner_fd(const struct learner *l)
{
	return l->event_fd;
}

/* Signals are for the thread that made us. */
static int start_thread(struct learner *l)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&l->thread, NULL, work, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	l->running = r == 0;
	return -r;
}

int learner_create(struct learner **ret)
{
	struct learner *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->to_worker, NULL);
	pthread_cond_init(&l->to_owner, NULL);
	jobs_init(&l->asked);
	jobs_init(&l->done);
	l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = l->event_fd < 0 ? -errno : start_thread(l);
	if (r < 0) {
		learner_destroy(l);
		return r;
	}
	*ret = l;
	return 0;
}

void learner_destroy(struct learner *l)
{
	struct learn_job *job;

	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->to_worker);
	pthread_mutex_unlock(&l->lock);
	if (l->running)
		pthread_join(l->thread, NULL);
	while ((job = jobs_take(&l->asked)))
		learn_job_free(job);
	while ((job = jobs_take(&l->done))) {
		if (job->error >= 0)
			job->ops->forget(job->learned);
		learn_job_free(job);
	}
	pthread_cond_destroy(&l->to_worker);
	pthread_cond_destroy(&l->to_owner);
	pthread_mutex_destroy(&l->lock);
	if (l->event_fd >= 0)
		close(l->event_fd);
	free(l);
}
