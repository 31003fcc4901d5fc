/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Code that PCRE2's JIT has compiled (abi/runtime_pcre2.h). It has no unwind information, but each
 * pattern is one function with one frame size, which is in its first instructions. The walker finds
 * the pattern that pc is in:
 *
 *	It searches the stack upwards from sp, or near what the code has in a register if the frame
 *	is large, for a return address into the library's function that calls patterns. Then it
 *	searches the pattern around that address: the caller has it in a register that the code has
 *	saved, or in its own frame. A word is the pattern if the pattern's code contains pc.
 *
 * Everything found so far only tells where the code begins. The frame's size follows from the code
 * alone, and a call of a pattern must have left its return address at the frame's end. So remains
 * of earlier calls on the stack cannot mislead the walker: without this proof it finds nothing.
 */
#pragma once

#include "abi/runtime_pcre2.h"
#include "bpf/unwind/runtime.h"

/* Words of the stack in which the walker searches the return address. */
#define PCRE2_STACK_WORDS 512
#define PCRE2_FEW_WORDS 64 /* near the end of the stack, or below an address in a frame */
/* Words around the return address in which it searches the pattern. */
#define PCRE2_SAVED_WORDS 6 /* below it: registers */
#define PCRE2_AROUND_WORDS 96
#define PCRE2_MAX_TRIES 64
#define PCRE2_MAX_CALLER 65536	   /* bytes of a function of the library */
#define PCRE2_MAX_SIZE (64U << 20) /* bytes of a pattern's code */
#define PCRE2_MAX_FRAME (1U << 17) /* PCRE2 limits local variables to 64 KiB */
#define PCRE2_CODE_BYTES 64	   /* a power of two */
#define PCRE2_MAX_INSNS 16	   /* of a prologue or epilogue */
#define PCRE2_MAX_POINTER (1ULL << 47)
/* DWARF numbers of registers. */
#define PCRE2_RBX 3
#define PCRE2_R12 12

enum pcre2_found {
	PCRE2_NOTHING, /* nothing on the stack suggests a pattern */
	PCRE2_TRACES,  /* a return address, but no proof */
	PCRE2_FRAME,
};

struct pcre2_walk {
	__u64 entry;	/* the first instruction of the code */
	__u64 size;	/* bytes of it */
	__u64 at;	/* of the return address; 0: not found */
	__u64 saved_fp; /* where the frame pointer is saved; 0: it is in its register */
	/* Of reading instructions. In memory, so that the verifier follows no position. */
	volatile __u32 position;
	__u32 n_saved;	/* registers pushed, or to be popped */
	__u32 fp_order; /* 1 for the frame pointer as the first of them; 0: it is not among them */
	__u32 locals;
	__u32 tries;
};
_Static_assert(sizeof(struct pcre2_walk) <= sizeof(struct runtime_walk), "pcre2_walk");

/* Copies of memory of the process; too large for the BPF stack. One entry for each level. */
struct pcre2_buffer {
	__u64 stack[PCRE2_STACK_WORDS];
	__u64 around[PCRE2_AROUND_WORDS];
	__u64 functions[PCRE2_FUNCTIONS_WORDS];
	__u8 code[PCRE2_CODE_BYTES];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct pcre2_buffer);
} pcre2_buffers SEC(".maps");

struct pcre2_env {
	struct scratch *s;
	struct pcre2_buffer *f;
	struct pcre2_walk *w;
	const struct pcre2_binary *b;
	__u64 bias;
};

/* Each global function starts with this, because the verifier checks it on its own. */
static __always_inline bool pcre2_env(struct pcre2_env *ret)
{
	const struct runtime_process *process;
	const struct runtime_binary *binary;
	__u32 level = scratch_level();

	ret->s = scratch_get();
	ret->f = bpf_map_lookup_elem(&pcre2_buffers, &level);
	if (!ret->s || !ret->f)
		return false;
	process = runtime_process(ret->s, RUNTIME_PCRE2);
	binary = process ? runtime_binary(process) : NULL;
	if (!binary)
		return false;
	ret->w = (struct pcre2_walk *)runtime_state(ret->s, RUNTIME_PCRE2);
	ret->b = (const struct pcre2_binary *)binary->room;
	ret->bias = process->bias;
	return true;
}

static __always_inline bool pcre2_is_pointer(__u64 p)
{
	return !(p & 7) && p >= WALK_MIN_PC && p < PCRE2_MAX_POINTER;
}

static __always_inline bool pcre2_in_caller(const struct pcre2_env *e, __u64 word)
{
	return runtime_in(&e->b->match, word - e->bias) ||
	       runtime_in(&e->b->machine, word - e->bias);
}

/* Whether a call of a pattern has left its return address at `at`. */
static __always_inline bool pcre2_is_return(const struct pcre2_env *e, __u64 at)
{
	__u64 svma = runtime_word(at) - e->bias;

	for (__u64 i = 0; i < PCRE2_MAX_SITES; i++) {
		if (i >= e->b->n_sites)
			break;
		if (e->b->sites[i] == svma)
			return true;
	}
	return false;
}

/* ---- the code that pc is in ---- */

/* Whether `pattern` is a compiled pattern whose code contains pc. If so, keeps where that is. */
__noinline int pcre2_take(__u64 pattern)
{
	struct pcre2_env e;
	__u64 functions, pc;

	if (!pcre2_env(&e))
		return false;
	functions = runtime_word(pattern + PCRE2_CODE_FUNCTIONS);
	if (!pcre2_is_pointer(functions) ||
	    bpf_probe_read_user(e.f->functions, sizeof(e.f->functions), (const void *)functions) <
		    0)
		return false;
	pc = walk_pc(&e.s->walk.regs);
	for (__u64 i = 0; i < PCRE2_KINDS; i++) {
		__u64 entry = e.f->functions[PCRE2_FUNCTIONS_CODE + i];
		__u64 size = e.f->functions[PCRE2_FUNCTIONS_SIZE + i];

		if (!entry || size > PCRE2_MAX_SIZE || pc - entry >= size)
			continue;
		e.w->entry = entry;
		e.w->size = size;
		return true;
	}
	return false;
}

/* ---- the code's frame ---- */

static __always_inline __u32 pcre2_byte(const struct pcre2_env *e, __u32 i)
{
	return e->f->code[walk_bound(i, PCRE2_CODE_BYTES - 1)];
}

/* Begins to read instructions. False: the process's memory cannot be read. */
static __always_inline bool pcre2_read(const struct pcre2_env *e, __u64 at)
{
	e->w->position = 0;
	e->w->n_saved = 0;
	e->w->fp_order = 0;
	e->w->locals = 0;
	return bpf_probe_read_user(e->f->code, sizeof(e->f->code), (const void *)at) == 0;
}

/* Counts a register that an instruction of `bytes` bytes pushes or pops. */
static __always_inline void pcre2_count(struct pcre2_walk *w, bool is_fp, __u32 bytes)
{
	__u32 n = w->n_saved + 1;

	w->n_saved = n;
	if (is_fp)
		w->fp_order = n;
	w->position += bytes;
}

/*
 * Reads the instructions before `off` in the code's prologue: pushes, moves between registers, and
 * the subtraction that makes room for local variables. False: it is another prologue.
 */
__noinline int pcre2_prologue(__u64 off)
{
	struct pcre2_env e;

	if (!pcre2_env(&e) || !pcre2_read(&e, e.w->entry))
		return false;
	for (__u64 n = 0; n < PCRE2_MAX_INSNS; n++) {
		__u32 i = e.w->position;
		__u32 a = pcre2_byte(&e, i), b = pcre2_byte(&e, i + 1), c = pcre2_byte(&e, i + 2);

		if (i >= off || i >= PCRE2_CODE_BYTES - 8)
			return i == off;
		if ((a & 0xf8) == 0x50) { /* push */
			pcre2_count(e.w, a == 0x55, 1);
		} else if (a == 0x41 && (b & 0xf8) == 0x50) { /* push r8…r15 */
			pcre2_count(e.w, false, 2);
		} else if (a == 0xf3 && b == 0x0f && c == 0x1e) { /* endbr64 */
			e.w->position = i + 4;
		} else if (a == 0x48 && b == 0x83 && c == 0xec) { /* sub rsp, imm8 */
			e.w->locals = pcre2_byte(&e, i + 3);
			return e.w->locals < 0x80;
		} else if (a == 0x48 && b == 0x81 && c == 0xec) { /* sub rsp, imm32 */
			e.w->locals = pcre2_byte(&e, i + 3) | pcre2_byte(&e, i + 4) << 8 |
				      pcre2_byte(&e, i + 5) << 16 | pcre2_byte(&e, i + 6) << 24;
			return e.w->locals < PCRE2_MAX_FRAME;
		} else if ((a & 0xfa) == 0x48 && c >= 0xc0 &&
			   ((b == 0x89 && ((c & 7) != 4 || a & 1)) ||
			    (b == 0x8b && ((c >> 3 & 7) != 4 || a & 4)))) {
			e.w->position = i + 3; /* mov between registers, not to rsp */
		} else {
			return false;
		}
	}
	return false;
}

/* Reads the pops from pc on, up to the return. False: other instructions follow. */
__noinline int pcre2_epilogue(void)
{
	struct pcre2_env e;

	if (!pcre2_env(&e) || !pcre2_read(&e, e.s->walk.regs.pc))
		return false;
	for (__u64 n = 0; n < PCRE2_MAX_INSNS; n++) {
		__u32 i = e.w->position;
		__u32 a = pcre2_byte(&e, i), b = pcre2_byte(&e, i + 1);

		if (a == 0xc3)
			return true;
		if ((a & 0xf8) == 0x58)
			pcre2_count(e.w, a == 0x5d, 1);
		else if (a == 0x41 && (b & 0xf8) == 0x58)
			pcre2_count(e.w, false, 2);
		else
			return false;
	}
	return false;
}

static __always_inline int pcre2_accept(const struct pcre2_env *e, __u64 at, __u64 saved_fp)
{
	if (!pcre2_is_return(e, at))
		return false;
	e->w->at = at;
	e->w->saved_fp = saved_fp;
	return true;
}

/*
 * Finds the return address of the code that pc is in. In a leaf frame, pc may be at an instruction
 * where sp differs from its value in the rest of the code.
 */
__noinline int pcre2_measure(void)
{
	const struct walk_regs *regs;
	struct pcre2_env e;
	__u64 sp, off, at;

	if (!pcre2_env(&e))
		return false;
	regs = &e.s->walk.regs;
	sp = regs->sp;
	if (regs->exact && pcre2_epilogue() &&
	    pcre2_accept(&e, sp + 8ULL * e.w->n_saved,
			 e.w->fp_order ? sp + 8ULL * (e.w->fp_order - 1) : 0))
		return true;
	off = regs->exact ? regs->pc - e.w->entry : e.w->size;
	if (!pcre2_prologue(off))
		return false;
	at = sp + 8ULL * e.w->n_saved + e.w->locals;
	if (pcre2_accept(&e, at, e.w->fp_order ? at - 8ULL * e.w->fp_order : 0))
		return true;
	/* A call within the code: its return address is on the stack for one instruction. */
	if (!regs->exact || runtime_word(sp) - e.w->entry >= e.w->size)
		return false;
	at += 8;
	return pcre2_accept(&e, at, e.w->fp_order ? at - 8ULL * e.w->fp_order : 0);
}

/* Whether `word` is the pattern, and the frame follows from its code. */
static __always_inline bool pcre2_leads(__u64 word)
{
	return pcre2_is_pointer(word) && pcre2_take(word) && pcre2_measure();
}

/* Searches the pattern around a return address. */
__noinline int pcre2_find_around(__u64 at)
{
	struct pcre2_env e;
	__u64 *around, caller, gap = 0;

	if (!pcre2_env(&e))
		return false;
	around = e.f->around;
	caller = runtime_word(at) - e.bias;
	if (runtime_in(&e.b->machine, caller))
		gap = PCRE2_MACHINE_STACK;
	if (bpf_probe_read_user(around, 8 * PCRE2_SAVED_WORDS,
				(const void *)(at - 8 * PCRE2_SAVED_WORDS)) < 0 ||
	    bpf_probe_read_user(around + PCRE2_SAVED_WORDS,
				8 * (PCRE2_AROUND_WORDS - PCRE2_SAVED_WORDS),
				(const void *)(at + gap)) < 0)
		return false;
	for (__u64 i = 0; i < PCRE2_AROUND_WORDS; i++)
		if (pcre2_leads(around[i]))
			return true;
	/* The code does not save r12, because it does not use r12. */
	return e.s->walk.regs.full && pcre2_leads(e.s->walk.regs.r[PCRE2_R12]);
}

/* ---- the walk ---- */

/* What a word at `at` leads to. */
__noinline int pcre2_try(__u64 at, __u64 word)
{
	struct pcre2_env e;

	if (!pcre2_env(&e) || !pcre2_in_caller(&e, word) || e.w->tries >= PCRE2_MAX_TRIES)
		return false;
	e.w->tries++;
	return pcre2_find_around(at);
}

/* Searches `n` words of the stack from `start` on. */
__noinline int pcre2_search(__u64 start, __u64 n)
{
	struct pcre2_env e;
	__u64 match, machine;

	if (!pcre2_env(&e) || !pcre2_is_pointer(start))
		return false;
	match = e.b->match.start + e.bias;
	machine = e.b->machine.start + e.bias;
	if (n < PCRE2_STACK_WORDS ||
	    bpf_probe_read_user(e.f->stack, sizeof(e.f->stack), (const void *)start) < 0) {
		n = PCRE2_FEW_WORDS;
		if (bpf_probe_read_user(e.f->stack, 8 * PCRE2_FEW_WORDS, (const void *)start) < 0)
			return false;
	}
	for (__u64 i = 0; i < PCRE2_STACK_WORDS; i++) {
		__u64 word = e.f->stack[i];

		if (i >= n)
			break;
		if ((word - match < PCRE2_MAX_CALLER || word - machine < PCRE2_MAX_CALLER) &&
		    pcre2_try(start + 8 * i, word))
			return true;
	}
	return false;
}

/*
 * Searches by a pointer to the arguments of the code. They are in the frame of pcre2_jit_match()
 * and begin with a pointer to the stack for backtracking, whose description is where the frame of
 * jit_machine_stack_exec() begins.
 */
static __always_inline bool pcre2_search_by(__u64 arguments)
{
	__u64 below = 8ULL * PCRE2_FEW_WORDS;

	return pcre2_search(arguments - below, PCRE2_FEW_WORDS) ||
	       pcre2_search(runtime_word(arguments) - below, PCRE2_FEW_WORDS);
}

/*
 * Finds the frame. The code keeps the pointer to its arguments in rbx (SLJIT_S0) until it has
 * initialised its local variables, then in the register of the frame pointer (SLJIT_S4).
 */
static __always_inline enum pcre2_found pcre2_find(const struct pcre2_env *e)
{
	const struct walk_regs *regs = &e->s->walk.regs;

	e->w->tries = 0;
	if (pcre2_search(regs->sp, PCRE2_STACK_WORDS) || pcre2_search_by(regs->fp) ||
	    (regs->full && pcre2_search_by(regs->r[PCRE2_RBX])))
		return PCRE2_FRAME;
	return e->w->tries ? PCRE2_TRACES : PCRE2_NOTHING;
}

__noinline int pcre2_walk(void)
{
	struct pcre2_env e;
	__u64 fp;
	enum pcre2_found found;

	if (!pcre2_env(&e) || !(e.s->walk.mapping.file & UNWIND_MAPPING_FP))
		return RUNTIME_NATIVE;
	found = pcre2_find(&e);
	if (found != PCRE2_FRAME) {
		if (e.s->walk.mapping.file & UNWIND_MAPPING_UNKNOWN)
			return STOP_NO_MAPPING;
		/* The code uses the frame pointer for other things. */
		return found == PCRE2_TRACES ? STOP_NO_TABLE : RUNTIME_NATIVE;
	}
	if (!runtime_push(e.s, RUNTIME_PCRE2, e.w->entry, 0))
		return STOP_TOO_DEEP;
	fp = e.w->saved_fp ? runtime_word(e.w->saved_fp) : e.s->walk.regs.fp;
	return runtime_return(e.s, runtime_word(e.w->at), e.w->at + 8, fp);
}
