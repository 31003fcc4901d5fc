/* SPDX-License-Identifier: Apache-2.0 */
/* Spends most of its time in the kernel, below known functions. */
#include "truth.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char buffer[1 << 16];

NOINLINE void reads(int fd, int n)
{
	TRUTH();
	for (int i = 0; i < n; i++)
		if (read(fd, buffer, sizeof(buffer)) < 0)
			_exit(1);
}

NOINLINE void stats(int n)
{
	TRUTH();
	struct stat st;

	for (int i = 0; i < n; i++)
		stat("/usr/lib/os-release", &st);
}

NOINLINE void pipes(int n)
{
	TRUTH();
	int fd[2];

	for (int i = 0; i < n; i++) {
		if (pipe(fd))
			_exit(1);
		close(fd[0]);
		close(fd[1]);
	}
}

NOINLINE void bare(int n)
{
	TRUTH();
	for (int i = 0; i < n; i++)
		syscall(SYS_getppid);
}

int main(int argc, char **argv)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	truth_init(argc, argv);
	TRUTH();
	while (truth_running()) {
		reads(fd, (int)truth_about(300));
		stats((int)truth_about(1000));
		pipes((int)truth_about(300));
		bare((int)truth_about(3000));
	}
	truth_finish();
	return 0;
}
