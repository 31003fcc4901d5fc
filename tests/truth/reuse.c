/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts programs one after the other under the same pid (clone3 with set_tid; needs root):
 * reuse SECONDS PROGRAM PROGRAM, each with the argument "60". Prints how many times a pid was
 * used again. 77: the kernel does not allow it.
 */
#include <linux/sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	pid_t want = 0;
	long again = 0;
	time_t end;

	if (argc < 4)
		return 2;
	end = time(NULL) + strtol(argv[1], NULL, 10);
	for (int i = 0; time(NULL) < end; i++) {
		struct clone_args args = {.exit_signal = 17};
		const char *prog = argv[2 + i % 2];
		long pid;

		if (want) {
			args.set_tid = (uintptr_t)&want;
			args.set_tid_size = 1;
		}
		pid = syscall(SYS_clone3, &args, sizeof(args));
		if (pid < 0) {
			perror("clone3");
			return 77;
		}
		if (!pid) {
			execl(prog, prog, "60", (char *)NULL);
			_exit(127);
		}
		if (waitpid((pid_t)pid, NULL, 0) < 0)
			return 1;
		if (want == pid)
			again++;
		want = (pid_t)pid;
	}
	printf("%ld\n", again);
	return 0;
}
