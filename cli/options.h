/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command-line options from a table: one entry serves parsing, checks and --help.
 *
 *	struct arguments { u64 hz; bool pids; const char *output; };
 *	static const struct option options[] = {
 *		OPTION_U64("frequency", 'F', "HZ", struct arguments, hz, 1, 10000, "sampling rate"),
 *		OPTION_FLAG("pids", 0, struct arguments, pids, "name processes comm-PID"),
 *		OPTION_STRING("output", 'o', "FILE", struct arguments, output, "output file"),
 *		{},
 *	};
 *
 * Accepted forms: --name=VALUE, --name VALUE, -nVALUE, -n VALUE, several flags in one word (-ab),
 * and --, after which every word is an operand. The last of several values counts. A long name
 * after one dash is accepted, too, as Go programs do (-collection-agent HOST:PORT).
 * --list-options prints the options for the completion of shells (packaging/completion).
 *
 * A configurable command reads the same options from a file of lines "name = value" ('#' starts a
 * comment; flags are yes or no), which --config or CULPRIT_CONFIG names, and from variables
 * CULPRIT_NAME (upper case, '_' for '-'). The command line overrides variables, which override the
 * file.
 */
#pragma once

#include "base/types.h"

enum option_type {
	OPTION_END,
	OPTION_TYPE_FLAG,
	OPTION_TYPE_STRING,
	OPTION_TYPE_U64,
	OPTION_TYPE_F64,
	OPTION_TYPE_TIME,
	OPTION_TYPE_SECONDS
};

struct option {
	const char *name; /* without the dashes; NULL ends the table */
	char letter;	  /* or 0 */
	const char *arg;  /* name of the value in --help; NULL for a flag */
	enum option_type type;
	size_t offset; /* into the group's `base`: bool, const char *, u64 or double */
	double min, max;
	const char *help; /* '\n' starts a new line */
};

#define OPTION_FLAG(name, letter, type, member, help)                                              \
	{                                                                                          \
		name, letter, NULL, OPTION_TYPE_FLAG, offsetof(type, member), 0, 0, help           \
	}
#define OPTION_STRING(name, letter, arg, type, member, help)                                       \
	{                                                                                          \
		name, letter, arg, OPTION_TYPE_STRING, offsetof(type, member), 0, 0, help          \
	}
#define OPTION_U64(name, letter, arg, type, member, min, max, help)                                \
	{                                                                                          \
		name, letter, arg, OPTION_TYPE_U64, offsetof(type, member), min, max, help         \
	}
#define OPTION_F64(name, letter, arg, type, member, min, max, help)                                \
	{                                                                                          \
		name, letter, arg, OPTION_TYPE_F64, offsetof(type, member), min, max, help         \
	}

/* A double, in seconds, given as 90, 90s, 1.5m or 100ms. */
#define OPTION_TIME(name, letter, type, member, min, max, help)                                    \
	{                                                                                          \
		name, letter, "TIME", OPTION_TYPE_TIME, offsetof(type, member), min, max, help     \
	}
/* A u64, likewise: whole seconds. */
#define OPTION_SECONDS(name, letter, type, member, min, max, help)                                 \
	{                                                                                          \
		name, letter, "TIME", OPTION_TYPE_SECONDS, offsetof(type, member), min, max, help  \
	}

struct option_group {
	const char *title; /* heading in --help; NULL: none */
	const struct option *options;
	void *base; /* the struct that the offsets point into */
};

struct option_usage {
	const char *command;		   /* "record" */
	const char *operands;		   /* "[--] [COMMAND [ARGUMENT...]]" */
	const char *summary;		   /* a line or more */
	const struct option_group *groups; /* ended by one without options */
	const char *footer;		   /* or NULL */
	const char *examples;		   /* lines, or NULL */
	bool stop_at_operand;		   /* the first operand, a command, ends the options */
	bool configurable;		   /* reads file and environment; adds --config */
};

/*
 * Strings are borrowed from argv; argv is reordered to options, operands. Returns 0 and the index
 * of the first operand; 1 after it printed --help; -EINVAL after it printed an error.
 */
int options_parse(const struct option_usage *u, int argc, char **argv, int *ret_first);
/* Prints --help to standard output. */
void options_print_help(const struct option_usage *u);
