/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads and unloads two libraries in turn. They have the same sizes, so that each is mapped where
 * the other was, but functions with other frames at the same addresses: unwinding with the rows of
 * the wrong library gives wrong stacks.
 */
#include "truth.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

NOINLINE void callback(long n)
{
	TRUTH();
	spin(n);
}

NOINLINE int loaded(const char *path)
{
	TRUTH();
	void *lib = dlopen(path, RTLD_NOW);
	void (*fn)(void (*)(long)) = NULL;

	if (lib)
		*(void **)&fn = dlsym(lib, "swap_entry");
	if (!fn) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	for (int i = 0; i < 40; i++)
		fn(callback);
	truth_note("swap_entry_at", (long long)(size_t)fn);
	dlclose(lib);
	return 0;
}

int main(int argc, char **argv)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	truth_init(argc, argv);
	TRUTH();
	if (n < 0)
		return 1;
	path[n] = 0;
	for (int i = 0; truth_running(); i++) {
		memcpy(strrchr(path, '/'), i & 1 ? "/libswap2.so" : "/libswap1.so",
		       sizeof("/libswap1.so"));
		if (loaded(path))
			return 1;
	}
	truth_finish();
	return 0;
}
