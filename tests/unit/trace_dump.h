/* SPDX-License-Identifier: Apache-2.0 */
/* A syntax tree as S-expressions, to compare its shape with what a test expects. */
#pragma once

#include <inttypes.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "trace/trace.h"

static void dump_expr(const struct trace_expr *e, struct str *out);
static void dump_block(const struct trace_block *b, struct str *out);

static const char *op_name(enum trace_op op)
{
	static const char *const names[] = {
		[TRACE_OP_NONE] = "=",	     [TRACE_OP_ADD] = "+",
		[TRACE_OP_SUB] = "-",	     [TRACE_OP_MUL] = "*",
		[TRACE_OP_DIV] = "/",	     [TRACE_OP_MOD] = "%",
		[TRACE_OP_AND] = "&",	     [TRACE_OP_OR] = "|",
		[TRACE_OP_XOR] = "^",	     [TRACE_OP_SHL] = "<<",
		[TRACE_OP_SHR] = ">>",	     [TRACE_OP_LAND] = "&&",
		[TRACE_OP_LOR] = "||",	     [TRACE_OP_EQ] = "==",
		[TRACE_OP_NE] = "!=",	     [TRACE_OP_LT] = "<",
		[TRACE_OP_LE] = "<=",	     [TRACE_OP_GT] = ">",
		[TRACE_OP_GE] = ">=",	     [TRACE_OP_NEG] = "neg",
		[TRACE_OP_NOT] = "!",	     [TRACE_OP_INVERT] = "~",
		[TRACE_OP_DEREF] = "deref",  [TRACE_OP_ADDRESS] = "addr",
		[TRACE_OP_INCREMENT] = "++", [TRACE_OP_DECREMENT] = "--",
	};

	return names[op];
}

static void dump_type(const struct trace_type_name *t, struct str *out)
{
	if (t->of)
		dump_type(t->of, out);
	else if (t->type_of)
		dump_expr(t->type_of, out);
	else
		str_puts(out, t->name);
	for (u32 i = 0; i < t->pointers; i++)
		str_putc(out, '*');
	if (t->is_array && t->elements)
		str_printf(out, "[%u]", t->elements);
	else if (t->is_array)
		str_puts(out, "[]");
}

static void dump_text(struct trace_text text, struct str *out)
{
	str_putc(out, '"');
	for (u32 i = 0; i < text.n; i++) {
		u8 c = (u8)text.data[i];

		if (c < ' ' || c == '"' || c == '\\' || c > 126)
			str_printf(out, "\\x%02x", c);
		else
			str_putc(out, (char)c);
	}
	str_putc(out, '"');
}

static void dump_list(const char *head, const struct trace_expr *e, struct str *out)
{
	str_puts(out, head);
	for (u32 i = 0; i < e->n_list; i++) {
		str_putc(out, ' ');
		if (e->names)
			str_printf(out, "%s=", e->names[i]);
		dump_expr(e->list[i], out);
	}
	str_putc(out, ')');
}

/* (head a b c type block otherwise), of what there is. */
static void dump_parts(const char *head, const struct trace_expr *e, struct str *out)
{
	const struct trace_expr *const parts[] = {e->a, e->b, e->c};

	str_printf(out, "(%s", head);
	if (e->type_name) {
		str_putc(out, ' ');
		dump_type(e->type_name, out);
	}
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (!parts[i])
			continue;
		str_putc(out, ' ');
		dump_expr(parts[i], out);
	}
	if (e->block) {
		str_putc(out, ' ');
		dump_block(e->block, out);
	}
	if (e->otherwise) {
		str_putc(out, ' ');
		dump_block(e->otherwise, out);
	}
	str_putc(out, ')');
}

static void dump_named(const struct trace_expr *e, struct str *out)
{
	_cleanup_str_ struct str head = {};

	switch (e->kind) {
	case TRACE_EXPR_UNARY:
		str_printf(&head, "%s%s", e->is_postfix ? "post" : "", op_name(e->op));
		break;
	case TRACE_EXPR_BINARY:
		str_puts(&head, op_name(e->op));
		break;
	case TRACE_EXPR_FIELD:
		str_printf(&head, "%s%s", e->is_arrow ? "->" : ".", e->text.data);
		break;
	case TRACE_EXPR_OFFSETOF:
		str_printf(&head, "offsetof %s", e->text.data);
		break;
	case TRACE_EXPR_TERNARY:
		str_puts(&head, e->b ? "?" : "?:");
		break;
	default: {
		static const char *const names[TRACE_EXPR_TYPE + 1] = {
			[TRACE_EXPR_INDEX] = "[]",	[TRACE_EXPR_CAST] = "cast",
			[TRACE_EXPR_SIZEOF] = "sizeof", [TRACE_EXPR_IF] = "if",
			[TRACE_EXPR_BLOCK] = "do",	[TRACE_EXPR_TYPE] = "type",
		};

		str_puts(&head, names[e->kind]);
	}
	}
	dump_parts(str_get(&head), e, out);
}

static void dump_expr(const struct trace_expr *e, struct str *out)
{
	_cleanup_str_ struct str head = {};

	if (e->is_comptime)
		str_puts(out, "comptime:");
	switch (e->kind) {
	case TRACE_EXPR_NUMBER:
		if (e->is_unsigned)
			str_printf(out, "%" PRIu64 "u", (uint64_t)e->number);
		else
			str_printf(out, "%" PRId64, (int64_t)e->number);
		return;
	case TRACE_EXPR_STRING:
		dump_text(e->text, out);
		return;
	case TRACE_EXPR_BOOL:
		str_puts(out, e->number ? "true" : "false");
		return;
	case TRACE_EXPR_NAME:
		str_puts(out, e->text.data);
		return;
	case TRACE_EXPR_PARAMETER:
		str_puts(out, "PARAMETER");
		return;
	case TRACE_EXPR_VARIABLE:
		str_printf(out, "$%s", e->text.data);
		return;
	case TRACE_EXPR_MAP:
		str_printf(&head, "(@%s", e->text.data);
		if (e->n_list)
			dump_list(str_get(&head), e, out);
		else
			str_puts(out, str_get(&head) + 1);
		return;
	case TRACE_EXPR_CALL:
		str_printf(&head, "(%s", e->text.data);
		if (e->type_name || e->a) {
			dump_parts(e->text.data, e, out);
			return;
		}
		dump_list(str_get(&head), e, out);
		return;
	case TRACE_EXPR_TUPLE:
	case TRACE_EXPR_NAMED_TUPLE:
		dump_list("(tuple", e, out);
		return;
	default:
		dump_named(e, out);
	}
}

static void dump_statement(const struct trace_statement *s, struct str *out)
{
	static const char *const names[] = {
		[TRACE_STATEMENT_LET] = "let",	     [TRACE_STATEMENT_IF] = "if",
		[TRACE_STATEMENT_WHILE] = "while",   [TRACE_STATEMENT_UNROLL] = "unroll",
		[TRACE_STATEMENT_FOR_MAP] = "for",   [TRACE_STATEMENT_FOR_RANGE] = "range",
		[TRACE_STATEMENT_BREAK] = "break",   [TRACE_STATEMENT_CONTINUE] = "continue",
		[TRACE_STATEMENT_RETURN] = "return", [TRACE_STATEMENT_BLOCK] = "block",
	};
	const struct trace_expr *const parts[] = {s->target, s->value, s->end};
	const struct trace_block *const blocks[] = {s->body, s->otherwise};

	if (s->kind == TRACE_STATEMENT_EXPR) {
		dump_expr(s->value, out);
		return;
	}
	if (s->kind == TRACE_STATEMENT_ASSIGN)
		str_printf(out, "(%s%s", op_name(s->op), s->op ? "=" : "");
	else
		str_printf(out, "(%s", names[s->kind]);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (!parts[i])
			continue;
		str_putc(out, ' ');
		dump_expr(parts[i], out);
	}
	if (s->type_name) {
		str_puts(out, " :");
		dump_type(s->type_name, out);
	}
	for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
		if (!blocks[i])
			continue;
		str_putc(out, ' ');
		dump_block(blocks[i], out);
	}
	str_putc(out, ')');
}

/* {statement; statement} */
static void dump_block(const struct trace_block *b, struct str *out)
{
	str_putc(out, '{');
	for (const struct trace_statement *s = b->first; s; s = s->next) {
		dump_statement(s, out);
		if (s->next)
			str_puts(out, "; ");
	}
	str_putc(out, '}');
}

static void dump_point(const struct trace_point *point, struct str *out)
{
	str_puts(out, point->provider);
	for (u32 i = 0; i < point->n_parts; i++)
		str_printf(out, "|%s", point->parts[i]);
}

/* One line per probe: "provider|part|part, … /predicate/ {…}". */
static void trace_script_dump(const struct trace_script *s, struct str *out)
{
	vec_foreach (&s->probes, probe) {
		vec_foreach (&probe->points, point) {
			if (point != probe->points.data)
				str_puts(out, ", ");
			dump_point(point, out);
		}
		str_putc(out, ' ');
		if (probe->predicate) {
			str_putc(out, '/');
			dump_expr(probe->predicate, out);
			str_puts(out, "/ ");
		}
		dump_block(probe->body, out);
		str_putc(out, '\n');
	}
}

/* One line per type: "struct x {uint64 a; …}". */
static inline void trace_structs_dump(const struct trace_script *s, struct str *out)
{
	vec_foreach (&s->structs, type) {
		str_printf(out, "%s%s {", type->is_packed ? "packed " : "", type->name);
		vec_foreach (&type->members, m) {
			str_puts(out, m == type->members.data ? "" : "; ");
			dump_type(&m->type, out);
			str_printf(out, " %s", m->name);
			if (m->bits)
				str_printf(out, ":%u", m->bits);
		}
		vec_foreach (&type->constants, c)
			str_printf(out, "%s%s=%lld", c == type->constants.data ? "" : "; ", c->name,
				   (long long)c->value);
		str_puts(out, "}\n");
	}
}
