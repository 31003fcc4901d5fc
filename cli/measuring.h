/* SPDX-License-Identifier: Apache-2.0 */
/* culprit trace FUNCTION: measures a function until the end, and shows what it has found. */
#pragma once

#include <stdio.h>

#include "base/types.h"

struct profile_format;

/* Texts are borrowed for the call. */
struct measuring {
	const char *function; /* as struct tracer_wanted has it, like the next three */
	const char *binary;
	const char *program;
	u32 pid;
	u64 slow_ns;
	double budget_percent; /* as in struct measure_options */
	u64 seconds;	       /* 0: until it is ended */
	bool stacks, json, quiet, show_script;
	FILE *out;
	const char *profile_path; /* flame graph of slow calls by their time, or NULL */
	const struct profile_format *profile;
	/* Called when probes are attached; returns 0 or the exit status. */
	int (*begin)(void *arg);
	bool (*has_ended)(void *arg);
	void *arg;
};

/* Returns the exit status. */
int measuring_run(const struct measuring *o);
