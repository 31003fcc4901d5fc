/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process for procman to watch. Prints "ready" when it is set up, then waits for the end of its
 * standard input; in some modes each line of standard input starts an action.
 *
 *	spin MS		uses that much CPU time and exits
 *	storm N MS FILE	starts `FILE spin MS` N times, at most 8 at once; prints their pids
 *	copies N MS DIR	like storm, but each child runs a copy of its own, deleted when it ends
 *	many N		N separate executable mappings; each line adds one more
 *	jit		executable private memory; forks a child for each line and prints its pid
 *	dlopen FILE	opens FILE for each line
 *	zero		code in a private mapping of /dev/zero
 *	memfd FILE	executes a copy of FILE in memory
 *	reuse PID N	N children, one after the other, each with the pid PID
 *	leader		the main thread exits, another thread stays; each line maps a file
 *	crowd N	M	N children that stay; each line forks M children, one after the other, that
 *			end at once, and prints how many milliseconds they took
 *	threadexec FILE	a thread other than the main one executes `FILE 1000`
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"

#define PAGE 4096UL
#define AT_ONCE 8

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static long number(const char *text)
{
	u64 v;

	if (str_to_u64(text, 10, &v) < 0 || v > 1u << 30) {
		fprintf(stderr, "proc_target: no number: %s\n", text);
		exit(2);
	}
	return (long)v;
}

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

static int next_line(void)
{
	char line[64];

	return fgets(line, sizeof(line), stdin) != NULL;
}

static int wait_for_end(void)
{
	ready();
	while (next_line())
		;
	return 0;
}

static int spin(long ms)
{
	struct timespec t;

	do
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms);
	return 0;
}

static pid_t start(const char *file, const char *mode, const char *arg)
{
	pid_t pid = vfork(); /* NOLINT: as shells do */

	if (pid == 0) {
		execl(file, file, mode, arg, NULL);
		_exit(127);
	}
	if (pid < 0)
		die("vfork");
	printf("%d\n", pid);
	return pid;
}

static void reap(int *failed)
{
	int status;

	if (wait(&status) < 0)
		die("wait");
	*failed += status != 0;
}

static int storm(long n, const char *ms, const char *file)
{
	int failed = 0;

	for (long i = 0; i < n; i++) {
		if (i >= AT_ONCE)
			reap(&failed);
		start(file, "spin", ms);
	}
	for (long i = 0; i < (n < AT_ONCE ? n : AT_ONCE); i++)
		reap(&failed);
	return failed != 0;
}

static void copy_self(const char *to)
{
	int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	char buffer[65536];
	ssize_t n;

	if (in < 0 || out < 0)
		die(to);
	while ((n = read(in, buffer, sizeof(buffer))) > 0)
		if (write(out, buffer, (size_t)n) != n)
			die(to);
	close(in);
	close(out);
}

static int copies(long n, const char *ms, const char *dir)
{
	int failed = 0;

	for (long i = 0; i < n; i++) {
		char name[4096];

		snprintf(name, sizeof(name), "%s/copy-%ld", dir, i);
		copy_self(name);
		start(name, "spin", ms);
		reap(&failed);
		unlink(name);
	}
	return failed != 0;
}

static int many(size_t n)
{
	size_t extra = 4096, i;
	char *p = mmap(NULL, (n + extra) * 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	/* Map from high to low addresses, like mmap() without an address. */
	for (i = n + extra; i > extra; i--)
		if (mprotect(p + (i - 1) * 2 * PAGE, PAGE, PROT_READ | PROT_EXEC) < 0)
			die("mprotect");
	ready();
	while (next_line() && i > 0) {
		i--;
		if (mprotect(p + i * 2 * PAGE, PAGE, PROT_READ | PROT_EXEC) < 0)
			die("mprotect");
	}
	return 0;
}

static void *map_code(void)
{
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static int jit(void)
{
	map_code();
	ready();
	while (next_line()) {
		pid_t pid = fork();

		if (pid == 0) {
			/* End with the parent. */
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pause();
			_exit(0);
		}
		printf("%d\n", pid);
		fflush(stdout);
	}
	return 0;
}

static int open_library(const char *file)
{
	ready();
	while (next_line()) {
		puts(dlopen(file, RTLD_NOW) ? "opened" : dlerror());
		fflush(stdout);
	}
	return 0;
}

static int zero(void)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		die("/dev/zero");
	return wait_for_end();
}

static int memfd(const char *file)
{
	int in = open(file, O_RDONLY | O_CLOEXEC), out = memfd_create("payload", MFD_CLOEXEC);
	char *argv[] = {(char *)"payload", (char *)"1000", NULL}, *envp[] = {NULL};
	char buffer[65536];
	ssize_t n;

	if (in < 0 || out < 0)
		die("memfd");
	while ((n = read(in, buffer, sizeof(buffer))) > 0)
		if (write(out, buffer, (size_t)n) != n)
			die("memfd");
	fexecve(out, argv, envp);
	die("fexecve");
	return 1;
}

static int reuse(pid_t pid, long n)
{
	for (long i = 0; i < n; i++) {
		pid_t want = pid, got;
		struct clone_args args = {
			.exit_signal = SIGCHLD,
			.set_tid = (uint64_t)(uintptr_t)&want,
			.set_tid_size = 1,
		};

		do
			got = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
		while (got < 0 && errno == EEXIST);
		if (got < 0)
			die("clone3");
		if (got == 0) {
			/* Every second child has code of its own. */
			if (i % 2)
				map_code();
			spin(5);
			_exit(0);
		}
		if (waitpid(got, NULL, 0) < 0)
			die("waitpid");
	}
	return 0;
}

static void *stay(void *arg)
{
	(void)arg;
	/* Wait until the leader has exited. */
	usleep(100000);
	ready();
	while (next_line()) {
		printf("%lu\n", (unsigned long)map_code());
		fflush(stdout);
	}
	exit(0);
}

static int leader(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, stay, NULL))
		die("pthread_create");
	pthread_exit(NULL);
}

static void *become(void *file)
{
	execl(file, file, "1000", NULL);
	die("execl");
	return NULL;
}

static int threadexec(char *file)
{
	pthread_t t;

	ready();
	next_line();
	if (pthread_create(&t, NULL, become, file))
		die("pthread_create");
	pause();
	return 0;
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* stays: the child lives as long as its parent. Else it exits at once. */
static pid_t fork_one(bool stays)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	if (!stays)
		_exit(0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

static int crowd(long n, long m)
{
	for (long i = 0; i < n; i++)
		fork_one(true);
	ready();
	while (next_line()) {
		long begin = now_ms();

		for (long i = 0; i < m; i++)
			waitpid(fork_one(false), NULL, 0);
		printf("%ld\n", now_ms() - begin);
		fflush(stdout);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (!strcmp(mode, "spin") && argc == 3)
		return spin(number(argv[2]));
	if (!strcmp(mode, "storm") && argc == 5)
		return storm(number(argv[2]), argv[3], argv[4]);
	if (!strcmp(mode, "copies") && argc == 5)
		return copies(number(argv[2]), argv[3], argv[4]);
	if (!strcmp(mode, "many") && argc == 3)
		return many((size_t)number(argv[2]));
	if (!strcmp(mode, "jit"))
		return jit();
	if (!strcmp(mode, "dlopen") && argc == 3)
		return open_library(argv[2]);
	if (!strcmp(mode, "zero"))
		return zero();
	if (!strcmp(mode, "memfd") && argc == 3)
		return memfd(argv[2]);
	if (!strcmp(mode, "reuse") && argc == 4)
		return reuse((pid_t)number(argv[2]), number(argv[3]));
	if (!strcmp(mode, "leader"))
		return leader();
	if (!strcmp(mode, "crowd") && argc == 4)
		return crowd(number(argv[2]), number(argv[3]));
	if (!strcmp(mode, "threadexec") && argc == 3)
		return threadexec(argv[2]);
	fputs("proc_target: see the head of its source\n", stderr);
	return 2;
}
