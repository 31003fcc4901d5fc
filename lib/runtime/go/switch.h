/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of Go's runtime that go to another stack, and how the stack that
 * they came from is found again. doc/design/0002-go-rows.md has the table.
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

/* What is not the same in all releases, read from the runtime's code. */
struct go_layout {
	bool known;
	s32 g_tls;  /* of g from the thread pointer */
	s16 m_curg; /* in m */
	s16 g_bp;   /* of sched's frame pointer in g */
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
	s64 delta;    /* pcsp right behind the first write */
	s64 bp_delta; /* pcsp where the frame pointer was made sp; -1: it is at its own slot */
	bool saved;   /* the frame pointer is, at fp_off from the cfa */
	s32 fp_off;
	s16 g_at, depth_at; /* asmcgocall: its words on the other stack */
	u64 marks[3];	    /* svmas behind instructions that matter, ~0: not found */
};

void go_layout_read(const struct pclntab *t, struct go_layout *ret);
/* All but saved and fp_off, which are the caller's to set. */
void go_switch_init(const struct pclntab *t, const struct go_func *f, enum go_kind kind,
		    const struct go_layout *layout, struct go_switch *ret);
/* True and the rule when sp is on another stack at pc, where pcsp is delta. ret_until: up to where
 * the answer holds. */
bool go_switch_rule(const struct go_switch *x, u64 pc, s64 delta, struct unwind_rule *ret_rule,
		    u64 *ret_until);
