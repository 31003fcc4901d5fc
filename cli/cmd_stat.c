/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit stat: counts events while a command or process runs, or for a time.
 *
 *	(command forked, waiting) → counters opened → started → part after part → the whole
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/command/command.h"
#include "agent/stat/stat.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/signals.h"

#define MAX_WAIT_MS 1000

struct stat_arguments {
	const char *events, *cgroup, *format, *output;
	u64 pid, interval_ms;
	double seconds;
};

#define A struct stat_arguments
static const struct option stat_options[] = {
	OPTION_STRING("event", 'e', "EVENTS", A, events,
		      "count these, comma-separated: names such as cycles, page-faults, and\n"
		      "tracepoints such as sched:sched_switch"),
	OPTION_U64("pid", 'p', "PID", A, pid, 1, 1 << 22,
		   "count a process, with the threads and processes that it starts, until it ends"),
	OPTION_STRING("cgroup", 0, "PATH", A, cgroup, "count a cgroup: its directory"),
	OPTION_TIME("duration", 'd', A, seconds, 0.001, 1e9, "end after this time"),
	OPTION_U64("interval", 'I', "MS", A, interval_ms, 10, 86400000,
		   "also print what was counted every so many milliseconds"),
	OPTION_STRING("format", 'f', "NAME", A, format, "text (default) or json: an object a line"),
	OPTION_STRING("output", 'o', "FILE", A, output,
		      "print to a file; else to standard error if there is a command, or to\n"
		      "standard output"),
	{},
};
#undef A

struct stat_run {
	struct stat_arguments args;
	struct command *command; /* owned; NULL: there is none, or it has ended */
	bool is_command;
	struct command_usage before; /* it executed the command */
	int process;		     /* pidfd of the command or of -p; -1: none */
	struct stat_counters *counters;
	struct stat_value *now, *last,
		*part; /* owned: since the start, the same before, and since */
	u64 begin_ns, last_ns;
	const char *what;
	FILE *out;
};

static void print(struct stat_run *s, const struct stat_value *v, const struct stat_times *t)
{
	_cleanup_str_ struct str text = {};

	if (str_same(s->args.format, "json"))
		stat_print_json(v, stat_count(s->counters), t, &text);
	else
		stat_print_text(v, stat_count(s->counters), s->what, t, &text);
	fputs(str_get(&text), s->out);
	fflush(s->out);
}

static int print_part(struct stat_run *s, u64 now_ns)
{
	u32 n = stat_count(s->counters);
	struct stat_times t = {.elapsed_s = (double)(now_ns - s->last_ns) / 1e9,
			       .at_s = (double)(now_ns - s->begin_ns) / 1e9,
			       .user_s = -1};
	int r = stat_read(s->counters, s->now);

	for (u32 i = 0; i < n && r == 0; i++) {
		s->part[i] = s->now[i];
		s->part[i].counted -= s->last[i].counted;
		s->part[i].scaled -= s->last[i].scaled;
		s->last[i] = s->now[i];
	}
	if (r == 0)
		print(s, s->part, &t);
	s->last_ns = now_ns;
	return r;
}

static double seconds_of(const struct timeval *t)
{
	return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

/* The kernel's split of a time may differ a little later: the sum stays. */
static void subtract_before(const struct stat_run *s, const struct rusage *u, struct stat_times *t)
{
	double user = seconds_of(&u->ru_utime) - s->before.user_s;
	double sys = seconds_of(&u->ru_stime) - s->before.sys_s;

	t->user_s = MAX(0, user + MIN(0, sys));
	t->sys_s = MAX(0, sys + MIN(0, user));
}

static int print_whole(struct stat_run *s, u64 end_ns)
{
	struct stat_times t = {.elapsed_s = (double)(end_ns - s->begin_ns) / 1e9, .user_s = -1};
	struct rusage usage;
	int r = stat_read(s->counters, s->now);

	if (r < 0)
		return cli_error(1, "cannot read the counters: %s", strerror(-r));
	if (s->is_command && getrusage(RUSAGE_CHILDREN, &usage) == 0)
		subtract_before(s, &usage, &t);
	print(s, s->now, &t);
	return 0;
}

/* Milliseconds until something is to be done, at most MAX_WAIT_MS. */
static int wait_ms(const struct stat_run *s, u64 now)
{
	u64 until = now + MAX_WAIT_MS * 1000000ULL;

	if (s->args.seconds > 0)
		until = MIN(until, s->begin_ns + (u64)(s->args.seconds * 1e9));
	if (s->args.interval_ms)
		until = MIN(until, s->last_ns + s->args.interval_ms * 1000000);
	return until > now ? (int)((until - now + 999999) / 1000000) : 0;
}

static bool is_over(const struct stat_run *s, u64 now)
{
	return s->args.seconds > 0 && (double)(now - s->begin_ns) >= s->args.seconds * 1e9;
}

/* Returns when the process or the time ended. */
static u64 wait_for_end(struct stat_run *s)
{
	struct pollfd process = {.fd = s->process, .events = POLLIN};
	u64 now = s->begin_ns, interval_ns = s->args.interval_ms * 1000000;

	while (!signals_ended() && !is_over(s, now)) {
		bool ended = poll(&process, 1, wait_ms(s, now)) > 0;

		now = clock_ns(CLOCK_MONOTONIC);
		if (ended)
			break;
		if (interval_ns && now - s->last_ns >= interval_ns)
			(void)print_part(s, now);
	}
	return now;
}

static int start(struct stat_run *s)
{
	struct diag d = {};
	int r = stat_start(s->counters);

	if (r < 0)
		return cli_error(1, "cannot start the counters: %s", strerror(-r));
	s->begin_ns = s->last_ns = clock_ns(CLOCK_MONOTONIC);
	if (s->command)
		s->before = command_usage_before(s->command);
	r = s->command ? command_start(s->command, &d) : 0;
	return r < 0 ? cli_error(r == -ENOENT ? 127 : 126, "%s", d.text) : 0;
}

static int count(struct stat_run *s)
{
	u32 n = stat_count(s->counters);
	int e, status;
	u64 end;

	s->now = calloc(3 * (size_t)n, sizeof(*s->now));
	if (!s->now)
		return cli_error(1, "%s", strerror(ENOMEM));
	s->last = s->now + n;
	s->part = s->last + n;
	e = start(s);
	if (e)
		return e;
	end = wait_for_end(s);
	/* Its CPU times are known when it has ended. */
	status = command_end(s->command, true);
	s->command = NULL;
	e = print_whole(s, end);
	if (!s->is_command || e)
		return e;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int open_counters(struct stat_run *s, char **command)
{
	struct stat_options o = {.events = s->args.events, .cgroup = s->args.cgroup};
	struct diag d = {};
	int r = 0;

	s->is_command = *command;
	if (*command)
		r = command_create(command, getenv("PATH"), &d, &s->command);
	signals_catch_end(); /* not before the fork */
	if (r == 0 && s->command)
		r = command_wait(s->command, &d);
	if (r < 0)
		return cli_error(1, "%s", d.text);
	o.pid = s->command ? command_pid(s->command) : (u32)s->args.pid;
	o.scope = s->command	? STAT_COMMAND
		  : s->args.pid ? STAT_PROCESS
		  : o.cgroup	? STAT_CGROUP
				: STAT_MACHINE;
	s->what = s->command	? command[0]
		  : s->args.pid ? "the process"
		  : o.cgroup	? o.cgroup
				: "the machine";
	if (o.pid)
		s->process = (int)syscall(SYS_pidfd_open, (pid_t)o.pid, 0);
	r = stat_create(&o, &d, &s->counters);
	return r < 0 ? cli_error(1, "%s", d.text[0] ? d.text : strerror(-r)) : 0;
}

static int check_arguments(struct stat_run *s, char **command)
{
	const struct stat_arguments *a = &s->args;

	if (a->format && strcmp(a->format, "text") != 0 && strcmp(a->format, "json") != 0)
		return cli_error(2, "no output format '%s': text or json", a->format);
	if (!!a->pid + !!a->cgroup + !!*command > 1)
		return cli_error(2, "-p, --cgroup and a command exclude each other");
	s->out = a->output ? fopen(a->output, "we") : *command ? stderr : stdout;
	return s->out ? 0 : cli_error(1, "cannot write '%s': %s", a->output, strerror(errno));
}

int cmd_stat(int argc, char **argv)
{
	struct stat_run s = {.process = -1};
	const struct option_group groups[] = {{NULL, stat_options, &s.args}, {}};
	const struct option_usage usage = {
		.command = "stat",
		.operands = "[--] [COMMAND [ARGUMENT...]]",
		.summary = "Counts events of a command, a process, a cgroup or the machine.",
		.groups = groups,
		.footer = "culprit stat -e page-faults,sched:sched_switch -- make",
		.stop_at_operand = true,
	};
	int first, e;

	e = options_parse(&usage, argc, argv, &first);
	if (e)
		return e < 0 ? 2 : 0;
	e = check_arguments(&s, argv + first);
	if (!e)
		e = open_counters(&s, argv + first);
	if (!e)
		e = count(&s);
	(void)command_end(s.command, true);
	stat_destroy(s.counters);
	free(s.now);
	if (s.process >= 0)
		close(s.process);
	if (s.args.output && s.out && fclose(s.out) != 0 && !e)
		e = cli_error(1, "cannot write '%s': %s", s.args.output, strerror(errno));
	return e;
}
