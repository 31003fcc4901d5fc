/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include "sandbox/sandbox.h"

/* Above the numbers that the descriptors get in the new process. */
#define FIRST_COPY 16

static int add_files(posix_spawn_file_actions_t *a, const int *copies, u32 n)
{
	int r = posix_spawn_file_actions_addopen(a, STDIN_FILENO, "/dev/null", O_RDWR, 0);

	if (r == 0)
		r = posix_spawn_file_actions_adddup2(a, STDIN_FILENO, STDOUT_FILENO);
	for (u32 i = 0; i < n && r == 0; i++)
		r = posix_spawn_file_actions_adddup2(a, copies[i], SANDBOX_FIRST_FD + (int)i);
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(a, SANDBOX_FIRST_FD + (int)n);
	return -r;
}

static int spawn(char *command, const int *copies, u32 n, pid_t *ret)
{
	static char name[] = "culprit";
	char *argv[] = {name, command, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	sigset_t none;
	int r;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	r = add_files(&files, copies, n);
	/* Not by its path, where another version may be by now. */
	if (r == 0)
		r = -posix_spawn(ret, "/proc/self/exe", &files, &attributes, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	return r;
}

int sandbox_spawn(char *command, const int *fds, u32 n, pid_t *ret)
{
	int copies[SANDBOX_MAX_FDS] = {}, r = 0;
	u32 n_copies = 0;

	if (n > SANDBOX_MAX_FDS)
		return -EINVAL;
	for (; n_copies < n && r == 0; n_copies++) {
		copies[n_copies] = fcntl(fds[n_copies], F_DUPFD_CLOEXEC, FIRST_COPY);
		r = copies[n_copies] < 0 ? -errno : 0;
	}
	if (r == 0)
		r = spawn(command, copies, n, ret);
	for (u32 i = 0; i < n_copies; i++)
		if (copies[i] >= 0)
			close(copies[i]);
	return r;
}
