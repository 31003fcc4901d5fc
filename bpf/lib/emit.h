/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sends the results of a walk to the ring: each stack once, each sample, and copies of stack memory
 * if the host can continue the walk.
 */
#pragma once

#include "bpf/lib/scratch.h"

#define SAMPLES_PER_CHECK 8

/* Whether the stack was sent in this epoch, and user space has it. */
static __always_inline bool was_sent(__u64 id)
{
	__u32 slot = (__u32)id & (SAMPLER_SEEN_SLOTS - 1);
	const __u64 *last = bpf_map_lookup_elem(&seen, &slot);

	return last && *last == (id ^ control_epoch());
}

/*
 * Sends a stack unless the map `seen` says that it was sent lately. `n` is at most `max`, a
 * constant.
 */
static __always_inline void emit_stack(struct scratch *s, struct record_stack *head, __u32 n,
				       __u32 max)
{
	__u32 slot = (__u32)head->id & (SAMPLER_SEEN_SLOTS - 1);
	__u64 mark = head->id ^ control_epoch();
	__u64 *last = bpf_map_lookup_elem(&seen, &slot);

	if (!last || *last == mark)
		return;
	/* Keep `n` in one register: old kernels forget the bounds of a spilled value. */
	asm volatile("" : "+r"(n));
	if (n > max)
		n = max;
	if (bpf_ringbuf_output(&ring, head, sizeof(*head) + n * 8, BPF_RB_NO_WAKEUP) < 0) {
		count(s, COUNTER_LOST_STACK);
		return;
	}
	*last = mark;
	count(s, COUNTER_STACKS);
}

/* Sends the `bytes` of s->kernel.frames, and returns the stack's id. */
static __always_inline __u64 emit_kernel_frames(struct scratch *s, long bytes)
{
	struct record_stack *head = &s->kernel.head;
	__u64 hash = 0;
	__u32 n = (__u32)bytes / 8;

	for (__u64 i = 0; i < SAMPLE_MAX_KERNEL_FRAMES; i++) {
		if (i >= n)
			break;
		hash = walk_mix(hash, s->kernel.frames[i]);
	}
	head->type = RECORD_STACK;
	head->flags = RECORD_KERNEL;
	head->n = (__u16)n;
	head->stop = n < SAMPLE_MAX_KERNEL_FRAMES ? STOP_COMPLETE : STOP_TOO_DEEP;
	head->id = hash ? hash : 1;
	emit_stack(s, head, n, SAMPLE_MAX_KERNEL_FRAMES);
	return head->id;
}

static __always_inline __u64 emit_kernel_stack(struct scratch *s, void *ctx)
{
	long bytes = bpf_get_stack(ctx, s->kernel.frames, SAMPLE_MAX_KERNEL_FRAMES * 8, 0);

	if (bytes <= 0) {
		count(s, COUNTER_KSTACK_FAIL);
		return 0;
	}
	return emit_kernel_frames(s, bytes);
}

static __always_inline __u64 emit_user_stack(struct scratch *s)
{
	struct record_stack *head = &s->user.head;

	head->type = RECORD_STACK;
	head->flags = 0;
	head->n = (__u16)s->walk.n;
	head->stop = (__u16)s->stop;
	head->id = walk_stack_id(s->walk.hash, s->stop);
	head->pid = s->out.sample.pid;
	emit_stack(s, head, s->walk.n, SAMPLE_MAX_FRAMES);
	s->counters[COUNTER_FRAMES] += s->walk.n;
	s->counters[COUNTER_KNOWN_FRAMES] += s->followed;
	return head->id;
}

/* Whether more than `bytes` of the ring wait for user space. */
static __always_inline bool ring_fuller_than(__u32 bytes)
{
	return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > bytes;
}

/*
 * The most walks in 100 ms that the host repeats from the beginning. Walks go astray seldom, or go
 * astray every time, and then to repeat them is of no use.
 */
#define STRAYED_PER_TICK 8

enum defer {
	DEFER_NO,
	DEFER_REST,  /* the host continues the walk from the current registers */
	DEFER_WHOLE, /* the host repeats the walk from the beginning */
};

static __always_inline enum defer defer_how(struct scratch *s)
{
	struct defer_budget *b = &s->budget;
	enum defer how = DEFER_REST;
	__u64 tick = s->out.sample.time_ns / 100000000;
	int stop = (int)s->stop;
	/* The host would end a repeated walk at the first frame of a runtime. */
	bool strayed = walk_has_strayed(stop, s->walk.n) && !s->runtime_frames;

	if (!(walk_can_resume(stop) || strayed))
		return DEFER_NO;
	if (b->tick != tick) {
		b->tick = tick;
		b->samples = 0;
		b->strayed = 0;
	}
	if (strayed && b->strayed < STRAYED_PER_TICK)
		how = DEFER_WHOLE;
	else if (!walk_can_resume(stop))
		return DEFER_NO;
	/*
	 * DEFERRED records and copies may use only half of the ring, so that a delayed reader loses
	 * no samples.
	 */
	if (b->samples >= config.defer_per_tick || ring_fuller_than(config.ring_bytes / 2)) {
		count(s, COUNTER_DEFER_LIMIT);
		return DEFER_NO;
	}
	b->samples++;
	b->strayed += how == DEFER_WHOLE;
	return how;
}

static __always_inline bool emit_copy(__u64 at, __u32 index, const struct scratch *s)
{
	struct record_copy *copy = bpf_ringbuf_reserve(&ring, sizeof(*copy), 0);

	if (!copy)
		return false;
	copy->type = RECORD_COPY;
	copy->index = (__u16)index;
	copy->source = (__u8)config.source;
	copy->level = (__u8)(s->row % SAMPLE_MAX_LEVELS);
	copy->cpu = (__u16)s->out.sample.cpu;
	copy->address = at;
	if (bpf_probe_read_user(copy->data, SAMPLE_COPY_BYTES, (const void *)at) < 0) {
		bpf_ringbuf_discard(copy, BPF_RB_NO_WAKEUP);
		return false;
	}
	bpf_ringbuf_submit(copy, BPF_RB_NO_WAKEUP);
	return true;
}

/*
 * The memory of a stack to copy, [start, end). `next` is where the frame pointers lead from this
 * memory: to the stack on which Go's systemstack was called, or to 0, the end of the stack.
 */
struct extent {
	__u64 start, end;
	__u64 next;
};

#define CHAIN_LINKS 32
#define CHAIN_MIN 3
/*
 * Bytes to copy above the chain's last link: the frames that started the thread, and its arguments.
 */
#define CHAIN_SLACK (2 * SAMPLE_COPY_BYTES)
/* The least to copy above sp: a chain that looks valid may not be one. */
#define CHAIN_LEAST (8 * SAMPLE_COPY_BYTES)

/*
 * The end of the stack that pthread_create() has made for a thread, if sp may be on that stack; 0:
 * unknown. glibc and musl put the thread's control block, to which the thread pointer points, above
 * the stack in the same mapping. The memory above the block belongs to others and is often
 * readable. A stack in another mapping, say a coroutine's, may lie below the block, too; it ends
 * before the block. On x86-64 the block begins with its own address. Go's thread-local storage does
 * not, and is in one heap with Go's stacks.
 */
static __always_inline __u64 thread_stack_end(const struct walk_regs *regs)
{
	__u64 tls = regs->tls, self = tls;

	if (tls <= regs->sp)
		return 0;
#if UNWIND_REG_FP == 6
	if (bpf_probe_read_user(&self, sizeof(self), (const void *)tls) < 0)
		return 0;
#endif
	return self == tls ? (tls | (SAMPLE_COPY_BYTES - 1)) + 1 : 0;
}

/*
 * The memory to copy above `sp`: `pages`, or less if the frame pointers lead to the end of the
 * stack. In code without frame pointers the register holds anything. So a chain counts only if it
 * has at least CHAIN_MIN links, ascends, and each link has a word that could be a return address.
 */
static __always_inline struct extent stack_extent(__u64 sp, __u64 fp, __u32 pages)
{
	struct extent x = {.start = sp & ~(__u64)(SAMPLE_COPY_BYTES - 1)};
	__u64 link[2], last = 0;
	int n = 0;

	x.end = x.start + (__u64)pages * SAMPLE_COPY_BYTES;
	for (__u64 i = 0; i < CHAIN_LINKS; i++) {
		if (fp <= last || fp < x.start || fp >= x.end || fp & 7)
			break;
		if (bpf_probe_read_user(link, sizeof(link), (const void *)fp) < 0 ||
		    link[1] < WALK_MIN_PC || (link[1] >= x.start && link[1] < x.end))
			return x;
		last = fp;
		fp = link[0];
		n++;
	}
	if (fp >= x.start && fp < x.end)
		return x; /* more than CHAIN_LINKS links, or the chain descends */
	x.next = fp;
	if (n >= CHAIN_MIN && !fp) {
		last = (last & ~(__u64)(SAMPLE_COPY_BYTES - 1)) + CHAIN_SLACK;
		last = last > x.start + CHAIN_LEAST ? last : x.start + CHAIN_LEAST;
		x.end = last < x.end ? last : x.end;
	}
	return x;
}

/* A longer gap in the memory is the end of the stack. */
#define GAP_PAGES 3

/* Whether there is memory after a gap that begins at `at`. */
static __always_inline bool goes_on(__u64 at)
{
	__u64 word;

	return bpf_probe_read_user(&word, sizeof(word),
				   (const void *)(at + GAP_PAGES * SAMPLE_COPY_BYTES)) == 0;
}

/*
 * Copies [start, end) page by page, up to the end of the memory. Pages may be missing: the first
 * page, if a function has just moved sp there and is about to take the page fault; or pages in the
 * middle of a frame of which the function has used only a part. Returns the number of copies so
 * far.
 */
static __always_inline __u32 emit_extent(const struct scratch *s, const struct extent *x, __u32 max,
					 __u32 n)
{
	__u64 at = x->start;

	for (__u64 i = 0; i < max && at < x->end; i++, at += SAMPLE_COPY_BYTES) {
		if (emit_copy(at, n, s))
			n++;
		else if (i && !goes_on(at))
			break;
	}
	return n;
}

/*
 * Copies the walk's stack from sp upwards, and if the frame pointers lead to another stack, that
 * stack. Returns the number of copies.
 */
static __always_inline __u32 emit_copies(const struct scratch *s)
{
	const struct walk_regs *regs = &s->out.regs;
	struct extent x = stack_extent(regs->sp, regs->fp, SAMPLE_STACK_COPIES);
	__u64 end = thread_stack_end(regs);
	__u32 n;

	if (end && end < x.end)
		x.end = end;
	n = emit_extent(s, &x, SAMPLE_STACK_COPIES, 0);
	if (x.next) {
		x = stack_extent(x.next, x.next, SAMPLE_OTHER_COPIES);
		n = emit_extent(s, &x, SAMPLE_OTHER_COPIES, n);
	}
	return n;
}

/* Sends registers and stack memory, from which the host continues or repeats the walk. */
static __always_inline bool emit_deferred(struct scratch *s)
{
	struct record_deferred *d = &s->out;

	d->regs = s->walk.regs;
	d->stop = s->stop;
	d->n_copies = (__u16)emit_copies(s);
	d->level = (__u16)(s->row % SAMPLE_MAX_LEVELS);
	d->sample.type = RECORD_DEFERRED;
	if (bpf_ringbuf_output(&ring, d, sizeof(*d), BPF_RB_FORCE_WAKEUP) < 0) {
		count(s, COUNTER_LOST_DEFERRED);
		return false;
	}
	count(s, COUNTER_DEFERRED);
	return true;
}

/*
 * User space reads on a timer; BPF wakes it only if the ring is getting full. The query costs as
 * much as two frames, so only one sample in SAMPLES_PER_CHECK makes it.
 */
static __always_inline bool ring_needs_reader(const struct scratch *s)
{
	return !(s->counters[COUNTER_SAMPLES] % SAMPLES_PER_CHECK) &&
	       ring_fuller_than(config.ring_bytes / 4);
}

static __always_inline void emit_sample(struct scratch *s)
{
	__u64 flags = ring_needs_reader(s) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;

	s->out.sample.type = RECORD_SAMPLE;
	if (bpf_ringbuf_output(&ring, &s->out.sample, sizeof(s->out.sample), flags) < 0)
		count(s, COUNTER_LOST_SAMPLE);
	else
		count(s, COUNTER_SAMPLES);
}
