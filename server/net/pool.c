/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"

/*
 * Writes wait for the disk or for ClickHouse most of the time: 2,000 agents' requests a second that
 * each wait for half a second need 1,000 threads. Questions need CPU and memory.
 */
#define MAX_THREADS 1024
#define MAX_QUESTIONS 64

struct class
{
	pthread_cond_t wake;
	TAILQ_HEAD(, net_peer) turns; /* clients with queued jobs; the first one is next */
	u32 max_threads, max_queued;
	u32 n_threads, idle, queued;
	pthread_t threads[MAX_THREADS];
};

struct net_pool {
	pthread_mutex_t lock;
	struct class classes[POOL_CLASSES];
	bool stopping;
};

struct worker {
	struct net_pool *pool;
	enum pool_class class;
};

/* The next job whose client does not run its share already, or NULL. Two clients run it at most. */
static struct pool_job *take(struct class *k, enum pool_class class)
{
	struct net_peer *p;

	TAILQ_FOREACH(p, &k->turns, work[class].turn)
	{
		struct pool_work *w = &p->work[class];
		struct pool_job *j = w->first;

		if (w->running >= k->max_threads / 2)
			continue;
		w->first = j->next;
		if (!w->first)
			w->last = &w->first;
		w->queued--;
		k->queued--;
		w->running++;
		TAILQ_REMOVE(&k->turns, p, work[class].turn);
		if (w->queued)
			TAILQ_INSERT_TAIL(&k->turns, p, work[class].turn);
		return j;
	}
	return NULL;
}

static void *run_jobs(void *arg)
{
	struct worker w = *(struct worker *)arg;
	struct class *k = &w.pool->classes[w.class];

	free(arg);
	pthread_mutex_lock(&w.pool->lock);
	for (;;) {
		struct pool_job *j = take(k, w.class);
		struct net_peer *p;

		if (!j && w.pool->stopping)
			break;
		if (!j) {
			k->idle++;
			pthread_cond_wait(&k->wake, &w.pool->lock);
			k->idle--;
			continue;
		}
		p = j->peer;
		pthread_mutex_unlock(&w.pool->lock);
		j->run(j);
		pthread_mutex_lock(&w.pool->lock);
		p->work[w.class].running--;
		pthread_mutex_unlock(&w.pool->lock);
		j->done(j);
		pthread_mutex_lock(&w.pool->lock);
	}
	pthread_mutex_unlock(&w.pool->lock);
	return NULL;
}

static void start_thread(struct net_pool *p, enum pool_class class)
{
	static const char *const names[POOL_CLASSES] = {"net-question", "net-write"};
	struct class *k = &p->classes[class];
	struct worker *w = malloc(sizeof(*w));

	if (w)
		*w = (struct worker){p, class};
	if (w && thread_start(&k->threads[k->n_threads], names[class], run_jobs, w) == 0) {
		k->n_threads++;
		return;
	}
	free(w);
	log_warn_rarely("cannot start a thread for requests; %u run", k->n_threads);
}

int pool_submit(struct net_pool *p, enum pool_class class, struct pool_job *j)
{
	struct class *k = &p->classes[class];
	struct pool_work *w = &j->peer->work[class];
	int r = -EBUSY;

	j->next = NULL;
	pthread_mutex_lock(&p->lock);
	if (k->queued < k->max_queued && w->queued < k->max_queued / 2) {
		if (k->idle <= k->queued && k->n_threads < k->max_threads)
			start_thread(p, class);
		r = k->n_threads ? 0 : -EBUSY;
	}
	if (r == 0) {
		*w->last = j;
		w->last = &j->next;
		if (!w->queued++)
			TAILQ_INSERT_TAIL(&k->turns, j->peer, work[class].turn);
		k->queued++;
		pthread_cond_signal(&k->wake);
	}
	pthread_mutex_unlock(&p->lock);
	return r;
}

void pool_stats(struct net_pool *p, enum pool_class class, struct pool_stats *ret)
{
	const struct class *k = &p->classes[class];

	pthread_mutex_lock(&p->lock);
	*ret = (struct pool_stats){k->n_threads, k->n_threads - k->idle, k->queued};
	pthread_mutex_unlock(&p->lock);
}

int pool_create(struct net_pool **ret)
{
	struct net_pool *p = calloc(1, sizeof(*p));
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	for (int i = 0; i < POOL_CLASSES; i++) {
		pthread_cond_init(&p->classes[i].wake, NULL);
		TAILQ_INIT(&p->classes[i].turns);
	}
	p->classes[POOL_READ].max_threads = (u32)MAX(8, MIN(2 * cpus, MAX_QUESTIONS));
	p->classes[POOL_READ].max_queued = 512;
	p->classes[POOL_WRITE].max_threads = MAX_THREADS;
	p->classes[POOL_WRITE].max_queued = 8192;
	*ret = p;
	return 0;
}

void pool_destroy(struct net_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	for (int i = 0; i < POOL_CLASSES; i++)
		pthread_cond_broadcast(&p->classes[i].wake);
	pthread_mutex_unlock(&p->lock);
	for (int i = 0; i < POOL_CLASSES; i++) {
		for (u32 t = 0; t < p->classes[i].n_threads; t++)
			pthread_join(p->classes[i].threads[t], NULL);
		pthread_cond_destroy(&p->classes[i].wake);
	}
	pthread_mutex_destroy(&p->lock);
	free(p);
}
