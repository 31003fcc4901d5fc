/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/command/foresee.h"
#include "base/cleanup.h"

struct command {
	char *name; /* owned */
	pid_t pid;
	int go;	    /* a byte lets the child run the command */
	int failed; /* reads the usage when the code is mapped, then why the command did not run */
	struct command_usage before;
	int status; /* of waitpid(), once `done` */
	bool done;
};

static void add_usage(int who, struct command_usage *to)
{
	struct rusage u;

	if (getrusage(who, &u) < 0)
		return;
	to->user_s += (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6;
	to->sys_s += (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec / 1e6;
}

/*
 * In the child: maps the code that the command will run, reports its CPU time on `failed`, waits
 * for a byte on `go`, then executes the command. A failure is reported on `failed` as an errno.
 */
static void run_command(int go, int failed, char *const *argv, const char *search)
{
	struct command_usage before = {};
	char byte;
	int error;

	foresee_command((const char *const *)argv, search);
	add_usage(RUSAGE_SELF, &before);
	add_usage(RUSAGE_CHILDREN, &before);
	if (write(failed, &before, sizeof(before)) < 0)
		_exit(126);
	/* End of file instead of a byte: the recorder could not start, and printed why. */
	if (read(go, &byte, 1) == 1)
		execvp(argv[0], argv);
	error = errno;
	if (write(failed, &error, sizeof(error)) < 0)
		_exit(126);
	_exit(error == ENOENT ? 127 : 126);
}

/* Opens the pipes and forks. Returns a negative errno. */
static int fork_command(struct command *c, char *const *argv, const char *search)
{
	_cleanup_close_ int child_go = -1, child_failed = -1;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	child_go = fds[0];
	c->go = fds[1];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	c->failed = fds[0];
	child_failed = fds[1];
	c->pid = fork();
	if (c->pid == 0) {
		close(c->go);
		run_command(child_go, child_failed, argv, search);
	}
	return c->pid < 0 ? -errno : 0;
}

int command_create(char *const *argv, const char *search, struct diag *reterr_diag,
		   struct command **ret)
{
	struct command *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	c->go = c->failed = -1;
	c->name = strdup(argv[0]);
	r = c->name ? fork_command(c, argv, search) : -ENOMEM;
	if (r < 0) {
		(void)command_end(c, false);
		return diag_set(reterr_diag, r, "cannot start %s: %s", argv[0], strerror(-r));
	}
	*ret = c;
	return 0;
}

u32 command_pid(const struct command *c)
{
	return (u32)c->pid;
}

int command_wait(struct command *c, struct diag *reterr_diag)
{
	if (read(c->failed, &c->before, sizeof(c->before)) == sizeof(c->before))
		return 0;
	return diag_set(reterr_diag, -EPIPE, "cannot start %s: the process is gone", c->name);
}

struct command_usage command_usage_before(const struct command *c)
{
	return c->before;
}

int command_start(struct command *c, struct diag *reterr_diag)
{
	int error;

	if (write(c->go, "", 1) != 1)
		return diag_set(reterr_diag, -EPIPE, "cannot start %s: %s", c->name,
				strerror(errno));
	/* A successful exec closes the pipe. */
	if (read(c->failed, &error, sizeof(error)) != sizeof(error))
		return 0;
	return diag_set(reterr_diag, -error, "cannot run %s: %s", c->name, strerror(error));
}

bool command_poll(struct command *c)
{
	c->done = c->done || waitpid(c->pid, &c->status, WNOHANG) == c->pid;
	return c->done;
}

int command_end(struct command *c, bool terminate)
{
	int status;

	if (!c)
		return 0;
	if (c->pid > 0 && !c->done && terminate)
		kill(c->pid, SIGTERM);
	cleanup_close(&c->go);
	cleanup_close(&c->failed);
	if (c->pid > 0 && !c->done)
		waitpid(c->pid, &c->status, 0);
	status = c->status;
	free(c->name);
	free(c);
	return status;
}
