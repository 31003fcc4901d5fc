/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of kernel addresses that follow modules and BPF programs while they come and go.
 *
 * The kernel's own text is read once. What is loaded later is read when an address outside of that
 * text was sampled and something has been loaded or unloaded since the last time (/proc/modules,
 * ids of BPF programs), or has no name; reading it takes 0.1 % to 1 % of the time at most. No name
 * is given that may be that of what was there before: an address whose name changed during a batch
 * has none, nor has one of a BPF program when programs have changed and it is too early to read
 * their names again.
 */
#pragma once

#include "base/cleanup.h"
#include "base/types.h"

struct kernel_names;

/* Where to look; NULL or 0: the running kernel. For tests. */
struct kernel_names_options {
	const char *kallsyms, *modules; /* borrowed; files of the formats of /proc */
	/*
	 * A hash of which programs are loaded; an id is never given to a second one. Negative: not
	 * ours to ask.
	 */
	int (*programs)(u64 *ret_hash);
	bool read_always; /* however long it takes */
};

/* -EPERM: kallsyms shows no addresses; other errors as of kallsyms_open(). */
int kernel_names_create(const struct kernel_names_options *o, struct kernel_names **ret);
void kernel_names_destroy(struct kernel_names *k);
DEFINE_CLEANUP(kernel_names, struct kernel_names *, kernel_names_destroy)
#define _cleanup_kernel_names_ _cleanup_(kernel_names)

/* A batch begins: its samples were taken since the call before this one. */
void kernel_names_begin(struct kernel_names *k);
/*
 * name and module ("" = the kernel itself, "bpf" = a program), borrowed until the next call.
 * -ENOENT: no name is known for sure.
 */
int kernel_names_lookup(struct kernel_names *k, u64 address, const char **ret_name,
			const char **ret_module);
