/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service whose requests have known parts, for tests/live/test_capture.py.
 *
 *	traced_requests THREADS REQUESTS EACH_US [SHORT]
 *
 * All threads exist before "ready" is printed and begin when a line comes. Each serves REQUESTS
 * requests, which begin EACH_US after each other if that is longer than a request takes, and
 * publishes their spans with libculprit-context. A request spins 3 ms, sleeps 5 ms, takes a mutex
 * that another thread, `holder`, often has, and spins 2.5 ms; each tenth spins 50 ms first, in a
 * function of its own. With SHORT it spins SHORT µs, sleeps as long, and spins again. At the end a
 * line per request:
 *
 *	TRACE SPAN BEGIN END CPU TID KIND
 *
 * BEGIN and END are since the epoch, CPU is what the thread's own clock says, all in nanoseconds.
 * A second line ends the program.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "culprit_context.h"

#define MAX_THREADS 32
#define PART __attribute__((noinline, noclone)) static void

struct request {
	uint8_t trace[16], span[8];
	long long begin, end, cpu;
	const char *kind;
	long tid;
};

struct thread {
	pthread_t id;
	int number;
	struct request *requests;
};

static int n_threads, n_requests, each_us, short_us;
static struct thread threads[MAX_THREADS];
static pthread_barrier_t all;
static pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER;
static atomic_int over;
static volatile unsigned long sink;

static long long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Spins until the thread has used so much CPU time: what others take does not count. */
static inline __attribute__((always_inline)) void spin(long us)
{
	long long until = now(CLOCK_THREAD_CPUTIME_ID) + us * 1000LL;

	while (now(CLOCK_THREAD_CPUTIME_ID) < until)
		for (int i = 0; i < 200; i++)
			sink += (unsigned long)i;
}

PART spin_first(void)
{
	spin(3000);
	sink++;
}

PART spin_last(void)
{
	spin(2500);
	sink += 2;
}

PART slow_first_50_ms(void)
{
	spin(50000);
	sink += 3;
}

PART spin_short(void)
{
	spin(short_us);
	sink += 4;
}

PART sleep_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000L};

	nanosleep(&t, NULL);
	sink += 5;
}

PART take_mutex(void)
{
	pthread_mutex_lock(&contended);
	sink += 6;
	pthread_mutex_unlock(&contended);
}

/* Has the mutex half of the time. */
static void *hold(void *arg)
{
	(void)arg;
	pthread_setname_np(pthread_self(), "holder");
	while (!over) {
		pthread_mutex_lock(&contended);
		usleep(1500);
		pthread_mutex_unlock(&contended);
		usleep(1500);
	}
	return NULL;
}

PART serve_request(struct request *r, int i)
{
	if (short_us) {
		r->kind = "short";
		spin_short();
		sleep_us(short_us);
		spin_short();
		return;
	}
	r->kind = i % 10 == 9 ? "slow" : "plain";
	if (i % 10 == 9)
		slow_first_50_ms();
	spin_first();
	sleep_us(5000);
	take_mutex();
	spin_last();
}

static void make_ids(struct request *r, int thread, int i)
{
	uint64_t a = (uint64_t)now(CLOCK_REALTIME), b = (uint64_t)getpid() << 32 | (uint64_t)thread;

	a = (a ^ (uint64_t)i << 40) * 0x9e3779b97f4a7c15;
	memcpy(r->trace, &a, 8);
	b = (b ^ a) * 0xc2b2ae3d27d4eb4f;
	memcpy(r->trace + 8, &b, 8);
	a = (a ^ b) | 1;
	memcpy(r->span, &a, 8);
}

static void serve(struct thread *t, int i)
{
	struct request *r = &t->requests[i];
	long long cpu;

	r->tid = syscall(SYS_gettid);
	make_ids(r, t->number, i);
	cpu = now(CLOCK_THREAD_CPUTIME_ID);
	r->begin = now(CLOCK_REALTIME);
	culprit_context_enter(r->trace, r->span, 1);
	serve_request(r, i);
	culprit_context_leave();
	r->end = now(CLOCK_REALTIME);
	r->cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
}

static void *run(void *arg)
{
	struct thread *t = arg;
	long long begin;

	pthread_barrier_wait(&all);
	begin = now(CLOCK_MONOTONIC);
	for (int i = 0; i < n_requests; i++) {
		long long due = begin + (long long)i * each_us * 1000;
		struct timespec at = {due / 1000000000, due % 1000000000};

		if (each_us)
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		serve(t, i);
	}
	return NULL;
}

static void print_hex(const uint8_t *bytes, int n)
{
	for (int i = 0; i < n; i++)
		printf("%02x", bytes[i]);
}

static void print_requests(const struct thread *t)
{
	for (int i = 0; i < n_requests; i++) {
		const struct request *r = &t->requests[i];

		print_hex(r->trace, 16);
		printf(" ");
		print_hex(r->span, 8);
		printf(" %lld %lld %lld %ld %s\n", r->begin, r->end, r->cpu, r->tid, r->kind);
	}
}

int main(int argc, char **argv)
{
	char line[16];
	pthread_t holder;

	if (argc < 4)
		return 2;
	n_threads = (int)strtol(argv[1], NULL, 10);
	n_requests = (int)strtol(argv[2], NULL, 10);
	each_us = (int)strtol(argv[3], NULL, 10);
	short_us = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 0;
	if (n_threads < 1 || n_threads > MAX_THREADS || n_requests < 1)
		return 2;
	pthread_barrier_init(&all, NULL, (unsigned int)n_threads + 1);
	for (int i = 0; i < n_threads; i++) {
		threads[i].number = i;
		threads[i].requests = calloc((size_t)n_requests, sizeof(struct request));
		if (!threads[i].requests ||
		    pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0)
			return 1;
	}
	if (!short_us && pthread_create(&holder, NULL, hold, NULL) != 0)
		return 1;
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	pthread_barrier_wait(&all);
	for (int i = 0; i < n_threads; i++)
		pthread_join(threads[i].id, NULL);
	over = 1;
	for (int i = 0; i < n_threads; i++)
		print_requests(&threads[i]);
	printf("over\n");
	fflush(stdout);
	(void)!fgets(line, sizeof(line), stdin);
	return 0;
}
