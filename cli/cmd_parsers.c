/* SPDX-License-Identifier: Apache-2.0 */
/* The process that starts parsers of files (agent/parser), for the commands that sample. */
#include "agent/parser/parser.h"
#include "cli/cli.h"
#include "cli/commands.h"

int cmd_parsers(int argc, char **argv)
{
	int r = parsers_main();

	(void)argc;
	(void)argv;
	return r < 0 ? cli_error(2, "parsers is a part of the commands that sample, which start it")
		     : r;
}
