/* SPDX-License-Identifier: Apache-2.0 */
/* vfork() keeps its return address in a register while the child runs on the parent's stack. */
#include "truth.h"

#include <sys/wait.h>
#include <unistd.h>

NOINLINE void child_work(void)
{
	TRUTH();
	spin(200000);
}

NOINLINE void forker(void)
{
	TRUTH();
	pid_t pid = vfork(); /* NOLINT: vfork() is what this program tests */

	if (!pid) {
		child_work(); /* NOLINT */
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, 0, 0);
}

NOINLINE void forks(int n)
{
	TRUTH();
	for (int i = 0; i < n; i++)
		forker();
	spin(300000); /* the CPU clock of the parent must advance */
}

int main(int argc, char **argv)
{
	truth_init(argc, argv);
	TRUTH();
	while (truth_running())
		forks(2);
	truth_finish();
	return 0;
}
