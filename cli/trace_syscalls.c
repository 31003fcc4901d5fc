/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace_syscalls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/command/command.h"
#include "agent/syscalls/syscalls.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/signals.h"

#define POLL_MS 20

#define A struct trace_syscalls_arguments
const struct option trace_syscalls_options[] = {
	OPTION_FLAG(
		"syscalls", 0, A, on,
		"print the system calls of a process (-p), of a command (-c, or operands), or of\n"
		"the whole machine, with those of the threads and processes that it starts"),
	OPTION_FLAG("summary", 0, A, summary,
		    "count them instead, and print calls, errors and times of each at the end"),
	OPTION_STRING("by", 0, "WHAT", A, by, "process: a summary of each process"),
	OPTION_FLAG("errors", 0, A, errors, "only calls that fail"),
	OPTION_STRING("only", 0, "CALLS", A, only,
		      "only these, comma-separated: names, and groups %file, %desc, %network,\n"
		      "%process, %memory, %signal, %ipc"),
	{},
};
#undef A

static int parse_arguments(const struct trace_syscalls_arguments *a,
			   const struct trace_syscalls_target *t, struct syscalls_options *ret)
{
	*ret = (struct syscalls_options){
		.all = !t->pid && !t->command,
		.summary = a->summary || a->by,
		.by_process = a->by != NULL,
		.errors = a->errors,
		.slower_ns = (u64)(t->slower_s * 1e9),
		.only = a->only,
		.json = t->json,
		.verbose = t->verbose,
		.out = t->out,
	};
	if (a->by && strcmp(a->by, "process") != 0)
		return cli_error(2, "--by takes 'process', not '%s'", a->by);
	return 0;
}

/* Follows calls until all threads have ended, the time is over, or a signal arrives. */
static int follow(struct syscalls *s, const struct trace_syscalls_target *t)
{
	_cleanup_str_ struct str lost = {};
	u64 end_ns = clock_ns(CLOCK_MONOTONIC) + t->seconds * 1000000000;
	int r = 0, e;

	while (!signals_ended() && r == 0 && !(t->seconds && clock_ns(CLOCK_MONOTONIC) >= end_ns))
		r = syscalls_poll(s, POLL_MS);
	e = syscalls_end(s);
	syscalls_print_lost(s, &lost);
	if (lost.n && !t->quiet)
		fprintf(stderr, "culprit: %s", str_get(&lost));
	if (r == -EPIPE || e == -EPIPE)
		return 0;
	if (r < 0 || e < 0)
		return cli_error(1, "cannot print: %s", strerror(r < 0 ? -r : -e));
	return 0;
}

static int run_command(struct syscalls *s, const struct trace_syscalls_target *t, struct command *c)
{
	struct diag d = {};
	int r = command_wait(c, &d);

	if (r == 0)
		r = syscalls_follow(s, command_pid(c), true, &d);
	if (r < 0)
		return cli_error(1, "%s", d.text);
	r = command_start(c, &d);
	if (r < 0)
		return cli_error(r == -ENOENT ? 127 : 126, "%s", d.text);
	return follow(s, t);
}

static int exit_status(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool trace_syscalls_given(const struct trace_syscalls_arguments *a)
{
	return a->summary || a->errors || a->only || a->by;
}

int trace_syscalls(const struct trace_syscalls_arguments *a, const struct trace_syscalls_target *t)
{
	struct command *command = NULL;
	struct syscalls_options o;
	struct syscalls *s = NULL;
	struct diag d = {};
	int e = parse_arguments(a, t, &o), r, status;

	if (e)
		return e;
	if (t->pid && t->command)
		return cli_error(2, "-p and a command exclude each other");
	if (t->command && command_create(t->command, getenv("PATH"), &d, &command) < 0)
		return cli_error(1, "%s", d.text);
	signals_catch_end(); /* not before the fork */
	r = syscalls_create(&o, &d, &s);
	if (r == 0 && t->pid)
		r = syscalls_follow(s, t->pid, false, &d);
	if (r < 0)
		e = cli_fail(r, &d);
	else
		e = command ? run_command(s, t, command) : follow(s, t);
	status = command_end(command, signals_ended());
	syscalls_destroy(s);
	return e || !command ? e : exit_status(status);
}
