/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of Go's runtime that switch to another stack, and the rules that lead back to the first
 * stack. doc/design/0002-go-rows.md has the table.
 */
#pragma once

#include "abi/unwind.h"
#include "runtime/go/pclntab.h"

#define GO_SP_WRITES_MAX 12

enum go_kind {
	GO_NORMAL,
	GO_TOP,	      /* the outermost function */
	GO_SIGRETURN, /* a signal frame is below it */
	GO_SWITCH,    /* switches to another stack and, at its end, back */
	GO_SYSTEMSTACK,
	GO_MCALL,
	GO_MORESTACK,
	GO_ASMCGOCALL,
	GO_GOGO,
};

/* Offsets that differ between releases; they are read from the runtime's code. */
struct go_layout {
	bool known;
	s32 g_tls;  /* offset of g from the thread pointer */
	s16 m_curg; /* offset of curg in m */
	s16 g_bp;   /* offset of the frame pointer of g.sched in g */
};

struct go_sp_write {
	u64 end;    /* svma of the next instruction */
	bool align; /* and $-16, sp: it never switches back */
};

struct go_switch {
	enum go_kind kind;
	bool x86;
	struct go_layout layout;
	struct go_sp_write writes[GO_SP_WRITES_MAX];
	u32 n_writes;
	s64 delta;    /* pcsp right after the first write to sp */
	s64 bp_delta; /* pcsp where sp is copied to the frame pointer; -1: sp is at its slot */
	bool saved;   /* the frame pointer is saved at fp_off from the CFA */
	s32 fp_off;
	s16 g_at, depth_at; /* offsets of the words that asmcgocall writes to the other stack */
	u64 marks[3];	    /* svmas after the instructions that change the rule; ~0: not found */
	bool fp_lost;	    /* arm64: asmcgocall loads the frame pointer of the other stack */
};

/* Leaves *ret untouched if the code has an unknown form. */
void go_layout_read(const struct pclntab *t, struct go_layout *ret);
/* Analyses a function's code. Sets all of *ret but saved and fp_off, which the caller sets. */
void go_switch_init(const struct pclntab *t, const struct go_func *f, enum go_kind kind,
		    const struct go_layout *layout, struct go_switch *ret);
/*
 * Whether sp is on another stack at pc (svma), where pcsp is delta. If so, *ret_rule leads back to
 * the first stack. The answer holds up to *ret_until, which stays untouched if the function never
 * writes sp.
 */
bool go_switch_rule(const struct go_switch *x, u64 pc, s64 delta, struct unwind_rule *ret_rule,
		    u64 *ret_until);
