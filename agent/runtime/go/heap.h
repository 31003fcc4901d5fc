/* SPDX-License-Identifier: Apache-2.0 */
/* What heap.c knows of a binary, for go.c and tests. */
#pragma once

#include "agent/runtime/runtime.h"
#include "runtime/go/go.h"

/* `learned` of the ops. */
struct go_heap_known {
	struct go_heap at;
	/* svma of a call → first of `inlined` << 8 | how many: where the inlined functions around
	 * it were called */
	struct map calls;
	vec(u64) inlined; /* svmas */
};

extern const struct runtime_heap_ops go_heap_ops;
