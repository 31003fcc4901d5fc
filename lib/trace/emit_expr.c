// SPDX-License-Identifier: Apache-2.0
/*
 * Expressions. A number is left in R0; other values are written to memory. Temporary room is given
 * back as soon as the number is in R0.
 */
#include <dwarf.h>
#include <string.h>

#include "trace/compile.h"
#include "trace/signature.h"

/* ---- reading memory ---- */

void emit_told_read(struct compiler *c, bool is_user)
{
	emit_told(c, is_user ? "reading the process's memory" : "reading the kernel's memory");
}

void emit_read_bytes(struct compiler *c, bool is_user, u32 bytes, struct place to)
{
	asm_mov(&c->code, R3, R0);
	emit_address(c, R1, to);
	asm_mov_imm(&c->code, R2, bytes);
	asm_call(&c->code, is_user ? HELPER_PROBE_READ_USER : HELPER_PROBE_READ);
	emit_told_read(c, is_user);
}

void emit_read(struct compiler *c, const struct trace_type *type, bool is_user)
{
	struct mark m = emit_mark(c);
	struct place tmp = emit_room(c, 8);
	u32 bytes =
		type->kind == TRACE_INT || type->kind == TRACE_BOOL || type->kind == TRACE_ENUM_NAME
			? type->bytes
			: 8;

	emit_read_bytes(c, is_user, bytes, tmp);
	asm_load(&c->code, asm_size(bytes), R0, tmp.base, tmp.off);
	if (type->is_signed)
		asm_extend(&c->code, R0, bytes, true);
	emit_reset(c, m);
}

void emit_read_string(struct compiler *c, bool is_user, u32 bytes, struct place to)
{
	struct mark m = emit_mark(c);
	struct place from = emit_room(c, 8);

	emit_store(c, from, R0);
	emit_zero(c, to, (bytes + 7) / 8 * 8);
	emit_load(c, R3, from);
	emit_address(c, R1, to);
	asm_mov_imm(&c->code, R2, bytes);
	asm_call(&c->code, is_user ? HELPER_PROBE_READ_USER_STR : HELPER_PROBE_READ_STR);
	emit_told_read(c, is_user);
	emit_reset(c, m);
}

/* ---- arguments of the event: args.x ---- */

static void emit_record_field(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	const struct trace_field *f = &c->facts.fields[e->symbol];
	u32 bytes = e->type.kind == TRACE_INT ? e->type.bytes : 8;

	if (f->is_data_loc) {
		/* The offset of the data in the record is in the low 16 bits. */
		asm_load(&c->code, BPF_W, R0, R6, (s16)f->offset);
		asm_alu_imm(&c->code, BPF_AND, R0, 0xffff);
		asm_mov(&c->code, R1, R6);
		asm_alu(&c->code, BPF_ADD, R1, R0);
		asm_mov(&c->code, R0, R1);
	} else if (e->type.kind == TRACE_STRING || trace_type_is_memory(&e->type) ||
		   f->offset % bytes) {
		asm_mov(&c->code, R0, R6);
		asm_alu_imm(&c->code, BPF_ADD, R0, (s32)f->offset);
		if (trace_type_is_scalar(&e->type) && !trace_type_is_memory(&e->type))
			emit_read(c, &e->type, false);
	} else {
		asm_load(&c->code, asm_size(bytes), R0, R6, (s16)f->offset);
		if (e->type.is_signed)
			asm_extend(&c->code, R0, bytes, true);
	}
	if (to)
		emit_read_string(c, false, e->type.bytes, *to);
}

/* A word of the context as a number: the verifier would let a pointer be used as such only. */
static void emit_context_word(struct compiler *c, const struct trace_type *type, u32 index)
{
	if (c->facts.context == TRACE_CONTEXT_BTF && type->kind != TRACE_INT) {
		asm_mov(&c->code, R0, R6);
		if (index)
			asm_alu_imm(&c->code, BPF_ADD, R0, (s32)(8 * index));
		emit_read(c, type, false);
		return;
	}
	asm_load(&c->code, BPF_DW, R0, R6, (s16)(8 * index));
	if (type->kind == TRACE_INT)
		asm_extend(&c->code, R0, type->bytes, type->is_signed);
}

static void emit_parameter(struct compiler *c, struct trace_expr *e)
{
	const struct signature *s = c->facts.signature;
	struct trace_parameter_place p = trace_parameter_place(s, c->target->machine, e->symbol);
	bool is_go = s->language == DW_LANG_Go;

	if (p.kind == TRACE_PLACE_REGISTER)
		emit_register(c, is_go ? register_offset(trace_go_register(c->target->machine, p.n))
				       : register_argument(p.n));
	else
		emit_argument_on_stack(c, p.n);
	if (e->type.kind == TRACE_INT)
		asm_extend(&c->code, R0, e->type.bytes, e->type.is_signed);
}

void emit_argument(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	if (c->facts.signature) {
		emit_parameter(c, e);
		return;
	}
	if (c->facts.context == TRACE_CONTEXT_TRACEPOINT) {
		emit_record_field(c, e, to);
		c->uses_point = true;
		return;
	}
	if (!trace_type_is_scalar(&e->type) || trace_type_is_memory(&e->type)) {
		compile_fail(c, e->at, "arguments that are structs are not supported");
		return;
	}
	emit_context_word(c, &e->type, e->symbol - c->facts.skipped);
}

/* ---- addresses ---- */

/* R0 += R1 * bytes */
static void emit_scale(struct compiler *c, u8 reg, u32 bytes)
{
	if (bytes > 1)
		asm_alu_imm(&c->code, BPF_MUL, reg, (s32)bytes);
}

static void emit_pair(struct compiler *c, struct trace_expr *a, struct trace_expr *b)
{
	struct mark m = emit_mark(c);
	struct place tmp;

	emit_scalar(c, a);
	if (b->kind == TRACE_EXPR_NUMBER || b->kind == TRACE_EXPR_BOOL) {
		asm_mov_imm(&c->code, R1, b->number);
		return;
	}
	if (b->kind == TRACE_EXPR_VARIABLE) {
		emit_load(c, R1, c->variables.data[b->symbol].place);
		return;
	}
	tmp = emit_room(c, 8);
	emit_store(c, tmp, R0);
	emit_scalar(c, b);
	asm_mov(&c->code, R1, R0);
	emit_load(c, R0, tmp);
	emit_reset(c, m);
}

u32 emit_step(struct compiler *c, const struct trace_type *t)
{
	u32 n = t->btf ? trace_btf_bytes(&c->types, t->btf) : 1;

	return t->kind == TRACE_ARRAY && t->of && t->of->kind == TRACE_INT ? t->of->bytes
									   : MAX(n, 1u);
}

/* R0 = where a member, an element or *x is. */
static void emit_where(struct compiler *c, struct trace_expr *e, struct trace_place_in *ret)
{
	struct trace_place_in in = {};

	if (e->kind == TRACE_EXPR_UNARY) {
		emit_scalar(c, e->a);
	} else if (e->kind == TRACE_EXPR_INDEX) {
		emit_pair(c, e->a, e->b);
		emit_scale(c, R1, emit_step(c, &e->a->type));
		asm_alu(&c->code, BPF_ADD, R0, R1);
	} else {
		emit_scalar(c, e->a);
		if (trace_btf_member(&c->types, e->a->type.btf, e->text.data, &in, NULL) < 0)
			compile_fail(c, e->at, "this member is not known");
		if (in.bits) {
			u32 unit = MAX(e->type.bytes, 1u) * 8;

			*ret = in;
			ret->bit_offset = in.bit_offset % unit;
			in.bit_offset -= ret->bit_offset;
		}
		if (in.bit_offset)
			asm_alu_imm(&c->code, BPF_ADD, R0, (s32)(in.bit_offset / 8));
	}
}

/* A value behind an address: in R0, or a string at *to. */
static void emit_behind(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct trace_place_in bits = {};
	struct trace_type whole = e->type;

	emit_where(c, e, &bits);
	if (trace_type_is_memory(&e->type))
		return;
	if (to) {
		emit_read_string(c, e->type.is_user, e->type.bytes, *to);
		return;
	}
	if (!bits.bits) {
		emit_read(c, &e->type, e->type.is_user);
		return;
	}
	whole.is_signed = false;
	emit_read(c, &whole, e->type.is_user);
	asm_alu_imm(&c->code, BPF_LSH, R0, (s32)(64 - bits.bits - bits.bit_offset));
	asm_alu_imm(&c->code, e->type.is_signed ? BPF_ARSH : BPF_RSH, R0, (s32)(64 - bits.bits));
}

/* ---- conditions ---- */

static u8 jump_of(enum trace_op op, bool is_signed)
{
	switch (op) {
	case TRACE_OP_EQ:
		return BPF_JEQ;
	case TRACE_OP_NE:
		return BPF_JNE;
	case TRACE_OP_LT:
		return is_signed ? BPF_JSLT : BPF_JLT;
	case TRACE_OP_LE:
		return is_signed ? BPF_JSLE : BPF_JLE;
	case TRACE_OP_GT:
		return is_signed ? BPF_JSGT : BPF_JGT;
	default:
		return is_signed ? BPF_JSGE : BPF_JGE;
	}
}

static enum trace_op opposite(enum trace_op op)
{
	switch (op) {
	case TRACE_OP_EQ:
		return TRACE_OP_NE;
	case TRACE_OP_NE:
		return TRACE_OP_EQ;
	case TRACE_OP_LT:
		return TRACE_OP_GE;
	case TRACE_OP_LE:
		return TRACE_OP_GT;
	case TRACE_OP_GT:
		return TRACE_OP_LE;
	default:
		return TRACE_OP_LT;
	}
}

/* The word of a literal at an offset, with NULs behind its end. */
static s64 literal_word(const struct trace_text *t, u32 off)
{
	u64 word = 0;

	if (off < t->n)
		memcpy(&word, t->data + off, MIN(8u, t->n - off));
	return (s64)word;
}

/* The place of a value; of an array of bytes, which is an address, that of a copy. */
static struct place emit_bytes(struct compiler *c, struct trace_expr *e, u32 *ret_room)
{
	struct place p;

	*ret_room = trace_type_room(&e->type);
	if (e->type.kind != TRACE_ARRAY)
		return emit_memory(c, e);
	*ret_room = (e->type.n + 7) / 8 * 8;
	p = emit_room(c, *ret_room);
	emit_zero(c, p, *ret_room);
	emit_scalar(c, e);
	emit_read_bytes(c, e->type.is_user, e->type.n, p);
	return p;
}

/*
 * Jumps to `differ` if two values differ. Strings are padded with NULs: they are equal if they are
 * in the room of the shorter one, because its NUL is there.
 */
static void emit_compare_memory(struct compiler *c, struct trace_expr *a, struct trace_expr *b,
				u32 differ)
{
	struct place pa, pb = {};
	u32 room, room_a, room_b;

	if (a->kind == TRACE_EXPR_STRING) {
		struct trace_expr *swap = a;

		a = b;
		b = swap;
	}
	pa = emit_bytes(c, a, &room_a);
	if (b->kind != TRACE_EXPR_STRING)
		pb = emit_bytes(c, b, &room_b);
	else
		room_b = trace_type_room(&b->type);
	room = MIN(room_a, room_b);
	for (u32 i = 0; i < room; i += 8) {
		emit_load(c, R0, place_at(pa, i));
		if (b->kind == TRACE_EXPR_STRING)
			asm_mov_imm(&c->code, R1, literal_word(&b->text, i));
		else
			emit_load(c, R1, place_at(pb, i));
		asm_jump_if(&c->code, BPF_JNE, R0, R1, differ);
	}
}

static void emit_comparison(struct compiler *c, struct trace_expr *e, bool truth, u32 to)
{
	enum trace_op op = truth ? e->op : opposite(e->op);
	u32 end;

	if (trace_type_is_scalar(&e->a->type) && e->a->type.kind != TRACE_ARRAY) {
		u8 jump = jump_of(op, e->number);
		bool is_number = e->b->kind == TRACE_EXPR_NUMBER && e->b->number >= INT32_MIN &&
				 e->b->number <= INT32_MAX;

		if (is_number) {
			emit_scalar(c, e->a);
			asm_jump_if_imm(&c->code, jump, R0, (s32)e->b->number, to);
			return;
		}
		emit_pair(c, e->a, e->b);
		asm_jump_if(&c->code, jump, R0, R1, to);
		return;
	}
	if (op == TRACE_OP_NE) {
		emit_compare_memory(c, e->a, e->b, to);
		return;
	}
	end = asm_label(&c->code);
	emit_compare_memory(c, e->a, e->b, end);
	asm_jump(&c->code, to);
	asm_place(&c->code, end);
}

static bool is_comparison(enum trace_op op)
{
	return op >= TRACE_OP_EQ && op <= TRACE_OP_GE;
}

static void emit_both(struct compiler *c, struct trace_expr *e, bool truth, u32 to)
{
	bool is_and = e->op == TRACE_OP_LAND;
	u32 end;

	if (is_and != truth) {
		/* One operand decides: a false one of &&, a true one of ||. */
		emit_condition(c, e->a, truth, to);
		emit_condition(c, e->b, truth, to);
		return;
	}
	end = asm_label(&c->code);
	emit_condition(c, e->a, !truth, end);
	emit_condition(c, e->b, truth, to);
	asm_place(&c->code, end);
}

void emit_condition(struct compiler *c, struct trace_expr *e, bool truth, u32 to)
{
	struct mark m = emit_mark(c);

	if (e->kind == TRACE_EXPR_BINARY && (e->op == TRACE_OP_LAND || e->op == TRACE_OP_LOR)) {
		emit_both(c, e, truth, to);
	} else if (e->kind == TRACE_EXPR_BINARY && is_comparison(e->op)) {
		emit_comparison(c, e, truth, to);
	} else if (e->kind == TRACE_EXPR_UNARY && e->op == TRACE_OP_NOT) {
		emit_condition(c, e->a, !truth, to);
	} else if (e->type.kind == TRACE_NONE) {
		compile_fail(c, e->at, "this has no value");
	} else {
		if (trace_type_is_scalar(&e->type)) {
			emit_scalar(c, e);
		} else {
			struct place p = emit_memory(c, e);

			/* A text is true if it is not empty. */
			if (e->type.kind == TRACE_STRING)
				asm_load(&c->code, BPF_B, R0, p.base, p.off);
			else
				emit_load(c, R0, p);
		}
		asm_jump_if_imm(&c->code, truth ? BPF_JNE : BPF_JEQ, R0, 0, to);
	}
	emit_reset(c, m);
}

/* R0 = 1 or 0 */
static void emit_truth(struct compiler *c, struct trace_expr *e)
{
	u32 no = asm_label(&c->code), end = asm_label(&c->code);

	emit_condition(c, e, false, no);
	asm_mov_imm(&c->code, R0, 1);
	asm_jump(&c->code, end);
	asm_place(&c->code, no);
	asm_mov_imm(&c->code, R0, 0);
	asm_place(&c->code, end);
}

/* ---- arithmetic ---- */

/* reg = its absolute value; `mask` gets the sign: 0 or -1 */
static void emit_absolute(struct compiler *c, u8 reg, u8 mask)
{
	asm_mov(&c->code, mask, reg);
	asm_alu_imm(&c->code, BPF_ARSH, mask, 63);
	asm_alu(&c->code, BPF_XOR, reg, mask);
	asm_alu(&c->code, BPF_SUB, reg, mask);
}

/* R0 = R0 / R1 or R0 % R1. BPF's division is unsigned before Linux 6.6. x / 0 is 0, and x % 0. */
void emit_divide(struct compiler *c, bool is_signed, bool is_modulo)
{
	u32 zero = asm_label(&c->code), end = asm_label(&c->code);

	if (is_signed) {
		emit_absolute(c, R0, R2);
		emit_absolute(c, R1, R3);
		if (!is_modulo)
			asm_alu(&c->code, BPF_XOR, R2, R3);
	}
	if (is_modulo)
		asm_jump_if_imm(&c->code, BPF_JEQ, R1, 0, zero);
	asm_alu(&c->code, is_modulo ? BPF_MOD : BPF_DIV, R0, R1);
	if (is_signed) {
		asm_alu(&c->code, BPF_XOR, R0, R2);
		asm_alu(&c->code, BPF_SUB, R0, R2);
	}
	if (is_modulo) {
		asm_jump(&c->code, end);
		asm_place(&c->code, zero);
		asm_mov_imm(&c->code, R0, 0);
		asm_place(&c->code, end);
	}
}

static bool bpf_operator(enum trace_op op, bool is_signed, u8 *ret)
{
	static const u8 ops[] = {
		[TRACE_OP_ADD] = BPF_ADD, [TRACE_OP_SUB] = BPF_SUB, [TRACE_OP_MUL] = BPF_MUL,
		[TRACE_OP_AND] = BPF_AND, [TRACE_OP_OR] = BPF_OR,   [TRACE_OP_XOR] = BPF_XOR,
		[TRACE_OP_SHL] = BPF_LSH, [TRACE_OP_SHR] = BPF_RSH};

	if (op == TRACE_OP_DIV || op == TRACE_OP_MOD || op >= ARRAY_SIZE(ops))
		return false;
	*ret = op == TRACE_OP_SHR && is_signed ? BPF_ARSH : ops[op];
	return true;
}

static void emit_arithmetic(struct compiler *c, struct trace_expr *e)
{
	const struct trace_type *a = &e->a->type, *b = &e->b->type;
	bool is_shift = e->op == TRACE_OP_SHL || e->op == TRACE_OP_SHR;
	u8 op;

	emit_pair(c, e->a, e->b);
	if (e->op == TRACE_OP_ADD || e->op == TRACE_OP_SUB) {
		if (a->kind == TRACE_POINTER && b->kind != TRACE_POINTER)
			emit_scale(c, R1, emit_step(c, a));
		if (b->kind == TRACE_POINTER && a->kind != TRACE_POINTER)
			emit_scale(c, R0, emit_step(c, b));
	}
	if (is_shift)
		asm_alu_imm(&c->code, BPF_AND, R1, 63);
	if (bpf_operator(e->op, is_shift ? a->is_signed : e->type.is_signed, &op))
		asm_alu(&c->code, op, R0, R1);
	else
		emit_divide(c, e->type.is_signed, e->op == TRACE_OP_MOD);
}

static void emit_unary(struct compiler *c, struct trace_expr *e)
{
	struct variable *v;
	s32 step;

	switch (e->op) {
	case TRACE_OP_DEREF:
		emit_behind(c, e, NULL);
		break;
	case TRACE_OP_NOT:
		emit_truth(c, e);
		break;
	case TRACE_OP_NEG:
		emit_scalar(c, e->a);
		asm_neg(&c->code, R0);
		break;
	case TRACE_OP_INVERT:
		emit_scalar(c, e->a);
		asm_alu_imm(&c->code, BPF_XOR, R0, -1);
		break;
	default:
		if (e->a->kind == TRACE_EXPR_MAP) {
			emit_map_increment(c, e);
			break;
		}
		if (e->a->kind != TRACE_EXPR_VARIABLE) {
			compile_fail(c, e->at, "only variables and maps can be counted up");
			break;
		}
		v = &c->variables.data[e->a->symbol];
		emit_load(c, R0, v->place);
		asm_mov(&c->code, R1, R0);
		step = v->type.kind == TRACE_POINTER ? (s32)emit_step(c, &v->type) : 1;
		asm_alu_imm(&c->code, BPF_ADD, R1, e->op == TRACE_OP_INCREMENT ? step : -step);
		emit_store(c, v->place, R1);
		if (!e->is_postfix)
			asm_mov(&c->code, R0, R1);
	}
}

/* ---- all kinds of expressions ---- */

/* Writes to *to if that is set, else to R0. */
static void emit_any(struct compiler *c, struct trace_expr *e, const struct trace_type *as,
		     const struct place *to)
{
	if (to)
		emit_to(c, e, as, *to);
	else
		emit_scalar(c, e);
}

static void emit_choice(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	u32 no = asm_label(&c->code), end = asm_label(&c->code);
	struct trace_type *as = &e->type;

	if (!e->b) {
		emit_any(c, e->a, as, to);
		if (to)
			asm_load(&c->code, BPF_B, R0, to->base, to->off);
		asm_jump_if_imm(&c->code, BPF_JNE, R0, 0, end);
		emit_any(c, e->c, as, to);
		asm_place(&c->code, end);
		return;
	}
	emit_condition(c, e->a, false, no);
	emit_any(c, e->b, as, to);
	asm_jump(&c->code, end);
	asm_place(&c->code, no);
	emit_any(c, e->c, as, to);
	asm_place(&c->code, end);
}

/* The statements of a block, and then the value of the last one. */
static void emit_value_block(struct compiler *c, struct trace_block *b, const struct trace_type *as,
			     const struct place *to)
{
	struct trace_statement *s = b->first, *before = NULL, *next;

	while (s && s->next) {
		before = s;
		s = s->next;
	}
	if (before) {
		next = before->next;
		before->next = NULL;
		emit_block(c, b);
		before->next = next;
	}
	if (s && s->kind == TRACE_STATEMENT_EXPR && s->value->type.kind != TRACE_NONE)
		emit_any(c, s->value, as, to);
	else if (s)
		emit_block(c, &(struct trace_block){.first = s});
}

static void emit_if_value(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	u32 no = asm_label(&c->code), end = asm_label(&c->code);

	emit_condition(c, e->a, false, no);
	emit_value_block(c, e->block, &e->type, to);
	asm_jump(&c->code, end);
	asm_place(&c->code, no);
	if (e->otherwise)
		emit_value_block(c, e->otherwise, &e->type, to);
	asm_place(&c->code, end);
}

static void emit_cast(struct compiler *c, struct trace_expr *e)
{
	const struct trace_type *t = &e->type, *from = &e->a->type;

	if (from->kind == TRACE_STRING || from->kind == TRACE_VALUES) {
		struct place p = emit_memory(c, e->a);

		asm_load(&c->code, asm_size(t->bytes), R0, p.base, p.off);
		asm_extend(&c->code, R0, t->bytes, t->is_signed);
		return;
	}
	if (t->kind == TRACE_BOOL && from->kind != TRACE_BOOL) {
		emit_truth(c, e->a);
		return;
	}
	emit_scalar(c, e->a);
	if (from->kind == TRACE_ARRAY && t->kind == TRACE_INT) {
		emit_read(c, t, from->is_user);
		return;
	}
	if (t->kind == TRACE_INT || t->kind == TRACE_ENUM_NAME)
		asm_extend(&c->code, R0, t->bytes, t->is_signed);
}

/* An element of a text or of an array that is a value itself. */
static void emit_index_of_value(struct compiler *c, struct trace_expr *e)
{
	bool is_text = e->a->type.kind == TRACE_STRING;
	u32 n = is_text ? trace_type_room(&e->a->type) : e->a->type.n, bytes = e->type.bytes;
	struct place p = emit_memory(c, e->a);
	s64 i;

	if (!check_constant(e->b, &i) || i < 0 || i >= n) {
		compile_fail(c, e->b->at, "the index into %s must be a number below %u",
			     is_text ? "a string" : "this array", is_text ? e->a->type.bytes : n);
		return;
	}
	asm_load(&c->code, asm_size(bytes), R0, p.base, (s16)(p.off + i * bytes));
	asm_extend(&c->code, R0, bytes, e->type.is_signed);
}

static u32 tuple_offset(const struct trace_type *t, u32 index)
{
	u32 off = 0;

	for (u32 i = 0; i < index; i++)
		off += trace_type_room(t->fields[i]);
	return off;
}

/* Members of `args`, of tuples and of memory. */
static void emit_field(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	if (e->a->type.kind == TRACE_TUPLE) {
		struct place p =
			place_at(emit_memory(c, e->a), tuple_offset(&e->a->type, (u32)e->number));

		if (to)
			emit_copy(c, *to, p.base, p.off, trace_type_room(&e->type));
		else
			emit_load(c, R0, p);
		return;
	}
	if (e->a->kind == TRACE_EXPR_NAME && str_same(e->a->text.data, "args") && e->a->type.is_ctx)
		emit_argument(c, e, to);
	else
		emit_behind(c, e, to);
}

static void emit_call(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	trace_calls[e->symbol].emit(c, e, to);
}

static void emit_inner(struct compiler *c, struct trace_expr *e)
{
	switch (e->kind) {
	case TRACE_EXPR_NUMBER:
	case TRACE_EXPR_BOOL:
	case TRACE_EXPR_SIZEOF:
	case TRACE_EXPR_OFFSETOF:
		asm_mov_imm(&c->code, R0, e->number);
		break;
	case TRACE_EXPR_NAME:
	case TRACE_EXPR_CALL:
		emit_call(c, e, NULL);
		break;
	case TRACE_EXPR_VARIABLE:
		emit_load(c, R0, c->variables.data[e->symbol].place);
		break;
	case TRACE_EXPR_MAP:
		emit_map_read(c, e, NULL);
		break;
	case TRACE_EXPR_UNARY:
		emit_unary(c, e);
		break;
	case TRACE_EXPR_BINARY:
		if (e->op == TRACE_OP_LAND || e->op == TRACE_OP_LOR || is_comparison(e->op))
			emit_truth(c, e);
		else
			emit_arithmetic(c, e);
		break;
	case TRACE_EXPR_TERNARY:
		emit_choice(c, e, NULL);
		break;
	case TRACE_EXPR_FIELD:
		emit_field(c, e, NULL);
		break;
	case TRACE_EXPR_INDEX:
		if (e->a->type.kind == TRACE_STRING || e->a->type.kind == TRACE_VALUES)
			emit_index_of_value(c, e);
		else
			emit_behind(c, e, NULL);
		break;
	case TRACE_EXPR_CAST:
		emit_cast(c, e);
		break;
	case TRACE_EXPR_IF:
		emit_if_value(c, e, NULL);
		break;
	case TRACE_EXPR_BLOCK:
		emit_value_block(c, e->block, &e->type, NULL);
		break;
	default:
		compile_fail(c, e->at, "this is not a number");
	}
}

void emit_scalar(struct compiler *c, struct trace_expr *e)
{
	struct mark m = emit_mark(c);
	struct trace_at outer = c->at;

	if (!compile_ok(c))
		return;
	c->at = e->at;
	emit_inner(c, e);
	c->at = outer;
	emit_reset(c, m);
}

static void emit_tuple(struct compiler *c, struct trace_expr *e, const struct trace_type *as,
		       struct place to)
{
	for (u32 i = 0; i < e->n_list; i++) {
		emit_to(c, e->list[i], as->fields[i], to);
		to = place_at(to, trace_type_room(as->fields[i]));
	}
}

static void emit_cast_to(struct compiler *c, struct trace_expr *e, struct place to)
{
	if (e->a->type.kind != TRACE_INT) {
		emit_to(c, e->a, &e->type, to);
		return;
	}
	emit_scalar(c, e->a);
	if (e->a->type.bytes < 8) /* behind the last element there are zeros */
		asm_extend(&c->code, R0, e->a->type.bytes, false);
	emit_store(c, to, R0);
}

static void emit_memory_to(struct compiler *c, struct trace_expr *e, struct place to)
{
	struct place from;

	switch (e->kind) {
	case TRACE_EXPR_STRING:
		emit_string_literal(c, &e->text, e->type.bytes, to);
		break;
	case TRACE_EXPR_NAME:
	case TRACE_EXPR_CALL:
		emit_call(c, e, &to);
		break;
	case TRACE_EXPR_VARIABLE:
		from = c->variables.data[e->symbol].place;
		emit_copy(c, to, from.base, from.off, trace_type_room(&e->type));
		break;
	case TRACE_EXPR_MAP:
		emit_map_read(c, e, &to);
		break;
	case TRACE_EXPR_FIELD:
		emit_field(c, e, &to);
		break;
	case TRACE_EXPR_INDEX:
	case TRACE_EXPR_UNARY:
		emit_behind(c, e, &to);
		break;
	case TRACE_EXPR_TERNARY:
		emit_choice(c, e, &to);
		break;
	case TRACE_EXPR_IF:
		emit_if_value(c, e, &to);
		break;
	case TRACE_EXPR_BLOCK:
		emit_value_block(c, e->block, &e->type, &to);
		break;
	case TRACE_EXPR_CAST:
		emit_cast_to(c, e, to);
		break;
	default:
		compile_fail(c, e->at, "this value cannot be used here");
	}
}

void emit_to(struct compiler *c, struct trace_expr *e, const struct trace_type *as, struct place to)
{
	u32 have = trace_type_room(&e->type), want = as ? trace_type_room(as) : have;
	struct mark m = emit_mark(c);
	struct trace_at outer = c->at;

	if (!compile_ok(c))
		return;
	c->at = e->at;
	if (e->type.kind == TRACE_NONE) {
		compile_fail(c, e->at, "this has no value");
	} else if (trace_type_is_scalar(&e->type)) {
		emit_scalar(c, e);
		if (as && as->kind == TRACE_INT && e->type.bytes > as->bytes)
			asm_extend(&c->code, R0, as->bytes, as->is_signed);
		emit_store(c, to, R0);
	} else if (e->kind == TRACE_EXPR_TUPLE || e->kind == TRACE_EXPR_NAMED_TUPLE) {
		emit_tuple(c, e, as && as->kind == TRACE_TUPLE ? as : &e->type, to);
	} else if (e->type.kind == TRACE_TUPLE && have != want) {
		struct place from = emit_memory(c, e);

		emit_copy_as(c, to, as, from, &e->type);
	} else if (want < have) {
		/* A longer text into a shorter one. */
		struct place from = emit_memory(c, e);

		emit_copy(c, to, from.base, from.off, want);
	} else {
		emit_memory_to(c, e, to);
		if (want > have)
			emit_zero(c, place_at(to, have), want - have);
	}
	c->at = outer;
	emit_reset(c, m);
}

struct place emit_memory(struct compiler *c, struct trace_expr *e)
{
	struct place p;

	if (e->kind == TRACE_EXPR_VARIABLE && e->type.kind != TRACE_NONE &&
	    c->variables.data[e->symbol].place.base != R0)
		return c->variables.data[e->symbol].place;
	p = emit_room(c, trace_type_room(&e->type));
	emit_to(c, e, &e->type, p);
	return p;
}
