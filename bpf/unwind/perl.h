/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Perl's frames. Each call of Perl's loop is a native frame. Before the walk unwinds that frame,
 * the walker pushes the Perl frames that the call runs: a segment of the contexts, so that C code
 * and XS code between Perl code are in their place.
 *
 * A segment ends at a context that was not entered by an op of the loop, but before the loop began:
 * its retop is NULL, or it is a sort block or a defer block. A loop's contexts may be there before
 * the loop begins, and be gone before it ends. Only the innermost call of the loop can be in that
 * state; perl_first() finds out. All other calls wait for a call from one of their ops.
 *
 * Nothing here trusts the process: each step reads a bounded piece and follows a bounded number of
 * pointers, and user space checks each object by the cookie.
 */
#pragma once

#include "abi/runtime_perl.h"
#include "bpf/unwind/runtime.h"

#define PERL_CONTEXTS_PER_CALL 6
#define PERL_STACKINFOS_PER_CALL 8
#define PERL_MAX_CONTEXTS (1 << 24)
/* Bytes above the loop's sp in which its caller, such as call_sv(), keeps an op or a COP. */
#define PERL_CALLER_BYTES 1024

struct perl_walk {
	__u32 started; /* perl_start() has run for this sample */
	__u32 inside;  /* the walker is inside a segment */
	__u32 ending;  /* the segment's last context has been pushed */
	__u32 failed;  /* memory could not be read: the walk stops */
	__u32 binary;  /* binary and bias are struct runtime_process's */
	__u32 n_loops; /* calls of the loop so far */
	__u64 bias;
	__u64 base; /* the variables' offsets are from here; 0: the thread has no interpreter */
	/* The next context: its stackinfo, the contexts of that stackinfo, its index. */
	__u64 stackinfo;
	__u64 contexts;
	__s32 index;
	__s32 type;	  /* of the stackinfo */
	__u64 cop;	  /* the position in the code of that context */
	__u64 op;	  /* PL_op at the sample */
	__u32 main;	  /* the frame of the program has been pushed */
	__u32 leaving;	  /* the walk has passed a function that leaves a sub */
	__u32 popped;	  /* the sample is where pp_leavesub() has popped the context */
	__u32 compiled;	  /* what is being compiled has been pushed */
	__u32 after_loop; /* the number of words after the last loop's frame */
	__u32 through;	  /* docatch() called that loop: the next loop is the outer one */
};
_Static_assert(sizeof(struct perl_walk) <= sizeof(struct runtime_walk), "perl_walk");

/* Copies of objects of the process. One entry for each level. */
struct perl_buffer {
	__u64 context[PERL_CX_BYTES / 8];
	__u64 object[PERL_CV_BYTES / 8];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct perl_buffer);
} perl_buffers SEC(".maps");

/* The arguments of most functions here. */
struct perl_env {
	struct scratch *s;
	struct perl_buffer *f;
	struct perl_walk *w;
	const struct perl_binary *b;
};

/* A frame before it is pushed. */
struct perl_frame {
	__u32 kind;
	__u64 what, a, b; /* the object, and two words of it for the cookie */
};

/* Finds the data of the walk in progress, at the start of each global function. */
static __always_inline bool perl_env(struct perl_env *ret)
{
	const struct runtime_binary *binary;
	__u32 level = scratch_level();

	ret->s = scratch_get();
	ret->f = bpf_map_lookup_elem(&perl_buffers, &level);
	if (!ret->s || !ret->f)
		return false;
	ret->w = (struct perl_walk *)&ret->s->runtime[RUNTIME_PERL];
	binary = bpf_map_lookup_elem(&runtime_binaries, &ret->w->binary);
	if (!binary)
		return false;
	ret->b = (const struct perl_binary *)binary->room;
	return true;
}

/* Reads memory without which the walker could take a wrong turn: the walk stops if that fails. */
static __always_inline bool perl_copy(struct perl_walk *w, void *to, __u32 n, __u64 at)
{
	if (bpf_probe_read_user(to, n, (const void *)at) == 0)
		return true;
	w->failed = 1;
	return false;
}

static __always_inline __u64 perl_word(struct perl_walk *w, __u64 at)
{
	__u64 v = 0;

	return perl_copy(w, &v, sizeof(v), at) ? v : 0;
}

/* ---- contexts ---- */

/* Goes to the top context of a stackinfo. */
static __always_inline void perl_enter(struct perl_walk *w, __u64 stackinfo)
{
	__u64 words[PERL_SI_BYTES / 8] = {};

	w->stackinfo = 0;
	w->index = -1;
	w->type = PERL_SI_MAIN;
	if (!perl_copy(w, words, sizeof(words), stackinfo))
		return;
	w->stackinfo = stackinfo;
	w->contexts = words[PERL_SI_CONTEXTS / 8];
	w->type = (__s32)(words[PERL_SI_TYPE / 8] >> 32);
	w->index = (__s32)words[PERL_SI_INDEX / 8];
	if (w->index >= PERL_MAX_CONTEXTS)
		w->index = -1;
}

/* Reads the context at an index into f->context. */
static __always_inline bool perl_read(const struct perl_env *e, __s32 index)
{
	return index >= 0 && perl_copy(e->w, e->f->context, sizeof(e->f->context),
				       e->w->contexts + (__u64)(__u32)index * PERL_CX_BYTES);
}

static __always_inline __u32 perl_kind_of(__u64 word)
{
	return (__u32)word & PERL_CX_KIND;
}

/* Whether a context, by its first word, is run by a loop, but was pushed by no op of the loop. */
static __always_inline bool perl_is_block(const struct perl_binary *b, __u64 word)
{
	__u32 kind = perl_kind_of(word);

	return kind == b->kinds.null || kind == b->kinds.defer ||
	       (kind == b->kinds.sub && word & (PERL_CX_RE | PERL_CX_RE_FAKE));
}

/*
 * The context at w->index, which f->context holds, returns to no op. It was called by C code, or,
 * as the last op of a block, by an op: then the loop runs the block, too. In a sort block the
 * savestack tells: call_sv() saves PL_op right before it pushes the context, sort does not.
 */
static __always_inline bool perl_is_last_op(const struct perl_env *e)
{
	__u64 below = 0, saved;
	__u32 save = (__u32)(e->f->context[0] >> 32);

	if (e->w->index < 1 ||
	    !perl_copy(e->w, &below, 1,
		       e->w->contexts + (__u64)(__u32)(e->w->index - 1) * PERL_CX_BYTES) ||
	    !perl_is_block(e->b, below))
		return false;
	if (perl_kind_of(below) != e->b->kinds.null)
		return true;
	saved = perl_word(e->w, perl_word(e->w, e->w->base + e->b->savestack) + 8ULL * (save - 1));
	return (saved & PERL_SAVE_MASK) != e->b->save_op;
}

/* ---- frames ---- */

static __always_inline bool perl_is_compiling(const struct perl_env *e, __u64 cop)
{
	__u64 at = cop - e->w->base;

	return at >= e->b->compiling && at < e->b->compiling_end;
}

/* Pushes a frame whose position is w->cop. WALK_GO, or a stop reason. */
static __always_inline int perl_push(const struct perl_env *e, const struct perl_frame *frame)
{
	struct perl_walk *w = e->w;
	__u64 words[3] = {}, cop = w->cop, line = 0, compiling = 0, address;
	__u32 cookie;

	if (w->failed)
		return STOP_BAD_READ;
	/* The compiler has one position: that of the innermost file or text that it compiles. */
	if (perl_is_compiling(e, cop)) {
		compiling = PERL_COMPILING;
		if (w->compiled)
			cop = compiling = 0;
		w->compiled |= frame->kind == PERL_REQUIRE || frame->kind == PERL_TEXT;
	}
	if (cop && bpf_probe_read_user(words, sizeof(words),
				       (const void *)(cop + (PERL_COP_LINE & ~7U))) < 0)
		cop = 0;
	line = words[0] >> 32;
	cookie = perl_cookie(frame->a, frame->b, compiling ? 0 : line,
			     words[(PERL_COP_FILE - (PERL_COP_LINE & ~7U)) / 8]);
	address = (frame->what >> 3 & PERL_POINTER_MASK) | (__u64)frame->kind << PERL_POINTER_BITS |
		  compiling | (__u64)(cookie >> PERL_COOKIE_LOW_BITS) << 50;
	return runtime_push(e->s, RUNTIME_PERL, address,
			    (compiling ? line : cop >> 3 & PERL_POINTER_MASK) |
				    (__u64)cookie << PERL_POINTER_BITS)
		       ? WALK_GO
		       : STOP_TOO_DEEP;
}

/* Whether f->context has a sub: it has none while an op enters or leaves the sub. */
static __always_inline bool perl_has_cv(const struct perl_env *e)
{
	__u64 cv = e->f->context[PERL_CX_CV / 8], flags = 0;

	/* What an op has not filled is no pointer. */
	if (cv && bpf_probe_read_user(&flags, sizeof(flags),
				      (const void *)(cv + (PERL_SV_FLAGS & ~7U))) < 0)
		e->w->failed = e->w->n_loops || e->w->leaving;
	flags = flags >> 32 & PERL_SV_TYPE;
	return flags == PERL_SV_CV || flags == PERL_SV_FORMAT;
}

/* The frame of the sub in f->context. False: it is an XSUB, which no loop runs. */
static __always_inline bool perl_sub_frame(const struct perl_env *e, struct perl_frame *ret)
{
	__u64 *o = e->f->object;
	__u64 cv = e->f->context[PERL_CX_CV / 8], gv, words[2] = {};

	ret->kind = PERL_UNNAMED;
	if (!perl_copy(e->w, o, PERL_CV_BYTES, perl_word(e->w, cv)))
		return true;
	if (o[PERL_CV_FLAGS / 8] >> 32 & PERL_CV_IS_XSUB)
		return false;
	gv = o[PERL_CV_GV / 8];
	if (o[PERL_CV_FLAGS / 8] >> 32 & PERL_CV_NAMED) {
		*ret = (struct perl_frame){PERL_NAMED, cv, gv, o[PERL_CV_STASH / 8]};
	} else if (gv) {
		perl_copy(e->w, words, sizeof(words), perl_word(e->w, gv) + PERL_GV_NAME);
		*ret = (struct perl_frame){PERL_SUB, gv, words[0], words[1]};
	}
	return true;
}

/* Pushes the frame of the eval in f->context. */
static __always_inline int perl_push_eval(const struct perl_env *e)
{
	const __u64 *c = e->f->context;
	struct perl_frame frame = {PERL_EVAL, 0, 0, 0};
	__u64 name = c[PERL_CX_NAME / 8];

	if (c[0] & PERL_CX_EVAL_TEXT) {
		frame.kind = PERL_TEXT;
	} else if (!(c[0] & PERL_CX_EVAL_BLOCK)) {
		frame = (struct perl_frame){PERL_REQUIRE, name, 0, 0};
		if (name) {
			frame.a = perl_word(e->w, name + PERL_SV_BODY);
			frame.b = perl_word(e->w, name + PERL_SV_VALUE);
		}
	}
	return perl_push(e, &frame);
}

/*
 * Handles the context at w->index, which f->context holds. WALK_GO, or a stop reason.
 */
static __always_inline int perl_context(const struct perl_env *e)
{
	const struct perl_binary *b = e->b;
	struct perl_walk *w = e->w;
	const __u64 *c = e->f->context;
	struct perl_frame frame = {PERL_SORT, 0, 0, 0};
	__u32 kind = perl_kind_of(c[0]);
	bool ends = true, has_cv = true, xsub = false;
	int pushed = WALK_GO;

	if (kind == b->kinds.sub || kind == b->kinds.format) {
		has_cv = perl_has_cv(e);
		/* The op that enters the sub has not filled its context yet. */
		if (!has_cv && !w->n_loops && !w->leaving) {
			w->index--;
			return WALK_GO;
		}
		if (kind == b->kinds.sub && c[0] & PERL_CX_RE_FAKE) {
			frame.kind = PERL_RE;
			pushed = perl_push(e, &frame);
		} else if (has_cv) {
			xsub = !perl_sub_frame(e, &frame);
			/* The sub has not come to its first statement, or has left its last. */
			if (w->cop == c[PERL_CX_COP / 8] && kind == b->kinds.sub &&
			    !(__u32)c[PERL_CX_DEPTH / 8])
				w->cop = 0;
			if (!xsub)
				pushed = perl_push(e, &frame);
		}
		ends = !c[PERL_CX_RETURN / 8] && !xsub && !perl_is_last_op(e);
	} else if (kind == b->kinds.eval) {
		if (c[0] & PERL_CX_TRY) {
			w->index--;
			return WALK_GO;
		}
		pushed = perl_push_eval(e);
		ends = w->ending || (!c[PERL_CX_RETURN / 8] && !(c[0] & PERL_CX_EVAL_BLOCK) &&
				     !perl_is_last_op(e));
	} else if (kind == b->kinds.defer ||
		   (kind == b->kinds.null && !w->index && w->type == PERL_SI_SORT)) {
		if (kind == b->kinds.defer)
			frame.kind = PERL_DEFER;
		pushed = perl_push(e, &frame);
	} else {
		w->index--;
		return WALK_GO;
	}
	if (pushed != WALK_GO)
		return pushed;
	w->index--;
	w->cop = c[PERL_CX_COP / 8];
	/* What is left is the eval of call_sv(), if it has one. */
	w->ending = ends;
	return WALK_GO;
}

/* Whether f->context is the eval of call_sv(), which an op of the loop has not entered either. */
static __always_inline bool perl_is_c_eval(const struct perl_env *e)
{
	const __u64 *c = e->f->context;

	return perl_kind_of(c[0]) == e->b->kinds.eval && c[0] & PERL_CX_EVAL_BLOCK &&
	       !(c[0] & PERL_CX_TRY) && !c[PERL_CX_RETURN / 8];
}

/* ---- calls of the loop ---- */

/* Marks the next frame, a native frame, as the loop. */
static __always_inline int perl_own(const struct perl_env *e)
{
	if (e->w->failed)
		return STOP_BAD_READ;
	e->w->inside = 0;
	e->w->ending = 0;
	e->w->through = 0;
	e->w->n_loops++;
	if (!runtime_push_own(e->s, RUNTIME_PERL))
		return STOP_TOO_DEEP;
	e->w->after_loop = e->s->walk.n + 1;
	return RUNTIME_NATIVE;
}

/* Pushes a segment, or as much of it as one call may push. */
__noinline int perl_segment(void)
{
	const struct perl_frame program = {PERL_MAIN, 0, 0, 0};
	struct perl_env e;
	int r;

	if (!perl_env(&e))
		return RUNTIME_NATIVE;
	for (__u64 i = 0; i < PERL_CONTEXTS_PER_CALL; i++) {
		if (e.w->failed)
			return STOP_BAD_READ;
		if (e.w->index < 0 && !e.w->ending && e.w->type != PERL_SI_MAIN) {
			perl_enter(e.w, perl_word(e.w, e.w->stackinfo + PERL_SI_PREVIOUS));
			continue;
		}
		if (e.w->index < 0) {
			r = WALK_GO;
			if (!e.w->ending && !e.w->main)
				r = perl_push(&e, &program);
			e.w->main |= !e.w->ending;
			return r == WALK_GO ? perl_own(&e) : r;
		}
		if (!perl_read(&e, e.w->index))
			return STOP_BAD_READ;
		if (e.w->ending && !perl_is_c_eval(&e))
			return perl_own(&e);
		r = perl_context(&e);
		if (r != WALK_GO)
			return r;
	}
	return RUNTIME_AGAIN;
}

/* Drops the context at w->index, which f->context holds and no loop runs. */
static __always_inline void perl_drop(const struct perl_env *e)
{
	e->w->cop = e->f->context[PERL_CX_COP / 8];
	e->w->index--;
}

/* Whether an address is in stack frames that the walk has passed. */
static __always_inline bool perl_passed(const struct perl_env *e, __u64 address)
{
	return address >= e->s->first.sp && address < e->s->walk.regs.sp;
}

/* Whether an address is in the stack frame of the loop's caller. */
static __always_inline bool perl_in_caller(const struct perl_env *e, __u64 address)
{
	return address - e->s->walk.regs.sp < PERL_CALLER_BYTES;
}

/*
 * f->context is of code that C code runs in the loop any number of times: the context stays in
 * between. Whether that code does not run now: then the loop has left no op, or PL_op is what the C
 * code has saved, or the code has not come to its first statement, which sort blocks may lack.
 */
static __always_inline bool perl_is_between(const struct perl_env *e)
{
	const __u64 *c = e->f->context;
	__u64 saved = e->w->base + e->b->savestack;

	return !e->w->op ||
	       e->w->op == perl_word(e->w, perl_word(e->w, saved) + 8 * (c[0] >> 32)) ||
	       (e->w->type == PERL_SI_MULTICALL && e->w->cop == c[PERL_CX_COP / 8]);
}

/* The compiler computes a constant in the loop. Its COP is a copy, on the stack. */
static __always_inline void perl_fold(const struct perl_env *e)
{
	e->w->cop = e->w->base + e->b->compiling;
	if (perl_read(e, e->w->index) && perl_is_c_eval(e))
		e->w->index--;
}

/*
 * Prepares the innermost call of the loop: drops contexts that no loop runs (yet, or now). False:
 * the call has no context, and no frame.
 */
__noinline int perl_first(void)
{
	bool top, sub, stays, called;
	struct perl_walk *w;
	const __u64 *c;
	struct perl_env e;

	if (!perl_env(&e))
		return false;
	w = e.w;
	c = e.f->context;
	if (perl_in_caller(&e, w->cop)) {
		perl_fold(&e);
		return false;
	}
	if (perl_passed(&e, w->cop))
		perl_fold(&e);
	if (w->popped && e.s->walk.n == 1 && perl_read(&e, w->index + 1) &&
	    perl_kind_of(c[0]) == e.b->kinds.sub && !c[PERL_CX_RETURN / 8])
		return false;
	top = perl_read(&e, w->index);
	sub = top && perl_kind_of(c[0]) == e.b->kinds.sub;
	stays = top && !w->index && (w->type == PERL_SI_SORT || w->type == PERL_SI_MULTICALL) &&
		(perl_kind_of(c[0]) == e.b->kinds.null || (sub && c[0] & PERL_CX_MULTICALL));
	/* call_sv() has pushed the context of a sub that is not at its first statement. */
	called = sub && !c[PERL_CX_RETURN / 8] && w->cop == c[PERL_CX_COP / 8];
	if (!w->op && !e.s->walk.n) /* the loop is about to return */
		return stays || (top && perl_kind_of(c[0]) == e.b->kinds.defer);
	if (perl_in_caller(&e, w->op)) /* the op of call_sv() */
		return called;
	if ((perl_passed(&e, w->op) && called) || (stays && perl_is_between(&e)))
		perl_drop(&e);
	return true;
}

/* Goes to the stackinfo of this call of the loop, and drops an eval that only compiles in it. */
__noinline int perl_begin(void)
{
	struct perl_env e;
	const __u64 *c;

	if (!perl_env(&e))
		return false;
	c = e.f->context;
	for (__u64 i = 0; i < PERL_STACKINFOS_PER_CALL; i++) {
		if (e.w->index >= 0 || e.w->type == PERL_SI_MAIN)
			break;
		perl_enter(e.w, perl_word(e.w, e.w->stackinfo + PERL_SI_PREVIOUS));
	}
	/* eval_sv() has saved its JMPENV before it pushed the context. */
	if (perl_read(&e, e.w->index) && perl_kind_of(c[0]) == e.b->kinds.eval &&
	    !(c[0] & PERL_CX_EVAL_BLOCK) && !c[PERL_CX_RETURN / 8] &&
	    perl_passed(&e, c[PERL_CX_TOP_ENV / 8]))
		perl_drop(&e);
	return true;
}

/* Handles a call of the loop: pushes its segment. */
static __always_inline int perl_call(const struct perl_env *e)
{
	struct perl_walk *w = e->w;

	if (!w->base || w->through)
		return perl_own(e);
	if (!w->n_loops && !perl_first())
		return perl_own(e);
	if (!perl_begin())
		return RUNTIME_NATIVE;
	w->inside = 1;
	return perl_segment();
}

/* Remembers the native frames of libperl that say something about the loop around them. */
static __always_inline int perl_note(const struct perl_env *e, __u64 svma)
{
	struct perl_walk *w = e->w;

	if (runtime_in(&e->b->docatch, svma) && w->after_loop && w->after_loop == e->s->walk.n)
		w->through = 1;
	for (__u64 i = 0; i < PERL_MAX_LEAVES; i++)
		if (runtime_in(&e->b->leaves[i], svma))
			w->leaving = 1;
	for (__u64 i = 0; i < PERL_MAX_POPPED && !e->s->walk.n; i++)
		if (i < e->b->n_popped && runtime_in(&e->b->popped[i], svma))
			w->popped = 1;
	return RUNTIME_NATIVE;
}

/* Starts the walker at a sample's first frame in libperl; false: the process is unknown. */
__noinline int perl_start(void)
{
	const struct runtime_process *process;
	const struct perl_process *p;
	struct scratch *s = scratch_get();
	struct perl_walk *w;
	struct perl_env e;

	process = s ? runtime_process(s, RUNTIME_PERL) : NULL;
	if (!process)
		return false;
	w = (struct perl_walk *)runtime_state(s, RUNTIME_PERL);
	w->binary = process->binary;
	w->bias = process->bias;
	if (!perl_env(&e))
		return false;
	p = (const struct perl_process *)process->room;
	w->started = 1;
	w->base = e.b->threaded ? runtime_follow(&p->interpreter, s->first.tls) : w->bias;
	if (!w->base)
		return true;
	w->op = perl_word(w, w->base + e.b->op);
	w->cop = perl_word(w, w->base + e.b->cop);
	perl_enter(w, perl_word(w, w->base + e.b->stackinfo));
	return true;
}

__noinline int perl_walk(void)
{
	struct scratch *s = scratch_get();
	bool loop = false;
	struct perl_env e;
	__u64 svma;

	if (!s)
		return RUNTIME_NATIVE;
	if (!((struct perl_walk *)runtime_state(s, RUNTIME_PERL))->started && !perl_start())
		return RUNTIME_NATIVE;
	if (!perl_env(&e))
		return RUNTIME_NATIVE;
	if (e.w->inside)
		return perl_segment();
	svma = walk_pc(&s->walk.regs) - e.w->bias;
	for (__u64 i = 0; i < PERL_MAX_LOOPS; i++)
		loop |= i < e.b->n_loops && runtime_in(&e.b->loops[i], svma);
	return loop ? perl_call(&e) : perl_note(&e, svma);
}
