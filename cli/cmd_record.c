/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit record: profiles the machine, some processes or a command, and writes one file.
 *
 *	options → output checked → (command forked, waiting) → everything loaded → recording, until
 *	the time is up, the command ends, or a signal → symbolized → written → summary
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/vocab.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/foresee.h"
#include "cli/session.h"
#include "cli/view.h"
#include "format/format.h"
#include "profile/profile.h"

struct record_arguments {
	double duration_s;
	const char *output, *format;
	bool quiet;
};

#define A struct record_arguments
static const struct option record_options[] = {
	OPTION_F64("duration", 'd', "SECONDS", A, duration_s, 0.01, 1e9,
		   "length of the recording (default: 10, or until the command ends)"),
	OPTION_STRING("output", 'o', "FILE", A, output,
		      "output file; its extension selects the format (default culprit.html);\n"
		      "- is standard output"),
	OPTION_STRING("format", 0, "NAME", A, format, "output format, whatever the extension"),
	OPTION_FLAG("quiet", 'q', A, quiet, "print neither progress nor summary"),
	{},
};
#undef A

struct recording {
	struct record_arguments args;
	struct view_arguments look; /* the display options; the filters are in `what` */
	struct session_arguments what;
	const struct profile_format *format;
	const char *path;
	struct session session;
	struct pipeline_stats stats; /* at the end */
	pid_t child;		     /* the command, or 0 */
	int child_go;		     /* a byte lets the command start */
	int child_failed;	     /* reads why it could not */
	int child_status;	     /* of waitpid(); valid once child_done */
	bool child_done;
	u64 start_ns;
};

/*
 * In the child: maps the code that the command will run, reports 0 on `failed`, waits for a byte on
 * `go`, then executes the command. A failure is reported on `failed` as an errno.
 */
static void run_command(int go, int failed, char **argv)
{
	char byte;
	int error = 0;

	foresee_command((const char *const *)argv);
	if (write(failed, &error, sizeof(error)) < 0)
		_exit(126);
	/* End of file instead of a byte: the recorder could not start, and printed why. */
	if (read(go, &byte, 1) == 1)
		execvp(argv[0], argv);
	error = errno;
	if (write(failed, &error, sizeof(error)) < 0)
		_exit(126);
	_exit(error == ENOENT ? 127 : 126);
}

/* Forks the command, which waits for start_command(). */
static int fork_command(struct recording *r, char **argv)
{
	int go[2], failed[2];

	if (pipe2(go, O_CLOEXEC) < 0)
		return cli_error(1, "cannot start %s: %s", argv[0], strerror(errno));
	if (pipe2(failed, O_CLOEXEC) < 0) {
		close(go[0]);
		close(go[1]);
		return cli_error(1, "cannot start %s: %s", argv[0], strerror(errno));
	}
	r->child = fork();
	if (r->child == 0) {
		close(go[1]);
		run_command(go[0], failed[1], argv);
	}
	close(go[0]);
	close(failed[1]);
	r->child_go = go[1];
	r->child_failed = failed[0];
	return r->child < 0 ? cli_error(1, "cannot start %s: %s", argv[0], strerror(errno)) : 0;
}

/* Lets the command run. Returns an exit status when it cannot be executed. */
static int start_command(struct recording *r, const char *name)
{
	int error;

	if (write(r->child_go, "", 1) != 1)
		return cli_error(1, "cannot start %s: %s", name, strerror(errno));
	/* A successful exec closes the pipe. */
	if (read(r->child_failed, &error, sizeof(error)) != sizeof(error))
		return 0;
	return cli_error(error == ENOENT ? 127 : 126, "cannot run %s: %s", name, strerror(error));
}

static void end_command(struct recording *r)
{
	if (r->child_go >= 0)
		close(r->child_go);
	if (r->child_failed >= 0)
		close(r->child_failed);
	r->child_go = r->child_failed = -1;
	if (r->child > 0 && !r->child_done)
		waitpid(r->child, &r->child_status, 0);
}

static void print_progress(struct recording *r, bool last)
{
	static bool shown;
	struct pipeline_stats st;

	if (r->args.quiet || !isatty(STDERR_FILENO))
		return;
	if (last) {
		if (shown)
			fputs("\r\033[K", stderr);
		shown = false;
		return;
	}
	pipeline_stats(r->session.pipeline, &st);
	fprintf(stderr, "\r\033[K%.0f s  %llu samples of %llu processes, %llu lost",
		(double)(clock_ns(CLOCK_MONOTONIC) - r->start_ns) / 1e9, st.counts.samples,
		st.processes, st.counts.lost);
	shown = true;
}

/* Records until the time is up, the command ends or a signal arrives. */
static int run(struct recording *r, const char *command)
{
	double limit_s = r->args.duration_s;
	u64 next_progress = 0, end_ns;
	struct diag diag = {};
	int e;

	/* Wait for the child to map its code, so that pipeline_start() finds the mappings. */
	if (r->child && read(r->child_failed, &e, sizeof(e)) != sizeof(e))
		return cli_error(1, "cannot start %s: the process is gone", command);
	e = pipeline_start(r->session.pipeline, &diag);
	if (e < 0)
		return cli_error(1, "%s", diag.text[0] ? diag.text : strerror(-e));
	r->start_ns = clock_ns(CLOCK_MONOTONIC);
	log_debug("recording: samples count from now on");
	if (limit_s <= 0)
		limit_s = r->child ? 1e9 : 10;
	end_ns = r->start_ns + (u64)(limit_s * 1e9);
	e = r->child ? start_command(r, command) : 0;
	if (e)
		return e;
	while (!session_ended()) {
		u64 now = clock_ns(CLOCK_MONOTONIC);
		int wait_ms = 100;

		if (now >= end_ns)
			break;
		if (end_ns - now < 100000000)
			wait_ms = (int)((end_ns - now + 999999) / 1000000);
		e = pipeline_poll(r->session.pipeline, wait_ms);
		if (e < 0)
			return cli_error(1, "reading events failed: %s", strerror(-e));
		if (r->child && waitpid(r->child, &r->child_status, WNOHANG) == r->child) {
			r->child_done = true;
			break;
		}
		if (now >= next_progress) {
			print_progress(r, false);
			next_progress = now + 500000000;
		}
	}
	pipeline_stop(r->session.pipeline);
	print_progress(r, true);
	return 0;
}

static double share(u64 part, u64 whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

/* For --verbose. */
static void print_counters(const struct pipeline_stats *st)
{
	for (u32 i = 0; i < COUNTER_N; i++)
		if (st->sampler.all.counters[i])
			fprintf(stderr, "  %s: %llu %s\n", vocab_counter(i)->name,
				st->sampler.all.counters[i], vocab_counter(i)->unit);
	fprintf(stderr, "  user stacks finished on the host: %llu\n", st->counts.deferred);
	fprintf(stderr, "  longest time between two reads of the ring: %.1f ms (%s)\n",
		(double)st->stall_ns / 1e6, st->stall_what);
	fprintf(stderr,
		"  unwind pages: %llu loaded, %llu evicted, %llu not loaded for lack of memory\n",
		st->tables.pages_loaded, st->tables.pages_evicted, st->tables.no_memory);
}

/* How often the event was sampled, and how often that was asked for. */
static void print_source(const struct pipeline *p, const struct pipeline_stats *st, double seconds)
{
	const struct sampler_source *s = pipeline_source(p, 0);
	double hz = seconds > 0.05 ? (double)st->sampler.all.counters[COUNTER_EVENTS] / seconds /
					     (double)MAX(st->sampler.cpus, 1u)
				   : 0.0;

	fprintf(stderr, "%s at %.1f Hz on %u CPUs", s->event, hz, st->sampler.cpus);
	if (s->hz)
		fprintf(stderr, " (asked %llu)\n", s->hz);
	else if (s->period > 1)
		fprintf(stderr, " (a sample each %llu)\n", s->period);
	else
		fprintf(stderr, " (each is a sample)\n");
}

static void print_summary(struct recording *r, const struct profile *p)
{
	const struct pipeline_stats st = r->stats;
	struct symbolizer_stats sym;
	struct rusage usage;
	double seconds, own;

	symbolizer_stats(r->session.symbolizer, &sym);
	getrusage(RUSAGE_SELF, &usage);
	seconds = (double)st.sampler.elapsed_ns / 1e9;
	own = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	      (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	fprintf(stderr, "%llu samples of %llu processes in %.1f s; ", st.counts.samples,
		st.processes, seconds);
	print_source(r->session.pipeline, &st, seconds);
	fprintf(stderr,
		"lost %llu (%.2f %%), truncated %llu of %llu user stacks (%.2f %%), frames without a name %.2f %%\n",
		st.counts.lost, share(st.counts.lost, st.counts.lost + st.counts.samples),
		st.counts.truncated, st.counts.user_samples,
		share(st.counts.truncated, st.counts.user_samples),
		share(p->quality.unknown, p->quality.frames));
	for (u32 i = STOP_COMPLETE + 1; i < STOP_N; i++)
		if (st.counts.stops[i])
			fprintf(stderr, "  %llu: %s\n", st.counts.stops[i], vocab_stop(i)->name);
	if (st.counts.unread)
		fprintf(stderr,
			"  %llu more lack frames of a runtime that was too new, or their names\n",
			st.counts.unread);
	if (st.counts.attributes_left_out)
		fprintf(stderr, "  %llu lack attributes that were not readable, or too many\n",
			st.counts.attributes_left_out);
	if (sym.kernel_hidden && !r->what.user_only)
		fprintf(stderr,
			"  kernel symbols are hidden: run as root, or set sysctl kernel.kptr_restrict=0\n");
	fprintf(stderr, "culprit itself: %.2f s CPU, %ld MB resident, %llu MB in BPF maps\n", own,
		usage.ru_maxrss / 1024,
		(st.sampler.map_bytes + st.tables.chunk_bytes + (1 << 19)) >> 20);
	if (r->what.verbose)
		print_counters(&st);
	if (strcmp(r->path, "-") != 0)
		fprintf(stderr, "wrote %s\n", r->path);
}

static int write_result(struct recording *r)
{
	struct profile_write_options wo = {};
	_cleanup_profile_ struct profile *p = NULL;
	struct diag diag = {};
	int e;

	/* record offers no options that contradict each other. */
	(void)view_apply(&r->look, "record", &wo);
	pipeline_stats(r->session.pipeline, &r->stats);
	e = session_profile(&r->session, &p);
	if (e < 0)
		return cli_error(1, "cannot build the profile: %s", strerror(-e));
	e = profile_write_file(p, r->path, r->format, &wo, &diag);
	if (e < 0)
		return cli_error(1, "%s", diag.text[0] ? diag.text : strerror(-e));
	if (!r->args.quiet)
		print_summary(r, p);
	return 0;
}

/* The command's exit status as a shell gives it. */
static int command_status(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int record(struct recording *r, char **command)
{
	struct diag diag = {};
	bool times;
	int e;

	r->path = r->args.output ? r->args.output : "culprit.html";
	e = profile_write_check(r->path, r->args.format, &r->format, &diag);
	if (e < 0)
		return cli_fail(e, &diag);
	if (r->what.events && strchr(r->what.events, ','))
		return cli_error(2, "record takes one event a file; run it once for each, or an "
				    "agent, which takes several");
	times = strcmp(r->format->name, "firefox") == 0;
	if (command[0]) {
		e = fork_command(r, command);
		if (e)
			return e;
	}
	session_catch_signals();
	e = session_init(&r->what, (u32)r->child, times, NULL, &r->session);
	if (e == 0)
		e = run(r, command[0]);
	if (e == 0)
		e = write_result(r);
	if (r->child > 0 && r->child_go >= 0 && !r->child_done && session_ended())
		kill(r->child, SIGTERM);
	end_command(r);
	if (e == 0 && r->child > 0)
		e = command_status(r->child_status);
	return e;
}

int cmd_record(int argc, char **argv)
{
	struct recording r = {.child_go = -1, .child_failed = -1};
	const struct option_group groups[] = {{NULL, record_options, &r.args},
					      {"Sampling", session_options, &r.what},
					      {"Display", view_look_options, &r.look},
					      {}};
	const struct option_usage usage = {
		.command = "record",
		.operands = "[--] [COMMAND [ARGUMENT...]]",
		.summary =
			"Profiles the whole machine, some processes, or a command and its children.",
		.groups = groups,
		.footer = "Extensions: .html .svg .folded .pb.gz .speedscope.json .firefox.json",
		.stop_at_operand = true,
	};
	int first, e;

	e = options_parse(&usage, argc, argv, &first);
	if (e)
		return e < 0 ? 2 : 0;
	e = record(&r, argv + first);
	session_deinit(&r.session);
	return e;
}
