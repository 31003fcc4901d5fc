/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Walks the stack of a thread that sleeps, from the registers with which it has entered the kernel.
 * User space runs the programs, one walk at a time:
 *
 *	begin ─→ walk_native ─→ walk_python ⇄ walk_v8 … ─→ end
 *
 * Programs that may sleep cannot make tail calls, so each one ends with the next one's number in
 * `sleeper.next`. Others may run on the CPU meanwhile, and the next program on another CPU: so all
 * state is in one entry of each map, not in one per CPU, and the row cache is used as by a sample
 * that interrupts another one.
 *
 * `end` tells whether the thread has slept since it was reported: it has not left its CPU again,
 * and still sleeps. Then its stack was the same for all reads.
 */
#define SAMPLE_SECTION "syscall"
#define SAMPLE_CONTEXT void
#define SAMPLE_RESULT 0
#define SAMPLE_ALONE
#define WALK_JUMP(ctx, s, slot) note_next(s, slot)

#include "bpf/lib/sleeper.h"

struct scratch;
static __attribute__((always_inline)) void note_next(struct scratch *s, __u32 slot);

#include "bpf/lib/wait.h"
#include "bpf/prog/walk.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline void note_next(struct scratch *s, __u32 slot)
{
	s->jumps++;
	sleeper.next = slot;
}

/* Whether the thread is in the sleep in which it was reported. */
static __always_inline bool sleeps_on(struct task_struct *task)
{
	return task_state(task) && BPF_CORE_READ(task, start_time) == sleeper.start_time &&
	       task_switches(task) == sleeper.switches;
}

static __always_inline int begin_walk(struct scratch *s, struct task_struct *task)
{
	walk_begin(s);
	s->own_row = ~0u;
	s->row = config.source * SAMPLE_MAX_LEVELS + 1;
	s->out.sample.time_ns = bpf_ktime_get_ns();
	s->out.sample.pid = sleeper.pid;
	s->out.sample.tid = sleeper.tid;
	s->out.sample.start_stack = sleeper.start_stack;
	s->walk.regs = sleeper.regs;
	s->first = sleeper.regs;
	return walk_find_process(s, task);
}

SEC("syscall")
int begin(void *ctx)
{
	struct task_struct *task = bpf_task_from_pid((__s32)sleeper.tid);
	struct scratch *s = scratch_get();

	sleeper.woke = 1;
	sleeper.next = SLOT_FINISH;
	sleeper.n = 0;
	if (!task)
		return 0;
	if (s && sleeps_on(task)) {
		sleeper.woke = 0;
		s->stop = (__u32)begin_walk(s, task);
		note_next(s, (int)s->stop == WALK_GO ? RUNTIME_NONE : SLOT_FINISH);
	}
	bpf_task_release(task);
	return 0;
}

SEC("syscall")
int end(void *ctx)
{
	struct task_struct *task = bpf_task_from_pid((__s32)sleeper.tid);
	struct scratch *s = scratch_get();
	__u32 n;

	sleeper.woke = 1;
	if (!task)
		return 0;
	if (s && sleeps_on(task)) {
		sleeper.woke = 0;
		sleeper.stop = s->stop;
		sleeper.regs = s->walk.regs;
		sleeper.id = walk_stack_id(s->walk.hash, (int)s->stop);
		n = s->walk.n;
		sleeper.n = n < SAMPLE_MAX_FRAMES ? n : SAMPLE_MAX_FRAMES;
		bpf_probe_read_kernel(sleeper.frames, sizeof(sleeper.frames), s->user.frames);
	}
	bpf_task_release(task);
	return 0;
}
