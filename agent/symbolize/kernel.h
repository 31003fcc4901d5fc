/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names kernel addresses while modules and BPF programs come and go.
 *
 * The kernel's own symbols are read once, with those of the code that is loaded by then. Symbols of
 * loaded code are read again when an address outside of the kernel was sampled and code was loaded
 * or unloaded since the last reading (/proc/modules, ids of BPF programs), or the address has no
 * name; that takes 0.1 % to 1 % of the time at most. A name that may belong to unloaded code is
 * never returned: an address whose name changed during a batch has none, nor does a BPF program's
 * if programs have changed and it is too early for another reading.
 */
#pragma once

#include "base/cleanup.h"
#include "base/types.h"

struct kernel_names;

/* The files to read; NULL or 0: those of the running kernel. For tests. */
struct kernel_names_options {
	const char *kallsyms, *modules; /* borrowed; in the formats of /proc */
	/* A hash of the ids of loaded programs, which are never reused. Negative: no permission. */
	int (*programs)(u64 *ret_hash);
	bool read_always; /* do not pause between readings */
};

/* -EPERM: kallsyms shows no addresses; other errors as of kallsyms_open(). */
int kernel_names_create(const struct kernel_names_options *o, struct kernel_names **ret);
void kernel_names_destroy(struct kernel_names *k);
DEFINE_CLEANUP(kernel_names, struct kernel_names *, kernel_names_destroy)
#define _cleanup_kernel_names_ _cleanup_(kernel_names)

/* Bytes of memory. */
size_t kernel_names_memory(const struct kernel_names *k);
/* A batch begins, whose samples were taken since the previous call. */
void kernel_names_begin(struct kernel_names *k);
/*
 * Returns name and module ("" = the kernel itself, "bpf" = a program), borrowed until the next
 * call. -ENOENT: no name is certain.
 */
int kernel_names_lookup(struct kernel_names *k, u64 address, const char **ret_name,
			const char **ret_module);
