/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a library while the program runs, which calls back into the program. */
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

NOINLINE void loaded(void (*fn)(void (*)(long)))
{
	TRUTH();
	fn(callback);
}

int main(int argc, char **argv)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
	void (*fn)(void (*)(long)) = NULL;
	void *lib;

	truth_init(argc, argv);
	TRUTH();
	if (n < 0)
		return 1;
	path[n] = 0;
	memcpy(strrchr(path, '/'), "/liblate.so", sizeof("/liblate.so"));
	for (int i = 0; truth_running(); i++) {
		spin(300000);
		if (i < 100)
			continue;
		if (!fn) {
			lib = dlopen(path, RTLD_NOW);
			if (lib)
				*(void **)&fn = dlsym(lib, "late_entry");
			if (!fn) {
				fprintf(stderr, "%s\n", dlerror());
				return 1;
			}
		}
		loaded(fn);
	}
	truth_finish();
	return 0;
}
