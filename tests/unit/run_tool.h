/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a tool without a shell and reads what it prints. */
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Returns the tool's standard output; drops its errors. NULL when the tool cannot be started. */
static inline FILE *spawn_read(char *const argv[], pid_t *ret_pid)
{
	posix_spawn_file_actions_t a;
	int p[2], r;

	if (pipe2(p, O_CLOEXEC) < 0)
		return NULL;
	posix_spawn_file_actions_init(&a);
	posix_spawn_file_actions_adddup2(&a, p[1], 1);
	posix_spawn_file_actions_addopen(&a, 2, "/dev/null", O_WRONLY, 0);
	r = posix_spawnp(ret_pid, argv[0], &a, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&a);
	close(p[1]);
	if (r) {
		close(p[0]);
		return NULL;
	}
	return fdopen(p[0], "r");
}

/* Closes the output and reaps the tool. Returns its exit status, or -1. */
static inline int spawn_done(FILE *f, pid_t pid)
{
	int status;

	fclose(f);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}
