/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hotplug MS GAP_MS: runs before() on CPU 1 for MS milliseconds, takes the CPU offline and runs
 * without() on another CPU for GAP_MS, brings CPU 1 back and runs after() on it for MS. Prints the
 * CPU time of each function in ms.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spin.h"

#define ONLINE "/sys/devices/system/cpu/cpu1/online"

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

SPINNER(before, __asm__ volatile(""))
SPINNER(without, __asm__ volatile("" ::: "memory"))
SPINNER(after, __asm__ volatile("nop"))

static long in(long ms)
{
	return now(CLOCK_MONOTONIC) + ms * MS;
}

int main(int argc, char **argv)
{
	long ms = argc == 3 ? strtol(argv[1], NULL, 10) : 0, used[3];
	long gap = argc == 3 ? strtol(argv[2], NULL, 10) : 0;

	if (ms <= 0 || gap <= 0)
		return 2;
	run_on(1);
	used[0] = before(in(ms));
	run_on(0);
	set_online("0");
	used[1] = without(in(gap));
	set_online("1");
	run_on(1);
	used[2] = after(in(ms));
	printf("%ld %ld %ld\n", used[0] / MS, used[1] / MS, used[2] / MS);
	return 0;
}
