/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of the executable. A command gets its own argv (argv[0] is the command's name) and
 * returns the exit status: 0 done, 1 could not, 2 was called wrongly. It prints its own errors,
 * one line each, by cli_error().
 */
#pragma once

#include "base/types.h"

struct cli_command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help; /* one line */
};

/* "culprit: TEXT" to standard error; returns `status`. */
int cli_error(int status, const char *fmt, ...) CULPRIT_PRINTF(2, 3);
/* The first word of a file; an exit status, not 0 after a line that says what to do. */
int cli_read_token(const char *path, char **ret);
