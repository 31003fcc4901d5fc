/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of the executable. A command gets its own argv (argv[0] is the command's name) and
 * returns the exit status: 0 success, 1 failure, 2 wrong usage. It reports its own errors, one line
 * each, by cli_error().
 */
#pragma once

#include "base/types.h"

struct cli_command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help; /* one line */
};

/* Prints "culprit: TEXT" and a newline to standard error; returns `status`. */
int cli_error(int status, const char *fmt, ...) CULPRIT_PRINTF(2, 3);
/*
 * Reads the first word of a file (owned by the caller). Returns an exit status; not 0 after it
 * printed an error.
 */
int cli_read_token(const char *path, char **ret);
