/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Frames of V8: interpreted and compiled JavaScript, and V8's builtins (abi/runtime_v8.h).
 *
 * Embedded builtins, which include the bytecode handlers, are in the binary's text. Their unwind
 * rows, which user space reads from their code, say whether a leaf has a frame of its own. Compiled
 * JavaScript is in anonymous memory: the instructions around a leaf's pc tell whether the leaf has
 * made its frame, or already removed it. All other frames are a frame-pointer chain.
 *
 * The walker sends only the pc of a compiled frame: user space finds the code object around the pc.
 */
#pragma once

#include "abi/runtime_v8.h"
#include "bpf/unwind/runtime.h"

/* struct runtime_walk.room */
#define V8_SLOTS 0 /* 8 words from fp - 48 on */
#define V8_CODE 0  /* or: 80 bytes of code around pc, in the same words */
#define V8_CODE_BEFORE 32
#define V8_CODE_BYTES 80
#define V8_LEAF_ARRAY 14 /* registers of a leaf in a bytecode handler */
#define V8_LEAF_OFFSET 15

#define V8_SLOTS_BELOW 48

struct v8_env {
	struct scratch *s;
	const struct runtime_v8_binary *v;
	struct runtime_walk *state;
	__u64 pc, svma;
	bool jit;
};

static __always_inline __u64 v8_slot(const struct v8_env *e, __s32 off)
{
	return e->state->room[V8_SLOTS + walk_bound((__u32)(off + V8_SLOTS_BELOW) / 8, 7)];
}

static __always_inline bool v8_in_interpreter(const struct v8_env *e)
{
	for (__u64 i = 0; i < 2; i++)
		if (e->svma >= e->v->interpreter[i].start && e->svma < e->v->interpreter[i].end)
			return !e->jit;
	return false;
}

#define V8_UNREADABLE (~0u)

/* The instance type of a tagged heap object; 0: the word is no heap object; or V8_UNREADABLE. */
static __always_inline __u32 v8_type(const struct v8_env *e, __u64 tagged)
{
	__u64 map = 0;
	__u16 type = 0;

	if ((tagged & 3) != 1)
		return 0;
	if (bpf_probe_read_user(&map, 8, (const void *)(tagged - 1)) < 0)
		return V8_UNREADABLE;
	if ((map & 3) != 1)
		return 0;
	if (bpf_probe_read_user(&type, 2, (const void *)(map - 1 + e->v->instance_type)) < 0)
		return V8_UNREADABLE;
	return type;
}

/* A leaf that has not stored its function yet has any word in its place: then there is no frame. */
static __always_inline int v8_unreadable(const struct v8_env *e)
{
	return e->s->walk.regs.exact ? WALK_GO : STOP_BAD_READ;
}

/*
 * Pushes a function's frame, and nothing if `function` is no function. Returns WALK_GO or why the
 * stack ends here.
 */
static __always_inline int v8_push(const struct v8_env *e, __u64 function, __u64 kind,
				   __u64 position)
{
	__u32 type = v8_type(e, function);
	__u64 shared = 0, words[2] = {};

	if (type == V8_UNREADABLE)
		return v8_unreadable(e);
	if (!type || type < e->v->first_function || type > e->v->last_function)
		return WALK_GO;
	if (bpf_probe_read_user(&shared, 8, (const void *)(function - 1 + e->v->shared)) < 0)
		return v8_unreadable(e);
	if ((shared & 3) != 1)
		return WALK_GO;
	shared--;
	if (bpf_probe_read_user(words, sizeof(words), (const void *)(shared + e->v->cookie)) < 0)
		return v8_unreadable(e);
	return runtime_push(e->s, RUNTIME_V8, shared,
			    kind << V8_FRAME_SHIFT |
				    v8_cookie(words[0], words[1]) << V8_COOKIE_SHIFT |
				    (position & V8_POSITION_MASK))
		       ? WALK_GO
		       : STOP_TOO_DEEP;
}

/* Pushes a native frame of V8's own code, hidden by default. Returns as v8_push() does. */
static __always_inline int v8_push_own(const struct v8_env *e)
{
	struct walk *w = &e->s->walk;

	if (!(w->mapping.file >> 8))
		return WALK_GO;
	if (!runtime_push_own(e->s, RUNTIME_V8) || w->n >= SAMPLE_MAX_FRAMES)
		return STOP_TOO_DEEP;
	native_push(e->s, (__u64)(w->mapping.file >> 8) << WORD_SVMA_BITS | e->svma);
	return WALK_GO;
}

/*
 * Pushes an interpreted frame. The bytecode offset in the frame is that of the frame's last call. A
 * leaf in a bytecode handler has the current offset in a register, as long as the register of the
 * bytecode array still holds the frame's array.
 */
static __always_inline int v8_push_interpreted(const struct v8_env *e, __u64 function)
{
	__u64 array = v8_slot(e, e->v->off_bytecode_array);
	__u64 offset = v8_slot(e, e->v->off_bytecode_offset) >> 32;
	__u64 leaf = e->state->room[V8_LEAF_OFFSET] & 0xffffffff;

	if (e->state->room[V8_LEAF_ARRAY] == array && array && leaf < 1 << 30)
		offset = leaf;
	return v8_push(e, function, V8_FRAME_INTERPRETED, offset);
}

#if UNWIND_REG_FP == 6
/*
 * Whether the code before the return address is a copy of the interpreter's entry.
 * --interpreted-frames-native-stack gives each function a copy. Only the interpreter's entry
 * continues like this: call *%rcx; mov ARRAY(%rbp), %r12 or %r14; mov OFFSET(%rbp), %r9, or the
 * upper half of OFFSET. The checks of the slots come first, because they are cheaper.
 */
static __always_inline bool v8_is_interpreter_copy(const struct v8_env *e)
{
	__u64 code = 0, array = (__u8)e->v->off_bytecode_array;
	__u8 offset = (__u8)e->v->off_bytecode_offset;
	__u16 call = 0;

	if (e->s->walk.regs.exact || v8_slot(e, e->v->off_bytecode_offset) << 32 ||
	    (v8_slot(e, e->v->off_bytecode_array) & 3) != 1 ||
	    bpf_probe_read_user(&code, 8, (const void *)(e->pc + 1)) < 0 ||
	    bpf_probe_read_user(&call, 2, (const void *)(e->pc - 1)) < 0)
		return false;
	if (call != 0xd1ff || (code & 0xfffff7ffefffffULL) != (0x4d8b4400658b4cULL | array << 24))
		return false;
	return code >> 56 == offset || code >> 56 == (__u8)(offset + 4);
}
#else
static __always_inline bool v8_is_interpreter_copy(const struct v8_env *e)
{
	return false;
}
#endif

static __always_inline int v8_push_javascript(const struct v8_env *e)
{
	const struct runtime_v8_binary *v = e->v;
	__u64 function = v8_slot(e, v->off_function);
	int stop;

	if (e->jit && v8_is_interpreter_copy(e)) {
		stop = v8_push_interpreted(e, function);
	} else if (e->jit) {
		/* The prologue has not stored the function yet. */
		if (e->s->walk.regs.exact && e->s->walk.regs.full &&
		    e->s->walk.regs.sp > e->s->walk.regs.fp + (__u64)(__s64)v->off_function)
			function =
				e->s->walk.regs.r[walk_bound(v->reg_function, UNWIND_N_REGS - 1)];
		stop = v8_push(e, function, V8_FRAME_COMPILED, e->pc);
	} else if (v8_in_interpreter(e) ||
		   (!v->interpreter[0].start && !(v8_slot(e, v->off_bytecode_offset) << 32) &&
		    v8_type(e, v8_slot(e, v->off_bytecode_array)) == v->bytecode_array)) {
		stop = v8_push_interpreted(e, function);
	} else {
		stop = v8_push(e, function, V8_FRAME_BUILTIN, 0);
	}
	e->state->room[V8_LEAF_ARRAY] = 0;
	return stop;
}

/* Pushes the frame at fp and moves to its caller. */
static __always_inline int v8_frame(const struct v8_env *e)
{
	const struct walk_regs *regs = &e->s->walk.regs;
	__u64 fp = regs->fp, context, target = 0, sp = fp + 16;
	bool leaf = regs->exact;
	int stop = WALK_GO;

	if (fp < regs->sp && !leaf)
		return STOP_NO_PROGRESS;
	if (bpf_probe_read_user(&e->state->room[V8_SLOTS], 64,
				(const void *)(fp - V8_SLOTS_BELOW)) < 0)
		return STOP_BAD_READ;
	context = v8_slot(e, e->v->off_context);
	if (context & 1) {
		stop = v8_push_javascript(e);
	} else {
		context >>= 1;
		if (context == e->v->frame_builtin_exit &&
		    bpf_probe_read_user(&target, 8, (const void *)(fp + 24)) == 0)
			stop = v8_push(e, target, V8_FRAME_BUILTIN, 0);
		if (stop == WALK_GO && !leaf &&
		    (context == e->v->frame_entry || context == e->v->frame_construct_entry ||
		     context == e->v->frame_exit || context == e->v->frame_builtin_exit))
			stop = v8_push_own(e);
#if UNWIND_REG_FP == 29
		/* The entry frame's callee-saved registers are above the frame record. */
		if (context == e->v->frame_entry || context == e->v->frame_construct_entry)
			sp = fp + 160;
#endif
	}
	if (stop != WALK_GO)
		return stop;
	return runtime_return(e->s, v8_slot(e, 8), sp, v8_slot(e, 0));
}

#if UNWIND_REG_FP == 6
/* Where the return address of a leaf is. */
enum v8_leaf { V8_FRAMED, V8_AT_SP, V8_PUSHED_FP, V8_IN_R10, V8_IN_RCX };

static __always_inline __u32 v8_code(const struct v8_env *e, __u32 at)
{
	const __u8 *code = (const __u8 *)&e->state->room[V8_CODE];

	if (at > V8_CODE_BYTES - 4)
		return 0;
	return code[at] | code[at + 1] << 8 | code[at + 2] << 16 | (__u32)code[at + 3] << 24;
}

/*
 * Where the leaf's return address is, by the code around pc. push rbp; mov rbp, rsp opens a frame;
 * mov rsp, rbp; pop rbp (or leave) closes it. A few instructions follow the close: they compare the
 * number of arguments and drop the arguments, with the return address in rcx or r10 meanwhile. The
 * code before the open is short, too: it checks whether the code is still valid and whether the
 * stack is large enough.
 */
static __always_inline enum v8_leaf v8_leaf_state(const struct v8_env *e)
{
	const __u32 pc = V8_CODE_BEFORE;
	__u32 word;

	if (bpf_probe_read_user(&e->state->room[V8_CODE], V8_CODE_BYTES,
				(const void *)(e->pc - V8_CODE_BEFORE)) < 0)
		return V8_FRAMED;
	word = v8_code(e, pc - 1);
	if (word == 0xe5894855 || word == 0xec8b4855)
		return V8_PUSHED_FP;
	for (__u64 i = pc; i < V8_CODE_BYTES - 4; i++) {
		word = v8_code(e, i);
		if ((word == 0xe5894855 || word == 0xec8b4855) &&
		    (v8_code(e, i - 1) & 0xff) != 0xcc)
			return V8_AT_SP;
	}
	for (__u64 i = 4; i <= 24; i++) {
		/* Masked: Linux 7.2 would take a plain pc - i for an offset before the array. */
		__u32 at = walk_bound(pc - i, 63);

		word = v8_code(e, at);
		if (word != 0x5de58b48 && word != 0x5dec8948)
			continue;
		/* pop r10 or pop rcx has been the last instruction */
		if (i > 4 && (v8_code(e, pc - 2) & 0xffff) == 0x5a41)
			return V8_IN_R10;
		if (i > 4 && (v8_code(e, pc - 1) & 0xff) == 0x59)
			return V8_IN_RCX;
		return V8_AT_SP;
	}
	/* leave, directly followed by ret, pop rcx or pop r10 */
	word = v8_code(e, pc - 1);
	if ((word & 0xff) == 0xc9 && ((word & 0xfe00) == 0xc200 || (word & 0xff00) == 0x5900 ||
				      (word & 0xffff00) == 0x5a4100))
		return V8_AT_SP;
	return V8_FRAMED;
}

static __always_inline int v8_jit_leaf(const struct v8_env *e)
{
	const struct walk_regs *regs = &e->s->walk.regs;
	enum v8_leaf state = v8_leaf_state(e);
	__u64 words[2], sp = regs->sp;
	int stop = WALK_GO;

	if (state == V8_FRAMED)
		return v8_frame(e);
	if (!regs->full)
		return STOP_UNSUPPORTED;
	if (bpf_probe_read_user(words, sizeof(words), (const void *)sp) < 0)
		return STOP_BAD_READ;
	/* The register holds the JSFunction only before the frame is made; v8_push() checks it. */
	if (state != V8_IN_R10 && state != V8_IN_RCX)
		stop = v8_push(e, regs->r[walk_bound(e->v->reg_function, UNWIND_N_REGS - 1)],
			       V8_FRAME_COMPILED, e->pc);
	if (stop != WALK_GO)
		return stop;
	if (state == V8_PUSHED_FP)
		return runtime_return(e->s, words[1], sp + 16, words[0]);
	if (state == V8_IN_R10)
		return runtime_return(e->s, regs->r[10], sp, regs->fp);
	if (state == V8_IN_RCX)
		return runtime_return(e->s, regs->r[2], sp, regs->fp);
	return runtime_return(e->s, words[0], sp + 8, regs->fp);
}
#else
static __always_inline int v8_jit_leaf(const struct v8_env *e)
{
	return v8_frame(e);
}
#endif

/* Walks a leaf in a builtin: its unwind row says whether the frame at fp is the leaf's own. */
static __always_inline int v8_builtin_leaf(const struct v8_env *e)
{
	struct walk_env env = {e->s, NULL}; /* no row is looked for */
	struct walk *w = &e->s->walk;
	struct unwind_rule rule = {};
	int stop, pushed;

	if (!w->mapping.binary)
		return RUNTIME_NATIVE;
	stop = walk_find_rule(&env, w, e->svma, &rule);
	if (walk_can_resume(stop))
		return RUNTIME_NATIVE;
	if (w->regs.full) {
		e->state->room[V8_LEAF_ARRAY] =
			w->regs.r[walk_bound(e->v->reg_bytecode_array, UNWIND_N_REGS - 1)];
		e->state->room[V8_LEAF_OFFSET] =
			w->regs.r[walk_bound(e->v->reg_bytecode_offset, UNWIND_N_REGS - 1)];
	}
	pushed = v8_push_own(e);
	if (pushed != WALK_GO)
		return pushed;
	if (stop == WALK_GO && rule.cfa_op == UNWIND_CFA_REG && rule.cfa_reg == UNWIND_REG_SP)
		return walk_apply(&env, w, &rule);
	return v8_frame(e);
}

__noinline int v8_walk(void)
{
	struct scratch *s = scratch_get();
	const struct runtime_process *p;
	const struct runtime_binary *b;
	struct v8_env e = {.s = s};

	if (!s)
		return RUNTIME_NATIVE;
	p = runtime_process(s, RUNTIME_V8);
	if (!p)
		return RUNTIME_NATIVE;
	b = runtime_binary(p);
	if (!b)
		return RUNTIME_NATIVE;
	e.v = (const struct runtime_v8_binary *)b->room;
	e.state = runtime_state(s, RUNTIME_V8);
	e.pc = walk_pc(&s->walk.regs);
	e.svma = e.pc - s->walk.mapping.bias;
	e.jit = s->walk.mapping.file & UNWIND_MAPPING_FP;
	if (!e.jit && (e.svma < e.v->builtins_start || e.svma >= e.v->builtins_end))
		return RUNTIME_NATIVE;
	if (!s->walk.regs.exact)
		return v8_frame(&e);
	return e.jit ? v8_jit_leaf(&e) : v8_builtin_leaf(&e);
}
