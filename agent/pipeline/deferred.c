/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/deferred.h"

#include <errno.h>
#include <string.h>

#include "unwind/host.h"

struct context {
	struct pipeline *pipeline;
	const struct deferred_walk *walk;
	struct procman_process *process;
	bool past_end; /* a read was behind the copied stack */
};

static const void *line(void *arg, u32 number)
{
	struct context *c = arg;

	return tables_line(c->pipeline->tables, number);
}

/* The copied page, or NULL. */
static const u8 *find_copy(const struct sampler_copy *copy, u64 page)
{
	/* Mostly they follow each other from the first on. */
	u64 guess = copy->n ? (page - copy->addresses[0]) / SAMPLE_COPY_BYTES : 0;

	if (guess < copy->n && copy->addresses[guess] == page)
		return copy->data + guess * SAMPLE_COPY_BYTES;
	for (u32 i = 0; i < copy->n; i++)
		if (copy->addresses[i] == page)
			return copy->data + (size_t)i * SAMPLE_COPY_BYTES;
	return NULL;
}

static int read_copy(void *arg, void *to, size_t n, u64 avma)
{
	struct context *c = arg;
	u8 *out = to;

	while (n) {
		u64 offset = avma & (SAMPLE_COPY_BYTES - 1);
		size_t part = MIN(n, (size_t)(SAMPLE_COPY_BYTES - offset));
		const u8 *page = find_copy(c->walk->copy, avma - offset);

		if (!page) {
			c->past_end |= c->walk->copy->n && avma > c->walk->copy->addresses[0];
			return -EFAULT;
		}
		memcpy(out, page + offset, part);
		out += part;
		avma += part;
		n -= part;
	}
	return 0;
}

static int load_page(void *arg, u64 pc)
{
	struct context *c = arg;
	const struct procman_mapping *m = procman_process_find(c->process, pc);

	return m ? tables_load_page(c->pipeline->tables, m->binary, pc - m->bias) : -ENOENT;
}

static bool is_runtime(void *arg, u32 runtime, u64 pc)
{
	struct context *c = arg;

	return runtimes_cover(c->pipeline->runtimes, c->process, runtime, pc);
}

/*
 * Whose mappings were the sample's: those of the process, unless it has called exec since; a child
 * that had not called exec when it was sampled ran on its parent's, if that has not either.
 */
static struct procman_process *find_process(struct pipeline *p, const struct record_sample *s)
{
	struct procman_process *proc = procman_find_at(p->procman, s->pid, s->time_ns);

	if (!proc || proc->image_ns <= s->time_ns)
		return proc;
	proc = procman_find_at(p->procman, proc->ppid, s->time_ns);
	return proc && proc->image_ns <= s->time_ns ? proc : NULL;
}

static enum stop_reason walk_on(struct context *c, struct walk_regs *regs,
				struct deferred_walk *walk)
{
	struct unwind_host host = {
		.line = line,
		.read = read_copy,
		.missing = load_page,
		.is_runtime = is_runtime,
		.arg = c,
		.pac_mask = sampler_pac_mask(),
	};
	u32 slice, n_mappings;

	c->process = find_process(c->pipeline, &walk->record->sample);
	if (!c->process)
		return STOP_UNKNOWN_PROCESS;
	if (tables_host_slice(c->pipeline->tables, c->process, &slice, &n_mappings) < 0)
		return STOP_NOT_LOADED;
	return unwind_host_walk(&host, regs, slice, n_mappings, walk->frames, SAMPLE_MAX_FRAMES,
				&walk->n);
}

/* What it ran may have been mapped, and its process forked, just before the sample. */
static void look_again(struct context *c, enum stop_reason stop)
{
	struct procman *pm = c->pipeline->procman;
	struct procman_process *proc;

	procman_drain(pm);
	if (stop != STOP_NO_MAPPING)
		return;
	proc = find_process(c->pipeline, &c->walk->record->sample);
	if (proc && procman_refresh(pm, proc) > 0)
		procman_drain(pm);
}

/*
 * BPF takes a process for another's image as long as its start_stack is not the one that we know:
 * none yet, or an early one that /proc told during an exec. The sample knows.
 */
static void check_image(struct pipeline *p, const struct record_deferred *d)
{
	struct procman_process *proc;

	if (d->stop != STOP_UNKNOWN_PROCESS)
		return;
	proc = procman_find_at(p->procman, d->sample.pid, d->sample.time_ns);
	if (proc && proc->image_ns <= d->sample.time_ns)
		procman_learn_image(p->procman, proc, d->sample.start_stack);
}

void deferred_finish(struct pipeline *p, struct deferred_walk *walk)
{
	struct context c = {.pipeline = p, .walk = walk};
	struct walk_regs regs = walk->record->regs;
	u32 n = walk->n;
	enum stop_reason stop;

	/* Whatever else it was, it was by what was so before the last events. */
	if (walk->record->stop != STOP_NOT_LOADED)
		procman_drain(p->procman);
	check_image(p, walk->record);
	stop = walk_on(&c, &regs, walk);
	if (stop == STOP_NO_MAPPING || stop == STOP_UNKNOWN_PROCESS) {
		look_again(&c, stop);
		regs = walk->record->regs;
		walk->n = n;
		stop = walk_on(&c, &regs, walk);
	}
	if (stop == STOP_NO_MAPPING && walk->n < SAMPLE_MAX_FRAMES)
		walk->frames[walk->n++] = unwind_host_raw_frame(&regs);
	if (stop == STOP_BAD_READ && c.past_end)
		stop = STOP_COPY_END;
	walk->stop = stop;
}

u64 deferred_stack_id(const struct deferred_walk *walk)
{
	return unwind_host_stack_id(walk->frames, walk->n, walk->stop);
}
