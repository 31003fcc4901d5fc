/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks by themselves, without samples: those that a script's programs refer to. */
#include <errno.h>
#include <stdlib.h>

#include "agent/symbolize/making.h"

static int look_up(struct making *m, const struct symbolizer_stack *stacks, size_t n)
{
	_cleanup_free_ bool *used = calloc(m->batch->stacks.n + 1, sizeof(*used));

	for (size_t i = 0; used && i < n; i++) {
		const u64 *at = map_get(&m->batch->stack_index, stacks[i].id);

		if (at)
			used[*at] = true;
	}
	return used ? making_look_up(m, used) : -ENOMEM;
}

int symbolizer_stacks(struct symbolizer *s, const struct pipeline_batch *b,
		      const struct runtime_answers *answers, const struct symbolizer_stack *stacks,
		      size_t n, struct profile *into, u32 *ret)
{
	struct making m = {
		.s = s,
		.batch = b,
		.answers = answers,
		.source = ANY_SOURCE,
		.profile = into,
		.time_ns = b->started_ns,
		.is_traced = true,
		.of_script = true,
	};
	int r = making_begin(&m);

	if (r == 0)
		r = look_up(&m, stacks, n);
	for (size_t i = 0; i < n && r == 0; i++) {
		vec_clear(&m.stack);
		r = making_append_stack(&m, stacks[i].id, stacks[i].image);
		if (r == 0)
			r = profile_add_stack(into, m.stack.data, m.stack.n, &ret[i]);
	}
	making_end(&m);
	binaries_end(s);
	return r;
}
