/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions, reduced to what they do to a stack frame: how they move sp and the frame pointer,
 * where they save and restore the frame pointer and the link register, and where control goes.
 *
 * x86-64 goes through Capstone. arm64 is decoded here: its instructions have one width and the few
 * forms that matter are one mask and one value each, which is exact and 50 times as fast.
 *
 * An effect on sp, fp or lr that cannot be expressed is UNKNOWN; none is left out.
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
	DISASM_JUMP,   /* target */
	DISASM_BRANCH, /* target, or the next */
	DISASM_INDIRECT,
	DISASM_RETURN,
	DISASM_TRAP, /* and anything else behind which nothing runs */
};

struct disasm_insn {
	u8 length;
	u8 flow; /* enum disasm_flow */
	u8 n;
	bool padding; /* a nop, or what fills the space between functions */
	bool table;   /* an INDIRECT that scales an index */
	u8 jump_reg;  /* the register of an INDIRECT, or NO_REG */
	u8 add_reg;   /* the register that gets a sum, or NO_REG */
	bool endbr;   /* where indirect jumps and calls may land */
	struct disasm_effect effects[DISASM_MAX_EFFECTS]; /* in order */
	u64 target;
};

struct disasm;

/* -ENOTSUP for a machine that is neither EM_X86_64 nor EM_AARCH64; -ENOMEM. */
int disasm_create(u16 e_machine, struct disasm **ret);
void disasm_destroy(struct disasm *d);
DEFINE_CLEANUP(disasm, struct disasm *, disasm_destroy)
#define _cleanup_disasm_ _cleanup_(disasm)

/* Decodes the instruction at the start of `code`, which is at svma. False: it is none. */
bool disasm_one(struct disasm *d, struct buf code, u64 svma, struct disasm_insn *ret);
/*
 * The length in bytes of the padding instruction at the start of `code`, if it is one that
 * compilers and linkers use. 0: ask disasm_one(), which takes a hundred times as long.
 */
u32 disasm_padding(const struct disasm *d, struct buf code);

/*
 * Instructions as text, for people only. Bytes that are no instruction are printed as data, so that
 * every stretch of code has an end.
 */
struct disasm_text;

/* Fails as disasm_create() does. */
int disasm_text_create(u16 e_machine, struct disasm_text **ret);
void disasm_text_destroy(struct disasm_text *t);
DEFINE_CLEANUP(disasm_text, struct disasm_text *, disasm_text_destroy)
#define _cleanup_disasm_text_ _cleanup_(disasm_text)
/* Writes "mov rax, rbx" into `text`, cut to n bytes. Returns the bytes of code; 0: `code` is empty. */
u32 disasm_text_one(struct disasm_text *t, struct buf code, u64 svma, char *text, size_t n);
