/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The data of Perl's walker (bpf/unwind/perl.h), laid over `room` in the structs of abi/runtime.h.
 *
 * Perl runs ops in a loop, and notes the subs, evals, blocks and loops that they are in on a stack
 * of contexts (cop.h of Perl's sources). There is one such stack for each stackinfo; code that Perl
 * itself calls, such as a sort block or a tie method, has a stackinfo of its own:
 *
 *	interpreter → stackinfo (MAIN) ⇄ stackinfo (SORT) ⇄ …
 *	                 ↓ contexts         ↓ contexts
 *	                 SUB, EVAL, …       NULL: a sort block
 *
 * The offsets below are the same in Perl 5.32 to 5.44 on 64-bit machines.
 */
#pragma once

#include "abi/runtime.h"
#include "abi/runtime_common.h"

/* struct stackinfo */
#define PERL_SI_CONTEXTS 0x08
#define PERL_SI_PREVIOUS 0x10
#define PERL_SI_INDEX 0x20 /* of the top context; -1: none */
#define PERL_SI_TYPE 0x2c
#define PERL_SI_BYTES 0x30
/* si_type */
#define PERL_SI_MAIN 1
#define PERL_SI_SORT 3
#define PERL_SI_MULTICALL 10

/* PERL_CONTEXT. The type is the first byte: kind and flags; bytes 4 to 7 are blk_oldsaveix. */
#define PERL_CX_BYTES 0x68
#define PERL_CX_SAVE_INDEX 0x04
#define PERL_CX_COP 0x10	/* blk_oldcop: where the code before this context was */
#define PERL_CX_RETURN 0x30	/* retop of SUB, FORMAT and EVAL; 0: the loop ends there */
#define PERL_CX_NAME 0x40	/* EVAL: old_namesv, the file of `require`, or 0 */
#define PERL_CX_CV 0x48		/* SUB, FORMAT */
#define PERL_CX_DEPTH 0x50	/* SUB: calls of the sub that were under way before */
#define PERL_CX_TOP_ENV 0x60	/* EVAL: a JMPENV, which is on the C stack */
#define PERL_CX_KIND 0x0f	/* of the type: index in PL_block_type */
#define PERL_CX_MULTICALL 0x10	/* SUB: stays while the loop runs it several times */
#define PERL_CX_RE 0x40		/* SUB: code in a regular expression */
#define PERL_CX_RE_FAKE 0x80	/* … of the sub that is already on the stack */
#define PERL_CX_EVAL_TEXT 0x20	/* EVAL: of text, not of a file or a block */
#define PERL_CX_EVAL_BLOCK 0x40 /* EVAL: of a block */
#define PERL_CX_TRY 0x80	/* EVAL: of try, which is not a frame for caller() */

/* COP */
#define PERL_COP_LINE 0x24
#define PERL_COP_FILE 0x30 /* char * with threads, else GV */

/* Heads of values, and bodies of CV and GV */
#define PERL_SV_BODY 0x00
#define PERL_SV_FLAGS 0x0c
#define PERL_SV_TYPE 0xff /* of the flags */
#define PERL_SV_CV 13
#define PERL_SV_FORMAT 14
#define PERL_SV_VALUE 0x10
#define PERL_CV_STASH 0x20
#define PERL_CV_GV 0x38 /* GV, or with CVf_NAMED a HEK */
#define PERL_CV_FLAGS 0x5c
#define PERL_CV_BYTES 0x60
#define PERL_CV_IS_XSUB 0x0008
#define PERL_CV_NAMED 0x8000
#define PERL_GV_NAME 0x20 /* HEK */
#define PERL_GV_STASH 0x28

/* The types of entries of the savestack (scope.h) */
#define PERL_SAVE_MASK 0x3f

#define PERL_MAX_LOOPS 2
#define PERL_MAX_LEAVES 2
#define PERL_MAX_POPPED 4

/* Kinds of contexts: indices in PL_block_type; 0xff: this version has none. */
struct perl_kinds {
	__u8 null; /* a sort block */
	__u8 sub;
	__u8 format;
	__u8 eval;
	__u8 defer;
	__u8 pad[3];
};

struct perl_binary {
	__u32 threaded; /* variables are in an interpreter of each thread, else they are global */
	__u32 n_loops;
	struct runtime_range loops[PERL_MAX_LOOPS];
	/*
	 * S_docatch(): starts another loop in a loop, in which the rest of the outer loop's ops
	 * run, so that the two have their contexts in common.
	 */
	struct runtime_range docatch;
	struct runtime_range leaves[PERL_MAX_LEAVES]; /* pp_leavesub() and the like; or empty */
	struct runtime_range popped[PERL_MAX_POPPED]; /* of these: the context is gone */
	__u32 n_popped;
	__u32 save_op; /* SAVEt_OP: the type of the entry that saves PL_op */
	struct perl_kinds kinds;
	/* Variables: offsets in an interpreter, or svmas. */
	__u64 op, cop, stackinfo, savestack;
	/* PL_compiling is a COP that the compiler changes in place. */
	__u64 compiling, compiling_end;
};
_Static_assert(sizeof(struct perl_binary) <= sizeof(((struct runtime_binary *)0)->room),
	       "perl_binary");

struct perl_process {
	struct runtime_chain interpreter; /* unless there are no threads */
	__u64 pad[9];
};
_Static_assert(sizeof(struct perl_process) == sizeof(((struct runtime_process *)0)->room),
	       "perl_process");

/*
 * A frame's two words, with c a cookie of 25 bits:
 *
 *	the address	c, upper 6 bits | compiling | kind | what / 8	(6 + 1 + 4 + 45 bits)
 *	where		c, lower 19 bits | COP / 8, or if compiling the line	(19 + 45 bits)
 */
enum perl_kind {
	PERL_MAIN = 1, /* the program, outside of all subs */
	PERL_SUB,      /* what: GV */
	PERL_NAMED,    /* what: CV that contains its name */
	PERL_UNNAMED,
	PERL_EVAL,
	PERL_TEXT,
	PERL_REQUIRE, /* what: SV with the file's name */
	PERL_SORT,
	PERL_DEFER,
	PERL_RE,
};
#define PERL_POINTER_BITS 45
#define PERL_POINTER_MASK ((1ULL << PERL_POINTER_BITS) - 1)
#define PERL_COMPILING (1ULL << 49)
#define PERL_COOKIE_LOW_BITS 19

/* Of the cookie, 13 bits belong to the object and 12 to the position: either may change alone. */
#define PERL_POSITION_BITS 12
#define PERL_POSITION_MASK ((1U << PERL_POSITION_BITS) - 1)

static inline __attribute__((always_inline)) __u64 perl_mix(__u64 a, __u64 b)
{
	__u64 h = a * 0x9fb21c651e98df25ULL;

	return ((h ^ (h >> 29)) + b) * 0x9fb21c651e98df25ULL;
}

/* Of two words that identify `what`, and of the line and the file of the COP. */
static inline __attribute__((always_inline)) __u32 perl_cookie(__u64 a, __u64 b, __u64 line,
							       __u64 file)
{
	return (__u32)(perl_mix(a, b) >> 51) << PERL_POSITION_BITS |
	       (__u32)(perl_mix(line, file) >> (64 - PERL_POSITION_BITS));
}
