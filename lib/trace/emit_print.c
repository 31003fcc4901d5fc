// SPDX-License-Identifier: Apache-2.0
/* What goes to user space: records of the ring, and functions that change maps. */
#include <stdio.h>
#include <string.h>

#include "trace/calls.h"

u32 compile_text(struct compiler *c, struct trace_text t)
{
	struct trace_text kept = {.n = t.n};
	u32 n = (u32)c->program->texts.n;
	char *data;

	vec_foreach (&c->program->texts, old)
		if (old->n == t.n && (!t.n || memcmp(old->data, t.data, t.n) == 0))
			return (u32)(old - c->program->texts.data);
	data = arena_alloc(&c->program->arena, t.n + 1);
	if (!data) {
		c->error = -ENOMEM;
		return 0;
	}
	memcpy(data, t.data ? t.data : "", t.n);
	data[t.n] = 0;
	kept.data = data;
	if (vec_push(&c->program->texts, kept) < 0)
		c->error = -ENOMEM;
	return n;
}

struct place emit_record(struct compiler *c, enum trace_record_type type, u32 index, u32 bytes)
{
	struct place p = emit_room(c, sizeof(struct trace_record) + bytes);
	/* Points that share their code have the number of the first. */
	u64 head = (u64)type | (u64)(c->probe_base & 0xffff) << 16 | (u64)index << 32;

	asm_mov_imm(&c->code, R0, (s64)head);
	emit_store(c, p, R0);
	asm_call(&c->code, HELPER_KTIME);
	emit_store(c, place_at(p, 8), R0);
	return p;
}

void emit_send(struct compiler *c, struct place record, u32 bytes)
{
	u32 done = asm_label(&c->code);

	asm_map(&c->code, R1, TRACE_MAP_RING);
	emit_address(c, R2, record);
	asm_mov_imm(&c->code, R3, (s64)sizeof(struct trace_record) + bytes);
	asm_mov_imm(&c->code, R4, 0);
	asm_call(&c->code, HELPER_RING_OUTPUT);
	asm_jump_if_imm(&c->code, BPF_JEQ, R0, 0, done);
	emit_lost(c, TRACE_LOST_RING);
	asm_place(&c->code, done);
}

/* The text of an error at this place of the script. */
static u32 add_error(struct compiler *c, const char *what)
{
	char text[96];
	struct trace_text kept = {};
	char *data;

	kept.n = (u32)snprintf(text, sizeof(text), "%u:%u: %s failed", c->at.line, c->at.column,
			       what);
	vec_foreach (&c->program->errors, old)
		if (str_same(old->data, text))
			return (u32)(old - c->program->errors.data);
	data = arena_alloc(&c->program->arena, kept.n + 1);
	if (!data) {
		c->error = -ENOMEM;
		return 0;
	}
	memcpy(data, text, kept.n + 1);
	kept.data = data;
	if (vec_push(&c->program->errors, kept) < 0)
		c->error = -ENOMEM;
	return (u32)c->program->errors.n - 1;
}

void emit_told(struct compiler *c, const char *what)
{
	struct mark m = emit_mark(c);
	u32 fine = asm_label(&c->code);
	struct place result, record;

	if (!c->target->tells_errors || !compile_ok(c))
		return;
	result = emit_room(c, 8);
	emit_store(c, result, R0);
	asm_jump_if_imm(&c->code, BPF_JSGE, R0, 0, fine);
	record = emit_record(c, TRACE_RECORD_ERROR, add_error(c, what), 8);
	emit_load(c, R0, result);
	emit_store(c, place_at(record, sizeof(struct trace_record)), R0);
	emit_send(c, record, 8);
	asm_place(&c->code, fine);
	emit_load(c, R0, result);
	emit_reset(c, m);
}

/* ---- formats ---- */

static void keep_type(struct compiler *c, struct trace_type *to, const struct trace_type *from)
{
	struct trace_type *fields;
	const struct trace_type **list;

	*to = compile_shown(from);
	if (from->kind != TRACE_TUPLE)
		return;
	fields = arena_calloc(&c->program->arena, from->n, sizeof(*fields));
	list = arena_calloc(&c->program->arena, from->n, sizeof(*list));
	if (!fields || !list) {
		c->error = -ENOMEM;
		return;
	}
	for (u32 i = 0; i < from->n; i++) {
		keep_type(c, &fields[i], from->fields[i]);
		list[i] = &fields[i];
	}
	to->fields = list;
}

static u32 add_format(struct compiler *c, struct trace_expr *e, bool to_stderr, u32 *ret_bytes)
{
	struct trace_format f = {.n = e->n_list - 1, .to_stderr = to_stderr};
	u32 text = compile_text(c, e->list[0]->text), n = (u32)c->program->formats.n;

	f.arguments = arena_calloc(&c->program->arena, f.n + 1, sizeof(*f.arguments));
	f.offsets = arena_calloc(&c->program->arena, f.n + 1, sizeof(*f.offsets));
	if (!f.arguments || !f.offsets || c->error) {
		c->error = c->error ? c->error : -ENOMEM;
		return 0;
	}
	f.text = c->program->texts.data[text];
	for (u32 i = 0; i < f.n; i++) {
		keep_type(c, &f.arguments[i], &e->list[i + 1]->type);
		f.offsets[i] = f.bytes;
		f.bytes += trace_type_room(&e->list[i + 1]->type);
	}
	if (vec_push(&c->program->formats, f) < 0)
		c->error = -ENOMEM;
	*ret_bytes = f.bytes;
	return n;
}

static void emit_formatted(struct compiler *c, struct trace_expr *e, enum trace_record_type type)
{
	u32 bytes = 0, index = add_format(c, e, trace_calls[e->symbol].number, &bytes);
	struct place record, at;

	if (!compile_ok(c))
		return;
	record = emit_record(c, type, index, bytes);
	at = place_at(record, sizeof(struct trace_record));
	for (u32 i = 1; i < e->n_list; i++) {
		emit_to(c, e->list[i], NULL, at);
		at = place_at(at, trace_type_room(&e->list[i]->type));
	}
	emit_send(c, record, bytes);
}

void emit_printf(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_formatted(c, e, TRACE_RECORD_PRINTF);
}

void emit_cat(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_formatted(c, e, TRACE_RECORD_CAT);
}

void emit_system(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_formatted(c, e, TRACE_RECORD_SYSTEM);
}

static s64 constant_or(const struct trace_expr *e, u32 index, s64 otherwise)
{
	s64 v = otherwise;

	if (index < e->n_list)
		check_constant(e->list[index], &v);
	return v;
}

void emit_print(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct trace_expr *a = e->list[0];
	bool is_map = a->kind == TRACE_EXPR_MAP && !a->n_list;
	struct trace_print p = {.map = is_map ? (s32)a->symbol : -1,
				.top = (u32)constant_or(e, 1, 0),
				.divisor = (u64)constant_or(e, 2, 0)};
	u32 n = (u32)c->program->prints.n, bytes = is_map ? 0 : trace_type_room(&a->type);
	struct place record;

	if (!is_map)
		keep_type(c, &p.type, &a->type);
	if (vec_push(&c->program->prints, p) < 0)
		c->error = -ENOMEM;
	record = emit_record(c, TRACE_RECORD_PRINT, n, bytes);
	if (!is_map)
		emit_to(c, a, NULL, place_at(record, sizeof(struct trace_record)));
	emit_send(c, record, bytes);
}

void emit_time(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	static const struct trace_text usual = {"%H:%M:%S\n", 9};
	struct trace_text t = e->n_list ? e->list[0]->text : usual;

	emit_send(c, emit_record(c, TRACE_RECORD_TIME, compile_text(c, t), 0), 0);
}

void emit_exit(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct place record = emit_record(c, TRACE_RECORD_EXIT, 0, 8);
	struct place status = place_at(record, sizeof(struct trace_record));

	if (e->n_list)
		emit_scalar(c, e->list[0]);
	else
		asm_mov_imm(&c->code, R0, 0);
	emit_store(c, status, R0);
	emit_send(c, record, 8);
	asm_jump(&c->code, c->on_exit);
}

/* As errorf() and exit(1) in an `if`. */
void emit_assert(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct trace_expr format = {.kind = TRACE_EXPR_STRING, .text = {"assert failed: %s\n", 18}},
			  one = {.kind = TRACE_EXPR_NUMBER, .number = 1},
			  *printed[] = {&format, e->list[1]}, *status[] = {&one};
	struct trace_expr print = {.kind = TRACE_EXPR_CALL,
				   .symbol = (u32)(trace_call_find("errorf") - trace_calls),
				   .list = printed,
				   .n_list = 2},
			  leave = {.list = status, .n_list = 1};
	u32 holds = asm_label(&c->code);

	emit_condition(c, e->list[0], true, holds);
	emit_printf(c, &print, NULL);
	emit_exit(c, &leave, NULL);
	asm_place(&c->code, holds);
}

#define JOIN_TEXTS 16

/* {u64 n}, then the texts that the pointers of the array, which ends with NULL, point to. */
void emit_join(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	static const struct trace_text space = {" ", 1};
	struct asm_code *a = &c->code;
	u32 each = c->program->join_bytes, bytes = 8 + JOIN_TEXTS * each, end = asm_label(a);
	bool is_user = e->list[0]->type.is_user || c->facts.is_user;
	struct trace_type word = {.kind = TRACE_POINTER};
	struct place at = emit_room(c, 8), record, n;

	emit_scalar(c, e->list[0]);
	emit_store(c, at, R0);
	record = emit_record(c, TRACE_RECORD_JOIN,
			     compile_text(c, e->n_list > 1 ? e->list[1]->text : space), bytes);
	n = place_at(record, sizeof(struct trace_record));
	asm_store_imm(a, BPF_DW, n.base, n.off, 0);
	for (u32 i = 0; i < JOIN_TEXTS; i++) {
		emit_load(c, R0, at);
		asm_alu_imm(a, BPF_ADD, R0, (s32)(8 * i));
		emit_read(c, &word, is_user);
		asm_jump_if_imm(a, BPF_JEQ, R0, 0, end);
		emit_address(c, R1, place_at(n, 8 + i * each));
		asm_mov_imm(a, R2, each);
		asm_mov(a, R3, R0);
		asm_call(a, is_user ? HELPER_PROBE_READ_USER_STR : HELPER_PROBE_READ_STR);
		asm_jump_if_imm(a, BPF_JSLE, R0, 0, end);
		asm_store_imm(a, BPF_DW, n.base, n.off, (s32)i + 1);
	}
	asm_place(a, end);
	emit_send(c, record, bytes);
}

/* ---- maps as a whole, and keys ---- */

void emit_map_record(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	enum trace_record_type type = (enum trace_record_type)trace_calls[e->symbol].number;

	emit_send(c, emit_record(c, type, e->list[0]->symbol, 0), 0);
}

static struct place emit_key_of(struct compiler *c, struct trace_expr *e)
{
	struct trace_expr *m = e->list[0];
	struct trace_map *map = &c->program->maps.data[m->symbol];

	if (m->n_list)
		return emit_map_key(c, map, m->list, m->n_list);
	return emit_map_key(c, map, e->list + 1, e->n_list - 1);
}

void emit_delete(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct trace_expr *m = e->list[0];
	struct trace_map *map = &c->program->maps.data[m->symbol];
	u32 yes = asm_label(&c->code), end = asm_label(&c->code);
	struct place key;

	if (map->is_scalar && trace_type_is_aggregation(&map->value)) {
		emit_send(c, emit_record(c, TRACE_RECORD_CLEAR, m->symbol, 0), 0);
		asm_mov_imm(&c->code, R0, 1);
		return;
	}
	key = emit_key_of(c, e);
	asm_map(&c->code, R1, TRACE_MAPS_OWN + m->symbol);
	emit_address(c, R2, key);
	if (map->is_scalar) {
		struct place zero = emit_room(c, trace_type_room(&map->value));

		emit_zero(c, zero, trace_type_room(&map->value));
		asm_map(&c->code, R1, TRACE_MAPS_OWN + m->symbol);
		emit_address(c, R2, key);
		emit_address(c, R3, zero);
		asm_mov_imm(&c->code, R4, BPF_ANY);
		asm_call(&c->code, HELPER_MAP_UPDATE);
	} else {
		asm_call(&c->code, HELPER_MAP_DELETE);
	}
	asm_jump_if_imm(&c->code, BPF_JEQ, R0, 0, yes);
	asm_mov_imm(&c->code, R0, 0);
	asm_jump(&c->code, end);
	asm_place(&c->code, yes);
	asm_mov_imm(&c->code, R0, 1);
	asm_place(&c->code, end);
}

void emit_has_key(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	u32 end = asm_label(&c->code);
	struct place key = emit_key_of(c, e);

	asm_map(&c->code, R1, TRACE_MAPS_OWN + e->list[0]->symbol);
	emit_address(c, R2, key);
	asm_call(&c->code, HELPER_MAP_LOOKUP);
	/* An address is not a number: the verifier does not let a program compute with it. */
	asm_jump_if_imm(&c->code, BPF_JEQ, R0, 0, end);
	asm_mov_imm(&c->code, R0, 1);
	asm_place(&c->code, end);
}
