/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Two halves of an action, as lib/trace generates them: takes both stacks of an event, and counts
 * events by them. Tests load this beside the sources that walk stacks, and attach it to a function.
 */
#define SAMPLE_SECTION "kprobe"
#include "bpf/lib/maps.h"

#include "abi/trace.h"

char LICENSE[] SEC("license") = "GPL";

/* These two are replaced by those of a recording. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACE_LEVELS);
	__type(key, __u32);
	__type(value, struct trace_stacks);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, TRACE_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} slots SEC(".maps");

struct event_key {
	__u64 kernel, user, pid;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct event_key);
	__type(value, __u64);
} events SEC(".maps");

/* 0: events, 1: handled by the second half, 2: nested, 3: no level was free. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

const volatile __u32 after_call = 0;
const volatile __u32 only_pid = 0;

static __always_inline void count_as(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &what);

	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline struct trace_stacks *owned(__u64 owner)
{
	for (__u64 i = 0; i < TRACE_LEVELS; i++) {
		__u32 index = bpf_get_smp_processor_id() * TRACE_LEVELS + i;
		struct trace_stacks *t = bpf_map_lookup_elem(&stacks, &index);

		if (t && t->owner == owner)
			return t;
	}
	return NULL;
}

static __always_inline struct trace_stacks *take(__u64 owner)
{
	for (__u64 i = 0; i < TRACE_LEVELS; i++) {
		__u32 index = bpf_get_smp_processor_id() * TRACE_LEVELS + i;
		struct trace_stacks *t = bpf_map_lookup_elem(&stacks, &index);

		if (!t)
			return NULL;
		__sync_fetch_and_add(&t->users, 1);
		if (*(volatile __u64 *)&t->users == 1) {
			t->owner = owner;
			return t;
		}
		__sync_fetch_and_add(&t->users, -1);
	}
	return NULL;
}

static __always_inline void release(struct trace_stacks *t)
{
	t->owner = 0;
	__sync_fetch_and_add(&t->users, -1);
}

static __always_inline __u64 this_owner(void)
{
	return bpf_get_current_task() + BPF_PROG_TYPE_KPROBE;
}

SEC("kprobe")
int first(struct pt_regs *ctx)
{
	struct trace_stacks *t;

	if (only_pid && bpf_get_current_pid_tgid() >> 32 != only_pid)
		return 1;
	count_as(0);
	if (owned(this_owner())) {
		count_as(2);
		return 1;
	}
	t = take(this_owner());
	if (!t) {
		count_as(3);
		return 1;
	}
	t->wants = TRACE_WANTS_KERNEL | TRACE_WANTS_USER | (after_call ? TRACE_AFTER_CALL : 0);
	t->next = 1;
	bpf_tail_call(ctx, &slots, 0);
	release(t);
	return 1;
}

SEC("kprobe")
int second(struct pt_regs *ctx)
{
	struct trace_stacks *t = owned(this_owner());
	struct event_key key = {.pid = bpf_get_current_pid_tgid() >> 32};
	__u64 one = 1, *n;

	if (!t)
		return 1;
	key.kernel = t->kernel;
	key.user = t->user;
	release(t);
	count_as(1);
	n = bpf_map_lookup_elem(&events, &key);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		bpf_map_update_elem(&events, &key, &one, BPF_ANY);
	return 1;
}
