/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduces instructions to their effects on the stack frame: how they move sp and the frame pointer,
 * where they save and restore the frame pointer and the link register, and where control flow
 * continues.
 *
 * x86-64 is decoded by Capstone, arm64 by arm64.c: its instructions have one width, and the few
 * forms that matter are one mask and one value each, which is exact and 50 times as fast.
 *
 * An effect on sp, fp or lr that the types below cannot express is DISASM_UNKNOWN; none is omitted.
 */
#pragma once

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/types.h"

#define DISASM_MAX_EFFECTS 4
#define DISASM_MAX_INSN 16
#define DISASM_NO_REG 0xff

enum disasm_reg { DISASM_SP, DISASM_FP, DISASM_LR };

enum disasm_op {
	DISASM_SET,	/* reg = base + off */
	DISASM_UNKNOWN, /* reg = something else */
	DISASM_STORE,	/* *(base + off) = reg */
	DISASM_LOAD,	/* reg = *(base + off) */
};

struct disasm_effect {
	u8 op;	 /* enum disasm_op */
	u8 reg;	 /* enum disasm_reg */
	u8 base; /* DISASM_SP or DISASM_FP */
	s32 off;
};

enum disasm_flow {
	DISASM_NEXT,
	DISASM_CALL,   /* target, or ~0 */
	DISASM_JUMP,   /* to `target` */
	DISASM_BRANCH, /* to `target`, or to the next instruction */
	DISASM_INDIRECT,
	DISASM_RETURN,
	DISASM_TRAP, /* or any other instruction after which nothing runs */
};

struct disasm_insn {
	u8 length;
	u8 flow; /* enum disasm_flow */
	u8 n;
	bool padding; /* a nop, or a filler between functions */
	bool table;   /* DISASM_INDIRECT through a scaled index */
	u8 jump_reg;  /* the register that DISASM_INDIRECT jumps to, or NO_REG */
	u8 add_reg;   /* the register that receives a sum, or NO_REG */
	bool endbr;   /* indirect jumps and calls may land here */
	struct disasm_effect effects[DISASM_MAX_EFFECTS]; /* in the order of execution */
	u64 target;
};

struct disasm;

/* -ENOTSUP for a machine that is neither EM_X86_64 nor EM_AARCH64; -ENOMEM. */
int disasm_create(u16 e_machine, struct disasm **ret);
void disasm_destroy(struct disasm *d);
DEFINE_CLEANUP(disasm, struct disasm *, disasm_destroy)
#define _cleanup_disasm_ _cleanup_(disasm)

/* Decodes the instruction at the start of `code`, whose address is svma. False: there is none. */
bool disasm_one(struct disasm *d, struct buf code, u64 svma, struct disasm_insn *ret);
/*
 * Returns the length in bytes of the padding instruction at the start of `code`, if compilers or
 * linkers use it as padding, else 0. disasm_one() recognises all padding, but takes a hundred times
 * as long.
 */
u32 disasm_padding(const struct disasm *d, struct buf code);

/*
 * Prints instructions as text, for people only. Bytes that are no instruction are printed as data,
 * so that every range of code can be printed to its end.
 */
struct disasm_text;

/* Fails as disasm_create() does. */
int disasm_text_create(u16 e_machine, struct disasm_text **ret);
void disasm_text_destroy(struct disasm_text *t);
DEFINE_CLEANUP(disasm_text, struct disasm_text *, disasm_text_destroy)
#define _cleanup_disasm_text_ _cleanup_(disasm_text)
/*
 * Writes "mov rax, rbx" into `text`, cut to n bytes. Returns the length of the instruction in
 * bytes; 0: `code` is empty.
 */
u32 disasm_text_one(struct disasm_text *t, struct buf code, u64 svma, char *text, size_t n);
