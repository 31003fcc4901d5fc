/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walkers of all runtimes (bpf/unwind), compiled for the host. They walk one process with one
 * runtime, one sample at a time. Without host_arena there are no unwind tables, and each native
 * frame is in an unknown mapping. tests/host must be the first include directory. The including
 * file provides
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
static __u32 host_runtime;
static struct runtime_process host_process;
static struct runtime_binary host_binary;
/* The lines of the unwind tables (abi/unwind.h), in one chunk; NULL: there are none. */
static const __u8 (*host_arena)[UNWIND_LINE_BYTES];
static __u32 host_n_lines;
/* Values of the walkers' own maps, one value each. */
static struct {
	const void *map;
	__u64 value[1024];
} host_buffers[16];

static __noinline void *host_lookup(const void *map, const void *key)
{
	if (map == &scratch)
		return &host_scratch;
	if (map == &row_caches)
		return &host_row_cache;
	if (map == &runtime_processes)
		return ((const struct runtime_key *)key)->runtime == host_runtime ? &host_process
										  : NULL;
	if (map == &runtime_binaries)
		return &host_binary;
	if (map == &arena)
		return host_arena && !*(const __u32 *)key ? (void *)host_arena : NULL;
	if (host_arena && map == host_arena)
		return *(const __u32 *)key < host_n_lines ? (void *)host_arena[*(const __u32 *)key]
							  : NULL;
	if (map == &processes || map == &control)
		return NULL;
	for (size_t i = 0; i < sizeof(host_buffers) / sizeof(*host_buffers); i++) {
		if (!host_buffers[i].map)
			host_buffers[i].map = map;
		if (host_buffers[i].map == map)
			return host_buffers[i].value;
	}
	abort();
}

/* Begins a sample of a process with this runtime, with these registers. */
static inline struct scratch *host_begin(__u32 runtime, const struct walk_regs *regs)
{
	memset(&host_scratch, 0, sizeof(host_scratch));
	host_runtime = runtime;
	host_scratch.out.sample.pid = 1;
	host_scratch.image = host_process.image;
	host_scratch.first = host_scratch.walk.regs = *regs;
	return &host_scratch;
}
