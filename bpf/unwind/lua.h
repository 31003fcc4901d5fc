/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Frames of PUC-Rio's Lua (abi/runtime_lua.h). Before the walk unwinds a call of the interpreter's
 * loop, the walker pushes the functions that the call runs, so that C code between Lua code is in
 * its place.
 *
 * Nothing says in a build-independent way which lua_State a call of the loop runs. But the stack
 * around the loop's frame always has its address: the loop's caller uses it after the call. The
 * walker tries all words there that point to a lua_State. If there are several, because a coroutine
 * has been resumed by another, the running one has the lowest setjmp() buffer above the loop's
 * frame: each lua_resume() sets one.
 */
#pragma once

#include "abi/runtime_lua.h"
#include "bpf/unwind/runtime.h"

#define LUA_FRAMES_PER_CALL 8
#define LUA_STACK_WORDS 64
#define LUA_CANDIDATES (LUA_STACK_WORDS + 16)
#define LUA_MAX_JUMPS 8
#define LUA_NO_JUMP (~0ULL)

struct lua_walk {
	__u32 inside; /* the walker is inside the part of one call of the loop */
	__u32 rest;   /* the part has no call of the loop: it ends with the list */
	__u32 leaf;   /* the next function to push is the one that runs now */
	__u32 own;    /* the frame is the loop's */
	__u64 l;
	__u64 ci; /* the next one of l to push; 0: the list has ended */
	__u64 pc; /* 5.1: of ci, which is not in ci itself; 0: it is */
	/* Another L, which was current before. */
	__u64 kept_l;
	__u64 kept_ci;
	/* The search for the L of a call of the loop. */
	__u64 best, best_jump;
};
_Static_assert(sizeof(struct lua_walk) <= sizeof(struct runtime_walk), "lua_walk");

/* Copies of memory of the process; too large for the BPF stack. One entry for each level. */
struct lua_buffer {
	__u64 candidates[LUA_CANDIDATES];
	union {
		__u8 bytes[LUA_STATE_BYTES + 8];
		__u64 words[LUA_STATE_BYTES / 8 + 1];
	} state;
	union {
		__u8 bytes[LUA_CI_BYTES + 8];
		__u64 words[LUA_CI_BYTES / 8 + 1];
	} ci;
	union {
		__u8 bytes[LUA_PROTO_BYTES + 8];
		__u64 words[LUA_PROTO_BYTES / 8 + 1];
	} proto;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct lua_buffer);
} lua_buffers SEC(".maps");

struct lua_env {
	struct scratch *s;
	struct lua_buffer *f;
	struct lua_walk *w;
	const struct lua_binary *b;
	__u64 bias;
};

/* Each global function starts with this, because the verifier checks it on its own. */
static __always_inline bool lua_env(struct lua_env *ret)
{
	const struct runtime_process *process;
	const struct runtime_binary *binary;
	__u32 level = scratch_level();

	ret->s = scratch_get();
	ret->f = bpf_map_lookup_elem(&lua_buffers, &level);
	if (!ret->s || !ret->f)
		return false;
	process = runtime_process(ret->s, RUNTIME_LUA);
	binary = process ? runtime_binary(process) : NULL;
	if (!binary)
		return false;
	ret->w = (struct lua_walk *)runtime_state(ret->s, RUNTIME_LUA);
	ret->b = (const struct lua_binary *)binary->room;
	ret->bias = process->bias;
	return true;
}

static __always_inline __u64 lua_state_word(const struct lua_buffer *f, __u32 off)
{
	off = walk_bound(off / 8, 31);
	return off < LUA_STATE_BYTES / 8 ? f->state.words[off] : 0;
}

static __always_inline __u64 lua_ci_word(const struct lua_buffer *f, __u32 off)
{
	off = walk_bound(off / 8, 15);
	return off < LUA_CI_BYTES / 8 ? f->ci.words[off] : 0;
}

static __always_inline __u32 lua_ci_status(const struct lua_buffer *f, __u32 off)
{
	const __u8 *p;

	off = walk_bound(off, 127);
	if (off > LUA_CI_BYTES)
		return 0;
	p = &f->ci.bytes[off];
	return p[0] | p[1] << 8 | p[2] << 16 | (__u32)p[3] << 24;
}

static __always_inline __u64 lua_proto_word(const struct lua_buffer *f, __u32 off)
{
	return f->proto.words[walk_bound(off / 8, LUA_PROTO_BYTES / 8 - 1)];
}

static __always_inline __u32 lua_proto_u32(const struct lua_buffer *f, __u32 off)
{
	return (__u32)(lua_proto_word(f, off) >> (off & 4 ? 32 : 0));
}

/* ---- the lua_State of a call of the loop ---- */

/* The first setjmp() buffer of a list above sp. */
static __always_inline __u64 lua_jump_above(__u64 jump, __u64 sp)
{
	for (__u64 i = 0; i < LUA_MAX_JUMPS; i++) {
		if (!jump)
			break;
		if (jump > sp)
			return jump;
		jump = runtime_word(jump);
	}
	return LUA_NO_JUMP;
}

/*
 * If there is a lua_State at `l`: its first setjmp() buffer above sp, or LUA_NO_JUMP. Otherwise 0.
 */
__noinline __u64 lua_is_state(__u64 l)
{
	struct lua_buffer *f;
	struct lua_env e;
	__u64 ci, function;

	if (!lua_env(&e))
		return 0;
	f = e.f;
	if (bpf_probe_read_user(&f->state, LUA_STATE_BYTES, (const void *)l) < 0 ||
	    f->state.bytes[8] != LUA_TYPE_THREAD)
		return 0;
	ci = lua_state_word(f, e.b->state_ci);
	function = runtime_word(ci + e.b->ci_func);
	if (!function || function < lua_state_word(f, e.b->state_stack) ||
	    function > lua_state_word(f, e.b->state_last))
		return 0;
	return lua_jump_above(lua_state_word(f, e.b->state_jump), e.s->walk.regs.sp);
}

/* Copies the words that may point to the lua_State of the loop's frame. */
static __always_inline void lua_copy_candidates(const struct lua_env *e)
{
	const struct walk_regs *regs = &e->s->walk.regs;
	__u64 *to = e->f->candidates;

	if (bpf_probe_read_user(to, 8 * LUA_STACK_WORDS, (const void *)regs->sp) < 0 &&
	    bpf_probe_read_user(to, 8 * LUA_STACK_WORDS / 2, (const void *)regs->sp) < 0)
		__builtin_memset(to, 0, 8 * LUA_STACK_WORDS);
	for (__u64 i = 0; i < 16; i++)
		to[LUA_STACK_WORDS + i] = regs->full && regs->exact ? regs->r[i] : 0;
}

/* Takes `l` as the best candidate if it is a lua_State and better. */
__noinline int lua_try(__u64 l)
{
	struct lua_env e;
	__u64 jump;

	/* The functions of the first two have all been pushed. */
	if (!lua_env(&e) || (l == e.w->l && !e.w->ci) || (l == e.w->kept_l && !e.w->kept_ci))
		return 0;
	jump = lua_is_state(l);
	if (!jump || (e.w->best && jump >= e.w->best_jump))
		return 0;
	e.w->best = l;
	e.w->best_jump = jump;
	return 0;
}

/* Finds the lua_State of the loop's frame; 0: there is none. */
__noinline __u64 lua_find(void)
{
	struct lua_env e;

	if (!lua_env(&e))
		return 0;
	lua_copy_candidates(&e);
	e.w->best = 0;
	e.w->best_jump = LUA_NO_JUMP;
	for (__u64 i = 0; i < LUA_CANDIDATES; i++) {
		__u64 l = e.f->candidates[i];

		if (!(l & 7) && l >= WALK_MIN_PC && l < WALK_MAX_PC && l != e.w->best)
			lua_try(l);
	}
	return e.w->best;
}

/* Whether lua_resume() of the current lua_State has been passed, so no call of the loop follows. */
__noinline int lua_is_passed(void)
{
	struct lua_env e;
	__u64 jump, sp;

	if (!lua_env(&e) || !e.w->l || !e.w->ci)
		return false;
	sp = e.s->walk.regs.sp;
	jump = runtime_word(e.w->l + e.b->state_jump);
	return jump && lua_jump_above(jump, sp) == LUA_NO_JUMP;
}

/* Makes a lua_State current. */
__noinline int lua_take(__u64 l)
{
	struct lua_walk *w;
	struct lua_env e;
	__u64 ci;

	if (!lua_env(&e))
		return RUNTIME_NATIVE;
	w = e.w;
	w->inside = 1;
	w->rest = 0;
	w->leaf = 0;
	if (l == w->l)
		return WALK_GO;
	ci = w->ci;
	if (l == w->kept_l) {
		w->ci = w->kept_ci;
	} else {
		w->ci = runtime_word(l + e.b->state_ci);
		w->pc = e.b->is_51 ? runtime_word(l + e.b->state_pc) : 0;
		w->leaf = 1;
	}
	w->kept_l = w->l;
	w->kept_ci = ci;
	w->l = l;
	return WALK_GO;
}

/* ---- functions ---- */

static __always_inline bool lua_push(const struct lua_env *e, __u64 at, __u64 kind, __u64 where)
{
	return runtime_push(e->s, RUNTIME_LUA, at, where | kind << LUA_KIND_SHIFT);
}

/*
 * The current pc of the function that runs now. The loop keeps it in a register and stores it only
 * before calls: it is the register that points into the function's code. A function that the loop
 * has called may still have it in a register, too.
 */
static __always_inline __u64 lua_leaf_pc(const struct lua_env *e, __u64 code, __u64 n, __u64 pc)
{
	__u64 best = 0;

	for (__u64 i = 0; i < UNWIND_N_REGS; i++) {
		__u64 r = e->s->first.r[i];

		if (r > code && r - code <= 4 * n && !(r & 3) && r > best)
			best = r;
	}
	return best ? best : pc;
}

/* Pushes a Lua function, whose closure is at `closure`. */
static __always_inline bool lua_push_lua(const struct lua_env *e, __u64 closure, __u64 pc,
					 __u64 named)
{
	__u64 proto = runtime_word(closure + e->b->closure_proto), code, where = LUA_NO_POSITION;
	struct lua_buffer *f = e->f;
	__u32 n, last;

	if (bpf_probe_read_user(&f->proto, LUA_PROTO_BYTES, (const void *)proto) < 0)
		return lua_push(e, proto, LUA_LUA, where);
	code = lua_proto_word(f, e->b->proto_code);
	n = lua_proto_u32(f, e->b->proto_n_code);
	if (e->w->leaf)
		pc = lua_leaf_pc(e, code, n, pc);
	/* At the begin of the code the first instruction has not run, but is the next one. */
	if (pc >= code && pc - code <= 4ULL * n)
		where = pc > code ? (pc - code) / 4 : 1;
	last = lua_proto_u32(f, e->b->proto_lines + 4);
	return lua_push(e, proto, LUA_LUA,
			lua_cookie(lua_proto_word(f, e->b->proto_source),
				   lua_proto_u32(f, e->b->proto_lines) | (__u64)last << 32, n) |
				named | where);
}

/* Reads the CallInfo at `at` into the buffer. */
static __always_inline bool lua_read_ci(const struct lua_env *e, __u64 at)
{
	return bpf_probe_read_user(&e->f->ci, LUA_CI_BYTES, (const void *)at) == 0;
}

/* What decides about a CallInfo. */
struct lua_call {
	__u64 function; /* the function's value */
	__u64 pc, previous;
	bool c, fresh, tail;
};

static __always_inline bool lua_read_call(const struct lua_env *e, __u64 at, struct lua_call *ret)
{
	const struct lua_binary *b = e->b;
	__u64 value[2];
	__u32 status;
	__u8 is_c = 0;

	if (!lua_read_ci(e, at) ||
	    bpf_probe_read_user(value, sizeof(value), (const void *)lua_ci_word(e->f, b->ci_func)) <
		    0)
		return false;
	ret->function = value[0];
	ret->pc = lua_ci_word(e->f, b->ci_pc);
	if (b->is_51) {
		(void)bpf_probe_read_user(&is_c, 1, (const void *)(value[0] + 10));
		ret->c = is_c || (__u32)value[1] != LUA_TYPE_FUNCTION;
		ret->previous = at - b->ci_bytes;
		ret->fresh = false;
		ret->tail = !ret->c && lua_ci_word(e->f, 32) >> 32; /* tailcalls */
		return true;
	}
	status = lua_ci_status(e->f, b->ci_status);
	ret->c = (status & b->c_mask) == b->c_value;
	ret->fresh = (status & b->fresh_mask) == b->fresh_value;
	ret->tail = status & b->tail_mask;
	ret->previous = lua_ci_word(e->f, b->ci_previous);
	return true;
}

/*
 * Whether the call of the loop that is interrupted itself has left its function, whose caller is C
 * code: the loop runs no function any more, and what l has belongs to calls below.
 */
__noinline int lua_has_returned(__u64 l)
{
	struct lua_call call;
	struct lua_env e;

	if (!lua_env(&e) || !e.s->walk.regs.exact)
		return false;
	return lua_read_call(&e, runtime_word(l + e.b->state_ci), &call) && call.c;
}

/* 5.1: whether the caller's instruction runs its callee in the same call of the loop. */
static __always_inline bool lua_51_is_call(const struct lua_env *e, const struct lua_call *caller)
{
	__u32 code = 0, op;

	(void)bpf_probe_read_user(&code, 4, (const void *)(caller->pc - 4));
	op = code & 63;
	return op == e->b->op_call || op == e->b->op_tailcall;
}

/* Pushes the function of w->ci and moves to its caller; w->inside is 0 after the last. */
__noinline int lua_one(void)
{
	struct lua_call call, caller = {.c = true};
	struct lua_walk *w;
	struct lua_env e;
	__u64 base, named;
	bool ok = true;

	if (!lua_env(&e))
		return RUNTIME_NATIVE;
	w = e.w;
	base = w->l + e.b->state_base_ci;
	if (e.b->is_51)
		base = runtime_word(base);
	if (!w->ci || w->ci == base || !lua_read_call(&e, w->ci, &call)) {
		w->ci = 0;
		w->inside = 0;
		return WALK_GO;
	}
	if (w->pc)
		call.pc = w->pc;
	w->pc = 0;
	w->ci = call.previous;
	if (w->ci && w->ci != base && !lua_read_call(&e, w->ci, &caller))
		w->ci = 0;
	/* Only the caller's code has the Lua name of a C function. */
	named = !caller.c && !call.tail ? LUA_NAMED : 0;
	if (!call.c)
		ok = lua_push_lua(&e, call.function, call.pc, named);
	else if (named)
		ok = lua_push(&e, call.function, LUA_C, named);
	if (!ok)
		return STOP_TOO_DEEP;
	w->leaf = 0;
	if (call.c || w->rest)
		return WALK_GO;
	if (e.b->is_51 ? caller.c || !lua_51_is_call(&e, &caller) : call.fresh)
		w->inside = 0;
	return WALK_GO;
}

/* Pushes functions, at most as many as one call may push. */
__noinline int lua_functions(void)
{
	struct lua_env e;
	int r;

	if (!lua_env(&e))
		return RUNTIME_NATIVE;
	/* After the last function a new call would begin with the next part. */
	for (__u64 i = 0; i <= LUA_FRAMES_PER_CALL; i++) {
		if (!e.w->inside) {
			if (e.w->rest)
				return RUNTIME_AGAIN;
			return runtime_push_own(e.s, RUNTIME_LUA) ? RUNTIME_NATIVE : STOP_TOO_DEEP;
		}
		if (i == LUA_FRAMES_PER_CALL)
			break;
		r = lua_one();
		if (r != WALK_GO)
			return r;
	}
	return RUNTIME_AGAIN;
}

__noinline int lua_walk(void)
{
	struct lua_env e;
	__u64 l;

	if (!lua_env(&e))
		return RUNTIME_NATIVE;
	if (e.w->inside)
		return lua_functions();
	if (!runtime_in_any(e.b->loops, e.b->n_loops, LUA_MAX_RANGES,
			    walk_pc(&e.s->walk.regs) - e.bias))
		return RUNTIME_NATIVE;
	l = lua_find();
	if (!l || lua_has_returned(l))
		return runtime_push_own(e.s, RUNTIME_LUA) ? RUNTIME_NATIVE : STOP_TOO_DEEP;
	/*
	 * A coroutine that has yielded and was resumed has functions whose calls of the loop have
	 * ended. They belong between its last call of the loop and its resumer.
	 */
	if (l != e.w->l && lua_is_passed()) {
		e.w->inside = 1;
		e.w->rest = 1;
		return lua_functions();
	}
	(void)lua_take(l);
	return lua_functions();
}
