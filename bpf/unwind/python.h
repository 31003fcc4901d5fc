/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPython's frames. Each call of the interpreter's loop is a native frame. Before the walk unwinds
 * that frame, the walker pushes the Python frames that the call runs (abi/runtime_python.h: a
 * segment), so that C code between Python code is in its place.
 *
 * The walker takes the thread's own thread state, from thread-local storage, never the state that
 * holds the GIL. CPython may have freed, or may be about to fill, anything that the walker reads:
 * user space checks each code object by the cookie, and the walker follows a bounded number of
 * pointers per call.
 */
#pragma once

#include "abi/runtime_python.h"
#include "bpf/unwind/runtime.h"

#define PYTHON_FRAMES_PER_CALL 8
#define PYTHON_CFRAMES_PER_CALL 16
#define PYTHON_STATES_PER_CALL 8
/*
 * The most thread states, of all interpreters, that the walker tries for one sample; beyond that
 * number the stack ends.
 */
#define PYTHON_MAX_STATES 512
/* Bytes between the loop's stack frame and what the loop pushes for calls. */
#define PYTHON_STACK_SLACK 128
#define PYTHON_OTHERS (-100)
#define PYTHON_STACK_WORDS 64 /* words of the loop's stack frame that the walker searches */

struct python_walk {
	__u32 started; /* python_start() has run for this sample */
	__u32 inside;  /* the walker is inside a segment */
	__u64 frame;   /* the next frame to push */
	__u64 cframe;  /* ENTRY, SHIM: the cframe of the next call of the loop */
	/* TAIL: the mark that ends the segment (0: not found yet), and the search's position. */
	__u64 mark;
	__u64 search;
	/* The state before the segment, to undo the segment if it is not this call's. */
	__u64 first;
	__u64 hash;
	__u32 n;
	__u32 runtime_frames;
	/*
	 * If the call of the loop does not belong to the current state: the position of the search
	 * through all states, and what was current before.
	 */
	__u32 many; /* the process has several interpreters */
	__u32 n_states;
	__u32 searching;
	__u32 binary; /* binary and bias are struct runtime_process's */
	__u64 bias;
	__u64 interpreter;
	__u64 state;
	__u64 kept;
	__u64 id; /* LIST: the thread's id */
};
_Static_assert(sizeof(struct python_walk) <= sizeof(struct runtime_walk), "python_walk");

/* Copies of objects of the process; too large for the BPF stack. One entry for each level. */
struct python_buffer {
	union {
		__u8 bytes[PYTHON_FRAME_BYTES];
		__u64 words[PYTHON_FRAME_BYTES / 8];
	} frame;
	__u64 code[PYTHON_CODE_BYTES / 8];
	__u64 stack[PYTHON_STACK_WORDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct python_buffer);
} python_buffers SEC(".maps");

/* The arguments of most functions here. */
struct python_env {
	struct scratch *s;
	struct python_buffer *f;
	struct python_walk *w;
	const struct python_binary *b;
};

/*
 * Finds the data of the walk in progress. Each global function starts with this, because the
 * verifier checks a global function on its own.
 */
static __always_inline bool python_env(struct python_env *ret)
{
	const struct runtime_binary *binary;
	__u32 level = scratch_level();

	ret->s = scratch_get();
	ret->f = bpf_map_lookup_elem(&python_buffers, &level);
	if (!ret->s || !ret->f)
		return false;
	ret->w = (struct python_walk *)&ret->s->runtime[RUNTIME_PYTHON];
	binary = bpf_map_lookup_elem(&runtime_binaries, &ret->w->binary);
	if (!binary)
		return false;
	ret->b = (const struct python_binary *)binary->room;
	return true;
}

static __always_inline __u64 python_frame_word(const struct python_buffer *f, __u32 off)
{
	return f->frame.words[walk_bound(off / 8, PYTHON_FRAME_BYTES / 8 - 1)];
}

static __always_inline __u64 python_code_word(const struct python_buffer *f, __u32 off)
{
	return f->code[walk_bound(off / 8, PYTHON_CODE_BYTES / 8 - 1)];
}

/* Whether the process has more than one interpreter. */
static __always_inline bool python_many(const struct python_binary *b, __u64 bias)
{
	__u64 first = b->interpreters ? runtime_word(bias + b->interpreters) : 0;

	return first && runtime_word(first + b->interpreter_next);
}

/* Finds the start of the thread's list of frames. */
static __always_inline void python_first(const struct python_env *e, const struct python_process *p)
{
	const struct python_binary *b = e->b;
	struct python_walk *w = e->w;
	__u64 tp = e->s->first.tls;
	__u64 thread = runtime_follow(&p->current, tp);

	w->many = python_many(b, w->bias);
	if (!thread)
		thread = runtime_follow(&p->bound, tp);
	if (!thread)
		return;
	if (w->many && b->shape == PYTHON_LIST)
		w->id = runtime_word(thread + b->thread_id);
	thread = runtime_word(thread + b->thread_frame);
	if (b->shape == PYTHON_ENTRY || b->shape == PYTHON_SHIM)
		w->cframe = thread;
	else
		w->frame = w->search = thread;
}

/* Starts the walker at a sample's first frame in the interpreter; false: the process is unknown. */
__noinline int python_start(void)
{
	const struct runtime_process *process;
	struct scratch *s = scratch_get();
	struct python_env e;

	process = s ? runtime_process(s, RUNTIME_PYTHON) : NULL;
	if (!process)
		return false;
	e.w = (struct python_walk *)runtime_state(s, RUNTIME_PYTHON);
	e.w->binary = process->binary;
	e.w->bias = process->bias;
	if (!python_env(&e))
		return false;
	e.w->started = 1;
	python_first(&e, (const struct python_process *)process->room);
	return true;
}

/* Whether `address` is in the stack frame of the current call of the loop. */
static __always_inline bool python_is_local(const struct python_env *e, __u64 address)
{
	return address - e->s->walk.regs.sp < e->b->stack_bytes + PYTHON_STACK_SLACK;
}

/*
 * ONE: whether the current call of the loop runs the frame. The loop keeps the address of the
 * frame's local variables in its own stack frame, which python_call() has copied to f->stack.
 */
__noinline int python_holds(__u64 frame)
{
	struct python_env e;

	if (!python_env(&e))
		return false;
	frame += e.b->frame_locals;
	for (__u64 i = 0; i < PYTHON_STACK_WORDS; i++) {
		if (8 * i >= e.b->stack_bytes)
			break;
		if (e.f->stack[i] == frame)
			return true;
	}
	return false;
}

/*
 * ENTRY, SHIM: finds the first frame of a call of the loop from the cframe, if the cframe is in the
 * call's stack frame.
 */
static __always_inline bool python_take_cframe(const struct python_env *e, __u64 cframe)
{
	if (!cframe || !python_is_local(e, cframe))
		return false;
	e->w->frame = runtime_word(cframe + e->b->cframe_frame);
	e->w->cframe = runtime_word(cframe + e->b->cframe_previous);
	return e->w->frame;
}

/* Sets w->frame to the first frame of this call of the loop; false: it has none (yet). */
static __always_inline bool python_begin(const struct python_env *e)
{
	struct python_walk *w = e->w;

	if (e->b->shape == PYTHON_ONE)
		return w->frame && (!w->many || python_holds(w->frame));
	if (e->b->shape == PYTHON_LIST) {
		w->first = w->frame;
		return w->frame;
	}
	for (__u64 i = 0; i < PYTHON_CFRAMES_PER_CALL; i++) {
		/* A cframe below sp belongs to a call that has ended. */
		if (!w->cframe || w->cframe >= e->s->walk.regs.sp)
			break;
		w->cframe = runtime_word(w->cframe + e->b->cframe_previous);
	}
	return python_take_cframe(e, w->cframe);
}

/* Bytes from the beginning of the bytecode to the frame's current instruction. */
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
			base = runtime_word(copies + 8 + 8ULL * index);
	}
	return (__u32)(at - base);
}

/*
 * Pushes w->frame and moves to the next frame of the list. WALK_GO: the segment goes on;
 * RUNTIME_NATIVE: the segment has ended; PYTHON_OTHERS: the segment was not this call's.
 */
static __always_inline int python_one(const struct python_env *e)
{
	const struct python_binary *b = e->b;
	struct python_buffer *f = e->f;
	struct python_walk *w = e->w;
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
		if (b->shape == PYTHON_LIST && !python_is_local(e, at)) {
			/* The frames belong to an outer call of the loop; this call has none. */
			e->s->walk.n = w->n;
			e->s->walk.hash = w->hash;
			e->s->runtime_frames = w->runtime_frames;
			w->frame = w->first;
			return PYTHON_OTHERS;
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
	if (!runtime_push(e->s, RUNTIME_PYTHON, code, (__u64)cookie << 32 | where))
		return STOP_TOO_DEEP;
	if (b->shape == PYTHON_ONE || (b->shape == PYTHON_ENTRY && owner) || !w->frame) {
		w->inside = 0;
		return RUNTIME_NATIVE;
	}
	return WALK_GO;
}

/*
 * TAIL: searches the end of the segment. WALK_GO: w->mark is the end; RUNTIME_NATIVE: there are no
 * more segments; RUNTIME_AGAIN: call again.
 */
static __always_inline int python_find_mark(const struct python_env *e)
{
	const struct python_binary *b = e->b;
	struct python_buffer *f = e->f;
	struct python_walk *w = e->w;

	for (__u64 i = 0; i < PYTHON_FRAMES_PER_CALL && !w->mark; i++) {
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
 * TAIL: pushes the segment before the first native frame whose sp is above the segment's mark, so
 * after all frames that the loop has called and the loop's own frames.
 */
__noinline int python_tail(void)
{
	struct python_env e;
	int r;

	if (!python_env(&e))
		return RUNTIME_NATIVE;
	r = python_find_mark(&e);
	if (r != WALK_GO)
		return r;
	if (e.s->walk.regs.sp <= e.w->mark)
		return RUNTIME_NATIVE;
	for (__u64 i = 0; i < PYTHON_FRAMES_PER_CALL; i++) {
		if (!e.w->frame || e.w->frame == e.w->mark) {
			e.w->frame = e.w->search;
			e.w->mark = 0;
			return RUNTIME_AGAIN;
		}
		r = python_one(&e);
		if (r != WALK_GO && r != RUNTIME_NATIVE)
			return r;
	}
	return RUNTIME_AGAIN;
}

/* Marks the next frame, a native frame, as the loop. */
static __always_inline int python_own(struct scratch *s)
{
	return runtime_push_own(s, RUNTIME_PYTHON) ? RUNTIME_NATIVE : STOP_TOO_DEEP;
}

/* Whether the frames of `state` belong to this call of the loop. If so, makes the state current. */
__noinline int python_try(__u64 state)
{
	struct python_env e;
	__u64 at;

	if (!python_env(&e))
		return false;
	at = runtime_word(state + e.b->thread_frame);
	if (!at)
		return false;
	if (e.b->shape == PYTHON_ONE) {
		e.w->frame = at;
		return python_holds(at);
	}
	if (e.b->shape == PYTHON_LIST) {
		if (at == e.w->kept || runtime_word(state + e.b->thread_id) != e.w->id)
			return false;
		e.w->frame = e.w->first = at; /* python_one() checks whose frame it is */
		return true;
	}
	return python_take_cframe(&e, at);
}

/*
 * Searches the states of all interpreters for the state whose frames this call of the loop runs.
 * Only the innermost call can have a frame that is not in a list yet or any more.
 */
__noinline int python_search(void)
{
	struct python_env e;
	struct python_walk *w;
	__u64 state;

	if (!python_env(&e))
		return RUNTIME_NATIVE;
	w = e.w;
	if (!w->searching) {
		w->searching = 1;
		w->interpreter = runtime_word(w->bias + e.b->interpreters);
		w->state = runtime_word(w->interpreter + e.b->interpreter_threads);
		w->kept = w->frame;
		if (e.b->shape == PYTHON_ENTRY || e.b->shape == PYTHON_SHIM)
			w->kept = w->cframe;
	}
	for (__u64 i = 0; i < PYTHON_STATES_PER_CALL; i++) {
		state = w->state;
		if (!state && w->interpreter) {
			w->interpreter = runtime_word(w->interpreter + e.b->interpreter_next);
			if (w->interpreter)
				w->state = runtime_word(w->interpreter + e.b->interpreter_threads);
			continue;
		}
		if (!state || w->n_states++ >= PYTHON_MAX_STATES) {
			w->searching = 0;
			w->frame = w->cframe = w->kept;
			return e.s->walk.n ? STOP_RUNTIME_STATE : python_own(e.s);
		}
		w->state = runtime_word(state + e.b->thread_next);
		if (python_try(state)) {
			w->searching = e.b->shape == PYTHON_LIST;
			w->inside = 1;
			return RUNTIME_AGAIN;
		}
	}
	return RUNTIME_AGAIN;
}

/* Pushes a segment, or as much of it as one call may push. */
__noinline int python_segment(void)
{
	struct python_env e;
	int r;

	if (!python_env(&e))
		return RUNTIME_NATIVE;
	for (__u64 i = 0; i < PYTHON_FRAMES_PER_CALL; i++) {
		r = python_one(&e);
		if (r == RUNTIME_NATIVE) {
			e.w->searching = 0;
			return python_own(e.s);
		}
		if (r != WALK_GO)
			return r;
	}
	return RUNTIME_AGAIN;
}

/*
 * Handles a call of the loop: pushes the call's segment, and if the segment is not in the current
 * state, searches the other states.
 */
static __always_inline int python_call(const struct python_env *e, __u64 svma)
{
	struct scratch *s = e->s;
	struct python_walk *w = e->w;
	int r = PYTHON_OTHERS;

	if (w->many && e->b->shape == PYTHON_ONE && !w->inside &&
	    bpf_probe_read_user(e->f->stack, sizeof(e->f->stack), (const void *)s->walk.regs.sp) <
		    0)
		return STOP_BAD_READ;
	if (!w->inside && !w->searching) {
		w->n = s->walk.n;
		w->hash = s->walk.hash;
		w->runtime_frames = s->runtime_frames;
		if (runtime_in_any(e->b->unlinked, e->b->n_unlinked, PYTHON_MAX_RANGES, svma))
			return python_own(s);
		w->inside = python_begin(e);
	}
	if (w->inside)
		r = python_segment();
	if (r == PYTHON_OTHERS)
		return w->many ? python_search() : python_own(s);
	return r;
}

__noinline int python_walk(void)
{
	struct scratch *s = scratch_get();
	struct python_env e;
	__u64 svma;
	bool own;
	int r;

	if (!s)
		return RUNTIME_NATIVE;
	if (!((struct python_walk *)runtime_state(s, RUNTIME_PYTHON))->started && !python_start())
		return RUNTIME_NATIVE;
	if (!python_env(&e))
		return RUNTIME_NATIVE;
	svma = walk_pc(&s->walk.regs) - e.w->bias;
	own = runtime_in_any(e.b->loops, e.b->n_loops, PYTHON_MAX_RANGES, svma);
	if (e.b->shape == PYTHON_TAIL) {
		r = python_tail();
		return r == RUNTIME_NATIVE && own ? python_own(s) : r;
	}
	return own ? python_call(&e, svma) : RUNTIME_NATIVE;
}
