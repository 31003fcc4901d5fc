/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

struct start {
	void *(*fn)(void *arg);
	void *arg;
	char name[16];
};

/*
 * The thread names itself: pthread_setname_np() for another thread writes to /proc, which a server
 * behind its walls may not.
 */
static void *begin(void *arg)
{
	struct start s = *(struct start *)arg;

	free(arg);
	(void)pthread_setname_np(pthread_self(), s.name);
	return s.fn(s.arg);
}

int thread_start(pthread_t *ret, const char *name, void *(*fn)(void *arg), void *arg)
{
	struct start *s = malloc(sizeof(*s));
	sigset_t all, before;
	int r;

	if (!s)
		return -ENOMEM;
	*s = (struct start){.fn = fn, .arg = arg};
	snprintf(s->name, sizeof(s->name), "%s", name);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(ret, NULL, begin, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0)
		free(s);
	return -r;
}

void thread_sync_init(pthread_mutex_t *lock, pthread_cond_t *wake)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

bool thread_wait(pthread_cond_t *wake, pthread_mutex_t *lock, u64 timeout_ns)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + timeout_ns;
	struct timespec t = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

	return pthread_cond_timedwait(wake, lock, &t) != ETIMEDOUT;
}
