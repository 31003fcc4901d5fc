/* SPDX-License-Identifier: Apache-2.0 */
/* Text of the function_graph tracer: callers come before their callees, so the calls are a tree. */
#include <stdint.h>
#include <stdlib.h>

#include "agent/graph/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct graph g;

	if (graph_init(&g, "f") < 0)
		return 0;
	(void)graph_feed(&g, (const char *)data, size);
	graph_finish(&g);
	for (u32 i = 1; i < g.calls.n; i++)
		if (g.calls.data[i].parent >= i || g.calls.data[i].sibling >= i)
			abort();
	graph_deinit(&g);
	return 0;
}
