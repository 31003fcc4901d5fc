/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service whose requests contain others, or whose process becomes another one, for
 * tests/live/test_kept_processes.py.
 *
 *	related_requests nested|two|fork|exec|long N
 *
 * It prints "ready PID". Each line that comes then makes it serve N requests, and print a line per
 * request and "over":
 *
 *	TRACE SPAN BEGIN END CPU TID KIND		as traced_requests
 *
 *	nested	an `outer` request spins 2 ms, serves an `inner` one that spins 3 ms and sleeps
 *		2 ms, and spins 1 ms, all in one thread
 *	two	the same, but the inner one is served by another process, a child that has not
 *		called exec, while the outer one waits for a pipe
 *	fork	requests that spin 2 ms and sleep 8 ms, served by a child that is forked when the
 *		line comes
 *	exec	the same, served by the process itself, which calls exec of itself before the second
 *		line's requests
 *	long	one `outer` request that sleeps 20 µs 20 N times
 *
 * The end of its input ends it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "culprit_context.h"

#define MAX_REQUESTS 4096
#define PART __attribute__((noinline, noclone)) static void

struct request {
	uint8_t trace[16], span[8];
	long long begin, end, cpu, cpu_before;
	const char *kind;
	long tid;
};

static struct request requests[MAX_REQUESTS];
static int n_served;
static volatile unsigned long sink;

static long long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

PART spin_ms(long ms)
{
	long long until = now(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000LL;

	while (now(CLOCK_THREAD_CPUTIME_ID) < until)
		for (int i = 0; i < 200; i++)
			sink += (unsigned long)i;
}

PART sleep_us(long us)
{
	struct timespec t = {0, us * 1000L};

	nanosleep(&t, NULL);
	sink++;
}

/* NULL: there is no room. */
static struct request *begin(const uint8_t *trace, const char *kind)
{
	struct request *r = n_served < MAX_REQUESTS ? &requests[n_served++] : NULL;

	if (!r || getrandom(r->trace, sizeof(r->trace), 0) != sizeof(r->trace) ||
	    getrandom(r->span, sizeof(r->span), 0) != sizeof(r->span))
		exit(1);
	if (trace)
		memcpy(r->trace, trace, sizeof(r->trace));
	r->kind = kind;
	r->tid = gettid();
	r->cpu_before = now(CLOCK_THREAD_CPUTIME_ID);
	r->begin = now(CLOCK_REALTIME);
	culprit_context_enter(r->trace, r->span, 1);
	return r;
}

/* The thread goes on for `outer`, or for nothing. */
static void end(struct request *r, const struct request *outer)
{
	if (outer)
		culprit_context_enter(outer->trace, outer->span, 1);
	else
		culprit_context_leave();
	r->end = now(CLOCK_REALTIME);
	r->cpu = now(CLOCK_THREAD_CPUTIME_ID) - r->cpu_before;
}

PART serve_inner(const struct request *outer, const uint8_t *trace)
{
	struct request *r = begin(trace, "inner");

	spin_ms(3);
	sleep_us(2000);
	end(r, outer);
}

static void serve_nested(void)
{
	struct request *r = begin(NULL, "outer");

	spin_ms(2);
	serve_inner(r, r->trace);
	spin_ms(1);
	end(r, NULL);
}

static void serve_plain(void)
{
	struct request *r = begin(NULL, "plain");

	spin_ms(2);
	sleep_us(8000);
	end(r, NULL);
}

static void serve_long(int n)
{
	struct request *r = begin(NULL, "outer");

	for (int i = 0; i < 20 * n; i++)
		sleep_us(20);
	end(r, NULL);
}

/* ---- the other process of `two` ---- */

static int to_other[2], to_us[2];

static void be_other(void)
{
	uint8_t trace[16];

	while (read(to_other[0], trace, sizeof(trace)) == sizeof(trace)) {
		n_served = 0;
		serve_inner(NULL, trace);
		if (write(to_us[1], &requests[0], sizeof(requests[0])) != sizeof(requests[0]))
			break;
	}
	_exit(0);
}

static int start_other(void)
{
	pid_t pid;

	if (pipe(to_other) < 0 || pipe(to_us) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		close(to_other[1]);
		close(to_us[0]);
		be_other();
	}
	close(to_other[0]);
	close(to_us[1]);
	return pid < 0 ? -1 : 0;
}

static void serve_with_other(void)
{
	struct request *r = begin(NULL, "outer"), *inner = &requests[n_served];

	spin_ms(2);
	if (n_served == MAX_REQUESTS || write(to_other[1], r->trace, sizeof(r->trace)) < 0 ||
	    read(to_us[0], inner, sizeof(*inner)) != sizeof(*inner))
		exit(1);
	inner->kind = "inner";
	n_served++;
	spin_ms(1);
	end(r, NULL);
}

/* ---- output ---- */

static void print_hex(const uint8_t *bytes, int n)
{
	for (int i = 0; i < n; i++)
		printf("%02x", bytes[i]);
}

static void print_requests(void)
{
	for (int i = 0; i < n_served; i++) {
		const struct request *r = &requests[i];

		print_hex(r->trace, 16);
		printf(" ");
		print_hex(r->span, 8);
		printf(" %lld %lld %lld %ld %s\n", r->begin, r->end, r->cpu, r->tid, r->kind);
	}
	fflush(stdout);
}

static void serve(const char *how, int n)
{
	n_served = 0;
	if (!strcmp(how, "long"))
		serve_long(n);
	for (int i = 0; i < n; i++) {
		if (!strcmp(how, "nested"))
			serve_nested();
		else if (!strcmp(how, "two"))
			serve_with_other();
		else if (strcmp(how, "long") != 0)
			serve_plain();
	}
	print_requests();
}

/* Serves in a child that has not called exec. */
static void serve_forked(int n)
{
	pid_t pid = fork();

	if (pid < 0)
		exit(1);
	if (pid == 0) {
		serve("fork", n);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	char line[16];
	int n;

	if (argc != 3)
		return 2;
	n = (int)strtol(argv[2], NULL, 10);
	if (!strcmp(argv[1], "two") && start_other() < 0)
		return 1;
	/* Who looks for the process finds that it publishes spans. */
	culprit_context_leave();
	printf("ready %d\n", getpid());
	fflush(stdout);
	for (int times = 0; fgets(line, sizeof(line), stdin); times++) {
		if (!strcmp(argv[1], "exec") && times) {
			execl("/proc/self/exe", argv[0], "again", argv[2], (char *)NULL);
			return 1;
		}
		if (!strcmp(argv[1], "fork"))
			serve_forked(n);
		else
			serve(argv[1], n);
		printf("over\n");
		fflush(stdout);
	}
	return 0;
}
