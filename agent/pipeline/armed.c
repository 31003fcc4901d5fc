/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/armed.h"

#include <errno.h>

#include "agent/pipeline/processes.h"

void armed_told(struct pipeline *p, const struct procman_process *proc, u32 index)
{
	if (!p->requests)
		return;
	if (!index)
		map_del(&p->publishing, proc->image, NULL);
	else
		(void)map_put(&p->publishing, proc->image, 1);
}

void armed_gone(struct pipeline *p, const struct procman_process *proc)
{
	if (!p->requests)
		return;
	map_del(&p->publishing, proc->image, NULL);
	/* Not if another process has the pid by now. */
	if (procman_known(p->procman, proc->pid) == proc)
		pipeline_disarm(p, proc->pid);
}

int pipeline_arm(struct pipeline *p, u32 pid, const struct armed_process *a)
{
	struct procman_process *proc = procman_find(p->procman, pid);
	bool is_new = !map_get(&p->sampled, pid);
	int r;

	if (!proc || !procman_can_be_sampled(proc))
		return -ESRCH;
	if (is_new && map_put(&p->sampled, pid, 1) < 0)
		return -ENOMEM;
	/* BPF learns its mappings, and where its spans are. */
	if (is_new)
		procman_announce(p->procman, proc);
	r = sampler_arm(p->sampler, pid, a);
	if (r < 0 && is_new)
		map_del(&p->sampled, pid, NULL);
	return r;
}

void pipeline_disarm(struct pipeline *p, u32 pid)
{
	if (map_del(&p->sampled, pid, NULL))
		sampler_disarm(p->sampler, pid);
}

bool pipeline_see(struct pipeline *p, const struct procman_process *proc)
{
	return !p->process_seen || p->process_seen(p->arg, proc, p->runtimes);
}

void pipeline_see_armed(struct pipeline *p)
{
	map_foreach (&p->sampled, slot) {
		u32 pid = (u32)slot->key;
		const struct procman_process *proc = procman_known(p->procman, pid);

		if (!proc || !proc->alive)
			continue;
		(void)pipeline_see(p, proc);
		contexts_see(p->contexts, proc);
	}
}

bool pipeline_publishes(const struct pipeline *p, u64 image)
{
	return map_get(&p->publishing, image);
}

int pipeline_armed_thread(struct pipeline *p, u32 tid, struct armed_thread *ret)
{
	return sampler_armed_thread(p->sampler, tid, ret);
}

u64 pipeline_set_hz(struct pipeline *p, u64 hz)
{
	return sampler_set_hz(p->sampler, hz);
}

u64 pipeline_lost_intervals(const struct pipeline *p)
{
	u64 n = 0;

	for (u32 i = 0; i < p->batch->n_sampled; i++)
		n += sampler_counter(p->sampler, i, COUNTER_LOST_INTERVAL);
	return n;
}

u64 pipeline_bytes(const struct pipeline *p)
{
	return pipeline_batch_bytes(p->batch);
}

struct procman *pipeline_procman(struct pipeline *p)
{
	return p->procman;
}
