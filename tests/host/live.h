/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A live process for the walkers of tests/host/walkers.h: what the agent knows of its runtime, and
 * the registers of a thread that is stopped. x86-64 only. A tool maps a process once and exits:
 * nothing is freed.
 */
#pragma once

#include <errno.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "agent/procman/procman.h"
#include "agent/runtime/internal.h"

struct live_process {
	const struct procman_process *process;
	struct runtimes *runtimes;
	u32 runtime; /* enum runtime_id */
	const struct runtime_ops *ops;
	void *learned;
	struct runtime_target target;
};

/* Sets what the walker asks for: host_process and host_binary. */
static int live_learn(struct live_process *p, const struct procman_mapping *m,
		      struct diag *reterr_diag)
{
	const struct attached *a = runtimes_attached(p->runtimes, p->process->image, p->runtime);
	int r;

	if (!a || !a->done)
		return diag_set(reterr_diag, -EAGAIN, "%s has not started in this process",
				runtime_table[p->runtime].name);
	p->ops = runtime_table[p->runtime].ops;
	r = p->ops->learn(m->binary, &host_binary, &p->learned, reterr_diag);
	if (r < 0)
		return r;
	host_process = a->process;
	p->target = (struct runtime_target){
		.memory.pid = p->process->pid,
		.process = p->process,
		.elf = m->binary->elf,
		.bias = m->bias,
	};
	return 0;
}

/* Finds the runtime of a process that has a walker, as the agent does. */
static int live_attach(u32 pid, struct live_process *ret, struct diag *reterr_diag)
{
	const struct procman_options options = {.no_events = true};
	const struct runtimes_options describe_only = {
		.binaries_fd = -1, .processes_fd = -1, .locks_fd = -1};
	struct procman *pm;
	int r = procman_create(&options, &pm);

	if (r == 0)
		r = runtimes_create(&describe_only, &ret->runtimes);
	if (r < 0)
		return diag_set(reterr_diag, r, "%s", strerror(-r));
	ret->process = procman_find(pm, pid);
	if (!ret->process)
		return diag_set(reterr_diag, -ESRCH, "there is no process %u", pid);
	runtimes_follow(ret->runtimes, ret->process);
	while (runtimes_take(ret->runtimes, true))
		runtimes_follow(ret->runtimes, ret->process);
	for (u32 i = 0; i < ret->process->n; i++) {
		const struct procman_mapping *m = &ret->process->mappings[i];

		ret->runtime = m->binary->elf ? runtimes_of_mapping(ret->runtimes, ret->process, m)
					      : RUNTIME_NONE;
		if (ret->runtime)
			return live_learn(ret, m, reterr_diag);
	}
	return diag_set(reterr_diag, -ENOENT, "process %u runs no runtime that has a walker", pid);
}

static struct walk_regs live_regs(const struct user_regs_struct *r)
{
	return (struct walk_regs){
		.pc = r->rip,
		.sp = r->rsp,
		.fp = r->rbp,
		.tls = r->fs_base,
		.r = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi, r->rbp, r->rsp, r->r8, r->r9,
		      r->r10, r->r11, r->r12, r->r13, r->r14, r->r15},
		.full = 1,
		.exact = 1,
	};
}

/* The signal that a stopped thread is to get when it goes on; traps and stops are the tracer's. */
static int live_signal(int status)
{
	return (WSTOPSIG(status) & 0x7f) == SIGTRAP || status >> 16 ? 0 : WSTOPSIG(status);
}
