/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls of allocators, by probes in the allocators' functions (abi/alloc.h). A call that was drawn
 * is walked when it returns, because only then the address of the object is known. The stack
 * begins at the caller.
 *
 *	the call begins	  counted; drawn or not; the object of a free() or realloc() is looked up
 *	the call returns  only if it was drawn: the object is entered, and the stack is walked
 *
 * Linux 6.13 has sessions of uprobes: what the program returns at the begin of a call decides
 * whether its return is probed (`session`). On older kernels each return is probed (`begins_…`,
 * `ends`), which costs another trap.
 */
#define SAMPLE_SECTION "uprobe"
#define SAMPLE_CONTEXT struct pt_regs
#define SAMPLE_RESULT 0
#define SAMPLE_LEVELS 4
#define SAMPLE_AFTER_CALL(s) true
#define SAMPLE_ATTRIBUTES describe_object
#define SAMPLE_FINISH finish_call
/* Memory belongs to no span. */
#define SAMPLE_TAKES_CONTEXT(s) false

struct scratch;
static __attribute__((always_inline)) void describe_object(struct scratch *s, void *ctx);
static __attribute__((always_inline)) void finish_call(struct scratch *s);

#include "bpf/prog/sample.h"

#include "abi/alloc.h"

/* User space adds and removes the processes that are probed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ALLOC_MAX_PROCESSES);
	__type(key, __u32);
	__type(value, struct alloc_process);
} alloc_processes SEC(".maps");

/* User space reads the counters. A thread that has not called for long may be evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ALLOC_MAX_THREADS);
	__type(key, __u64);
	__type(value, struct alloc_thread);
} alloc_threads SEC(".maps");

/* Sampled objects that have not been freed. If the map is full, further ones are not followed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ALLOC_MAX_OBJECTS);
	__type(key, struct alloc_object_key);
	__type(value, struct alloc_object);
} alloc_objects SEC(".maps");

/* What is known of a place from which allocators are called. An evicted one begins again. */
struct stratum {
	__u64 threshold; /* bytes; 0: each call is drawn */
	__u64 mean;	 /* bytes of a call */
	__u32 epoch;
	__u32 walks; /* in the epoch, since the threshold was raised */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ALLOC_MAX_STRATA);
	__type(key, __u64);
	__type(value, struct stratum);
} alloc_strata SEC(".maps");

#if defined(__TARGET_ARCH_x86)
#define ARGUMENT0(r) ((r)->di)
#define ARGUMENT1(r) ((r)->si)
#define ARGUMENT2(r) ((r)->dx)
#define RESULT(r) ((r)->ax)
#define PC(r) ((r)->ip)
#define SP(r) ((r)->sp)
#define RETURN_POPS 8
#else
#define ARGUMENT0(r) ((r)->regs[0])
#define ARGUMENT1(r) ((r)->regs[1])
#define ARGUMENT2(r) ((r)->regs[2])
#define RESULT(r) ((r)->regs[0])
#define PC(r) ((r)->pc)
#define SP(r) ((r)->sp)
#define RETURN_POPS 0
#endif

/* A call costs the allocator some bytes more, and is not rare because it asks for none. */
#define CALL_BYTES 16
#define THRESHOLD_MAX (1ULL << 40)
#define STANDS_FOR_MAX (1ULL << 32)

static __always_inline __u64 return_address(const bpf_user_pt_regs_t *r)
{
#if defined(__TARGET_ARCH_x86)
	__u64 ra = 0;

	if (bpf_probe_read_user(&ra, sizeof(ra), (const void *)r->sp) < 0)
		return 0;
	return ra;
#else
	return r->regs[30];
#endif
}

static __always_inline struct alloc_thread *thread_get(__u64 id)
{
	struct alloc_thread *t = bpf_map_lookup_elem(&alloc_threads, &id);
	struct alloc_thread fresh = {};

	if (t)
		return t;
	bpf_map_update_elem(&alloc_threads, &id, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&alloc_threads, &id);
}

/* ---- drawing ---- */

static __always_inline struct stratum *stratum_get(__u64 key)
{
	struct stratum *st = bpf_map_lookup_elem(&alloc_strata, &key);
	struct stratum fresh = {};

	if (st)
		return st;
	bpf_map_update_elem(&alloc_strata, &key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&alloc_strata, &key);
}

/* A new epoch: a stratum that was walked seldom gets a lower threshold. */
static __always_inline void stratum_epoch(struct stratum *st, __u32 walks_max)
{
	__u32 epoch = (__u32)(bpf_ktime_get_ns() >> ALLOC_EPOCH_SHIFT), passed = epoch - st->epoch;

	if (!passed)
		return;
	if (st->walks < walks_max / 2)
		st->threshold >>= passed < 32 ? passed : 32;
	if (st->threshold <= st->mean)
		st->threshold = 0;
	st->epoch = epoch;
	st->walks = 0;
}

/* How many calls the call stands for; 0: it is not drawn. */
static __always_inline __u64 draw(__u64 key, __u64 bytes, __u32 walks_max)
{
	struct stratum *st = stratum_get(key);
	__u64 threshold, weighs = bytes + CALL_BYTES, n = 1;

	if (!st || !walks_max)
		return 1; /* without a stratum there is no earlier call */
	stratum_epoch(st, walks_max);
	threshold = st->threshold;
	st->mean = st->mean ? (7 * st->mean + weighs) / 8 : weighs;
	if (weighs < threshold) {
		__u64 random = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();

		if (random % threshold >= weighs)
			return 0;
		/* Rounded at random, so that it is right on average. */
		n = (threshold + bpf_get_prandom_u32() % weighs) / weighs;
	}
	if (++st->walks >= walks_max) {
		st->walks = 0;
		st->threshold = threshold > st->mean ? 2 * threshold : 2 * st->mean;
		if (st->threshold > THRESHOLD_MAX)
			st->threshold = THRESHOLD_MAX;
	}
	return n < STANDS_FOR_MAX ? n : STANDS_FOR_MAX;
}

/* ---- frees ---- */

static __always_inline void send_freed(__u64 id, __u32 pid)
{
	struct record_freed r = {
		.type = RECORD_FREED,
		.source = (__u16)config.source,
		.pid = pid,
		.id = id,
	};
	struct scratch *s = scratch_get();

	if (bpf_ringbuf_output(&ring, &r, sizeof(r), BPF_RB_NO_WAKEUP) < 0 && s)
		count(s, COUNTER_LOST_FREED);
}

/* The id of the sampled object at an address, which is forgotten; 0: there is none. */
static __always_inline __u64 take_object(__u64 address, __u32 pid)
{
	struct alloc_object_key key = {.address = address, .pid = pid};
	const struct alloc_object *o = address ? bpf_map_lookup_elem(&alloc_objects, &key) : NULL;
	__u64 id;

	if (!o)
		return 0;
	id = o->id;
	bpf_map_delete_elem(&alloc_objects, &key);
	return id;
}

static __always_inline bool put_object(__u64 address, __u32 pid, __u64 id)
{
	struct alloc_object_key key = {.address = address, .pid = pid};
	struct alloc_object o = {.id = id};

	return bpf_map_update_elem(&alloc_objects, &key, &o, BPF_ANY) == 0;
}

/* ---- calls ---- */

static __always_inline __u64 bytes_asked(const bpf_user_pt_regs_t *r, __u32 function)
{
	switch (function) {
	case ALLOC_MALLOC:
		return ARGUMENT0(r);
	case ALLOC_CALLOC:
		return ARGUMENT0(r) * ARGUMENT1(r);
	case ALLOC_POSIX:
		return ARGUMENT2(r);
	default:
		return ARGUMENT1(r);
	}
}

static __always_inline bool is_inner(const struct alloc_process *p, __u64 ra)
{
	for (__u64 i = 0; i < ALLOC_MAX_INNER && i < p->n_inner; i++)
		if (ra - p->inner[i].start < p->inner[i].end - p->inner[i].start)
			return true;
	return false;
}

/* The clock of exec_start may differ from this one, but runs as fast. */
static __always_inline void note_time(struct alloc_thread *t)
{
	struct task_struct *task = task_current();

	t->cpu_ns[1] = BPF_CORE_READ(task, se.sum_exec_runtime) -
		       BPF_CORE_READ(task, se.exec_start) + bpf_ktime_get_ns();
	if (bpf_core_field_exists(task->sched_info.run_delay))
		t->delay_ns[1] = BPF_CORE_READ(task, sched_info.run_delay);
	if (t->cpu_ns[0])
		return;
	t->cpu_ns[0] = t->cpu_ns[1];
	t->delay_ns[0] = t->delay_ns[1];
}

/* Whether the call's return is of interest. */
static __always_inline bool call_begins(const bpf_user_pt_regs_t *r, __u64 cookie)
{
	__u64 thread = bpf_get_current_pid_tgid(), ra, key;
	__u32 pid = (__u32)(thread >> 32), function = cookie & 0xff;
	const struct alloc_process *p = bpf_map_lookup_elem(&alloc_processes, &pid);
	struct alloc_thread *t;

	t = p ? thread_get(thread) : NULL;
	if (!t)
		return false;
	t->calls[!!(cookie & ALLOC_COOKIE_STEPPED)]++;
	if (!p->open)
		return false;
	if (p->window)
		note_time(t);
	if (function == ALLOC_FREE) {
		__u64 id = take_object(ARGUMENT0(r), pid);

		if (id)
			send_freed(id, pid);
		return false;
	}
	/* An allocator may call itself. */
	if (t->sp && SP(r) < t->sp)
		return false;
	ra = return_address(r);
	key = walk_mix(walk_mix(walk_mix(0, ra), SP(r)), pid);
	t->bytes = bytes_asked(r, function);
	t->stands_for = draw(key, t->bytes, p->walks);
	if (t->stands_for && is_inner(p, ra))
		t->stands_for = 0;
	t->old = function == ALLOC_REALLOC ? ARGUMENT0(r) : 0;
	t->old_id = take_object(t->old, pid);
	if (!t->stands_for && !t->old_id) {
		t->sp = 0;
		return false;
	}
	t->sp = SP(r);
	t->where = ARGUMENT0(r);
	t->window = p->window;
	t->function = function;
	return true;
}

static __always_inline __u64 call_result(const bpf_user_pt_regs_t *r, const struct alloc_thread *t)
{
	__u64 address = 0;

	if (t->function != ALLOC_POSIX)
		return RESULT(r);
	if (RESULT(r) || bpf_probe_read_user(&address, sizeof(address), (const void *)t->where) < 0)
		return 0;
	return address;
}

static __always_inline int call_ends(struct pt_regs *ctx)
{
	const bpf_user_pt_regs_t *r = (const bpf_user_pt_regs_t *)ctx;
	__u64 thread = bpf_get_current_pid_tgid();
	__u32 pid = (__u32)(thread >> 32);
	struct alloc_thread *t = bpf_map_lookup_elem(&alloc_threads, &thread);

	if (!t)
		return SAMPLE_RESULT;
	t->returns++;
	if (!t->sp || SP(r) != t->sp + RETURN_POPS)
		return SAMPLE_RESULT;
	t->sp = 0;
	t->result = call_result(r, t);
	if (t->old_id && !t->result && t->bytes)
		put_object(t->old, pid, t->old_id); /* it failed, and has freed nothing */
	else if (t->old_id)
		send_freed(t->old_id, pid);
	if (!t->result || !t->stands_for)
		return SAMPLE_RESULT;
	t->id = ((__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32()) >> 1 | 1;
	return sample_event(ctx, r, (__s64)(t->bytes * t->stands_for));
}

static __always_inline void describe_object(struct scratch *s, void *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	const struct alloc_thread *t = bpf_map_lookup_elem(&alloc_threads, &thread);
	struct wait_object *o = &s->out.sample.object;
	const volatile struct sampler_control *c = control_get();

	if (!t || !c)
		return;
	o->kind = WAIT_OBJECT_ALLOC;
	o->port = alloc_keeps(t->id, c->alloc_keep & 31) &&
		  put_object(t->result, (__u32)(thread >> 32), t->id);
	o->owner = t->window;
	o->address[0] = t->id;
	o->address[1] = t->result;
	s->out.sample.bytes = (__s64)t->stands_for;
}

static __always_inline void finish_call(struct scratch *s)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct alloc_thread *t = bpf_map_lookup_elem(&alloc_threads, &thread);

	if (t)
		t->walk_ns += bpf_ktime_get_ns() - s->out.sample.time_ns;
}

/* ---- programs ---- */

/* 1 at the begin of a call: its return is not probed. */
SEC("uprobe")
int session(struct pt_regs *ctx)
{
	const bpf_user_pt_regs_t *r = (const bpf_user_pt_regs_t *)ctx;

	if (PC(r) != bpf_get_func_ip(ctx))
		return call_ends(ctx);
	return !call_begins(r, bpf_get_attach_cookie(ctx));
}

#define BEGINS(name, function)                                                                     \
	SEC("uprobe")                                                                              \
	int begins_##name(struct pt_regs *ctx)                                                     \
	{                                                                                          \
		(void)call_begins((const bpf_user_pt_regs_t *)ctx, function);                      \
		return SAMPLE_RESULT;                                                              \
	}

BEGINS(malloc, ALLOC_MALLOC)
BEGINS(calloc, ALLOC_CALLOC)
BEGINS(realloc, ALLOC_REALLOC)
BEGINS(memalign, ALLOC_MEMALIGN)
BEGINS(posix, ALLOC_POSIX)
BEGINS(free, ALLOC_FREE)

SEC("uprobe")
int sample(struct pt_regs *ctx)
{
	return call_ends(ctx);
}
