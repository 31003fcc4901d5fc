/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page faults that bring pages which the ledger of resident memory follows (abi/resident.h,
 * agent/pipeline/resident.h). User space hears of each of them, so that a page never keeps the
 * stack of an earlier fault. Which of them are samples, with a stack, is drawn within the budget,
 * as those of fault-bytes are.
 *
 *	page-faults    `begin` notes the entries of the page table around the address
 *	minor-faults,  `minor`, `sample`: the entries that are new then are the pages
 *	major-faults
 *	mremap()       by kprobes or tracepoints: pages have another address
 */
#define SAMPLE_SECTION "perf_event"
#define SAMPLE_CONTEXT struct bpf_perf_event_data
#define SAMPLE_RESULT 0
#define SAMPLE_ATTRIBUTES describe_pages
#define SAMPLE_FINISH finish_fault
/* Memory belongs to no span. */
#define SAMPLE_TAKES_CONTEXT(s) false

struct scratch;
static __attribute__((always_inline)) void describe_pages(struct scratch *s, void *ctx);
static __attribute__((always_inline)) void finish_fault(struct scratch *s);

/* Memory comes in bursts: what a second of the budget leaves is for the next one. */
#define DRAWING_SAVED_WINDOWS 100
#define FAULTS_BEGUN resident_begun
#include "bpf/prog/fault.h"

#include "abi/resident.h"

static __always_inline void finish_fault(struct scratch *s)
{
	struct fault *f = fault_get();

	if (f)
		drawing_spent(&f->drawing, s);
}

static __always_inline void describe_pages(struct scratch *s, void *ctx)
{
	const struct fault *f = fault_get();
	struct wait_object *o = &s->out.sample.object;

	if (!f)
		return;
	o->kind = WAIT_OBJECT_PAGES;
	o->owner = f->shift;
	o->address[0] = f->pages.address;
	o->address[1] = f->bits;
}

/* Whether one of the pages is followed. A huge page has some that are. */
static __always_inline bool is_followed(const struct fault *f)
{
	const volatile struct sampler_control *c = control_get();
	__u64 page = f->pages.address >> config.page_shift, below = c ? c->resident_below : 0;

	if (!below || !f->bits)
		return false;
	if (f->pages.huge || below >= RESIDENT_ALL)
		return true;
	for (__u32 i = 0; i < PAGES_WINDOW; i++)
		if (f->bits >> i & 1 && resident_hash(c->resident_seed, page + i) < below)
			return true;
	return false;
}

static __always_inline void send_pages(const struct fault *f, __u32 pid)
{
	struct record_pages r = {
		.type = RECORD_PAGES,
		.source = (__u16)config.source,
		.pid = pid,
		.time_ns = bpf_ktime_get_ns(),
		.address = f->pages.address,
		.bits = f->bits,
		.shift = f->shift,
	};
	struct scratch *s = scratch_get();

	if (bpf_ringbuf_output(&ring, &r, sizeof(r), BPF_RB_NO_WAKEUP) < 0 && s)
		count(s, COUNTER_LOST_SAMPLE);
}

/* Huge pages take long enough by themselves: each is a sample. */
static __always_inline bool is_drawn(struct fault *f)
{
	if (!f->pages.huge || config.period)
		return drawing_next(&f->drawing);
	f->drawing.stands_for = 1;
	return true;
}

static __always_inline int end(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = task_current();
	struct fault *f = fault_get();

	if (!f || !fault_is_wanted(task) || !fault_read(f, task, ctx->addr))
		return 0;
	f->bits = pages_new(&f->before, &f->pages);
	f->shift = config.page_shift;
	if (f->pages.huge)
		while (f->shift < 63 && 1ULL << f->shift < f->pages.entry_bytes)
			f->shift++;
	if (!is_followed(f))
		return 0;
	if (is_drawn(f))
		return sample_event(ctx, &ctx->regs, (__s64)f->drawing.stands_for);
	send_pages(f, (__u32)task_read(task, tgid));
	return 0;
}

SEC("perf_event")
int minor(struct bpf_perf_event_data *ctx)
{
	return end(ctx);
}

/* A major fault. */
SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	return end(ctx);
}

/* ---- mremap ---- */

struct move {
	__u64 from, bytes;
};

/* Calls of mremap() that have begun, by thread. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct move);
} moves_begun SEC(".maps");

#if defined(__TARGET_ARCH_x86)
#define CALL_ARGUMENT(ctx) ((ctx)->di)
#define CALL_RESULT(ctx) ((ctx)->ax)
#define SYSCALL_ARGUMENT(r, x86, n) ((r)->x86)
#else
#define CALL_ARGUMENT(ctx) ((ctx)->regs[0])
#define CALL_RESULT(ctx) ((ctx)->regs[0])
#define SYSCALL_ARGUMENT(r, x86, n) ((r)->regs[n])
#endif

static __always_inline void begin_move(__u64 from, __u64 old_bytes, __u64 new_bytes)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct move m = {.from = from, .bytes = old_bytes < new_bytes ? old_bytes : new_bytes};

	if (fault_is_wanted(task_current()))
		bpf_map_update_elem(&moves_begun, &thread, &m, BPF_ANY);
}

static __always_inline void end_move(__u64 to)
{
	__u64 thread = bpf_get_current_pid_tgid();
	const struct move *m = bpf_map_lookup_elem(&moves_begun, &thread);
	struct record_moved r = {.type = RECORD_MOVED, .source = (__u16)config.source};
	struct scratch *s = scratch_get();

	if (!m)
		return;
	r.pid = (__u32)(thread >> 32);
	r.time_ns = bpf_ktime_get_ns();
	r.from = m->from;
	r.to = to;
	r.bytes = m->bytes;
	bpf_map_delete_elem(&moves_begun, &thread);
	/* An error is a small negative number, and no page's address. */
	if (to & ((1ULL << config.page_shift) - 1) || to == r.from)
		return;
	if (bpf_ringbuf_output(&ring, &r, sizeof(r), BPF_RB_NO_WAKEUP) < 0 && s)
		count(s, COUNTER_LOST_SAMPLE);
}

/* The system call's function has the registers of user mode as its argument. */
SEC("kprobe")
int move_begins(struct pt_regs *ctx)
{
	bpf_user_pt_regs_t r;

	if (bpf_probe_read_kernel(&r, sizeof(r), (const void *)CALL_ARGUMENT(ctx)) == 0)
		begin_move(SYSCALL_ARGUMENT(&r, di, 0), SYSCALL_ARGUMENT(&r, si, 1),
			   SYSCALL_ARGUMENT(&r, dx, 2));
	return 0;
}

SEC("kretprobe")
int move_ends(struct pt_regs *ctx)
{
	end_move(CALL_RESULT(ctx));
	return 0;
}

/* As tracefs describes them. */
struct syscall_enters {
	__u64 common;
	__u64 number;
	__u64 arguments[6];
};

struct syscall_exits {
	__u64 common;
	__u64 number;
	__u64 result;
};

SEC("tracepoint/syscalls/sys_enter_mremap")
int mremap_enters(const struct syscall_enters *ctx)
{
	begin_move(ctx->arguments[0], ctx->arguments[1], ctx->arguments[2]);
	return 1;
}

SEC("tracepoint/syscalls/sys_exit_mremap")
int mremap_exits(const struct syscall_exits *ctx)
{
	end_move(ctx->result);
	return 1;
}
