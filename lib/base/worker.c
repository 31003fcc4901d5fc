/* SPDX-License-Identifier: Apache-2.0 */
#include "base/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

/* A queue of jobs. */
struct jobs {
	struct worker_job *first, **end;
	u32 n;
};

struct worker {
	struct worker_options options;
	pthread_t thread;
	bool running;
	int event_fd;

	pthread_mutex_t lock; /* the next lines */
	pthread_cond_t to_worker, to_owner;
	struct jobs asked[WORKER_URGENCIES], done;
	bool stop, gentle;

	struct jobs taken; /* the owner's, as the next */
	u32 n_jobs;	   /* under way */
};

static void jobs_init(struct jobs *q)
{
	*q = (struct jobs){.end = &q->first};
}

static void jobs_add(struct jobs *q, struct worker_job *job)
{
	job->next = NULL;
	*q->end = job;
	q->end = &job->next;
	q->n++;
}

static struct worker_job *jobs_take(struct jobs *q)
{
	struct worker_job *job = q->first;

	if (!job)
		return NULL;
	q->first = job->next;
	if (!q->first)
		q->end = &q->first;
	q->n--;
	return job;
}

/* Whether a job of the first n urgencies waits. */
static bool any_asked(const struct worker *w, u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (w->asked[i].n)
			return true;
	return false;
}

static struct worker_job *next_job(struct worker *w)
{
	struct worker_job *job = NULL;

	for (u32 i = 0; i < WORKER_URGENCIES && !job; i++)
		job = jobs_take(&w->asked[i]);
	return job;
}

static void give_back(struct worker *w, struct worker_job *job)
{
	u64 one = 1;

	jobs_add(&w->done, job);
	pthread_cond_signal(&w->to_owner);
	if (!job->urgency || w->done.n % w->options.tell_n == 0 || !any_asked(w, WORKER_URGENCIES))
		(void)!write(w->event_fd, &one, sizeof(one));
}

/* Waits, or until a more urgent job is queued. */
static void rest_unless_urgent(struct worker *w, u64 ns)
{
	while (!w->stop && w->gentle && !any_asked(w, WORKER_URGENCIES - 1) &&
	       thread_wait(&w->to_worker, &w->lock, ns))
		;
}

static void *worker_thread(void *arg)
{
	struct worker *w = arg;

	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), w->options.nice);
	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		struct worker_job *job = next_job(w);
		u32 urgency;
		u64 begin;

		if (!job) {
			pthread_cond_wait(&w->to_worker, &w->lock);
			continue;
		}
		urgency = job->urgency;
		pthread_mutex_unlock(&w->lock);
		begin = clock_ns(CLOCK_MONOTONIC);
		w->options.run(w->options.arg, job);
		pthread_mutex_lock(&w->lock);
		give_back(w, job);
		if (urgency == WORKER_URGENCIES - 1 && w->gentle)
			rest_unless_urgent(w, (clock_ns(CLOCK_MONOTONIC) - begin) * 3 / 2);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* ---- the owner ---- */

void worker_ask(struct worker *w, struct worker_job *job, u32 urgency)
{
	job->urgency = urgency;
	pthread_mutex_lock(&w->lock);
	jobs_add(&w->asked[urgency], job);
	pthread_mutex_unlock(&w->lock);
	/*
	 * After the unlock: the worker may preempt this thread when it wakes, and would then wait
	 * for the lock.
	 */
	pthread_cond_signal(&w->to_worker);
	w->n_jobs++;
}

/* Takes all finished jobs at once, so that the lock is held briefly. */
static void fetch_done(struct worker *w, bool wait)
{
	u64 n;

	(void)!read(w->event_fd, &n, sizeof(n));
	pthread_mutex_lock(&w->lock);
	while (wait && !w->done.n)
		pthread_cond_wait(&w->to_owner, &w->lock);
	if (w->done.n) {
		w->taken = w->done;
		jobs_init(&w->done);
	}
	pthread_mutex_unlock(&w->lock);
}

struct worker_job *worker_take(struct worker *w, bool wait)
{
	struct worker_job *job;

	if (!w->n_jobs)
		return NULL;
	if (!w->taken.n)
		fetch_done(w, wait);
	job = w->taken.n ? jobs_take(&w->taken) : NULL;
	w->n_jobs -= job != NULL;
	return job;
}

bool worker_busy(const struct worker *w)
{
	return w->n_jobs;
}

int worker_fd(const struct worker *w)
{
	return w->event_fd;
}

void worker_set_gentle(struct worker *w, bool gentle)
{
	pthread_mutex_lock(&w->lock);
	w->gentle = gentle;
	pthread_cond_signal(&w->to_worker);
	pthread_mutex_unlock(&w->lock);
}

/* ---- life ---- */

int worker_create(const struct worker_options *o, struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->options = *o;
	w->options.tell_n = o->tell_n ? o->tell_n : 1;
	thread_sync_init(&w->lock, &w->to_worker);
	pthread_cond_init(&w->to_owner, NULL);
	for (u32 i = 0; i < WORKER_URGENCIES; i++)
		jobs_init(&w->asked[i]);
	jobs_init(&w->done);
	jobs_init(&w->taken);
	w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = w->event_fd < 0 ? -errno : thread_start(&w->thread, o->name, worker_thread, w);
	w->running = r == 0;
	if (r < 0) {
		worker_destroy(w);
		return r;
	}
	*ret = w;
	return 0;
}

void worker_destroy(struct worker *w)
{
	struct worker_job *job;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->to_worker);
	pthread_mutex_unlock(&w->lock);
	if (w->running)
		pthread_join(w->thread, NULL);
	while ((job = next_job(w)))
		w->options.drop(w->options.arg, job, false);
	while ((job = jobs_take(&w->taken)))
		w->options.drop(w->options.arg, job, true);
	while ((job = jobs_take(&w->done)))
		w->options.drop(w->options.arg, job, true);
	pthread_cond_destroy(&w->to_worker);
	pthread_cond_destroy(&w->to_owner);
	pthread_mutex_destroy(&w->lock);
	if (w->event_fd >= 0)
		close(w->event_fd);
	free(w);
}
