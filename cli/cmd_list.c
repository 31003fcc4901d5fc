/* SPDX-License-Identifier: Apache-2.0 */
/* culprit list: finds the probes that culprit trace can use, and says what they cost here. */
#include <stdio.h>
#include <string.h>

#include "agent/tracer/tracer.h"
#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/sampling.h"

struct list_arguments {
	u64 pid;
	const char *format;
	bool verbose, again;
};

#define A struct list_arguments
static const struct option list_options[] = {
	OPTION_U64("pid", 'p', "PID", A, pid, 1, 1 << 22,
		   "also functions and USDT probes of the process's program and libraries"),
	OPTION_STRING("format", 'f', "NAME", A, format, "text (default) or json: an object a line"),
	OPTION_FLAG("verbose", 'v', A, verbose, "also the arguments of each probe"),
	OPTION_FLAG("again", 0, A, again,
		    "measure the costs again; they are kept for the running kernel in\n"
		    "/var/cache/culprit, or in ~/.cache/culprit"),
	{},
};
#undef A

int cmd_list(int argc, char **argv)
{
	struct list_arguments args = {};
	const struct option_group groups[] = {{NULL, list_options, &args}, {}};
	const struct option_usage usage = {
		.command = "list",
		.operands = "[GLOB]",
		.summary = "Lists probes for culprit trace, and what an event of each costs the "
			   "thread that hits it,\nmeasured on this machine with an empty action. "
			   "Without GLOB: how many probes of each kind\nthere are.",
		.groups = groups,
		.examples = "  culprit list 'tracepoint:sched:*'\n"
			    "  culprit list 'uprobe:libc:malloc*'\n"
			    "  culprit list -p 1234 '*usdt*'",
	};
	struct tracer_cost costs[TRACER_KIND_N];
	struct tracer_list_options o = {.costs = costs, .out = stdout};
	struct diag d = {};
	int first, n, e = options_parse(&usage, argc, argv, &first);

	if (e)
		return e < 0 ? 2 : 0;
	if (argv[first] && argv[first + 1])
		return cli_error(2,
				 "takes one glob; quote it, so that the shell does not expand it");
	if (args.format && strcmp(args.format, "text") != 0 && strcmp(args.format, "json") != 0)
		return cli_error(2, "no output format '%s': text or json", args.format);
	o.glob = argv[first] ? argv[first] : "";
	o.kinds = !argv[first];
	o.pid = (u32)args.pid;
	o.arguments = args.verbose;
	o.json = args.format && strcmp(args.format, "json") == 0;
	if (args.again || tracer_costs_read(sampling_cache_dir(), costs) < 0)
		tracer_costs_measure(sampling_cache_dir(), costs);
	n = tracer_list(&o, &d);
	if (n < 0)
		return cli_fail(n, &d);
	return n ? 0 : cli_error(1, "no probe is like '%s'", o.glob);
}
