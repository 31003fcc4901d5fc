/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of two programs that differ only in the name of a function, which has the same address in
 * both. Each program spins in the function for some milliseconds and then execs the other.
 *
 * usage: exec_twin_a MILLISECONDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

void IN_TWIN(u64 until);

/* Both programs have the same stack, because their paths and arguments have the same length. */
__attribute__((noinline)) void IN_TWIN(u64 until)
{
	while (clock_ns(CLOCK_MONOTONIC) < until)
		for (volatile int i = 0; i < 20000; i++)
			;
}

int main(int argc, char **argv)
{
	size_t n = strlen(argv[0]);
	char *end;
	u64 ms;

	if (argc != 2 || !n)
		return 2;
	ms = strtoull(argv[1], &end, 10);
	IN_TWIN(clock_ns(CLOCK_MONOTONIC) + ms * 1000000);
	argv[0][n - 1] = OTHER;
	execv(argv[0], argv);
	perror(argv[0]);
	return 1;
}
