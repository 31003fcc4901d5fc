// SPDX-License-Identifier: Apache-2.0
// embed LIBRARY ARGS…: prints its pid, waits for a line on stdin, loads libnode.so and runs node.
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int (*start)(int argc, char **argv);
	void *library;

	printf("%d\n", getpid());
	fflush(stdout);
	if (argc < 3 || getchar() == EOF)
		return 1;
	library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	start = (int (*)(int, char **))dlsym(library, "_ZN4node5StartEiPPc");
	return start ? start(argc - 1, argv + 1) : 1;
}
