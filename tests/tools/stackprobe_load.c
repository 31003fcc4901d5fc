/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does what the lines of its standard input say, and answers each with a line:
 *
 *	burn MS		uses so much CPU time, in burn_here(); microseconds
 *	nap MS		sleeps, in nap_here(); microseconds that it took
 *	lock MS		waits for a mutex that another thread has so long, in lock_here(); the same
 *	touch KIB	touches new memory, in touch_here(); bytes that became resident
 *	keep N		allocates so many objects and keeps them, in keep_here(); their bytes
 *	churn N		allocates and frees so many, in churn_here(); their bytes
 *	fork MS		a child burns so long; its pid, when it has ended
 *	name NAME	has another name; its pid
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../live/spin.h"

#define KEEP __asm__ volatile("")

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;

__attribute__((noinline)) static long burn_here(long ms)
{
	long begin = now(CLOCK_THREAD_CPUTIME_ID), used;

	while ((used = now(CLOCK_THREAD_CPUTIME_ID) - begin) < ms * MS)
		;
	return used / 1000;
}

static void sleep_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * MS};

	nanosleep(&t, NULL);
}

__attribute__((noinline)) static long nap_here(long ms)
{
	long begin = now(CLOCK_MONOTONIC);

	sleep_ms(ms);
	KEEP;
	return (now(CLOCK_MONOTONIC) - begin) / 1000;
}

static void *hold(void *arg)
{
	pthread_mutex_lock(&mutex);
	pthread_barrier_wait(&barrier);
	sleep_ms((long)arg);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

__attribute__((noinline)) static long lock_here(long ms)
{
	pthread_t t;
	long begin;

	pthread_barrier_init(&barrier, NULL, 2);
	if (pthread_create(&t, NULL, hold, (void *)ms))
		abort();
	pthread_barrier_wait(&barrier);
	begin = now(CLOCK_MONOTONIC);
	pthread_mutex_lock(&mutex);
	ms = (now(CLOCK_MONOTONIC) - begin) / 1000;
	pthread_mutex_unlock(&mutex);
	pthread_join(t, NULL);
	KEEP;
	return ms;
}

__attribute__((noinline)) static long touch_here(long kib)
{
	char *memory = mmap(NULL, (size_t)kib << 10, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		abort();
	madvise(memory, (size_t)kib << 10, MADV_NOHUGEPAGE);
	for (long i = 0; i < kib; i += 4)
		memory[i << 10] = 1;
	KEEP;
	return kib << 10;
}

#define OBJECT_BYTES 1000

__attribute__((noinline)) static long keep_here(long n)
{
	static void *volatile kept;

	for (long i = 0; i < n; i++)
		kept = malloc(OBJECT_BYTES);
	KEEP;
	return kept ? n * OBJECT_BYTES : 0;
}

__attribute__((noinline)) static long churn_here(long n)
{
	for (long i = 0; i < n; i++) {
		void *volatile object = malloc(OBJECT_BYTES);

		free(object);
	}
	KEEP;
	return n * OBJECT_BYTES;
}

static long fork_here(long ms)
{
	pid_t pid = fork();

	if (!pid) {
		burn_here(ms);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		abort();
	return pid;
}

static long rename_here(const char *name)
{
	prctl(PR_SET_NAME, name);
	return getpid();
}

int main(void)
{
	char line[256], what[32], value[200];

	setlinebuf(stdout);
	puts("ready");
	while (fgets(line, sizeof(line), stdin) && sscanf(line, "%31s %199s", what, value) == 2) {
		long n = strtol(value, NULL, 10);

		printf("%ld\n", !strcmp(what, "burn")	 ? burn_here(n)
				: !strcmp(what, "nap")	 ? nap_here(n)
				: !strcmp(what, "lock")	 ? lock_here(n)
				: !strcmp(what, "touch") ? touch_here(n)
				: !strcmp(what, "keep")	 ? keep_here(n)
				: !strcmp(what, "churn") ? churn_here(n)
				: !strcmp(what, "fork")	 ? fork_here(n)
							 : rename_here(value));
	}
	return 0;
}
