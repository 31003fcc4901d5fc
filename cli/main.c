/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands, and the help text. */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

static const struct cli_command commands[] = {
	{"report", cmd_report, "print a table of functions and a call tree"},
	{"convert", cmd_convert, "convert a profile to another format"},
	{"diff", cmd_diff, "compare two profiles"},
	{"symbols", cmd_symbols, "upload symbols to a server, or list what it has and lacks"},
	{"ctl", cmd_ctl, "tell a server which requests of a service to profile"},
	{"server", cmd_server, "store the profiles of many machines and answer queries"},
#if CULPRIT_AGENT
	{"up", cmd_up, "profile this machine continuously and serve a page that shows it"},
	{"agent", cmd_agent, "profile this machine continuously and export to servers"},
	{"stackprobe", cmd_stackprobe, "serve gala-gopher's API of flame graphs, and make them"},
	{"record", cmd_record, "profile the machine, processes or a command into a file"},
	{"top", cmd_top, "show where the time goes right now, in the terminal"},
	{"trace", cmd_trace, "run a program of bpftrace's language on events of the machine"},
	{"doctor", cmd_doctor, "check what works on this machine, and what to do about the rest"},
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
	fputs("\nSee culprit COMMAND --help and culprit(1).\n", out);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return 2;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_help(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("culprit %s\n", CULPRIT_VERSION);
		return 0;
	}
	for (size_t i = 0; commands[i].name; i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	return cli_error(2, "unknown command '%s'; see culprit --help", argv[1]);
}
