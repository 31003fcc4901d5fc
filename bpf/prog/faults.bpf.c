/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page faults with the memory that they bring: how many bytes have become resident or were copied.
 * The kernel counts a fault when it begins, and as minor or major when it has ended:
 *
 *	page-faults              `begin` notes the entries of the page table around the address
 *	minor-faults, or         `minor`, `major`: what is new in these entries is what the fault
 *	major-faults             has brought, be it a page, a huge page, or pages of a file around it
 *
 * Faults that fail end with neither. All faults are accounted for; which of them become samples is
 * drawn: one of `period` on average, which stands for all since the one before. So the sum of the
 * faults is exact, and that of the bytes right on average. The period follows the time that the
 * CPU's walks take. Major faults and huge pages take long enough by themselves: each is a sample.
 */
#define SAMPLE_SECTION "perf_event"
#define SAMPLE_CONTEXT struct bpf_perf_event_data
#define SAMPLE_RESULT 0
#define SAMPLE_ATTRIBUTES describe_fault
#define SAMPLE_FINISH finish_fault

struct scratch;
static __attribute__((always_inline)) void describe_fault(struct scratch *s, void *ctx);
static __attribute__((always_inline)) void finish_fault(struct scratch *s);

#include "bpf/lib/pages.h"
#include "bpf/prog/sample.h"

/* Faults that have begun, by thread. Of a fault that fails, the entry stays until it is the oldest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct pages);
} begun SEC(".maps");

/* The fault that is sampled, and how the CPU draws the next. */
struct drawing {
	__u64 stands_for; /* faults */
	__u64 bytes;
	__u64 passed;	 /* faults since the last sample */
	__u64 left;	 /* faults until the next; 0: not drawn yet */
	__u64 period;	 /* mean of `left` */
	__u64 window_ns; /* when the current window of the budget began */
	__u64 spent_ns;	 /* on walks in this window */
	__u64 is_major;
	struct pages pages; /* too large for the stack */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct drawing);
} drawing SEC(".maps");

#define WINDOW_NS 10000000
#define PERIOD_MAX (1U << 10) /* a CPU has less than a million faults a second */

static __always_inline struct drawing *drawing_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&drawing, &zero);
}

static __always_inline bool is_sampled(struct task_struct *task)
{
	return !(task_read(task, flags) & PF_KTHREAD) &&
	       filter_pass(task, (__u32)task_read(task, tgid));
}

SEC("perf_event")
int begin(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = task_current();
	__u64 thread = bpf_get_current_pid_tgid();
	struct drawing *d = drawing_get();
	struct linear_map *m = pages_map();
	struct mm_struct *mm;

	if (!d || !m || !is_sampled(task))
		return 0;
	mm = task_read(task, mm);
	if (!mm)
		return 0;
	if (!m->offset)
		pages_find_map(mm, m);
	if (!m->offset)
		return 0;
	pages_read(mm, m, ctx->addr, &d->pages);
	bpf_map_update_elem(&begun, &thread, &d->pages, BPF_ANY);
	return 0;
}

/* The bytes that the fault of the current thread at `address` has brought. */
static __always_inline __u64 bytes_of(struct drawing *d, struct task_struct *task, __u64 address)
{
	__u64 thread = bpf_get_current_pid_tgid(), bytes = 0;
	struct pages *before = bpf_map_lookup_elem(&begun, &thread);
	struct mm_struct *mm = task_read(task, mm);
	const struct linear_map *m = pages_map();

	if (m && mm && before) {
		pages_read(mm, m, address, &d->pages);
		bytes = pages_gained(before, &d->pages);
	}
	if (before)
		bpf_map_delete_elem(&begun, &thread);
	return bytes;
}

static __always_inline void draw_next(struct drawing *d)
{
	if (config.period)
		d->left = config.period;
	else
		d->left = bpf_get_prandom_u32() % (2 * (d->period & (2 * PERIOD_MAX - 1)) - 1) + 1;
}

/* Whether the fault becomes a sample; it stands for d->stands_for. */
static __always_inline bool is_drawn(struct drawing *d)
{
	if (!config.period && (d->is_major || d->bytes > PAGES_WINDOW << config.page_shift)) {
		d->stands_for = 1;
		return true;
	}
	if (!d->period)
		d->period = 1;
	if (!d->left)
		draw_next(d);
	d->passed++;
	if (--d->left)
		return false;
	d->stands_for = d->passed;
	d->passed = 0;
	return true;
}

/* A window that has kept within half of the budget halves the period. */
static __always_inline void new_window(struct drawing *d, __u64 now)
{
	__u64 windows = (now - d->window_ns) / WINDOW_NS;

	if (!windows)
		return;
	if (d->spent_ns * 2 < config.budget_ns * windows && d->period > 1)
		d->period /= 2;
	d->spent_ns = 0;
	d->window_ns = now;
}

static __always_inline void finish_fault(struct scratch *s)
{
	struct drawing *d = drawing_get();
	__u64 now = bpf_ktime_get_ns();

	if (!d)
		return;
	d->spent_ns += now - s->out.sample.time_ns;
	if (d->spent_ns <= config.budget_ns)
		return;
	if (d->period < PERIOD_MAX)
		d->period *= 2;
	d->spent_ns = 0;
	d->window_ns = now;
}

static __always_inline void describe_fault(struct scratch *s, void *ctx)
{
	struct gathered *g = &s->gathered;
	struct drawing *d = drawing_get();

	if (!d)
		return;
	s->out.sample.bytes = (__s64)(d->bytes * d->stands_for);
	g->form = ATTRIBUTES_FIELDS;
	g->left_out = 0;
	g->n = 3;
	g->bytes[0] = 0;
	g->bytes[1] = 1;
	g->bytes[2] = (__u8)d->is_major;
	s->out.sample.event_attributes = attributes_send(s);
}

static __always_inline int end(struct bpf_perf_event_data *ctx, __u64 is_major)
{
	struct task_struct *task = task_current();
	struct drawing *d = drawing_get();

	if (!d || !is_sampled(task))
		return 0;
	d->bytes = bytes_of(d, task, ctx->addr);
	d->is_major = is_major;
	new_window(d, bpf_ktime_get_ns());
	return is_drawn(d) ? sample_event(ctx, &ctx->regs, (__s64)d->stands_for) : 0;
}

SEC("perf_event")
int minor(struct bpf_perf_event_data *ctx)
{
	return end(ctx, 0);
}

/* `major` */
SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	return end(ctx, 1);
}
