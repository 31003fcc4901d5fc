// SPDX-License-Identifier: Apache-2.0
/* Builtins and functions that have a value. Numbers are left in R0, other values at *to. */
#include <string.h>
#include <sys/socket.h>

#include "trace/calls.h"

void emit_nothing(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	compile_fail(c, e->at, "%s() cannot stand here", e->text.data);
}

void emit_constant_number(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	asm_mov_imm(&c->code, R0, e->number);
}

/* The row's number is a helper that takes nothing. */
void emit_helper(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	asm_call(&c->code, (enum asm_helper)trace_calls[e->symbol].number);
}

void emit_first(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_scalar(c, e->list[0]);
}

/* ---- the thread ---- */

void emit_pid(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	asm_call(&c->code, HELPER_PID_TGID);
	asm_alu_imm(&c->code, BPF_RSH, R0, 32);
}

void emit_tid(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	asm_call(&c->code, HELPER_PID_TGID);
	asm_extend(&c->code, R0, 4, false);
}

void emit_uid(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	asm_call(&c->code, HELPER_UID_GID);
	asm_extend(&c->code, R0, 4, false);
}

void emit_gid(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	asm_call(&c->code, HELPER_UID_GID);
	asm_alu_imm(&c->code, BPF_RSH, R0, 32);
}

void emit_comm(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	/* Linux 6.1 writes nothing behind the NUL; keys and texts are compared as a whole. */
	emit_zero(c, *to, 16);
	emit_address(c, R1, *to);
	asm_mov_imm(&c->code, R2, 16);
	asm_call(&c->code, HELPER_COMM);
}

/* R0 = where the last of `names` is, from the current task on; the types are in *ret. */
static void emit_task_where(struct compiler *c, struct trace_at at, const char *const *names, u32 n,
			    struct trace_type *ret)
{
	u32 id = trace_btf_find(&c->types, "struct task_struct");

	asm_call(&c->code, HELPER_TASK);
	for (u32 i = 0; i < n; i++) {
		struct trace_place_in in;

		if (!id || trace_btf_member(&c->types, id, names[i], &in, NULL) < 0) {
			compile_fail(c, at, "the kernel's BTF has no task_struct with %s",
				     names[i]);
			return;
		}
		asm_alu_imm(&c->code, BPF_ADD, R0, (s32)(in.bit_offset / 8));
		*ret = trace_type_of_btf(&c->types, in.btf);
		if (ret->kind == TRACE_POINTER && i + 1 < n)
			emit_read(c, ret, false);
		id = ret->btf;
	}
}

void emit_task_member(struct compiler *c, struct trace_at at, const char *const *names, u32 n)
{
	struct trace_type t = {};

	emit_task_where(c, at, names, n, &t);
	if (compile_ok(c))
		emit_read(c, &t, false);
}

void emit_task_number(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	static const char *const parent[] = {"real_parent", "tgid"};

	emit_task_member(c, e->at, parent, 2);
}

void emit_parent_comm(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	static const char *const comm[] = {"real_parent", "comm"};
	struct trace_type t = {};

	emit_task_where(c, e->at, comm, 2, &t);
	if (compile_ok(c))
		emit_read_string(c, false, 16, *to);
}

static void emit_stack_id(struct compiler *c, u32 wants, s16 off)
{
	c->wants |= wants;
	asm_load(&c->code, BPF_DW, R1, c->frame, SLOT_STACKS);
	asm_load(&c->code, BPF_DW, R0, R1, off);
}

void emit_kstack(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_stack_id(c, TRACE_WANTS_KERNEL, offsetof(struct trace_stacks, kernel));
}

void emit_ustack(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_stack_id(c, TRACE_WANTS_USER, offsetof(struct trace_stacks, user));
	emit_store(c, *to, R0);
	emit_pid(c, e, NULL);
	emit_store(c, place_at(*to, 8), R0);
}

void emit_trace_id(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	for (s16 i = 0; i < 2; i++) {
		emit_stack_id(c, TRACE_WANTS_SPAN,
			      (s16)(offsetof(struct trace_stacks, trace_id) + 8 * i));
		emit_store(c, place_at(*to, 8 * i), R0);
	}
}

void emit_span_id(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_stack_id(c, TRACE_WANTS_SPAN, offsetof(struct trace_stacks, span_id));
}

void emit_owner(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct place comm = place_at(*to, 8);

	emit_pid(c, e, NULL);
	emit_store(c, *to, R0);
	emit_comm(c, e, &comm);
}

/* ---- the event ---- */

void emit_args(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	compile_fail(c, e->at, "args has no value as a whole: use args.NAME");
}

void emit_ctx(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	asm_mov(&c->code, R0, R6);
}

/* A word of struct pt_regs. In a perf event's context it is at the beginning, too. */
void emit_register(struct compiler *c, s32 off)
{
	asm_load(&c->code, BPF_DW, R0, R6, (s16)off);
}

/* R0 = the word at the stack pointer plus `off`. */
static void emit_stack_word(struct compiler *c, s32 off)
{
	struct trace_type word = trace_type_int(8, false);

	emit_register(c, register_sp());
	asm_alu_imm(&c->code, BPF_ADD, R0, off);
	emit_read(c, &word, c->facts.is_user);
}

/* Words between the stack pointer and the arguments on the stack: the return address. */
#if defined(__x86_64__)
#define WORDS_BEFORE 1
#else
#define WORDS_BEFORE 0
#endif

static void emit_usdt_argument(struct compiler *c, const struct trace_usdt_argument *a)
{
	u32 bytes = (u32)(a->bytes < 0 ? -a->bytes : a->bytes);
	struct trace_type t = trace_type_int(bytes, a->bytes < 0);

	c->uses_point = true;
	if (a->kind == 0) {
		asm_mov_imm(&c->code, R0, a->offset);
		return;
	}
	emit_register(c, 8 * a->base);
	if (a->kind == 1) {
		asm_extend(&c->code, R0, bytes, a->bytes < 0);
		return;
	}
	if (a->kind == 3) {
		asm_load(&c->code, BPF_DW, R1, R6, (s16)(8 * a->index));
		asm_alu_imm(&c->code, BPF_MUL, R1, a->scale);
		asm_alu(&c->code, BPF_ADD, R0, R1);
	}
	asm_mov_imm(&c->code, R1, a->offset);
	asm_alu(&c->code, BPF_ADD, R0, R1);
	emit_read(c, &t, true);
}

void emit_argument_on_stack(struct compiler *c, u32 n)
{
	emit_stack_word(c, (s32)(8 * (n + WORDS_BEFORE)));
}

void emit_argument_number(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	u32 n = (u32)e->number;
	s32 reg = register_argument(n);

	if (c->facts.context == TRACE_CONTEXT_RAW) {
		asm_load(&c->code, BPF_DW, R0, R6, (s16)(8 * n));
	} else if (c->facts.context == TRACE_CONTEXT_BTF) {
		struct trace_expr as = {.symbol = n, .type = e->type, .at = e->at};

		emit_argument(c, &as, NULL);
	} else if (str_same(c->point->provider, "usdt")) {
		emit_usdt_argument(c, &c->facts.usdt[n]);
	} else if (reg >= 0) {
		emit_register(c, reg);
	} else {
		u32 on_stack = n;

		while (on_stack && register_argument(on_stack - 1) < 0)
			on_stack--;
		emit_argument_on_stack(c, n - on_stack);
	}
}

void emit_stack_argument(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	u32 n = trace_calls[e->symbol].number;

	emit_argument_on_stack(c, n);
}

void emit_retval(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	if (c->facts.context == TRACE_CONTEXT_BTF) {
		struct trace_expr as = {.symbol = check_params(c), .type = e->type, .at = e->at};

		c->uses_point = true;
		emit_argument(c, &as, NULL);
		return;
	}
	emit_register(c, register_return());
	if (e->type.kind == TRACE_INT)
		asm_extend(&c->code, R0, e->type.bytes, e->type.is_signed);
}

static const char *function_name(const struct trace_point *p)
{
	return p->n_parts ? p->parts[p->n_parts - 1] : "";
}

void emit_func(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	const struct trace_target *t = c->target;
	u64 at = 0;

	if (c->facts.is_user) {
		emit_register(c, register_ip());
		emit_store(c, *to, R0);
		emit_pid(c, e, NULL);
		emit_store(c, place_at(*to, 8), R0);
		return;
	}
	if (t->has_func_ip) {
		asm_mov(&c->code, R1, R6);
		asm_call(&c->code, HELPER_FUNC_IP);
		return;
	}
	c->uses_point = true;
	if (!t->symbol || t->symbol(t->arg, function_name(c->point), &at) < 0)
		compile_fail(c, e->at,
			     "the address of %s is not known, and this kernel cannot tell "
			     "it before Linux 5.15",
			     function_name(c->point));
	asm_mov_imm(&c->code, R0, (s64)at);
}

/* Places of one point, such as the returns of a function, are one. */
static size_t point_number(const struct compiler *c)
{
	size_t n = c->program->probes.n;

	for (size_t i = c->probe_base; c->point->is_place && i < n; i++)
		if (str_same(c->program->probes.data[i].name, c->point->text))
			return i;
	return n;
}

void emit_probe(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	c->uses_point = true;
	asm_mov_imm(&c->code, R0, (s64)point_number(c));
}

void emit_reg(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_register(c, register_offset(e->list[0]->text.data));
}

/* The lowest two bits of CS are the privilege level; on arm64, PSTATE's mode is 0 in user space. */
void emit_usermode(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	u32 user = asm_label(&c->code), end = asm_label(&c->code);

	if (c->facts.context != TRACE_CONTEXT_PERF && c->facts.context != TRACE_CONTEXT_REGISTERS) {
		compile_fail(c, e->at, "usermode is known in profile and hardware probes");
		return;
	}
#if defined(__x86_64__)
	emit_register(c, register_offset("cs"));
	asm_alu_imm(&c->code, BPF_AND, R0, 3);
	asm_jump_if_imm(&c->code, BPF_JNE, R0, 0, user);
#else
	emit_register(c, register_offset("pstate"));
	asm_alu_imm(&c->code, BPF_AND, R0, 15);
	asm_jump_if_imm(&c->code, BPF_JEQ, R0, 0, user);
#endif
	asm_mov_imm(&c->code, R0, 0);
	asm_jump(&c->code, end);
	asm_place(&c->code, user);
	asm_mov_imm(&c->code, R0, 1);
	asm_place(&c->code, end);
}

/* ---- clocks ---- */

void emit_clock(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	asm_call(&c->code, (enum asm_helper)e->number);
}

void emit_elapsed(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	asm_call(&c->code, c->target->has_ktime_boot ? HELPER_KTIME_BOOT : HELPER_KTIME);
	asm_mov_imm(&c->code, R1, (s64)c->start_ns);
	asm_alu(&c->code, BPF_SUB, R0, R1);
}

void emit_strftime(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_scalar(c, e->list[1]);
	emit_store(c, *to, R0);
	asm_mov_imm(&c->code, R0, compile_text(c, e->list[0]->text));
	emit_store(c, place_at(*to, 8), R0);
}

/* ---- texts and buffers ---- */

void emit_string_literal(struct compiler *c, const struct trace_text *t, u32 bytes, struct place to)
{
	for (u32 i = 0; i < bytes; i += 8) {
		s64 word = 0;

		if (i < t->n)
			memcpy(&word, t->data + i, MIN(8u, t->n - i));
		if (word >= INT32_MIN && word <= INT32_MAX) {
			asm_store_imm(&c->code, BPF_DW, to.base, (s16)(to.off + (s32)i), (s32)word);
			continue;
		}
		asm_mov_imm(&c->code, R0, word);
		asm_store(&c->code, BPF_DW, to.base, (s16)(to.off + (s32)i), R0);
	}
}

/* Is the pointer of the process? A number is, where the event's arguments are. */
static bool is_user_pointer(const struct compiler *c, const struct trace_expr *e)
{
	return e->type.is_user || (e->type.kind == TRACE_INT && c->facts.is_user);
}

void emit_str(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct trace_expr *a = e->list[0];
	u32 from = trace_calls[e->symbol].number;
	struct place n;
	s64 known;
	bool is_user = from == 2 || (from == 0 && is_user_pointer(c, a));

	if (a->type.kind == TRACE_STRING) {
		emit_to(c, a, &e->type, *to);
		if (e->type.bytes < a->type.bytes)
			asm_store_imm(&c->code, BPF_B, to->base,
				      (s16)(to->off + (s32)e->type.bytes - 1), 0);
		return;
	}
	if (e->n_list < 2 || check_constant(e->list[1], &known)) {
		emit_scalar(c, a);
		emit_read_string(c, is_user, e->type.bytes, *to);
		return;
	}
	/* A length that is not known yet: str(p, n) has n - 1 bytes of text. */
	n = emit_room(c, 16);
	emit_scalar(c, e->list[1]);
	emit_store(c, n, R0);
	emit_scalar(c, a);
	emit_store(c, place_at(n, 8), R0);
	emit_zero(c, *to, trace_type_room(&e->type));
	emit_load(c, R2, n);
	emit_load(c, R3, place_at(n, 8));
	known = asm_label(&c->code);
	asm_jump_if_imm(&c->code, BPF_JLE, R2, (s32)e->type.bytes, (u32)known);
	asm_mov_imm(&c->code, R2, e->type.bytes);
	asm_place(&c->code, (u32)known);
	emit_address(c, R1, *to);
	asm_call(&c->code, is_user ? HELPER_PROBE_READ_USER_STR : HELPER_PROBE_READ_STR);
	emit_told_read(c, is_user);
}

void emit_buf(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct trace_expr *a = e->list[0];
	u32 fits = asm_label(&c->code);
	struct place n = emit_room(c, 16), bytes = place_at(*to, 8);

	if (a->type.kind == TRACE_STRING) {
		emit_to(c, a, NULL, bytes);
		asm_store_imm(&c->code, BPF_DW, to->base, to->off, (s32)e->type.bytes);
		return;
	}
	if (e->n_list > 1)
		emit_scalar(c, e->list[1]);
	else
		asm_mov_imm(&c->code, R0, e->type.bytes);
	asm_jump_if_imm(&c->code, BPF_JLE, R0, (s32)e->type.bytes, fits);
	asm_mov_imm(&c->code, R0, e->type.bytes);
	asm_place(&c->code, fits);
	emit_store(c, n, R0);
	emit_scalar(c, a);
	emit_store(c, place_at(n, 8), R0);
	emit_zero(c, bytes, (e->type.bytes + 7) / 8 * 8);
	emit_load(c, R2, n);
	emit_store(c, *to, R2);
	emit_load(c, R3, place_at(n, 8));
	emit_address(c, R1, bytes);
	/* Once more for the verifier, which has lost the bound in memory. */
	fits = asm_label(&c->code);
	asm_jump_if_imm(&c->code, BPF_JLE, R2, (s32)e->type.bytes, fits);
	asm_mov_imm(&c->code, R2, e->type.bytes);
	asm_place(&c->code, fits);
	asm_call(&c->code, is_user_pointer(c, a) ? HELPER_PROBE_READ_USER : HELPER_PROBE_READ);
	emit_told_read(c, is_user_pointer(c, a));
}

void emit_ntop(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct trace_expr *a = e->list[e->n_list - 1];
	struct place address = place_at(*to, 8);
	bool is_bytes = trace_type_is_memory(&a->type), is_text = a->type.kind == TRACE_STRING;
	u32 n = is_bytes ? a->type.n : is_text ? a->type.bytes : 4;

	emit_zero(c, *to, 24);
	if (e->n_list > 1) {
		emit_scalar(c, e->list[0]);
		emit_store(c, *to, R0);
	} else {
		asm_store_imm(&c->code, BPF_DW, to->base, to->off, n == 16 ? AF_INET6 : AF_INET);
	}
	if (is_text) {
		emit_to(c, a, NULL, address);
		return;
	}
	emit_scalar(c, a);
	if (is_bytes)
		emit_read_bytes(c, a->type.is_user, MIN(n, 16u), address);
	else if (a->type.kind == TRACE_POINTER)
		emit_read_bytes(c, a->type.is_user, 16, address);
	else
		asm_store(&c->code, BPF_W, address.base, address.off, R0);
}

void emit_pton(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	u8 bytes[16] = {};
	struct trace_text t = {(const char *)bytes, compile_address(e->list[0]->text.data, bytes)};

	emit_string_literal(c, &t, e->type.bytes, *to);
}

void emit_macaddr(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct trace_expr *a = e->list[0];
	struct place from;

	emit_zero(c, *to, 8);
	if (a->type.kind == TRACE_STRING) {
		from = emit_memory(c, a);
		emit_copy(c, *to, from.base, from.off, 8);
		return;
	}
	emit_scalar(c, a);
	emit_read_bytes(c, is_user_pointer(c, a), 6, *to);
}

void emit_bswap(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	u32 bytes = e->type.bytes;

	emit_scalar(c, e->list[0]);
	if (bytes == 2 || bytes == 4 || bytes == 8)
		asm_swap(&c->code, R0, bytes * 8);
	else
		asm_extend(&c->code, R0, bytes, false);
}

void emit_symbol_name(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	asm_mov_imm(&c->code, R0, e->number);
}

void emit_usym(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_scalar(c, e->list[0]);
	emit_store(c, *to, R0);
	emit_pid(c, e, NULL);
	emit_store(c, place_at(*to, 8), R0);
}

/* R0 = 0 if the first n bytes are the same or both texts end before. */
void emit_strncmp(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct place a = emit_memory(c, e->list[0]), b = emit_memory(c, e->list[1]);
	u32 n = (u32)e->number, differ = asm_label(&c->code), end = asm_label(&c->code);

	n = MIN(n, trace_type_room(&e->list[0]->type));
	n = MIN(n, trace_type_room(&e->list[1]->type));
	for (u32 i = 0; i < n; i += 8) {
		emit_load(c, R0, place_at(a, i));
		emit_load(c, R1, place_at(b, i));
		if (n - i < 8) {
			/* The bytes that count are the lowest ones of a little-endian word. */
			asm_alu_imm(&c->code, BPF_LSH, R0, (s32)(64 - 8 * (n - i)));
			asm_alu_imm(&c->code, BPF_LSH, R1, (s32)(64 - 8 * (n - i)));
		}
		asm_jump_if(&c->code, BPF_JNE, R0, R1, differ);
	}
	asm_mov_imm(&c->code, R0, 0);
	asm_jump(&c->code, end);
	asm_place(&c->code, differ);
	asm_mov_imm(&c->code, R0, 1);
	asm_place(&c->code, end);
}

/*
 * Looks at each place of the text in turn. The index in R8 is a constant for the verifier. A text
 * that is looked for ends at its NUL, or where its room ends.
 */
static void emit_contains_value(struct compiler *c, struct trace_expr *e)
{
	struct asm_code *a = &c->code;
	struct place text = emit_memory(c, e->list[0]), what = emit_memory(c, e->list[1]);
	u32 room = e->list[0]->type.bytes, n = e->list[1]->type.bytes;
	u32 again = asm_label(a), next = asm_label(a), no = asm_label(a), yes = asm_label(a),
	    end = asm_label(a);

	asm_mov_imm(a, R8, 0);
	asm_place(a, again);
	emit_address(c, R1, text);
	asm_alu(a, BPF_ADD, R1, R8);
	for (u32 i = 0; i < n; i++) {
		asm_load(a, BPF_B, R2, what.base, (s16)(what.off + (s32)i));
		asm_jump_if_imm(a, BPF_JEQ, R2, 0, yes);
		if (i >= room)
			break;
		asm_jump_if_imm(a, BPF_JGE, R8, (s32)(room - i), next);
		asm_load(a, BPF_B, R0, R1, (s16)i);
		if (!i)
			asm_jump_if_imm(a, BPF_JEQ, R0, 0, no);
		asm_jump_if(a, BPF_JNE, R0, R2, next);
	}
	if (n <= room)
		asm_jump(a, yes);
	asm_place(a, next);
	asm_alu_imm(a, BPF_ADD, R8, 1);
	asm_jump_if_imm(a, BPF_JLT, R8, (s32)room, again);
	asm_place(a, no);
	asm_mov_imm(a, R0, 0);
	asm_jump(a, end);
	asm_place(a, yes);
	asm_mov_imm(a, R0, 1);
	asm_place(a, end);
}

void emit_strcontains(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct asm_code *a = &c->code;
	const struct trace_text *what = &e->list[1]->text;
	struct place text;
	u32 room = e->list[0]->type.bytes;
	u32 again = asm_label(a), next = asm_label(a), no = asm_label(a), end = asm_label(a);

	if (e->list[1]->kind != TRACE_EXPR_STRING) {
		emit_contains_value(c, e);
		return;
	}
	text = emit_memory(c, e->list[0]);
	if (what->n > room) {
		asm_mov_imm(a, R0, 0);
		return;
	}
	asm_mov_imm(a, R8, 0);
	asm_place(a, again);
	emit_address(c, R1, text);
	asm_alu(a, BPF_ADD, R1, R8);
	for (u32 i = 0; i < what->n; i++) {
		asm_load(a, BPF_B, R0, R1, (s16)i);
		if (!i)
			asm_jump_if_imm(a, BPF_JEQ, R0, 0, no);
		asm_jump_if_imm(a, BPF_JNE, R0, (u8)what->data[i], next);
	}
	asm_mov_imm(a, R0, 1);
	asm_jump(a, end);
	asm_place(a, next);
	asm_alu_imm(a, BPF_ADD, R8, 1);
	asm_jump_if_imm(a, BPF_JLE, R8, (s32)(room - what->n), again);
	asm_place(a, no);
	asm_mov_imm(a, R0, 0);
	asm_place(a, end);
}

/* R8 is a constant for the verifier, as above. */
void emit_strlen(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct asm_code *a = &c->code;
	struct place text = emit_memory(c, e->list[0]);
	u32 again = asm_label(a), end = asm_label(a);

	asm_mov_imm(a, R8, 0);
	asm_place(a, again);
	emit_address(c, R1, text);
	asm_alu(a, BPF_ADD, R1, R8);
	asm_load(a, BPF_B, R0, R1, 0);
	asm_jump_if_imm(a, BPF_JEQ, R0, 0, end);
	asm_alu_imm(a, BPF_ADD, R8, 1);
	asm_jump_if_imm(a, BPF_JLT, R8, (s32)e->list[0]->type.bytes, again);
	asm_place(a, end);
	asm_mov(a, R0, R8);
}

/* The kernel's pointers from -4095 to -1 are errors. */
void emit_is_err(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	u32 yes = asm_label(&c->code), end = asm_label(&c->code);

	emit_scalar(c, e->list[0]);
	asm_jump_if_imm(&c->code, BPF_JGE, R0, -4095, yes);
	asm_mov_imm(&c->code, R0, 0);
	asm_jump(&c->code, end);
	asm_place(&c->code, yes);
	asm_mov_imm(&c->code, R0, 1);
	asm_place(&c->code, end);
}

void emit_point_text(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	struct trace_text t = {c->point->provider, (u32)strnlen(c->point->provider, 31)};

	c->uses_point = true;
	emit_string_literal(c, &t, 32, *to);
}

/* ---- what changes the machine ---- */

void emit_signal(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_scalar(c, e->list[0]);
	asm_mov(&c->code, R1, R0);
	asm_call(&c->code, (enum asm_helper)trace_calls[e->symbol].number);
	emit_told(c, "signal()");
}

void emit_override(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	emit_scalar(c, e->list[0]);
	asm_mov(&c->code, R2, R0);
	asm_mov(&c->code, R1, R6);
	asm_call(&c->code, HELPER_OVERRIDE_RETURN);
}
