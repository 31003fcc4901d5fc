/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ruby's frames (MRI). Each call of rb_vm_exec() is a native frame and runs a segment of the array
 * of control frames (abi/runtime_ruby.h). Before the walk unwinds that native frame, the walker
 * pushes the segment. The frame of a method in C is pushed at the native frame of the function that
 * called the method, so that C code is between the Ruby frames around it.
 *
 * Nothing links a segment to its native frame, so the walker counts, and a sample may hit the
 * moments when the counts differ: a caller has pushed a frame for a call of rb_vm_exec() that has
 * not begun, or rb_vm_exec() has removed its last frame and has not returned. Only the innermost
 * call can be in this state. In the first case the frame is at the start of its code
 * (ruby_is_fresh()). The second one shows at the outermost call, for which no segment is left: the
 * walker then starts again and gives the innermost call no segment. A function that loads an
 * extension has a fresh frame, too, and no call of rb_vm_exec().
 *
 * Machine code of YJIT runs all methods of a segment in one native frame. It is left as the rows of
 * rb_vm_exec() say, at the return address that is above the registers that the code has saved.
 */
#pragma once

#include "abi/runtime_ruby.h"
#include "bpf/unwind/runtime.h"

#define RUBY_FRAMES_PER_CALL 8
#define RUBY_MAX_LEVELS 12 /* environments around a block */
#define RUBY_MAX_CALLERS 8 /* frames of methods in C, between a method in C and its Ruby caller */
#define RUBY_OPTIONAL_WORDS 8 /* entries of the table of optional parameters */
#define RUBY_STACK_WORDS 32   /* of the frame of machine code */
#define RUBY_ENDS (-101)      /* the segment has ended */
#define RUBY_UNREADABLE (~0ULL)

struct ruby_walk {
	__u32 started; /* ruby_start() has run for this sample */
	__u32 binary;  /* binary and bias are struct runtime_process's */
	__u64 bias;
	__u64 top;     /* the innermost frame */
	__u64 frame;   /* the next frame to push */
	__u64 end;     /* of the array */
	__u32 inside;  /* the walker is inside a segment */
	__u32 calls;   /* calls of rb_vm_exec() so far */
	__u32 apart;   /* the walk has seen other code of Ruby before the first of them */
	__u32 again;   /* the second walk of this sample */
	__u32 skipped; /* the first walk gave the innermost frame to no call */
	__u32 fresh;   /* ruby_one() has found a fresh frame */
	__u32 within;  /* the next frame's code contains the code of the last one */
	__u32 leaf; /* the sample's pc is in machine code, which may not have stored its position */
};
_Static_assert(sizeof(struct ruby_walk) <= sizeof(struct runtime_walk), "ruby_walk");

/* Copies of objects of the process; too large for the BPF stack. One entry for each level. */
struct ruby_buffer {
	__u64 frame[RUBY_FRAME_WORDS];
	__u64 env[3]; /* ep[-2] to ep[0] */
	__u64 body[RUBY_BODY_WORDS];
	__u64 optional[RUBY_OPTIONAL_WORDS];
	__u64 stack[RUBY_STACK_WORDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct ruby_buffer);
} ruby_buffers SEC(".maps");

struct ruby_env {
	struct scratch *s;
	struct ruby_buffer *f;
	struct ruby_walk *w;
	const struct ruby_binary *b;
};

/* Finds the data of the walk in progress; the verifier checks each global function on its own. */
static __always_inline bool ruby_env(struct ruby_env *ret)
{
	const struct runtime_binary *binary;
	__u32 level = scratch_level();

	ret->s = scratch_get();
	ret->f = bpf_map_lookup_elem(&ruby_buffers, &level);
	if (!ret->s || !ret->f)
		return false;
	ret->w = (struct ruby_walk *)&ret->s->runtime[RUNTIME_RUBY];
	binary = bpf_map_lookup_elem(&runtime_binaries, &ret->w->binary);
	if (!binary)
		return false;
	ret->b = (const struct ruby_binary *)binary->room;
	return true;
}

/* Starts the walker at a sample's first frame in Ruby; false: the process is unknown. */
__noinline int ruby_start(void)
{
	const struct runtime_process *process;
	struct scratch *s = scratch_get();
	const struct ruby_process *p;
	struct ruby_env e;
	__u64 context;

	process = s ? runtime_process(s, RUNTIME_RUBY) : NULL;
	if (!process)
		return false;
	p = (const struct ruby_process *)process->room;
	e.w = (struct ruby_walk *)runtime_state(s, RUNTIME_RUBY);
	e.w->binary = process->binary;
	e.w->bias = process->bias;
	if (!ruby_env(&e))
		return false;
	e.w->started = 1;
	context = runtime_follow(&p->thread, s->first.tls);
	if (context && e.b->thread_context)
		context = runtime_word(context + e.b->thread_context);
	if (!context)
		return true;
	e.w->top = e.w->frame = runtime_word(context + RUBY_CONTEXT_FRAME);
	/* The last frame is no one's. */
	e.w->end = runtime_word(context + RUBY_CONTEXT_STACK) +
		   8 * runtime_word(context + RUBY_CONTEXT_STACK_WORDS) - e.b->frame_bytes;
	return true;
}

/* Marks the next frame, a native frame, as one of the interpreter. */
static __always_inline int ruby_own(struct scratch *s)
{
	return runtime_push_own(s, RUNTIME_RUBY) ? RUNTIME_NATIVE : STOP_TOO_DEEP;
}

/* ---- frames ---- */

/* Reads w->frame and its environment; false: it cannot be read, or there is none. */
static __always_inline bool ruby_read_frame(const struct ruby_env *e)
{
	struct ruby_buffer *f = e->f;

	if (!e->w->frame || e->w->frame >= e->w->end)
		return false;
	return bpf_probe_read_user(f->frame, sizeof(f->frame), (const void *)e->w->frame) == 0 &&
	       bpf_probe_read_user(f->env, sizeof(f->env),
				   (const void *)(f->frame[RUBY_FRAME_EP] - 16)) == 0;
}

static __always_inline bool ruby_is_c(const struct ruby_buffer *f)
{
	return !f->frame[RUBY_FRAME_ISEQ] && (f->env[2] & RUBY_TYPE_MASK) == RUBY_TYPE_CFUNC;
}

/* The kind of an internal object; or 16: it is none. */
static __always_inline __u32 ruby_imemo(__u64 at)
{
	__u64 flags = at & 7 ? 0 : runtime_word(at);

	if ((flags & RUBY_KIND_MASK) != RUBY_KIND_IMEMO)
		return 16;
	return flags >> RUBY_IMEMO_SHIFT & RUBY_IMEMO_MASK;
}

/* The method entry of the frame that was read; 0: it has none. */
__noinline __u64 ruby_method(void)
{
	struct ruby_env e;

	if (!ruby_env(&e))
		return 0;
	for (__u64 i = 0; i < RUBY_MAX_LEVELS; i++) {
		bool local = e.f->env[2] & RUBY_FLAG_LOCAL;
		__u64 at = e.f->env[0];
		__u32 kind = at ? ruby_imemo(at) : 16;

		if (kind == RUBY_IMEMO_SVAR && local) {
			at = runtime_word(at + RUBY_SVAR_METHOD);
			kind = at ? ruby_imemo(at) : 16;
		}
		if (kind == RUBY_IMEMO_METHOD)
			return at;
		if (local || bpf_probe_read_user(e.f->env, sizeof(e.f->env),
						 (const void *)((e.f->env[1] & ~3ULL) - 16)) < 0)
			return 0;
	}
	return 0;
}

/*
 * Reads the body of the Ruby code that runs in w->frame or, for a method in C, called it. Returns
 * the address of the iseq, 0 if there is none, or RUBY_UNREADABLE; *ret_pc is where the code is.
 */
static __always_inline __u64 ruby_read_body(const struct ruby_env *e, __u64 *ret_pc)
{
	__u64 at = e->w->frame, words[3], body;

	words[0] = e->f->frame[RUBY_FRAME_PC];
	words[2] = e->f->frame[RUBY_FRAME_ISEQ];
	for (__u64 i = 0; i < RUBY_MAX_CALLERS; i++) {
		if (words[0] && words[2])
			break;
		at += e->b->frame_bytes;
		if (at >= e->w->end)
			return 0;
		if (bpf_probe_read_user(words, sizeof(words), (const void *)at) < 0)
			return RUBY_UNREADABLE;
	}
	if (!words[0] || !words[2])
		return 0;
	body = runtime_word(words[2] + RUBY_ISEQ_BODY);
	if (!body || bpf_probe_read_user(e->f->body, sizeof(e->f->body), (const void *)body) < 0)
		return RUBY_UNREADABLE;
	*ret_pc = words[0];
	return words[2];
}

/*
 * Whether the code at `position` has not begun: it is at the first instruction, or at one where a
 * call with optional arguments begins.
 */
static __always_inline bool ruby_is_fresh(const struct ruby_env *e, __u64 position)
{
	__u64 n = e->f->body[RUBY_BODY_OPTIONAL] >> 32;

	if (!position)
		return true;
	if (!n || n >= RUBY_OPTIONAL_WORDS ||
	    bpf_probe_read_user(e->f->optional, sizeof(e->f->optional),
				(const void *)e->f->body[RUBY_BODY_OPTIONAL_TABLE]) < 0)
		return false;
	for (__u64 i = 0; i < RUBY_OPTIONAL_WORDS; i++)
		if (i <= n && e->f->optional[i] == position)
			return true;
	return false;
}

/* Whether machine code runs the frame that was read. */
static __always_inline bool ruby_is_compiled(const struct ruby_env *e)
{
	return e->b->frame_jit && e->f->frame[walk_bound(e->b->frame_jit, RUBY_FRAME_WORDS - 1)];
}

/* Whether the frame that was read is the last of a segment and fresh. */
__noinline int ruby_has_not_begun(void)
{
	struct ruby_env e;
	__u64 pc = 0, iseq;

	if (!ruby_env(&e) || !e.f->frame[RUBY_FRAME_ISEQ] || !e.f->frame[RUBY_FRAME_PC] ||
	    !(e.f->env[2] & RUBY_FLAG_FINISH) || ruby_is_compiled(&e))
		return false;
	iseq = ruby_read_body(&e, &pc);
	return iseq && iseq != RUBY_UNREADABLE &&
	       ruby_is_fresh(&e, (pc - e.f->body[RUBY_BODY_CODE]) / 8);
}

/*
 * Pushes w->frame if backtraces show it: code that has begun, and methods in C, but from 3.4 on not
 * the code around a rescue or ensure that runs, because both have the same name. Moves to the next
 * frame. WALK_GO; RUBY_ENDS: the frame was the segment's last, and e.w->fresh says whether it has
 * not begun; or a stop reason.
 */
__noinline int ruby_one(void)
{
	__u64 pc = 0, position = RUBY_NO_POSITION, iseq = 0, method = 0, definition = 0, flags;
	struct ruby_env e;
	bool in_c, shown;

	if (!ruby_env(&e))
		return STOP_UNSUPPORTED;
	if (!ruby_read_frame(&e))
		return STOP_BAD_READ;
	flags = e.f->env[2];
	in_c = ruby_is_c(e.f);
	shown = in_c || (e.f->frame[RUBY_FRAME_ISEQ] && e.f->frame[RUBY_FRAME_PC]);
	e.w->fresh = 0;
	if (shown)
		iseq = ruby_read_body(&e, &pc);
	if (iseq == RUBY_UNREADABLE)
		return STOP_BAD_READ;
	if (shown && !in_c && e.b->owners) {
		__u32 kind = iseq ? (__u32)e.f->body[RUBY_BODY_KIND] : 0;

		shown = !e.w->within;
		e.w->within = kind == RUBY_CODE_RESCUE || kind == RUBY_CODE_ENSURE;
	}
	if (shown) {
		if (iseq && (pc - e.f->body[RUBY_BODY_CODE]) / 8 <= e.f->body[RUBY_BODY_SIZE] >> 32)
			position = (pc - e.f->body[RUBY_BODY_CODE]) / 8;
		if (position > RUBY_NO_POSITION ||
		    (e.w->leaf && e.w->frame == e.w->top && ruby_is_compiled(&e)))
			position = RUBY_NO_POSITION;
		if (!in_c && (flags & RUBY_FLAG_FINISH) && !ruby_is_compiled(&e))
			e.w->fresh = ruby_is_fresh(&e, position);
		if (!iseq)
			__builtin_memset(e.f->body, 0, sizeof(e.f->body));
		if (in_c || (iseq && e.b->owners))
			method = ruby_method();
		if (in_c)
			definition = runtime_word(method + RUBY_METHOD_BODY);
		if (in_c && !definition)
			return STOP_BAD_READ;
	}
	/*
	 * A call that has not begun shows nothing; but a frame of an extension that is loaded does.
	 */
	if (e.w->fresh && e.w->frame == e.w->top && (flags & RUBY_TYPE_MASK) != RUBY_TYPE_TOP &&
	    e.w->apart && !e.w->again)
		shown = false;
	e.w->frame += e.b->frame_bytes;
	if (shown &&
	    !runtime_push(e.s, RUNTIME_RUBY,
			  (iseq >> 3 & RUBY_ADDRESS_MASK) |
				  (ruby_cookie(e.f->body, definition) & RUBY_COOKIE_MASK)
					  << RUBY_ADDRESS_BITS |
				  (in_c || !iseq ? RUBY_IN_C : 0),
			  (method >> 3 & RUBY_ADDRESS_MASK) | position << RUBY_ADDRESS_BITS))
		return STOP_TOO_DEEP;
	/* rb_vm_push_frame_fname() makes a last frame without code, and no call. */
	return (flags & RUBY_FLAG_FINISH) && pc ? RUBY_ENDS : WALK_GO;
}

/*
 * Pushes the frames of methods in C that are next, at most `most`. Leaves out those of blocks in C,
 * which backtraces do not show, and the frame of a call that has not begun.
 */
static __always_inline int ruby_push_c(const struct ruby_env *e, __u64 most)
{
	__u64 n = 0;
	int r;

	for (__u64 i = 0; i < RUBY_FRAMES_PER_CALL && n < most && ruby_read_frame(e); i++) {
		if (ruby_is_c(e->f)) {
			r = ruby_one();
			if (r != WALK_GO && r != RUBY_ENDS)
				return r;
			n++;
		} else if ((e->f->frame[RUBY_FRAME_ISEQ] && !e->f->frame[RUBY_FRAME_PC]) ||
			   (e->w->frame == e->w->top && !e->w->calls && ruby_has_not_begun())) {
			e->w->frame += e->b->frame_bytes;
		} else {
			break;
		}
	}
	return WALK_GO;
}

/* ---- calls of rb_vm_exec() ---- */

/* Starts the walk again, because the innermost call must be treated in the other way. */
static __always_inline int ruby_again(const struct ruby_env *e)
{
	struct scratch *s = e->s;
	struct ruby_walk *w = e->w;

	if (!w->top)
		return ruby_own(s);
	if (w->again)
		return STOP_RUNTIME_STATE;
	s->walk.regs = s->first;
	s->walk.n = 0;
	s->walk.hash = 0;
	s->walk.native = 0;
	s->walk.have_mapping = 0;
	s->runtime_frames = 0;
	s->runtimes = 1U << RUNTIME_RUBY;
	w->again = 1;
	w->frame = w->top;
	w->inside = 0;
	w->calls = 0;
	w->apart = 0;
	w->within = 0;
	return RUNTIME_AGAIN;
}

/*
 * Whether the segment of this call ends with the frame that ruby_one() has just passed, which is
 * fresh. It does if this is the innermost call and has not run an instruction yet.
 */
static __always_inline bool ruby_owns_fresh(const struct ruby_env *e)
{
	struct ruby_walk *w = e->w;

	if (w->calls != 1 || w->frame != w->top + e->b->frame_bytes)
		return false;
	if (w->again)
		return w->skipped;
	w->skipped = w->apart;
	return !w->apart;
}

/* Pushes the segment of a call, or as much of it as one call of this function may push. */
__noinline int ruby_segment(void)
{
	struct ruby_env e;
	int r;

	if (!ruby_env(&e))
		return RUNTIME_NATIVE;
	if (!e.w->inside) {
		e.w->calls++;
		if (e.w->again && e.w->calls == 1 && !e.w->skipped)
			return ruby_own(e.s);
		e.w->inside = 1;
	}
	for (__u64 i = 0; i < RUBY_FRAMES_PER_CALL; i++) {
		if (!e.w->frame || e.w->frame >= e.w->end) {
			e.w->inside = 0;
			return ruby_again(&e);
		}
		r = ruby_one();
		if (r == RUBY_ENDS && (!e.w->fresh || ruby_owns_fresh(&e))) {
			e.w->inside = 0;
			return ruby_own(e.s);
		}
		if (r != WALK_GO && r != RUBY_ENDS)
			return r;
	}
	return RUNTIME_AGAIN;
}

/* ---- machine code ---- */

/* Leaves YJIT's code: searches the return address into the interpreter. */
__noinline int ruby_compiled(void)
{
	struct ruby_env e;
	int r;

	if (!ruby_env(&e))
		return RUNTIME_NATIVE;
	if (e.s->walk.regs.exact) {
		e.w->leaf = 1;
	} else {
		/* The code has called them. */
		r = ruby_push_c(&e, RUBY_FRAMES_PER_CALL);
		if (r != WALK_GO)
			return r;
	}
	if (bpf_probe_read_user(e.f->stack, sizeof(e.f->stack), (const void *)e.s->walk.regs.sp) <
	    0)
		return RUNTIME_NATIVE;
	for (__u64 i = 0; i < RUBY_STACK_WORDS; i++) {
		__u64 svma = e.f->stack[i] - 1 - e.w->bias;

		if (runtime_in_any(e.b->execs, e.b->n_execs, RUBY_MAX_RANGES, svma) ||
		    runtime_in_any(e.b->cores, e.b->n_cores, RUBY_MAX_RANGES, svma))
			return runtime_return(e.s, e.f->stack[i], e.s->walk.regs.sp + 8 * i + 8,
					      e.s->walk.regs.fp);
	}
	return RUNTIME_NATIVE;
}

__noinline int ruby_walk(void)
{
	struct scratch *s = scratch_get();
	struct ruby_env e;
	__u64 svma;
	int r = WALK_GO;

	if (!s)
		return RUNTIME_NATIVE;
	if (!((struct ruby_walk *)runtime_state(s, RUNTIME_RUBY))->started && !ruby_start())
		return RUNTIME_NATIVE;
	if (!ruby_env(&e))
		return RUNTIME_NATIVE;
	if (s->walk.mapping.file & UNWIND_MAPPING_FP) /* memory of YJIT */
		return ruby_compiled();
	svma = walk_pc(&s->walk.regs) - e.w->bias;
	if (runtime_in_any(e.b->execs, e.b->n_execs, RUBY_MAX_RANGES, svma))
		return ruby_segment();
	if (runtime_in_any(e.b->cores, e.b->n_cores, RUBY_MAX_RANGES, svma))
		return ruby_own(s);
	if (!e.w->calls)
		e.w->apart = 1;
	/* In a leaf, the frame may not be there yet, or not any more. */
	if (!s->walk.regs.exact &&
	    runtime_in_any(e.b->callers, e.b->n_callers, RUBY_MAX_RANGES, svma))
		r = ruby_push_c(&e, 1);
	return r == WALK_GO ? RUNTIME_NATIVE : r;
}
