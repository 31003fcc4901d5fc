/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces libbpf's header when bpf/unwind is compiled for the host, with tests/host as the first
 * include directory. A map is only an address; the including file provides the values of maps and
 * the memory of the process:
 *
 *	void *host_lookup(const void *map, const void *key)		a value, or NULL
 *	long host_read(void *to, __u32 n, __u64 avma)			0 or negative
 */
#pragma once

#include <linux/types.h>

static void *host_lookup(const void *map, const void *key);
static long host_read(void *to, __u32 n, __u64 avma);

#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value) *name
#define __array(name, value) __typeof__(value) *name[]
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))

#define bpf_map_lookup_elem(map, key) host_lookup(map, key)
#define bpf_probe_read_user(to, n, from) host_read(to, (__u32)(n), (__u64)(from))
#define bpf_get_smp_processor_id() 0U
#define bpf_get_current_task() 0ULL
#define bpf_ktime_get_ns() 0ULL
