/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walkers of all runtimes (bpf/unwind), compiled for the host: one process, one sample at a
 * time, no unwind tables, so that each native frame is in an unknown mapping. Where headers are
 * looked for, tests/host comes first. The includer provides
 *
 *	long host_read(void *to, __u32 n, __u64 avma)	memory of the process: 0 or negative
 *
 * and includes what it needs of the C library and of lib/ before this. It may define
 * HOST_RETURN(pc, cfa), which is called when a walker has found a return address and the stack
 * above it.
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
/* What user space says of the process and of its runtime's binary. */
static struct runtime_process host_process;
static struct runtime_binary host_binary;
/* The walkers' own buffers: a value for each map that is not one of those above. */
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

/* A sample begins, with these registers. */
static inline struct scratch *host_begin(const struct walk_regs *regs)
{
	memset(&host_scratch, 0, sizeof(host_scratch));
	host_scratch.out.sample.pid = 1;
	host_scratch.walk.regs = *regs;
	return &host_scratch;
}

/* One step of a runtime's walker. */
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
