/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPython's frames. Each call of the interpreter's loop is a native frame; before it is walked,
 * the frames are pushed that it runs (abi/runtime_python.h: a segment), so that C code between
 * Python code is in its place.
 *
 * The thread state is the thread's own, from thread-local storage; never the one that holds the
 * GIL. Everything that is read may have been freed or be half made: user space checks by the cookie
 * what a code object was, and nothing here follows more than FRAMES_PER_CALL pointers a call.
 */
#pragma once

#include "abi/runtime_python.h"
#include "bpf/unwind/runtime.h"

#define PYTHON_FRAMES_PER_CALL 8
#define PYTHON_CFRAMES_PER_CALL 16
/* What lies between the loop's stack frame and what it pushes for calls. */
#define PYTHON_STACK_SLACK 128

struct python_walk {
	__u32 started;
	__u32 inside; /* a segment has been begun */
	__u64 frame;  /* the next one to push */
	__u64 cframe; /* ENTRY, SHIM: of the next call of the loop */
	/* TAIL: the mark that ends the segment (0: being looked for), and how far the search is. */
	__u64 mark;
	__u64 search;
	/* Before the segment: to take it back when it turns out not to be this call's. */
	__u64 first;
	__u64 hash;
	__u32 n;
	__u32 runtime_frames;
};
_Static_assert(sizeof(struct python_walk) <= sizeof(struct runtime_walk), "python_walk");

/* Objects of the process, while they are looked at; too large for the stack. One per CPU. */
struct python_buffer {
	union {
		__u8 bytes[PYTHON_FRAME_BYTES];
		__u64 words[PYTHON_FRAME_BYTES / 8];
	} frame;
	__u64 code[PYTHON_CODE_BYTES / 8];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct python_buffer);
} python_buffers SEC(".maps");

static __always_inline __u64 python_word(__u64 at)
{
	__u64 v = 0;

	return bpf_probe_read_user(&v, sizeof(v), (const void *)at) < 0 ? 0 : v;
}

static __always_inline __u64 python_frame_word(const struct python_buffer *f, __u32 off)
{
	return f->frame.words[walk_bound(off / 8, PYTHON_FRAME_BYTES / 8 - 1)];
}

static __always_inline __u64 python_code_word(const struct python_buffer *f, __u32 off)
{
	return f->code[walk_bound(off / 8, PYTHON_CODE_BYTES / 8 - 1)];
}

static __always_inline __u64 python_thread_pointer(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#else
	return BPF_CORE_READ(task, thread.uw.tp_value);
#endif
}

static __always_inline __u64 python_follow(const struct python_chain *c, __u64 p)
{
	if (!c->n)
		return 0;
	for (__u32 i = 0; i < PYTHON_MAX_CHAIN; i++) {
		if (i >= c->n || !p)
			break;
		p = python_word(p + (__u64)c->off[i]);
	}
	return p;
}

/* Where the thread's list of frames begins. */
static __always_inline void python_start(struct python_walk *w, const struct python_binary *b,
					 const struct python_process *p)
{
	__u64 tp = python_thread_pointer();
	__u64 thread = python_follow(&p->current, tp);

	w->started = 1;
	if (!thread)
		thread = python_follow(&p->bound, tp);
	if (!thread)
		return;
	thread = python_word(thread + b->thread_frame);
	if (b->shape == PYTHON_ENTRY || b->shape == PYTHON_SHIM)
		w->cframe = thread;
	else
		w->frame = w->search = thread;
}

static __always_inline bool python_in(const struct python_range *ranges, __u32 n, __u64 svma)
{
	for (__u32 i = 0; i < PYTHON_MAX_RANGES; i++) {
		if (i >= n)
			break;
		if (svma >= ranges[i].start && svma < ranges[i].end)
			return true;
	}
	return false;
}

/* Does something at `address` lie in the stack frame of the call of the loop that is walked now? */
static __always_inline bool python_is_local(struct scratch *s, const struct python_binary *b,
					    __u64 address)
{
	return address - s->walk.regs.sp < b->stack_bytes + PYTHON_STACK_SLACK;
}

/* The first frame of this call of the loop, into w->frame; false when it has none (yet). */
static __always_inline bool python_begin(struct scratch *s, const struct python_binary *b,
					 struct python_walk *w, __u64 svma)
{
	w->n = s->walk.n;
	w->hash = s->walk.hash;
	w->runtime_frames = s->runtime_frames;
	if (b->shape == PYTHON_ONE)
		return !python_in(b->unlinked, b->n_unlinked, svma) && w->frame;
	if (b->shape == PYTHON_LIST) {
		w->first = w->frame;
		return w->frame;
	}
	for (int i = 0; i < PYTHON_CFRAMES_PER_CALL; i++) {
		/* One that lies below belongs to a call that has ended. */
		if (!w->cframe || w->cframe >= s->walk.regs.sp)
			break;
		w->cframe = python_word(w->cframe + b->cframe_previous);
	}
	if (!w->cframe || !python_is_local(s, b, w->cframe))
		return false;
	w->frame = python_word(w->cframe + b->cframe_frame);
	w->cframe = python_word(w->cframe + b->cframe_previous);
	return w->frame;
}

/* Bytes from the beginning of the bytecode to where the frame is. */
static __always_inline __u32 python_where(const struct python_buffer *f,
					  const struct python_binary *b, __u64 code)
{
	__u64 at = python_frame_word(f, b->frame_where);
	__u64 base = code + b->code_bytes, copies;
	__u32 index;

	if (b->shape == PYTHON_ONE)
		return (__u32)(b->frame_where & 4 ? at >> 32 : at);
	if (b->frame_tlbc) {
		at = python_frame_word(f, b->frame_where);
		copies = python_code_word(f, b->code_tlbc);
		index = (__u32)(python_frame_word(f, b->frame_tlbc) >>
				(b->frame_tlbc & 4 ? 32 : 0));
		if (copies && index)
			base = python_word(copies + 8 + 8ULL * index);
	}
	return (__u32)(at - base);
}

/* Pushes w->frame and moves on. WALK_GO: there are more; RUNTIME_NATIVE: that was the last. */
static __always_inline int python_one(struct scratch *s, const struct python_binary *b,
				      struct python_walk *w, struct python_buffer *f)
{
	__u64 at = w->frame, code;
	__u32 cookie = 0, owner, where = 0;

	if (bpf_probe_read_user(&f->frame, walk_bound(b->frame_read, PYTHON_FRAME_BYTES - 1),
				(const void *)at) < 0)
		return STOP_BAD_READ;
	code = python_frame_word(f, b->frame_code) & ~7ULL;
	owner = f->frame.bytes[walk_bound(b->frame_owner, PYTHON_FRAME_BYTES - 1)];
	w->frame = python_frame_word(f, b->frame_previous);
	if ((b->shape == PYTHON_SHIM || b->shape == PYTHON_LIST) && owner >= b->first_mark) {
		w->inside = 0;
		if (b->shape == PYTHON_LIST && !python_is_local(s, b, at)) {
			/* These frames are those of the call before: this one has none. */
			s->walk.n = w->n;
			s->walk.hash = w->hash;
			s->runtime_frames = w->runtime_frames;
			w->frame = w->first;
		}
		return RUNTIME_NATIVE;
	}
	if (bpf_probe_read_user(f->code, walk_bound(b->code_read, PYTHON_CODE_BYTES - 1),
				(const void *)code) == 0) {
		cookie = python_cookie(
			python_code_word(f, b->code_id[0]), python_code_word(f, b->code_id[1]),
			python_code_word(f, b->code_id[2]), python_code_word(f, b->code_id[3]));
		where = python_where(f, b, code);
	}
	if (!runtime_push(s, RUNTIME_PYTHON, code, (__u64)cookie << 32 | where))
		return STOP_TOO_DEEP;
	if (b->shape == PYTHON_ONE || (b->shape == PYTHON_ENTRY && owner) || !w->frame) {
		w->inside = 0;
		return RUNTIME_NATIVE;
	}
	return WALK_GO;
}

/*
 * TAIL: looks for the end of the segment. WALK_GO when w->mark is it; RUNTIME_NATIVE when there are
 * no more.
 */
static __always_inline int python_find_mark(const struct python_binary *b, struct python_walk *w,
					    struct python_buffer *f)
{
	for (int i = 0; i < PYTHON_FRAMES_PER_CALL && !w->mark; i++) {
		__u64 at = w->search;

		if (!at)
			return RUNTIME_NATIVE;
		if (bpf_probe_read_user(&f->frame,
					walk_bound(b->frame_read, PYTHON_FRAME_BYTES - 1),
					(const void *)at) < 0)
			return STOP_BAD_READ;
		w->search = python_frame_word(f, b->frame_previous);
		if (f->frame.bytes[walk_bound(b->frame_owner, PYTHON_FRAME_BYTES - 1)] >=
		    b->first_mark)
			w->mark = at;
	}
	return w->mark ? WALK_GO : RUNTIME_AGAIN;
}

/*
 * TAIL: the segment is pushed before the first native frame that lies above its mark, so behind all
 * that the loop has called and the loop itself.
 */
static __always_inline int python_tail(struct scratch *s, const struct python_binary *b,
				       struct python_walk *w, struct python_buffer *f)
{
	int r = python_find_mark(b, w, f);

	if (r != WALK_GO)
		return r;
	if (s->walk.regs.sp <= w->mark)
		return RUNTIME_NATIVE;
	for (int i = 0; i < PYTHON_FRAMES_PER_CALL; i++) {
		if (!w->frame || w->frame == w->mark) {
			w->frame = w->search;
			w->mark = 0;
			return RUNTIME_AGAIN;
		}
		r = python_one(s, b, w, f);
		if (r != WALK_GO && r != RUNTIME_NATIVE)
			return r;
	}
	return RUNTIME_AGAIN;
}

/* The loop's own native frame is next. */
static __always_inline int python_own(struct scratch *s)
{
	return runtime_push_own(s, RUNTIME_PYTHON) ? RUNTIME_NATIVE : STOP_TOO_DEEP;
}

__noinline int python_walk(void)
{
	struct scratch *s = scratch_get();
	__u32 zero = 0;
	struct python_buffer *f = bpf_map_lookup_elem(&python_buffers, &zero);
	const struct runtime_process *process;
	const struct runtime_binary *binary;
	const struct python_binary *b;
	struct python_walk *w;
	__u64 svma;
	bool own;
	int r;

	if (!s || !f)
		return RUNTIME_NATIVE;
	process = runtime_process(s, RUNTIME_PYTHON);
	if (!process)
		return RUNTIME_NATIVE;
	binary = runtime_binary(process);
	if (!binary)
		return RUNTIME_NATIVE;
	b = (const struct python_binary *)binary->room;
	svma = walk_pc(&s->walk.regs) - process->bias;
	own = python_in(b->loops, b->n_loops, svma);
	if (!own && b->shape != PYTHON_TAIL)
		return RUNTIME_NATIVE;
	w = (struct python_walk *)runtime_state(s, RUNTIME_PYTHON);
	if (!w->started)
		python_start(w, b, (const struct python_process *)process->room);
	if (b->shape == PYTHON_TAIL) {
		r = python_tail(s, b, w, f);
		return r == RUNTIME_NATIVE && own ? python_own(s) : r;
	}
	if (!w->inside) {
		if (!python_begin(s, b, w, svma))
			return python_own(s);
		w->inside = 1;
	}
	for (int i = 0; i < PYTHON_FRAMES_PER_CALL; i++) {
		r = python_one(s, b, w, f);
		if (r == RUNTIME_NATIVE)
			return python_own(s);
		if (r != WALK_GO)
			return r;
	}
	return RUNTIME_AGAIN;
}
