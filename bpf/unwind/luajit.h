/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * LuaJIT's frames (abi/runtime_luajit.h). When the walk reaches the VM or the code of a trace, the
 * walker finds the C frame, pushes the Lua frames that belong to it, and moves to the C frame's
 * caller. So C functions between Lua functions are in their place.
 *
 * The VM has the C frame at sp, except in the code of trace exits. A trace has it above its spill
 * slots: the walker searches the stack upwards for a frame whose L says that this is its innermost
 * C frame. The second and later C frames of an L are known from the first one.
 *
 * Functions of a trace are not on the Lua stack before the trace ends: user space reads them from
 * the trace's snapshots.
 */
#pragma once

#include "abi/runtime_luajit.h"
#include "bpf/unwind/runtime.h"

#define LUAJIT_FRAMES_PER_CALL 8
/* Words of the stack in which the walker searches a trace's C frame. */
#define LUAJIT_STACK_WORDS 256
#define LUAJIT_FEW_WORDS 32 /* near the end of the stack */

struct luajit_walk {
	__u32 inside; /* the walker is inside the part of the Lua stack of one C frame */
	__u32 vm;     /* the frame is the VM's and has its C frame at sp: rows lead to the caller */
	__u64 l;
	__u64 base;   /* of the next frame to push; 0: the Lua stack has ended */
	__u64 bottom; /* the lowest base that is no function's */
	__u64 pc;     /* of the next frame to push; 0: unknown */
	__u64 link;   /* of the next frame to push, which the VM has not stored yet; 0: it has */
	__u64 cframe; /* the current one */
	__u64 trace;  /* replaces the next frame to push; 0: none */
	__u64 where;  /* of the trace */
	/* The L that was left last for its resumer, and the L before. */
	__u64 next; /* the next C frame of `l`; 0: none */
	__u64 kept_l;
	__u64 kept_base;
	__u64 kept_next;
};
_Static_assert(sizeof(struct luajit_walk) <= sizeof(struct runtime_walk), "luajit_walk");

/* Copies of memory of the process; too large for the BPF stack. One entry for each level. */
struct luajit_buffer {
	__u64 stack[LUAJIT_STACK_WORDS];
	__u64 frame[4]; /* from base - 32 on */
	union {
		__u8 bytes[LUAJIT_TRACE_BYTES];
		__u64 words[LUAJIT_TRACE_BYTES / 8];
	} object;
	__u64 function[6];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct luajit_buffer);
} luajit_buffers SEC(".maps");

struct luajit_env {
	struct scratch *s;
	struct luajit_buffer *f;
	struct luajit_walk *w;
	const struct luajit_binary *b;
	__u64 bias;
};

/* Each global function starts with this, because the verifier checks it on its own. */
static __always_inline bool luajit_env(struct luajit_env *ret)
{
	const struct runtime_process *process;
	const struct runtime_binary *binary;
	__u32 level = scratch_level();

	ret->s = scratch_get();
	ret->f = bpf_map_lookup_elem(&luajit_buffers, &level);
	if (!ret->s || !ret->f)
		return false;
	process = runtime_process(ret->s, RUNTIME_LUAJIT);
	binary = process ? runtime_binary(process) : NULL;
	if (!binary)
		return false;
	ret->w = (struct luajit_walk *)runtime_state(ret->s, RUNTIME_LUAJIT);
	ret->b = (const struct luajit_binary *)binary->room;
	ret->bias = process->bias;
	return true;
}

static __always_inline __u64 luajit_object_word(const struct luajit_env *e, __u32 off)
{
	return e->f->object.words[off / 8];
}

/* ---- the C frame ---- */

/* Makes the L of an earlier C frame the current one. */
static __always_inline void luajit_swap(struct luajit_walk *w)
{
	__u64 l = w->l, base = w->base, next = w->next;

	w->l = w->kept_l;
	w->base = w->kept_base;
	w->next = w->kept_next;
	w->kept_l = l;
	w->kept_base = base;
	w->kept_next = next;
}

/*
 * Whether a C frame whose L is `l` can be at `at`. If so, makes l current: it is the next C frame
 * of a known L, or the innermost of another.
 */
__noinline int luajit_take(__u64 at, __u64 l)
{
	struct luajit_walk *w;
	struct luajit_env e;

	if (!luajit_env(&e))
		return false;
	w = e.w;
	if (l == w->l)
		return at == w->next;
	if (l == w->kept_l) {
		if (at != w->kept_next)
			return false;
		luajit_swap(w);
		return true;
	}
	if ((runtime_word(l + LUAJIT_STATE_CFRAME) & ~3ULL) != at)
		return false;
	luajit_swap(w);
	w->l = l;
	w->base = 0;
	w->next = at;
	return true;
}

/* Searches the C frame upwards from sp; 0: there is none. */
__noinline __u64 luajit_search(void)
{
	struct luajit_env e;
	__u32 n = LUAJIT_STACK_WORDS;
	__u64 sp;

	if (!luajit_env(&e))
		return 0;
	sp = e.s->walk.regs.sp;
	if (bpf_probe_read_user(e.f->stack, sizeof(e.f->stack), (const void *)sp) < 0) {
		n = LUAJIT_FEW_WORDS;
		if (bpf_probe_read_user(e.f->stack, 8 * LUAJIT_FEW_WORDS, (const void *)sp) < 0)
			return 0;
	}
	for (__u64 i = 0; i < LUAJIT_STACK_WORDS; i++) {
		__u64 at = sp + 8 * i - e.b->cframe_l, l = e.f->stack[i];

		if (i >= n)
			break;
		if (at < sp || l & 7 || l < WALK_MIN_PC || l > LUAJIT_POINTER)
			continue;
		if (luajit_take(at, l))
			return at;
	}
	return 0;
}

/* ---- where the Lua frames of the C frame begin ---- */

/* Whether `base` is in the current L's stack. */
static __always_inline bool luajit_in_stack(const struct luajit_env *e, __u64 base)
{
	return !(base & 7) && base > e->w->bottom &&
	       base <= runtime_word(e->w->l + LUAJIT_STATE_STACK - 8) + 8;
}

/* Whether `base` is the base of a function of the current L. */
static __always_inline bool luajit_is_base(const struct luajit_env *e, __u64 base)
{
	__u64 function, type = 0;

	if (!luajit_in_stack(e, base))
		return false;
	function = runtime_word(base - 16) & LUAJIT_POINTER;
	return bpf_probe_read_user(&type, 1, (const void *)(function + LUAJIT_OBJECT_TYPE)) == 0 &&
	       type == LUAJIT_TYPE_FUNCTION;
}

/* The base of the function that has made the call before `pc` for the one at `base`. */
static __always_inline __u64 luajit_caller(__u64 base, __u64 pc)
{
	__u8 code[4] = {};

	if (bpf_probe_read_user(code, 4, (const void *)((pc & ~3ULL) - 4)) < 0)
		return 0;
	return base - 8ULL * (2 + code[1]);
}

/* Whether `pc` is in the bytecode of the function at `base`. */
static __always_inline bool luajit_runs(__u64 base, __u64 pc)
{
	__u64 function = runtime_word(base - 16) & LUAJIT_POINTER;
	__u64 code = runtime_word(function + LUAJIT_FUNCTION_PC);
	__u64 size = code - LUAJIT_PROTO_BYTES + LUAJIT_PROTO_SIZE;
	__u32 n = 0;

	return bpf_probe_read_user(&n, 4, (const void *)size) == 0 && pc >= code &&
	       pc - code <= 4ULL * n;
}

/* The link in PC of a function that is at `base`, which the VM has not stored yet; 0: it has. */
static __always_inline __u64 luajit_link(const struct luajit_env *e, __u64 base, __u64 pc)
{
	__u64 before = base - (pc & ~7ULL), stored = runtime_word(base - 8);

	if (!(pc & 3)) {
		before = luajit_caller(base, pc);
		return luajit_is_base(e, before) && luajit_runs(before, pc) &&
				       (stored & 3 || !luajit_runs(base, pc))
			       ? pc
			       : 0;
	}
	/* pcall() has its callee's link in PC before BASE is its callee's. */
	if ((pc & 7) >= 6)
		return luajit_is_base(e, before) ? pc : 0;
	return before == runtime_word(e->w->l + LUAJIT_STATE_BASE) ? pc : 0;
}

/*
 * The registers BASE and PC of the VM say where the frames begin, but not in all its code:
 *
 *	It calls a function: BASE is set some instructions before the link to the caller
 *	is stored. PC has the link.
 *
 *	A function returns: PC has the link, the results may have replaced the function
 *	and its link.
 *
 *	A function returns to C, and vmstate says C: PC is the caller's base.
 *
 *	C calls the VM, and vmstate still says C: the registers are not set yet.
 *
 * Does not set w->base where L->base is right.
 */
__noinline int luajit_begin_leaf(void)
{
	struct luajit_env e;
	struct luajit_walk *w;
	__u64 base, pc, g;
	__s32 state = 0;

	if (!luajit_env(&e))
		return 0;
	w = e.w;
	base = e.s->walk.regs.r[walk_bound(e.b->reg_base, UNWIND_N_REGS - 1)];
	pc = e.s->walk.regs.r[walk_bound(e.b->reg_pc, UNWIND_N_REGS - 1)];
	g = runtime_word(w->l + LUAJIT_STATE_G);
	if (!luajit_in_stack(&e, base) ||
	    bpf_probe_read_user(&state, 4, (const void *)(g + (__u64)(__s64)e.b->vmstate)) < 0)
		return 0;
	if (state == LUAJIT_VMSTATE_C) {
		if (pc < base && luajit_is_base(&e, pc)) {
			w->base = pc;
			w->inside = 0;
		}
		return 0;
	}
	if (state != LUAJIT_VMSTATE_INTERPRETER)
		return 0;
	if (!luajit_is_base(&e, base)) {
		base = pc & 3 ? 0 : luajit_caller(base, pc);
		if (!luajit_is_base(&e, base))
			return 0;
	} else {
		w->link = luajit_link(&e, base, pc);
	}
	w->base = base;
	w->pc = pc;
	return 0;
}

/* Reads the trace that runs now. If pc is in its code, it replaces the first frame. */
static __always_inline void luajit_begin_trace(const struct luajit_env *e, __u64 g)
{
	__u64 pc = walk_pc(&e->s->walk.regs), at, mcode;
	__u32 number = 0;

	if (bpf_probe_read_user(&number, 4, (const void *)(g + (__u64)(__s64)e->b->vmstate)) < 0 ||
	    !number || number > 65535)
		return;
	at = runtime_word(runtime_word(g + (__u64)(__s64)e->b->traces) + 8ULL * number);
	if (bpf_probe_read_user(&e->f->object, sizeof(e->f->object), (const void *)at) < 0)
		return;
	mcode = luajit_object_word(e, LUAJIT_TRACE_MCODE);
	if (pc - mcode >= luajit_object_word(e, LUAJIT_TRACE_SIZE) >> 32)
		return;
	e->w->trace = at;
	e->w->where = luajit_cookie(luajit_object_word(e, LUAJIT_TRACE_PC), mcode,
				    luajit_object_word(e, LUAJIT_TRACE_NUMBER) & 0xffff) |
		      (pc - mcode);
}

/* Finds the first frame of the current C frame. */
__noinline int luajit_begin(void)
{
	struct luajit_env e;
	struct luajit_walk *w;
	const struct walk_regs *regs;
	__u64 base, top, g;
	__s32 nres = 0;
	bool first;

	if (!luajit_env(&e))
		return RUNTIME_NATIVE;
	w = e.w;
	regs = &e.s->walk.regs;
	first = !w->base;
	w->inside = 1;
	w->trace = 0;
	w->link = 0;
	w->bottom = runtime_word(w->l + LUAJIT_STATE_STACK) + 16;
	w->pc = runtime_word(w->cframe + e.b->cframe_pc);
	w->next = runtime_word(w->cframe + e.b->cframe_previous) & ~3ULL;
	if (!w->vm) {
		/*
		 * The registers are the trace's, also in the VM's code for exits. That sets
		 * L->base, clears jit_base and then writes the trace's frames to the Lua stack.
		 */
		g = runtime_word(w->l + LUAJIT_STATE_G);
		base = runtime_word(g + (__u64)(__s64)e.b->jit_base);
		if (base || e.s->walk.mapping.file & UNWIND_MAPPING_FP)
			w->pc = 0;
		if (e.s->walk.mapping.file & UNWIND_MAPPING_FP)
			luajit_begin_trace(&e, g);
		if (first && luajit_is_base(&e, base))
			w->base = base;
	} else if (first && regs->full && regs->exact) {
		(void)luajit_begin_leaf();
		if (!w->inside)
			return WALK_GO;
	}
	if (!w->base)
		w->base = runtime_word(w->l + LUAJIT_STATE_BASE);
	/* lj_vm_cpcall() calls C: its C frame has no Lua frames at first. */
	if (bpf_probe_read_user(&nres, 4, (const void *)(w->cframe + e.b->cframe_nres)) < 0)
		return STOP_BAD_READ;
	top = w->bottom - 16 + (__u64)(-(__s64)nres);
	if (nres < 0 && w->base - 8 < top)
		w->inside = 0;
	return WALK_GO;
}

/* ---- Lua frames ---- */

static __always_inline bool luajit_push(const struct luajit_env *e, __u64 at, __u64 kind,
					__u64 where)
{
	return runtime_push(e->s, RUNTIME_LUAJIT, at, where | kind << LUAJIT_KIND_SHIFT);
}

/* Pushes a Lua function. */
static __always_inline bool luajit_push_lua(const struct luajit_env *e, __u64 named)
{
	__u64 code = e->f->function[LUAJIT_FUNCTION_PC / 8], n;
	__u64 proto = code - LUAJIT_PROTO_BYTES, where = LUAJIT_NO_POSITION;

	if (bpf_probe_read_user(&e->f->object, LUAJIT_PROTO_BYTES, (const void *)proto) < 0)
		return luajit_push(e, proto, LUAJIT_LUA, where);
	n = luajit_object_word(e, LUAJIT_PROTO_SIZE) >> 32;
	/* At the begin of the code the first instruction has not run, but is the next one. */
	if (e->w->pc >= code && e->w->pc - code <= 4 * n)
		where = e->w->pc > code ? (e->w->pc - code) / 4 : 1;
	return luajit_push(e, proto, LUAJIT_LUA,
			   luajit_cookie(luajit_object_word(e, LUAJIT_PROTO_CHUNK),
					 luajit_object_word(e, LUAJIT_PROTO_LINES), n) |
				   named | where);
}

/* Pushes the function of the frame, or the trace that runs for it. */
static __always_inline bool luajit_push_function(const struct luajit_env *e, __u64 function,
						 __u64 link)
{
	__u64 *words = e->f->function;
	__u64 named = link & 3 && (link & 7) != 2 ? 0 : LUAJIT_NAMED;
	__u8 type, ffid;

	if (e->w->trace) {
		__u64 trace = e->w->trace;

		e->w->trace = 0;
		return luajit_push(e, trace, LUAJIT_TRACE, e->w->where | named) &&
		       runtime_push_own(e->s, RUNTIME_LUAJIT) &&
		       luajit_push(e, trace, LUAJIT_MARK, e->w->where);
	}
	if (bpf_probe_read_user(words, sizeof(e->f->function), (const void *)function) < 0)
		return true;
	type = words[1] >> 8;
	ffid = words[1] >> 16;
	if (type != LUAJIT_TYPE_FUNCTION)
		return true; /* a frame that LuaJIT makes for errors */
	if (!ffid)
		return luajit_push_lua(e, named);
	/* The native frame of a C function follows; only its caller's code has its Lua name. */
	return !named || luajit_push(e, function, LUAJIT_C,
				     named | luajit_cookie(words[LUAJIT_FUNCTION_C / 8], ffid, 0));
}

/* Pushes the frame at w->base and moves to the one before; w->inside is 0 after the last. */
__noinline int luajit_one(void)
{
	__u64 *frame, link, before, type;
	struct luajit_walk *w;
	struct luajit_env e;

	if (!luajit_env(&e))
		return RUNTIME_NATIVE;
	w = e.w;
	frame = e.f->frame;
	if (w->base <= w->bottom || w->base & 7) {
		w->base = 0;
		w->inside = 0;
		return WALK_GO;
	}
	if (bpf_probe_read_user(frame, sizeof(e.f->frame), (const void *)(w->base - 32)) < 0)
		return STOP_BAD_READ;
	link = w->link ? w->link : frame[3];
	w->link = 0;
	type = link & 7;
	/* A function with variable arguments has two frames: the second one has the link. */
	if (type != 3 && !luajit_push_function(&e, frame[2] & LUAJIT_POINTER, link))
		return STOP_TOO_DEEP;
	if (!(type & 3)) {
		before = luajit_caller(w->base, link);
		if (!before)
			return STOP_BAD_READ;
		before = w->base - before;
		w->pc = link;
	} else {
		before = link & ~7ULL;
		if (type == 2)
			w->pc = frame[1];
		else if (type != 3)
			w->pc = 0;
	}
	if ((type & 3) == 1 || (type == 2 && frame[0] == 1))
		w->inside = 0;
	if (!before || before > w->base - w->bottom) {
		w->base = 0;
		w->inside = 0;
		return WALK_GO;
	}
	w->base -= before;
	return WALK_GO;
}

/* Leaves the C frame. */
static __always_inline int luajit_leave(const struct luajit_env *e)
{
	struct luajit_walk *w = e->w;
	__u64 pc = runtime_word(w->cframe + e->b->cframe_ra);
	__u64 fp = runtime_word(w->cframe + e->b->cframe_fp);

	/* The base of an L whose frames have all been pushed must not look like that of a new L. */
	if (!w->base)
		w->base = 1;
	if (!w->vm)
		return runtime_return(e->s, pc, w->cframe + e->b->cframe_bytes, fp);
	return runtime_push_own(e->s, RUNTIME_LUAJIT) ? RUNTIME_NATIVE : STOP_TOO_DEEP;
}

/* Pushes the Lua frames of the C frame, or as many as one call may push. */
__noinline int luajit_frames(void)
{
	struct luajit_env e;
	int r;

	if (!luajit_env(&e))
		return RUNTIME_NATIVE;
	/* After the last frame a new call would begin with the next C frame. */
	for (__u64 i = 0; i <= LUAJIT_FRAMES_PER_CALL; i++) {
		if (!e.w->inside)
			return luajit_leave(&e);
		if (i == LUAJIT_FRAMES_PER_CALL)
			break;
		r = luajit_one();
		if (r != WALK_GO)
			return r;
	}
	return RUNTIME_AGAIN;
}

__noinline int luajit_walk(void)
{
	struct luajit_env e;
	__u64 svma, sp;
	bool jit;
	int r;

	if (!luajit_env(&e))
		return RUNTIME_NATIVE;
	if (e.w->inside)
		return luajit_frames();
	svma = walk_pc(&e.s->walk.regs) - e.bias;
	jit = e.s->walk.mapping.file & UNWIND_MAPPING_FP;
	if (!jit && (svma < e.b->start || svma >= e.b->end))
		return RUNTIME_NATIVE;
	sp = e.s->walk.regs.sp;
	e.w->vm = !jit && luajit_take(sp, runtime_word(sp + e.b->cframe_l));
	e.w->cframe = e.w->vm ? sp : luajit_search();
	if (!e.w->cframe)
		return jit ? STOP_RUNTIME_STATE : RUNTIME_NATIVE;
	r = luajit_begin();
	return r == WALK_GO ? luajit_frames() : r;
}
