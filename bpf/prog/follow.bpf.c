/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Follows processes where a side-band event would come too late. follow_exec tells user space which
 * process image runs from now on. With `record -- CMD`, and where user space chooses processes all
 * the time, follow_fork and follow_exit keep filter_pids up to date as processes fork and exit: a
 * child of a chosen process is chosen before its first instruction.
 */
#include "bpf/lib/maps.h"

char LICENSE[] SEC("license") = "GPL";

/*
 * Runs before the new program's first instruction and after the kernel's mmap events of the new
 * program. Deletes the process's entry, because an entry of the old program without exec_id could
 * match the new image. When the ring is full, user space reads start_stack from /proc, and exec_id
 * remains unknown.
 */
SEC("raw_tracepoint/sched_process_exec")
int follow_exec(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];
	struct record_exec r = {
		.type = RECORD_EXEC,
		.pid = (__u32)BPF_CORE_READ(task, tgid),
		.time_ns = bpf_ktime_get_ns(),
		.start_stack = BPF_CORE_READ(task, mm, start_stack),
		.exec_id = BPF_CORE_READ(task, self_exec_id),
	};

	const volatile struct sampler_control *c = control_get();

	bpf_map_delete_elem(&processes, &r.pid);
	bpf_ringbuf_output(&ring, &r, sizeof(r),
			   c && c->no_hurry ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* The arguments are parent and child (include/trace/events/sched.h). */
SEC("raw_tracepoint/sched_process_fork")
int follow_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx->args[0];
	struct task_struct *child = (struct task_struct *)ctx->args[1];
	__u32 parent_tgid = (__u32)BPF_CORE_READ(parent, tgid);
	__u32 child_tgid = (__u32)BPF_CORE_READ(child, tgid);
	__u64 start = BPF_CORE_READ(child, start_time);
	__u64 *chosen;

	if (parent_tgid == child_tgid)
		return 0;
	chosen = bpf_map_lookup_elem(&filter_pids, &parent_tgid);
	if (chosen && *chosen != FILTER_PID_ALONE)
		bpf_map_update_elem(&filter_pids, &child_tgid, &start, BPF_ANY);
	return 0;
}

/*
 * Runs for each thread; the leader is the last thread of its group. It runs an RCU grace period
 * after the exit, when the pid may already belong to another process: so follow_exit compares
 * start_time, which a thread that execs takes from the leader together with its place.
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
