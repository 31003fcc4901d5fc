/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A page fault from its begin to its end, for sources of page faults: what was in the page table
 * around the address before, and what is there now. A source defines FAULTS_BEGUN, the name of its
 * map, and includes this file after it has defined what bpf/prog/sample.h asks for.
 */
#pragma once

#include "bpf/prog/sample.h"

#include "bpf/lib/drawing.h"
#include "bpf/lib/pages.h"

/* Faults that have begun, by thread. That of a fault that fails stays until it is the oldest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct pages);
} FAULTS_BEGUN SEC(".maps");

/* The fault that ends, or begins. */
struct fault {
	struct drawing drawing;
	__u64 bytes;
	__u64 is_major;
	__u32 bits; /* pages_new() */
	__u32 shift;
	struct pages before, pages; /* too large for the stack */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fault);
} fault SEC(".maps");

static __always_inline struct fault *fault_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&fault, &zero);
}

static __always_inline bool fault_is_wanted(struct task_struct *task)
{
	return !(task_read(task, flags) & PF_KTHREAD) &&
	       filter_pass(task, (__u32)task_read(task, tgid));
}

SEC("perf_event")
int begin(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = task_current();
	__u64 thread = bpf_get_current_pid_tgid();
	struct fault *f = fault_get();
	struct linear_map *m = pages_map();
	struct mm_struct *mm;

	if (!f || !m || !fault_is_wanted(task))
		return 0;
	mm = task_read(task, mm);
	if (!mm)
		return 0;
	if (!m->offset)
		pages_find_map(mm, m);
	if (!m->offset)
		return 0;
	pages_read(mm, m, ctx->addr, &f->pages);
	bpf_map_update_elem(&FAULTS_BEGUN, &thread, &f->pages, BPF_ANY);
	return 0;
}

/*
 * Reads what there is now, and takes what there was when the current thread's fault began. False:
 * one of them is unknown.
 */
static __always_inline bool fault_read(struct fault *f, struct task_struct *task, __u64 address)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct pages *before = bpf_map_lookup_elem(&FAULTS_BEGUN, &thread);
	struct mm_struct *mm = task_read(task, mm);
	const struct linear_map *m = pages_map();

	if (!before)
		return false;
	f->before = *before;
	bpf_map_delete_elem(&FAULTS_BEGUN, &thread);
	if (!m || !mm)
		return false;
	pages_read(mm, m, address, &f->pages);
	return true;
}
