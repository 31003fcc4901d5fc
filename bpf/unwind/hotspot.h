/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Frames of a HotSpot JVM: interpreted and compiled methods, and the stubs between them.
 *
 * A pc in a code heap belongs to a blob (abi/runtime_hotspot.h), whose header says how large its
 * frame is. Compiled code does not keep a frame pointer: rbp is a register like any other there,
 * saved below the return address. The interpreter does, and its frames say which method it runs.
 *
 *	compiled: sp + frame_size   → │ caller's frame	interpreted:  fp[1]  return address
 *				 -8 │ return address		fp[0]  caller's fp
 *				-16 │ caller's rbp		fp[-1] caller's sp
 *				    │ …				fp[-3] Method
 *	sp			  → │				fp[-7] or [-8] bytecode pointer
 *
 * Where a sample interrupts a method that builds or removes its frame, its instructions tell how
 *far it has come. A return address of Java code is in a code heap, always: only call_stub, by which
 * native code calls Java, and the stubs by which Java calls the VM have others.
 */
#pragma once

#include "abi/runtime_hotspot.h"
#include "bpf/unwind/runtime.h"

#define HOTSPOT_MAX_HOPS 32
#define HOTSPOT_HEADER_MASK 511
/* Bytes of code before and after pc that are looked at. */
#define HOTSPOT_BEFORE 64
#define HOTSPOT_CODE_BYTES 128

struct hotspot_scratch {
	__u8 header[HOTSPOT_HEADER_MASK + 1]; /* of the blob */
	__u8 code[HOTSPOT_CODE_BYTES];	      /* around pc */
	__u64 frame[10];		      /* of the interpreter, from fp[-8] */
	__u64 name[2];
	struct hotspot_process process; /* a copy */
	__u64 blob;
	__u64 start, end;   /* of its code */
	__u32 frame_bytes;  /* 0: none, or not known */
	__s32 complete;	    /* from start: where the frame stands */
	__u32 stands;	    /* where the return address is, from sp */
	__u32 saves_fp;	    /* below it */
	__u32 meets, polls; /* hotspot_is_tail()'s: in memory, so that the verifier has one state */
	__u32 first;	    /* where the method's own bytes begin in `code` */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hotspot_scratch);
} hotspot_scratch SEC(".maps");

enum hotspot_class { HOTSPOT_IS_METHOD, HOTSPOT_IS_THIN, HOTSPOT_IS_STUB, HOTSPOT_IS_BARRIER };

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

/* The blob at an address, by the segment map; 0: none. */
static __always_inline __u64 hotspot_find_blob(const struct hotspot_process *p,
					       const struct hotspot_heap *heap, __u64 avma)
{
	__u64 start = p->base + heap->start;
	__u64 segment = (avma - start) >> (p->segment_shift & 31);
	__u8 back;

	for (int i = 0; i < HOTSPOT_MAX_HOPS; i++) {
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
 * The global functions below are verified once and not in each place that they are called from;
 * what they know and find is in the scratch space.
 */
static __always_inline struct hotspot_scratch *hotspot_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&hotspot_scratch, &zero);
}

/* The blob at an address and its header: 1 when it is code of it. */
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

/* By its name: not all versions say what kind of blob it is, and none all that we ask. */
static __always_inline enum hotspot_class hotspot_classify(const struct hotspot_process *p,
							   struct hotspot_scratch *h)
{
	__u64 name = hotspot_u64(h, p->name);

	if (bpf_probe_read_user(h->name, sizeof(h->name), (const void *)name) < 0)
		return HOTSPOT_IS_STUB;
	switch (h->name[0]) {
	case HOTSPOT_NAME('n', 'm', 'e', 't', 'h', 'o', 'd', 0):
	case HOTSPOT_NAME('n', 'a', 't', 'i', 'v', 'e', ' ', 'n'):
		return HOTSPOT_IS_METHOD;
	case HOTSPOT_NAME('n', 'a', 't', 'i', 'v', 'e', ' ', 's'): /* signature handlers */
	case HOTSPOT_NAME('v', 't', 'a', 'b', 'l', 'e', ' ', 'c'):
	case HOTSPOT_NAME('I', '2', 'C', '/', 'C', '2', 'I', ' '):
	case HOTSPOT_NAME('M', 'e', 't', 'h', 'o', 'd', 'H', 'a'):
		return HOTSPOT_IS_THIN;
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

/* The return address stands at sp + off, the caller's frame pointer below it if it was saved. */
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

/* Does a call stand before it? It does for all but what the interpreter has called. */
static __always_inline bool hotspot_is_call(__u64 pc)
{
	__u8 b[8];

	if (bpf_probe_read_user(b, 8, (const void *)(pc - 8)) < 0)
		return false;
#if UNWIND_REG_FP == 6
	/* call rel32; call reg or memory, of two to seven bytes */
	return b[3] == 0xe8 || (b[6] == 0xff && (b[7] & 0x38) == 0x10) ||
	       (b[5] == 0xff && (b[6] & 0x38) == 0x10) || (b[4] == 0xff && (b[5] & 0x38) == 0x10) ||
	       (b[2] == 0xff && (b[3] & 0x38) == 0x10) || (b[1] == 0xff && (b[2] & 0x38) == 0x10);
#else
	return (b[7] & 0xfc) == 0x94 || (b[7] == 0xd6 && (b[6] & 0xe0) == 0x20); /* bl, blr */
#endif
}

/*
 * Code that has no frame of its own, or is just making or removing one: the return address is on
 * top of the stack, or in a register while its slot is rewritten.
 */
__noinline int hotspot_thin(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	const struct hotspot_process *p;
	struct walk_regs *g;

	if (!s || !h)
		return STOP_NO_TABLE;
	p = &h->process;
	g = &s->walk.regs;
	if (hotspot_returns_to_java(p, g->sp))
		return hotspot_return(s, 0, false);
	if (!g->full) {
		/* The stack was aligned for a call of the VM. */
		if (hotspot_returns_to_java(p, g->sp + 8))
			return hotspot_return(s, 8, false);
		return STOP_NO_TABLE;
	}
#if UNWIND_REG_FP == 6
	/* rax: adapters and the interpreter's entries; r13: its exits, or the caller's sp. */
	if (hotspot_heap(p, g->r[0] - 1))
		return runtime_return(s, g->r[0], g->r[13] > g->sp ? g->r[13] : g->sp, g->fp);
	if (hotspot_heap(p, g->r[13] - 1))
		return runtime_return(s, g->r[13], g->sp, g->fp);
	if (hotspot_returns_to_java(p, g->sp + 8))
		return hotspot_return(s, 8, true);
	if (g->r[13] >= g->sp && g->r[13] - g->sp < 1 << 16 &&
	    hotspot_returns_to_java(p, g->r[13] - 8))
		return hotspot_return(s, g->r[13] - 8 - g->sp, false);
#else
	if (hotspot_heap(p, g->r[30] - 1))
		return runtime_return(s, g->r[30], g->sp, g->fp);
#endif
	return STOP_NO_TABLE;
}

/* By the frame pointer, where it plausibly is one. */
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

static __always_inline __u8 hotspot_byte(const struct hotspot_scratch *h, __u32 i)
{
	return h->code[walk_bound(i, HOTSPOT_CODE_BYTES - 1)];
}

/* The length of an instruction that may stand between the frame's end and the return, or 0. */
static __always_inline __u32 hotspot_tail_length(const struct hotspot_scratch *h, __u32 i)
{
	__u32 code = (__u32)hotspot_byte(h, i) << 16 | (__u32)hotspot_byte(h, i + 1) << 8 |
		     hotspot_byte(h, i + 2);

	switch (code) {
	case 0x493ba7: /* cmp rsp, [r15 + disp32]	 the poll since 17 */
	case 0x4d8b97: /* mov r10, [r15 + disp32]	 since 10 */
	case 0x4c8d15: /* lea r10, [rip + disp32] */
	case 0x4d8997: /* mov [r15 + disp32], r10	where the poll's slow path came from */
		return 7;
	case 0x41f647: /* test byte [r15 + disp8], imm8	the poll of a native method, from 27 on */
	case 0x49837f: /* cmp qword [r15 + disp8], 0	pending exception, after a native method */
		return 5;
	case 0x49817f: /* the same with an imm32 */
		return 8;
	case 0x493b67: /* cmp rsp, [r15 + disp8] */
	case 0x4d8b57: /* mov r10, [r15 + disp8] */
		return 4;
	case 0x418502: /* test eax, [r10] */
		return 3;
	}
	switch (code >> 8) {
	case 0x0f87: /* ja */
	case 0x0f85: /* jne */
	case 0x8505: /* test eax, [rip + disp32]	before 10 */
		return 6;
	case 0x49ba: /* mov r10, imm64 */
		return 10;
	}
	if (code >> 16 == 0x74 || code >> 16 == 0x75) /* je, jne */
		return 2;
	return 0;
}

/* Do the instructions from i on lead to a return, and through pc? */
__noinline int hotspot_is_tail(__u32 i)
{
	struct hotspot_scratch *h = hotspot_get();

	if (!h)
		return false;
	h->meets = h->polls = 0;
	for (int n = 0; n < 9; n++) {
		__u32 length;

		if (i >= HOTSPOT_CODE_BYTES - 3)
			return false;
		/* A comparison of i itself would tell the verifier what it is, for each n anew. */
		h->meets |= walk_bound(i - HOTSPOT_BEFORE, 255) < 2;
		if (hotspot_byte(h, i) == 0xc3)
			return h->meets;
		/* Its slow path leaves by a jump; what follows is where there was nothing to do. */
		if (h->polls && hotspot_byte(h, i) == 0xe9) {
			if (h->meets)
				return true;
			length = 5;
		} else {
			length = hotspot_tail_length(h, i);
		}
		if (!length)
			return false;
		h->polls = hotspot_byte(h, i) == 0x4d && hotspot_byte(h, i + 1) == 0x89;
		i = walk_bound(i + length, 2 * HOTSPOT_CODE_BYTES - 1);
	}
	return false;
}

/* Does pc stand after the frame's removal? Or before its last instruction: *ret_pop. */
__noinline int hotspot_in_epilogue(void)
{
	struct hotspot_scratch *h = hotspot_get();

	if (!h)
		return false;
	/* pop rbp; leave would find its frame still whole. */
	if (h->code[HOTSPOT_BEFORE] == 0x5d && hotspot_is_tail(HOTSPOT_BEFORE + 1)) {
		h->stands = 8;
		h->saves_fp = 1;
		return true;
	}
	h->stands = 0;
	h->saves_fp = 0;
	for (__u32 i = HOTSPOT_BEFORE - 1; i >= HOTSPOT_BEFORE - 44; i--) {
		__u8 b = hotspot_byte(h, i);

		if (i >= h->first && (b == 0x5d || b == 0xc9) && hotspot_is_tail(i + 1))
			return true;
	}
	/* The poll's slow path: lea r10, [rip + x]; mov [r15 + x], r10; jmp */
	for (__u32 i = HOTSPOT_BEFORE - 14; i <= HOTSPOT_BEFORE; i += 7)
		if (hotspot_byte(h, i) == 0x4c && hotspot_byte(h, i + 1) == 0x8d &&
		    hotspot_byte(h, i + 2) == 0x15 && hotspot_byte(h, i + 7) == 0x4d &&
		    hotspot_byte(h, i + 8) == 0x89 && hotspot_byte(h, i + 9) == 0x97 &&
		    hotspot_byte(h, i + 14) == 0xe9)
			return true;
	return false;
}

/* How much of its frame has a method built: h->stands, h->saves_fp. */
__noinline int hotspot_in_prologue(void)
{
	struct hotspot_scratch *h = hotspot_get();
	__u32 frame;
	__u8 last;

	if (!h)
		return 0;
	last = h->code[HOTSPOT_BEFORE - 1];
	frame = h->frame_bytes;
	for (__u32 i = 0; i < HOTSPOT_BEFORE - 3; i++) {
		__u32 end, imm;

		if (i < h->first || hotspot_byte(h, i) != 0x48 || hotspot_byte(h, i + 2) != 0xec)
			continue;
		if (hotspot_byte(h, i + 1) == 0x83) { /* sub rsp, imm8 */
			end = i + 4;
			imm = hotspot_byte(h, i + 3);
		} else if (hotspot_byte(h, i + 1) == 0x81) { /* imm32 */
			end = i + 7;
			imm = hotspot_byte(h, i + 3) | (__u32)hotspot_byte(h, i + 4) << 8 |
			      (__u32)hotspot_byte(h, i + 5) << 16;
		} else {
			continue;
		}
		if (end > HOTSPOT_BEFORE || (imm != frame - 16 && imm != frame - 8))
			continue;
		h->stands = frame - 8;
		/* Without a push: mov [rsp + x], rbp follows. */
		h->saves_fp = imm == frame - 16 || end < HOTSPOT_BEFORE;
		return 0;
	}
	/* push rbp, and perhaps mov rbp, rsp */
	h->saves_fp = last == 0x55 || (last == 0xec && hotspot_byte(h, HOTSPOT_BEFORE - 4) == 0x55);
	h->stands = h->saves_fp ? 8 : 0;
	return 0;
}

static __always_inline bool hotspot_read_code(struct scratch *s, struct hotspot_scratch *h)
{
	__u64 pc = s->walk.regs.pc, own = pc - h->start;

	h->first = own < HOTSPOT_BEFORE ? HOTSPOT_BEFORE - (__u32)own : 0;
	if (bpf_probe_read_user(h->code, HOTSPOT_CODE_BYTES, (const void *)(pc - HOTSPOT_BEFORE)) ==
	    0)
		return true;
	__builtin_memset(h->code, 0, sizeof(h->code));
	return false;
}

/*
 * Below a method's code are the stubs by which it calls the interpreter: mov rbx, Method; jmp. The
 * method whose frame this is has called it.
 */
static __always_inline bool hotspot_in_call_stub(struct scratch *s, struct hotspot_scratch *h)
{
	__u32 i = HOTSPOT_BEFORE;

	if (!hotspot_read_code(s, h))
		return false;
	return (h->code[i] == 0x48 && h->code[i + 1] == 0xbb && h->code[i + 10] == 0xe9) ||
	       (h->code[i - 10] == 0x48 && h->code[i - 9] == 0xbb && h->code[i] == 0xe9);
}

/* Where the return address of an interrupted method stands. */
static __always_inline void hotspot_leaf(struct scratch *s, struct hotspot_scratch *h)
{
	h->stands = h->frame_bytes - 8;
	h->saves_fp = 1;
	if ((__s64)(s->walk.regs.pc - h->start) < h->complete)
		hotspot_in_prologue();
	else if (!hotspot_in_epilogue()) {
		h->stands = h->frame_bytes - 8;
		h->saves_fp = 1;
	}
}

#else

static __always_inline bool hotspot_in_call_stub(struct scratch *s, struct hotspot_scratch *h)
{
	return false;
}

static __always_inline void hotspot_leaf(struct scratch *s, struct hotspot_scratch *h)
{
	h->stands = h->frame_bytes - 8;
	h->saves_fp = 1;
}

#endif

/* hotspot_cookie() of a method; 0 when it cannot be read. */
__noinline int hotspot_tell(__u64 const_method)
{
	struct hotspot_scratch *h = hotspot_get();
	__u64 names, at, word;

	if (!h ||
	    bpf_probe_read_user(&names, 8, (const void *)(const_method + h->process.names)) < 0)
		return 0;
	if (!(h->process.flags & HOTSPOT_TELLS_CLASSES) ||
	    bpf_probe_read_user(&at, 8, (const void *)(const_method + h->process.constants)) < 0 ||
	    bpf_probe_read_user(&at, 8, (const void *)(at + h->process.holder)) < 0 ||
	    bpf_probe_read_user(&at, 8, (const void *)(at + h->process.class_name)) < 0 ||
	    bpf_probe_read_user(&word, 8, (const void *)at) < 0)
		return (int)hotspot_cookie(const_method, names, 0, 0, 0);
	return (int)hotspot_cookie(const_method, names, at, word, h->process.refcount);
}

static __always_inline int hotspot_interpreted(struct scratch *s, const struct hotspot_process *p,
					       struct hotspot_scratch *h)
{
	struct walk_regs *g = &s->walk.regs;
	__u64 method, code, bcp, bci;

	if (g->fp < g->sp || g->fp - g->sp > 1 << 20 || (g->fp & 7) ||
	    bpf_probe_read_user(h->frame, sizeof(h->frame), (const void *)(g->fp - 64)) < 0) {
		return hotspot_thin();
	}
	method = h->frame[5];
	if (!hotspot_heap(p, h->frame[9] - 1) || h->frame[7] <= g->fp || (h->frame[7] & 7) ||
	    bpf_probe_read_user(&code, 8, (const void *)(method + p->const_method)) < 0) {
		return hotspot_thin();
	}
	bcp = h->frame[p->flags & HOTSPOT_HAS_MIRROR ? 0 : 1];
	bci = bcp - code - p->const_method_size;
#if UNWIND_REG_FP == 6
	if (g->full && g->r[13] - code - p->const_method_size < 0xffff)
		bci = g->r[13] - code - p->const_method_size;
#endif
	if (!hotspot_push(s, HOTSPOT_INTERPRETED, method,
			  bci < 0xffff ? (__u32)bci : HOTSPOT_NO_POSITION,
			  (__u32)hotspot_tell(code)))
		return STOP_TOO_DEEP;
	return runtime_return(s, h->frame[9], h->frame[7], h->frame[8]);
}

/*
 * An interrupted method whose return address is not where its frame says: one of C2's loops over
 * arrays has pushed a register, or it is about to make its frame in a way that we do not know.
 */
static __always_inline int hotspot_unusual(const struct hotspot_process *p,
					   struct hotspot_scratch *h)
{
	struct scratch *s = scratch_get();

	for (__u32 i = 1; s && h->stands > 8 && i <= 6; i++)
		if (hotspot_returns_to_java(p, s->walk.regs.sp + h->stands + i * 8))
			return hotspot_return(s, h->stands + i * 8, true);
	return hotspot_thin();
}

static __always_inline int hotspot_compiled(struct scratch *s, const struct hotspot_process *p,
					    struct hotspot_scratch *h)
{
	struct walk_regs *g = &s->walk.regs;
	__u64 pc = g->pc, deopt, word;
	__u32 position;

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
	if (g->exact) {
		hotspot_leaf(s, h);
		if (!hotspot_returns_to_java(p, g->sp + h->stands))
			return hotspot_unusual(p, h);
	}
	return hotspot_return(s, h->stands, h->saves_fp);
}

#if UNWIND_REG_FP == 6
/*
 * It has put the registers back, rbp among them, and drops its frame: in the order of the pushes
 * the return address, which is known, rbp, flags, a word of padding, 16 registers, the others.
 */
__noinline int hotspot_poll_ends(__u64 pc)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u64 saved[2] = {}, off = 0;

	for (__u32 i = 0; s && h && i < 6; i++) {
		off = i < 4 ? i * 8 : i == 4 ? 24 + 128 : h->frame_bytes - 8;
		if (bpf_probe_read_user(saved, 16, (const void *)(s->walk.regs.sp + off - 8)) ==
			    0 &&
		    saved[1] - pc < 16)
			return runtime_return(s, saved[1], s->walk.regs.sp + off + 8,
					      off ? saved[0] : s->walk.regs.fp);
	}
	return STOP_NO_TABLE;
}

/*
 * The stub that a poll within a method leads to begins with push rbx, which makes room for the
 * return address; it is put there once all registers are saved. Until then it is in the thread, and
 * what stands in its place is anything. RUNTIME_NATIVE: not such a stub.
 */
__noinline int hotspot_poll(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u64 pc, saved[2] = {}, at;
	struct walk_regs *g;
	__u8 first = 0;

	if (!s || !h)
		return RUNTIME_NATIVE;
	g = &s->walk.regs;
	if (!h->process.saved_pc || !g->full || g->pc - h->start >= 4096 ||
	    (h->name[0] != HOTSPOT_NAME('p', 'o', 'l', 'l', 'i', 'n', 'g', '_') &&
	     h->name[0] != HOTSPOT_NAME('S', 'a', 'f', 'e', 'p', 'o', 'i', 'n')) ||
	    bpf_probe_read_user(&first, 1, (const void *)h->start) < 0 || first != 0x53 ||
	    bpf_probe_read_user(&pc, 8, (const void *)(g->r[15] + h->process.saved_pc)) < 0 ||
	    !hotspot_heap(&h->process, pc))
		return RUNTIME_NATIVE;
	if (g->pc == h->start)
		return runtime_return(s, pc, g->sp, g->fp);
	if (g->pc == h->start + 1)
		return runtime_return(s, pc, g->sp + 8, g->fp);
	if (g->pc - h->start > (h->end - h->start) / 2)
		return hotspot_poll_ends(pc);
	at = g->pc < h->start + 5 ? g->sp : g->fp; /* push rbp; mov rbp, rsp */
	if (at < g->sp || at - g->sp > h->frame_bytes ||
	    bpf_probe_read_user(saved, 16, (const void *)at) < 0)
		return RUNTIME_NATIVE;
	/* Once it is there it may be moved on over the poll. */
	if (saved[1] - pc < 16)
		pc = saved[1];
	return runtime_return(s, pc, at + 16, saved[0]);
}
#endif

#if UNWIND_REG_FP == 6
/* It has put all registers back: add rsp, 8; popf; pop rbp; then ret, or jmp rax. */
static __always_inline bool hotspot_stub_ends(struct hotspot_scratch *h)
{
	__u32 i = HOTSPOT_BEFORE, up = 0;

	if (h->code[i] == 0x48 && h->code[i + 1] == 0x83 && h->code[i + 2] == 0xc4 &&
	    h->code[i + 3] == 8 && h->code[i + 4] == 0x9d) {
		h->stands = 24;
		h->saves_fp = 1;
		return h->code[i + 5] == 0x5d;
	}
	if (h->code[i] == 0x9d && h->code[i + 1] == 0x5d)
		up = 16;
	else if (h->code[i] == 0x5d && (h->code[i + 1] == 0xc3 || h->code[i + 1] == 0xff))
		up = 8;
	else if (h->code[i] != 0xff || h->code[i + 1] != 0xe0 || h->code[i - 1] != 0x5d)
		return false;
	h->stands = up;
	h->saves_fp = up != 0;
	return true;
}
#endif

static __always_inline int hotspot_stub(struct scratch *s, const struct hotspot_process *p,
					struct hotspot_scratch *h)
{
	struct walk_regs *g = &s->walk.regs;
	__u64 saved[2];
	int stop;

	/* The stub that a sample interrupts does work, say copies an array; others are in the way.
	 */
	if (!g->exact && !runtime_push_own(s, RUNTIME_HOTSPOT))
		return STOP_TOO_DEEP;
	if (!hotspot_push(s, HOTSPOT_STUB, h->blob, (__u32)(g->pc - h->start), (__u32)g->pc))
		return STOP_TOO_DEEP;
#if UNWIND_REG_FP == 6
	if (g->exact) {
		stop = hotspot_poll();
		if (stop != RUNTIME_NATIVE)
			return stop;
	}
#endif
	if (g->exact && g->pc == h->start && hotspot_returns_to_java(p, g->sp))
		return hotspot_return(s, 0, false);
	if (h->frame_bytes >= 16 && (!g->exact || (__s64)(g->pc - h->start) >= h->complete)) {
		if (!g->exact || hotspot_returns_to_java(p, g->sp + h->frame_bytes - 8))
			return hotspot_return(s, h->frame_bytes - 8, true);
	}
#if UNWIND_REG_FP == 6
	if (g->exact && hotspot_read_code(s, h)) {
		__u8 last = h->code[HOTSPOT_BEFORE - 1];

		if (hotspot_stub_ends(h))
			return hotspot_return(s, h->stands, h->saves_fp);
		/* push rbp; mov rbp, rsp … leave; ret */
		if (h->code[HOTSPOT_BEFORE] == 0xc3 || h->code[HOTSPOT_BEFORE] == 0x55)
			return hotspot_return(s, 0, false);
		if (last == 0x55 && h->code[HOTSPOT_BEFORE] == 0x48 &&
		    h->code[HOTSPOT_BEFORE + 2] == 0xec)
			return hotspot_return(s, 8, true);
	}
#endif
	stop = hotspot_by_fp(s, saved);
	/* The barrier at the entry of methods (from 18 on) pushes -1 below the return address. */
	if (stop == WALK_GO && saved[1] == ~0ULL &&
	    bpf_probe_read_user(&saved[1], 8, (const void *)(g->fp + 16)) == 0)
		return runtime_return(s, saved[1], g->fp + 24, saved[0]);
	if (stop == WALK_GO &&
	    (!g->exact || (hotspot_heap(p, saved[1] - 1) || hotspot_is_call(saved[1]))))
		return runtime_return(s, saved[1], g->fp + 16, saved[0]);
	/* Without a frame, but some registers may be pushed. */
	for (__u32 i = 0; g->exact && i < 6; i++)
		if (bpf_probe_read_user(saved, 8, (const void *)(g->sp + i * 8)) == 0 &&
		    hotspot_is_call(saved[0]))
			return hotspot_return(s, i * 8, false);
	return hotspot_thin();
}

/*
 * A method that returns to the continuation stubs is the lowest of a virtual thread's that is on
 * this stack; those that called it are still in the heap. Above its arguments is the frame that
 * entered the continuation, a struct ContinuationEntry: its first word that points to code is its
 * return address.
 */
static __always_inline int hotspot_barrier(struct scratch *s, const struct hotspot_process *p)
{
	/*
	 * A loop whose last block falls through to its first is a back-edge that Linux 5.10 and 6.1
	 * refuse.
	 */
#pragma clang loop unroll(full)
	for (__u32 i = 1; i < 24; i++)
		if (hotspot_returns_to_java(p, s->walk.regs.sp + i * 8))
			return hotspot_return(s, i * 8, true);
	return STOP_NO_TABLE;
}

__noinline int hotspot_walk(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	const struct runtime_process *process;
	__u64 pc;

	if (!s || !h)
		return RUNTIME_NATIVE;
	process = runtime_process(s, RUNTIME_HOTSPOT);
	if (!process)
		return RUNTIME_NATIVE;
	__builtin_memcpy(&h->process, process->room, sizeof(h->process));
	pc = walk_pc(&s->walk.regs);
	if (hotspot_in_interpreter(&h->process, pc))
		return hotspot_interpreted(s, &h->process, h);
	if (!hotspot_heap(&h->process, pc))
		return RUNTIME_NATIVE;
	if (!hotspot_read_blob(pc)) {
		native_push(s, FRAME_RAW | pc);
		return STOP_NO_TABLE;
	}
	switch (hotspot_classify(&h->process, h)) {
	case HOTSPOT_IS_METHOD:
		return hotspot_compiled(s, &h->process, h);
	case HOTSPOT_IS_THIN:
		return hotspot_thin();
	case HOTSPOT_IS_BARRIER:
		if (!s->walk.regs.exact)
			return hotspot_barrier(s, &h->process);
		return hotspot_stub(s, &h->process, h);
	default:
		return hotspot_stub(s, &h->process, h);
	}
}
