/* SPDX-License-Identifier: Apache-2.0 */
/* A recording that samples nothing, but walks and names the stacks that a script asks for. */
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>

#include "agent/internal.h"

u32 recording_trace_events(const struct recording_options *o,
			   struct sampler_event ret[SAMPLER_MAX_SOURCES])
{
	const struct {
		u32 type;
		const char *name;
	} rows[] = {
		{BPF_PROG_TYPE_KPROBE,
		 o->trace_links ? SAMPLER_TRACE_UPROBE : SAMPLER_TRACE_KPROBE},
		{BPF_PROG_TYPE_TRACEPOINT, SAMPLER_TRACE_TRACEPOINT},
		{BPF_PROG_TYPE_RAW_TRACEPOINT, SAMPLER_TRACE_RAW},
		{BPF_PROG_TYPE_PERF_EVENT, SAMPLER_TRACE_PERF},
	};
	u32 n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (o->trace & 1ULL << rows[i].type)
			ret[n++] = (struct sampler_event){.name = rows[i].name};
	return n;
}

int recording_trace(const struct recording *r, u32 type, struct sampler_trace *ret)
{
	return pipeline_trace(r->pipeline, type, ret);
}

u64 recording_stack_id(struct recording *r, u64 id)
{
	return pipeline_trace_id(r->pipeline, id);
}

u64 recording_lost_stacks(struct recording *r)
{
	static const enum counter losses[] = {COUNTER_NESTED, COUNTER_LOST_STACK};

	return pipeline_trace_lost(r->pipeline, losses, ARRAY_SIZE(losses));
}

const struct profile *recording_names(const struct recording *r)
{
	return r->names;
}

/* The stack, and what else its names depend on. */
static u64 key_of(const struct recording *r, const struct symbolizer_stack *s)
{
	const struct pipeline_stack *stack =
		pipeline_stack(pipeline_trace_batch(r->pipeline), s->id);

	return stack && stack->raw ? hash_u64(s->id ^ hash_u64(s->image)) : s->id;
}

/* Names the stacks of `list`, of which none is named; `keys` are theirs. */
static int name_new(struct recording *r, const struct symbolizer_stack *list, const u64 *keys,
		    size_t n)
{
	_cleanup_free_ u32 *ids = calloc(n + 1, sizeof(*ids));
	int e = ids ? symbolizer_stacks(r->symbolizer, pipeline_trace_batch(r->pipeline),
					pipeline_trace_answers(r->pipeline), list, n, r->names, ids)
		    : -ENOMEM;

	for (size_t i = 0; i < n && e == 0; i++)
		e = map_put(&r->named, keys[i], ids[i]);
	return e;
}

int recording_name_stacks(struct recording *r, const struct recording_stack *stacks, size_t n,
			  u32 *ret)
{
	_cleanup_free_ struct symbolizer_stack *list = calloc(n + 1, sizeof(*list));
	_cleanup_free_ u64 *keys = calloc(n + 1, sizeof(*keys)), *all = calloc(n + 1, sizeof(*all));
	size_t n_new = 0;
	int e = 0;

	if (!list || !keys || !all)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct symbolizer_stack s = {.id = pipeline_trace_id(r->pipeline, stacks[i].id)};

		if (stacks[i].pid)
			s.image = pipeline_trace_image(r->pipeline, stacks[i].pid);
		all[i] = key_of(r, &s);
		if (map_get(&r->named, all[i]))
			continue;
		keys[n_new] = all[i];
		list[n_new++] = s;
	}
	if (n_new)
		e = name_new(r, list, keys, n_new);
	for (size_t i = 0; i < n && e == 0; i++)
		ret[i] = (u32)*map_get(&r->named, all[i]);
	return e;
}
