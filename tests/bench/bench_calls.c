/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes system calls, and says how many nanoseconds each took; or times a command. While it does,
 * somebody traces it:
 *
 *	bench-calls N		N getppid() and N read() of 16 bytes
 *	bench-calls N COMMAND…	runs the command N times, and says how long it took
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int call(long n)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	char bytes[16];

	for (long i = 0; i < n; i++) {
		syscall(SYS_getppid);
		if (read(fd, bytes, sizeof(bytes)) != sizeof(bytes))
			return 1;
	}
	return 0;
}

static int run(long n, char **argv)
{
	int status = 0;
	pid_t pid;

	for (long i = 0; i < n && status == 0; i++)
		if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0 ||
		    waitpid(pid, &status, 0) != pid)
			return 1;
	return status;
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	double begin = now_ns();
	int r;

	if (n <= 0)
		return 2;
	r = argc > 2 ? run(n, argv + 2) : call(n);
	fprintf(stderr, "bench-calls: %.1f\n", (now_ns() - begin) / (double)(argc > 2 ? n : 2 * n));
	return r;
}
