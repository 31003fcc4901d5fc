/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The configuration of a source, and what its programs share with those of other sources: each map
 * here is one map for all BPF objects (agent/sampler/sampler.c joins them by name).
 */
#pragma once

/* clang-format off */
#include "bpf/lib/kernel.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
/* clang-format on */

#include "abi/runtime.h"
#include "abi/sample.h"

/* Set between open and load; the verifier drops what it rules out. */
const volatile struct sampler_config config = {};

/* What user space changes while the programs run. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sampler_control);
} control SEC(".maps");

static __always_inline const volatile struct sampler_control *control_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline __u64 control_epoch(void)
{
	const volatile struct sampler_control *c = control_get();

	return c ? c->epoch : 0;
}

/* Records to user space (abi/sample.h). Sized at load; a full ring is counted, never waited for. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} ring SEC(".maps");

/* A chunk of the arena (abi/unwind.h): user space writes it through mmap. */
struct arena_chunk {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LINES_PER_CHUNK);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, UNWIND_LINE_BYTES);
};

/* The arena's chunks by number; user space adds and removes them. One that is gone is a miss. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, UNWIND_MAX_CHUNKS);
	__type(key, __u32);
	__array(values, struct arena_chunk);
} arena SEC(".maps");

/*
 * Known processes by tgid; user space adds, replaces, removes. When full: unknown, so deferred.
 * This hash and runtime_processes are preallocated here, as perf_event programs must have it before
 * Linux 6.1 (commit 34dd3bad1a6f). From there on user space makes them larger, with entries that
 * are allocated on demand.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct process_entry);
} processes SEC(".maps");

/* What the walkers of language runtimes know (abi/runtime.h); user space fills them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RUNTIME_MAX_BINARIES);
	__type(key, __u32);
	__type(value, struct runtime_binary);
} runtime_binaries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct runtime_key);
	__type(value, struct runtime_process);
} runtime_processes SEC(".maps");

/*
 * Ids of the stacks that were sent in this epoch, direct-mapped by the id's low bits: id ^ epoch.
 * A collision overwrites, and costs one more STACK record when the other comes again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SAMPLER_SEEN_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

/*
 * Filters, filled before attaching; pids also by the fork program, which notes when the process
 * started: a pid that is used again at once is another's. 1 when user space chose it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} filter_pids SEC(".maps");

struct filter_comm {
	char comm[SAMPLE_COMM_BYTES];
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SAMPLER_MAX_FILTERS);
	__type(key, struct filter_comm);
	__type(value, __u32);
} filter_comms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SAMPLER_MAX_FILTERS);
	__type(key, __u32);
	__type(value, __u32);
} filter_uids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, SAMPLER_MAX_FILTERS);
	__type(key, __u32);
	__type(value, __u32);
} filter_cgroups SEC(".maps");
