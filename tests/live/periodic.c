/* SPDX-License-Identifier: Apache-2.0 */
/*
 * periodic MS SECONDS: in each period of MS milliseconds one(), two() and three() run for a fifth
 * of the period each; then the program sleeps until the next period. Prints the CPU time of each
 * function, and the time that passed, in ns.
 *
 * periodic spin CPU SECONDS: spins on that CPU.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spin.h"

SPINNER(one, __asm__ volatile(""))
SPINNER(two, __asm__ volatile("" ::: "memory"))
SPINNER(three, __asm__ volatile("nop"))

static long number(const char *text)
{
	return strtol(text, NULL, 10);
}

static void run(long period, long seconds)
{
	long used[3] = {}, begin = now(CLOCK_MONOTONIC), next = begin;

	/* Leave out periods that would begin late, so that the phase stays. */
	for (; next < begin + seconds * NS; next += period) {
		struct timespec t = {next / NS, next % NS};

		if (now(CLOCK_MONOTONIC) > next + period / 10)
			continue;
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
			;
		used[0] += one(next + period / 5);
		used[1] += two(next + period * 2 / 5);
		used[2] += three(next + period * 3 / 5);
	}
	printf("%ld %ld %ld %ld\n", used[0], used[1], used[2], now(CLOCK_MONOTONIC) - begin);
}

int main(int argc, char **argv)
{
	cpu_set_t set;

	if (argc == 4 && !strcmp(argv[1], "spin")) {
		CPU_ZERO(&set);
		CPU_SET((size_t)number(argv[2]), &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			return 1;
		one(now(CLOCK_MONOTONIC) + number(argv[3]) * NS);
		return 0;
	}
	if (argc != 3)
		return 2;
	run(number(argv[1]) * 1000000, number(argv[2]));
	return 0;
}
