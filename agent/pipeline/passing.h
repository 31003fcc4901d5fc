/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler's filters but that by pid, in user space: for what is done with a process before BPF
 * has seen it. Users and cgroups of processes change without an event.
 */
#pragma once

#include "agent/sampler/sampler.h"
#include "base/vec.h"

struct passing_name {
	char comm[SAMPLE_COMM_BYTES];
};

struct passing_cgroup { /* its directory */
	u64 dev, inode;
};

struct passing {
	vec(struct passing_name) comms;
	vec(u32) uids;
	vec(struct passing_cgroup) cgroups;
};

/* 0 or a negative errno with a diag. */
int passing_init(struct passing *p, const struct sampler_options *o, struct diag *reterr_diag);
void passing_deinit(struct passing *p);
/* Whether the process passes now. True if that cannot be read: BPF decides for each sample. */
bool passing_now(const struct passing *p, u32 pid, const char comm[SAMPLE_COMM_BYTES]);
/* Whether a process may pass later without an event that tells it. */
static inline bool passing_changes(const struct passing *p)
{
	return p->uids.n || p->cgroups.n;
}
