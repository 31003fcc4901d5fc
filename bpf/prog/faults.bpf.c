/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page faults with the memory that they bring: how many bytes have become resident or were copied.
 * The kernel counts a fault when it begins, and as minor or major when it has ended:
 *
 *	page-faults      `begin` notes the entries of the page table around the address
 *	minor-faults or  `minor`, `sample`: what is new in these entries is what the fault has
 *	major-faults     brought, be it a page, a huge page, or pages of a file around it
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

#define FAULTS_BEGUN faults_begun
#include "bpf/prog/fault.h"
#include "bpf/prog/sample.h"

/* Whether the fault becomes a sample; it stands for drawing.stands_for. */
static __always_inline bool is_drawn(struct fault *f)
{
	bool takes_long = f->is_major || f->bytes > PAGES_WINDOW << config.page_shift;

	if (!takes_long || config.period)
		return drawing_next(&f->drawing);
	f->drawing.stands_for = 1;
	return true;
}

static __always_inline void finish_fault(struct scratch *s)
{
	struct fault *f = fault_get();

	if (f)
		drawing_spent(&f->drawing, s);
}

static __always_inline void describe_fault(struct scratch *s, void *ctx)
{
	struct gathered *g = &s->gathered;
	struct fault *f = fault_get();

	if (!f)
		return;
	s->out.sample.bytes = (__s64)(f->bytes * f->drawing.stands_for);
	g->form = ATTRIBUTES_FIELDS;
	g->left_out = 0;
	g->n = 3;
	g->bytes[0] = 0;
	g->bytes[1] = 1;
	g->bytes[2] = (__u8)f->is_major;
	s->out.sample.event_attributes = attributes_send(s);
}

static __always_inline int end(struct bpf_perf_event_data *ctx, __u64 is_major)
{
	struct task_struct *task = task_current();
	struct fault *f = fault_get();

	if (!f || !fault_is_wanted(task))
		return 0;
	f->bytes = fault_read(f, task, ctx->addr) ? pages_gained(&f->before, &f->pages) : 0;
	f->is_major = is_major;
	return is_drawn(f) ? sample_event(ctx, &ctx->regs, (__s64)f->drawing.stands_for) : 0;
}

SEC("perf_event")
int minor(struct bpf_perf_event_data *ctx)
{
	return end(ctx, 0);
}

/* A major fault. */
SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	return end(ctx, 1);
}
