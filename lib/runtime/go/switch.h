/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of Go's runtime that switch to another stack, and how to find the stack that they came
 * from. doc/design/0002-go-rows.md has the table.
 */
#pragma once

#include "abi/unwind.h"
#include "runtime/go/pclntab.h"

#define GO_SP_WRITES_MAX 12

enum go_kind {
	GO_NORMAL,
	GO_TOP,	      /* nothing is below it */
	GO_SIGRETURN, /* below it is a signal frame */
	GO_SWITCH,    /* goes to another stack and, at its end, back */
	GO_SYSTEMSTACK,
	GO_MCALL,
	GO_MORESTACK,
	GO_ASMCGOCALL,
	GO_GOGO,
};

/* Offsets that differ between releases, read from the runtime's code. */
struct go_layout {
	bool known;
	s32 g_tls;  /* g, from the thread pointer */
	s16 m_curg; /* curg, in m */
	s16 g_bp;   /* the frame pointer in g.sched, in g */
};

struct go_sp_write {
	u64 end;    /* svma behind the instruction */
	bool align; /* and $-16, sp: never a switch back */
};

struct go_switch {
	enum go_kind kind;
	bool x86;
	struct go_layout layout;
	struct go_sp_write writes[GO_SP_WRITES_MAX];
	u32 n_writes;
	s64 delta;    /* pcsp right behind the first write to sp */
	s64 bp_delta; /* pcsp where sp is copied to the frame pointer; -1: sp is at its slot */
	bool saved;   /* the frame pointer is saved at fp_off from the CFA */
	s32 fp_off;
	s16 g_at, depth_at; /* offsets of asmcgocall's words on the other stack */
	u64 marks[3];	    /* svmas behind the instructions that matter; ~0: not found */
};

/* Leaves *ret untouched if the code is not understood. */
void go_layout_read(const struct pclntab *t, struct go_layout *ret);
/* Reads a function's code. Sets all of *ret but saved and fp_off, which the caller sets. */
void go_switch_init(const struct pclntab *t, const struct go_func *f, enum go_kind kind,
		    const struct go_layout *layout, struct go_switch *ret);
/*
 * Is sp on another stack at pc (svma), where pcsp is delta? If so, *ret_rule leads back to the
 * first one. The answer holds up to *ret_until, which is left alone when the function never writes
 * sp.
 */
bool go_switch_rule(const struct go_switch *x, u64 pc, s64 delta, struct unwind_rule *ret_rule,
		    u64 *ret_until);
