/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of the executable. A command gets its own argv (argv[0] is the command's name) and
 * returns the exit status: 0 success, 1 failure, 2 wrong usage. It reports its own errors, one line
 * each, by cli_error().
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"

struct cli_command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help; /* one line; NULL: not for people */
};

/* Prints "culprit: TEXT" and a newline to standard error; returns `status`. */
int cli_error(int status, const char *fmt, ...) CULPRIT_PRINTF(2, 3);
/*
 * Prints why a function failed: the text of `d`, or of `error`, a negative errno. Returns the exit
 * status: 2 for -EINVAL, which means wrong usage, else 1.
 */
int cli_fail(int error, const struct diag *d);
