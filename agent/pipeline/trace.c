/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/trace.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/pipeline/deferred.h"
#include "agent/pipeline/processes.h"
#include "agent/pipeline/records.h"
#include "base/log.h"

/* How long to wait for code of which a stack's walk needs the rows. */
#define FINISH_MAX_NS 1000000000ULL

struct traced {
	struct map finished; /* id that the script knows → id of the whole stack */
	struct map images;   /* pid → image */
};

int pipeline_trace_create(struct pipeline *p, const struct pipeline_options *o)
{
	if (o->sampler.traces)
		p->traced = calloc(1, sizeof(*p->traced));
	return o->sampler.traces && !p->traced ? -ENOMEM : 0;
}

void pipeline_trace_destroy(struct pipeline *p)
{
	if (!p->traced)
		return;
	map_deinit(&p->traced->finished);
	map_deinit(&p->traced->images);
	free(p->traced);
}

/* Notes the process of a stack, and opens what names its generated code. */
static void see_process(struct pipeline *p, u32 pid, u64 id)
{
	const struct procman_process *proc = procman_find(p->procman, pid);
	const struct pipeline_stack *stack = pipeline_stack(p->batch, id);

	if (!proc)
		return;
	if (map_put(&p->traced->images, pid, proc->image) < 0)
		log_warn_rarely("out of memory: generated code has no names");
	if (stack && stack->raw)
		processes_hold_jit_files(p, proc);
	processes_see(p, pid, proc);
}

void trace_see(struct pipeline *p, const struct record_stack *head)
{
	if (p->traced)
		see_process(p, head->pid, head->id);
}

void trace_take(struct pipeline *p, const struct record_sample *s)
{
	if (map_put(&p->traced->finished, (u64)s->value, s->user_stack) < 0)
		log_warn_rarely("out of memory: stacks are shown as lost");
	see_process(p, s->pid, s->user_stack);
}

int pipeline_trace(const struct pipeline *p, u32 type, struct sampler_trace *ret)
{
	return sampler_trace(p->sampler, type, ret);
}

/* 0: it is not known. */
static u64 known_id(const struct pipeline *p, u64 id)
{
	const u64 *whole = map_get(&p->traced->finished, id);

	if (whole)
		return *whole;
	return pipeline_stack(p->batch, id) ? id : 0;
}

u64 pipeline_trace_id(struct pipeline *p, u64 id)
{
	u64 known = known_id(p, id);

	if (known || !id)
		return known;
	(void)procman_drain(p->procman);
	(void)sampler_drain(p->sampler);
	known = known_id(p, id);
	if (known || !p->parked)
		return known ? known : id;
	deferred_finish_parked(p, FINISH_MAX_NS, records_count_walk);
	known = known_id(p, id);
	return known ? known : id;
}

const struct pipeline_batch *pipeline_trace_batch(const struct pipeline *p)
{
	return p->batch;
}

const struct runtime_answers *pipeline_trace_answers(const struct pipeline *p)
{
	return runtimes_answers(p->runtimes);
}

u64 pipeline_trace_lost(const struct pipeline *p, const enum counter *counters, u32 n)
{
	u64 sum = 0;

	for (u32 s = 0; sampler_source(p->sampler, s); s++)
		for (u32 i = 0; i < n; i++)
			sum += sampler_counter(p->sampler, s, counters[i]);
	return sum;
}

u64 pipeline_trace_image(const struct pipeline *p, u32 pid)
{
	const u64 *image = map_get(&p->traced->images, pid);
	const struct procman_process *proc = image ? NULL : procman_find(p->procman, pid);

	return image ? *image : proc ? proc->image : 0;
}
