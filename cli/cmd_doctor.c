/* SPDX-License-Identifier: Apache-2.0 */
/* culprit doctor: checks what this machine allows, what is missing, and how to fix it. */
#include "cli/cli.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/attach/attach.h"
#include "agent/context/context.h"
#include "agent/probe/probe.h"
#include "agent/procman/procman.h"
#include "agent/runtime/runtime.h"
#include "agent/sampler/sampler.h"
#include "base/cachedir.h"
#include "base/cleanup.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/sampling.h"

static const char *const status_names[] = {
	[PROBE_OK] = "ok",
	[PROBE_LIMITED] = "limited",
	[PROBE_MISSING] = "MISSING",
};
_Static_assert(ARRAY_SIZE(status_names) == PROBE_STATUS_N, "a name for each status");

static const char *const verdicts[] = {
	[PROBE_OK] = "culprit record works here.",
	[PROBE_LIMITED] = "culprit record works here, with the limitations above.",
	[PROBE_MISSING] = "culprit record cannot work here: see the lines marked MISSING.",
};
_Static_assert(ARRAY_SIZE(verdicts) == PROBE_STATUS_N, "a verdict for each status");

static void print_line(void *arg, const struct probe_line *line)
{
	FILE *out = arg;

	fprintf(out, "%-8s %-16s %s\n", status_names[line->status], line->name, line->text);
	if (line->advice[0])
		fprintf(out, "%-8s %-16s -> %s\n", "", "", line->advice);
}

static void add_json(void *arg, const struct probe_line *line)
{
	static const char *const names[] = {"ok", "limited", "missing"};

	json_array_append_new(arg, json_pack("{s:s, s:s, s:s, s:s}", "name", line->name, "status",
					     names[line->status], "text", line->text, "advice",
					     line->advice));
}

/* Loads what `culprit record` loads, and unloads it: the verifier's answer cannot be foretold. */
static enum probe_status check_programs(void (*line)(void *arg, const struct probe_line *line),
					void *arg)
{
	static const struct sampler_ops ops = {};
	const char *help;
	const struct sampler_event event = {.name = sampler_event_at(0, &help), .hz = 1};
	const struct sampler_options options = {
		.events = &event,
		.n_events = 1,
		.kernel_stacks = true,
		.user_stacks = true,
		.follow_forks = true,
	};
	struct probe_line l = {PROBE_OK, "BPF programs", "the kernel loads all of them", ""};
	struct sampler *sampler = NULL;
	struct diag diag = {};
	int r = sampler_create(&options, &ops, NULL, &diag, &sampler);

	if (r < 0) {
		l.status = PROBE_MISSING;
		l.text = diag.text[0] ? diag.text : strerror(-r);
	}
	line(arg, &l);
	sampler_destroy(sampler);
	return l.status;
}

/* What is checked, and where. */
struct doctor_options {
	struct probe_report_options probe;
	const char *cache_dir; /* or NULL: there is no place for it */
};

/* Where results are kept on disk, and how much. */
static enum probe_status
check_cache(const char *dir, void (*line)(void *arg, const struct probe_line *line), void *arg)
{
	static const struct {
		const char *folder, *suffix, *what;
	} caches[] = {{"unwind", ".rows", "unwind tables"},
		      {"symbols", ".sym", "names of functions"}};
	struct probe_line l = {PROBE_OK, "cache", "", ""};
	char text[1024], advice[1024];
	size_t n = (size_t)snprintf(text, sizeof(text), "%s", dir ? dir : "none");

	for (size_t i = 0; dir && i < ARRAY_SIZE(caches); i++) {
		_cleanup_free_ char *path = NULL;
		u64 bytes = 0;
		u32 files = 0;
		int r = asprintf(&path, "%s/%s", dir, caches[i].folder);

		if (r < 0) {
			path = NULL;
			break;
		}
		r = cachedir_usage(path, caches[i].suffix, &bytes, &files);
		if (r < 0 && r != -ENOENT && l.status == PROBE_OK) {
			l.status = PROBE_LIMITED;
			snprintf(
				advice, sizeof(advice),
				r == -EPERM
					? "%s is not used: it, or a folder above, belongs to another "
					  "user or can be changed by one"
					: "%s cannot be read",
				path);
			l.advice = advice;
		}
		if (n < sizeof(text))
			n += (size_t)snprintf(text + n, sizeof(text) - n,
					      "%s %.1f MB of %s in %u files", i ? "," : ":",
					      (double)bytes / 1e6, caches[i].what, files);
	}
	l.text = text;
	line(arg, &l);
	return l.status;
}

/* The programs are tried only where nothing is known that forbids them: it would be said twice. */
static enum probe_status report_checks(const struct doctor_options *options,
				       void (*line)(void *arg, const struct probe_line *line),
				       void *arg)
{
	enum probe_status worst = probe_report(&options->probe, line, arg);

	worst = MAX(worst, check_cache(options->cache_dir, line, arg));
	return worst == PROBE_MISSING ? worst : MAX(worst, check_programs(line, arg));
}

static enum probe_status report_json(const struct doctor_options *options)
{
	json_t *array = json_array();
	enum probe_status worst = report_checks(options, add_json, array);

	json_dumpf(array, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(array);
	return worst;
}

struct doctor_arguments {
	bool json;
	const char *cache_dir;
	u64 pid;
};

static const struct option doctor_table[] = {
	OPTION_FLAG("json", 0, struct doctor_arguments, json,
		    "print a JSON array of {name, status, text, advice}"),
	OPTION_U64(
		"pid", 'p', "PID", struct doctor_arguments, pid, 1, 0x7fffffff,
		"describe one process: its language runtimes and their versions, how it publishes\n"
		"the span that each thread works for, and whether --attach-java can ask it"),
	OPTION_STRING("cache-dir", 0, "DIR", struct doctor_arguments, cache_dir,
		      "the folder that the other commands have as --cache-dir"),
	{},
};

struct line_count {
	u32 n;
};

static void print_counted(void *arg, const char *text)
{
	struct line_count *lines = arg;

	lines->n++;
	puts(text);
}

/* doctor -p reads /proc and the process's memory; it loads nothing into the kernel. */
static int describe_process(u32 pid)
{
	static const struct procman_options no_events = {.no_events = true};
	static const struct runtimes_options no_maps = {-1, -1};
	struct procman *pm = NULL;
	struct runtimes *runtimes = NULL;
	const struct procman_process *p;
	struct line_count lines = {};
	int r = procman_create(&no_events, &pm);

	if (r == 0)
		r = runtimes_create(&no_maps, &runtimes);
	p = r == 0 ? procman_find(pm, pid) : NULL;
	if (r < 0)
		r = cli_error(1, "cannot read the list of processes: %s", strerror(-r));
	else if (!p || !p->alive)
		r = cli_error(1, "there is no process %u", pid);
	else if (!p->n && !p->kthread)
		r = cli_error(1, "the mappings of process %u cannot be read: run as root", pid);
	if (r == 0) {
		runtimes_describe(runtimes, p, print_counted, &lines);
		if (!lines.n)
			printf("%s: %s\n", p->comm,
			       p->kthread
				       ? "a kernel thread"
				       : "native code: no runtime that culprit has a walker for");
		contexts_describe(p, print_counted, &lines);
		attach_describe(runtimes, p, print_counted, &lines);
	}
	runtimes_destroy(runtimes);
	procman_destroy(pm);
	return r;
}

int cmd_doctor(int argc, char **argv)
{
	struct doctor_arguments args = {};
	const struct option_group groups[] = {{NULL, doctor_table, &args}, {}};
	const struct option_usage usage = {
		.command = "doctor",
		.operands = "",
		.summary = "Tries every kernel feature that culprit uses, and prints what works, "
			   "what does not, and\nwhat to do about it.",
		.groups = groups,
		.examples = "  culprit doctor            this machine\n"
			    "  culprit doctor -p 1234    and what is known of a process",
		.footer = "The exit status is 0 if culprit record can work here, else 1.",
	};
	struct doctor_options options = {.probe = {.debuginfod_urls = getenv("DEBUGINFOD_URLS")}};
	enum probe_status worst;
	int first, r = options_parse(&usage, argc, argv, &first);

	if (r)
		return r < 0 ? 2 : 0;
	if (first < argc)
		return cli_error(2, "doctor: unexpected argument '%s'; see culprit doctor --help",
				 argv[first]);
	if (args.pid)
		return describe_process((u32)args.pid);
	libbpf_set_print(NULL);
	if (!args.cache_dir)
		options.cache_dir = sampling_cache_dir();
	else if (strcmp(args.cache_dir, "none") != 0)
		options.cache_dir = args.cache_dir;
	if (args.json) {
		worst = report_json(&options);
		return worst == PROBE_MISSING ? 1 : 0;
	}
	worst = report_checks(&options, print_line, stdout);
	printf("\n%s\n", verdicts[worst]);
	return worst == PROBE_MISSING ? 1 : 0;
}
