/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keeps filter_pids as processes fork and exit: children of chosen processes are chosen too
 * (`record -- CMD`), before their first instruction.
 */
#include "bpf/lib/maps.h"

char LICENSE[] SEC("license") = "GPL";

/* Arguments are parent and child (include/trace/events/sched.h). */
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
