/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>

#include "base/clock.h"

int thread_start(pthread_t *ret, const char *name, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(ret, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r == 0)
		(void)pthread_setname_np(*ret, name);
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
