/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs code of a library whose file is damaged meanwhile: victim MS LIBRARY. Three functions of
 * the library lie pages apart; a SIGBUS (the file was truncated below a page that is not there any
 * more) is survived, and counted in the output.
 */
#include "truth.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
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
	void *lib;

	if (argc < 3)
		return 2;
	truth_init(argc, argv);
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
	while (truth_running()) {
		safe_work();
		risky_work(fn);
	}
	truth_note("faults", faults);
	truth_finish();
	_exit(0); /* exit() would run code of the library, and fault for ever */
}
