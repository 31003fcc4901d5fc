/* SPDX-License-Identifier: GPL-2.0-only */
/* The filters: whether to sample a task, decided before the walk. */
#pragma once

#include "bpf/lib/task.h"

static __always_inline bool filter_cgroup(void)
{
	for (__u64 i = 0; i < SAMPLER_MAX_FILTERS; i++) {
		if (i >= config.filter_cgroups)
			break;
		if (bpf_current_task_under_cgroup(&filter_cgroups, i) == 1)
			return true;
	}
	return false;
}

static __always_inline bool filter_pass(struct task_struct *task, __u32 tgid)
{
	if (config.filter_pids && !bpf_map_lookup_elem(&filter_pids, &tgid))
		return false;
	if (config.filter_uids) {
		__u32 uid = (__u32)bpf_get_current_uid_gid();

		if (!bpf_map_lookup_elem(&filter_uids, &uid))
			return false;
	}
	if (config.filter_comms) {
		/*
		 * The name of the process, so that the filter passes all threads of a process or
		 * none.
		 */
		struct task_struct *leader = task_read(task, group_leader);
		struct filter_comm key;

		task_comm(leader, key.comm);
		if (!bpf_map_lookup_elem(&filter_comms, &key))
			return false;
	}
	return !config.filter_cgroups || filter_cgroup();
}
