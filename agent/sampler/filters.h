/* SPDX-License-Identifier: Apache-2.0 */
/* Whose events are sampled: the maps that bpf/lib/filter.h reads. */
#pragma once

#include <bpf/libbpf.h>

#include "agent/sampler/sampler.h"

/*
 * Fills the filters of the options into the maps of a loaded object. 0, -E2BIG: too many; -ENOENT:
 * no such cgroup; or another negative errno, each with a diag.
 */
int filters_fill(struct bpf_object *object, const struct sampler_options *o,
		 struct diag *reterr_diag);
/* Adds a process, which must pass if the filter of pids is on. */
int filters_add_pid(struct bpf_object *object, u32 pid);
/* The same, with its children or without; and takes it out again, which need not be in. */
int filters_choose_pid(struct bpf_object *object, u32 pid, enum filter_pid how);
void filters_drop_pid(struct bpf_object *object, u32 pid);
