/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of the script's system(): one at a time, while the script's output waits. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/tracer/internal.h"
#include "base/cleanup.h"
#include "base/clock.h"

#define OUTPUT_MAX (1u << 20)
#define POLL_MS 20

extern char **environ;

/* A process group of its own: what the shell starts is ended with it. */
static int start(const char *command, int output, pid_t *ret)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	int r;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
	r = posix_spawn(ret, "/bin/sh", &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return -r;
}

/* Reads what is there. False: nothing will come any more. */
static bool read_part(int fd, struct str *out, size_t *taken)
{
	char part[4096];
	ssize_t n = read(fd, part, sizeof(part));

	if (n > 0 && *taken < OUTPUT_MAX)
		str_append(out, part, (size_t)n);
	*taken += n > 0 ? (size_t)n : 0;
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Until the shell has ended: what it leaves in the background keeps the pipe open. */
static bool wait_for(pid_t pid, int fd, struct str *out, size_t *taken)
{
	u64 end_ns = clock_ns(CLOCK_MONOTONIC) + TRACER_COMMAND_S * 1000000000ULL;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	bool ended = false;

	while (!ended && clock_ns(CLOCK_MONOTONIC) < end_ns) {
		ended = waitpid(pid, NULL, WNOHANG) != 0;
		while (poll(&p, 1, ended || p.fd < 0 ? 0 : POLL_MS) > 0 &&
		       clock_ns(CLOCK_MONOTONIC) < end_ns)
			if (!read_part(fd, out, taken))
				p.fd = -1;
		if (p.fd < 0 && !ended)
			(void)poll(NULL, 0, 1);
	}
	return ended;
}

int tracer_run_command(const char *command, struct str *out, struct diag *d)
{
	_cleanup_close_ int in = -1, output = -1;
	size_t taken = 0;
	int ends[2], r;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return diag_set(d, -errno, "system(): %s", strerror(errno));
	in = ends[0];
	output = ends[1];
	r = fcntl(in, F_SETFL, O_NONBLOCK) < 0 ? -errno : start(command, output, &pid);
	if (r < 0)
		return diag_set(d, r, "system(): cannot run /bin/sh: %s", strerror(-r));
	close(output);
	output = -1;
	if (!wait_for(pid, in, out, &taken)) {
		(void)kill(-pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
		return diag_set(d, -ETIME, "system(): \"%s\" was killed after %d s", command,
				TRACER_COMMAND_S);
	}
	if (taken > OUTPUT_MAX)
		return diag_set(d, -E2BIG,
				"system(): \"%s\" printed %zu bytes, the first %u are shown",
				command, taken, OUTPUT_MAX);
	return 0;
}
