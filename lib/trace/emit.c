// SPDX-License-Identifier: Apache-2.0
/*
 * Actions and statements.
 *
 *	stack    8 bytes for keys of the compiler's own, 8 for the address of the struct
 *		 trace_stacks, then what emit_room() hands out: at most STACK_MAX bytes
 *	scratch  what does not fit there. An action that needs none takes none
 */
#include <stdio.h>
#include <string.h>

#include "trace/compile.h"

#define STACK_VALUE 64 /* a longer value is in the scratch, so that the stack has room for others */

/* ---- room ---- */

struct mark emit_mark(const struct compiler *c)
{
	return (struct mark){c->stack, c->scratch};
}

void emit_reset(struct compiler *c, struct mark m)
{
	c->stack = m.stack;
	c->scratch = m.scratch;
}

struct place emit_room(struct compiler *c, u32 bytes)
{
	struct place p;

	bytes = (bytes + 7) / 8 * 8;
	if (bytes <= STACK_VALUE &&
	    c->stack + bytes <= (c->has_functions ? STACK_MAX_SHARED : STACK_MAX)) {
		c->stack += bytes;
		return (struct place){c->frame, (s16)-c->stack};
	}
	c->uses_scratch = true;
	if (bytes > SCRATCH_MAX || SCRATCH_ZEROS + c->zeros + c->scratch + bytes > SCRATCH_MAX) {
		compile_fail(c, c->probe->at, "the values of this action need more than %u bytes",
			     SCRATCH_MAX);
		return (struct place){R7, SCRATCH_ZEROS};
	}
	p = (struct place){R7, (s16)(SCRATCH_ZEROS + c->zeros + c->scratch)};
	c->scratch += bytes;
	c->scratch_used = MAX(c->scratch_used, c->scratch);
	return p;
}

struct place place_at(struct place p, u32 off)
{
	return (struct place){p.base, (s16)(p.off + (s32)off)};
}

void emit_address(struct compiler *c, u8 reg, struct place p)
{
	asm_mov(&c->code, reg, p.base);
	if (p.off)
		asm_alu_imm(&c->code, BPF_ADD, reg, p.off);
}

void emit_load(struct compiler *c, u8 reg, struct place p)
{
	asm_load(&c->code, BPF_DW, reg, p.base, p.off);
}

void emit_store(struct compiler *c, struct place p, u8 reg)
{
	asm_store(&c->code, BPF_DW, p.base, p.off, reg);
}

#define INLINE_BYTES 128 /* longer copies are a call */

void emit_zero(struct compiler *c, struct place p, u32 bytes)
{
	if (bytes > INLINE_BYTES && bytes <= c->zeros) {
		c->uses_scratch = true;
		emit_copy(c, p, R7, SCRATCH_ZEROS, bytes);
		return;
	}
	for (u32 i = 0; i < bytes; i += 8)
		asm_store_imm(&c->code, BPF_DW, p.base, (s16)(p.off + (s32)i), 0);
}

void emit_copy(struct compiler *c, struct place to, u8 base, s16 off, u32 bytes)
{
	if (to.base == base && to.off == off)
		return;
	if (bytes > INLINE_BYTES) {
		asm_mov(&c->code, R3, base);
		asm_alu_imm(&c->code, BPF_ADD, R3, off);
		emit_address(c, R1, to);
		asm_mov_imm(&c->code, R2, bytes);
		asm_call(&c->code, HELPER_PROBE_READ);
		return;
	}
	for (u32 i = 0; i < bytes; i += 8) {
		asm_load(&c->code, BPF_DW, R1, base, (s16)(off + (s32)i));
		asm_store(&c->code, BPF_DW, to.base, (s16)(to.off + (s32)i), R1);
	}
}

void emit_copy_as(struct compiler *c, struct place to, const struct trace_type *to_type,
		  struct place from, const struct trace_type *from_type)
{
	u32 have = trace_type_room(from_type), want = trace_type_room(to_type);

	if (to_type->kind == TRACE_TUPLE && from_type->kind == TRACE_TUPLE && have != want) {
		u32 t = 0, f = 0;

		for (u32 i = 0; i < to_type->n && i < from_type->n; i++) {
			emit_copy_as(c, place_at(to, t), to_type->fields[i], place_at(from, f),
				     from_type->fields[i]);
			t += trace_type_room(to_type->fields[i]);
			f += trace_type_room(from_type->fields[i]);
		}
		return;
	}
	emit_copy(c, to, from.base, from.off, MIN(have, want));
	if (want > have)
		emit_zero(c, place_at(to, have), want - have);
}

/* ---- losses ---- */

void emit_lost(struct compiler *c, enum trace_loss loss)
{
	u32 none = asm_label(&c->code);

	asm_call(&c->code, HELPER_CPU);
	if (loss)
		asm_alu_imm(&c->code, BPF_ADD, R0, (s32)(loss * c->target->cpus));
	asm_store(&c->code, BPF_W, R10, SLOT_KEY, R0);
	asm_map(&c->code, R1, TRACE_MAP_LOST);
	asm_mov(&c->code, R2, R10);
	asm_alu_imm(&c->code, BPF_ADD, R2, SLOT_KEY);
	asm_call(&c->code, HELPER_MAP_LOOKUP);
	asm_jump_if_imm(&c->code, BPF_JEQ, R0, 0, none);
	asm_mov_imm(&c->code, R1, 1);
	asm_add_memory(&c->code, R0, 0, R1);
	asm_place(&c->code, none);
}

/* ---- statements ---- */

static void emit_variable_room(struct compiler *c, struct variable *v)
{
	if (v->place.base == R0)
		v->place = emit_room(c, trace_type_room(&v->type));
}

static void emit_whole_variables(struct compiler *c)
{
	vec_foreach (&c->variables, v) {
		if (!v->is_whole || v->type.kind == TRACE_NONE)
			continue;
		emit_variable_room(c, v);
		emit_zero(c, v->place, trace_type_room(&v->type));
	}
}

static void emit_assign_variable(struct compiler *c, struct trace_statement *s)
{
	struct variable *v = &c->variables.data[s->target->symbol];
	struct mark m;

	emit_variable_room(c, v);
	m = emit_mark(c);
	if (s->op != TRACE_OP_NONE) {
		struct trace_expr sum = {.kind = TRACE_EXPR_BINARY,
					 .op = s->op,
					 .at = s->at,
					 .a = s->target,
					 .b = s->value,
					 .type = v->type};

		emit_scalar(c, &sum);
		if (v->type.kind == TRACE_INT)
			asm_extend(&c->code, R0, v->type.bytes, v->type.is_signed);
		emit_store(c, v->place, R0);
	} else {
		emit_to(c, s->value, &v->type, v->place);
	}
	emit_reset(c, m);
}

static void emit_let(struct compiler *c, struct trace_statement *s)
{
	struct variable *v = &c->variables.data[s->target->symbol];

	if (v->type.kind == TRACE_NONE)
		return; /* never used */
	emit_variable_room(c, v);
	if (s->value)
		emit_assign_variable(c, s);
	else
		emit_zero(c, v->place, trace_type_room(&v->type));
}

static void emit_if(struct compiler *c, struct trace_statement *s)
{
	struct trace_block *only;
	struct mark m = emit_mark(c);
	u32 otherwise, end;

	if (check_branch(s, &only)) {
		if (only)
			emit_block(c, only);
		return;
	}
	otherwise = asm_label(&c->code);
	end = asm_label(&c->code);
	emit_condition(c, s->value, false, otherwise);
	emit_reset(c, m);
	if (s->body)
		emit_block(c, s->body);
	if (s->otherwise)
		asm_jump(&c->code, end);
	asm_place(&c->code, otherwise);
	if (s->otherwise)
		emit_block(c, s->otherwise);
	asm_place(&c->code, end);
}

static void emit_value(struct compiler *c, struct trace_expr *e)
{
	struct mark m = emit_mark(c);

	if (e->type.kind == TRACE_NONE || trace_type_is_scalar(&e->type))
		emit_scalar(c, e);
	else
		emit_memory(c, e);
	emit_reset(c, m);
}

static void emit_statement(struct compiler *c, struct trace_statement *s)
{
	switch (s->kind) {
	case TRACE_STATEMENT_EXPR:
		emit_value(c, s->value);
		break;
	case TRACE_STATEMENT_ASSIGN:
		if (s->target->kind == TRACE_EXPR_MAP) {
			struct mark m = emit_mark(c);

			emit_map_assign(c, s);
			emit_reset(c, m);
			break;
		}
		emit_assign_variable(c, s);
		break;
	case TRACE_STATEMENT_LET:
		emit_let(c, s);
		break;
	case TRACE_STATEMENT_IF:
		emit_if(c, s);
		break;
	case TRACE_STATEMENT_WHILE:
		emit_while(c, s);
		break;
	case TRACE_STATEMENT_UNROLL:
		emit_unroll(c, s);
		break;
	case TRACE_STATEMENT_FOR_RANGE:
		emit_for_range(c, s);
		break;
	case TRACE_STATEMENT_FOR_MAP:
		emit_for_map(c, s);
		break;
	case TRACE_STATEMENT_BREAK:
	case TRACE_STATEMENT_CONTINUE:
		emit_jump_out(c, s);
		break;
	case TRACE_STATEMENT_RETURN:
		asm_jump(&c->code, c->on_exit);
		break;
	case TRACE_STATEMENT_BLOCK:
		emit_block(c, s->body);
		break;
	}
}

void emit_block(struct compiler *c, struct trace_block *b)
{
	struct mark m = emit_mark(c);

	for (struct trace_statement *s = b->first; s && compile_ok(c); s = s->next)
		emit_statement(c, s);
	emit_reset(c, m);
}

/* ---- levels of the scratch and of the stacks ---- */

/*
 * A loop over the levels of this CPU in `map`: R0 is the entry; jumps to `none` if there is none.
 * R8 and R9 are the loop's. Returns what emit_levels_end() needs.
 */
static u32 emit_levels_begin(struct compiler *c, u32 map, u32 none)
{
	struct asm_code *a = &c->code;
	u32 again = asm_label(a);

	asm_call(a, HELPER_CPU);
	asm_mov(a, R8, R0);
	asm_alu_imm(a, BPF_MUL, R8, TRACE_LEVELS);
	asm_mov_imm(a, R9, 0);
	asm_place(a, again);
	asm_mov(a, R1, R8);
	asm_alu(a, BPF_ADD, R1, R9);
	asm_store(a, BPF_W, R10, SLOT_KEY, R1);
	asm_map(a, R1, map);
	asm_mov(a, R2, R10);
	asm_alu_imm(a, BPF_ADD, R2, SLOT_KEY);
	asm_call(a, HELPER_MAP_LOOKUP);
	asm_jump_if_imm(a, BPF_JEQ, R0, 0, none);
	return again;
}

/* The next level; jumps to `none` after the last. */
static void emit_levels_end(struct compiler *c, u32 again, u32 none)
{
	struct asm_code *a = &c->code;

	asm_alu_imm(a, BPF_ADD, R9, 1);
	asm_jump_if_imm(a, BPF_JLT, R9, TRACE_LEVELS, again);
	asm_jump(a, none);
}

/*
 * reg = a free entry of `map` for this CPU; jumps to `none` if there is none. Kernels
 * before 5.12 have no atomic operation that returns the old value: an action adds 1 and then reads,
 * and goes on to the next level unless it is alone. For TRACE_MAP_STACKS R7 is the owner, which may
 * not have a level yet. Clobbers R0 to R5, R8 and R9.
 */
static void emit_take(struct compiler *c, u8 reg, u32 map, u32 none)
{
	struct asm_code *a = &c->code;
	u32 taken = asm_label(a), again = emit_levels_begin(c, map, none);

	if (map == TRACE_MAP_STACKS) {
		asm_load(a, BPF_DW, R1, R0, offsetof(struct trace_stacks, owner));
		asm_jump_if(a, BPF_JEQ, R1, R7, none);
	}
	asm_mov(a, reg, R0);
	asm_mov_imm(a, R1, 1);
	asm_add_memory(a, reg, 0, R1);
	asm_load(a, BPF_DW, R1, reg, 0);
	asm_jump_if_imm(a, BPF_JEQ, R1, 1, taken);
	asm_mov_imm(a, R1, -1);
	asm_add_memory(a, reg, 0, R1);
	emit_levels_end(c, again, none);
	asm_place(a, taken);
}

static void emit_give_back(struct compiler *c, u8 reg)
{
	asm_mov_imm(&c->code, R1, -1);
	asm_add_memory(&c->code, reg, 0, R1);
}

/* R0 = what the level of an action is owned by. */
static void emit_owner(struct compiler *c)
{
	asm_call(&c->code, HELPER_TASK);
	asm_alu_imm(&c->code, BPF_ADD, R0, (s32)c->facts.type);
}

/* At a uretprobe the function has returned; at an instruction that returns it has not. */
static bool is_after_call(const struct compiler *c)
{
	return c->facts.is_return && c->facts.is_user && !c->point->is_return_insn;
}

/* The end of the first half: takes an entry of TRACE_MAP_STACKS, and jumps to the walk. */
static void emit_enter_walk(struct compiler *c, u32 code)
{
	struct asm_code *a = &c->code;
	u32 none = asm_label(a), end = asm_label(a);

	emit_owner(c);
	asm_mov(a, R7, R0);
	emit_take(c, R0, TRACE_MAP_STACKS, none);
	asm_mov(a, R8, R0);
	asm_store(a, BPF_DW, R8, offsetof(struct trace_stacks, owner), R7);
	asm_store_imm(a, BPF_DW, R8, offsetof(struct trace_stacks, kernel), 0);
	asm_store_imm(a, BPF_DW, R8, offsetof(struct trace_stacks, user), 0);
	asm_store_imm(a, BPF_W, R8, offsetof(struct trace_stacks, next), 1 + (s32)code);
	asm_store_imm(a, BPF_W, R8, offsetof(struct trace_stacks, wants),
		      (s32)(c->wants | (is_after_call(c) ? TRACE_AFTER_CALL : 0)));
	asm_mov(a, R1, R6);
	asm_map(a, R2, TRACE_MAP_ENTER);
	asm_mov_imm(a, R3, 0);
	asm_call(a, HELPER_TAIL_CALL);
	/* The call has failed. */
	asm_store_imm(a, BPF_DW, R8, offsetof(struct trace_stacks, owner), 0);
	emit_give_back(c, R8);
	emit_lost(c, TRACE_LOST_WALK);
	asm_jump(a, end);
	asm_place(a, none);
	emit_lost(c, TRACE_LOST_NESTED);
	asm_place(a, end);
}

/* The beginning of the second half: finds the entry of this event. */
static void emit_find_stacks(struct compiler *c, u32 out)
{
	struct asm_code *a = &c->code;
	u32 found = asm_label(a), again;

	emit_owner(c);
	asm_mov(a, R7, R0);
	again = emit_levels_begin(c, TRACE_MAP_STACKS, out);
	asm_load(a, BPF_DW, R1, R0, offsetof(struct trace_stacks, owner));
	asm_jump_if(a, BPF_JEQ, R1, R7, found);
	emit_levels_end(c, again, out);
	asm_place(a, found);
	asm_store(a, BPF_DW, R10, SLOT_STACKS, R0);
}

static void emit_release_stacks(struct compiler *c)
{
	asm_load(&c->code, BPF_DW, R2, R10, SLOT_STACKS);
	asm_store_imm(&c->code, BPF_DW, R2, offsetof(struct trace_stacks, owner), 0);
	emit_give_back(c, R2);
}

/* ---- actions ---- */

enum half { WHOLE, FIRST_HALF, SECOND_HALF };

static void drop_functions(struct compiler *c)
{
	vec_foreach (&c->functions, f)
		asm_deinit(f);
	vec_clear(&c->functions);
}

/* Puts the bodies of loops behind the action, and their places into what loads their addresses. */
static void append_functions(struct compiler *c)
{
	vec(s32) starts = {};

	if (!compile_ok(c)) {
		drop_functions(c);
		return;
	}
	vec_foreach (&c->functions, f) {
		if (!c->code.error)
			c->code.error = vec_push(&starts, (s32)c->code.insns.n);
		asm_append(&c->code, f);
	}
	for (size_t i = 0; !c->code.error && i < c->code.insns.n; i++) {
		struct bpf_insn *insn = &c->code.insns.data[i];

		if (asm_is_function(insn))
			insn->imm = starts.data[insn->imm] - (s32)i - 1;
	}
	vec_deinit(&starts);
	drop_functions(c);
}

static void reset_code(struct compiler *c)
{
	asm_deinit(&c->code);
	c->code = (struct asm_code){};
	c->stack = STACK_FIRST;
	c->scratch = 0;
	c->uses_scratch = false;
	c->loop = NULL;
	c->frame = R10;
	drop_functions(c);
	vec_foreach (&c->variables, v)
		v->place = (struct place){};
}

static void emit_end(struct compiler *c)
{
	asm_mov_imm(&c->code, R0, 0);
	asm_exit(&c->code);
}

static void emit_predicate(struct compiler *c)
{
	struct mark m = emit_mark(c);

	if (!c->probe->predicate)
		return;
	c->is_predicate = true;
	emit_condition(c, c->probe->predicate, false, c->on_exit);
	c->is_predicate = false;
	emit_reset(c, m);
}

/* The scratch is given back before the walk. */
static void emit_to_walk(struct compiler *c, u32 code)
{
	u32 walk = asm_label(&c->code);

	asm_jump(&c->code, walk);
	asm_place(&c->code, c->on_exit);
	if (c->uses_scratch)
		emit_give_back(c, R7);
	emit_end(c);
	asm_place(&c->code, walk);
	if (c->uses_scratch)
		emit_give_back(c, R7);
	emit_enter_walk(c, code);
	emit_end(c);
}

static void emit_statements(struct compiler *c, enum half half)
{
	emit_whole_variables(c);
	if (c->probe->body)
		emit_block(c, c->probe->body);
	asm_place(&c->code, c->on_exit);
	if (c->uses_scratch)
		emit_give_back(c, R7);
	if (half == SECOND_HALF)
		emit_release_stacks(c);
	emit_end(c);
}

/* Takes what the action needs, which is known once it has been emitted. */
static void emit_beginning(struct compiler *c, enum half half)
{
	u32 out = asm_label(&c->code), none = asm_label(&c->code), go = asm_label(&c->code);

	asm_mov(&c->code, R6, R1);
	/* The last call of an iterator has no object, which stands behind `meta`. */
	if (c->facts.context == TRACE_CONTEXT_ITER) {
		asm_load(&c->code, BPF_DW, R1, R6, 8);
		asm_jump_if_imm(&c->code, BPF_JEQ, R1, 0, out);
	}
	if (half == SECOND_HALF)
		emit_find_stacks(c, out);
	if (c->uses_scratch)
		emit_take(c, R7, TRACE_MAP_SCRATCH, none);
	asm_jump(&c->code, go);
	asm_place(&c->code, none);
	emit_lost(c, TRACE_LOST_NESTED);
	if (half == SECOND_HALF)
		emit_release_stacks(c);
	asm_place(&c->code, out);
	emit_end(c);
	asm_place(&c->code, go);
}

static void emit_half(struct compiler *c, enum half half, u32 code)
{
	struct asm_code body;

	reset_code(c);
	c->on_exit = asm_label(&c->code);
	if (half != SECOND_HALF)
		emit_predicate(c);
	if (half == FIRST_HALF)
		emit_to_walk(c, code);
	else
		emit_statements(c, half);

	body = c->code;
	c->code = (struct asm_code){};
	emit_beginning(c, half);
	asm_append(&c->code, &body);
	asm_deinit(&body);
	append_functions(c);
	if (!c->error)
		c->error = asm_finish(&c->code);
	if (c->error == -E2BIG)
		diag_set(c->diag, -E2BIG,
			 "%u:%u: this action is too long: %u instructions are the limit",
			 c->probe->at.line, c->probe->at.column, ASM_MAX_INSNS);
}

static struct bpf_insn *keep_insns(struct compiler *c, u32 *ret_n)
{
	size_t bytes = c->code.insns.n * sizeof(struct bpf_insn);
	struct bpf_insn *kept = arena_alloc(&c->program->arena, bytes);

	if (!kept || c->error) {
		c->error = c->error ? c->error : -ENOMEM;
		return NULL;
	}
	memcpy(kept, c->code.insns.data, bytes);
	*ret_n = (u32)c->code.insns.n;
	return kept;
}

static bool same_insns(const struct bpf_insn *a, u32 n, const struct bpf_insn *b, u32 m)
{
	return n == m && (!n || memcmp(a, b, n * sizeof(*a)) == 0);
}

u32 emit_point(struct compiler *c)
{
	struct trace_code code = {};
	u32 index = (u32)c->program->codes.n;

	c->wants = 0;
	c->uses_point = false;
	emit_half(c, WHOLE, index);
	if (!c->error && c->wants) {
		emit_half(c, FIRST_HALF, index);
		code.first = keep_insns(c, &code.n_first);
		if (!c->error)
			emit_half(c, SECOND_HALF, index);
		code.second = keep_insns(c, &code.n_second);
		code.wants = c->wants;
	} else {
		code.first = keep_insns(c, &code.n_first);
	}
	if (c->error)
		return 0;
	for (u32 i = 0; !code.second && i < index; i++) {
		struct trace_code *old = &c->program->codes.data[i];

		if (!old->second && same_insns(old->first, old->n_first, code.first, code.n_first))
			return i;
	}
	if (vec_push(&c->program->codes, code) < 0)
		c->error = -ENOMEM;
	return index;
}
