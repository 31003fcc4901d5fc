/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports which stacks were sampled for which traces to the processes that ask for it. A profile
 * has a sample's trace and span; a batch also has the local root span, which the protocol requires.
 */
#include "agent/run/correlate.h"

#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "otlp/otlp.h"

#define FLAG_SAMPLED 1

static u64 key_of(u32 pid, const void *trace_id, const void *span_id)
{
	struct {
		u8 trace_id[16], span_id[8];
		u64 pid;
	} key = {.pid = pid};

	memcpy(key.trace_id, trace_id, sizeof(key.trace_id));
	memcpy(key.span_id, span_id, sizeof(key.span_id));
	return hash_bytes(&key, sizeof(key)) >> 1;
}

/* Whether the tracer records the trace: others are not reported. */
static bool is_wanted(const struct pipeline_entry *e)
{
	return e->key.context.source == CONTEXT_ELASTIC && e->key.context.flags & FLAG_SAMPLED;
}

/* False: the names of the stack could not be hashed. */
static bool stack_id(const struct profile *p, u32 stack, struct map *known, u8 (*ids)[16])
{
	if (map_get(known, stack))
		return true;
	return otlp_stack_id(p, stack, ids[stack]) == 0 && map_put(known, stack, 1) == 0;
}

static void report_samples(const struct profile *p, const struct map *roots, struct map *known,
			   u8 (*ids)[16], struct contexts *to)
{
	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_sample *s = profile_sample(p, i);
		const struct profile_link *l = &p->links.data[s->link];
		struct context_report report;
		const u64 *root;
		u32 pid;

		if (!s->link || s->thread >= p->threads.n || s->value[0] <= 0)
			continue;
		pid = p->threads.data[s->thread].pid;
		root = map_get(roots, key_of(pid, l->trace_id, l->span_id));
		if (!root || !stack_id(p, s->stack, known, ids))
			continue;
		memcpy(report.trace_id, l->trace_id, sizeof(report.trace_id));
		memcpy(report.root_id, root, sizeof(report.root_id));
		memcpy(report.stack_id, ids[s->stack], sizeof(report.stack_id));
		contexts_report(to, pid, &report, (u64)s->value[0]);
	}
}

void correlate(const struct pipeline_batch *b, const struct profile *p, struct contexts *to)
{
	struct map roots = {}, known = {};
	_cleanup_free_ u8(*ids)[16] = NULL;

	for (size_t i = 0; i < b->entries.n; i++) {
		const struct pipeline_entry *e = &b->entries.data[i];
		const struct sample_context *c = &e->key.context;

		if (is_wanted(e))
			(void)map_put(&roots, key_of(e->key.pid, c->trace_id, &c->span_id),
				      c->root_id);
	}
	ids = roots.n ? calloc(p->stacks.n + 1, sizeof(*ids)) : NULL;
	if (ids) {
		report_samples(p, &roots, &known, ids, to);
		contexts_late(to, (u32)((clock_ns(CLOCK_MONOTONIC) - b->started_ns) / 1000000));
	}
	map_deinit(&roots);
	map_deinit(&known);
}
