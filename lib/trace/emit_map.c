// SPDX-License-Identifier: Apache-2.0
/*
 * Maps. A value that actions change in place is entered as zeros first, without replacing one that
 * another CPU has entered meanwhile, and is then found: no update is lost.
 */
#include <string.h>

#include "trace/compile.h"

static struct trace_map *map_of(struct compiler *c, const struct trace_expr *e)
{
	return &c->program->maps.data[e->symbol];
}

static void emit_map_address(struct compiler *c, u8 reg, const struct trace_expr *e)
{
	asm_map(&c->code, reg, TRACE_MAPS_OWN + e->symbol);
}

struct place emit_map_key(struct compiler *c, struct trace_map *m, struct trace_expr **list, u32 n)
{
	const struct trace_type *k = &m->key;
	struct place key, at;

	if (m->is_scalar) {
		key = emit_room(c, 8);
		asm_store_imm(&c->code, BPF_DW, key.base, key.off, 0);
		return key;
	}
	if (n == 1 && !trace_type_is_scalar(&list[0]->type) &&
	    trace_type_room(&list[0]->type) == trace_type_room(k) && k->kind != TRACE_TUPLE)
		return emit_memory(c, list[0]);
	key = emit_room(c, trace_type_room(k));
	if (n == 1) {
		emit_to(c, list[0], k, key);
		return key;
	}
	at = key;
	for (u32 i = 0; i < n && i < k->n; i++) {
		emit_to(c, list[i], k->fields[i], at);
		at = place_at(at, trace_type_room(k->fields[i]));
	}
	return key;
}

/* R0 = bpf_map_lookup_elem() */
static void emit_find(struct compiler *c, const struct trace_expr *e, struct place key)
{
	emit_map_address(c, R1, e);
	emit_address(c, R2, key);
	asm_call(&c->code, HELPER_MAP_LOOKUP);
}

void emit_map_lookup(struct compiler *c, struct trace_expr *e)
{
	struct mark m = emit_mark(c);

	emit_find(c, e, emit_map_key(c, map_of(c, e), e->list, e->n_list));
	emit_reset(c, m);
}

/* R0 = the value, which is entered as zeros if it is not there. Jumps to `none` if it cannot be. */
static void emit_ensure(struct compiler *c, const struct trace_expr *e, struct place key, u32 none)
{
	struct trace_map *m = map_of(c, e);
	u32 bytes = trace_type_room(&m->value), have = asm_label(&c->code);
	struct mark mark = emit_mark(c);

	emit_find(c, e, key);
	asm_jump_if_imm(&c->code, BPF_JNE, R0, 0, have);
	if (!m->is_scalar) {
		struct place zeros = {R7, SCRATCH_ZEROS};

		if (bytes <= 16) {
			zeros = emit_room(c, bytes);
			emit_zero(c, zeros, bytes);
		}
		c->uses_scratch |= zeros.base == R7;
		emit_map_address(c, R1, e);
		emit_address(c, R2, key);
		emit_address(c, R3, zeros);
		asm_mov_imm(&c->code, R4, BPF_NOEXIST);
		asm_call(&c->code, HELPER_MAP_UPDATE);
		emit_find(c, e, key);
		asm_jump_if_imm(&c->code, BPF_JNE, R0, 0, have);
	}
	emit_lost(c, TRACE_LOST_MAP);
	asm_jump(&c->code, none);
	asm_place(&c->code, have);
	emit_reset(c, mark);
}

/* ---- reading ---- */

/* R1 = the value of the CPU, R2 = what is beside it: adds it, or keeps the least or largest. */
static void emit_gather_one(struct compiler *c, const struct trace_type *t, struct place sum,
			    struct place n)
{
	struct asm_code *a = &c->code;
	bool is_min = t->kind == TRACE_MIN;
	u8 better =
		is_min ? (t->is_signed ? BPF_JSLT : BPF_JLT) : (t->is_signed ? BPF_JSGT : BPF_JGT);
	u32 take = asm_label(a), leave = asm_label(a);

	if (t->kind != TRACE_MIN && t->kind != TRACE_MAX) {
		asm_add_memory(a, sum.base, sum.off, R1);
		if (t->kind == TRACE_AVG || t->kind == TRACE_STATS)
			asm_add_memory(a, n.base, n.off, R2);
		return;
	}
	asm_jump_if_imm(a, BPF_JEQ, R2, 0, leave);
	emit_load(c, R2, n);
	asm_jump_if_imm(a, BPF_JEQ, R2, 0, take);
	emit_load(c, R2, sum);
	asm_jump_if(a, better, R1, R2, take);
	asm_jump(a, leave);
	asm_place(a, take);
	emit_store(c, sum, R1);
	asm_mov_imm(a, R1, 1);
	emit_store(c, n, R1);
	asm_place(a, leave);
}

/* R0 = the values of all CPUs in one number, as the kind says. R8 is the CPU. */
void emit_gather(struct compiler *c, struct trace_expr *e, struct place key)
{
	struct asm_code *a = &c->code;
	const struct trace_type *t = &map_of(c, e)->value;
	u32 again = asm_label(a), next = asm_label(a);
	struct place sum = emit_room(c, 8), n = emit_room(c, 8);

	if (!c->target->has_lookup_percpu) {
		compile_fail(c, e->at,
			     "the value of %s cannot be read here before Linux 5.19: print it",
			     trace_type_text(&c->types, t));
		return;
	}
	emit_zero(c, sum, 8);
	emit_zero(c, n, 8);
	asm_mov_imm(a, R8, 0);
	asm_place(a, again);
	emit_map_address(c, R1, e);
	emit_address(c, R2, key);
	asm_mov(a, R3, R8);
	asm_call(a, HELPER_LOOKUP_PERCPU);
	asm_jump_if_imm(a, BPF_JEQ, R0, 0, next);
	asm_load(a, BPF_DW, R1, R0, 0);
	if (trace_type_room(t) > 8)
		asm_load(a, BPF_DW, R2, R0, 8);
	emit_gather_one(c, t, sum, n);
	asm_place(a, next);
	asm_alu_imm(a, BPF_ADD, R8, 1);
	asm_jump_if_imm(a, BPF_JLT, R8, (s32)c->target->cpus, again);
	emit_load(c, R0, sum);
	if (t->kind == TRACE_AVG || t->kind == TRACE_STATS) {
		emit_load(c, R1, n);
		emit_divide(c, t->is_signed, false);
	}
}

/* A key that is not there reads as 0 or as an empty text. */
void emit_map_read(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct trace_map *m = map_of(c, e);
	u32 none = asm_label(&c->code), end = asm_label(&c->code), bytes;
	struct mark mark = emit_mark(c);

	if (trace_type_is_table(&m->value)) {
		compile_fail(c, e->at, "@%s is a %s: only print() can read it", m->name,
			     trace_type_text(&c->types, &m->value));
		return;
	}
	if (trace_type_is_aggregation(&m->value)) {
		emit_gather(c, e, emit_map_key(c, m, e->list, e->n_list));
		emit_reset(c, mark);
		return;
	}
	emit_find(c, e, emit_map_key(c, m, e->list, e->n_list));
	bytes = trace_type_room(&m->value);
	if (!to) {
		/* R0 is 0 if there is none. */
		asm_jump_if_imm(&c->code, BPF_JEQ, R0, 0, end);
		asm_load(&c->code, BPF_DW, R0, R0, 0);
		asm_place(&c->code, end);
		emit_reset(c, mark);
		return;
	}
	asm_jump_if_imm(&c->code, BPF_JEQ, R0, 0, none);
	emit_copy(c, *to, R0, 0, bytes);
	asm_jump(&c->code, end);
	asm_place(&c->code, none);
	emit_zero(c, *to, bytes);
	asm_place(&c->code, end);
	emit_reset(c, mark);
}

/* ---- writing ---- */

static void emit_update(struct compiler *c, struct trace_expr *e, struct place key,
			struct place value)
{
	u32 done = asm_label(&c->code);

	emit_map_address(c, R1, e);
	emit_address(c, R2, key);
	emit_address(c, R3, value);
	asm_mov_imm(&c->code, R4, BPF_ANY);
	asm_call(&c->code, HELPER_MAP_UPDATE);
	if (!map_of(c, e)->is_scalar) {
		asm_jump_if_imm(&c->code, BPF_JEQ, R0, 0, done);
		emit_lost(c, TRACE_LOST_MAP);
	}
	asm_place(&c->code, done);
}

static void emit_add_assign(struct compiler *c, struct trace_statement *s)
{
	struct trace_expr *e = s->target;
	u32 end = asm_label(&c->code);
	struct place tmp = emit_room(c, 8), key;

	emit_scalar(c, s->value);
	emit_store(c, tmp, R0);
	key = emit_map_key(c, map_of(c, e), e->list, e->n_list);
	emit_ensure(c, e, key, end);
	emit_load(c, R1, tmp);
	if (map_of(c, e)->value.kind == TRACE_POINTER)
		asm_alu_imm(&c->code, BPF_MUL, R1, (s32)emit_step(c, &map_of(c, e)->value));
	if (s->op == TRACE_OP_SUB)
		asm_neg(&c->code, R1);
	asm_add_memory(&c->code, R0, 0, R1);
	asm_place(&c->code, end);
}

void emit_map_assign(struct compiler *c, struct trace_statement *s)
{
	struct trace_expr *e = s->target, *v = s->value;
	struct trace_map *m = map_of(c, e);
	struct trace_expr sum;
	struct place value, key;

	if (trace_type_is_aggregation(&m->value)) {
		if (v->kind == TRACE_EXPR_CALL && trace_type_is_aggregation(&v->type))
			emit_aggregate(c, e, v);
		else
			compile_fail(c, s->at, "@%s is a %s: it cannot be set", m->name,
				     trace_type_text(&c->types, &m->value));
		return;
	}
	if (s->op == TRACE_OP_ADD || s->op == TRACE_OP_SUB) {
		emit_add_assign(c, s);
		return;
	}
	if (s->op != TRACE_OP_NONE) {
		sum = (struct trace_expr){.kind = TRACE_EXPR_BINARY,
					  .op = s->op,
					  .at = s->at,
					  .a = e,
					  .b = v,
					  .type = m->value};
		v = &sum;
	}
	if (v->kind == TRACE_EXPR_VARIABLE &&
	    trace_type_room(&v->type) == trace_type_room(&m->value) &&
	    m->value.kind != TRACE_TUPLE) {
		value = c->variables.data[v->symbol].place;
	} else {
		value = emit_room(c, trace_type_room(&m->value));
		emit_to(c, v, &m->value, value);
	}
	key = emit_map_key(c, m, e->list, e->n_list);
	emit_update(c, e, key, value);
}

void emit_map_increment(struct compiler *c, struct trace_expr *e)
{
	struct trace_expr *map = e->a;
	u32 none = asm_label(&c->code), end = asm_label(&c->code);
	const struct trace_type *t = &map_of(c, map)->value;
	s32 step = t->kind == TRACE_POINTER ? (s32)emit_step(c, t) : 1;

	step = e->op == TRACE_OP_INCREMENT ? step : -step;
	emit_ensure(c, map, emit_map_key(c, map_of(c, map), map->list, map->n_list), none);
	asm_load(&c->code, BPF_DW, R2, R0, 0);
	asm_mov_imm(&c->code, R1, step);
	asm_add_memory(&c->code, R0, 0, R1);
	asm_mov(&c->code, R0, R2);
	if (!e->is_postfix)
		asm_alu_imm(&c->code, BPF_ADD, R0, step);
	asm_jump(&c->code, end);
	asm_place(&c->code, none);
	asm_mov_imm(&c->code, R0, 0);
	asm_place(&c->code, end);
}

/* ---- aggregations ---- */

/* R0 = floor(log2(R0)) for R0 from 1 to 2^63 - 1, without branches, which the verifier would each
 * follow: at each step, whether the value is 2^bits or more is the sign of (2^bits - 1) - value. */
static void emit_log2(struct asm_code *a)
{
	asm_mov_imm(a, R1, 0);
	for (s32 bits = 32; bits; bits /= 2) {
		asm_mov_imm(a, R2, (s64)(1ull << bits) - 1);
		asm_alu(a, BPF_SUB, R2, R0);
		asm_alu_imm(a, BPF_RSH, R2, 63);
		asm_alu_imm(a, BPF_MUL, R2, bits);
		asm_alu(a, BPF_RSH, R0, R2);
		asm_alu(a, BPF_ADD, R1, R2);
	}
	asm_mov(a, R0, R1);
}

/* R0 = trace_hist_bucket(R0, bits) */
static void emit_hist_bucket(struct compiler *c, u32 bits)
{
	struct asm_code *a = &c->code;
	u32 negative = asm_label(a), small = asm_label(a), end = asm_label(a);

	asm_jump_if_imm(a, BPF_JSLT, R0, 0, negative);
	asm_jump_if_imm(a, BPF_JSLT, R0, 1 << bits, small);
	asm_mov(a, R3, R0);
	emit_log2(a);
	asm_alu_imm(a, BPF_SUB, R0, (s32)bits); /* the power above the smallest one */
	asm_alu(a, BPF_RSH, R3, R0);
	asm_alu_imm(a, BPF_AND, R3, (1 << bits) - 1);
	asm_alu_imm(a, BPF_ADD, R0, 1);
	asm_alu_imm(a, BPF_LSH, R0, (s32)bits);
	asm_alu(a, BPF_ADD, R0, R3);
	asm_place(a, small);
	asm_alu_imm(a, BPF_ADD, R0, 1);
	asm_jump(a, end);
	asm_place(a, negative);
	asm_mov_imm(a, R0, 0);
	asm_place(a, end);
}

static void emit_load_constant_jump(struct compiler *c, u8 op, u8 reg, s64 value, u32 label)
{
	if (value >= INT32_MIN && value <= INT32_MAX) {
		asm_jump_if_imm(&c->code, op, reg, (s32)value, label);
		return;
	}
	asm_mov_imm(&c->code, R1, value);
	asm_jump_if(&c->code, op, reg, R1, label);
}

/* R0 = the bucket of R0: 0 is below, the last one above. */
static void emit_lhist_bucket(struct compiler *c, const struct trace_type *t)
{
	struct asm_code *a = &c->code;
	u32 below = asm_label(a), above = asm_label(a), end = asm_label(a);

	emit_load_constant_jump(c, BPF_JSLT, R0, t->low, below);
	emit_load_constant_jump(c, BPF_JSGE, R0, t->high, above);
	asm_mov_imm(a, R1, t->low);
	asm_alu(a, BPF_SUB, R0, R1);
	asm_mov_imm(a, R1, t->step);
	asm_alu(a, BPF_DIV, R0, R1);
	asm_alu_imm(a, BPF_ADD, R0, 1);
	asm_jump(a, end);
	asm_place(a, below);
	asm_mov_imm(a, R0, 0);
	asm_jump(a, end);
	asm_place(a, above);
	asm_mov_imm(a, R0, (t->high - t->low) / t->step + 1);
	asm_place(a, end);
}

/* The number of the interval behind the value, and the time. */
static void emit_interval(struct compiler *c, const struct trace_type *t, struct place value)
{
	struct asm_code *a = &c->code;

	asm_call(a, c->target->has_ktime_boot ? HELPER_KTIME_BOOT : HELPER_KTIME);
	emit_store(c, place_at(value, 16), R0);
	asm_mov_imm(a, R1, t->step);
	asm_alu(a, BPF_DIV, R0, R1);
	emit_store(c, place_at(value, 8), R0);
}

/* Adds the value to its interval, which an older one may have had. */
static void emit_apply_series(struct compiler *c, const struct trace_type *t, struct place value,
			      u32 end)
{
	struct asm_code *a = &c->code;
	u32 fresh = asm_label(a);
	u8 keep = t->bytes == TRACE_SERIES_MIN ? (t->is_signed ? BPF_JSGE : BPF_JGE)
					       : (t->is_signed ? BPF_JSLE : BPF_JLE);

	emit_load(c, R3, place_at(value, 8));
	asm_mov(a, R1, R3);
	asm_mov_imm(a, R2, t->n);
	asm_alu(a, BPF_MOD, R1, R2);
	/* For verifiers that do not know what a remainder is. */
	asm_jump_if_imm(a, BPF_JGE, R1, (s32)t->n, end);
	asm_alu_imm(a, BPF_MUL, R1, 8 * TRACE_SERIES_WORDS);
	asm_alu(a, BPF_ADD, R0, R1);
	asm_alu_imm(a, BPF_ADD, R3, 1);
	emit_load(c, R1, place_at(value, 16));
	asm_store(a, BPF_DW, R0, 24, R1);
	emit_load(c, R1, value);
	asm_load(a, BPF_DW, R2, R0, 0);
	asm_store(a, BPF_DW, R0, 0, R3);
	asm_jump_if(a, BPF_JNE, R2, R3, fresh);
	asm_load(a, BPF_DW, R2, R0, 16);
	asm_alu_imm(a, BPF_ADD, R2, 1);
	asm_store(a, BPF_DW, R0, 16, R2);
	asm_load(a, BPF_DW, R2, R0, 8);
	if (t->bytes == TRACE_SERIES_AVG || t->bytes == TRACE_SERIES_SUM)
		asm_alu(a, BPF_ADD, R1, R2);
	else if (t->bytes == TRACE_SERIES_MIN || t->bytes == TRACE_SERIES_MAX)
		asm_jump_if(a, keep, R1, R2, end);
	asm_store(a, BPF_DW, R0, 8, R1);
	asm_jump(a, end);
	asm_place(a, fresh);
	asm_store(a, BPF_DW, R0, 8, R1);
	asm_store_imm(a, BPF_DW, R0, 16, 1);
}

/* Applies the number at `value` to what R0 points to. */
static void emit_apply(struct compiler *c, const struct trace_type *t, struct place value, u32 end)
{
	struct asm_code *a = &c->code;
	u32 set = asm_label(a);
	u8 keep = t->kind == TRACE_MIN ? (t->is_signed ? BPF_JSGE : BPF_JGE)
				       : (t->is_signed ? BPF_JSLE : BPF_JLE);

	switch (t->kind) {
	case TRACE_COUNT:
		asm_mov_imm(a, R1, 1);
		asm_add_memory(a, R0, 0, R1);
		break;
	case TRACE_SUM:
		emit_load(c, R1, value);
		asm_add_memory(a, R0, 0, R1);
		break;
	case TRACE_AVG:
	case TRACE_STATS:
		emit_load(c, R1, value);
		asm_add_memory(a, R0, 0, R1);
		asm_mov_imm(a, R1, 1);
		asm_add_memory(a, R0, 8, R1);
		break;
	case TRACE_MIN:
	case TRACE_MAX:
		emit_load(c, R1, value);
		asm_load(a, BPF_DW, R2, R0, 8);
		asm_jump_if_imm(a, BPF_JEQ, R2, 0, set);
		asm_load(a, BPF_DW, R2, R0, 0);
		asm_jump_if(a, keep, R1, R2, end);
		asm_place(a, set);
		asm_store(a, BPF_DW, R0, 0, R1);
		asm_store_imm(a, BPF_DW, R0, 8, 1);
		break;
	case TRACE_SERIES:
		emit_apply_series(c, t, value, end);
		break;
	default: /* histograms: the value is the bucket */
		emit_load(c, R1, value);
		asm_jump_if_imm(a, BPF_JGE, R1, (s32)(trace_type_room(t) / 8), end);
		asm_alu_imm(a, BPF_LSH, R1, 3);
		asm_alu(a, BPF_ADD, R0, R1);
		asm_mov_imm(a, R1, 1);
		asm_add_memory(a, R0, 0, R1);
	}
}

void emit_aggregate(struct compiler *c, struct trace_expr *map, struct trace_expr *call)
{
	struct trace_map *m = map_of(c, map);
	u32 end = asm_label(&c->code);
	struct place value = {};

	if (m->value.kind != TRACE_COUNT) {
		value = emit_room(c, 24);
		emit_scalar(c, call->list[0]);
		if (m->value.kind == TRACE_HIST)
			emit_hist_bucket(c, m->value.n);
		if (m->value.kind == TRACE_LHIST)
			emit_lhist_bucket(c, &m->value);
		emit_store(c, value, R0);
		if (m->value.kind == TRACE_SERIES)
			emit_interval(c, &m->value, value);
	}
	emit_ensure(c, map, emit_map_key(c, m, map->list, map->n_list), end);
	emit_apply(c, &m->value, value, end);
	asm_place(&c->code, end);
}
