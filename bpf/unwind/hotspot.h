/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Frames of a HotSpot JVM: interpreted and compiled methods, and the stubs between them.
 *
 * A pc in a code heap belongs to a blob (abi/runtime_hotspot.h), whose header gives the size of the
 * blob's frame. Compiled code has no frame pointer: it uses rbp as a general register, and saves
 * the caller's rbp below the return address. The interpreter has a frame pointer, and an
 * interpreter frame names the method that it runs.
 *
 *	compiled: sp + frame_size   → │ caller's frame	interpreted:  fp[1]  return address
 *				 -8 │ return address		fp[0]  caller's fp
 *				-16 │ caller's rbp		fp[-1] caller's sp
 *				    │ …				fp[-3] Method
 *	sp			  → │				fp[-7] or [-8] bytecode pointer
 *
 * If a sample interrupts a method that makes or removes its frame, the instructions around pc tell
 * how far the method has come. A return address of Java code is always in a code heap, except in
 * call_stub, by which native code calls Java, and in the stubs by which Java calls the VM.
 */
#pragma once

#include "abi/runtime_hotspot.h"
#include "bpf/unwind/runtime.h"

#define HOTSPOT_MAX_HOPS 32
#define HOTSPOT_FRAMES_PER_CALL 4
#define HOTSPOT_HEADER_MASK 511
/*
 * How far to search for the ContinuationEntry above the arguments of a virtual thread's outermost
 * frame on the stack, in steps of 16 bytes.
 */
#define HOTSPOT_MAX_BARRIER 12
/*
 * Bytes of code that the walker reads before pc, and in total; near the end of the memory half of
 * the total.
 */
#define HOTSPOT_BEFORE 64
#define HOTSPOT_CODE_BYTES 256

struct hotspot_scratch {
	__u8 header[HOTSPOT_HEADER_MASK + 1]; /* header of the blob */
	__u8 code[HOTSPOT_CODE_BYTES];	      /* code around pc */
	__u64 frame[10];		      /* frame of the interpreter, from fp[-8] on */
	__u64 name[2];
	struct hotspot_process process; /* a copy */
	__u64 blob;
	__u64 start, end;  /* of the blob's code */
	__u32 frame_bytes; /* 0: no frame, or unknown */
	__s32 complete;	   /* offset from start at which the frame is complete */
	__u32 stands;	   /* offset of the return address from sp */
	__u32 saves_fp;	   /* the caller's fp is below the return address */
	__u32 kept;	   /* bytes on the stack that may be below the frame */
	__u32 is_stub;	   /* the blob is a stub: no method and not the interpreter */
	__u32 first;	   /* where the blob's own bytes begin in `code` */
	/*
	 * State of running ahead (hotspot_code.h). In memory, so that the verifier sees one state.
	 */
	__u64 r[UNWIND_N_REGS];
	__u64 to;     /* the return address, or the target of a jump */
	__u32 at;     /* the next instruction's offset in `code` */
	__u32 popped; /* bits: registers that the code popped */
	__u32 stored; /* bits: HOTSPOT_STORED, HOTSPOT_LOADED */
	__u32 polls;  /* enum hotspot_last */
	__u32 left;   /* `polls` was HOTSPOT_LEFT before the current instruction */
	__s32 spill;  /* result of hotspot_last_spill() */
	/* Operands of the current instruction. */
	__u32 group, reg, base, length, is_memory;
	__s32 displacement;
};

/* One entry for each level. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct hotspot_scratch);
} hotspot_scratch SEC(".maps");

enum hotspot_class {
	HOTSPOT_IS_METHOD,
	HOTSPOT_IS_THIN,
	HOTSPOT_IS_ADAPTER,
	HOTSPOT_IS_STUB,
	HOTSPOT_IS_BARRIER,
	HOTSPOT_IS_UNREADABLE,
};

static __always_inline __u32 hotspot_u32(const struct hotspot_scratch *h, __u32 off)
{
	return *(const __u32 *)&h->header[walk_bound(off, HOTSPOT_HEADER_MASK - 3)];
}

static __always_inline __u64 hotspot_u64(const struct hotspot_scratch *h, __u32 off)
{
	return *(const __u64 *)&h->header[walk_bound(off, HOTSPOT_HEADER_MASK - 7)];
}

static __always_inline const struct hotspot_heap *hotspot_heap(const struct hotspot_process *p,
							       __u64 avma)
{
	__u64 off = avma - p->base;

	for (int i = 0; i < HOTSPOT_MAX_HEAPS; i++)
		if (off >= p->heaps[i].start && off < p->heaps[i].end)
			return &p->heaps[i];
	return NULL;
}

static __always_inline bool hotspot_in_interpreter(const struct hotspot_process *p, __u64 avma)
{
	return avma - p->base >= p->interpreter && avma - p->base < p->interpreter_end;
}

/* The blob at an address, by the segment map; 0: there is none. */
static __always_inline __u64 hotspot_find_blob(const struct hotspot_process *p,
					       const struct hotspot_heap *heap, __u64 avma)
{
	__u64 start = p->base + heap->start;
	__u64 segment = (avma - start) >> (p->segment_shift & 31);
	__u8 back;

	for (__u64 i = 0; i < HOTSPOT_MAX_HOPS; i++) {
		if (bpf_probe_read_user(&back, 1, (const void *)(heap->segmap + segment)) < 0)
			return 0;
		if (!back)
			return start + (segment << (p->segment_shift & 31)) + p->block_header;
		if (back == 0xff || back > segment)
			return 0;
		segment -= back;
	}
	return 0;
}

/*
 * The functions below are global, so that the verifier checks each once and not at each call. They
 * take arguments and return results through this scratch space.
 */
static __always_inline struct hotspot_scratch *hotspot_get(void)
{
	__u32 level = scratch_level();

	return bpf_map_lookup_elem(&hotspot_scratch, &level);
}

/* Reads the header of the blob at an address; 1: the address is in the blob's code. */
__noinline int hotspot_read_blob(__u64 avma)
{
	struct hotspot_scratch *h = hotspot_get();
	const struct hotspot_process *p;
	const struct hotspot_heap *heap;
	__s32 words;

	if (!h)
		return 0;
	p = &h->process;
	heap = hotspot_heap(p, avma);

	h->blob = heap ? hotspot_find_blob(p, heap, avma) : 0;
	if (!h->blob ||
	    bpf_probe_read_user(h->header, HOTSPOT_HEADER_BYTES, (const void *)h->blob) < 0)
		return 0;
	if (p->flags & HOTSPOT_CODE_OFFSETS) {
		h->start = h->blob + hotspot_u32(h, p->code);
		h->end = h->blob + hotspot_u32(h, p->code_end);
	} else {
		h->start = hotspot_u64(h, p->code);
		h->end = hotspot_u64(h, p->code_end);
	}
	words = (__s32)hotspot_u32(h, p->frame_size);
	h->frame_bytes = words > 0 && words < 1 << 20 ? (__u32)words * 8 : 0;
	if (p->flags & HOTSPOT_SHORT_COMPLETE)
		h->complete =
			*(const __s16 *)&h
				 ->header[walk_bound(p->frame_complete, HOTSPOT_HEADER_MASK - 1)];
	else
		h->complete = (__s32)hotspot_u32(h, p->frame_complete);
	return avma >= h->start && avma < h->end;
}

#define HOTSPOT_NAME(a, b, c, d, e, f, g, h)                                                       \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |   \
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

/*
 * Classifies the blob by its name: not all versions record the kind of a blob, and no version
 * records all kinds that the walker distinguishes.
 */
static __always_inline enum hotspot_class hotspot_classify(const struct hotspot_process *p,
							   struct hotspot_scratch *h)
{
	__u64 name = hotspot_u64(h, p->name);

	if (bpf_probe_read_user(h->name, sizeof(h->name), (const void *)name) < 0)
		return HOTSPOT_IS_UNREADABLE;
	switch (h->name[0]) {
	case HOTSPOT_NAME('n', 'm', 'e', 't', 'h', 'o', 'd', 0):
	case HOTSPOT_NAME('n', 'a', 't', 'i', 'v', 'e', ' ', 'n'):
		return HOTSPOT_IS_METHOD;
	case HOTSPOT_NAME('n', 'a', 't', 'i', 'v', 'e', ' ', 's'): /* signature handlers */
	case HOTSPOT_NAME('v', 't', 'a', 'b', 'l', 'e', ' ', 'c'):
	case HOTSPOT_NAME('M', 'e', 't', 'h', 'o', 'd', 'H', 'a'):
		return HOTSPOT_IS_THIN;
	case HOTSPOT_NAME('I', '2', 'C', '/', 'C', '2', 'I', ' '):
		return HOTSPOT_IS_ADAPTER;
	case HOTSPOT_NAME('S', 't', 'u', 'b', 'R', 'o', 'u', 't'):
		/* StubRoutines (continuation stubs) */
		return h->name[1] == HOTSPOT_NAME('i', 'n', 'e', 's', ' ', '(', 'c', 'o')
			       ? HOTSPOT_IS_BARRIER
			       : HOTSPOT_IS_STUB;
	default:
		return HOTSPOT_IS_STUB;
	}
}

static __always_inline bool hotspot_push(struct scratch *s, __u32 kind, __u64 address,
					 __u32 position, __u32 cookie)
{
	return runtime_push(
		s, RUNTIME_HOTSPOT, address,
		(__u64)kind << HOTSPOT_KIND_SHIFT |
			(__u64)(position & HOTSPOT_NO_POSITION) << HOTSPOT_POSITION_SHIFT | cookie);
}

/*
 * Moves to the caller: the return address is at sp + off; if `saves_fp`, the caller's fp is below
 * the return address.
 */
static __always_inline int hotspot_return(struct scratch *s, __u64 off, bool saves_fp)
{
	__u64 at = s->walk.regs.sp + off, fp = s->walk.regs.fp, words[2];

	if (saves_fp) {
		if (bpf_probe_read_user(words, 16, (const void *)(at - 8)) < 0)
			return STOP_BAD_READ;
		fp = words[0];
	} else if (bpf_probe_read_user(&words[1], 8, (const void *)at) < 0) {
		return STOP_BAD_READ;
	}
	return runtime_return(s, words[1], at + 8, fp);
}

static __always_inline bool hotspot_returns_to_java(const struct hotspot_process *p, __u64 at)
{
	__u64 word;

	return bpf_probe_read_user(&word, 8, (const void *)at) == 0 && hotspot_heap(p, word - 1);
}

/*
 * Whether the instruction before a return address is a call. It is, except for calls by the
 * interpreter.
 */
static __always_inline bool hotspot_is_call(__u64 pc)
{
	__u8 b[8];

	if (bpf_probe_read_user(b, 8, (const void *)(pc - 8)) < 0)
		return false;
#if UNWIND_REG_FP == 6
	/* call rel32; call by register or memory, two to seven bytes */
	return b[3] == 0xe8 || (b[6] == 0xff && (b[7] & 0x38) == 0x10) ||
	       (b[5] == 0xff && (b[6] & 0x38) == 0x10) || (b[4] == 0xff && (b[5] & 0x38) == 0x10) ||
	       (b[2] == 0xff && (b[3] & 0x38) == 0x10) || (b[1] == 0xff && (b[2] & 0x38) == 0x10);
#else
	return (b[7] & 0xfc) == 0x94 || (b[7] == 0xd6 && (b[6] & 0xe0) == 0x20); /* bl, blr */
#endif
}

static __always_inline bool hotspot_is_return(const struct hotspot_process *p, __u64 pc)
{
	return hotspot_in_interpreter(p, pc) || hotspot_is_call(pc);
}

/*
 * Walks code that has no frame of its own, or that is making or removing its frame: the return
 * address is on top of the stack, or in a register while the code rewrites its slot.
 */
__noinline int hotspot_thin(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	const struct hotspot_process *p;
	struct walk_regs *g;
	__u64 sender __attribute__((unused)); /* used on x86-64 only, like `last` */
	__u8 last __attribute__((unused));

	if (!s || !h)
		return STOP_NO_TABLE;
	p = &h->process;
	g = &s->walk.regs;
	if (hotspot_returns_to_java(p, g->sp))
		return hotspot_return(s, 0, false);
	if (!g->full) {
		/* The stub has aligned the stack for a call of the VM. */
		if (hotspot_returns_to_java(p, g->sp + 8))
			return hotspot_return(s, 8, false);
		return STOP_NO_TABLE;
	}
#if UNWIND_REG_FP == 6
	/*
	 * rax: in adapters and the interpreter's entries; r13: in the interpreter's exits, or the
	 * caller's sp.
	 */
	sender = g->r[13] - g->sp < 1 << 16 ? g->r[13] : 0;
	if (hotspot_heap(p, g->r[0] - 1))
		return runtime_return(s, g->r[0], sender ? sender : g->sp, g->fp);
	if (hotspot_heap(p, g->r[13] - 1))
		return runtime_return(s, g->r[13], g->sp, g->fp);
	if (sender && hotspot_returns_to_java(p, sender))
		return hotspot_return(s, sender - g->sp, false);
	/* push rbp */
	if (bpf_probe_read_user(&last, 1, (const void *)(g->pc - 1)) == 0 && last == 0x55 &&
	    hotspot_returns_to_java(p, g->sp + 8))
		return hotspot_return(s, 8, true);
	if (sender && hotspot_returns_to_java(p, sender - 8))
		return hotspot_return(s, sender - 8 - g->sp, false);
#else
	if (hotspot_heap(p, g->r[30] - 1))
		return runtime_return(s, g->r[30], g->sp, g->fp);
#endif
	return STOP_NO_TABLE;
}

/* Reads {saved fp, return address} at fp, if fp is plausibly a frame pointer. */
static __always_inline int hotspot_by_fp(struct scratch *s, __u64 *ret)
{
	struct walk_regs *g = &s->walk.regs;

	if (g->fp < g->sp || g->fp - g->sp > 1 << 20 || (g->fp & 7))
		return STOP_NO_TABLE;
	if (bpf_probe_read_user(ret, 16, (const void *)g->fp) < 0)
		return STOP_BAD_READ;
	return WALK_GO;
}

#if UNWIND_REG_FP == 6

#include "bpf/unwind/hotspot_code.h"

static __always_inline bool hotspot_read_code(struct scratch *s, struct hotspot_scratch *h)
{
	__u64 pc = s->walk.regs.pc, own = pc - h->start;
	const void *from = (const void *)(pc - HOTSPOT_BEFORE);

	h->first = own < HOTSPOT_BEFORE ? HOTSPOT_BEFORE - (__u32)own : 0;
	if (bpf_probe_read_user(h->code, HOTSPOT_CODE_BYTES, from) == 0)
		return true;
	__builtin_memset(h->code, 0, sizeof(h->code));
	return bpf_probe_read_user(h->code, HOTSPOT_CODE_BYTES / 2, from) == 0;
}

/*
 * Whether pc is in a stub, after a method's code, by which the method calls the interpreter: mov
 * rbx, Method; jmp. The frame belongs to the method that has called the stub. A jump within the
 * method is not such a stub.
 */
static __always_inline bool hotspot_in_call_stub(struct scratch *s, struct hotspot_scratch *h)
{
	__u32 i = HOTSPOT_BEFORE;
	__u64 to;

	if (!hotspot_read_code(s, h))
		return false;
	if (h->code[i] != 0x48 || h->code[i + 1] != 0xbb)
		i -= 10;
	if (h->code[i] != 0x48 || h->code[i + 1] != 0xbb || h->code[i + 10] != 0xe9)
		return false;
	to = s->walk.regs.pc - HOTSPOT_BEFORE + i + 15 + (__u64)(__s64)hotspot_s32(h, i + 11);
	return to < h->start || to >= h->end;
}

/*
 * Moves to the caller to which the interrupted code is about to return; RUNTIME_NATIVE: the code is
 * not at its end.
 */
static __always_inline int hotspot_to_end(struct scratch *s, struct hotspot_scratch *h)
{
	int step;

	if (!s->walk.regs.full || !hotspot_read_code(s, h))
		return RUNTIME_NATIVE;
	step = hotspot_run_ahead();
	/*
	 * A stub that has resolved a call leaves its frame and jumps to the call's target: the
	 * call's return address is on top of the stack.
	 */
	if (step == HOTSPOT_JUMPS && h->left && hotspot_pop(h, &h->to))
		step = HOTSPOT_RETURNS;
	/*
	 * A stub that looks up an exception handler jumps to the handler, with the throwing pc in
	 * rdx.
	 */
	if (step == HOTSPOT_JUMPS && h->is_stub &&
	    hotspot_heap(&h->process, h->r[HOTSPOT_RDX] - 1) &&
	    (h->popped & 1U << HOTSPOT_RDX || hotspot_is_call(h->r[HOTSPOT_RDX]))) {
		h->to = h->r[HOTSPOT_RDX];
		step = HOTSPOT_RETURNS;
	}
	/* The interpreter returns by jumps; the return address may already be off the stack. */
	if (step == HOTSPOT_JUMPS && hotspot_in_interpreter(&h->process, s->walk.regs.pc) &&
	    (h->base == HOTSPOT_RDI || h->base == HOTSPOT_R13) &&
	    hotspot_heap(&h->process, h->to) && hotspot_is_return(&h->process, h->to))
		step = HOTSPOT_RETURNS;
	if (step != HOTSPOT_RETURNS ||
	    (!hotspot_heap(&h->process, h->to - 1) && !hotspot_is_call(h->to)))
		return RUNTIME_NATIVE;
	return runtime_return(s, h->to, h->r[HOTSPOT_SP], h->r[HOTSPOT_FP]);
}

/* Finds the return address of an interrupted method: sets h->stands, h->saves_fp and h->kept. */
static __always_inline void hotspot_leaf(struct scratch *s, struct hotspot_scratch *h)
{
	h->stands = h->frame_bytes - 8;
	h->saves_fp = 1;
	h->kept = 0;
	if ((__s64)(s->walk.regs.pc - h->start) < h->complete)
		hotspot_in_prologue();
	else if (s->walk.regs.full)
		h->kept = (__u32)hotspot_kept_below();
}

#else

static __always_inline int hotspot_to_end(struct scratch *s, struct hotspot_scratch *h)
{
	return RUNTIME_NATIVE;
}

static __always_inline bool hotspot_in_call_stub(struct scratch *s, struct hotspot_scratch *h)
{
	return false;
}

static __always_inline void hotspot_leaf(struct scratch *s, struct hotspot_scratch *h)
{
	h->stands = h->frame_bytes - 8;
	h->saves_fp = 1;
	h->kept = 0;
}

static __always_inline __u64 hotspot_before_spill(void)
{
	return 0;
}

#endif

/* Mixes the Symbol whose pointer is at `at` into the hash. */
static __always_inline bool hotspot_tell_symbol(const struct hotspot_process *p, __u64 at,
						__u64 *hash)
{
	__u64 symbol, word;

	if (bpf_probe_read_user(&symbol, 8, (const void *)at) < 0)
		return false;
	symbol &= ~1ULL; /* tag of an unresolved constant */
	if (bpf_probe_read_user(&word, 8, (const void *)symbol) < 0)
		return false;
	*hash = hotspot_mix_symbol(*hash, symbol, word, (p->flags & HOTSPOT_COUNT) >> 3);
	return true;
}

/* hotspot_cookie() of a method; 0: the method is unreadable. */
__noinline int hotspot_tell(__u64 const_method)
{
	struct hotspot_scratch *h = hotspot_get();
	__u64 names, hash, pool, class;
	const struct hotspot_process *p;

	if (!h)
		return 0;
	p = &h->process;
	if (bpf_probe_read_user(&names, 8, (const void *)(const_method + p->names)) < 0)
		return 0;
	hash = hotspot_mix(hotspot_mix(0, const_method), names);
	if (!(p->flags & HOTSPOT_TELLS_CLASSES) ||
	    bpf_probe_read_user(&pool, 8, (const void *)(const_method + p->constants)) < 0 ||
	    bpf_probe_read_user(&class, 8, (const void *)(pool + p->holder)) < 0 ||
	    !hotspot_tell_symbol(p, class + p->class_name, &hash))
		return (int)hotspot_cookie(hash, 0);
	if (!hotspot_tell_symbol(p, pool + p->pool_size + (names & 0xffff) * 8, &hash))
		return (int)hotspot_cookie(hash, 1);
	return (int)hotspot_cookie(hash, 2);
}

/*
 * Reads the frame at fp: whether it looks like an interpreter frame. Reads the ConstMethod's
 * address, too.
 */
static __always_inline bool hotspot_is_frame(struct scratch *s, const struct hotspot_process *p,
					     struct hotspot_scratch *h, __u64 *code)
{
	struct walk_regs *g = &s->walk.regs;

	return g->fp >= g->sp && g->fp - g->sp <= 1 << 20 && !(g->fp & 7) &&
	       bpf_probe_read_user(h->frame, sizeof(h->frame), (const void *)(g->fp - 64)) == 0 &&
	       hotspot_heap(p, h->frame[9] - 1) && h->frame[7] > g->fp && !(h->frame[7] & 7) &&
	       bpf_probe_read_user(code, 8, (const void *)(h->frame[5] + p->const_method)) == 0;
}

#if UNWIND_REG_FP == 6
/*
 * Whether pc is where the interpreter continues after a call: it loads its stack pointer from
 * fp[-2] and clears fp[-2].
 */
static __always_inline bool hotspot_is_return_entry(const struct hotspot_scratch *h)
{
	__u32 i = HOTSPOT_BEFORE;

	/* mov rsp or rcx, [rbp - 16]; lea rsp, [rbp + rcx * 8]; mov qword [rbp - 16], 0 */
	return h->code[i] == 0x48 &&
	       ((h->code[i + 1] == 0x8b && (h->code[i + 2] & 0xc7) == 0x45 &&
		 h->code[i + 3] == 0xf0) ||
		(h->code[i + 1] == 0x8d && h->code[i + 2] == 0x64 && h->code[i + 3] == 0xcd) ||
		(h->code[i + 1] == 0xc7 && h->code[i + 2] == 0x45 && h->code[i + 3] == 0xf0));
}

/*
 * Handles an interrupted interpreter that is entering or leaving a method: moves to the caller of
 * that method. RUNTIME_NATIVE: the frame at fp is the interpreter's current frame.
 */
__noinline int hotspot_between(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u64 words[2], sender;
	struct walk_regs *g;
	int stop;

	if (!s || !h)
		return STOP_NO_TABLE;
	g = &s->walk.regs;
	/*
	 * The interpreter builds a frame from the return address downwards; the Method is below the
	 * third word.
	 */
	if (g->fp >= g->sp && g->fp - g->sp < 64 && !(g->fp & 7) &&
	    hotspot_returns_to_java(&h->process, g->fp + 8) &&
	    bpf_probe_read_user(words, 16, (const void *)g->fp) == 0) {
		sender = g->r[HOTSPOT_R13];
		if (g->sp < g->fp)
			bpf_probe_read_user(&sender, 8, (const void *)(g->fp - 8));
		return runtime_return(s, words[1], sender > g->fp ? sender : g->fp + 16, words[0]);
	}
	h->start = 0;
	stop = hotspot_to_end(s, h);
	if (stop != RUNTIME_NATIVE)
		return stop;
	if (hotspot_is_return_entry(h))
		return RUNTIME_NATIVE;
	/* Entering: the caller's stack pointer is in r13. */
	sender = g->r[HOTSPOT_R13] - g->sp;
	if (!hotspot_returns_to_java(&h->process, g->sp) ||
	    bpf_probe_read_user(words, 8, (const void *)g->sp) < 0)
		return hotspot_thin();
	return runtime_return(s, words[0], sender && sender < 1 << 16 ? g->r[13] : g->sp + 8,
			      g->fp);
}
#endif

static __always_inline int hotspot_interpreted(struct scratch *s, const struct hotspot_process *p,
					       struct hotspot_scratch *h)
{
	struct walk_regs *g __attribute__((unused)) = &s->walk.regs;
	__u64 code, bcp, bci;
	bool is_frame __attribute__((unused)) = hotspot_is_frame(s, p, h, &code);

#if UNWIND_REG_FP == 6
	/* A frame that makes a call keeps its stack pointer in fp[-2] until the callee returns. */
	if (g->full && (!is_frame || g->fp - g->sp < 64 || h->frame[6])) {
		int stop = hotspot_between();

		if (stop != RUNTIME_NATIVE && (stop == WALK_GO || !is_frame))
			return stop;
	}
#endif
	if (!is_frame)
		return hotspot_thin();
	bcp = h->frame[p->flags & HOTSPOT_HAS_MIRROR ? 0 : 1];
	bci = bcp - code - p->const_method_size;
#if UNWIND_REG_FP == 6
	if (g->full && g->r[13] - code - p->const_method_size < 0xffff)
		bci = g->r[13] - code - p->const_method_size;
#endif
	if (!hotspot_push(s, HOTSPOT_INTERPRETED, h->frame[5],
			  bci < 0xffff ? (__u32)bci : HOTSPOT_NO_POSITION,
			  (__u32)hotspot_tell(code)))
		return STOP_TOO_DEEP;
	return runtime_return(s, h->frame[9], h->frame[7], h->frame[8]);
}

/*
 * Whether an interrupted method's return address is at sp + off. If the address is in the
 * interpreter, the interpreter has noted in fp[-2] where its stack ended at the call, as an address
 * or in words from fp.
 */
static __always_inline bool hotspot_stands(const struct hotspot_process *p, __u64 off,
					   bool saves_fp)
{
	struct scratch *s = scratch_get();
	__u64 words[2] = {}, at, fp, noted;

	if (!s)
		return false;
	at = s->walk.regs.sp + off;
	if (bpf_probe_read_user(words, 16, (const void *)(at - 8)) < 0 ||
	    !hotspot_heap(p, words[1] - 1))
		return false;
	if (!hotspot_in_interpreter(p, words[1]))
		return true;
	fp = saves_fp ? words[0] : s->walk.regs.fp;
	if (bpf_probe_read_user(&noted, 8, (const void *)(fp - 16)) < 0)
		return false;
	if ((__s64)noted < 0)
		noted = fp + noted * 8;
	return noted - at < 4096;
}

/*
 * Handles an interrupted method whose return address is not where its frame size says: a loop over
 * arrays by C2 has pushed registers, or the method is making its frame in an unknown way.
 */
static __always_inline int hotspot_unusual(const struct hotspot_process *p,
					   struct hotspot_scratch *h)
{
	struct scratch *s = scratch_get();

	for (__u64 i = 1; s && h->stands > 8 && i <= 6; i++)
		if (hotspot_stands(p, h->stands + i * 8, true))
			return hotspot_return(s, h->stands + i * 8, true);
	return hotspot_thin();
}

static __always_inline int hotspot_compiled(struct scratch *s, const struct hotspot_process *p,
					    struct hotspot_scratch *h)
{
	struct walk_regs *g = &s->walk.regs;
	__u64 pc = g->pc, deopt, word, before = 0;
	__u32 position;
	int stop;

	if (!(p->flags & HOTSPOT_HAS_MIRROR))
		before = hotspot_before_spill();
	if (g->exact && hotspot_in_call_stub(s, h))
		return hotspot_thin();
	deopt = p->flags & HOTSPOT_CODE_OFFSETS ? h->blob + hotspot_u32(h, p->deopt)
						: hotspot_u64(h, p->deopt);
	if (!g->exact && pc == deopt) {
		__u64 at = g->sp + hotspot_u32(h, p->orig_pc);

		if (bpf_probe_read_user(&word, 8, (const void *)at) == 0 && word >= h->start &&
		    word < h->end)
			pc = word;
	}
	position = (__u32)(pc - h->start);
	if (g->exact && (__s32)position < h->complete)
		position = HOTSPOT_NO_POSITION;
	if (!hotspot_push(s, HOTSPOT_COMPILED, h->blob, position, hotspot_u32(h, p->compile_id)))
		return STOP_TOO_DEEP;
	if (h->frame_bytes < 16)
		return hotspot_thin();
	h->stands = h->frame_bytes - 8;
	h->saves_fp = 1;
	if (before) {
		g->sp = before;
	} else if (g->exact) {
		if ((__s64)(pc - h->start) >= h->complete) {
			stop = hotspot_to_end(s, h);
			if (stop != RUNTIME_NATIVE)
				return stop;
		}
		hotspot_leaf(s, h);
		if (h->kept && hotspot_stands(p, h->stands + h->kept, h->saves_fp))
			h->stands += h->kept;
		if (!hotspot_stands(p, h->stands, h->saves_fp))
			return hotspot_unusual(p, h);
	}
	return hotspot_return(s, h->stands, h->saves_fp);
}

#include "bpf/unwind/hotspot_stub.h"

/* Walks one frame of the process in h->process. */
__noinline int hotspot_one(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u64 pc;

	if (!s || !h)
		return RUNTIME_NATIVE;
	pc = walk_pc(&s->walk.regs);
	h->is_stub = 0;
	if (hotspot_in_interpreter(&h->process, pc))
		return hotspot_interpreted(s, &h->process, h);
	if (!hotspot_heap(&h->process, pc))
		return RUNTIME_NATIVE;
	if (!hotspot_read_blob(pc)) {
		native_push(s, WORD_RAW | pc);
		return STOP_NO_TABLE;
	}
	switch (hotspot_classify(&h->process, h)) {
	case HOTSPOT_IS_METHOD:
		return hotspot_compiled(s, &h->process, h);
	case HOTSPOT_IS_ADAPTER:
#if UNWIND_REG_FP == 6
		if (s->walk.regs.full)
			return hotspot_adapter();
#endif
		return hotspot_thin();
	case HOTSPOT_IS_THIN:
		return hotspot_thin();
	case HOTSPOT_IS_BARRIER:
		if (!s->walk.regs.exact)
			return hotspot_barrier(s);
		return hotspot_stub(s, &h->process, h);
	case HOTSPOT_IS_UNREADABLE:
		native_push(s, WORD_RAW | pc);
		return STOP_BAD_READ;
	default:
		h->is_stub = 1;
		return hotspot_stub(s, &h->process, h);
	}
}

/* Copies the data about the process to the scratch space, once for each sample. */
static __always_inline bool hotspot_begin(struct scratch *s, struct hotspot_scratch *h)
{
	struct runtime_walk *state = runtime_state(s, RUNTIME_HOTSPOT);
	const struct runtime_process *process;

	if (state->room[0])
		return true;
	process = runtime_process(s, RUNTIME_HOTSPOT);
	if (!process)
		return false;
	__builtin_memcpy(&h->process, process->room, sizeof(h->process));
	state->room[0] = 1;
	return true;
}

/*
 * Walks up to HOTSPOT_FRAMES_PER_CALL frames: Java frames are often neighbours, and a call is
 * costly.
 */
__noinline int hotspot_walk(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	int stop;

	if (!s || !h || !hotspot_begin(s, h))
		return RUNTIME_NATIVE;
	stop = hotspot_one();
	for (__u64 i = 1; i < HOTSPOT_FRAMES_PER_CALL && stop == WALK_GO; i++) {
		if (!hotspot_heap(&h->process, walk_pc(&s->walk.regs)))
			break;
		stop = hotspot_one();
	}
	return stop;
}
