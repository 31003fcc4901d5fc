/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * On-CPU samples: a perf event (CPU clock or a PMU counter) interrupts, the stacks of whatever was
 * running are walked, and records go to the ring (abi/sample.h).
 *
 * Two entries share everything but the loop over frames. oncpu uses bpf_loop() (Linux 5.17,
 * commit e6f2dd0f8067) and walks all of it in one go. oncpu_tail is for older kernels: bounded
 * loops of FRAMES_PER_CALL frames joined by tail calls, of which a kernel allows 33, so 256 frames.
 * User space loads one of the two.
 */
#include "bpf/lib/emit.h"
#include "bpf/lib/filter.h"
#include "bpf/lib/task.h"

char LICENSE[] SEC("license") = "GPL";

#define FRAMES_PER_CALL 8
#define MAX_CALLS 32

#define NO_USER_STACK (-2)

/* Begins the walk of the current process: WALK_GO, NO_USER_STACK, or why it cannot be walked. */
static __always_inline int begin_walk(struct scratch *s, struct task_struct *task,
				      const bpf_user_pt_regs_t *regs, __u32 tgid)
{
	struct process_entry *p;
	__s32 syscall_nr;
	int stop;

	s->walk.have_mapping = 0;
	s->walk.native = 0;
	s->runtimes = 0;
	s->runtime_frames = 0;
	s->window.start = 0;
	s->walk.n = 0;
	s->walk.hash = 0;
	stop = task_user_regs(task, regs, &s->walk.regs, &syscall_nr);
	if (stop != WALK_GO)
		return stop;
	if (task_between_images(&s->walk.regs, syscall_nr))
		return NO_USER_STACK;
	s->first = s->walk.regs;
	p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p || p->start_stack != s->out.sample.start_stack)
		return STOP_UNKNOWN_PROCESS;
	s->walk.mappings_id = p->mappings_id;
	s->walk.slice = p->slice;
	s->walk.n_mappings = p->n;
	if (!p->n)
		return STOP_NO_MAPPING;
	return WALK_GO;
}

static __always_inline void end_walk(struct scratch *s)
{
	enum defer defer = defer_how(s);

	if (defer == DEFER_WHOLE) {
		s->walk.regs = s->first;
		s->walk.n = 0;
		s->walk.hash = 0;
		s->walk.native = 0;
		s->runtime_frames = 0;
	}
	if (!defer && s->stop == STOP_NO_MAPPING && s->walk.n < SAMPLE_MAX_FRAMES)
		native_push(s, FRAME_RAW | walk_pc(&s->walk.regs));
	s->out.sample.user_stack = emit_user_stack(s);
	if (!defer || !emit_deferred(s))
		emit_sample(s);
	s->busy = 0;
}

/*
 * Everything up to the user stack. The scratch space when a walk is to follow; NULL when the
 * sample is out already, or is not wanted.
 */
static __always_inline struct scratch *begin_sample(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = task_current();
	__u32 pid = task_read(task, pid), tgid = task_read(task, tgid);
	struct scratch *s = scratch_get();
	struct record_sample *out;
	struct mm_struct *mm;

	if (!s)
		return NULL; /* cannot be: each CPU has one */
	count(s, COUNTER_EVENTS);
	if (!pid) {
		count(s, COUNTER_FILTERED_IDLE);
		return NULL;
	}
	if (!filter_pass(task, tgid)) {
		count(s, COUNTER_FILTERED);
		return NULL;
	}
	if (s->busy) {
		count(s, COUNTER_NESTED);
		return NULL;
	}
	s->busy = 1;
	out = &s->out.sample;
	out->cpu = bpf_get_smp_processor_id();
	out->time_ns = bpf_ktime_get_ns();
	out->pid = tgid;
	out->tid = pid;
	out->value = 1;
	out->source = 0;
	out->kernel_stack = 0;
	out->user_stack = 0;
	out->start_stack = 0;
	task_comm(task, out->comm);
	if (config.kernel_stacks && !regs_are_user(&ctx->regs))
		out->kernel_stack = emit_kernel_stack(s, ctx);
	mm = task_read(task, mm);
	if (config.user_stacks && mm && !(task_read(task, flags) & PF_KTHREAD)) {
		out->start_stack = task_read(mm, start_stack);
		s->stop = (__u32)begin_walk(s, task, &ctx->regs, tgid);
		if (s->stop == (__u32)WALK_GO)
			return s;
		if (s->stop != (__u32)NO_USER_STACK) {
			end_walk(s);
			return NULL;
		}
	}
	emit_sample(s);
	s->busy = 0;
	return NULL;
}

/* Up to FRAMES_PER_CALL frames; false when the walk is over. */
static __always_inline bool walk_some(struct scratch *s)
{
	for (int i = 0; i < FRAMES_PER_CALL; i++)
		if (!walk_one(s))
			return s->stop == (__u32)WALK_SWITCH && native_switch();
	return true;
}

/*
 * A call and its return cost as much as half a frame (15 ns with the mitigations of a Zen 4), so
 * each does several.
 */
static long step_callback(__u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;

	return !walk_some(s);
}

/*
 * Not part of oncpu: its stack frame would still be there under the loop, whose callback and the
 * walkers that it calls need the most of the 512 bytes that all frames have together.
 */
static __noinline struct scratch *begin_apart(struct bpf_perf_event_data *ctx)
{
	return begin_sample(ctx);
}

static __noinline void end_apart(struct scratch *s)
{
	end_walk(s);
}

SEC("perf_event")
int oncpu(struct bpf_perf_event_data *ctx)
{
	struct scratch *s = begin_apart(ctx);

	if (!s)
		return 0;
	/* A runtime's native frames take two steps. */
	bpf_loop(2 * SAMPLE_MAX_FRAMES / FRAMES_PER_CALL + 1, step_callback, &s, 0);
	if ((int)s->stop == WALK_GO)
		s->stop = STOP_TOO_DEEP;
	end_apart(s);
	return 0;
}

/* Slot 0: oncpu_tail_step. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tail_calls SEC(".maps");

SEC("perf_event")
int oncpu_tail_step(struct bpf_perf_event_data *ctx)
{
	struct scratch *s = scratch_get();

	if (!s)
		return 0;
	if (!walk_some(s)) {
		end_walk(s);
		return 0;
	}
	if (s->walk.n < FRAMES_PER_CALL * MAX_CALLS)
		bpf_tail_call(ctx, &tail_calls, 0);
	s->stop = STOP_TOO_DEEP;
	end_walk(s);
	return 0;
}

SEC("perf_event")
int oncpu_tail(struct bpf_perf_event_data *ctx)
{
	struct scratch *s = begin_sample(ctx);

	if (!s)
		return 0;
	bpf_tail_call(ctx, &tail_calls, 0);
	s->stop = STOP_TOO_DEEP;
	end_walk(s);
	return 0;
}

/*
 * Children of chosen processes are chosen too (`record -- CMD`), before their first instruction.
 * raw_tracepoint: arguments are parent and child (include/trace/events/sched.h).
 */
SEC("raw_tracepoint/sched_process_fork")
int follow_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx->args[0];
	struct task_struct *child = (struct task_struct *)ctx->args[1];
	__u32 parent_tgid = (__u32)BPF_CORE_READ(parent, tgid);
	__u32 child_tgid = (__u32)BPF_CORE_READ(child, tgid);
	__u64 start = BPF_CORE_READ(child, start_time);

	if (parent_tgid != child_tgid && bpf_map_lookup_elem(&filter_pids, &parent_tgid))
		bpf_map_update_elem(&filter_pids, &child_tgid, &start, BPF_ANY);
	return 0;
}

/*
 * Called for each thread; the leader is the last of its group. An RCU grace period late: by then
 * the pid may be another process's (a thread that execs takes the leader's place and start_time).
 */
SEC("raw_tracepoint/sched_process_free")
int follow_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];
	__u32 pid = (__u32)BPF_CORE_READ(task, pid);
	__u64 *start = bpf_map_lookup_elem(&filter_pids, &pid);

	if (start && *start == BPF_CORE_READ(task, start_time) &&
	    pid == (__u32)BPF_CORE_READ(task, tgid))
		bpf_map_delete_elem(&filter_pids, &pid);
	return 0;
}
