/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interpreter of call frame programs (DWARF 5 section 6.4.2).
 *
 * The state is stored as the rule that would be emitted, so that remember_state and restore_state
 * copy 16 bytes. States that a rule cannot express are values of ra_op and fp_op above those of the
 * ABI; finish_rule() translates them:
 *
 *	RA_UNDEFINED	→ UNWIND_CFA_STOP	the outermost frame
 *	RA_OTHER	→ UNWIND_CFA_UNSUPPORTED
 *	FP_OTHER	→ UNWIND_CFA_UNSUPPORTED: the next CFA may be based on it
 *	a CFA that a rule cannot express → cfa_op UNWIND_CFA_UNSUPPORTED at once
 *
 * When the location advances, the rule of the range before it is emitted, but only if `changed` is
 * set: most instructions change nothing that a rule contains.
 */
#include "dwarf/cfi_private.h"

#include <string.h>

#define BAD_INSTRUCTION "a damaged or unknown instruction"

enum {
	RA_UNDEFINED = 0x80,
	RA_OTHER,
	FP_OTHER = 0x80,
};

enum {
	CFA_advance_loc = 0x40,
	CFA_offset = 0x80,
	CFA_restore = 0xc0,
	CFA_nop = 0,
	CFA_set_loc = 1,
	CFA_advance_loc1 = 2,
	CFA_advance_loc2 = 3,
	CFA_advance_loc4 = 4,
	CFA_offset_extended = 5,
	CFA_restore_extended = 6,
	CFA_undefined = 7,
	CFA_same_value = 8,
	CFA_register = 9,
	CFA_remember_state = 0x0a,
	CFA_restore_state = 0x0b,
	CFA_def_cfa = 0x0c,
	CFA_def_cfa_register = 0x0d,
	CFA_def_cfa_offset = 0x0e,
	CFA_def_cfa_expression = 0x0f,
	CFA_expression = 0x10,
	CFA_offset_extended_sf = 0x11,
	CFA_def_cfa_sf = 0x12,
	CFA_def_cfa_offset_sf = 0x13,
	CFA_val_offset = 0x14,
	CFA_val_offset_sf = 0x15,
	CFA_val_expression = 0x16,
	CFA_AARCH64_negate_ra_state_with_pc = 0x2c,
	CFA_AARCH64_negate_ra_state = 0x2d, /* GNU_window_save elsewhere */
	CFA_GNU_args_size = 0x2e,
	CFA_GNU_negative_offset_extended = 0x2f,
};

enum {
	OP_deref = 0x06,
	OP_const1u = 0x08,
	OP_const1s = 0x09,
	OP_const2u = 0x0a,
	OP_const2s = 0x0b,
	OP_const4u = 0x0c,
	OP_const4s = 0x0d,
	OP_constu = 0x10,
	OP_consts = 0x11,
	OP_minus = 0x1c,
	OP_plus = 0x22,
	OP_plus_uconst = 0x23,
	OP_lit0 = 0x30,
	OP_lit31 = 0x4f,
	OP_breg0 = 0x70,
	OP_breg31 = 0x8f,
	OP_bregx = 0x92,
	OP_nop = 0x96,
};

struct run {
	const struct cfi_table *t;
	const struct cfi_cie *cie;
	u64 loc;
	bool changed; /* since the last range that was emitted */
	struct cfi_state s;
	u32 n_remembered;
	struct cfi_state remembered[CFI_MAX_REMEMBERED];
};

/* The value of a location expression, as far as the interpreter understands it. */
struct value {
	enum { VALUE_CONST, VALUE_REG, VALUE_DEREF } kind;
	u8 reg;
	s64 off; /* added to the register, or the constant */
	s64 add; /* added after the dereference */
};

static void set_cfa_unsupported(struct run *r)
{
	r->s.rule.cfa_op = UNWIND_CFA_UNSUPPORTED;
	r->s.rule.cfa_reg = 0;
	r->s.rule.cfa_off = 0;
	r->s.rule.cfa_add = 0;
	r->changed = true;
}

static void set_cfa(struct run *r, u64 reg, s64 off)
{
	if (reg >= r->t->machine->n_regs || off != (s32)off) {
		set_cfa_unsupported(r);
		return;
	}
	r->s.rule.cfa_op = UNWIND_CFA_REG;
	r->s.rule.cfa_reg = (u8)reg;
	r->s.rule.cfa_off = (s32)off;
	r->s.rule.cfa_add = 0;
	r->changed = true;
}

static void set_fp(struct run *r, u8 op, s64 off)
{
	bool fits = off == (s16)off;

	r->s.rule.fp_op = fits ? op : FP_OTHER;
	r->s.rule.fp_off = fits ? (s16)off : 0;
	r->changed = true;
}

static void set_ra(struct run *r, u8 op, s64 off)
{
	bool fits = off == (s16)off;

	r->s.rule.ra_op = fits ? op : RA_OTHER;
	r->s.rule.ra_off = fits ? (s16)off : 0;
	r->changed = true;
}

/*
 * `off` is the distance from the CFA to the slot that rbx is saved in, or UNWIND_BX_SAME. Any
 * offset that does not fit becomes UNWIND_BX_UNKNOWN.
 */
static void set_bx(struct run *r, u64 reg, s64 off)
{
	if (!r->t->follow_bx || reg != r->t->machine->bx)
		return;
	if (off != (s16)off || (off != UNWIND_BX_SAME && off % 8))
		off = UNWIND_BX_UNKNOWN;
	r->s.rule.bx_off = (s16)off;
	r->changed = true;
}

/* The register is saved at cfa + factored * data_align. */
static void set_offset(struct run *r, u64 reg, s64 factored)
{
	s64 off;

	if (__builtin_mul_overflow(factored, r->cie->data_align, &off))
		off = (s64)1 << 62; /* too large for any rule */
	if (reg == r->t->machine->fp)
		set_fp(r, UNWIND_FP_CFA, off);
	else if (reg == r->t->machine->ra)
		set_ra(r, UNWIND_RA_CFA, off);
	else
		set_bx(r, reg, off);
}

static void set_undefined(struct run *r, u64 reg)
{
	if (reg == r->t->machine->ra)
		set_ra(r, RA_UNDEFINED, 0);
	set_bx(r, reg, UNWIND_BX_UNKNOWN);
	/* CFI declares the frame pointer undefined: no caller uses it, or it would have been
	 * saved. */
	if (reg == r->t->machine->fp)
		set_fp(r, UNWIND_FP_SAME, 0);
}

static void set_same(struct run *r, u64 reg)
{
	if (reg == r->t->machine->ra)
		set_ra(r, r->t->machine->ra < r->t->machine->n_regs ? UNWIND_RA_REG : RA_OTHER,
		       r->t->machine->ra);
	if (reg == r->t->machine->fp)
		set_fp(r, UNWIND_FP_SAME, 0);
	set_bx(r, reg, UNWIND_BX_SAME);
}

static void set_register(struct run *r, u64 reg, u64 from)
{
	if (reg == r->t->machine->ra)
		set_ra(r, from < r->t->machine->n_regs ? UNWIND_RA_REG : RA_OTHER,
		       (s64)(from & 0xff));
	set_bx(r, reg, from == reg ? UNWIND_BX_SAME : UNWIND_BX_UNKNOWN);
	if (reg == r->t->machine->fp)
		set_fp(r, from == reg ? UNWIND_FP_SAME : FP_OTHER, 0);
}

static void set_other(struct run *r, u64 reg)
{
	if (reg == r->t->machine->ra)
		set_ra(r, RA_OTHER, 0);
	if (reg == r->t->machine->fp)
		set_fp(r, FP_OTHER, 0);
	set_bx(r, reg, UNWIND_BX_UNKNOWN);
}

static void restore_register(struct run *r, u64 reg)
{
	const struct unwind_rule *initial = &r->cie->initial.rule;

	if (reg == r->t->machine->ra) {
		r->s.rule.ra_op = initial->ra_op;
		r->s.rule.ra_off = initial->ra_off;
		r->changed = true;
	}
	if (reg == r->t->machine->fp) {
		r->s.rule.fp_op = initial->fp_op;
		r->s.rule.fp_off = initial->fp_off;
		r->changed = true;
	}
	set_bx(r, reg, initial->bx_off);
}

static bool expression_const(struct buf *e, u8 op, s64 *ret)
{
	u8 u1;
	u16 u2;
	u32 u4;
	u64 u;

	switch (op) {
	case OP_const1u:
	case OP_const1s:
		if (!buf_u8(e, &u1))
			return false;
		*ret = op == OP_const1u ? u1 : (s8)u1;
		return true;
	case OP_const2u:
	case OP_const2s:
		if (!buf_u16(e, &u2))
			return false;
		*ret = op == OP_const2u ? u2 : (s16)u2;
		return true;
	case OP_const4u:
	case OP_const4s:
		if (!buf_u32(e, &u4))
			return false;
		*ret = op == OP_const4u ? (s64)u4 : (s32)u4;
		return true;
	case OP_constu:
		if (!buf_uleb(e, &u))
			return false;
		*ret = (s64)u;
		return true;
	case OP_consts:
		return buf_sleb(e, ret);
	default:
		if (op < OP_lit0 || op > OP_lit31)
			return false;
		*ret = op - OP_lit0;
		return true;
	}
}

static bool value_add(struct value *v, s64 n)
{
	return !__builtin_add_overflow(v->kind == VALUE_DEREF ? v->add : v->off, n,
				       v->kind == VALUE_DEREF ? &v->add : &v->off);
}

/* Computes plus or minus; one operand must be a constant. */
static bool value_combine(struct value *a, const struct value *b, bool minus)
{
	s64 n;

	if (b->kind == VALUE_CONST) {
		if (minus ? __builtin_sub_overflow(0, b->off, &n) : (n = b->off, false))
			return false;
		return value_add(a, n);
	}
	if (a->kind != VALUE_CONST || minus)
		return false;
	n = a->off;
	*a = *b;
	return value_add(a, n);
}

/* Executes one operation on a stack of two values. False: the operation is not understood. */
static bool expression_step(struct buf *e, struct value stack[static 2], u32 *n)
{
	struct value v = {};
	u64 u;
	u8 op;

	if (!buf_u8(e, &op))
		return false;
	switch (op) {
	case OP_nop:
		return true;
	case OP_deref:
		if (!*n || stack[*n - 1].kind != VALUE_REG)
			return false;
		stack[*n - 1].kind = VALUE_DEREF;
		return true;
	case OP_plus_uconst:
		return *n && buf_uleb(e, &u) && value_add(&stack[*n - 1], (s64)u);
	case OP_plus:
	case OP_minus:
		if (*n != 2)
			return false;
		*n = 1;
		return value_combine(&stack[0], &stack[1], op == OP_minus);
	case OP_bregx:
		if (!buf_uleb(e, &u) || u > 31)
			return false;
		op = (u8)(OP_breg0 + u);
		break;
	}
	if (op >= OP_breg0 && op <= OP_breg31) {
		v.kind = VALUE_REG;
		v.reg = op - OP_breg0;
		if (!buf_sleb(e, &v.off))
			return false;
	} else if (!expression_const(e, op, &v.off)) {
		return false;
	}
	if (*n == 2)
		return false;
	stack[(*n)++] = v;
	return true;
}

/* Evaluates an expression whose value is reg + off, or *(reg + off) + add. */
static bool expression_value(struct buf e, struct value *ret)
{
	struct value stack[2];
	u32 n = 0;

	while (buf_left(&e))
		if (!expression_step(&e, stack, &n))
			return false;
	if (n != 1 || stack[0].kind == VALUE_CONST)
		return false;
	*ret = stack[0];
	return true;
}

/*
 * Recognises the expression that ld writes for x86-64 PLT entries, which push 8 bytes at a fixed
 * offset in their 16: breg7(off) breg16(0) lit15 and litN ge lit3 shl plus.
 */
static bool expression_plt(struct run *r, struct buf e)
{
	static const u8 middle[] = {0x80, 0, 0x3f, 0x1a};
	static const u8 tail[] = {0x2a, 0x33, 0x24, 0x22};
	struct buf part;
	s64 off;
	u8 op, lit;

	if (r->t->machine->ra != 16 || !buf_u8(&e, &op) || op != OP_breg0 + 7 ||
	    !buf_sleb(&e, &off) || off != (s32)off || !buf_take(&e, sizeof(middle), &part) ||
	    memcmp(part.pos, middle, sizeof(middle)) || !buf_u8(&e, &lit) || lit < OP_lit0 ||
	    lit > OP_lit0 + 15 || buf_left(&e) != sizeof(tail) || memcmp(e.pos, tail, sizeof(tail)))
		return false;
	r->s.rule.cfa_op = UNWIND_CFA_PLT;
	r->s.rule.cfa_reg = r->t->machine->sp;
	r->s.rule.cfa_off = (s32)off;
	r->s.rule.cfa_add = lit - OP_lit0;
	r->changed = true;
	return true;
}

static void set_cfa_expression(struct run *r, struct buf e)
{
	struct value v;

	if (expression_plt(r, e))
		return;
	if (!expression_value(e, &v) || v.reg >= r->t->machine->n_regs || v.add != (s16)v.add) {
		set_cfa_unsupported(r);
		return;
	}
	set_cfa(r, v.reg, v.off);
	if (v.kind == VALUE_DEREF && r->s.rule.cfa_op == UNWIND_CFA_REG) {
		r->s.rule.cfa_op = UNWIND_CFA_DEREF;
		r->s.rule.cfa_add = (s16)v.add;
	}
}

/* DW_CFA_expression: the register is saved at the address that the expression computes. */
static void set_expression(struct run *r, u64 reg, struct buf e)
{
	struct value v;

	if (reg == r->t->machine->fp && expression_value(e, &v) && v.kind == VALUE_REG &&
	    v.reg == r->t->machine->fp)
		set_fp(r, UNWIND_FP_REG, v.off);
	else
		set_other(r, reg);
}

static bool op_expression(struct run *r, struct buf *b, u8 op)
{
	u64 reg, n;
	struct buf e;

	if ((op != CFA_def_cfa_expression && !buf_uleb(b, &reg)) || !buf_uleb(b, &n) ||
	    !buf_take(b, n, &e))
		return false;
	if (op == CFA_def_cfa_expression)
		set_cfa_expression(r, e);
	else if (op == CFA_expression)
		set_expression(r, reg, e);
	else
		set_other(r, reg);
	return true;
}

static bool op_remember(struct run *r)
{
	if (r->n_remembered == CFI_MAX_REMEMBERED)
		return false;
	r->remembered[r->n_remembered++] = r->s;
	return true;
}

static bool op_restore_state(struct run *r)
{
	if (!r->n_remembered)
		return false;
	r->s = r->remembered[--r->n_remembered];
	r->changed = true;
	return true;
}

static bool op_def_cfa(struct run *r, struct buf *b, u8 op)
{
	u64 reg = 0, off = 0;
	s64 soff = 0;

	switch (op) {
	case CFA_def_cfa:
		if (!buf_uleb(b, &reg) || !buf_uleb(b, &off))
			return false;
		set_cfa(r, reg, off > 0x7fffffff ? (s64)1 << 62 : (s64)off);
		return true;
	case CFA_def_cfa_sf:
		if (!buf_uleb(b, &reg) || !buf_sleb(b, &soff))
			return false;
		break;
	case CFA_def_cfa_register:
		if (!buf_uleb(b, &reg))
			return false;
		if (r->s.rule.cfa_op == UNWIND_CFA_REG)
			set_cfa(r, reg, r->s.rule.cfa_off);
		else
			set_cfa_unsupported(r);
		return true;
	case CFA_def_cfa_offset:
		if (!buf_uleb(b, &off))
			return false;
		if (r->s.rule.cfa_op == UNWIND_CFA_REG)
			set_cfa(r, r->s.rule.cfa_reg, off > 0x7fffffff ? (s64)1 << 62 : (s64)off);
		else
			set_cfa_unsupported(r);
		return true;
	default: /* CFA_def_cfa_offset_sf */
		if (!buf_sleb(b, &soff))
			return false;
		if (r->s.rule.cfa_op != UNWIND_CFA_REG) {
			set_cfa_unsupported(r);
			return true;
		}
		reg = r->s.rule.cfa_reg;
		break;
	}
	if (__builtin_mul_overflow(soff, r->cie->data_align, &soff))
		soff = (s64)1 << 62;
	set_cfa(r, reg, soff);
	return true;
}

/* Executes an instruction that has a register and at most one number. */
static bool op_register(struct run *r, struct buf *b, u8 op)
{
	u64 reg, u = 0;
	s64 s = 0;

	if (!buf_uleb(b, &reg))
		return false;
	switch (op) {
	case CFA_offset_extended:
	case CFA_register:
	case CFA_val_offset:
	case CFA_GNU_negative_offset_extended:
		if (!buf_uleb(b, &u))
			return false;
		break;
	case CFA_offset_extended_sf:
	case CFA_val_offset_sf:
		if (!buf_sleb(b, &s))
			return false;
		break;
	}
	switch (op) {
	case CFA_offset_extended:
		set_offset(r, reg, (s64)MIN(u, 1ULL << 62));
		break;
	case CFA_GNU_negative_offset_extended:
		set_offset(r, reg, -(s64)MIN(u, 1ULL << 62));
		break;
	case CFA_offset_extended_sf:
		set_offset(r, reg, s);
		break;
	case CFA_restore_extended:
		restore_register(r, reg);
		break;
	case CFA_undefined:
		set_undefined(r, reg);
		break;
	case CFA_same_value:
		set_same(r, reg);
		break;
	case CFA_register:
		set_register(r, reg, u);
		break;
	default: /* CFA_val_offset, CFA_val_offset_sf */
		set_other(r, reg);
		break;
	}
	return true;
}

/* Executes an instruction that does not advance the location. False: it is damaged or unknown. */
static bool execute_op(struct run *r, struct buf *b, u8 op)
{
	u64 u;

	if ((op & 0xc0) == CFA_offset) {
		if (!buf_uleb(b, &u))
			return false;
		set_offset(r, op & 0x3f, (s64)MIN(u, 1ULL << 62));
		return true;
	}
	if ((op & 0xc0) == CFA_restore) {
		restore_register(r, op & 0x3f);
		return true;
	}
	switch (op) {
	case CFA_nop:
	case CFA_AARCH64_negate_ra_state: /* the unwinder removes the signature */
	case CFA_AARCH64_negate_ra_state_with_pc:
		return true;
	case CFA_GNU_args_size: /* only landing pads need it */
		return buf_uleb(b, &u);
	case CFA_remember_state:
		return op_remember(r);
	case CFA_restore_state:
		return op_restore_state(r);
	case CFA_def_cfa:
	case CFA_def_cfa_sf:
	case CFA_def_cfa_register:
	case CFA_def_cfa_offset:
	case CFA_def_cfa_offset_sf:
		return op_def_cfa(r, b, op);
	case CFA_def_cfa_expression:
	case CFA_expression:
	case CFA_val_expression:
		return op_expression(r, b, op);
	case CFA_offset_extended:
	case CFA_restore_extended:
	case CFA_undefined:
	case CFA_same_value:
	case CFA_register:
	case CFA_offset_extended_sf:
	case CFA_val_offset:
	case CFA_val_offset_sf:
	case CFA_GNU_negative_offset_extended:
		return op_register(r, b, op);
	default:
		return false;
	}
}

/*
 * Returns 1 and the new location if the instruction advances it, 0 if it is another instruction, -1
 * if it is damaged.
 */
static int advance_loc(const struct run *r, struct buf *b, u8 op, u64 svma, u64 *ret_loc)
{
	u64 delta;
	u8 d1;
	u16 d2;
	u32 d4;

	if ((op & 0xc0) == CFA_advance_loc) {
		delta = op & 0x3f;
	} else if (op == CFA_advance_loc1) {
		if (!buf_u8(b, &d1))
			return -1;
		delta = d1;
	} else if (op == CFA_advance_loc2) {
		if (!buf_u16(b, &d2))
			return -1;
		delta = d2;
	} else if (op == CFA_advance_loc4) {
		if (!buf_u32(b, &d4))
			return -1;
		delta = d4;
	} else if (op == CFA_set_loc) {
		if (!cfi_pointer(b, r->cie->fde_encoding, svma, 0, ret_loc) || *ret_loc < r->loc)
			return -1;
		return 1;
	} else {
		return 0;
	}
	if (__builtin_mul_overflow(delta, r->cie->code_align, &delta) || delta > ~0ULL - r->loc)
		return -1;
	*ret_loc = r->loc + delta;
	return 1;
}

/*
 * The PLT enters glibc's lazy binding trampoline on arm64 with two words pushed, which its CFI
 * ignores: the CFI saves x30 above the CFA, and its CFA, the caller's sp, is too low by those words
 * (2.36, sysdeps/aarch64/dl-trampoline.S). No function saves x30 above its own frame, and frames
 * are multiples of 16 bytes (AAPCS64), so the true CFA is the next multiple above the slot of x30.
 * Where the CFA is based on another register, as in setcontext(), the rule describes no frame, and
 * x30 may be saved anywhere.
 */
static void lift_cfa(const struct run *r, struct unwind_rule *rule)
{
	s16 lift = (s16)((rule->ra_off + 8 + 15) & ~15);

	if (!r->t->machine->link_register || rule->ra_op != UNWIND_RA_CFA || rule->ra_off < 0 ||
	    rule->cfa_op != UNWIND_CFA_REG || rule->cfa_reg != r->t->machine->sp || lift < 0 ||
	    __builtin_add_overflow(rule->cfa_off, lift, &rule->cfa_off))
		return;
	rule->ra_off -= lift;
	if (rule->fp_op == UNWIND_FP_CFA &&
	    __builtin_sub_overflow(rule->fp_off, lift, &rule->fp_off))
		rule->cfa_op = UNWIND_CFA_UNSUPPORTED;
}

/* Converts the state to the rule that is emitted. */
static struct unwind_rule finish_rule(const struct run *r)
{
	struct unwind_rule rule = r->s.rule;

	if (r->cie->signal_frame)
		return (struct unwind_rule){
			.cfa_op = UNWIND_CFA_SIGNAL,
			.cfa_off = r->t->machine->signal_to_ucontext,
		};
	if (rule.ra_op == RA_UNDEFINED)
		return (struct unwind_rule){.cfa_op = UNWIND_CFA_STOP};
	if (rule.cfa_op == UNWIND_CFA_UNSUPPORTED || rule.ra_op == RA_OTHER ||
	    rule.fp_op == FP_OTHER)
		return (struct unwind_rule){.cfa_op = UNWIND_CFA_UNSUPPORTED};
	lift_cfa(r, &rule);
	return rule;
}

bool cfi_initial_state(const struct cfi_table *t, struct cfi_cie *cie, struct buf program)
{
	struct run r = {.t = t, .cie = cie};

	/* Without a program the CFA is unknown, the frame pointer is unchanged, and the return
	 * address is in its register if the machine has one. */
	set_cfa_unsupported(&r);
	set_same(&r, t->machine->ra);
	set_same(&r, t->machine->bx);
	while (buf_left(&program)) {
		u64 at = buf_offset(&program);
		u8 op = *program.pos++;

		if ((op & 0xc0) == CFA_advance_loc || !execute_op(&r, &program, op)) {
			cfi_damaged(t, at, BAD_INSTRUCTION);
			return false;
		}
	}
	cie->initial = r.s;
	return true;
}

/* Passes ranges to the caller, except those whose rule equals the one before. */
struct emitter {
	cfi_emit_fn *emit;
	void *arg;
	u64 lo;
	bool any;
	struct unwind_rule last;
};

static void emit_rule(struct emitter *e, u64 loc, struct unwind_rule rule)
{
	if (e->any && !memcmp(&rule, &e->last, sizeof(rule)))
		return;
	e->any = true;
	e->last = rule;
	e->emit(e->arg, MAX(loc, e->lo), &rule);
}

void cfi_run(const struct cfi_table *t, const struct cfi_fde *fde, u64 lo, u64 hi, u64 *budget,
	     cfi_emit_fn *emit_fn, void *arg)
{
	struct run r;
	struct emitter e = {.emit = emit_fn, .arg = arg, .lo = lo};
	struct buf b = fde->program;

	/* Not an initialiser, which would clear the room for remembered states at each function. */
	r.t = t;
	r.cie = fde->cie;
	r.loc = fde->start;
	r.changed = true;
	r.s = fde->cie->initial;
	r.n_remembered = 0;
	while (buf_left(&b)) {
		u64 to, svma = fde->program_svma + (u64)(b.pos + 1 - fde->program.pos);
		const u8 *from = b.pos;
		u8 op = *b.pos++;
		int moved = advance_loc(&r, &b, op, svma, &to);

		if (moved < 0 || !*budget || (!moved && !execute_op(&r, &b, op))) {
			if (*budget)
				cfi_damaged(t, (u64)(from - b.start), BAD_INSTRUCTION);
			emit_rule(&e, r.loc,
				  (struct unwind_rule){.cfa_op = UNWIND_CFA_UNSUPPORTED});
			return;
		}
		*budget -= MIN(*budget, (u64)(b.pos - from));
		if (!moved)
			continue;
		if (r.changed && to > lo && to > r.loc) {
			emit_rule(&e, r.loc, finish_rule(&r));
			r.changed = false;
		}
		r.loc = to;
		if (to >= hi)
			return;
	}
	if (r.changed)
		emit_rule(&e, r.loc, finish_rule(&r));
}
