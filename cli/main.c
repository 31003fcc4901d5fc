/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands, and the help text. */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/closest.h"
#include "cli/commands.h"

/* In the order in which people use them. */
static const struct cli_command commands[] = {
#if CULPRIT_AGENT
	{"up", cmd_up, "profile this machine continuously and serve a page that shows it"},
	{"record", cmd_record, "profile the machine, processes or a command into a file"},
	{"top", cmd_top, "show where the time goes right now, in the terminal"},
	{"trace", cmd_trace, "run a program of bpftrace's language on events of the machine"},
	{"list", cmd_list, "list probes for trace, and what each kind costs here"},
	{"latency", cmd_latency, "measure how long threads wait for a CPU, disks, files and peers"},
	{"stat", cmd_stat, "count events of the machine, a process, a cgroup or a command"},
#endif
	{"report", cmd_report, "print a table of functions and a call tree"},
	{"diff", cmd_diff, "compare two profiles"},
	{"convert", cmd_convert, "convert a profile to another format"},
#if CULPRIT_AGENT
	{"doctor", cmd_doctor, "check what works on this machine, and what to do about the rest"},
	{"agent", cmd_agent, "profile this machine continuously and export to servers"},
#endif
	{"server", cmd_server, "store the profiles of many machines and answer queries"},
	{"ctl", cmd_ctl, "tell a server which requests of a service to profile"},
	{"symbols", cmd_symbols, "upload symbols to a server, or list what it has and lacks"},
#if CULPRIT_AGENT
	{"stackprobe", cmd_stackprobe, "serve gala-gopher's API of flame graphs, and make them"},
	{"up-server", cmd_up_server, NULL}, /* which `up` starts */
	{"parsers", cmd_parsers, NULL},	    /* which all that sample start */
#endif
	{NULL, NULL, NULL},
};

int cli_error(int status, const char *fmt, ...)
{
	va_list ap;

	fputs("culprit: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return status;
}

int cli_fail(int error, const struct diag *d)
{
	return cli_error(error == -EINVAL ? 2 : 1, "%s", d->text[0] ? d->text : strerror(-error));
}

static void print_help(FILE *out)
{
	fputs("usage: culprit COMMAND [OPTIONS]\n\n", out);
	for (size_t i = 0; commands[i].name; i++)
		if (commands[i].help)
			fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
	fputs("\nSee culprit help COMMAND and culprit(1).\n", out);
}

static const struct cli_command *find_command(const char *name)
{
	for (size_t i = 0; commands[i].name; i++)
		if (!strcmp(name, commands[i].name))
			return &commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	const char *names[ARRAY_SIZE(commands)], *meant;
	size_t n = 0;

	for (size_t i = 0; commands[i].name; i++)
		if (commands[i].help)
			names[n++] = commands[i].name;
	meant = closest_name(name, names, n);
	if (meant)
		return cli_error(2, "unknown command '%s'; did you mean %s?", name, meant);
	return cli_error(2, "unknown command '%s'; see culprit --help", name);
}

/* `culprit help COMMAND…` is `culprit COMMAND… --help`; argv[argc] may be written. */
static int help(int argc, char **argv)
{
	const struct cli_command *c;
	char option[] = "--help";

	if (argc == 0) {
		print_help(stdout);
		return 0;
	}
	c = find_command(argv[0]);
	if (!c)
		return unknown_command(argv[0]);
	argv[argc] = option;
	return c->run(argc + 1, argv);
}

/* For the completion of shells: a command a line, and what it does. */
static int list_commands(void)
{
	for (size_t i = 0; commands[i].name; i++)
		if (commands[i].help)
			printf("%s\t%s\n", commands[i].name, commands[i].help);
	return 0;
}

int main(int argc, char **argv)
{
	const struct cli_command *c;

	if (argc < 2) {
		print_help(stderr);
		return 2;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help(argc - 2, argv + 2);
	if (!strcmp(argv[1], "--list-commands"))
		return list_commands();
	if (!strcmp(argv[1], "--version")) {
		printf("culprit %s\n", CULPRIT_VERSION);
		return 0;
	}
	c = find_command(argv[1]);
	return c ? c->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}
