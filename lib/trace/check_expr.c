// SPDX-License-Identifier: Apache-2.0
/* Types of expressions. */
#include <stdio.h>
#include <string.h>

#include "base/closest.h"
#include "trace/compile.h"

static bool is_integer(const struct trace_type *t)
{
	return t->kind == TRACE_INT || t->kind == TRACE_BOOL || t->kind == TRACE_ENUM_NAME;
}

static bool is_number(const struct trace_type *t)
{
	return is_integer(t) || t->kind == TRACE_POINTER || t->kind == TRACE_KSYM ||
	       t->kind == TRACE_USERNAME || t->kind == TRACE_CGROUP;
}

static struct trace_type bool_type(void)
{
	return (struct trace_type){.kind = TRACE_BOOL, .bytes = 1};
}

static void unknown_name(struct compiler *c, struct trace_expr *e, const char *what)
{
	_cleanup_str_ struct str close = {};
	const char *names[160];
	int n = trace_call_names(names, ARRAY_SIZE(names));

	closest_append(&close, e->text.data, names, (size_t)n, 60);
	compile_fail(c, e->at, "unknown %s \"%s\"; there are %s", what, e->text.data,
		     str_get(&close));
}

static void check_name(struct compiler *c, struct trace_expr *e)
{
	const struct call *row = trace_call_find(e->text.data);
	u32 id = 0;

	if (row && (row->flags & CALL_NAME)) {
		e->symbol = (u32)(row - trace_calls);
		row->check(c, e);
		return;
	}
	if (!trace_btf_constant(&c->types, e->text.data, &e->number, &id)) {
		unknown_name(c, e, "name");
		return;
	}
	e->kind = TRACE_EXPR_NUMBER;
	e->type = trace_type_int(8, true);
}

static void check_call(struct compiler *c, struct trace_expr *e)
{
	const struct call *row = trace_call_find(e->text.data);

	if (!row) {
		unknown_name(c, e, "function");
		return;
	}
	e->symbol = (u32)(row - trace_calls);
	if (e->n_list < row->min || e->n_list > row->max) {
		compile_fail(c, e->at, "%s() takes %u%s%.0u argument%s, not %u", row->name,
			     row->min, row->max > row->min ? " or more" : "", row->max,
			     row->min == 1 ? "" : "s", e->n_list);
		return;
	}
	if (row->flags & CALL_UNSAFE && !c->target->is_unsafe) {
		compile_fail(c, e->at, "%s() changes what it looks at: --unsafe allows it",
			     row->name);
		return;
	}
	for (u32 i = 0; !(row->flags & CALL_RAW) && i < e->n_list && compile_ok(c); i++)
		check_expr(c, e->list[i]);
	if (compile_ok(c))
		row->check(c, e);
}

static void check_unary(struct compiler *c, struct trace_expr *e)
{
	struct trace_type t;

	if (e->a->kind == TRACE_EXPR_MAP &&
	    (e->op == TRACE_OP_INCREMENT || e->op == TRACE_OP_DECREMENT)) {
		struct trace_map *m;

		check_key(c, e->a, e->a->list, e->a->n_list);
		m = compile_ok(c) ? check_map(c, e->a) : NULL;
		t = trace_type_int(8, true);
		if (m && !check_merge_map(c, &m->value, &t))
			compile_fail(c, e->at, "@%s is a %s, and cannot be counted up", m->name,
				     trace_type_text(&c->types, &m->value));
		e->type = t;
		return;
	}
	check_expr(c, e->a);
	t = e->a->type;
	if (!compile_ok(c) || t.kind == TRACE_NONE)
		return;
	if (e->op == TRACE_OP_DEREF) {
		e->type = t.kind == TRACE_POINTER ? trace_type_of_btf(&c->types, t.btf)
			  : t.kind == TRACE_INT	  ? trace_type_int(8, false)
						  : (struct trace_type){};
		if (t.kind == TRACE_POINTER && !trace_btf_plain(&c->types, t.btf))
			e->type = trace_type_int(1, false);
		e->type.is_user = t.is_user || (t.kind == TRACE_INT && c->facts.is_user);
		if (e->type.kind == TRACE_NONE)
			compile_fail(c, e->at, "a %s cannot be followed with *",
				     trace_type_text(&c->types, &t));
		return;
	}
	if (e->op == TRACE_OP_ADDRESS) {
		compile_fail(c, e->at, "the address of a value cannot be taken");
		return;
	}
	e->type = e->op == TRACE_OP_NOT ? bool_type()
		  : t.kind == TRACE_POINTER
			  ? t
			  : trace_type_int(8, t.is_signed || e->op == TRACE_OP_NEG);
	if (!is_number(&t) && !(e->op == TRACE_OP_NOT && trace_type_is_scalar(&t)))
		compile_fail(c, e->at, "this needs a number, not a %s",
			     trace_type_text(&c->types, &t));
}

/* A literal takes the signedness of the other operand. */
static bool is_signed_pair(const struct trace_expr *a, const struct trace_expr *b)
{
	bool as = a->type.is_signed || a->type.kind == TRACE_BOOL;
	bool bs = b->type.is_signed || b->type.kind == TRACE_BOOL;

	if (as == bs)
		return as;
	if (as ? a->kind == TRACE_EXPR_NUMBER && a->number >= 0
	       : b->kind == TRACE_EXPR_NUMBER && b->number >= 0)
		return false;
	/* A narrow unsigned value is positive as a signed one of 64 bits, too. */
	return as ? b->type.bytes < 8 && b->type.kind == TRACE_INT
		  : a->type.bytes < 8 && a->type.kind == TRACE_INT;
}

static void check_arithmetic(struct compiler *c, struct trace_expr *e)
{
	const struct trace_type *a = &e->a->type, *b = &e->b->type;

	if (!is_number(a) || !is_number(b)) {
		compile_fail(c, e->at, "%s and %s cannot be combined by this operator",
			     trace_type_text(&c->types, a), trace_type_text(&c->types, b));
		return;
	}
	if (a->kind == TRACE_POINTER && b->kind != TRACE_POINTER)
		e->type = *a;
	else if (b->kind == TRACE_POINTER && a->kind != TRACE_POINTER)
		e->type = *b;
	else
		e->type = trace_type_int(8, is_signed_pair(e->a, e->b));
}

/* The bytes of a short text or an array of bytes: what pton() makes, or a struct has. 0: neither */
static u32 byte_count(const struct trace_type *t)
{
	if (t->kind == TRACE_STRING || t->kind == TRACE_VALUES)
		return t->bytes;
	return t->kind == TRACE_ARRAY && t->of && t->of->kind == TRACE_INT && t->of->bytes == 1 &&
			       t->n <= 64
		       ? t->n
		       : 0;
}

static void check_comparison(struct compiler *c, struct trace_expr *e)
{
	const struct trace_type *a = &e->a->type, *b = &e->b->type;
	bool equality = e->op == TRACE_OP_EQ || e->op == TRACE_OP_NE;
	bool fits = (trace_type_is_scalar(a) && trace_type_is_scalar(b) &&
		     !trace_type_is_memory(a) && !trace_type_is_memory(b)) ||
		    (equality && a->kind == b->kind && !trace_type_is_memory(a)) ||
		    (equality && byte_count(a) && byte_count(a) == byte_count(b));

	e->type = bool_type();
	/* Whether it compares signed numbers: emit_expr.c reads it. */
	e->number =
		is_signed_pair(e->a, e->b) && a->kind != TRACE_POINTER && b->kind != TRACE_POINTER;
	if (!fits)
		compile_fail(c, e->at, "a %s cannot be compared with a %s",
			     trace_type_text(&c->types, a), trace_type_text(&c->types, b));
}

static void check_binary(struct compiler *c, struct trace_expr *e)
{
	check_expr(c, e->a);
	check_expr(c, e->b);
	if (!compile_ok(c) || e->a->type.kind == TRACE_NONE || e->b->type.kind == TRACE_NONE)
		return;
	switch (e->op) {
	case TRACE_OP_LAND:
	case TRACE_OP_LOR:
		e->type = bool_type();
		break;
	case TRACE_OP_EQ:
	case TRACE_OP_NE:
	case TRACE_OP_LT:
	case TRACE_OP_LE:
	case TRACE_OP_GT:
	case TRACE_OP_GE:
		check_comparison(c, e);
		break;
	default:
		check_arithmetic(c, e);
	}
}

static void check_choice(struct compiler *c, struct trace_expr *e, struct trace_expr *a,
			 struct trace_expr *b)
{
	struct trace_type t = {};

	if (!check_merge(c, &t, &a->type) || !check_merge(c, &t, &b->type))
		compile_fail(c, e->at, "one branch is a %s, the other a %s",
			     trace_type_text(&c->types, &a->type),
			     trace_type_text(&c->types, &b->type));
	e->type = t;
}

static void check_ternary(struct compiler *c, struct trace_expr *e)
{
	bool before;

	check_expr(c, e->a);
	if (e->b)
		check_expr(c, e->b);
	check_expr(c, e->c);
	before = c->changed; /* merging into a local type is no change */
	if (compile_ok(c))
		check_choice(c, e, e->b ? e->b : e->a, e->c);
	c->changed = before;
}

/* A field by its number, or that of a record by its name. */
static void check_tuple_field(struct compiler *c, struct trace_expr *e, const struct trace_type *t)
{
	_cleanup_str_ struct str there = {};
	u64 i = t->n;

	if (t->names)
		for (i = 0; i < t->n && !str_same(t->names[i], e->text.data);)
			i++;
	else if (str_to_u64(e->text.data, 10, &i) < 0)
		i = t->n;
	if (i < t->n) {
		e->type = *t->fields[i];
		e->number = (s64)i;
		return;
	}
	if (t->names)
		closest_append(&there, e->text.data, t->names, t->n, 60);
	else
		str_printf(&there, "0 to %u", t->n - 1);
	compile_fail(c, e->at, "this %s has no member \"%s\"; it has %s",
		     t->names ? "record" : "tuple", e->text.data, str_get(&there));
}

static void check_field(struct compiler *c, struct trace_expr *e)
{
	struct trace_type t;
	struct trace_place_in in;
	struct diag d = {};
	bool is_args = e->a->kind == TRACE_EXPR_NAME && str_same(e->a->text.data, "args");

	check_expr(c, e->a);
	t = e->a->type;
	if (!compile_ok(c) || t.kind == TRACE_NONE)
		return;
	if (is_args && t.is_ctx) {
		check_argument(c, e);
		return;
	}
	if (t.kind == TRACE_TUPLE) {
		check_tuple_field(c, e, &t);
		return;
	}
	if (t.kind != TRACE_RECORD && t.kind != TRACE_POINTER) {
		compile_fail(c, e->at, "a %s has no members: cast it, as in ((struct x *)y)->%s",
			     trace_type_text(&c->types, &t), e->text.data);
		return;
	}
	if (trace_btf_member(&c->types, t.btf, e->text.data, &in, &d) < 0) {
		compile_fail(c, e->at, "%s", d.text);
		return;
	}
	e->type = trace_type_of_btf(&c->types, in.btf);
	e->type.is_user = t.is_user;
}

static void check_index(struct compiler *c, struct trace_expr *e)
{
	struct trace_type t;

	check_expr(c, e->a);
	check_expr(c, e->b);
	t = e->a->type;
	if (!compile_ok(c) || t.kind == TRACE_NONE)
		return;
	switch (t.kind) {
	case TRACE_ARRAY:
	case TRACE_VALUES:
		e->type = *t.of;
		break;
	case TRACE_POINTER:
		e->type = trace_type_of_btf(&c->types, t.btf);
		break;
	case TRACE_STRING:
		e->type = trace_type_int(1, true);
		break;
	default:
		compile_fail(c, e->at, "a %s has no elements", trace_type_text(&c->types, &t));
		return;
	}
	e->type.is_user = t.is_user;
}

/* (uint8[8])x: the bytes of an integer. Without a number there are as many as it has. */
static void check_cast_to_array(struct compiler *c, struct trace_expr *e,
				const struct trace_type *from)
{
	u32 each = e->type.of->bytes, n = e->type.n ? e->type.n : from->bytes / each;

	e->type = (struct trace_type){
		.kind = TRACE_VALUES, .n = n, .bytes = from->bytes, .of = e->type.of};
	if (n * (u64)each != from->bytes)
		compile_fail(c, e->at, "an int%u cannot be cast to an array of %llu bytes",
			     from->bytes * 8, n * (u64)each);
}

static void check_cast(struct compiler *c, struct trace_expr *e)
{
	struct trace_type to, from;

	check_expr(c, e->a);
	if (!compile_ok(c))
		return;
	from = e->a->type;
	if (e->type_name->type_of) {
		check_expr(c, e->type_name->type_of);
		to = e->type_name->type_of->type;
	} else {
		c->error = trace_type_of_name(&c->types, e->type_name, &to, c->diag);
	}
	if (!compile_ok(c) || from.kind == TRACE_NONE)
		return;
	if (to.kind == TRACE_INT && to.btf)
		to.kind = TRACE_ENUM_NAME;
	to.is_user = from.kind == TRACE_INT ? c->facts.is_user : from.is_user;
	e->type = to;
	if (trace_type_same(&to, &from))
		return;
	if (to.kind == TRACE_STRING && from.kind == TRACE_STRING)
		return;
	/* The bytes of pton(), or of an array, as a number. */
	if (to.kind == TRACE_INT && (from.kind == TRACE_STRING || from.kind == TRACE_VALUES) &&
	    to.bytes == from.bytes)
		return;
	if (to.kind == TRACE_ARRAY && to.of->kind == TRACE_INT && from.kind == TRACE_INT) {
		check_cast_to_array(c, e, &from);
		return;
	}
	if ((to.kind != TRACE_INT && to.kind != TRACE_POINTER && to.kind != TRACE_BOOL &&
	     to.kind != TRACE_ENUM_NAME) ||
	    !trace_type_is_scalar(&from))
		compile_fail(c, e->at, "a %s cannot be cast to a %s",
			     trace_type_text(&c->types, &from), trace_type_text(&c->types, &to));
}

static void check_tuple(struct compiler *c, struct trace_expr *e)
{
	const struct trace_type **fields = arena_calloc(c->types.arena, e->n_list, sizeof(*fields));

	e->type = (struct trace_type){
		.kind = TRACE_TUPLE, .n = e->n_list, .fields = fields, .names = e->names};
	if (!fields) {
		c->error = -ENOMEM;
		return;
	}
	for (u32 i = 0; i < e->n_list && compile_ok(c); i++) {
		check_expr(c, e->list[i]);
		if (trace_type_is_memory(&e->list[i]->type))
			compile_fail(c, e->list[i]->at, "a struct or array cannot be in a tuple");
		if (e->list[i]->type.kind == TRACE_NONE)
			e->type = (struct trace_type){};
		fields[i] = &e->list[i]->type;
	}
}

/* The type that sizeof() and offsetof() ask about: named, or that of an expression. */
static struct trace_type check_measured(struct compiler *c, struct trace_expr *e)
{
	struct trace_type t = {};

	e->type = trace_type_int(8, false);
	if (e->a) {
		check_expr(c, e->a);
		return e->a->type;
	}
	c->error = trace_type_of_name(&c->types, e->type_name, &t, c->diag);
	return t;
}

static void check_sizeof(struct compiler *c, struct trace_expr *e)
{
	struct trace_type t = check_measured(c, e);

	if (!compile_ok(c))
		return;
	e->number = t.kind == TRACE_INT || t.kind == TRACE_BOOL || t.kind == TRACE_STRING ? t.bytes
		    : t.kind == TRACE_RECORD ? trace_btf_bytes(&c->types, t.btf)
		    : t.kind == TRACE_ARRAY  ? (s64)t.n * trace_btf_bytes(&c->types, t.btf)
					     : trace_type_room(&t);
}

static void check_offsetof(struct compiler *c, struct trace_expr *e)
{
	struct trace_type t = check_measured(c, e);
	struct trace_place_in in = {};
	char names[256], *save = NULL;
	u32 bits = 0;

	if (!compile_ok(c))
		return;
	snprintf(names, sizeof(names), "%s", e->text.data);
	for (char *n = strtok_r(names, ".", &save); n; n = strtok_r(NULL, ".", &save)) {
		struct diag d = {};

		if (trace_btf_member(&c->types, t.btf, n, &in, &d) < 0) {
			compile_fail(c, e->at, "%s", d.text);
			return;
		}
		bits += in.bit_offset;
		t.btf = in.btf;
	}
	e->number = bits / 8;
}

/* The value of a block is that of its last statement. */
static struct trace_expr *last_value(struct trace_block *b)
{
	struct trace_statement *s = b ? b->first : NULL;

	while (s && s->next)
		s = s->next;
	return s && s->kind == TRACE_STATEMENT_EXPR ? s->value : NULL;
}

static void check_block_value(struct compiler *c, struct trace_expr *e)
{
	struct trace_expr *a = last_value(e->block), *b;
	bool before;

	if (e->kind == TRACE_EXPR_IF)
		check_expr(c, e->a);
	check_block(c, e->block);
	if (e->kind == TRACE_EXPR_BLOCK) {
		e->type = a ? a->type : (struct trace_type){};
		return;
	}
	if (!e->otherwise)
		return;
	check_block(c, e->otherwise);
	b = last_value(e->otherwise);
	before = c->changed;
	if (compile_ok(c) && a && b)
		check_choice(c, e, a, b);
	c->changed = before;
}

static void check_map_value(struct compiler *c, struct trace_expr *e)
{
	struct trace_map *m;

	check_key(c, e, e->list, e->n_list);
	m = compile_ok(c) ? check_map(c, e) : NULL;
	if (!m)
		return;
	e->type = check_value(&m->value);
	if (c->strict && m->value.kind == TRACE_NONE)
		compile_fail(c, e->at, "@%s is read, but nothing is ever assigned to it", m->name);
}

static void check_variable_value(struct compiler *c, struct trace_expr *e)
{
	struct variable *v = check_variable(c, e->text.data);

	if (!v) {
		compile_fail(c, e->at, "$%s has no value here", e->text.data);
		return;
	}
	e->symbol = (u32)(v - c->variables.data);
	e->type = v->type;
	/* `let $x;` alone: it is 0. */
	if (c->strict && v->type.kind == TRACE_NONE) {
		v->type = trace_type_int(8, true);
		c->changed = true;
	}
}

static void check_literal(struct trace_expr *e)
{
	e->type = e->kind == TRACE_EXPR_NUMBER	 ? trace_type_int(8, !e->is_unsigned)
		  : e->kind == TRACE_EXPR_STRING ? trace_type_string(e->text.n + 1)
						 : bool_type();
}

void check_expr(struct compiler *c, struct trace_expr *e)
{
	if (!compile_ok(c))
		return;
	switch (e->kind) {
	case TRACE_EXPR_NUMBER:
	case TRACE_EXPR_STRING:
	case TRACE_EXPR_BOOL:
		check_literal(e);
		break;
	case TRACE_EXPR_NAME:
		check_name(c, e);
		break;
	case TRACE_EXPR_VARIABLE:
		check_variable_value(c, e);
		break;
	case TRACE_EXPR_MAP:
		check_map_value(c, e);
		break;
	case TRACE_EXPR_CALL:
		check_call(c, e);
		break;
	case TRACE_EXPR_UNARY:
		check_unary(c, e);
		break;
	case TRACE_EXPR_BINARY:
		check_binary(c, e);
		break;
	case TRACE_EXPR_TERNARY:
		check_ternary(c, e);
		break;
	case TRACE_EXPR_FIELD:
		check_field(c, e);
		break;
	case TRACE_EXPR_INDEX:
		check_index(c, e);
		break;
	case TRACE_EXPR_CAST:
		check_cast(c, e);
		break;
	case TRACE_EXPR_SIZEOF:
		check_sizeof(c, e);
		break;
	case TRACE_EXPR_OFFSETOF:
		check_offsetof(c, e);
		break;
	case TRACE_EXPR_TUPLE:
	case TRACE_EXPR_NAMED_TUPLE:
		check_tuple(c, e);
		break;
	case TRACE_EXPR_IF:
	case TRACE_EXPR_BLOCK:
		check_block_value(c, e);
		break;
	default:
		compile_fail(c, e->at, "this cannot stand here");
	}
}
