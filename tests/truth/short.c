/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs for argv[1] ms of CPU time. Links few libraries and prints nothing unless asked. With a
 * second argument N it forks N children, one after the other, which do the work without exec.
 */
#include "truth.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

NOINLINE void short_leaf(void)
{
	TRUTH();
	spin(30000);
}

NOINLINE void short_work(void)
{
	TRUTH();
	while (truth_running())
		short_leaf();
}

NOINLINE void short_child(void)
{
	TRUTH();
	short_work();
}

int main(int argc, char **argv)
{
	char *own[] = {argv[0], (char *)"20", NULL};

	truth_init(argc > 1 ? 2 : 1, argc > 1 ? argv : own);
	TRUTH();
	if (argc < 3) {
		short_work();
		truth_finish();
		return 0;
	}
	for (long n = strtol(argv[2], NULL, 10); n > 0; n--) {
		pid_t pid = fork();

		if (!pid) {
			short_child();
			_exit(0);
		}
		if (pid > 0)
			waitpid(pid, NULL, 0);
	}
	short_child(); /* so that the parent's tree has the children's chains */
	truth_finish();
	return 0;
}
