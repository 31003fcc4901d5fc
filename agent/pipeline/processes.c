/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/processes.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/pipeline/alloc.h"
#include "agent/pipeline/armed.h"
#include "agent/pipeline/heap.h"
#include "agent/pipeline/resident.h"
#include "agent/pipeline/tasks.h"
#include "base/log.h"

struct procman_process *processes_find_at(struct pipeline *p, u32 pid, u64 time_ns)
{
	struct procman_process *proc = procman_find_at(p->procman, pid, time_ns);

	if (!proc) {
		/* It was forked while the ring was being read: its event has arrived by now. */
		procman_drain(p->procman);
		proc = procman_find_at(p->procman, pid, time_ns);
	}
	return proc;
}

void processes_hold_jit_files(struct pipeline *p, const struct procman_process *proc)
{
	for (u32 i = 0; i < JITFILE_N; i++) {
		struct map *held = &p->batch->jit_files[i];
		const u64 *fd = map_get(held, proc->image);

		if (!fd || ((s64)*fd < 0 && pipeline_sum(p->batch).samples % 16 == 0))
			map_put(held, proc->image, (u64)(s64)jitfile_open(i, proc));
	}
}

/* False: nothing can be told yet. */
static bool tell_jvm(struct pipeline *p, const struct procman_process *proc)
{
	u64 avma = 0;
	int r = p->jvm_seen ? runtimes_flag(p->runtimes, proc, p->jvm_flag, &avma) : -ESRCH;

	if (r != -ESRCH && !procman_can_be_sampled(proc))
		r = -EAGAIN;
	if (r != -ESRCH && r != -EAGAIN)
		p->jvm_seen(p->jvm_arg, proc, avma);
	return r != -EAGAIN;
}

/* The most generations of processes that a command can start between two checks. */
#define MAX_ANCESTORS 64

/*
 * Whether culprit itself runs the process: it is this one, or one that this one has started for
 * itself (parsers, the server of culprit up). The command that it records is not.
 */
static bool is_own(const struct pipeline *p, const struct procman_process *proc)
{
	const u32 self = (u32)getpid();

	for (u32 i = 0; proc && i < MAX_ANCESTORS; i++) {
		const struct procman_process *child = proc;

		if (proc->pid == self)
			return true;
		if (p->follow && map_get(&p->sampled, proc->pid))
			return false;
		proc = proc->ppid ? procman_known(p->procman, proc->ppid) : NULL;
		/* Another process has the pid by now. */
		if (proc && proc->start_ns > child->start_ns)
			return false;
	}
	return false;
}

void processes_see(struct pipeline *p, u32 pid, const struct procman_process *proc)
{
	/* The key changes with the image and its mappings: a runtime may be loaded long after the
	 * start. */
	u64 what = proc ? hash_u64(proc->image ^ hash_u64(proc->mappings_id)) | 1 : 1;
	u64 *seen = map_get(&p->batch->pids, pid);

	if (seen && *seen == what)
		return;
	if (proc && p->process_seen && !p->process_seen(p->arg, proc, p->runtimes))
		what = 0;
	if (proc && !tell_jvm(p, proc))
		what = 0;
	map_put(&p->batch->pids, pid, what);
	if (is_own(p, proc))
		map_put(&p->batch->own, pid, 1);
	if (proc) {
		procman_see(p->procman, proc);
		contexts_see(p->contexts, proc);
	}
}

/* Of all runtimes that there are: already while they are learned. */
static void want_walkers(struct pipeline *p)
{
	u32 walked = runtimes_claimed(p->runtimes);

	for (u32 i = 1; i < RUNTIME_N; i++)
		if (walked & 1u << i)
			sampler_want_walker(p->sampler, i);
}

bool processes_take_runtimes(struct pipeline *p, bool retry)
{
	bool learned = runtimes_take(p->runtimes, false);

	if (learned)
		map_foreach (&p->batch->pids, slot)
			slot->value = 0;
	if (learned || retry)
		runtimes_retry(p->runtimes, p->procman);
	if (learned || retry)
		want_walkers(p);
	return learned || retry;
}

/*
 * The host cannot finish a walk with runtime frames, or one that switches to a goroutine's stack,
 * which was not copied. Each page that is not loaded would cost the first sample that needs it, so
 * the code of such processes is loaded in advance.
 */
static void load_ahead(void *arg, const struct procman_process *proc)
{
	struct pipeline *p = arg;

	if (!procman_can_be_sampled(proc) || !runtimes_in_process(p->runtimes, proc))
		return;
	for (u32 i = 0; i < proc->n; i++)
		if (proc->mappings[i].binary->elf && proc->mappings[i].binary->file_id)
			(void)tables_load_binary(p->tables, proc->mappings[i].binary);
}

/* Makes BPF sample the process, or not, as options.choose() says. */
static bool choose(struct pipeline *p, const struct procman_process *proc)
{
	enum pipeline_choice c = p->choose(p->choose_arg, proc);
	int r = 0;

	if (c == PIPELINE_LEAVE) {
		/* A fork may have chosen it in BPF. */
		sampler_drop_pid(p->sampler, proc->pid);
		map_del(&p->sampled, proc->pid, NULL);
		return false;
	}
	r = sampler_choose_pid(p->sampler, proc->pid,
			       c == PIPELINE_SAMPLE ? FILTER_PID_FAMILY : FILTER_PID_ALONE);
	if (r == 0)
		r = map_put(&p->sampled, proc->pid, c);
	if (r < 0)
		log_warn("process %u is not sampled: %s", proc->pid,
			 r == -E2BIG ? "too many are" : strerror(-r));
	return r == 0;
}

static int choose_again(void *arg, struct procman_process *proc)
{
	struct pipeline *p = arg;
	const u64 *before = map_get(&p->sampled, proc->pid);

	if (!proc->alive)
		return 0;
	if (p->choose(p->choose_arg, proc) != (before ? *before : PIPELINE_LEAVE))
		procman_announce(p->procman, proc);
	return 0;
}

void pipeline_choose_again(struct pipeline *p)
{
	(void)procman_each(p->procman, choose_again, p);
}

bool processes_include(void *arg, const struct procman_process *proc)
{
	const struct procman_process *at = proc;
	struct pipeline *p = arg;

	if (p->choose)
		return choose(p, proc);
	if (!p->only_some)
		return true;
	for (u32 i = 0; at && i < MAX_ANCESTORS; i++) {
		if (map_get(&p->sampled, at->pid))
			return at == proc || map_put(&p->sampled, proc->pid, 1) == 0;
		at = p->follow && at->ppid ? procman_find(p->procman, at->ppid) : NULL;
	}
	return false;
}

static void forget_sampled(void *arg, const struct procman_process *proc)
{
	struct pipeline *p = arg;

	armed_gone(p, proc);
	/* Not if another process has the pid by now. */
	if (p->follow && procman_known(p->procman, proc->pid) == proc)
		map_del(&p->sampled, proc->pid, NULL);
}

/* Its pid may belong to another process soon. */
static void drop_chosen(void *arg, const struct procman_process *proc)
{
	struct pipeline *p = arg;

	if (!p->choose || procman_known(p->procman, proc->pid) != proc)
		return;
	if (map_del(&p->sampled, proc->pid, NULL))
		sampler_drop_pid(p->sampler, proc->pid);
}

static void on_cpus_changed(void *arg, const u32 *cpus, u32 n)
{
	struct pipeline *p = arg;

	sampler_follow_cpus(p->sampler, cpus, n);
}

/* The order of listeners matters: BPF gets the mappings of a new image first. */
int processes_listen(struct pipeline *p)
{
	static const struct procman_listener own = {
		.process_changed = load_ahead,
		.process_ended = drop_chosen,
		.process_gone = forget_sampled,
		.cpus_changed = on_cpus_changed,
	};
	int r = procman_listen(p->procman, &tables_listener, p->tables);

	if (r == 0)
		r = procman_listen(p->procman, &runtimes_listener, p->runtimes);
	if (r == 0)
		r = procman_listen(p->procman, &contexts_listener, p->contexts);
	if (r == 0)
		r = procman_listen(p->procman, &tasks_listener, p);
	if (r == 0)
		r = procman_listen(p->procman, &resident_listener, p);
	if (r == 0)
		r = procman_listen(p->procman, &heap_listener, p);
	if (r == 0)
		r = procman_listen(p->procman, &alloc_listener, p);
	return r < 0 ? r : procman_listen(p->procman, &own, p);
}
