/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/deferred.h"

#include <errno.h>
#include <string.h>

#include "unwind/host.h"

struct context {
	struct pipeline *pipeline;
	const struct deferred_walk *walk;
	bool past_end; /* a read was behind the copied stack */
};

static const void *line(void *arg, u32 number)
{
	struct context *c = arg;

	return tables_line(c->pipeline->tables, number);
}

static int read_copy(void *arg, void *to, size_t n, u64 avma)
{
	struct context *c = arg;
	const struct sampler_copy *copy = c->walk->copy;

	if (avma < copy->address || avma - copy->address > copy->n ||
	    copy->n - (avma - copy->address) < n) {
		c->past_end |= avma >= copy->address;
		return -EFAULT;
	}
	memcpy(to, copy->data + (avma - copy->address), n);
	return 0;
}

static int load_page(void *arg, u64 pc)
{
	struct context *c = arg;
	const struct procman_mapping *m = procman_process_find(c->walk->process, pc);

	return m ? tables_load_page(c->pipeline->tables, m->binary, pc - m->bias) : -ENOENT;
}

enum stop_reason deferred_finish(struct pipeline *p, struct deferred_walk *walk)
{
	struct context c = {p, walk, false};
	struct unwind_host host = {
		.line = line,
		.read = read_copy,
		.missing = load_page,
		.arg = &c,
		.pac_mask = sampler_pac_mask(),
	};
	const struct record_sample *sample = &walk->record->sample;
	enum stop_reason stop;
	u32 slice, n_mappings;

	if (!walk->process)
		return STOP_UNKNOWN_PROCESS;
	/* An exec since the sample: the mappings are those of another program. */
	if (walk->process->start_stack && sample->start_stack != walk->process->start_stack)
		return STOP_UNKNOWN_PROCESS;
	if (tables_host_slice(p->tables, walk->process, &slice, &n_mappings) < 0)
		return STOP_NOT_LOADED;
	stop = unwind_host_walk(&host, &walk->record->regs, slice, n_mappings, walk->frames,
				SAMPLE_MAX_FRAMES, &walk->n);
	return stop == STOP_BAD_READ && c.past_end ? STOP_COPY_END : stop;
}

u64 deferred_stack_id(const struct deferred_walk *walk)
{
	return unwind_host_stack_id(walk->frames, walk->n, walk->stop);
}
