/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/types.h"

struct trace_graph_options {
	const char *function; /* of the kernel */
	u32 pid;	      /* 0: all */
	u64 seconds;	      /* 0: until a signal */
	const char *output;   /* a profile, or NULL: a tree on standard output */
};

/* culprit trace --graph FUNCTION. Returns the exit status. */
int trace_graph(const struct trace_graph_options *o);
