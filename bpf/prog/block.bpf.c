/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests to block devices, with the stack of the thread that made them:
 *
 *	block_io_start     the request is queued, in its thread: `sample` walks the stack
 *	block_rq_complete  some or all of its bytes are done, often in an interrupt
 *	block_io_done      it is over: its time and bytes follow the sample (struct record_later)
 *	block_rq_merge     it became part of another request, which has its bytes from now on
 *
 * The time ends at the last block_rq_complete: then whoever waits is woken, and may take the CPU
 * from the thread that completes the request before block_io_done.
 *
 * Kernels before 6.5 have neither start nor done. There a request begins when it is inserted into a
 * scheduler's queue or issued to the device, mostly still in its thread, and is over when its last
 * byte is.
 */
#define SAMPLE_SECTION "raw_tracepoint"
#define SAMPLE_CONTEXT struct bpf_raw_tracepoint_args
#define SAMPLE_RESULT 0
#define SAMPLE_ATTRIBUTES describe_request
#define SAMPLE_FINISH finish_request

struct scratch;
static __attribute__((always_inline)) void describe_request(struct scratch *s, void *ctx);
static __attribute__((always_inline)) void finish_request(struct scratch *s);

#include "bpf/prog/sample.h"

#include "bpf/lib/drawing.h"
#include "bpf/lib/threads.h"

/* A request that is a sample and is not over. */
struct io {
	__u64 later; /* of its sample */
	__u64 began_ns;
	__u64 completed_ns; /* last; 0: never */
	__u64 stands_for;   /* requests */
	__u64 bytes;	    /* done so far */
};

/* By the address of struct request. User space reads what is left when the recording ends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct io);
} ios SEC(".maps");

/* The request that is being sampled on this CPU. */
struct starting {
	struct drawing drawing;
	__u64 request;
	__u64 later;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct starting);
} starting SEC(".maps");

static __always_inline struct starting *starting_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&starting, &zero);
}

/* The request of an event that, on old kernels, has its queue as first argument. */
static __always_inline __u64 request_of(struct bpf_raw_tracepoint_args *ctx)
{
	return config.block & BLOCK_HAS_QUEUE ? ctx->args[1] : ctx->args[0];
}

static __always_inline __u32 device_of(struct request *rq)
{
	struct request___before_5_17 *old = (void *)rq;
	struct block_device *part;
	struct gendisk *disk;

	if (bpf_core_field_exists(old->rq_disk)) {
		disk = BPF_CORE_READ(old, rq_disk);
	} else {
		part = BPF_CORE_READ(rq, part);
		if (part)
			return BPF_CORE_READ(part, bd_dev);
		disk = BPF_CORE_READ(rq, q, disk);
	}
	return (__u32)BPF_CORE_READ(disk, major) << 20 | (__u32)BPF_CORE_READ(disk, first_minor);
}

#define OPERATION_MASK 0xff /* REQ_OP_MASK */
#define OPERATION_WRITE 1
#define OPERATION_FLUSH 2

/* fsync() sends a flush as a write without bytes. */
static __always_inline __u8 operation_of(struct request *rq)
{
	__u8 operation = BPF_CORE_READ(rq, cmd_flags) & OPERATION_MASK;

	if (operation == OPERATION_WRITE && !BPF_CORE_READ(rq, __data_len))
		return OPERATION_FLUSH;
	return operation;
}

/*
 * This and choose_request() are functions of their own: old kernels forget the bounds of what a
 * larger `sample` spills.
 */
__noinline int describe_apart(__u64 address)
{
	struct request *rq = (struct request *)address;
	struct starting *now = starting_get();
	struct scratch *s = scratch_get();
	__u32 device = device_of(rq);
	struct gathered *g;

	if (!now || !s)
		return 0;
	g = &s->gathered;
	s->out.sample.later = now->later;
	g->form = ATTRIBUTES_FIELDS;
	g->left_out = 0;
	g->n = 7;
	g->bytes[0] = 0;
	g->bytes[1] = 5;
	g->bytes[2] = (__u8)device;
	g->bytes[3] = (__u8)(device >> 8);
	g->bytes[4] = (__u8)(device >> 16);
	g->bytes[5] = (__u8)(device >> 24);
	g->bytes[6] = operation_of(rq);
	s->out.sample.event_attributes = attributes_send(s);
	return 0;
}

static __always_inline void describe_request(struct scratch *s, void *ctx)
{
	(void)describe_apart(request_of(ctx));
}

static __always_inline void finish_request(struct scratch *s)
{
	struct starting *now = starting_get();
	struct io *io;

	if (!now)
		return;
	drawing_spent(&now->drawing, s);
	/* The walk is not the disk's time. */
	io = bpf_map_lookup_elem(&ios, &now->request);
	if (io)
		io->began_ns = bpf_ktime_get_ns();
}

static __always_inline bool is_followed(struct task_struct *task)
{
	__u32 tgid = task_read(task, tgid);

	/* An idle task has been interrupted by whoever makes the request. */
	return tgid && filter_pass(task, tgid);
}

/* Whether the request becomes a sample. */
__noinline int choose_request(__u64 rq)
{
	struct starting *now = starting_get();
	struct io io = {.began_ns = bpf_ktime_get_ns()};

	if (!now || !is_followed(task_current()) || recorded().end)
		return 0;
	if (!(config.block & BLOCK_HAS_STARTS) && bpf_map_lookup_elem(&ios, &rq))
		return 0; /* it was inserted, and is issued now */
	if (!drawing_next(&now->drawing))
		return 0;
	now->request = rq;
	io.stands_for = now->drawing.stands_for;
	io.later = now->later = walk_mix(rq, io.began_ns) >> 1 | 1;
	if (bpf_map_update_elem(&ios, &rq, &io, BPF_ANY) < 0)
		now->later = 0;
	return 1;
}

SEC("raw_tracepoint")
int sample(struct bpf_raw_tracepoint_args *ctx)
{
	return choose_request(request_of(ctx)) ? sample_event(ctx, NULL, 0) : 0;
}

/* Sends the time until `now`, and the bytes until now. */
static __always_inline void send_values(const struct io *io, __u64 now)
{
	__u64 ns = now > io->began_ns ? now - io->began_ns : 0;
	struct record_later r = {
		.type = RECORD_LATER,
		.source = (__u16)config.source,
		.id = io->later,
		.value = (__s64)(ns * io->stands_for),
		.bytes = (__s64)(io->bytes * io->stands_for),
	};

	/* If the ring is full, samples are lost too, and counted. */
	(void)bpf_ringbuf_output(&ring, &r, sizeof(r), BPF_RB_NO_WAKEUP);
}

static __always_inline void end(__u64 rq)
{
	struct io *io = bpf_map_lookup_elem(&ios, &rq);

	if (!io)
		return;
	send_values(io, io->completed_ns ? io->completed_ns : bpf_ktime_get_ns());
	bpf_map_delete_elem(&ios, &rq);
}

SEC("raw_tracepoint")
int on_complete(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 key = ctx->args[0], bytes = (__u32)ctx->args[2];
	struct request *rq = (struct request *)key;
	struct io *io = bpf_map_lookup_elem(&ios, &key);

	if (!io)
		return 0;
	io->bytes += bytes;
	io->completed_ns = bpf_ktime_get_ns();
	if (!(config.block & BLOCK_HAS_STARTS) && bytes >= BPF_CORE_READ(rq, __data_len))
		end(key);
	return 0;
}

SEC("raw_tracepoint")
int on_done(struct bpf_raw_tracepoint_args *ctx)
{
	end(ctx->args[0]);
	return 0;
}

SEC("raw_tracepoint")
int on_merge(struct bpf_raw_tracepoint_args *ctx)
{
	end(request_of(ctx));
	return 0;
}

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));
struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
} __attribute__((preserve_access_index));

/* User space runs this program for each request that is not over when the recording ends. */
SEC("iter/bpf_map_elem")
int unended(struct bpf_iter__bpf_map_elem *ctx)
{
	struct io *io = ctx->value, copy;
	__u64 now = recorded().end;

	if (!io || !now)
		return 0;
	copy = *io;
	send_values(&copy, now);
	bpf_seq_write(ctx->meta->seq, "", 1);
	return 0;
}
