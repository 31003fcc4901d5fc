/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits of 0.1 ms, below a given number of frames:
 *
 *	bench-waits DEPTH
 *
 * Ends when it is killed.
 */
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static volatile long turns;

__attribute__((noinline, noclone)) static long wait_below(long depth)
{
	struct timespec d = {.tv_nsec = 100000};

	if (depth > 1)
		return wait_below(depth - 1) + turns; /* no tail call */
	for (; turns >= 0; turns++)
		nanosleep(&d, NULL);
	return turns;
}

int main(int argc, char **argv)
{
	long depth = argc == 2 ? strtol(argv[1], NULL, 10) : 0;

	if (depth <= 0)
		return 2;
	prctl(PR_SET_TIMERSLACK, 1);
	return (int)wait_below(depth);
}
