/* SPDX-License-Identifier: Apache-2.0 */
/*
 * victim MS LIBRARY DONE: runs code of a library whose file is damaged meanwhile. Once the file
 * DONE exists, the program runs for MS more. Three functions of the library lie pages apart. The
 * program survives a SIGBUS (on a page beyond the end of a truncated file), and prints how many it
 * got.
 */
#include "truth.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sigjmp_buf again;
static long faults;

static void on_fault(int sig)
{
	faults++;
	siglongjmp(again, 1);
}

NOINLINE void safe_work(void)
{
	TRUTH();
	spin(200000);
}

NOINLINE void callback(long n)
{
	TRUTH();
	spin(n);
}

NOINLINE void risky_work(void (*fn)(void (*)(long)))
{
	TRUTH();
	struct truth_node *here = truth_here_;

	if (sigsetjmp(again, 1)) {
		truth_leave(&here);
		return;
	}
	fn(callback);
}

int main(int argc, char **argv)
{
	struct sigaction sa = {.sa_handler = on_fault};
	void (*fn)(void (*)(long)) = NULL;
	long long end = 0;
	void *lib;

	if (argc < 4)
		return 2;
	TRUTH();
	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGILL, &sa, NULL);
	lib = dlopen(argv[2], RTLD_NOW);
	if (lib)
		*(void **)&fn = dlsym(lib, "swap_entry");
	if (!fn) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	while (!end || truth_cpu_ns() < end) {
		if (!end && access(argv[3], F_OK) == 0)
			end = truth_cpu_ns() + atoll(argv[1]) * 1000000;
		safe_work();
		risky_work(fn);
	}
	truth_note("faults", faults);
	truth_finish();
	_exit(0); /* exit() would run code of the library, and fault for ever */
}
