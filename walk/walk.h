/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * One step of the native unwinder, compiled for BPF and for the host.
 *
 * The includer provides, before including this file:
 *
 *	struct walk_env				  what the functions below need
 *	const void *walk_line(env, line)	  the 64 bytes of an arena line, or NULL
 *	int walk_read(env, to, n, avma)		  reads n bytes of the process's memory; 0 or
 *						  negative
 *	__u64 walk_strip(env, pc)		  pc without pointer-authentication bits
 *	bool walk_in_time(env)			  UNWIND_GRACE_NS are not over: user space cannot
 *						  have reused a line that this walk has read
 *
 * and after including this file:
 *
 *	struct walk_row *walk_row_at(env, w, pc)  the slot for the row of this pc; the slot may
 *						  hold any row, or zeros for none
 *
 * The code masks every index to its line and gives every loop a constant bound, as the verifier
 * requires. User space may change the tables while a walk reads them, so this code does not trust
 * the tables: a wrong table gives a wrong or short stack, never a bad access.
 *
 * Loop counters are 64 bits wide: clang keeps some counters on the stack, and before Linux 5.16
 * (commit 354e8f1970f8) the verifier forgets the value of a spilled 32-bit word, so it sees no
 * bound.
 *
 * The bounds of the looping searches are in struct walk (map memory, for BPF) and not in registers,
 * so that the verifier sees one state per iteration and not one state per possible range. Row and
 * index searches are branchless: the verifier follows one path, and the processor mispredicts
 * nothing. BPF has no conditional move, so the sign of a difference makes the comparison.
 */
#pragma once

#include <stdbool.h>

#include "abi/sample.h"

#define WALK_GO (-1)	    /* walk_step(): there is a caller; results >= 0: enum stop_reason */
#define WALK_FP (-2)	    /* walk_find_row(): code without tables, try the frame pointer */
#define WALK_RUNTIME (-4)   /* walk_step(): the mapping belongs to a runtime, see walk_runtime() */
#define WALK_ELSEWHERE (-5) /* bpf/unwind/runtime.h: the frame belongs to another runtime */
#define WALK_SWITCH (-6)    /* walk_step(): Go has changed stacks, walk_switch() finds the caller */

/* Limits of a valid pc: user addresses only. */
#define WALK_MIN_PC 4096ULL
#define WALK_MAX_PC (1ULL << 56)

/*
 * The result of a lookup of an address. It holds as long as the process has the same mappings: user
 * space never reuses a file's id, and what a file's tables say about an address never changes, the
 * tables can only go away. So a row that matches pc and mappings_id is right, whatever has happened
 * to the tables since, if the row was right at its lookup. Where that is not certain (the walk was
 * preempted for long), the walk uses the row and does not keep it.
 */
struct walk_row {
	__u64 pc; /* the key: the pc of the lookup */
	__u64 mappings_id;
	__u64 frame;
	struct unwind_rule rule;
	__u64 pad[3]; /* to a cache line */
};
_Static_assert(sizeof(struct walk_row) == 64, "walk_row");

struct walk {
	struct walk_regs regs;
	__u64 mappings_id; /* process_entry.mappings_id */
	__u32 slice;
	__u32 n_mappings; /* not 0: a process without mappings has no mappings_id either */
	/*
	 * The mapping of the last frame, and a copy of its binary's fields: neighbouring frames
	 * mostly share the mapping.
	 */
	struct unwind_mapping mapping;
	__u64 first_page;
	__u32 n_pages;
	__u32 dir;
	__u32 rules;
	__u32 n_rules;
	__u32 have_mapping;
	__u32 native; /* unwind the next frame by its rows, even in a runtime's mapping */
	__u32 n;      /* frames */
	__u64 hash;
	volatile __u32 lo, hi;	     /* bounds of the current search */
	struct unwind_rule switched; /* WALK_SWITCH: the rule of the frame */
#if UNWIND_REG_FP == 6
	__u64 mcontext[17]; /* of a signal frame; too large for BPF's stack of 512 bytes */
#endif
};

#define walk_inline static inline __attribute__((always_inline))

walk_inline struct walk_row *walk_row_at(struct walk_env *env, const struct walk *w, __u64 pc);

walk_inline __u64 walk_mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9fb21c651e98df25ULL;
	return hash ^ (hash >> 32);
}

/* The id of a user stack, from the hash of its frames and its stop reason; never 0. */
walk_inline __u64 walk_stack_id(__u64 hash, __u32 stop)
{
	__u64 id = walk_mix(hash, stop);

	return id ? id : 1;
}

/* The address to look up: a return address belongs to the instruction before it. */
walk_inline __u64 walk_pc(const struct walk_regs *regs)
{
	return regs->pc - (regs->exact ? 0 : 1);
}

/*
 * value & mask. The asm hides the range of `value` from the compiler, which would leave out a mask
 * that changes nothing; but the verifier of older kernels needs the mask to see the bound.
 */
walk_inline __u32 walk_bound(__u32 value, __u32 mask)
{
	asm volatile("" : "+r"(value));
	return value & mask;
}

/* `bit` if value <= limit, else 0, for values below 2^63. */
walk_inline __u32 walk_take(__u64 value, __u64 limit, __u32 bit)
{
	return (__u32)((__s64)(value - limit - 1) >> 63) & bit;
}

/* Copies the fields of the mapping's binary into the walk; a file without tables has no pages. */
walk_inline void walk_take_binary(struct walk *w, const struct unwind_binary *b)
{
	/* One load: user space publishes both words by one store. */
	__u64 rules = *(const volatile __u64 *)&b->rules;

	w->first_page = b->first_page;
	w->n_pages = b->n_pages;
	w->dir = b->dir;
	w->rules = (__u32)rules;
	w->n_rules = rules >> 32;
}

/* Finds the mapping of an address and copies it to w->mapping; false: there is none. */
walk_inline bool walk_find_mapping(struct walk_env *env, struct walk *w, __u64 avma)
{
	const struct unwind_mapping *line;
	const struct unwind_binary *b;
	__u32 mid;

	if (w->have_mapping && avma >= w->mapping.start && avma < w->mapping.end)
		return true;
	w->have_mapping = 0;
	w->lo = 0;
	w->hi = w->n_mappings;
	for (__u64 i = 0; i < 18; i++) {
		mid = w->lo;
		if (mid >= w->hi)
			break;
		mid = (mid + w->hi) / 2;
		line = walk_line(env, w->slice + mid / UNWIND_MAPPINGS_PER_LINE);
		if (!line)
			return false;
		if (line[walk_bound(mid, 1)].start <= avma)
			w->lo = mid + 1;
		else
			w->hi = mid;
	}
	mid = w->lo;
	if (!mid)
		return false;
	mid--;
	line = walk_line(env, w->slice + mid / UNWIND_MAPPINGS_PER_LINE);
	if (!line || avma < line[walk_bound(mid, 1)].start || avma >= line[walk_bound(mid, 1)].end)
		return false;
	w->mapping = line[walk_bound(mid, 1)];
	w->n_pages = 0;
	if (w->mapping.binary) {
		b = walk_line(env, w->mapping.binary);
		if (b)
			walk_take_binary(w, b);
	}
	w->have_mapping = 1;
	return true;
}

/* The index of the last of 32 ascending u16 that is ≤ off; the first u16 is 0. */
walk_inline __u32 walk_search_index(const __u16 *index, __u32 off)
{
	__u32 k = 0;

	k += walk_take(index[walk_bound(k + 16, 31)], off, 16);
	k += walk_take(index[walk_bound(k + 8, 31)], off, 8);
	k += walk_take(index[walk_bound(k + 4, 31)], off, 4);
	k += walk_take(index[walk_bound(k + 2, 31)], off, 2);
	k += walk_take(index[walk_bound(k + 1, 31)], off, 1);
	return k;
}

/* The row of a block that applies to `off`. */
walk_inline __u32 walk_search_block(const __u32 *rows, __u32 off)
{
	__u64 key = (__u64)off << 16 | 0xffff;
	__u32 k = 0;

	k += walk_take(rows[walk_bound(k + 8, 15)], key, 8);
	k += walk_take(rows[walk_bound(k + 4, 15)], key, 4);
	k += walk_take(rows[walk_bound(k + 2, 15)], key, 2);
	k += walk_take(rows[walk_bound(k + 1, 15)], key, 1);
	return rows[walk_bound(k, 15)];
}

/* The number of the page's block that applies to `off`, or -1. */
walk_inline int walk_find_block(struct walk_env *env, struct walk *w, __u32 first, __u32 n_index,
				__u32 off)
{
	const __u16 *index;
	__u32 mid;

	w->lo = 0;
	w->hi = n_index;
	/* Only pages of more than 512 rows have a second index line. */
	for (__u64 i = 0; n_index > 1 && i < 6; i++) {
		mid = (w->lo + w->hi) / 2;
		if (w->hi - w->lo <= 1)
			break;
		index = walk_line(env, first + mid);
		if (!index)
			return -1;
		if (index[0] <= off)
			w->lo = mid;
		else
			w->hi = mid;
	}
	mid = w->lo;
	index = walk_line(env, first + mid);
	if (!index)
		return -1;
	return (int)(mid * UNWIND_BLOCKS_PER_INDEX + walk_search_index(index, off));
}

/* Finds the rule for an svma of w->mapping: WALK_GO and a copy of the rule, or a stop reason. */
walk_inline int walk_find_rule(struct walk_env *env, struct walk *w, __u64 svma,
			       struct unwind_rule *ret)
{
	const struct unwind_page *pages;
	const struct unwind_rule *rules;
	const __u32 *rows;
	__u64 page = (svma >> UNWIND_PAGE_SHIFT) - w->first_page;
	__u32 off = svma & (UNWIND_PAGE_BYTES - 1);
	__u32 first, n_blocks, n_index, row, rule;
	union {
		struct unwind_page p;
		__u64 word;
	} u;
	int block = 0;

	if (page >= w->n_pages)
		return STOP_NO_TABLE;
	pages = walk_line(env, w->dir + (__u32)(page / 8));
	if (!pages)
		return STOP_NOT_LOADED;
	/* One load: user space publishes a page by one store. */
	u.word = *(const volatile __u64 *)&pages[walk_bound((__u32)page, 7)];
	first = u.p.line;
	if (!first)
		return STOP_NOT_LOADED;
	n_blocks = (u.p.n_rows + UNWIND_ROWS_PER_BLOCK - 1u) / UNWIND_ROWS_PER_BLOCK;
	if (n_blocks > 1) {
		n_index = (n_blocks + UNWIND_BLOCKS_PER_INDEX - 1) / UNWIND_BLOCKS_PER_INDEX;
		block = walk_find_block(env, w, first, n_index, off);
		if (block < 0)
			return STOP_NOT_LOADED;
		first += n_index;
	}
	rows = walk_line(env, first + (__u32)block);
	if (!rows)
		return STOP_NOT_LOADED;
	row = walk_search_block(rows, off);
	rule = row & 0xffff;
	if (rule >= w->n_rules) {
		/* The rules grew after the walk copied the binary's fields. */
		const struct unwind_binary *b = walk_line(env, w->mapping.binary);

		if (!b)
			return STOP_NO_TABLE;
		walk_take_binary(w, b);
		if (rule >= w->n_rules)
			return STOP_NO_TABLE;
	}
	rules = walk_line(env, w->rules + rule / UNWIND_RULES_PER_LINE);
	if (!rules)
		return STOP_NO_TABLE;
	*ret = rules[walk_bound(rule, UNWIND_RULES_PER_LINE - 1)];
	return WALK_GO;
}

/* Takes all registers from the ucontext that the kernel put on the stack for a signal handler. */
walk_inline int walk_signal(struct walk_env *env, struct walk *w, __u64 ucontext)
{
	struct walk_regs *g = &w->regs;
#if UNWIND_REG_FP == 6
	/*
	 * x86-64: the registers begin at 40 in the ucontext: r8…r15 rdi rsi rbp rbx rdx rax rcx rsp
	 * rip (arch/x86/include/uapi/asm/sigcontext.h).
	 */
	__u64 *m = w->mcontext;

	if (walk_read(env, m, sizeof(w->mcontext), ucontext + 40) < 0)
		return STOP_BAD_READ;
	for (__u64 i = 0; i < 8; i++)
		g->r[8 + i] = m[i];
	g->r[5] = m[8];
	g->r[4] = m[9];
	g->r[6] = m[10];
	g->r[3] = m[11];
	g->r[1] = m[12];
	g->r[0] = m[13];
	g->r[2] = m[14];
	g->r[7] = m[15];
	g->fp = m[10];
	g->sp = m[15];
	g->pc = m[16];
#else
	/*
	 * arm64: uc_mcontext is at 176 in the ucontext; regs[31], sp and pc begin at 8 in it
	 * (arch/arm64/include/uapi/asm/).
	 */
	__u64 pc;

	if (walk_read(env, g->r, 32 * 8, ucontext + 184) < 0 ||
	    walk_read(env, &pc, 8, ucontext + 184 + 32 * 8) < 0)
		return STOP_BAD_READ;
	g->fp = g->r[29];
	g->sp = g->r[31];
	g->pc = pc;
#endif
	g->full = 1;
	g->exact = 1;
	return g->pc ? WALK_GO : STOP_COMPLETE;
}

/* Moves to the caller: sets pc, sp and fp, and checks pc. */
walk_inline int walk_return(struct walk_env *env, struct walk *w, __u64 pc, __u64 cfa, __u64 fp)
{
	pc = walk_strip(env, pc);
	w->regs.pc = pc;
	w->regs.sp = cfa;
	w->regs.fp = fp;
	w->regs.full = 0;
	w->regs.exact = 0;
	/*
	 * The outermost frame of a thread whose code does not mark the end otherwise. A return
	 * address of 0 alone is what a wrong rule finds, say in a library that has just replaced
	 * another one.
	 */
	if (!pc && !fp)
		return STOP_COMPLETE;
	if (pc < WALK_MIN_PC || pc >= WALK_MAX_PC)
		return STOP_BAD_PC;
	return WALK_GO;
}

/*
 * Moves to the caller by the frame-pointer chain: {saved fp, return address} is at fp. `check`: the
 * frame pointer may hold anything else.
 */
walk_inline int walk_by_fp(struct walk_env *env, struct walk *w, bool check)
{
	__u64 fp = w->regs.fp, saved[2];

	if (!fp)
		return check ? STOP_NO_TABLE : STOP_COMPLETE;
	if (check && (fp < w->regs.sp || fp - w->regs.sp > 1 << 20 || (fp & 7)))
		return STOP_NO_TABLE;
	if (walk_read(env, saved, sizeof(saved), fp) < 0)
		return STOP_BAD_READ;
	w->regs.bx = 0;
	return walk_return(env, w, saved[1], fp + 16, saved[0]);
}

walk_inline int walk_cfa(struct walk_env *env, struct walk *w, const struct unwind_rule *r,
			 __u64 *ret_cfa)
{
	__u64 base, word;

	if (r->cfa_reg == UNWIND_REG_SP)
		base = w->regs.sp;
	else if (r->cfa_reg == UNWIND_REG_FP)
		base = w->regs.fp;
	else if (w->regs.full || (w->regs.bx && r->cfa_reg == UNWIND_REG_BX))
		base = w->regs.r[walk_bound(r->cfa_reg, UNWIND_N_REGS - 1)];
	else
		return STOP_UNSUPPORTED;
	base += (__u64)(__s64)r->cfa_off;
	if (r->cfa_op == UNWIND_CFA_DEREF) {
		if (walk_read(env, &word, sizeof(word), base) < 0)
			return STOP_BAD_READ;
		base = word + (__u64)(__s64)r->cfa_add;
	} else if (r->cfa_op == UNWIND_CFA_PLT) {
		base += (w->regs.pc & 15) >= (__u16)r->cfa_add ? 8 : 0;
	}
	*ret_cfa = base;
	return WALK_GO;
}

/* Finds the caller's rbx, where the file's rules say how. */
walk_inline int walk_bx(struct walk_env *env, struct walk *w, const struct unwind_rule *r,
			__u64 cfa)
{
#if UNWIND_REG_FP == 6
	if (r->bx_off == UNWIND_BX_UNKNOWN) {
		w->regs.bx = 0;
	} else if (r->bx_off == UNWIND_BX_SAME) {
		w->regs.bx |= w->regs.full;
	} else {
		if (walk_read(env, &w->regs.r[UNWIND_REG_BX], 8, cfa + (__u64)(__s64)r->bx_off) < 0)
			return STOP_BAD_READ;
		w->regs.bx = 1;
	}
#endif
	return WALK_GO;
}

walk_inline int walk_go_depth(struct walk_env *env, struct walk *w, const struct unwind_rule *r)
{
	__u64 g, sp, hi, pc, fp = w->regs.fp;

	if (walk_read(env, &g, sizeof(g), w->regs.sp + (__u64)(__s64)r->cfa_add) < 0 ||
	    walk_read(env, &sp, sizeof(sp), w->regs.sp + (__u64)(__s64)r->cfa_off) < 0)
		return STOP_BAD_READ;
	if (g) {
		if (walk_read(env, &hi, sizeof(hi), g + UNWIND_GO_G_STACK_HI) < 0)
			return STOP_BAD_READ;
		sp = hi - sp;
	}
#if UNWIND_REG_FP == 29
	/* The return address is where the frame begins. */
	if (walk_read(env, &pc, sizeof(pc), sp) < 0)
		return STOP_BAD_READ;
	sp += (__u64)(__s64)r->ra_off;
#else
	sp += (__u64)(__s64)r->ra_off;
	if (walk_read(env, &pc, sizeof(pc), sp - 8) < 0)
		return STOP_BAD_READ;
#endif
	if (r->fp_op == UNWIND_FP_CFA &&
	    walk_read(env, &fp, sizeof(fp), sp + (__u64)(__s64)r->fp_off) < 0)
		return STOP_BAD_READ;
	return walk_return(env, w, pc, sp, fp);
}

#if UNWIND_REG_FP == 6

/* The goroutine that the thread runs; STOP_COMPLETE: the thread runs the scheduler only. */
walk_inline int walk_go_curg(struct walk_env *env, struct walk *w, const struct unwind_rule *r,
			     __u64 *ret_curg)
{
	__u64 m, curg, mark;

	if (!w->regs.tls)
		return STOP_UNSUPPORTED;
	if (walk_read(env, &m, sizeof(m), w->regs.tls + (__u64)(__s64)r->cfa_off) < 0 ||
	    walk_read(env, &m, sizeof(m), m + UNWIND_GO_G_M) < 0 ||
	    walk_read(env, &curg, sizeof(curg), m + (__u64)(__s64)r->cfa_add) < 0)
		return STOP_BAD_READ;
	if (!curg)
		return STOP_COMPLETE;
	if (r->cfa_reg == UNWIND_GO_CURG_AT_SP) {
		if (walk_read(env, &mark, sizeof(mark), w->regs.sp) < 0)
			return STOP_BAD_READ;
		if (mark != curg)
			return STOP_COMPLETE;
	}
	*ret_curg = curg;
	return WALK_GO;
}

walk_inline int walk_go_sched(struct walk_env *env, struct walk *w, const struct unwind_rule *r)
{
	__u64 curg, pc, sp, fp;
	int stop = walk_go_curg(env, w, r, &curg);

	if (stop != WALK_GO)
		return stop;
	if (walk_read(env, &sp, sizeof(sp), curg + UNWIND_GO_G_SP) < 0 ||
	    walk_read(env, &pc, sizeof(pc), curg + UNWIND_GO_G_PC) < 0 ||
	    walk_read(env, &fp, sizeof(fp), curg + (__u64)(__s64)r->fp_off) < 0)
		return STOP_BAD_READ;
	if (r->ra_op == UNWIND_RA_CFA) {
		if (walk_read(env, &pc, sizeof(pc), sp) < 0)
			return STOP_BAD_READ;
		sp += 8;
	}
	return walk_return(env, w, pc, sp, fp);
}

walk_inline int walk_go_gobuf(struct walk_env *env, struct walk *w, const struct unwind_rule *r)
{
	__u64 pc = w->regs.r[UNWIND_REG_BX], fp = w->regs.fp;
	int stop;

	if (!w->regs.full)
		return STOP_UNSUPPORTED;
	if (r->fp_off && walk_read(env, &fp, sizeof(fp), pc + (__u64)(__s64)r->fp_off) < 0)
		return STOP_BAD_READ;
	if (r->ra_op == UNWIND_RA_CFA && walk_read(env, &pc, sizeof(pc), pc + 8) < 0)
		return STOP_BAD_READ;
	stop = walk_return(env, w, pc, w->regs.sp, fp);
	w->regs.exact = 1; /* pc may be a goroutine's first instruction */
	return stop;
}

/*
 * Moves to the caller of a frame for which walk_step() returned WALK_SWITCH. A function of its own,
 * because Go changes stacks seldom and the verifier would check this code for each frame.
 */
walk_inline int walk_switch(struct walk_env *env, struct walk *w)
{
	const struct unwind_rule *r = &w->switched;

	w->regs.bx = 0;
	switch (r->cfa_reg) {
	case UNWIND_GO_CURG:
	case UNWIND_GO_CURG_AT_SP:
		return walk_go_sched(env, w, r);
	case UNWIND_GO_DEPTH:
		return walk_go_depth(env, w, r);
	case UNWIND_GO_GOBUF:
		return walk_go_gobuf(env, w, r);
	default:
		return STOP_UNSUPPORTED;
	}
}

#else

walk_inline int walk_go_frame(struct walk_env *env, struct walk *w, const struct unwind_rule *r)
{
	__u64 saved[2];

	if (walk_read(env, saved, sizeof(saved), w->regs.fp) < 0)
		return STOP_BAD_READ;
	return walk_return(env, w, saved[1], w->regs.fp + (__u64)(__s64)r->cfa_off, saved[0]);
}

walk_inline int walk_switch(struct walk_env *env, struct walk *w)
{
	const struct unwind_rule *r = &w->switched;

	switch (r->cfa_reg) {
	case UNWIND_GO_DEPTH:
		return walk_go_depth(env, w, r);
	case UNWIND_GO_FRAME:
		return walk_go_frame(env, w, r);
	default:
		return STOP_UNSUPPORTED;
	}
}

#endif

walk_inline int walk_apply(struct walk_env *env, struct walk *w, const struct unwind_rule *r)
{
	__u64 cfa, pc, saved[2], fp = w->regs.fp;
	int stop;

	switch (r->cfa_op) {
	case UNWIND_CFA_NONE:
		return STOP_NO_TABLE;
	case UNWIND_CFA_STOP:
		return STOP_COMPLETE;
	case UNWIND_CFA_SIGNAL:
		return walk_signal(env, w, w->regs.sp + (__u64)(__s64)r->cfa_off);
	case UNWIND_CFA_FP:
		return walk_by_fp(env, w, false);
	case UNWIND_CFA_REG:
	case UNWIND_CFA_DEREF:
	case UNWIND_CFA_PLT:
		break;
	case UNWIND_CFA_GO:
		w->switched = *r;
		return WALK_SWITCH;
	default:
		return STOP_UNSUPPORTED;
	}
	stop = walk_cfa(env, w, r, &cfa);
	if (stop != WALK_GO)
		return stop;
	if (cfa <= w->regs.sp && !(cfa == w->regs.sp && w->regs.full))
		return STOP_NO_PROGRESS;
	stop = walk_bx(env, w, r, cfa);
	if (stop != WALK_GO)
		return stop;
	if (r->ra_op == UNWIND_RA_CFA && r->fp_op == UNWIND_FP_CFA && r->fp_off == r->ra_off - 8) {
		/*
		 * Both in one read: `push %rbp` and `stp x29, x30` leave the two words next to each
		 * other.
		 */
		if (walk_read(env, saved, sizeof(saved), cfa + (__u64)(__s64)r->fp_off) < 0)
			return STOP_BAD_READ;
		return walk_return(env, w, saved[1], cfa, saved[0]);
	}
	if (r->ra_op == UNWIND_RA_REG) {
		if (!w->regs.full)
			return STOP_NO_PROGRESS;
		pc = w->regs.r[walk_bound((__u32)r->ra_off, UNWIND_N_REGS - 1)];
	} else if (walk_read(env, &pc, sizeof(pc), cfa + (__u64)(__s64)r->ra_off) < 0) {
		return STOP_BAD_READ;
	}
	if (r->fp_op != UNWIND_FP_SAME) {
		__u64 at = r->fp_op == UNWIND_FP_CFA ? cfa : w->regs.fp;

		if (walk_read(env, &fp, sizeof(fp), at + (__u64)(__s64)r->fp_off) < 0)
			return STOP_BAD_READ;
	}
	return walk_return(env, w, pc, cfa, fp);
}

/* Fills the row for a pc: WALK_GO, or why there is no row. Sets *ret_frame if the file is known. */
walk_inline int walk_find_row(struct walk_env *env, struct walk *w, __u64 pc, struct walk_row *row,
			      __u64 *ret_frame)
{
	struct unwind_rule rule;
	__u64 svma;
	int stop;

	if (!walk_find_mapping(env, w, pc))
		return STOP_NO_MAPPING;
	if (w->mapping.file & UNWIND_MAPPING_RUNTIME && !w->native)
		return WALK_RUNTIME;
	svma = pc - w->mapping.bias;
	if ((w->mapping.file >> 8) && svma <= WORD_SVMA_MASK)
		*ret_frame = (__u64)(w->mapping.file >> 8) << WORD_SVMA_BITS | svma;
	if (w->regs.newborn)
		return STOP_COMPLETE;
	if (!w->mapping.binary)
		return w->mapping.file & UNWIND_MAPPING_FP ? WALK_FP : STOP_NO_TABLE;
	stop = walk_find_rule(env, w, svma, &rule);
	if (stop != WALK_GO)
		return stop;
	row->pc = pc;
	/*
	 * No process has mappings_id 0, so 0 means: do not keep the row. A row of a runtime's
	 * mapping is not kept either, because the walker has to run each time.
	 */
	row->mappings_id = walk_in_time(env) && !w->native ? w->mappings_id : 0;
	row->frame = *ret_frame;
	row->rule = rule;
	return WALK_GO;
}

/* The runtime that the current mapping belongs to: enum runtime_id. */
walk_inline __u32 walk_runtime(const struct walk *w)
{
	return (w->mapping.file & UNWIND_MAPPING_RUNTIME) >> UNWIND_MAPPING_RUNTIME_SHIFT;
}

/*
 * Sets *ret_frame to the current frame and moves to its caller. STOP_NOT_LOADED and STOP_NO_MAPPING
 * leave the registers unchanged: user space may know more, and can then repeat the step. Until the
 * caller of walk_step() has decided to stop there, the frame is not part of the stack. WALK_RUNTIME
 * leaves the registers unchanged, too: the caller runs the runtime's walker, and if the frame is
 * not the runtime's, repeats the step with w->native set. With every other result the frame is part
 * of the stack.
 */
walk_inline int walk_step(struct walk_env *env, struct walk *w, __u64 *ret_frame)
{
	__u64 pc = walk_pc(&w->regs);
	struct walk_row *row = walk_row_at(env, w, pc);
	int stop;

	*ret_frame = WORD_RAW | pc;
	if (row->pc != pc || row->mappings_id != w->mappings_id || w->regs.newborn) {
		stop = walk_find_row(env, w, pc, row, ret_frame);
		if (stop == WALK_FP) {
			w->native = 0;
			return walk_by_fp(env, w, true);
		}
		if (stop != WALK_GO)
			return stop;
	}
	w->native = 0;
	*ret_frame = row->frame;
	/*
	 * The kernel made the handler return to the start of the trampoline, and no call is before
	 * it: undo the -1 of walk_pc().
	 */
	if (row->rule.cfa_op == UNWIND_CFA_SIGNAL && !w->regs.exact)
		*ret_frame += 1;
	return walk_apply(env, w, &row->rule);
}

/* Whether user space may continue a walk that ended with `stop`. */
walk_inline bool walk_can_resume(int stop)
{
	return stop == STOP_NOT_LOADED || stop == STOP_NO_MAPPING || stop == STOP_UNKNOWN_PROCESS;
}

/*
 * Whether `stop` suggests that the walk has used a wrong rule before, say of a library that another
 * library has just replaced. User space knows of the new mapping by then and can walk again from
 * the beginning.
 */
walk_inline bool walk_has_strayed(int stop, __u32 n)
{
	return stop == STOP_BAD_PC || stop == STOP_BAD_READ || stop == STOP_NO_PROGRESS ||
	       (stop == STOP_NO_MAPPING && n > 0);
}
