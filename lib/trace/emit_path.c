/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path(): the kernel's helper takes only a pointer that the verifier has followed itself, from an
 * argument of the probe: each member is loaded directly, and not by a read of memory.
 */
#include "trace/calls.h"

/* R0 = the pointer that a chain of members of args or ctx is. Jumps to `none` where one is NULL. */
static void emit_trusted(struct compiler *c, struct trace_expr *e, u32 none)
{
	struct asm_code *a = &c->code;
	struct trace_place_in in;

	if (e->kind == TRACE_EXPR_NAME && str_same(e->text.data, "ctx") &&
	    c->facts.context == TRACE_CONTEXT_ITER) {
		asm_mov(a, R0, R6);
		return;
	}
	if (e->kind != TRACE_EXPR_FIELD || (e->a->type.is_ctx && !c->facts.proto) ||
	    (!e->a->type.is_ctx && !e->a->type.btf)) {
		compile_fail(c, e->at,
			     "path() takes a member of args in fentry and fexit, or of ctx in an "
			     "iterator, such as args.file.f_path");
		return;
	}
	if (e->a->type.is_ctx) {
		asm_load(a, BPF_DW, R0, R6, (s16)(8 * (e->symbol - c->facts.skipped)));
		asm_jump_if_imm(a, BPF_JEQ, R0, 0, none);
		return;
	}
	emit_trusted(c, e->a, none);
	if (!compile_ok(c) ||
	    trace_btf_member(&c->types, e->a->type.btf, e->text.data, &in, NULL) < 0)
		return;
	if (e->type.kind != TRACE_POINTER) {
		asm_alu_imm(a, BPF_ADD, R0, (s32)(in.bit_offset / 8));
		return;
	}
	asm_load(a, BPF_DW, R0, R0, (s16)(in.bit_offset / 8));
	asm_jump_if_imm(a, BPF_JEQ, R0, 0, none);
}

void emit_path(struct compiler *c, struct trace_expr *e, const struct place *to)
{
	u32 bytes = e->type.bytes, none = asm_label(&c->code), room = trace_type_room(&e->type);
	struct place raw = emit_room(c, room);

	emit_zero(c, raw, room);
	emit_zero(c, *to, room);
	emit_trusted(c, e->list[0], none);
	asm_mov(&c->code, R1, R0);
	emit_address(c, R2, raw);
	asm_mov_imm(&c->code, R3, bytes);
	asm_call(&c->code, HELPER_PATH);
	emit_told(c, "path()");
	asm_jump_if_imm(&c->code, BPF_JSLT, R0, 0, none);
	/* The helper leaves other bytes behind the NUL: texts are compared as a whole. */
	emit_address(c, R1, *to);
	asm_mov_imm(&c->code, R2, bytes);
	emit_address(c, R3, raw);
	asm_call(&c->code, HELPER_PROBE_READ_STR);
	asm_place(&c->code, none);
}
