/* SPDX-License-Identifier: Apache-2.0 */
#include <capstone/capstone.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "disasm/arch.h"

struct disasm_x86 {
	csh handle;
	cs_insn *insn; /* owned */
};

int disasm_x86_create(struct disasm_x86 **ret)
{
	struct disasm_x86 *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	if (cs_open(CS_ARCH_X86, CS_MODE_64, &x->handle) != CS_ERR_OK) {
		free(x);
		return -ENOMEM;
	}
	if (cs_option(x->handle, CS_OPT_DETAIL, CS_OPT_ON) == CS_ERR_OK)
		x->insn = cs_malloc(x->handle);
	if (!x->insn) {
		disasm_x86_destroy(x);
		return -ENOMEM;
	}
	*ret = x;
	return 0;
}

void disasm_x86_destroy(struct disasm_x86 *x)
{
	if (!x)
		return;
	if (x->insn)
		cs_free(x->insn, 1);
	cs_close(&x->handle);
	free(x);
}

static bool is_sp(x86_reg r)
{
	return r == X86_REG_RSP || r == X86_REG_ESP || r == X86_REG_SP || r == X86_REG_SPL;
}

static bool is_fp(x86_reg r)
{
	return r == X86_REG_RBP || r == X86_REG_EBP || r == X86_REG_BP || r == X86_REG_BPL;
}

/* Whether the operand is [rsp + off] or [rbp + off], without an index. */
static bool frame_slot(const cs_x86_op *op, enum disasm_reg *ret_base, s64 *ret_off)
{
	if (op->type != X86_OP_MEM || op->mem.index != X86_REG_INVALID ||
	    op->mem.segment != X86_REG_INVALID ||
	    (op->mem.base != X86_REG_RSP && op->mem.base != X86_REG_RBP))
		return false;
	*ret_base = op->mem.base == X86_REG_RSP ? DISASM_SP : DISASM_FP;
	*ret_off = op->mem.disp;
	return true;
}

static void set_unknown(struct disasm_insn *i, enum disasm_reg reg)
{
	disasm_add(i, DISASM_UNKNOWN, reg, DISASM_SP, 0);
}

static void move_sp(struct disasm_insn *i, s64 by)
{
	disasm_add(i, DISASM_SET, DISASM_SP, DISASM_SP, by);
}

static bool is_reg(const cs_x86_op *op, bool (*which)(x86_reg))
{
	return op->type == X86_OP_REG && which(op->reg);
}

/* Handles register writes that no case of effects() handles. */
static void other_writes(const cs_insn *c, struct disasm_insn *i)
{
	const cs_x86 *x = &c->detail->x86;
	u8 n = 1;

	switch (c->id) {
	case X86_INS_CMP:
	case X86_INS_TEST:
	case X86_INS_BT:
	case X86_INS_MUL:
	case X86_INS_DIV:
	case X86_INS_IDIV:
	case X86_INS_NOP:
		return;
	case X86_INS_XCHG:
	case X86_INS_XADD:
	case X86_INS_MULX:
		n = 2;
		break;
	default:
		break;
	}
	for (u8 k = 0; k < n && k < x->op_count; k++) {
		if (is_reg(&x->operands[k], is_sp))
			set_unknown(i, DISASM_SP);
		if (is_reg(&x->operands[k], is_fp))
			set_unknown(i, DISASM_FP);
	}
}

static void effects_of_mov(const cs_x86 *x, const cs_insn *c, struct disasm_insn *i)
{
	const cs_x86_op *to = &x->operands[0], *from = &x->operands[1];
	enum disasm_reg base;
	s64 off;

	if (to->size == 8 && to->type == X86_OP_REG && from->type == X86_OP_REG) {
		if (to->reg == X86_REG_RBP && from->reg == X86_REG_RSP) {
			disasm_add(i, DISASM_SET, DISASM_FP, DISASM_SP, 0);
			return;
		}
		if (to->reg == X86_REG_RSP && from->reg == X86_REG_RBP) {
			disasm_add(i, DISASM_SET, DISASM_SP, DISASM_FP, 0);
			return;
		}
	}
	if (to->size == 8 && is_reg(from, is_fp) && frame_slot(to, &base, &off)) {
		disasm_add(i, DISASM_STORE, DISASM_FP, base, off);
		return;
	}
	if (to->size == 8 && is_reg(to, is_fp) && frame_slot(from, &base, &off)) {
		disasm_add(i, DISASM_LOAD, DISASM_FP, base, off);
		return;
	}
	other_writes(c, i);
}

static void effects_of_push_pop(const cs_x86 *x, const cs_insn *c, struct disasm_insn *i)
{
	const cs_x86_op *op = &x->operands[0];
	/* Immediates have the size of their encoding. */
	s64 size = x->prefix[2] == X86_PREFIX_OPSIZE ? 2 : 8;

	if (c->id == X86_INS_PUSH) {
		move_sp(i, -size);
		if (op->type == X86_OP_REG && op->reg == X86_REG_RBP)
			disasm_add(i, DISASM_STORE, DISASM_FP, DISASM_SP, 0);
		return;
	}
	if (op->type == X86_OP_REG && op->reg == X86_REG_RBP)
		disasm_add(i, DISASM_LOAD, DISASM_FP, DISASM_SP, 0);
	else if (is_reg(op, is_fp))
		set_unknown(i, DISASM_FP);
	if (is_reg(op, is_sp))
		set_unknown(i, DISASM_SP);
	else
		move_sp(i, size);
}

/* lea, add, sub: sp or fp gets a known new value. */
static bool effects_of_sum(const cs_x86 *x, const cs_insn *c, struct disasm_insn *i)
{
	const cs_x86_op *to = &x->operands[0], *by = &x->operands[1];
	enum disasm_reg reg, base;
	s64 off;

	if (to->type != X86_OP_REG || (to->reg != X86_REG_RSP && to->reg != X86_REG_RBP))
		return false;
	reg = to->reg == X86_REG_RSP ? DISASM_SP : DISASM_FP;
	if (c->id == X86_INS_LEA) {
		if (!frame_slot(by, &base, &off))
			return false;
		disasm_add(i, DISASM_SET, reg, base, off);
		return true;
	}
	if (by->type != X86_OP_IMM || by->imm < INT32_MIN || by->imm > INT32_MAX)
		return false;
	disasm_add(i, DISASM_SET, reg, reg, c->id == X86_INS_SUB ? -by->imm : by->imm);
	return true;
}

static void add_effects(const cs_insn *c, struct disasm_insn *i)
{
	const cs_x86 *x = &c->detail->x86;

	switch (c->id) {
	case X86_INS_PUSH:
	case X86_INS_POP:
		effects_of_push_pop(x, c, i);
		return;
	case X86_INS_PUSHFQ:
		move_sp(i, -8);
		return;
	case X86_INS_POPFQ:
		move_sp(i, 8);
		return;
	case X86_INS_LEAVE:
		disasm_add(i, DISASM_SET, DISASM_SP, DISASM_FP, 0);
		disasm_add(i, DISASM_LOAD, DISASM_FP, DISASM_SP, 0);
		move_sp(i, 8);
		return;
	case X86_INS_ENTER:
	case X86_INS_PUSHF:
	case X86_INS_POPF:
		set_unknown(i, DISASM_SP);
		set_unknown(i, DISASM_FP);
		return;
	case X86_INS_MOV:
		effects_of_mov(x, c, i);
		return;
	case X86_INS_ADD:
	case X86_INS_LEA:
		if (x->operands[0].type == X86_OP_REG && x->operands[1].type != X86_OP_IMM)
			i->add_reg = (u8)x->operands[0].reg;
		if (!effects_of_sum(x, c, i))
			other_writes(c, i);
		return;
	case X86_INS_SUB:
		if (!effects_of_sum(x, c, i))
			other_writes(c, i);
		return;
	default:
		other_writes(c, i);
	}
}

static void flow_of_jump(const cs_x86_op *op, struct disasm_insn *i)
{
	if (op->type == X86_OP_IMM) {
		i->flow = DISASM_JUMP;
		i->target = (u64)op->imm;
		return;
	}
	i->flow = DISASM_INDIRECT;
	if (op->type == X86_OP_REG)
		i->jump_reg = (u8)op->reg;
	else
		i->table = op->mem.index != X86_REG_INVALID && op->mem.scale == 8;
}

static bool is_branch(const cs_insn *c)
{
	for (u8 k = 0; k < c->detail->groups_count; k++)
		if (c->detail->groups[k] == CS_GRP_JUMP)
			return true;
	return c->id == X86_INS_LOOP || c->id == X86_INS_LOOPE || c->id == X86_INS_LOOPNE;
}

static void set_flow(const cs_insn *c, struct disasm_insn *i)
{
	const cs_x86_op *op = &c->detail->x86.operands[0];

	switch (c->id) {
	case X86_INS_CALL:
		i->flow = DISASM_CALL;
		if (op->type == X86_OP_IMM)
			i->target = (u64)op->imm;
		if (i->target == c->address + c->size) {
			/* A call to the next instruction obtains the address of the code; the
			 * pushed address will be popped. */
			i->flow = DISASM_NEXT;
			move_sp(i, -8);
		}
		return;
	case X86_INS_JMP:
		flow_of_jump(op, i);
		return;
	case X86_INS_RET:
	case X86_INS_RETF:
	case X86_INS_RETFQ:
	case X86_INS_IRET:
	case X86_INS_IRETD:
	case X86_INS_IRETQ:
	case X86_INS_SYSRET:
		i->flow = DISASM_RETURN;
		return;
	case X86_INS_INT3:
		i->padding = true;
		i->flow = DISASM_TRAP;
		return;
	case X86_INS_UD0:
	case X86_INS_UD2B: /* ud1: clang encodes the reason of a trap in its operands */
	case X86_INS_UD2:
	case X86_INS_HLT:
	case X86_INS_LJMP:
		i->flow = DISASM_TRAP;
		return;
	case X86_INS_NOP:
		i->padding = true;
		return;
	case X86_INS_ENDBR64:
		i->endbr = true;
		return;
	default:
		break;
	}
	if (!is_branch(c))
		return;
	i->flow = DISASM_BRANCH;
	if (op->type == X86_OP_IMM)
		i->target = (u64)op->imm;
}

/*
 * Returns the length of an AVX-512 instruction that Capstone 4 does not know, which depends on its
 * encoding only. Capstone knows those that write general registers (from a mask or an element of a
 * vector).
 */
static bool evex_length(struct buf code, u8 *ret)
{
	const u8 *p = code.pos;
	u32 n = 6, modrm, map;

	if (buf_left(&code) < 8 || p[0] != 0x62)
		return false;
	map = p[1] & 7;
	modrm = p[5];
	if (!map || map > 6 || map == 4)
		return false;
	if (modrm >> 6 != 3 && (modrm & 7) == 4) {
		if (modrm >> 6 == 0 && (p[6] & 7) == 5)
			n += 4;
		n++;
	}
	if (modrm >> 6 == 1)
		n++;
	else if (modrm >> 6 == 2 || (modrm >> 6 == 0 && (modrm & 7) == 5))
		n += 4;
	if (map == 3 ||
	    (map == 1 && ((p[4] >= 0x70 && p[4] <= 0x73) || p[4] == 0xc2 || p[4] == 0xc6)))
		n++;
	if (n > buf_left(&code))
		return false;
	*ret = (u8)n;
	return true;
}

/* The length of ud0 and ud1: Capstone omits their operands. */
static u8 ud_length(struct buf code, u8 length)
{
	u8 modrm, mod;

	if (buf_left(&code) <= length)
		return length;
	modrm = code.pos[length];
	mod = modrm >> 6;
	length++;
	if (mod != 3 && (modrm & 7) == 4)
		length++;
	length = (u8)(length + (mod == 1 ? 1 : mod == 2 ? 4 : 0));
	return (u8)MIN((size_t)length, buf_left(&code));
}

bool disasm_x86_one(struct disasm_x86 *x, struct buf code, u64 svma, struct disasm_insn *ret)
{
	const u8 *pos = code.pos;
	size_t left = MIN(buf_left(&code), (size_t)DISASM_MAX_INSN);
	uint64_t address = svma;

	if (!cs_disasm_iter(x->handle, &pos, &left, &address, x->insn))
		return evex_length(code, &ret->length);
	ret->length = (u8)x->insn->size;
	if (x->insn->id == X86_INS_UD2B || x->insn->id == X86_INS_UD0)
		ret->length = ud_length(code, ret->length);
	set_flow(x->insn, ret);
	if (ret->flow == DISASM_NEXT && !ret->n)
		add_effects(x->insn, ret);
	return true;
}

/* The length of a nop's operand from its ModRM on; 0: compilers do not pad with this form. */
static u32 nop_operand(const u8 *p, size_t n)
{
	u32 mode = n ? p[0] >> 6 : 3, sib = n && (p[0] & 7) == 4;

	/* The opcode bits of ModRM (0x38) are 0 in a nop. Mode 3 is a register. */
	if (mode == 3 || p[0] & 0x38 || n < 1 + sib)
		return 0;
	if (mode == 0)
		return (p[0] & 7) == 5 || (sib && (p[1] & 7) == 5) ? 0 : 1 + sib;
	return 1 + sib + (mode == 1 ? 1 : 4);
}

/* int3; nop after any 0x66 and cs prefixes; nop with an operand. */
u32 disasm_x86_padding(struct buf code)
{
	const u8 *p = code.pos;
	size_t left = MIN(buf_left(&code), (size_t)15);
	u32 n = 0, operand;

	if (left && p[0] == 0xcc)
		return 1;
	while (n < left && (p[n] == 0x66 || (n && p[n] == 0x2e)))
		n++;
	if (n < left && p[n] == 0x90)
		return n + 1;
	if (n + 2 >= left || p[n] != 0x0f || p[n + 1] != 0x1f)
		return 0;
	operand = nop_operand(p + n + 2, left - n - 2);
	return operand && n + 2 + operand <= left ? n + 2 + operand : 0;
}
