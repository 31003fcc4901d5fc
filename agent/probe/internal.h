/* SPDX-License-Identifier: Apache-2.0 */
/* The single probes: probe.c implements them, report.c reports them. */
#pragma once

#include "base/types.h"

#include <linux/perf_event.h>

#define PROBE_CAP(cap) (1ULL << (cap))

/* Effective capabilities of this thread as a bit set; 0 when they cannot be read. */
u64 probe_caps(void);
/* Returns those of CAP_BPF and CAP_PERFMON that are missing; CAP_SYS_ADMIN includes both. */
u64 probe_caps_missing(u64 caps);
/* "CAP_A, CAP_B and CAP_C" */
void probe_caps_text(u64 caps, char *buf, size_t size);
/* The path of this executable, for commands that the user can paste. */
void probe_self_path(char *buf, size_t size);

/*
 * Returns what is wrong with the namespaces of this process, and what to do about it; NULL: they
 * are the host's. Static texts.
 */
const char *probe_namespaces(const char **ret_advice);

/* Each returns 0 or a negative errno. */
int probe_bpf_syscall(void);
int probe_btf(void);
int probe_ringbuf(void);
int probe_mmapable_array(void);
int probe_array_of_mmapable(void);
/* Loads an empty program of type perf_event. */
int probe_perf_event_prog(void);
/*
 * Loads a program that calls a function and jumps to another program. arm64 allows both in one
 * program from Linux 6.0 on (commit d4609a5d8c70), x86-64 from 5.10 on; neither does without the
 * JIT.
 */
int probe_calls_and_jumps(void);
#define PROBE_NO_CALLS_AND_JUMPS                                                                   \
	"this kernel refuses BPF programs that both call functions and jump to other programs; "   \
	"boot Linux 6.0 or newer (arm64), or enable the JIT: sysctl net.core.bpf_jit_enable=1"
/*
 * Whether programs may read the memory of processes in an interrupt (usercopy.c). -EDEADLK: the
 * kernel can hang. Another error: that is not known. The first call takes 120 ms. Any thread.
 */
int probe_user_reads(void);
#define PROBE_UNSAFE_USER_READS                                                                    \
	"this kernel can hang when a BPF program reads the memory of a process (its "              \
	"copy_from_user_nofault() takes a lock); update it: 6.1.36, 6.3.10, 6.4 and newer are "    \
	"mended"
/* Whether code at `address` calls or jumps to `target`; for EM_X86_64 and EM_AARCH64. */
bool probe_code_calls(u16 machine, const u8 *code, size_t n, u64 address, u64 target);
/* Whether it reads 32 bits at `offset` from a pointer; x86-64: whether it has such a number. */
bool probe_code_reads(u16 machine, const u8 *code, size_t n, u32 offset);
/*
 * Loads one that looks into a hash map whose entries are not preallocated, as is allowed from Linux
 * 6.1 on (commit 34dd3bad1a6f).
 */
/* Whether such a program may call the helper: 1, 0 or negative errno. */
int probe_helper(int helper);
/* Whether BPF memory is charged to the cgroup instead of RLIMIT_MEMLOCK: 1, 0 or negative errno. */
int probe_cgroup_accounting(void);
/* Opens and closes the event for all processes on the first online CPU. */
int probe_perf_event(struct perf_event_attr *attr);
int probe_cpu_clock(void);
int probe_cycles(void);
int probe_sideband(bool build_id);
int probe_kallsyms(void);
int probe_map_files(void);

/* Instructions that look key 0 up in an array or hash map; r0 is the value's address, or 0. */
#define PROBE_LOOK_UP_0(map)                                                                       \
	{.code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = 10, .off = -4},                              \
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 2, .src_reg = 10},                \
		{.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 2, .imm = -4},                    \
		{.code = BPF_LD | BPF_DW | BPF_IMM,                                                \
		 .dst_reg = 1,                                                                     \
		 .src_reg = BPF_PSEUDO_MAP_FD,                                                     \
		 .imm = (map)},                                                                    \
		{},                                                                                \
	{                                                                                          \
		.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_lookup_elem                        \
	}

/* First bytes of a file without the newline at the end; 0 or negative errno. */
int probe_read_text(const char *path, char *buf, size_t size);
