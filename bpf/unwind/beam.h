/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Frames of the BEAM with JIT: Erlang functions on an Erlang process's own stack.
 *
 * While a thread runs Erlang code, rsp points to the process's Erlang stack, which is at the end of
 * the process's heap. JIT code switches to the thread's C stack to call C. No Erlang code is below
 * such a C stack: C code cannot call Erlang code. So a stack is C frames, then Erlang frames, then
 * the process's root frame.
 *
 *	low addresses				C stack of a scheduler
 *	│ Y registers of the innermost frame	│ C frames
 *	│ return address			│ ErtsSchedulerRegisters	← rsp when C returns
 *	│ Y registers				│ up to 64 bytes of padding
 *	│ return address			│ return address of the scheduler's loop
 *	│ …
 *	│ beam_normal_exit			← end of the heap
 *
 * A frame needs no unwind information: a word whose two low bits are 0 is a return address, all
 * other words are terms (erl_term.h: is_CP()). With frame pointers (+JPperf), a saved frame
 * pointer, too, has low bits 0; it points to the stack.
 *
 * Code that all modules share (BeamGlobalAssembler) is no function: its time is the caller's. Some
 * of this code is called without aligning the return address.
 */
#pragma once

#include "abi/runtime_beam.h"
#include "bpf/unwind/runtime.h"

#define BEAM_MAX_STACK (64ULL << 20) /* bytes of a stack whose end is not known */
#define BEAM_WORDS 16 /* words of the Erlang stack, or of code, that the walker reads at once */

/* struct runtime_walk */
struct beam_walk {
	__u64 next;    /* avma of the next word of the Erlang stack; 0: the walk is in C frames */
	__u64 end;     /* of the stack */
	__u64 heap;    /* start of the heap */
	__u64 process; /* avma of the struct process */
	__u32 scheduling; /* the walk has passed the function that chooses a process */
	__u32 called;	  /* the walk has passed a function that calls a BIF or a NIF */
	__u32 traced;	  /* a frame of a tracer was before the next word */
	__u32 pad;
};
_Static_assert(sizeof(struct beam_walk) <= sizeof(struct runtime_walk), "beam_walk");

/* One entry for each level. */
struct beam_buffer {
	__u64 words[BEAM_WORDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct beam_buffer);
} beam_buffers SEC(".maps");

struct beam_env {
	struct scratch *s;
	struct beam_buffer *f;
	struct beam_walk *w;
	const struct beam_process *p;
	__u64 bias;
};

/* Finds the data of the walk in progress. */
static __always_inline bool beam_env(struct beam_env *ret)
{
	const struct runtime_process *p;
	__u32 level = scratch_level();

	ret->s = scratch_get();
	ret->f = bpf_map_lookup_elem(&beam_buffers, &level);
	if (!ret->s || !ret->f)
		return false;
	p = runtime_process(ret->s, RUNTIME_BEAM);
	if (!p)
		return false;
	ret->w = (struct beam_walk *)runtime_state(ret->s, RUNTIME_BEAM);
	ret->p = (const struct beam_process *)p->room;
	ret->bias = p->bias;
	return true;
}

static __always_inline bool beam_is_atom(__u64 term)
{
	return (term & BEAM_ATOM_TAG_MASK) == BEAM_ATOM_TAG &&
	       term >> BEAM_ATOM_SHIFT <= BEAM_ATOM_MASK;
}

/* Pushes a frame by the MFA at an address: WALK_GO or a stop reason. */
static __always_inline int beam_push_mfa(struct scratch *s, __u64 at, __u64 kind)
{
	__u64 mfa[BEAM_MFA_WORDS] = {};

	if (bpf_probe_read_user(mfa, sizeof(mfa), (const void *)at) < 0)
		return STOP_BAD_READ;
	if (!beam_is_atom(mfa[0]) || !beam_is_atom(mfa[1]))
		return STOP_RUNTIME_STATE;
	return runtime_push(s, RUNTIME_BEAM,
			    mfa[0] >> BEAM_ATOM_SHIFT | mfa[1] >> BEAM_ATOM_SHIFT << BEAM_ATOM_BITS,
			    kind << BEAM_FRAME_SHIFT | (mfa[2] & 0xff))
		       ? WALK_GO
		       : STOP_TOO_DEEP;
}

/* Pushes a frame by the address of one of its instructions: WALK_GO or a stop reason. */
static __always_inline int beam_push_code(struct scratch *s, __u64 pc)
{
	__u64 code[2] = {};

	if (bpf_probe_read_user(code, sizeof(code), (const void *)(pc - 8)) < 0)
		return STOP_BAD_READ;
	return runtime_push(s, RUNTIME_BEAM, pc,
			    (__u64)BEAM_CODE << BEAM_FRAME_SHIFT | beam_cookie(code[0], code[1]))
		       ? WALK_GO
		       : STOP_TOO_DEEP;
}

/* Pushes the root frame, and ends the stack. */
static __always_inline int beam_root(const struct beam_env *e)
{
	__u64 reg = 0, name = 0;
	int stop;

	if (bpf_probe_read_user(&reg, 8, (const void *)(e->w->process + e->p->registered)) < 0)
		return STOP_BAD_READ;
	if (reg && bpf_probe_read_user(&name, 8, (const void *)(reg + BEAM_REG_NAME)) < 0)
		return STOP_BAD_READ;
	if (beam_is_atom(name))
		return runtime_push(e->s, RUNTIME_BEAM, name >> BEAM_ATOM_SHIFT,
				    (__u64)BEAM_REGISTERED << BEAM_FRAME_SHIFT)
			       ? STOP_COMPLETE
			       : STOP_TOO_DEEP;
	stop = beam_push_mfa(e->s, e->w->process + e->p->initial, BEAM_INITIAL);
	return stop == WALK_GO ? STOP_COMPLETE : stop;
}

/*
 * Whether the word is the argument of a tracer's frame: a pointer to the MFA of the traced
 * function, which has low bits 0 as a return address has.
 */
static __always_inline bool beam_is_traced_mfa(__u64 word)
{
	__u64 mfa[2] = {};

	return bpf_probe_read_user(mfa, sizeof(mfa), (const void *)word) == 0 &&
	       beam_is_atom(mfa[0]) && beam_is_atom(mfa[1]);
}

/* Handles one word of the Erlang stack: WALK_GO, WALK_RUNTIME at the last, or a stop reason. */
static __always_inline int beam_word(const struct beam_env *e, __u64 word)
{
	struct beam_walk *w = e->w;

	if (!word || word & 3 || (word >= w->heap && word <= w->end))
		return WALK_GO; /* a term or a frame pointer */
	if (word == e->p->normal_exit)
		return WALK_RUNTIME;
	if (runtime_in(&e->p->shared, word)) {
		w->traced = 1;
		return WALK_GO;
	}
	if (w->traced && beam_is_traced_mfa(word)) {
		w->traced = 0;
		return WALK_GO;
	}
	w->traced = 0;
	if (word < WALK_MIN_PC || word >= WALK_MAX_PC)
		return STOP_BAD_PC;
	return beam_push_code(e->s, word - 1);
}

/* Walks the next words of the Erlang stack. */
__noinline int beam_stack(void)
{
	struct beam_env e;
	__u32 n = BEAM_WORDS;
	__u64 left;
	int stop;

	if (!beam_env(&e))
		return STOP_UNSUPPORTED;
	left = (e.w->end - e.w->next) / 8;
	if (e.w->end <= e.w->next || !left)
		return beam_root(&e);
	if (left < BEAM_WORDS)
		n = walk_bound((__u32)left, BEAM_WORDS - 1);
	if (bpf_probe_read_user(e.f->words, n * 8, (const void *)e.w->next) < 0)
		return STOP_BAD_READ;
	for (__u64 i = 0; i < BEAM_WORDS; i++) {
		if (i >= n)
			break;
		stop = beam_word(&e, e.f->words[i]);
		if (stop == WALK_RUNTIME)
			return beam_root(&e);
		if (stop != WALK_GO)
			return stop;
	}
	e.w->next += n * 8;
	return RUNTIME_AGAIN;
}

/* Whether a word that is no aligned return address is one, of a call of shared code. */
static __always_inline bool beam_is_call(const struct beam_env *e, __u64 word)
{
	__u8 code[6] = {};

	if (!(word & 3) || word < WALK_MIN_PC || word >= WALK_MAX_PC ||
	    bpf_probe_read_user(code, sizeof(code), (const void *)(word - 6)) < 0)
		return false;
	if (code[1] == 0xe8) {
		__s32 to;

		__builtin_memcpy(&to, &code[2], 4);
		return runtime_in(&e->p->shared, word + (__u64)(__s64)to);
	}
	return false;
}

/*
 * Starts to walk the Erlang stack at `top`. If the process names `top`, the stack may be outside of
 * the heap: a garbage collection moves the stack before it replaces the heap. beam_normal_exit is
 * the stack's end then.
 */
static __always_inline int beam_enter(const struct beam_env *e, __u64 process, __u64 top,
				      bool named, bool shared)
{
	__u64 heap[2] = {}, word = 0;
	int stop;

	if (bpf_probe_read_user(heap, sizeof(heap), (const void *)(process + e->p->heap)) < 0)
		return STOP_BAD_READ;
	if (!top || top & 7)
		return STOP_RUNTIME_STATE;
	if (top < heap[0] || top > heap[1]) {
		if (!named)
			return STOP_RUNTIME_STATE;
		heap[0] = top;
		heap[1] = top + BEAM_MAX_STACK;
	}
	e->w->process = process;
	e->w->heap = heap[0];
	e->w->end = heap[1];
	e->w->next = top;
	/* Only shared code is called without aligning the return address, which is on top then. */
	if (!shared || top >= heap[1])
		return RUNTIME_AGAIN;
	if (bpf_probe_read_user(&word, 8, (const void *)top) < 0)
		return STOP_BAD_READ;
	if (!beam_is_call(e, word))
		return RUNTIME_AGAIN;
	e->w->next += 8;
	stop = runtime_in(&e->p->shared, word) ? WALK_GO : beam_push_code(e->s, word - 1);
	return stop == WALK_GO ? RUNTIME_AGAIN : stop;
}

/* The Erlang process that the thread runs; 0: none. */
static __always_inline __u64 beam_current(const struct beam_env *e)
{
	__u64 scheduler = runtime_word(e->s->first.tls + (__u64)(__s64)e->p->scheduler[0]);

	if (e->p->n_loads > 1 && scheduler)
		scheduler = runtime_word(scheduler + (__u64)(__s64)e->p->scheduler[1]);
	return scheduler ? runtime_word(scheduler + e->p->current) : 0;
}

/*
 * Whether the code before pc kept the Erlang stack pointer in rbp (1), or in the process (0): `mov
 * rbp, rsp; lea rsp, [rbx + c_stack]`. A store of the reductions may be between the two. -1: the
 * code cannot be read.
 */
static __always_inline int beam_kept_in_fp(const struct beam_env *e, __u64 pc)
{
	const __u8 *code = (const __u8 *)e->f->words;
	__u32 lea = 0x00638d48 | (__u32)e->p->c_stack << 24, word, before;

	if (e->p->frame_pointers)
		return 0;
	if (bpf_probe_read_user(e->f->words, sizeof(e->f->words),
				(const void *)(pc - sizeof(e->f->words))) < 0)
		return -1;
	for (__u64 i = sizeof(e->f->words) - 4; i >= 8; i--) {
		__builtin_memcpy(&word, &code[i], 4);
		if (word != lea)
			continue;
		__builtin_memcpy(&before, &code[i - 4], 4);
		if ((before & 0xfffff7) == 0x758945) /* mov [r13 + fcalls], r14 or r14d */
			__builtin_memcpy(&before, &code[i - 8], 4);
		before >>= 8;
		return before == 0xe58948 || before == 0xec8b48;
	}
	return 0;
}

/*
 * Continues at the caller of a scheduler's loop. The loop saved no register, and aligned the stack
 * after it had reserved memory.
 */
static __always_inline int beam_scheduler(const struct beam_env *e)
{
	__u64 at = e->s->walk.regs.sp + e->p->registers, words[8] = {}, sp;

	if (!e->p->caller || !e->p->registers ||
	    bpf_probe_read_user(words, sizeof(words), (const void *)at) < 0)
		return STOP_NO_TABLE;
	for (__u64 i = 1; i < 8; i += 2)
		if (words[i] == e->bias + e->p->caller) {
			sp = at + i * 8 + 8;
			return runtime_return(e->s, words[i], sp,
					      e->p->caller_fp ? sp + e->p->caller_fp : 0);
		}
	return STOP_NO_TABLE;
}

/*
 * Pushes the function that is written in C and runs now, if the walk has passed its frames, and the
 * JIT code at pc, unless that is 0. WALK_GO or a stop reason.
 */
static __always_inline int beam_push_called(const struct beam_env *e, __u64 process, __u64 pc)
{
	__u64 mfa = process + e->p->initial + 8 * BEAM_MFA_WORDS;
	int stop = WALK_GO;

	if (e->w->called) {
		if (bpf_probe_read_user(&mfa, 8, (const void *)mfa) < 0)
			return STOP_BAD_READ;
		stop = mfa ? beam_push_mfa(e->s, mfa, BEAM_FUNCTION) : WALK_GO;
	}
	return stop == WALK_GO && pc ? beam_push_code(e->s, pc) : stop;
}

/* Walks JIT code that a C function returns to, or that was interrupted while on the C stack. */
static __always_inline int beam_from_c(const struct beam_env *e, __u64 pc, __u64 process)
{
	bool shared = runtime_in(&e->p->shared, pc);
	__u64 top = e->s->walk.regs.fp;
	int kept, stop;

	if (e->w->scheduling || !process)
		return beam_scheduler(e);
	kept = beam_kept_in_fp(e, e->s->walk.regs.pc);
	if (kept < 0 ||
	    (!kept && bpf_probe_read_user(&top, 8, (const void *)(process + e->p->stop)) < 0))
		return STOP_BAD_READ;
	stop = beam_push_called(e, process, shared ? 0 : pc);
	return stop == WALK_GO ? beam_enter(e, process, top, !kept, shared) : stop;
}

#if UNWIND_REG_FP == 6
static __always_inline int beam_jit(const struct beam_env *e, __u64 pc)
{
	const struct walk_regs *regs = &e->s->walk.regs;
	bool shared = runtime_in(&e->p->shared, pc);
	__u64 process, heap[2] = {};
	int stop;

	if (!regs->exact)
		return beam_from_c(e, pc, beam_current(e));
	if (!regs->full)
		return STOP_UNSUPPORTED;
	process = regs->r[13];
	if (bpf_probe_read_user(heap, sizeof(heap), (const void *)(process + e->p->heap)) < 0)
		return beam_from_c(e, pc, 0);
	if (regs->sp < heap[0] || regs->sp > heap[1])
		return beam_from_c(e, pc, process);
	stop = shared ? WALK_GO : beam_push_code(e->s, pc);
	return stop == WALK_GO ? beam_enter(e, process, regs->sp, false, shared) : stop;
}
#else
static __always_inline int beam_jit(const struct beam_env *e, __u64 pc)
{
	return STOP_UNSUPPORTED;
}
#endif

/* Walks the loop of a dirty scheduler, which runs a function that is written in C. */
static __always_inline int beam_dirty(const struct beam_env *e, __u64 svma)
{
	struct walk *w = &e->s->walk;
	__u64 process = beam_current(e), top = 0;
	int stop;

	if (!process)
		return RUNTIME_NATIVE;
	if (bpf_probe_read_user(&top, 8, (const void *)(process + e->p->stop)) < 0)
		return STOP_BAD_READ;
	if (w->mapping.file >> 8) {
		if (!runtime_push_own(e->s, RUNTIME_BEAM) || w->n >= SAMPLE_MAX_FRAMES)
			return STOP_TOO_DEEP;
		native_push(e->s, (__u64)(w->mapping.file >> 8) << WORD_SVMA_BITS | svma);
	}
	stop = beam_push_called(e, process, 0);
	return stop == WALK_GO ? beam_enter(e, process, top, true, false) : stop;
}

/* Notes what a C frame says about the Erlang frames that follow. */
static __always_inline int beam_c(const struct beam_env *e, __u64 svma)
{
	if (beam_in(&e->p->schedule, svma))
		e->w->scheduling = 1;
	for (__u64 i = 0; i < BEAM_MAX_CALLS; i++)
		if (beam_in(&e->p->calls[i], svma))
			e->w->called = 1;
	if (beam_in(&e->p->dirty, svma) && !e->w->scheduling && !e->s->walk.regs.exact)
		return beam_dirty(e, svma);
	return RUNTIME_NATIVE;
}

__noinline int beam_walk(void)
{
	struct beam_env e;
	__u64 pc;

	if (!beam_env(&e))
		return RUNTIME_NATIVE;
	if (e.w->next)
		return beam_stack();
	pc = walk_pc(&e.s->walk.regs);
	if (!(e.s->walk.mapping.file & UNWIND_MAPPING_FP))
		return beam_c(&e, pc - e.bias);
	return beam_jit(&e, pc);
}
