/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes x86-64 for exec.c. Registers have the machine's numbers (rax 0, rcx 1, rdx 2, rbx 3, rsp
 * 4, rbp 5, rsi 6, rdi 7, r8 …). A 32-bit write is treated as a 64-bit one: the code that is
 * analysed computes only small non-negative numbers, such as keys, in 32 bits.
 */
#include <capstone/capstone.h>
#include <errno.h>
#include <stdlib.h>

#include "disasm/exec_arch.h"

#define RAX 0
#define RDI 7
#define NO_REG 0xff

struct decoder {
	csh handle;
	cs_insn *insn; /* owned */
};

int exec_x86_create(struct exec_machine **ret)
{
	struct exec_machine *m = calloc(1, sizeof(*m));
	struct decoder *d = calloc(1, sizeof(*d));

	if (!m || !d || cs_open(CS_ARCH_X86, CS_MODE_64, &d->handle) != CS_ERR_OK) {
		free(m);
		free(d);
		return -ENOMEM;
	}
	m->decoder = d;
	m->first_arg = RDI;
	m->result = RAX;
	m->clobbered = 0x0fc7; /* rax rcx rdx rsi rdi r8…r11 */
	if (cs_option(d->handle, CS_OPT_DETAIL, CS_OPT_ON) == CS_ERR_OK)
		d->insn = cs_malloc(d->handle);
	if (!d->insn) {
		exec_x86_destroy(m);
		return -ENOMEM;
	}
	*ret = m;
	return 0;
}

void exec_x86_destroy(struct exec_machine *m)
{
	struct decoder *d = m->decoder;

	if (d->insn)
		cs_free(d->insn, 1);
	cs_close(&d->handle);
	free(d);
	free(m);
}

static u8 number_of(unsigned reg)
{
	static const u16 regs[16][2] = {
		{X86_REG_RAX, X86_REG_EAX},  {X86_REG_RCX, X86_REG_ECX},
		{X86_REG_RDX, X86_REG_EDX},  {X86_REG_RBX, X86_REG_EBX},
		{X86_REG_RSP, X86_REG_ESP},  {X86_REG_RBP, X86_REG_EBP},
		{X86_REG_RSI, X86_REG_ESI},  {X86_REG_RDI, X86_REG_EDI},
		{X86_REG_R8, X86_REG_R8D},   {X86_REG_R9, X86_REG_R9D},
		{X86_REG_R10, X86_REG_R10D}, {X86_REG_R11, X86_REG_R11D},
		{X86_REG_R12, X86_REG_R12D}, {X86_REG_R13, X86_REG_R13D},
		{X86_REG_R14, X86_REG_R14D}, {X86_REG_R15, X86_REG_R15D},
	};

	for (u8 i = 0; i < 16; i++)
		if (reg == regs[i][0] || reg == regs[i][1])
			return i;
	return NO_REG;
}

static struct exec_value reg_value(const struct exec *x, unsigned reg)
{
	u8 n = number_of(reg);

	return n == NO_REG ? (struct exec_value){} : x->regs[n];
}

static struct exec_value address_of(struct exec *x, const cs_insn *c, const x86_op_mem *m)
{
	struct exec_value v = exec_constant((u64)m->disp), part;

	if (m->base == X86_REG_RIP) {
		v.constant += c->address + c->size;
	} else if (m->base != X86_REG_INVALID) {
		part = reg_value(x, m->base);
		v = exec_add(&v, &part);
	}
	if (m->index != X86_REG_INVALID) {
		part = reg_value(x, m->index);
		part = exec_scale(&part, m->scale);
		v = exec_add(&v, &part);
	}
	if (m->segment == X86_REG_FS) {
		part = exec_symbol(x, EXEC_THREAD, 0, NULL);
		v = exec_add(&v, &part);
	} else if (m->segment == X86_REG_GS) {
		v.known = false;
	}
	return v;
}

static struct exec_value read_operand(struct exec *x, const struct exec_program *p,
				      const cs_insn *c, const cs_x86_op *op)
{
	struct exec_value at, v;

	switch (op->type) {
	case X86_OP_IMM:
		return exec_constant((u64)op->imm);
	case X86_OP_REG:
		return reg_value(x, op->reg);
	case X86_OP_MEM:
		break;
	default:
		return (struct exec_value){};
	}
	at = address_of(x, c, &op->mem);
	/* The thread control block contains its own address, at fs:0 and in glibc also at fs:16. */
	if (op->size == 8 && at.known && at.n == 1 && (at.constant == 0 || at.constant == 16) &&
	    at.terms[0].factor == 1 && x->symbols[at.terms[0].symbol].kind == EXEC_THREAD) {
		v = at;
		v.constant = 0;
		return v;
	}
	return exec_load(x, p, &at, op->size);
}

static void write_reg(struct exec *x, const cs_x86_op *op, struct exec_value v)
{
	u8 n = op->type == X86_OP_REG ? number_of(op->reg) : NO_REG;

	if (n != NO_REG)
		x->regs[n] = v;
}

/* Handles registers of 8 and 16 bits and all other instructions: their results become unknown. */
static void clobber_results(struct decoder *d, struct exec *x)
{
	cs_regs read, written;
	u8 n_read, n_written;

	if (cs_regs_access(d->handle, d->insn, read, &n_read, written, &n_written) != CS_ERR_OK) {
		for (u32 i = 0; i < EXEC_N_REGS; i++)
			x->regs[i].known = false;
		return;
	}
	for (u8 i = 0; i < n_written; i++) {
		const char *name = cs_reg_name(d->handle, written[i]);
		u8 n = number_of(written[i]);

		if (n != NO_REG)
			x->regs[n].known = false;
		else if (name && written[i] != X86_REG_EFLAGS && name[0] != 'x' && name[0] != 'y')
			for (u32 k = 0; k < 16; k++) /* al, ax …: rare here */
				x->regs[k].known = false;
	}
}

static struct exec_value sum_operands(struct exec *x, const struct exec_program *p,
				      const cs_insn *c, s64 sign)
{
	const cs_x86 *d = &c->detail->x86;
	struct exec_value a = read_operand(x, p, c, &d->operands[0]);
	struct exec_value b = read_operand(x, p, c, &d->operands[1]);

	b = exec_scale(&b, sign);
	return exec_add(&a, &b);
}

static bool exec_compute(struct decoder *dec, struct exec *x, const struct exec_program *p)
{
	const cs_insn *c = dec->insn;
	const cs_x86 *d = &c->detail->x86;
	const cs_x86_op *to = &d->operands[0], *from = &d->operands[1];
	struct exec_value v = {};

	if (to->type == X86_OP_REG && to->size < 4)
		return false;
	switch (c->id) {
	case X86_INS_MOV:
	case X86_INS_MOVABS:
	case X86_INS_MOVSXD:
		write_reg(x, to, read_operand(x, p, c, from));
		return true;
	case X86_INS_CDQE:
		return true;
	case X86_INS_LEA:
		write_reg(x, to, address_of(x, c, &from->mem));
		return true;
	case X86_INS_ADD:
		write_reg(x, to, sum_operands(x, p, c, 1));
		return true;
	case X86_INS_SUB:
		write_reg(x, to, sum_operands(x, p, c, -1));
		return true;
	case X86_INS_XOR:
		if (to->type == X86_OP_REG && from->type == X86_OP_REG && to->reg == from->reg)
			v = exec_constant(0);
		write_reg(x, to, v);
		return true;
	case X86_INS_SHL:
	case X86_INS_SAL:
		if (d->op_count == 2 && from->type == X86_OP_IMM && from->imm < 16) {
			v = read_operand(x, p, c, to);
			v = exec_scale(&v, 1LL << from->imm);
		}
		write_reg(x, to, v);
		return true;
	case X86_INS_IMUL:
		if (d->op_count == 3 && d->operands[2].type == X86_OP_IMM) {
			v = read_operand(x, p, c, from);
			v = exec_scale(&v, d->operands[2].imm);
		}
		write_reg(x, to, v);
		return true;
	case X86_INS_CMP:
	case X86_INS_TEST:
	case X86_INS_NOP:
	case X86_INS_ENDBR64:
	case X86_INS_PUSH:
		return true;
	default:
		return false;
	}
}

static bool is_branch(const cs_insn *c)
{
	for (u8 k = 0; k < c->detail->groups_count; k++)
		if (c->detail->groups[k] == CS_GRP_JUMP)
			return true;
	return false;
}

bool exec_x86_one(const struct exec_machine *m, const struct exec_program *p, struct exec *x,
		  struct buf code, u64 svma, struct exec_insn *ret)
{
	struct decoder *d = m->decoder;
	const u8 *pos = code.pos;
	size_t left = buf_left(&code);
	uint64_t address = svma;
	const cs_x86_op *op;

	if (!cs_disasm_iter(d->handle, &pos, &left, &address, d->insn))
		return false;
	op = &d->insn->detail->x86.operands[0];
	ret->length = (u8)d->insn->size;
	ret->target = op->type == X86_OP_IMM ? (u64)op->imm : ~0ULL;
	switch (d->insn->id) {
	case X86_INS_CALL:
		ret->flow = EXEC_CALL;
		return true;
	case X86_INS_JMP:
		ret->flow = EXEC_JUMP;
		return true;
	case X86_INS_RET:
		ret->flow = EXEC_RETURN;
		return true;
	case X86_INS_HLT:
	case X86_INS_UD2:
	case X86_INS_INT3:
		ret->flow = EXEC_END;
		return true;
	default:
		break;
	}
	if (is_branch(d->insn)) {
		ret->flow = EXEC_BRANCH;
		return ret->target != ~0ULL;
	}
	ret->flow = EXEC_NEXT;
	if (!exec_compute(d, x, p))
		clobber_results(d, x);
	return true;
}
