/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command-line options from a table: parsed, checked and told in --help from the same entry.
 *
 *	struct arguments { u64 hz; bool pids; const char *output; };
 *	static const struct option options[] = {
 *		OPTION_U64("frequency", 'F', "HZ", struct arguments, hz, 1, 10000,
 *			   "samples a second"),
 *		OPTION_FLAG("pids", 0, struct arguments, pids, "name processes comm-PID"),
 *		OPTION_STRING("output", 'o', "FILE", struct arguments, output, "where to write"),
 *		{},
 *	};
 *
 * Accepted: --name=VALUE, --name VALUE, -nVALUE, -n VALUE, several flags in one word (-ab), and --,
 * behind which everything is an operand. Given twice, the last one counts. A long name behind one
 * dash is taken, too, as Go programs do (-collection-agent HOST:PORT).
 *
 * A command that is configurable takes the same options from a file of lines "name = value" ('#'
 * begins a comment; flags are yes or no), which --config or CULPRIT_CONFIG names, and from
 * variables CULPRIT_NAME (upper case, '_' for '-'). The command line beats variables, variables
 * beat the file.
 */
#pragma once

#include "base/types.h"

enum option_type {
	OPTION_END,
	OPTION_TYPE_FLAG,
	OPTION_TYPE_STRING,
	OPTION_TYPE_U64,
	OPTION_TYPE_F64
};

struct option {
	const char *name; /* without the dashes; NULL ends the table */
	char letter;	  /* or 0 */
	const char *arg;  /* what --help calls the value; NULL for a flag */
	enum option_type type;
	size_t offset; /* into the group's `base`: bool, const char *, u64 or double */
	double min, max;
	const char *help; /* '\n' begins a new line */
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

struct option_group {
	const char *title; /* in --help; NULL: none */
	const struct option *options;
	void *base; /* the struct that the offsets are of */
};

struct option_usage {
	const char *command;		   /* "record" */
	const char *operands;		   /* "[--] [COMMAND [ARGUMENT...]]" */
	const char *summary;		   /* a line or more */
	const struct option_group *groups; /* ended by one without options */
	const char *footer;		   /* or NULL */
	bool stop_at_operand;		   /* the first operand ends the options: it is a command */
	bool configurable;		   /* by file and environment; adds --config */
};

/*
 * Strings stay borrowed from argv; argv is put in the order options, operands. Returns 0 and the
 * index of the first operand; 1 after --help or -h was printed; -EINVAL after a line to standard
 * error said what is wrong.
 */
int options_parse(const struct option_usage *u, int argc, char **argv, int *ret_first);
void options_print_help(const struct option_usage *u);
