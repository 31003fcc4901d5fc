// SPDX-License-Identifier: Apache-2.0
/*
 * Loops. `while` and short ranges are jumps, which the verifier follows until they end. The body of
 * a loop over a map, or over a long range, is a function that the kernel calls for each key or
 * number: its R9 is the stack of the action, where all values are, also those of the body.
 */
#include <string.h>

#include "trace/calls.h"

#define INLINE_TIMES 32	    /* a longer range is a function */
#define MAX_TIMES (1 << 23) /* of bpf_loop() */

static void emit_body(struct compiler *c, struct trace_block *b, u32 on_break, u32 on_continue)
{
	struct loop l = {.on_break = on_break, .on_continue = on_continue, .outer = c->loop};

	c->loop = &l;
	emit_block(c, b);
	c->loop = l.outer;
}

void emit_while(struct compiler *c, struct trace_statement *s)
{
	u32 again = asm_label(&c->code), end = asm_label(&c->code);
	struct mark m = emit_mark(c);

	asm_place(&c->code, again);
	emit_condition(c, s->value, false, end);
	emit_reset(c, m);
	emit_body(c, s->body, end, again);
	asm_jump(&c->code, again);
	asm_place(&c->code, end);
}

void emit_unroll(struct compiler *c, struct trace_statement *s)
{
	u32 end = asm_label(&c->code);
	s64 n = 0;

	if (!check_constant(s->value, &n) || n < 1 || n > 100) {
		compile_fail(c, s->at,
			     "unroll() takes a number from 1 to 100 that is written there");
		return;
	}
	for (s64 i = 0; i < n && compile_ok(c); i++) {
		u32 next = asm_label(&c->code);

		emit_body(c, s->body, end, next);
		asm_place(&c->code, next);
	}
	asm_place(&c->code, end);
}

static void emit_jumped_range(struct compiler *c, struct trace_statement *s)
{
	struct variable *v = &c->variables.data[s->target->symbol];
	u32 again = asm_label(&c->code), next = asm_label(&c->code), end = asm_label(&c->code);
	struct mark m = emit_mark(c);
	struct place to = emit_room(c, 8), at = emit_room(c, 8);
	s64 last;
	bool is_known = check_constant(s->end, &last) && last >= INT32_MIN && last <= INT32_MAX;

	v->place = emit_room(c, 8);
	if (!is_known) {
		emit_scalar(c, s->end);
		emit_store(c, to, R0);
	}
	emit_scalar(c, s->value);
	emit_store(c, at, R0);
	asm_place(&c->code, again);
	emit_load(c, R0, at);
	if (is_known) {
		asm_jump_if_imm(&c->code, BPF_JSGE, R0, (s32)last, end);
	} else {
		emit_load(c, R1, to);
		asm_jump_if(&c->code, BPF_JSGE, R0, R1, end);
	}
	emit_store(c, v->place, R0); /* the script may change its copy */
	emit_body(c, s->body, end, next);
	asm_place(&c->code, next);
	emit_load(c, R0, at);
	asm_alu_imm(&c->code, BPF_ADD, R0, 1);
	emit_store(c, at, R0);
	asm_jump(&c->code, again);
	asm_place(&c->code, end);
	emit_reset(c, m);
}

void emit_jump_out(struct compiler *c, struct trace_statement *s)
{
	if (!c->loop) {
		compile_fail(c, s->at, "there is no loop around this");
		return;
	}
	asm_jump(&c->code,
		 s->kind == TRACE_STATEMENT_BREAK ? c->loop->on_break : c->loop->on_continue);
}

/* ---- loops whose bodies are functions ---- */

/* What is on around the function, while its body is emitted. */
struct around {
	struct asm_code code;
	struct loop *loop;
	u32 on_exit;
	u8 frame;
	bool uses_scratch;
	u32 on_break, on_continue;
};

static void rebase_variables(struct compiler *c, u8 from, u8 to)
{
	vec_foreach (&c->variables, v)
		if (v->place.base == from)
			v->place.base = to;
}

static void function_begin(struct compiler *c, struct around *a)
{
	*a = (struct around){.code = c->code,
			     .loop = c->loop,
			     .on_exit = c->on_exit,
			     .frame = c->frame,
			     .uses_scratch = c->uses_scratch};
	c->code = (struct asm_code){};
	c->frame = R9;
	c->function_depth++;
	a->on_break = asm_label(&c->code);
	a->on_continue = asm_label(&c->code);
	c->on_exit = asm_label(&c->code);
	rebase_variables(c, R10, R9);
}

/* A function returns 0 to go on, 1 to end the loop. Returns its number. */
static u32 function_end(struct compiler *c, struct around *a, u8 outer, bool *ret_uses_scratch)
{
	struct asm_code body, *code = &c->code;

	asm_place(code, a->on_continue);
	asm_mov_imm(code, R0, 0);
	asm_exit(code);
	asm_place(code, c->on_exit);
	asm_store_imm(code, BPF_DW, R9, SLOT_LEFT, 1);
	asm_place(code, a->on_break);
	asm_mov_imm(code, R0, 1);
	asm_exit(code);

	body = c->code;
	c->code = (struct asm_code){};
	asm_mov(&c->code, R9, outer);
	asm_load(&c->code, BPF_DW, R6, R9, SLOT_CONTEXT);
	if (c->uses_scratch)
		asm_load(&c->code, BPF_DW, R7, R9, SLOT_SCRATCH);
	asm_append(&c->code, &body);
	asm_deinit(&body);
	if (!c->error)
		c->error = vec_push(&c->functions, c->code);
	if (c->error)
		asm_deinit(&c->code);
	*ret_uses_scratch = c->uses_scratch;
	c->function_depth--;
	if (a->frame == R10)
		rebase_variables(c, R9, R10);
	c->code = a->code;
	c->loop = a->loop;
	c->on_exit = a->on_exit;
	c->frame = a->frame;
	c->uses_scratch = a->uses_scratch || *ret_uses_scratch;
	return (u32)c->functions.n - 1;
}

/* Before the call: what the function needs; after it: did the body say `return`? */
static void emit_before_calls(struct compiler *c, bool uses_scratch)
{
	asm_store(&c->code, BPF_DW, c->frame, SLOT_CONTEXT, R6);
	if (uses_scratch)
		asm_store(&c->code, BPF_DW, c->frame, SLOT_SCRATCH, R7);
	asm_store_imm(&c->code, BPF_DW, c->frame, SLOT_LEFT, 0);
}

static void emit_after_calls(struct compiler *c)
{
	asm_load(&c->code, BPF_DW, R0, c->frame, SLOT_LEFT);
	asm_jump_if_imm(&c->code, BPF_JNE, R0, 0, c->on_exit);
}

bool emit_range_is_called(const struct compiler *c, const struct trace_statement *s)
{
	s64 first, last;

	return c->target->has_loop &&
	       !(check_constant(s->value, &first) && check_constant(s->end, &last) &&
		 last - first <= INLINE_TIMES);
}

/* The body for one number: R1 is the index, R2 the stack of the action. */
static void emit_called_range(struct compiler *c, struct trace_statement *s)
{
	struct variable *v = &c->variables.data[s->target->symbol];
	struct mark m = emit_mark(c);
	struct place first = emit_room(c, 8), number = emit_room(c, 8), at;
	u32 none = asm_label(&c->code), fits = asm_label(&c->code), function;
	struct around around;
	bool uses_scratch;

	emit_scalar(c, s->value);
	emit_store(c, first, R0);
	emit_scalar(c, s->end);
	emit_load(c, R1, first);
	asm_jump_if(&c->code, BPF_JSLE, R0, R1, none);
	asm_alu(&c->code, BPF_SUB, R0, R1);
	asm_jump_if_imm(&c->code, BPF_JLE, R0, MAX_TIMES, fits);
	asm_mov_imm(&c->code, R0, MAX_TIMES);
	asm_place(&c->code, fits);
	emit_store(c, number, R0);

	function_begin(c, &around);
	at = emit_room(c, 8);
	first.base = first.base == R10 ? R9 : first.base;
	emit_load(c, R0, first);
	asm_alu(&c->code, BPF_ADD, R0, R1);
	v->place = at;
	emit_store(c, at, R0);
	emit_body(c, s->body, around.on_break, around.on_continue);
	v->place = (struct place){};
	function = function_end(c, &around, R2, &uses_scratch);

	emit_before_calls(c, uses_scratch);
	emit_load(c, R1, number);
	asm_function(&c->code, R2, function);
	asm_mov(&c->code, R3, c->frame);
	asm_mov_imm(&c->code, R4, 0);
	asm_call(&c->code, HELPER_LOOP);
	emit_after_calls(c);
	asm_place(&c->code, none);
	emit_reset(c, m);
}

void emit_for_range(struct compiler *c, struct trace_statement *s)
{
	if (emit_range_is_called(c, s) && c->function_depth < MAX_FUNCTION_DEPTH)
		emit_called_range(c, s);
	else
		emit_jumped_range(c, s);
}

/* The kernel says how many keys it has called the function for. */
void emit_len(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct asm_code nothing = {};

	if (!c->target->has_for_each) {
		compile_fail(c, e->at, "this kernel cannot walk maps before Linux 5.13");
		return;
	}
	asm_mov_imm(&nothing, R0, 0);
	asm_exit(&nothing);
	if (!c->error)
		c->error = nothing.error ? nothing.error : vec_push(&c->functions, nothing);
	asm_map(&c->code, R1, TRACE_MAPS_OWN + e->list[0]->symbol);
	asm_function(&c->code, R2, (u32)c->functions.n - 1);
	asm_mov_imm(&c->code, R3, 0);
	asm_mov_imm(&c->code, R4, 0);
	asm_call(&c->code, HELPER_FOR_EACH);
}

/* The pair of key and value: R2 is the key, R8 the value. */
static void emit_pair_of_map(struct compiler *c, struct trace_statement *s, struct place pair)
{
	struct trace_map *m = &c->program->maps.data[s->value->symbol];
	struct place value = place_at(pair, trace_type_room(&m->key));

	emit_copy(c, pair, R2, 0, trace_type_room(&m->key));
	if (!m->per_cpu) {
		emit_copy(c, value, R8, 0, trace_type_room(&m->value));
		return;
	}
	emit_gather(c, s->value, pair);
	emit_store(c, value, R0);
}

/* R1 is the map, R2 the key, R3 the value, R4 the stack of the action. */
void emit_for_map(struct compiler *c, struct trace_statement *s)
{
	struct variable *v = &c->variables.data[s->target->symbol];
	struct mark m = emit_mark(c);
	struct around around;
	struct place pair;
	u32 function;
	bool uses_scratch;

	if (!c->target->has_for_each) {
		compile_fail(c, s->at, "this kernel cannot walk maps before Linux 5.13");
		return;
	}
	if (c->function_depth >= MAX_FUNCTION_DEPTH) {
		compile_fail(c, s->at, "loops over maps can be %u deep", MAX_FUNCTION_DEPTH);
		return;
	}
	function_begin(c, &around);
	pair = emit_room(c, trace_type_room(&v->type));
	asm_mov(&c->code, R8, R3);
	v->place = pair;
	emit_pair_of_map(c, s, pair);
	emit_body(c, s->body, around.on_break, around.on_continue);
	v->place = (struct place){};
	function = function_end(c, &around, R4, &uses_scratch);

	emit_before_calls(c, uses_scratch);
	asm_map(&c->code, R1, TRACE_MAPS_OWN + s->value->symbol);
	asm_function(&c->code, R2, function);
	asm_mov(&c->code, R3, c->frame);
	asm_mov_imm(&c->code, R4, 0);
	asm_call(&c->code, HELPER_FOR_EACH);
	emit_after_calls(c);
	emit_reset(c, m);
}
