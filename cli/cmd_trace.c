/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit trace: runs a script of bpftrace's language.
 *
 *	script read → compiled → (command forked, waiting) → loaded → BEGIN, attached → printing,
 *	until exit(), Ctrl-C, or the end of the command or process → END, maps → what was lost
 *
 * An operand that is no file is a function, which is measured (measuring.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/command/command.h"
#include "agent/tracer/tracer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/vec.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/measuring.h"
#include "cli/options.h"
#include "cli/sampling.h"
#include "cli/signals.h"
#include "cli/trace_graph.h"
#include "cli/trace_syscalls.h"
#include "format/format.h"

#define MAX_SCRIPT (4u << 20)
#define POLL_MS 100
#define NO_BUDGET 1000000 /* percent: more than there are CPUs */
#define DEFAULT_BUDGET 25 /* percent of one CPU */

struct trace_arguments {
	const char *program, *command, *format, *output, *buffering, *include_dir, *include, *graph;
	const char *binary;
	double slower_s;
	u64 pid, seconds;
	double budget;
	bool list, quiet, verbose, no_warnings, unsafe, tell_errors, usdt_activation, stacks,
		show_script;
};

#define A struct trace_arguments
static const struct option trace_options[] = {
	OPTION_STRING("program", 'e', "PROGRAM", A, program, "run this program instead of a file"),
	OPTION_STRING("command", 'c', "COMMAND", A, command,
		      "run a command, and end with it; probes of programs see it only"),
	OPTION_U64("pid", 'p', "PID", A, pid, 1, 1 << 22,
		   "limit probes of programs and sampled events to a process, and end with it"),
	OPTION_STRING("format", 'f', "NAME", A, format, "text (default) or json: an object a line"),
	OPTION_STRING(
		"output", 'o', "FILE", A, output,
		"print to a file; if it ends as a profile does (.svg, .html, .folded, .pb.gz),\n"
		"write the script's map by stacks to it, @[ustack] = count(), as a flame graph"),
	OPTION_STRING("graph", 0, "FUNCTION", A, graph,
		      "show what a function of the kernel calls, and for how long, as a tree or,\n"
		      "with -o FILE.svg, as a flame graph; needs no program"),
	OPTION_SECONDS(
		"duration", 'd', A, seconds, 1, 86400 * 365,
		"of --graph, --syscalls and a FUNCTION: end after so long; default: at Ctrl-C"),
	OPTION_F64(
		"budget", 0, "PERCENT", A, budget, 0, NO_BUDGET,
		"CPU time of one CPU that all probes together may cost (default 25, 0: no limit);\n"
		"the most expensive one is detached after some seconds above it, and a line says so;\n"
		"those of a FUNCTION are detached for part of the time"),
	OPTION_FLAG("list", 'l', A, list,
		    "list probes, those that the operand stands for (a glob); with -v also their\n"
		    "arguments"),
	OPTION_TIME("slower-than", 0, A, slower_s, 1e-9, 86400,
		    "tell calls that take at least this long, as 10ms: of a FUNCTION, which\n"
		    "tells some of all without it, and of --syscalls"),
	OPTION_FLAG("stacks", 0, A, stacks,
		    "of a FUNCTION: show the stacks of slow calls; with --syscalls: count them by\n"
		    "stack, as a flame graph with -o FILE.svg"),
	OPTION_STRING("binary", 0, "PATH", A, binary,
		      "where FUNCTION is: a program, a library, or kernel"),
	OPTION_FLAG("show-script", 0, A, show_script, "print the script that measures FUNCTION"),
	OPTION_FLAG("quiet", 'q', A, quiet, "print nothing but what the program prints"),
	OPTION_FLAG("verbose", 'v', A, verbose,
		    "print what the kernel says of a program that it refuses"),
	OPTION_FLAG("no-warnings", 0, A, no_warnings, "do not tell what is missing or was lost"),
	OPTION_FLAG("unsafe", 0, A, unsafe,
		    "allow what changes the machine: system(), signal(), override()"),
	OPTION_FLAG("tell-errors", 'k', A, tell_errors,
		    "tell reads of memory that fail in the kernel, with line and column"),
	OPTION_FLAG("usdt-file-activation", 0, A, usdt_activation,
		    "accepted for bpftrace's callers; the kernel counts semaphores by file"),
	OPTION_STRING("buffering", 'B', "MODE", A, buffering,
		      "accepted for bpftrace's callers; output is written as it arrives"),
	OPTION_STRING("include-dir", 'I', "DIR", A, include_dir,
		      "accepted for bpftrace's callers; types come from BTF, not from headers"),
	OPTION_STRING("include", 0, "FILE", A, include, "likewise"),
	{},
};
#undef A

struct trace {
	struct trace_arguments args;
	struct trace_syscalls_arguments syscalls;
	const char *file;
	const char *function; /* or NULL: a script is run */
	struct str script;
	struct trace_parameters parameters;
	vec(const char *) values, named; /* of `parameters` */
	FILE *out;
	const struct profile_format *profile; /* of `output`; NULL: it is text */
	struct command *command;	      /* or NULL */
	int process;			      /* pidfd of -p; -1: none */
	struct tracing *tracing;
};

/* ---- what to run ---- */

static int read_stream(FILE *f, struct str *ret)
{
	char part[4096];
	size_t n;

	while ((n = fread(part, 1, sizeof(part), f)) > 0)
		if (str_append(ret, part, n) < 0 || ret->n > MAX_SCRIPT)
			return -EFBIG;
	return ferror(f) ? -EIO : 0;
}

/* Links are followed: a script is a file of the user's own. */
static int read_script(struct trace *t, const char *path)
{
	bool is_input = strcmp(path, "-") == 0;
	_cleanup_fclose_ FILE *f = is_input ? NULL : fopen(path, "re");
	int r;

	if (!is_input && !f)
		return cli_error(1, "cannot read '%s': %s", path, strerror(errno));
	r = read_stream(is_input ? stdin : f, &t->script);
	if (r < 0)
		return cli_error(1, "cannot read '%s': %s", path,
				 r == -EFBIG ? "it has more than 4 MiB" : strerror(-r));
	t->file = is_input ? "stdin" : path;
	return 0;
}

/* Splits operands into $1, $2 … and options of getopt(). */
static int take_parameters(struct trace *t, char **argv)
{
	int r = 0;

	for (; *argv && r == 0; argv++) {
		if (strcmp(*argv, "--") == 0)
			continue;
		r = strncmp(*argv, "--", 2) == 0 ? vec_push(&t->named, *argv)
						 : vec_push(&t->values, *argv);
	}
	t->parameters = (struct trace_parameters){.values = t->values.data,
						  .n = (u32)t->values.n,
						  .options = t->named.data,
						  .n_options = (u32)t->named.n};
	return r < 0 ? cli_error(1, "%s", strerror(-r)) : 0;
}

/*
 * Splits a command at spaces that are not in quotes. Words are pieces of `text`, which is changed.
 */
static int split_command(char *text, char **ret, size_t max)
{
	char *to = text, quote = 0;
	size_t n = 0;

	while (*text) {
		while (*text == ' ')
			text++;
		if (!*text)
			break;
		if (n + 1 == max)
			return -E2BIG;
		ret[n++] = to = text;
		for (; *text && (quote || *text != ' '); text++) {
			if (quote ? *text == quote : *text == '"' || *text == '\'')
				quote = quote ? 0 : *text;
			else if (*text == '\\' && quote != '\'' && text[1])
				*to++ = *++text;
			else
				*to++ = *text;
		}
		if (*text)
			text++;
		*to = '\0';
	}
	ret[n] = NULL;
	return quote || !n ? -EINVAL : 0;
}

/* ---- running ---- */

static void show_error(const struct trace *t, const struct diag *d, int error)
{
	_cleanup_str_ struct str text = {};

	if (d->text[0] >= '0' && d->text[0] <= '9') {
		trace_error_show(t->file, t->script.data, t->script.n, d->text, &text);
		fputs(str_get(&text), stderr);
		if (text.n && text.data[text.n - 1] != '\n')
			fputc('\n', stderr);
		return;
	}
	(void)cli_error(1, "%s", d->text[0] ? d->text : strerror(-error));
}

static bool has_ended(struct trace *t)
{
	if (t->command)
		return command_poll(t->command);
	return t->process >= 0 && syscall(SYS_pidfd_send_signal, t->process, 0, NULL, 0) < 0 &&
	       errno == ESRCH;
}

static bool is_json(const struct trace *t)
{
	return t->args.format && strcmp(t->args.format, "json") == 0;
}

/* A program that reads JSON reads it from the output; for people it is no output. */
static void tell_attached(const struct trace *t)
{
	const struct trace_printer p = {.json = is_json(t)};
	_cleanup_str_ struct str text = {};

	trace_print_attached(&p, tracing_probes(t->tracing), &text);
	fputs(str_get(&text), p.json ? t->out : stderr);
}

static int run(struct trace *t)
{
	struct diag d = {};
	int r;

	if (t->command && command_wait(t->command, &d) < 0)
		return cli_error(1, "%s", d.text);
	r = tracing_start(t->tracing, &d);
	if (r < 0) {
		show_error(t, &d, r);
		return 1;
	}
	if (!t->args.quiet)
		tell_attached(t);
	r = t->command ? command_start(t->command, &d) : 0;
	if (r < 0)
		return cli_error(r == -ENOENT ? 127 : 126, "%s", d.text);
	while (!signals_ended()) {
		bool last = has_ended(t);

		r = tracing_poll(t->tracing, last ? 0 : POLL_MS);
		if (r != 0 || last)
			break;
		if (signals_reload_wanted())
			tracing_signal(t->tracing, SIGHUP);
	}
	if (r == -EPIPE)
		return 0;
	if (r < 0)
		return cli_error(1, "cannot print: %s", strerror(-r));
	return tracing_end(t->tracing);
}

static void tell_losses(const struct trace *t)
{
	const struct trace_printer p = {.json = is_json(t)};
	_cleanup_str_ struct str text = {};
	u64 lost[TRACE_LOSS_N];

	tracing_losses(t->tracing, lost);
	trace_print_lost(&p, lost, &text);
	if (!text.n || t->args.no_warnings)
		return;
	if (!p.json)
		fputs("culprit: ", stderr);
	fputs(str_get(&text), p.json ? t->out : stderr);
}

static int write_profile(struct trace *t)
{
	const struct profile_write_options o = {.title = t->file[0] ? t->file : t->script.data};
	_cleanup_profile_ struct profile *p = NULL;
	struct diag d = {};

	if (tracing_profile(t->tracing, &p, &d) < 0 ||
	    profile_write_file(p, t->args.output, t->profile, &o, &d) < 0)
		return cli_error(1, "%s", d.text);
	if (!t->args.quiet && strcmp(t->args.output, "-") != 0)
		fprintf(stderr, "Wrote %s\n", t->args.output);
	return 0;
}

/* What the script of --syscalls --stacks leaves out. */
static void tell_compat(struct trace *t)
{
	u64 n = 0;

	if (!t->syscalls.on ||
	    tracer_session_read(tracing_session(t->tracing), TRACE_SYSCALLS_COMPAT, &n, 1) < 0)
		return;
	if (n && !t->args.no_warnings)
		fprintf(stderr, "culprit: %llu calls of 32-bit programs are left out\n", n);
}

static int trace_script(struct trace *t)
{
	const struct tracer_session_options o = {
		.file = t->file,
		.text = t->script.data,
		.n = t->script.n,
		.parameters = &t->parameters,
		.pid = t->command ? command_pid(t->command) : (u32)t->args.pid,
		.is_command = t->command != NULL,
		.out = t->out,
		.json = t->args.format && strcmp(t->args.format, "json") == 0,
		.verbose = t->args.verbose,
		.no_warnings = t->args.no_warnings,
		.unsafe = t->args.unsafe,
		.tells_errors = t->args.tell_errors,
		.tells_places = true,
		.no_maps = t->profile != NULL,
		.budget_percent = t->args.budget,
		.cache_dir = sampling_cache_dir(),
	};
	struct diag d = {};
	int r = tracing_create(&o, &d, &t->tracing);

	if (r == 0 && t->profile)
		r = tracing_profile_check(t->tracing, &d);
	if (r < 0) {
		show_error(t, &d, r);
		tracing_destroy(t->tracing);
		return 1;
	}
	r = run(t);
	if (r == 0 && t->profile)
		r = write_profile(t);
	tell_losses(t);
	tell_compat(t);
	tracing_destroy(t->tracing);
	return r;
}

static struct trace_syscalls_target syscalls_target(const struct trace *t, u32 pid, char **command)
{
	return (struct trace_syscalls_target){
		.pid = pid,
		.command = command,
		.json = is_json(t),
		.slower_s = t->args.slower_s,
		.seconds = t->args.seconds,
		.quiet = t->args.no_warnings,
		.verbose = t->args.verbose,
		.out = t->out,
	};
}

/* --syscalls --stacks, of the command (or NULL), of -p, or of the machine. */
static int trace_system_calls_by_stack(struct trace *t, char **command)
{
	struct trace_syscalls_target target = syscalls_target(
		t, t->command ? command_pid(t->command) : (u32)t->args.pid, command);
	struct diag d = {};

	if (trace_syscalls_script(&t->syscalls, &target, &t->script, &d) < 0)
		return cli_error(1, "%s", d.text[0] ? d.text : strerror(ENOMEM));
	if (t->args.show_script) {
		fputs(str_get(&t->script), t->out);
		return 0;
	}
	t->file = "system calls";
	if (!t->profile) {
		t->profile = profile_format_by_name("folded");
		t->args.output = "-";
	}
	return trace_script(t);
}

/* ---- a function ---- */

/* A script that cannot be read is more likely than a function whose name ends so. */
static bool is_function(const char *operand)
{
	size_t n = strlen(operand);

	return strcmp(operand, "-") != 0 && access(operand, F_OK) < 0 &&
	       !(n > 3 && strcmp(operand + n - 3, ".bt") == 0) && !strchr(operand, ' ');
}

static int begin_command(void *arg)
{
	struct trace *t = arg;
	struct diag d = {};
	int r = t->command ? command_start(t->command, &d) : 0;

	return r < 0 ? cli_error(r == -ENOENT ? 127 : 126, "%s", d.text) : 0;
}

static bool function_has_ended(void *arg)
{
	return has_ended(arg);
}

/* `program`: of the command, or NULL. */
static int measure_function(struct trace *t, const char *program)
{
	struct measuring m = {.function = t->function,
			      .binary = t->args.binary,
			      .program = program,
			      .pid = t->command ? command_pid(t->command) : (u32)t->args.pid,
			      .seconds = t->args.seconds,
			      .slow_ns = (u64)(t->args.slower_s * 1e9),
			      .budget_percent = t->args.budget > 0 ? t->args.budget : NO_BUDGET,
			      .stacks = t->args.stacks,
			      .json = is_json(t),
			      .quiet = t->args.quiet,
			      .show_script = t->args.show_script,
			      .out = t->out,
			      .profile_path = t->args.output,
			      .profile = t->profile,
			      .begin = begin_command,
			      .has_ended = function_has_ended,
			      .arg = t};
	struct diag d = {};

	if (t->command && command_wait(t->command, &d) < 0)
		return cli_error(1, "%s", d.text);
	return measuring_run(&m);
}

static int open_process(struct trace *t)
{
	long fd = syscall(SYS_pidfd_open, (pid_t)t->args.pid, 0);

	if (fd < 0)
		return cli_error(1,
				 errno == ESRCH ? "no process has the id %llu"
						: "cannot watch process %llu",
				 t->args.pid);
	t->process = (int)fd;
	return 0;
}

static int run_command(struct trace *t, char **argv)
{
	struct diag d = {};
	int e;

	if (command_create(argv, getenv("PATH"), &d, &t->command) < 0)
		return cli_error(1, "%s", d.text);
	signals_catch_end();
	e = t->function	     ? measure_function(t, argv[0])
	    : t->syscalls.on ? trace_system_calls_by_stack(t, argv)
			     : trace_script(t);
	(void)command_end(t->command, true);
	return e;
}

static int trace_command(struct trace *t)
{
	_cleanup_free_ char *text = strdup(t->args.command);
	char *argv[256];

	if (!text || split_command(text, argv, ARRAY_SIZE(argv)) < 0)
		return cli_error(2, "'%s' is not a command: a quote is open, or it is empty",
				 t->args.command);
	return run_command(t, argv);
}

static int check_arguments(struct trace *t)
{
	const struct trace_arguments *a = &t->args;

	if (a->format && strcmp(a->format, "text") != 0 && strcmp(a->format, "json") != 0)
		return cli_error(2, "no output format '%s': text or json", a->format);
	if (a->command && a->pid)
		return cli_error(2, "-c and -p exclude each other");
	if (a->output)
		t->profile = profile_format_by_path(a->output);
	if (t->profile && !t->profile->write)
		t->profile = NULL;
	if (a->output && !t->profile) {
		t->out = fopen(a->output, "we");
		if (!t->out)
			return cli_error(1, "cannot write '%s': %s", a->output, strerror(errno));
	}
	return 0;
}

static int list(struct trace *t, char **argv)
{
	struct diag d = {};
	int n;

	if (argv[0] && argv[1])
		return cli_error(2, "-l takes one glob");
	n = tracer_list(&(struct tracer_list_options){.glob = argv[0] ? argv[0] : "",
						      .pid = (u32)t->args.pid,
						      .arguments = t->args.verbose,
						      .out = t->out},
			&d);
	if (n < 0)
		return cli_error(1, "%s", d.text[0] ? d.text : strerror(-n));
	return n ? 0 : cli_error(1, "no probe is like '%s'", argv[0] ? argv[0] : "");
}

static int graph(const struct trace_arguments *a)
{
	const struct trace_graph_options o = {.function = a->graph,
					      .pid = (u32)a->pid,
					      .seconds = a->seconds,
					      .output = a->output};

	return trace_graph(&o);
}

static int trace_system_calls(struct trace *t, char **argv)
{
	_cleanup_free_ char *text = t->args.command ? strdup(t->args.command) : NULL;
	char *words[256];
	int e;
	struct trace_syscalls_target target =
		syscalls_target(t, (u32)t->args.pid, argv[0] ? argv : NULL);

	if (t->args.program)
		return cli_error(2, "--syscalls and -e exclude each other");
	if (t->profile && !t->args.stacks)
		return cli_error(2, "--syscalls makes a flame graph with --stacks only");
	if (t->args.stacks && (t->syscalls.summary || t->syscalls.by))
		return cli_error(2, "--stacks and --summary exclude each other");
	if (t->args.stacks && is_json(t))
		return cli_error(2, "--stacks writes a profile: -o FILE.folded, .svg, .pb.gz");
	if (t->args.command && argv[0])
		return cli_error(2, "-c and a command exclude each other");
	if (text && split_command(text, words, ARRAY_SIZE(words)) < 0)
		return cli_error(2, "'%s' is not a command: a quote is open, or it is empty",
				 t->args.command);
	if (text)
		target.command = words;
	if (t->args.stacks) {
		if (target.command && target.pid)
			return cli_error(2, "-p and a command exclude each other");
		if (target.command)
			return run_command(t, target.command);
		e = t->args.pid ? open_process(t) : 0;
		signals_catch_end();
		return e ? e : trace_system_calls_by_stack(t, NULL);
	}
	return trace_syscalls(&t->syscalls, &target);
}

static int trace(struct trace *t, char **argv)
{
	int e;

	if (t->args.graph)
		return graph(&t->args);
	if (!t->syscalls.on && trace_syscalls_given(&t->syscalls))
		return cli_error(2, "--summary, --by, --errors and --only need --syscalls");
	e = check_arguments(t);
	if (e || t->args.list)
		return e ? e : list(t, argv);
	if (t->syscalls.on)
		return trace_system_calls(t, argv[0] && !strcmp(argv[0], "--") ? argv + 1 : argv);
	if (t->function) {
		t->file = t->function;
	} else if (t->args.program) {
		str_puts(&t->script, t->args.program);
		t->file = "";
	} else {
		if (!argv[0])
			return cli_error(2, "needs a program: -e 'PROGRAM', or a file");
		e = read_script(t, *argv++);
	}
	if (!e && !t->function)
		e = take_parameters(t, argv);
	if (!e && t->args.pid)
		e = open_process(t);
	if (e)
		return e;
	if (t->args.command)
		return trace_command(t);
	signals_catch_end();
	signals_catch_reload();
	return t->function ? measure_function(t, NULL) : trace_script(t);
}

/* Options may also stand behind a function, which has no parameters. */
static int parse_behind_function(struct trace *t, const struct option_usage *usage, int argc,
				 char **argv)
{
	int first, e;

	t->function = argv[0];
	e = options_parse(usage, argc, argv, &first);
	if (e)
		return e < 0 ? 2 : -1;
	return first < argc
		       ? cli_error(2, "there is no file '%s', and a function has no parameters",
				   argv[0])
		       : 0;
}

int cmd_trace(int argc, char **argv)
{
	struct trace t = {.process = -1, .out = stdout, .args.budget = DEFAULT_BUDGET};
	const struct option_group groups[] = {{NULL, trace_options, &t.args},
					      {"System calls", trace_syscalls_options, &t.syscalls},
					      {}};
	const struct option_usage usage = {
		.command = "trace",
		.operands = "{-e PROGRAM | FILE | FUNCTION | -l [GLOB]} [PARAMETER...] | "
			    "--syscalls [COMMAND...]",
		.summary =
			"Runs a program of bpftrace's language on events of the kernel and of programs, or\n"
			"measures a function: its calls, how long they take, and the slow ones.",
		.groups = groups,
		.footer =
			"culprit trace -e 'tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }'",
		.stop_at_operand = true,
	};
	int first, e;

	e = options_parse(&usage, argc, argv, &first);
	if (e)
		return e < 0 ? 2 : 0;
	if (first < argc && !t.args.program && !t.args.list && !t.args.graph && !t.syscalls.on &&
	    is_function(argv[first])) {
		e = parse_behind_function(&t, &usage, argc - first, argv + first);
		if (e)
			return e < 0 ? 0 : e;
	}
	e = trace(&t, argv + first);
	if (t.process >= 0)
		close(t.process);
	if (t.out && t.out != stdout && fclose(t.out) != 0 && !e)
		e = cli_error(1, "cannot write '%s': %s", t.args.output, strerror(errno));
	str_deinit(&t.script);
	vec_deinit(&t.values);
	vec_deinit(&t.named);
	return e;
}
