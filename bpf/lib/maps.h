/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The configuration of a source, and the maps that all sources share: each map here is one map for
 * all BPF objects (agent/sampler/sampler.c joins the maps by name).
 */
#pragma once

/* clang-format off */
#include "bpf/lib/kernel.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
/* clang-format on */

#include "abi/runtime.h"
#include "abi/runtime_lock.h"
#include "abi/sample.h"

/* Set between open and load; the verifier removes code that the values rule out. */
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

/*
 * Records to user space (abi/sample.h). User space sets the size at load. If the ring is full, BPF
 * counts a loss and does not wait.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} ring SEC(".maps");

/* A chunk of the arena (abi/unwind.h). User space writes the chunk through mmap. */
struct arena_chunk {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LINES_PER_CHUNK);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, UNWIND_LINE_BYTES);
};

/*
 * The arena's chunks by number. User space adds and removes chunks; a lookup in a removed chunk
 * finds nothing.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, UNWIND_MAX_CHUNKS);
	__type(key, __u32);
	__array(values, struct arena_chunk);
} arena SEC(".maps");

/*
 * Known processes by tgid; user space adds, replaces and removes entries. If the map is full,
 * further processes stay unknown, so BPF defers their walks. Here this map and runtime_processes
 * are preallocated, which perf_event programs require before Linux 6.1 (commit 34dd3bad1a6f). From
 * 6.1 on user space makes both maps larger, with entries that the kernel allocates on demand.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct process_entry);
} processes SEC(".maps");

/*
 * What the walkers of language runtimes know about binaries and processes (abi/runtime.h); user
 * space fills both maps.
 */
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

/* What is known about locks of runtimes, by user space; as large as runtime_processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct runtime_key);
	__type(value, struct runtime_lock);
} runtime_locks SEC(".maps");

/*
 * id ^ epoch of each stack or attribute set that BPF sent in this epoch, direct-mapped by the id's
 * low bits. A collision overwrites the entry, and costs one more record when the other id comes
 * again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SAMPLER_SEEN_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

/*
 * Filters. User space fills the maps before attaching; the fork program adds to filter_pids. The
 * value of a pid is the start time of the process, because the kernel may reuse a pid at once, or
 * of enum filter_pid if user space chose the pid.
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
