/* SPDX-License-Identifier: Apache-2.0 */
/* culprit doctor: what this machine allows, what is missing, and what would mend it. */
#include "cli/cli.h"

#include <bpf/libbpf.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/probe/probe.h"
#include "cli/commands.h"

static const char *const status_names[] = {
	[PROBE_OK] = "ok",
	[PROBE_LIMITED] = "limited",
	[PROBE_MISSING] = "MISSING",
};
_Static_assert(ARRAY_SIZE(status_names) == PROBE_STATUS_N, "a name for each status");

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

static enum probe_status report_json(const struct probe_report_options *options)
{
	json_t *array = json_array();
	enum probe_status worst = probe_report(options, add_json, array);

	json_dumpf(array, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(array);
	return worst;
}

static const char usage[] =
	"usage: culprit doctor [--json]\n\n"
	"Tries what culprit uses of this machine and tells, line by line, what works, what does not,\n"
	"and what to do about it. The exit status is 0 when culprit record can work, else 1.\n\n"
	"  --json   the same as a JSON array of {name, status, text, advice}\n";

int cmd_doctor(int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{},
	};
	const struct probe_report_options report = {.debuginfod_urls = getenv("DEBUGINFOD_URLS")};
	enum probe_status worst;
	bool json = false;
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'h') {
			fputs(usage, stdout);
			return 0;
		}
		if (c != 'j')
			return 2;
		json = true;
	}
	if (optind < argc)
		return cli_error(2, "doctor takes no '%s'; see culprit doctor --help",
				 argv[optind]);
	libbpf_set_print(NULL);
	worst = json ? report_json(&report) : probe_report(&report, print_line, stdout);
	if (!json)
		printf("\n%s\n",
		       worst == PROBE_MISSING
			       ? "culprit record cannot work here: see the lines with MISSING."
		       : worst == PROBE_LIMITED
			       ? "culprit record works here, with what is said above."
			       : "culprit record works here.");
	return worst == PROBE_MISSING ? 1 : 0;
}
