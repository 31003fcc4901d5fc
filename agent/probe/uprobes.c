/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/probe/probe.h"

#define UPROBE_MULTI_RETURN 1u /* BPF_F_UPROBE_MULTI_RETURN of Linux 6.6 */

/* The part of union bpf_attr for BPF_LINK_CREATE that headers before Linux 6.6 lack. */
struct link_uprobes {
	u32 program, target, attach_type, flags;
	u64 path;
	u64 offsets, reference_counters, cookies;
	u32 n, multi_flags, pid, pad;
};

int probe_link_uprobes(const struct probe_uprobes *u)
{
	struct link_uprobes attr = {
		.program = (u32)u->program,
		.attach_type = u->attach_type,
		.path = (u64)u->path,
		.offsets = (u64)u->offsets,
		.reference_counters = (u64)u->reference_counters,
		.cookies = (u64)u->cookies,
		.n = u->n,
		.multi_flags = u->returns ? UPROBE_MULTI_RETURN : 0,
		.pid = u->pid,
	};
	long fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? -errno : (int)fd;
}

/* Mount points of tracefs, the newer one first. */
static const char *const tracefs[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};

int probe_open_tracefs(const char *file, int flags)
{
	char path[512];
	bool mounted = false;
	int fd;

	for (size_t i = 0; i < ARRAY_SIZE(tracefs); i++) {
		snprintf(path, sizeof(path), "%s/events", tracefs[i]);
		mounted |= access(path, F_OK) == 0;
		snprintf(path, sizeof(path), "%s/%s", tracefs[i], file);
		fd = open(path, flags | O_CLOEXEC);
		if (fd >= 0)
			return fd;
	}
	return mounted ? -ENOENT : -ENOTSUP;
}
