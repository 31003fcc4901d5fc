/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hotplug MS GAP_MS: runs before() on CPU 1 for MS milliseconds, takes the CPU offline and runs
 * without() on another for GAP_MS, brings the CPU back and runs after() on it for MS. Prints the
 * CPU time of each in ms.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define ONLINE "/sys/devices/system/cpu/cpu1/online"

static long now_ms(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void set_online(const char *value)
{
	int fd = open(ONLINE, O_WRONLY);

	if (fd < 0 || write(fd, value, 1) != 1 || close(fd)) {
		perror(ONLINE);
		exit(1);
	}
}

static void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("sched_setaffinity");
		exit(1);
	}
}

static inline __attribute__((always_inline)) long spin(long ms)
{
	long begin = now_ms(CLOCK_THREAD_CPUTIME_ID), end = now_ms(CLOCK_MONOTONIC) + ms;

	while (now_ms(CLOCK_MONOTONIC) < end)
		;
	return now_ms(CLOCK_THREAD_CPUTIME_ID) - begin;
}

__attribute__((noinline)) static long before(long ms)
{
	long used = spin(ms);

	__asm__ volatile("");
	return used;
}

__attribute__((noinline)) static long without(long ms)
{
	long used = spin(ms);

	__asm__ volatile("" ::: "memory");
	return used;
}

__attribute__((noinline)) static long after(long ms)
{
	long used = spin(ms);

	__asm__ volatile("nop");
	return used;
}

int main(int argc, char **argv)
{
	long ms = argc == 3 ? strtol(argv[1], NULL, 10) : 0, used[3];
	long gap = argc == 3 ? strtol(argv[2], NULL, 10) : 0;

	if (ms <= 0 || gap <= 0)
		return 2;
	run_on(1);
	used[0] = before(ms);
	run_on(0);
	set_online("0");
	used[1] = without(gap);
	set_online("1");
	run_on(1);
	used[2] = after(ms);
	printf("%ld %ld %ld\n", used[0], used[1], used[2]);
	return 0;
}
