/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit record: profiles the machine, some processes or a command, and writes one file.
 *
 *	options → output checked → (command forked, waiting) → everything loaded → recording, until
 *	the time is up, the command ends, or a signal → symbolized → written → summary
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/command/command.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/vocab.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/sampling.h"
#include "cli/signals.h"
#include "cli/view.h"
#include "format/format.h"
#include "proc/proc.h"
#include "profile/profile.h"

struct record_arguments {
	double duration_s, last_s;
	const char *output, *format, *host_root;
	bool quiet, force, self;
};

#define A struct record_arguments
static const struct option record_options[] = {
	OPTION_TIME("duration", 'd', A, duration_s, 0.01, 1e9,
		    "length of the recording (default: 10, or until the command ends)"),
	OPTION_TIME("last", 0, A, last_s, 0.1, 86400,
		    "record until Ctrl-C, and keep only the last seconds before it"),
	OPTION_STRING("output", 'o', "FILE", A, output,
		      "output file; its extension selects the format; - is standard output\n"
		      "(default culprit-DATE-TIME.html)"),
	OPTION_FLAG("force", 0, A, force, "replace the output file if it exists"),
	OPTION_STRING("format", 0, "NAME", A, format, "output format, whatever the extension"),
	OPTION_STRING("host-root", 0, "DIR", A, host_root,
		      "with --roots: look for the state files of container engines below DIR\n"
		      "instead of /"),
	OPTION_FLAG("self", 0, A, self,
		    "record what culprit itself does, too, with the label culprit.self"),
	OPTION_FLAG("quiet", 'q', A, quiet, "print neither progress nor summary"),
	{},
};
#undef A

struct record {
	struct record_arguments args;
	struct view_arguments look; /* the display options; the filters are in `sampling` */
	struct sampling_arguments sampling;
	struct profile_write_options how; /* of `look` */
	const struct profile_format *format;
	const char *path;
	char default_path[64];
	struct recording *recording;
	struct pipeline_stats stats; /* at the end */
	struct command *command;     /* or NULL */
	u64 start_ns;
};

static void print_progress(struct record *r, bool last)
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
	recording_stats(r->recording, &st);
	fprintf(stderr, "\r\033[K%.0f s  %llu samples of %llu processes, %llu lost",
		(double)(clock_ns(CLOCK_MONOTONIC) - r->start_ns) / 1e9, st.counts.samples,
		st.processes, st.counts.lost);
	shown = true;
}

/* The exit status after a command that could not be run, as a shell gives it. */
static int fail_command(int error, const struct diag *d)
{
	return cli_error(error == -ENOENT ? 127 : 126, "%s", d->text);
}

/* Starts sampling, then the command. */
static int start_recording(struct record *r)
{
	struct diag diag = {};
	int e;

	/* First the child maps its code, so that recording_start() finds the mappings. */
	if (r->command && command_wait(r->command, &diag) < 0)
		return cli_error(1, "%s", diag.text);
	if (recording_start(r->recording, &diag) < 0)
		return cli_error(1, "%s", diag.text);
	r->start_ns = clock_ns(CLOCK_MONOTONIC);
	log_debug("recording: samples count from now on");
	e = r->command ? command_start(r->command, &diag) : 0;
	return e < 0 ? fail_command(e, &diag) : 0;
}

/* Records until the time is up, the command ends or a signal arrives. */
static int run(struct record *r)
{
	double limit_s = r->args.duration_s;
	u64 next_progress = 0, end_ns;
	int e = start_recording(r);

	if (e)
		return e;
	if (limit_s <= 0)
		limit_s = r->command || r->args.last_s > 0 ? 1e9 : 10;
	end_ns = r->start_ns + (u64)(limit_s * 1e9);
	while (!signals_ended()) {
		u64 now = clock_ns(CLOCK_MONOTONIC);
		int wait_ms = 100;

		if (now >= end_ns)
			break;
		if (end_ns - now < 100000000)
			wait_ms = (int)((end_ns - now + 999999) / 1000000);
		e = recording_poll(r->recording, wait_ms);
		if (e < 0)
			return cli_error(1, "reading events failed: %s", strerror(-e));
		if (r->command && command_poll(r->command))
			break;
		if (now >= next_progress) {
			print_progress(r, false);
			next_progress = now + 500000000;
		}
	}
	recording_stop(r->recording);
	print_progress(r, true);
	return 0;
}

static double percent_of(u64 part, u64 whole)
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
static void print_source(struct recording *r, u32 i, const struct pipeline_stats *st,
			 double seconds)
{
	const struct sampler_source *s = recording_source(r, i);
	const struct sampler_source_stats *stats = &st->sampler.sources[i];
	double hz = seconds > 0.05 ? (double)stats->counters[COUNTER_EVENTS] / seconds /
					     (double)MAX(st->sampler.cpus, 1u)
				   : 0.0;
	bool is_wait = s->type == SAMPLE_TYPE_OFF_CPU || s->type == SAMPLE_TYPE_WALL;

	fprintf(stderr, "%s", s->event);
	if (s->type == SAMPLE_TYPE_INUSE_SPACE) {
		fprintf(stderr, " profiles of runtimes, as read\n");
		return;
	}
	if (s->hz || !is_wait)
		fprintf(stderr, " at %.1f Hz on %u CPUs", hz, st->sampler.cpus);
	if (s->hz)
		fprintf(stderr, " (asked %llu%s)\n", s->hz,
			hz < 0.9 * (double)s->hz && s->type == SAMPLE_TYPE_CPU
				? "; the clock of an idle CPU may stand still"
				: "");
	else if (s->period > 1)
		fprintf(stderr, " (a sample each %llu)\n", s->period);
	else if (stats->limit <= 1)
		fprintf(stderr, " (each is a sample)\n");
	else if (is_wait)
		fprintf(stderr, " (those below %.0f us share samples: --budget)\n",
			(double)stats->limit / 1e3);
	else
		fprintf(stderr, " (a sample each %llu: --budget)\n", stats->limit);
}

/* "goroutines", or what covers several kinds. */
static const char *tasks_name(u64 kinds)
{
	for (u32 i = 0; i < TASK_N; i++)
		if (kinds == 1u << i)
			return vocab_task(i)->plural;
	return "tasks";
}

/* How exact the bytes of a stack are that has a tenth of the memory: two standard deviations. */
static void print_resident(const struct resident_stats *s)
{
	if (s->one_of > 1)
		fprintf(stderr, "  one of %llu pages of memory was followed;", s->one_of);
	else
		fprintf(stderr, "  each page of memory was followed;");
	fprintf(stderr, " the faults of %llu of %llu that came since the begin were walked",
		s->walked, s->known);
	if (s->effective)
		fprintf(stderr, ": a stack with a tenth of them is right to %.1f %%",
			200 * sqrt(9 / (double)s->effective));
	fprintf(stderr, "\n");
}

struct told { /* lines about processes */
	u32 n;
};

#define MAX_TOLD 20

static void print_heap(void *arg, u32 pid, const char *comm, const char *text)
{
	struct told *t = arg;

	if (t->n++ < MAX_TOLD)
		fprintf(stderr, "  %s (%u): %s\n", comm, pid, text);
}

static bool is_heap(const struct record *r)
{
	return recording_source(r->recording, 0)->type == SAMPLE_TYPE_INUSE_SPACE;
}

static void print_heaps(struct record *r)
{
	struct told t = {};

	recording_heap_say(r->recording, print_heap, &t);
	if (t.n > MAX_TOLD)
		fprintf(stderr, "  and %u more processes with a runtime\n", t.n - MAX_TOLD);
	if (!t.n)
		fprintf(stderr, "  no process with a language runtime\n");
}

/* How exactly the allocations of each process are known. */
static void print_allocations(const struct pipeline_alloc_stats *s)
{
	fprintf(stderr,
		"  a probe of an allocator takes %llu ns, %llu ns if its instruction is stepped; %llu "
		"windows\n",
		s->probes.emulated_ns, s->probes.stepped_ns, s->probes.windows);
	for (u32 i = 0; i < s->n_told; i++) {
		const struct pipeline_alloc_told *t = &s->told[i];

		if (!t->windowed)
			fprintf(stderr, "  %s-%u: probed all the time\n", t->comm, t->pid);
		else if (isfinite(t->high))
			fprintf(stderr,
				"  %s-%u: probed %.1f %% of the time in windows; what it allocated is "
				"between %.2f and %.2f times what is shown\n",
				t->comm, t->pid, 100 * t->coverage, t->low, t->high);
		else
			fprintf(stderr,
				"  %s-%u: probed %.1f %% of the time in windows, most of which probes "
				"took: it allocated at least %.2f times what is shown\n",
				t->comm, t->pid, 100 * t->coverage, t->low);
	}
}

/* Of --attach-java, instead of what was sampled to find JVMs. */
static void print_flights(const struct record *r, const struct flights_stats *s,
			  const struct profile *p)
{
	fprintf(stderr,
		"%llu samples of allocations in %.1f s; %llu dumps of %.1f kB in all, of which "
		"%llu failed; %llu JVMs were not recorded, of %llu the end is lost\n",
		p->quality.samples, (double)p->duration_ns / 1e9, s->dumps, (double)s->bytes / 1e3,
		s->failed, s->refused, s->lost_ends);
	fprintf(stderr, "answers of JVMs took %.2f s, parsing took %.2f s CPU\n",
		(double)s->waited_ns / 1e9, (double)s->parser_ns / 1e9);
	if (strcmp(r->path, "-") != 0)
		fprintf(stderr, "wrote %s\n", r->path);
}

static void print_summary(struct record *r, const struct profile *p)
{
	const struct pipeline_stats st = r->stats;
	struct symbolizer_stats sym;
	struct proc_status status = {};
	struct rusage usage;
	double seconds, own;

	recording_symbol_stats(r->recording, &sym);
	getrusage(RUSAGE_SELF, &usage);
	(void)proc_status_read((u32)getpid(), &status);
	seconds = (double)st.sampler.elapsed_ns / 1e9;
	own = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	      (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6 +
	      (double)st.tables.parser_cpu_ns / 1e9;
	/* With --last, that is less than what was sampled. */
	fprintf(stderr, "%llu samples of %llu processes in %.1f s; ", p->quality.samples,
		st.processes, (double)p->duration_ns / 1e9);
	print_source(r->recording, 0, &st, seconds);
	for (u32 i = 1; recording_source(r->recording, i); i++) {
		fprintf(stderr, "  and ");
		print_source(r->recording, i, &st, seconds);
	}
	fprintf(stderr,
		"lost %llu (%.2f %%), truncated %llu of %llu user stacks (%.2f %%), frames without a name %.2f %%\n",
		st.counts.lost, percent_of(st.counts.lost, st.counts.lost + st.counts.samples),
		st.counts.truncated, st.counts.user_samples,
		percent_of(st.counts.truncated, st.counts.user_samples),
		percent_of(p->quality.unknown, p->quality.frames));
	for (u32 i = STOP_COMPLETE + 1; i < STOP_N; i++)
		if (st.counts.stops[i])
			fprintf(stderr, "  %llu stacks: %s\n", st.counts.stops[i],
				vocab_stop(i)->name);
	if (st.counts.unread)
		fprintf(stderr,
			"  %llu more lack frames of a runtime that was too new, or their names\n",
			st.counts.unread);
	if (st.counts.attributes_left_out)
		fprintf(stderr, "  %llu lack attributes that were not readable, or too many\n",
			st.counts.attributes_left_out);
	if (st.tasks.drawn)
		fprintf(stderr,
			"  %s: read %llu times, %llu waited, %llu (%.2f %%) changed meanwhile or were not readable\n",
			tasks_name(st.tasks.kinds), st.tasks.drawn, st.tasks.waiting,
			st.tasks.unread, percent_of(st.tasks.unread, st.tasks.drawn));
	if (st.tasks.failed)
		fprintf(stderr,
			"  tasks of a process (goroutines, virtual threads) were not readable %llu times\n",
			st.tasks.failed);
	if (st.resident.looks)
		print_resident(&st.resident);
	if (is_heap(r))
		print_heaps(r);
	if (st.alloc.probes.emulated_ns)
		print_allocations(&st.alloc);
	if (sym.kernel_hidden && !r->sampling.what.user_only)
		fprintf(stderr,
			"  kernel symbols are hidden: run as root, or set sysctl kernel.kptr_restrict=0\n");
	fprintf(stderr, "culprit itself: %.2f s CPU, %llu MB resident, %llu MB in BPF maps", own,
		(status.peak_bytes + st.tables.parser_bytes) >> 20,
		(st.sampler.map_bytes + st.tables.chunk_bytes + (1 << 19)) >> 20);
	if (p->quality.self)
		fprintf(stderr, "; its %llu samples (%.1f %%) are left out: --self keeps them",
			p->quality.self,
			percent_of(p->quality.self, p->quality.self + p->quality.samples));
	fputc('\n', stderr);
	if (r->sampling.verbose)
		print_counters(&st);
	if (strcmp(r->path, "-") != 0)
		fprintf(stderr, "wrote %s\n", r->path);
}

/* Nothing was sampled: what to change. */
static void tell_empty(const struct record *r, const struct profile *p)
{
	const struct sampler_source *s = recording_source(r->recording, 0);

	const struct recording_options *o = &r->sampling.what;

	if (p->quality.self)
		fputs("nothing but culprit itself was sampled\n", stderr);
	else if (o->pids || o->comms || o->cgroups || o->uids)
		fputs("nothing that --pid, --comm, --cgroup and --uid select was sampled\n",
		      stderr);
	else if (s->type == SAMPLE_TYPE_CPU)
		fputs("nothing used the CPU: --wall or --off-cpu shows what waits\n", stderr);
}

/* The summary is of the others. */
static void leave_out_self(struct record *r)
{
	struct symbolizer_stats sym;

	recording_symbol_stats(r->recording, &sym);
	pipeline_subtract_counts(&r->stats.counts, &sym.self);
	r->stats.processes -= MIN(r->stats.processes, sym.self_processes);
}

static int write_result(struct record *r)
{
	_cleanup_profile_ struct profile *p = NULL;
	struct flights_stats flights;
	struct pipeline_stats now;
	struct diag diag = {};
	int e;

	recording_stats(r->recording, &r->stats);
	e = recording_profile(r->recording, &p);
	recording_stats(r->recording, &now);
	/* Counted with the profile. */
	r->stats.resident = now.resident;
	leave_out_self(r);
	if (e == 0 && is_heap(r)) {
		r->stats.counts.samples = p->quality.samples;
		r->stats.counts.user_samples = p->quality.user_stacks;
		r->stats.counts.truncated = p->quality.truncated;
		r->stats.counts.lost = p->quality.lost;
	}
	r->stats.alloc = now.alloc;
	r->stats.processes += now.resident.counted + now.heap.counted;
	if (e < 0)
		return cli_error(1, "cannot build the profile: %s", strerror(-e));
	e = profile_write_file(p, r->path, r->format, &r->how, &diag);
	if (e < 0)
		return cli_error(1, "%s", diag.text[0] ? diag.text : strerror(-e));
	if (r->args.quiet)
		return 0;
	if (recording_flight_stats(r->recording, &flights))
		print_flights(r, &flights, p);
	else
		print_summary(r, p);
	if (!p->quality.samples)
		tell_empty(r, p);
	return 0;
}

/* The command's exit status as a shell gives it. */
static int command_status(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int record(struct record *r)
{
	struct recording_options *what = &r->sampling.what;
	struct diag diag = {};
	int e;

	sampling_apply(&r->sampling);
	what->keep_times = strcmp(r->format->name, "firefox") == 0;
	what->last_s = r->args.last_s;
	what->leave_self = !r->args.self;
	what->identify = r->how.tree.roots != 0;
	what->host_root = r->args.host_root;
	what->follow = r->command ? command_pid(r->command) : 0;
	e = parsers_start(&diag, &what->parsers);
	if (e == 0)
		e = recording_create(what, &diag, &r->recording);
	if (e < 0) {
		e = cli_fail(e, &diag);
	} else {
		e = run(r);
		if (e == 0)
			e = write_result(r);
		recording_destroy(r->recording);
	}
	parsers_stop(what->parsers);
	return e;
}

static const char *name_output(struct record *r)
{
	time_t now = time(NULL);
	struct tm tm = {};

	(void)localtime_r(&now, &tm);
	(void)strftime(r->default_path, sizeof(r->default_path), "culprit-%Y%m%d-%H%M%S.html", &tm);
	return r->default_path;
}

/* Records with the command, if there is one. */
static int record_command(struct record *r, char **argv)
{
	struct diag diag = {};
	int e, status;

	if (view_apply(&r->look, "record", &r->how) < 0)
		return 2;
	r->path = r->args.output ? r->args.output : name_output(r);
	e = view_check_output(r->path, r->args.format, r->args.force, &r->format, &diag);
	if (e < 0)
		return cli_fail(e, &diag);
	if (r->sampling.what.events && strchr(r->sampling.what.events, ','))
		return cli_error(2, "record takes one event a file; run it once for each, or an "
				    "agent, which takes several");
	if (argv[0] && command_create(argv, getenv("PATH"), &diag, &r->command) < 0)
		return cli_error(1, "%s", diag.text);
	/* Not before the fork: the command must not inherit that SIGPIPE is ignored. */
	signals_catch_end();
	e = record(r);
	status = command_end(r->command, signals_ended());
	return e ? e : command_status(status);
}

int cmd_record(int argc, char **argv)
{
	struct record r = {};
	const struct option_group groups[] = {{NULL, record_options, &r.args},
					      {"Sampling", sampling_options, &r.sampling},
					      {"Display", view_look_options, &r.look},
					      {}};
	const struct option_usage usage = {
		.command = "record",
		.operands = "[--] [COMMAND [ARGUMENT...]]",
		.summary =
			"Profiles the whole machine, some processes, or a command and its children.",
		.groups = groups,
		.footer = "Extensions: .html .svg .folded .pb.gz .speedscope.json .firefox.json",
		.examples = "  culprit record -d 10                  the whole machine\n"
			    "  culprit record -p 1234 -d 1m --wall   a process, waiting too\n"
			    "  culprit record -o x.svg -- make -j4   a command",
		.stop_at_operand = true,
	};
	int first, e;

	e = options_parse(&usage, argc, argv, &first);
	if (e)
		return e < 0 ? 2 : 0;
	return record_command(&r, argv + first);
}
