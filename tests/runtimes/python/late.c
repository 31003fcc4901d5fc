/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A native program that runs Python late: it spins, loads libpython with dlopen(), spins for longer
 * than an interpreter takes to start, and then runs a script.
 *
 *	late LIBPYTHON SCRIPT
 */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) void work_natively(double seconds)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		for (int i = 0; i < 1000000; i++)
			sink += (unsigned long)i;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((double)(now.tv_sec - begin.tv_sec) +
			 1e-9 * (double)(now.tv_nsec - begin.tv_nsec) <
		 seconds);
}

int main(int argc, char **argv)
{
	char line[4096];
	void (*start)(int);
	int (*run)(const char *);
	void *lib;

	if (argc != 3)
		return 2;
	puts("ready");
	fflush(stdout);
	work_natively(3);
	lib = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	work_natively(6);
	start = (void (*)(int))dlsym(lib, "Py_InitializeEx");
	run = (int (*)(const char *))dlsym(lib, "PyRun_SimpleString");
	if (!start || !run)
		return 1;
	start(0);
	snprintf(line, sizeof(line), "exec(compile(open('%s').read(), '%s', 'exec'))", argv[2],
		 argv[2]);
	return run(line) == 0 ? 0 : 1;
}
