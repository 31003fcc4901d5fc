/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts programs as fast as the machine can: starter SECONDS WIDTH PROGRAM…, WIDTH at a time, the
 * programs in turn, each with one argument "20". Prints how many it started.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int width, running = 0; /* vfork children only exec */
	volatile long n = 0;
	double end;

	if (argc < 4)
		return 2;
	end = now() + strtod(argv[1], NULL);
	width = (int)strtol(argv[2], NULL, 10);
	while (now() < end) {
		while (running < width) {
			char *prog = argv[3 + n % (argc - 3)];
			pid_t pid = vfork(); /* NOLINT: the fastest way to start a program */

			if (!pid) {
				execl(prog, prog, "20", (char *)NULL);
				_exit(127);
			}
			if (pid < 0)
				return 1;
			running++;
			n++;
		}
		int status;

		if (wait(&status) > 0) {
			running--;
			if (status)
				return 1;
		}
	}
	while (running--)
		wait(NULL);
	printf("%ld\n", n);
	return 0;
}
