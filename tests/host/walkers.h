/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walkers of all runtimes (bpf/unwind), compiled for the host. They walk one process and one
 * sample at a time. There are no unwind tables, so each native frame is in an unknown mapping.
 * tests/host must be the first include directory. The including file provides
 *
 *	long host_read(void *to, __u32 n, __u64 avma)	reads the process's memory: 0 or negative
 *
 * and includes the headers that it needs of the C library and of lib/ before this one. It may
 * define HOST_RETURN(pc, cfa), which is called with each return address that a walker finds, and
 * the CFA above it.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wattributes"
#ifdef __x86_64__
#define __TARGET_ARCH_x86
#else
#define __TARGET_ARCH_arm64
#endif
#include "bpf/lib/scratch.h"
#ifdef HOST_RETURN
#define walk_return(env, w, pc, cfa, fp) (HOST_RETURN(pc, cfa), (walk_return)(env, w, pc, cfa, fp))
#endif
#include "bpf/unwind/runtime.h"

static struct scratch host_scratch;
static struct row_cache host_row_cache;
/* What user space tells the walkers about the process and its runtime's binary. */
static struct runtime_process host_process;
static struct runtime_binary host_binary;
/* Values of the walkers' own maps, one value each. */
static struct {
	const void *map;
	__u64 value[1024];
} host_buffers[8];

static void *host_lookup(const void *map, const void *key)
{
	(void)key;
	if (map == &scratch)
		return &host_scratch;
	if (map == &row_caches)
		return &host_row_cache;
	if (map == &runtime_processes)
		return &host_process;
	if (map == &runtime_binaries)
		return &host_binary;
	if (map == &arena || map == &processes || map == &control)
		return NULL;
	for (size_t i = 0; i < sizeof(host_buffers) / sizeof(*host_buffers); i++) {
		if (!host_buffers[i].map)
			host_buffers[i].map = map;
		if (host_buffers[i].map == map)
			return host_buffers[i].value;
	}
	abort();
}

/* Begins a sample with these registers. */
static inline struct scratch *host_begin(const struct walk_regs *regs)
{
	memset(&host_scratch, 0, sizeof(host_scratch));
	host_scratch.out.sample.pid = 1;
	host_scratch.walk.regs = *regs;
	return &host_scratch;
}

/* Calls a runtime's walker once. */
static inline int host_walk(__u32 runtime)
{
	switch (runtime) {
#define RUNTIME(id, name, ...)                                                                     \
	case RUNTIME_##id:                                                                         \
		return name##_walk();
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	default:
		return STOP_UNSUPPORTED;
	}
}
