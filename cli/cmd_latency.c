/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit latency: how long things take, as histograms. Each kind is a script of the tracing
 * language in cli/latency/, and an entry of the table below.
 *
 *	script compiled → attached → waits until the end → maps as JSON (latency.h) → shown
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/latency.h"
#include "cli/options.h"
#include "cli/signals.h"

#define POLL_MS 100

/* The files of cli/latency/, embedded. */
extern const unsigned char latency_runqueue[], latency_block[], latency_fs[], latency_tcp[];
extern const size_t latency_runqueue_n, latency_block_n, latency_fs_n, latency_tcp_n;

struct kind {
	const char *name;
	const unsigned char *script;
	const size_t *n;
	bool has_devices;
	const char *help;
};

static const struct kind kinds[] = {
	{"runqueue", latency_runqueue, &latency_runqueue_n, false,
	 "threads that could run wait for a CPU"},
	{"block", latency_block, &latency_block_n, true,
	 "block devices do requests, by device and operation"},
	{"fs", latency_fs, &latency_fs_n, false,
	 "system calls read, write, synchronise and open files, by type of file system"},
	{"tcp", latency_tcp, &latency_tcp_n, false, "TCP connections are established"},
};

struct latency_arguments {
	const char *format;
	u64 pid, seconds, top;
	bool show_script;
};

#define A struct latency_arguments
static const struct option latency_options[] = {
	OPTION_U64("pid", 'p', "PID", A, pid, 1, 1 << 22, "only what this process waits for"),
	OPTION_U64("duration", 'd', "SECONDS", A, seconds, 1, 86400,
		   "measure for this long (default 10); Ctrl-C ends earlier"),
	OPTION_U64("top", 'n', "N", A, top, 0, 1000, "show this many processes (default 10)"),
	OPTION_STRING("format", 'f', "NAME", A, format, "text (default) or json"),
	OPTION_FLAG("show-script", 0, A, show_script,
		    "print the script that culprit trace would run, and end"),
	{},
};
#undef A

static const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}

static void put_kinds(struct str *out)
{
	str_puts(out, "Measures how long, in one of these kinds:\n");
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		str_printf(out, "  %-9s %s%s", kinds[i].name, kinds[i].help,
			   i + 1 < ARRAY_SIZE(kinds) ? "\n" : "");
}

/* Returns when the time is over, or was ended. *ret_ns: the nanoseconds that it took. */
static int measure(struct tracing *t, const struct latency_arguments *a, u64 *ret_ns)
{
	u64 start = clock_ns(CLOCK_MONOTONIC), end = start + a->seconds * 1000000000ULL;
	int r = 0;

	while (r == 0 && !signals_ended() && clock_ns(CLOCK_MONOTONIC) < end)
		r = tracing_poll(t, POLL_MS);
	*ret_ns = clock_ns(CLOCK_MONOTONIC) - start;
	return r;
}

static int show(const struct latency_arguments *a, const struct kind *k, const char *lines,
		u64 end_ns, u64 took_ns, const u64 lost[TRACE_LOSS_N])
{
	struct latency l = {.has_devices = k->has_devices};
	_cleanup_str_ struct str out = {};
	int r = latency_read(&l, lines, end_ns);

	for (u32 i = 0; i < TRACE_LOSS_N; i++)
		l.lost += lost[i];
	if (r == 0 && a->format && strcmp(a->format, "json") == 0)
		latency_json(&l, k->name, (took_ns + 500000000) / 1000000000, &out);
	else if (r == 0)
		latency_text(&l, (u32)a->top, &out);
	latency_deinit(&l);
	if (r < 0 || out.failed)
		return cli_error(1, "%s", strerror(r < 0 ? -r : ENOMEM));
	fputs(str_get(&out), stdout);
	return 0;
}

/* `out` is the stream that the script prints to; *lines is its text once it is flushed. */
static int run(const struct latency_arguments *a, const struct kind *k, FILE *out, char **lines)
{
	_cleanup_str_ struct str pid = {};
	const char *const values[] = {(str_printf(&pid, "%llu", a->pid), str_get(&pid))};
	const struct trace_parameters parameters = {.values = values, .n = 1};
	const struct tracer_session_options o = {
		.file = k->name,
		.text = (const char *)k->script,
		.n = *k->n,
		.parameters = &parameters,
		.out = out,
		.json = true,
	};
	u64 lost[TRACE_LOSS_N], end_ns, took_ns;
	struct tracing *t;
	struct diag d = {};
	int r = tracing_create(&o, &d, &t);

	if (r == 0)
		r = tracing_start(t, &d);
	if (r < 0) {
		tracing_destroy(t);
		return cli_error(1, "cannot measure %s here: %s", k->name,
				 d.text[0] ? d.text : strerror(-r));
	}
	if (!a->format)
		fprintf(stderr, "Measuring for %llu s; Ctrl-C ends earlier\n", a->seconds);
	(void)measure(t, a, &took_ns);
	end_ns = clock_ns(CLOCK_BOOTTIME);
	(void)tracing_end(t);
	tracing_losses(t, lost);
	tracing_destroy(t);
	return fflush(out) == 0 ? show(a, k, *lines, end_ns, took_ns, lost)
				: cli_error(1, "%s", strerror(ENOMEM));
}

static int latency(const struct latency_arguments *a, char **argv)
{
	const struct kind *k = find_kind(argv[0] ? argv[0] : "runqueue");
	_cleanup_free_ char *lines = NULL;
	size_t n = 0;
	FILE *out;
	int e;

	if (!k)
		return cli_error(2, "no kind '%s'; see culprit latency --help", argv[0]);
	if (argv[0] && argv[1])
		return cli_error(2, "takes one kind");
	if (a->format && strcmp(a->format, "text") != 0 && strcmp(a->format, "json") != 0)
		return cli_error(2, "no output format '%s': text or json", a->format);
	if (a->show_script) {
		fwrite(k->script, 1, *k->n, stdout);
		return 0;
	}
	out = open_memstream(&lines, &n);
	if (!out)
		return cli_error(1, "%s", strerror(errno));
	signals_catch_end();
	e = run(a, k, out, &lines);
	fclose(out);
	return e;
}

int cmd_latency(int argc, char **argv)
{
	struct latency_arguments a = {.seconds = 10, .top = 10};
	const struct option_group groups[] = {{NULL, latency_options, &a}, {}};
	_cleanup_str_ struct str summary = {};
	struct option_usage usage = {
		.command = "latency",
		.operands = "[KIND]",
		.groups = groups,
		.footer = "culprit latency block -d 30",
	};
	int first, r;

	put_kinds(&summary);
	usage.summary = str_get(&summary);
	r = options_parse(&usage, argc, argv, &first);
	if (r)
		return r < 0 ? 2 : 0;
	return latency(&a, argv + first);
}
