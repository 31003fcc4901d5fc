/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cli.h"

int cli_read_token(const char *path, char **ret)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;

	if (!f || getline(&line, &cap, f) < 0)
		return cli_error(1, "cannot read a token from %s: %s", path,
				 f ? "it is empty" : strerror(errno));
	line[strcspn(line, " \t\r\n")] = '\0';
	if (!line[0])
		return cli_error(1, "cannot read a token from %s: it is empty", path);
	*ret = take_ptr(line);
	return 0;
}
