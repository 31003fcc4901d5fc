/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources that only walk stacks, for the programs of a script (abi/trace.h). They are attached to
 * nothing: the script's programs call them through a prog array.
 */
#pragma once

#include "agent/sampler/source.h"

/* After opening: room for the actions of all CPUs. */
int source_trace_size(struct source *s);
/* After loading: enters the program that begins a walk. */
int source_trace_join(struct source *s);
int source_trace_start(struct source *s, struct diag *reterr_diag);

#define SOURCE_TRACE(name)                                                                         \
	static int name##_open_sized(struct source *s)                                             \
	{                                                                                          \
		int r = name##_open(s);                                                            \
                                                                                                   \
		return r < 0 ? r : source_trace_size(s);                                           \
	}                                                                                          \
                                                                                                   \
	static int name##_load_joined(struct source *s)                                            \
	{                                                                                          \
		int r = name##_load(s);                                                            \
                                                                                                   \
		return r < 0 ? r : source_trace_join(s);                                           \
	}                                                                                          \
                                                                                                   \
	const struct source_ops source_##name = {                                                  \
		.open = name##_open_sized,                                                         \
		.load = name##_load_joined,                                                        \
		.destroy = name##_destroy,                                                         \
		.start = source_trace_start,                                                       \
		.never_pauses = true,                                                              \
	};
