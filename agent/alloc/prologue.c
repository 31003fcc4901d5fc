/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a probe near the begin of a function costs least. A probe of an instruction that the kernel
 * emulates takes a tenth of one that it steps (push, nop and conditional jumps:
 * push_setup_xol_ops() and branch_setup_xol_ops() in arch/x86/kernel/uprobes.c of Linux). glibc's
 * free() begins with `test; je`, jemalloc's malloc() with `cmp; ja`, each function of code for CET
 * with `endbr64`. So the probe is inserted some instructions behind the begin, if all of these only
 * compute: then the stack pointer and the arguments are still those of the call, and each call
 * passes the place once.
 *
 * The table has such instructions: none of them jumps or writes to memory. At any other one the
 * search ends, and the probe stays at the begin. Code that jumps back to the place would be counted
 * again; a compiler has no reason for that before the function has a frame.
 */
#include <errno.h>
#include <string.h>

#include "agent/alloc/prologue.h"
#include "base/buf.h"

#define RAX 0
#define RDX 2
#define RSP 4
#define RSI 6
#define RDI 7
/* Instead of a register. */
#define NOTHING (-1)
#define MEMORY (-2)

#define REX_W 8
#define REX_R 4
#define REX_B 1
#define SEGMENT_FS 0x64
#define COMPARES 7 /* of group 1 */

enum form {
	UNKNOWN,
	READS,	     /* operands, which it compares */
	TO_REGISTER, /* the first operand ← … */
	TO_OPERAND,  /* the second ← … */
	GROUP_BYTE,  /* 8 operations with an operand, of which some have a constant of a byte */
	GROUP_WORD,  /* likewise, of four bytes */
	SHIFTS,
	TESTS_BYTE,
	TESTS_WORD,
	RAX_READS, /* with a constant of four bytes */
	TO_RAX,
	CONSTANT,
};

static const u8 forms[256] = {
	[0x38 ... 0x3b] = READS, /* cmp */
	[0x84 ... 0x85] = READS, /* test */
	/* add, or, and, sub, xor, movsxd, mov, lea */
	[0x03] = TO_REGISTER,
	[0x0b] = TO_REGISTER,
	[0x23] = TO_REGISTER,
	[0x2b] = TO_REGISTER,
	[0x33] = TO_REGISTER,
	[0x63] = TO_REGISTER,
	[0x8b] = TO_REGISTER,
	[0x8d] = TO_REGISTER,
	[0x01] = TO_OPERAND,
	[0x09] = TO_OPERAND,
	[0x21] = TO_OPERAND,
	[0x29] = TO_OPERAND,
	[0x31] = TO_OPERAND,
	[0x89] = TO_OPERAND,
	[0x83] = GROUP_BYTE,
	[0x81] = GROUP_WORD,
	[0xc1] = SHIFTS,
	[0xf6] = TESTS_BYTE,
	[0xf7] = TESTS_WORD,
	[0x3d] = RAX_READS,
	[0xa9] = RAX_READS,
	[0x05] = TO_RAX,
	[0x0d] = TO_RAX,
	[0x25] = TO_RAX,
	[0x2d] = TO_RAX,
	[0x35] = TO_RAX,
	[0xb8 ... 0xbf] = CONSTANT,
};

struct operands {
	u8 number;  /* the first, of the instruction; also the operation of a group */
	int first;  /* the register */
	int second; /* the register, or MEMORY */
};

static bool read_operands(struct buf *b, u8 rex, struct operands *ret)
{
	u8 modrm, sib = 0, mod, rm;

	if (!buf_u8(b, &modrm))
		return false;
	mod = modrm >> 6;
	rm = modrm & 7;
	if (mod != 3 && rm == RSP && !buf_u8(b, &sib))
		return false;
	ret->number = modrm >> 3 & 7;
	ret->first = ret->number + (rex & REX_R ? 8 : 0);
	ret->second = mod == 3 ? rm + (rex & REX_B ? 8 : 0) : MEMORY;
	if (mod == 1)
		return buf_skip(b, 1);
	if (mod == 2 || (mod == 0 && (rm == 5 || (rm == RSP && (sib & 7) == 5))))
		return buf_skip(b, 4);
	return true;
}

/* An instruction of two operands. Sets *ret_writes to a register, NOTHING or MEMORY. */
static bool read_operation(struct buf *b, enum form form, u8 rex, int *ret_writes)
{
	struct operands o;

	if (!read_operands(b, rex, &o))
		return false;
	switch (form) {
	case TO_REGISTER:
		*ret_writes = o.first;
		return true;
	case TO_OPERAND:
		*ret_writes = o.second;
		return true;
	case SHIFTS:
	case GROUP_BYTE:
	case GROUP_WORD:
		if (form == SHIFTS || o.number != COMPARES)
			*ret_writes = o.second;
		return buf_skip(b, form == GROUP_WORD ? 4 : 1);
	case TESTS_BYTE:
	case TESTS_WORD:
		return o.number == 0 && buf_skip(b, form == TESTS_WORD ? 4 : 1);
	default:
		return form == READS;
	}
}

static bool read_prefixed(struct buf *b, u8 rex, u8 opcode, int *ret_writes)
{
	enum form form = forms[opcode];

	/* cmpb with a constant; others of its group have a byte as result. */
	if (opcode == 0x80) {
		struct operands o;

		return read_operands(b, rex, &o) && o.number == COMPARES && buf_skip(b, 1);
	}
	if (opcode == 0x0f) {
		/* movzx, movsx */
		if (!buf_u8(b, &opcode) || (opcode & 0xf6) != 0xb6)
			return false;
		form = TO_REGISTER;
	}
	switch (form) {
	case UNKNOWN:
		return false;
	case TO_RAX:
		*ret_writes = RAX;
		return buf_skip(b, 4);
	case RAX_READS:
		return buf_skip(b, 4);
	case CONSTANT:
		*ret_writes = (opcode & 7) + (rex & REX_B ? 8 : 0);
		return buf_skip(b, rex & REX_W ? 8 : 4);
	default:
		return read_operation(b, form, rex, ret_writes);
	}
}

/* Skips an instruction that only computes. */
static bool read_instruction(struct buf *b, int *ret_writes)
{
	static const u8 endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};
	u8 byte, rex = 0;

	*ret_writes = NOTHING;
	if (buf_left(b) >= sizeof(endbr64) && memcmp(b->pos, endbr64, sizeof(endbr64)) == 0)
		return buf_skip(b, sizeof(endbr64));
	if (!buf_u8(b, &byte) || (byte == SEGMENT_FS && !buf_u8(b, &byte)))
		return false;
	if ((byte & 0xf0) == 0x40) {
		rex = byte & 0xf;
		if (!buf_u8(b, &byte))
			return false;
	}
	return read_prefixed(b, rex, byte, ret_writes);
}

static bool is_emulated(const struct buf *b)
{
	const u8 *code = b->pos;
	size_t n = buf_left(b);

	if (n < 2)
		return false;
	return (code[0] & 0xf8) == 0x50 ||			/* push */
	       (code[0] == 0x41 && (code[1] & 0xf8) == 0x50) || /* push r8 to r15 */
	       code[0] == 0x90 || (code[0] & 0xf0) == 0x70 ||	/* nop; jump if … */
	       (code[0] == 0x0f && (code[1] & 0xf0) == 0x80);	/* far */
}

int alloc_emulated_place(const u8 *code, size_t n, bool frees)
{
	u32 kept = 1u << RSP | 1u << RDI | (frees ? 0 : 1u << RSI | 1u << RDX);
	struct buf b = buf_of(code, n);

	while (!is_emulated(&b)) {
		int writes;

		if (!read_instruction(&b, &writes) || writes == MEMORY ||
		    (writes != NOTHING && kept >> writes & 1))
			return -ENOENT;
	}
	return (int)(b.pos - code);
}
