/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of expressions: literals, names, calls, maps, casts, tuples, and blocks with a value. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "trace/parse.h"

int trace_list_add(struct trace_parser *p, struct trace_expr *e, struct trace_expr *item)
{
	u32 n = e->n_list;

	/* Room grows at 0, 4, 8, 16 …: when n is a power of two. */
	if (n == 0 || (n >= 4 && (n & (n - 1)) == 0)) {
		struct trace_expr **list = trace_alloc(p, n ? 2 * n : 4, sizeof(*list));

		if (!list)
			return -ENOMEM;
		if (n)
			memcpy(list, e->list, n * sizeof(*list));
		e->list = list;
	}
	e->list[e->n_list++] = item;
	return 0;
}

int trace_parse_list(struct trace_parser *p, struct trace_expr *e, u64 end, const char *where)
{
	while (!trace_is_sign(p, end)) {
		struct trace_expr *item = trace_parse_expr(p);

		if (!item || trace_list_add(p, e, item) < 0)
			return -EINVAL;
		if (!trace_is_sign(p, ','))
			break;
		if (trace_advance(p) < 0)
			return -EINVAL;
		if (trace_is_sign(p, end) && e->kind != TRACE_EXPR_TUPLE)
			return trace_unexpected(p, "a value after ,");
	}
	return trace_expect(p, end, where);
}

/* ---- what begins with a parenthesis ---- */

static bool starts_operand(const struct trace_parser *p)
{
	switch (p->t.kind) {
	case TOKEN_END:
		return false;
	case TOKEN_SIGN:
		return p->t.number < 128 && strchr("(-!~*&{", (char)p->t.number);
	default:
		return true;
	}
}

/* (typeof(x)) operand; without an operand it is the type as an argument. */
static struct trace_expr *parse_typeof_cast(struct trace_parser *p, struct trace_expr *e)
{
	e->type_name = trace_parse_type(p);
	if (!e->type_name || trace_expect(p, ')', "after the type") < 0)
		return NULL;
	if (!starts_operand(p))
		e->kind = TRACE_EXPR_TYPE;
	return e;
}

/*
 * (type) operand. A name alone is a type if an operand follows, unless it is known to be a value:
 * (pid) * 2 is a product, (u64) * $x a cast.
 */
static struct trace_expr *try_cast(struct trace_parser *p, struct trace_at at)
{
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_CAST, at);
	struct diag scratch = {};
	bool is_cast, is_tag = trace_is_tag(p);
	struct trace_mark m;

	if (!e || p->t.kind != TOKEN_NAME)
		return NULL;
	if (trace_is_word(p, "typeof"))
		return parse_typeof_cast(p, e);
	if (trace_is_builtin(p->t.text.data) || trace_find_define(p, p->t.text.data))
		return NULL;
	trace_try(p, &m, &scratch);
	e->type_name = trace_parse_type(p);
	is_cast =
		e->type_name && trace_is_sign(p, ')') && trace_advance(p) == 0 && starts_operand(p);
	if (is_cast && e->type_name->name && !e->type_name->pointers && !e->type_name->is_array &&
	    trace_is_macro_parameter(p, TRACE_EXPR_NAME, e->type_name->name))
		is_cast = p->t.kind != TOKEN_SIGN;
	if (!is_cast) {
		trace_try_failed(p, &m);
		/* Behind struct nothing but a type can stand. */
		if (is_tag)
			diag_set(p->diag, -EINVAL, "%s", scratch.text);
		return NULL;
	}
	trace_try_held(p, &m);
	return e;
}

/* (a = 1, b = 2) */
static struct trace_expr *parse_named_tuple(struct trace_parser *p, struct trace_expr *e)
{
	const char *names[64];

	e->kind = TRACE_EXPR_NAMED_TUPLE;
	do {
		struct trace_expr *value;

		if (e->n_list && trace_advance(p) < 0)
			return NULL;
		if (trace_is_sign(p, ')') && e->n_list)
			break;
		if (p->t.kind != TOKEN_NAME) {
			trace_unexpected(p, "a name and = in a tuple with names");
			return NULL;
		}
		if (e->n_list == ARRAY_SIZE(names)) {
			trace_error(p->diag, p->t.at, -EINVAL, "a tuple has 64 fields at most");
			return NULL;
		}
		names[e->n_list] = p->t.text.data;
		for (u32 i = 0; i < e->n_list; i++) {
			if (strcmp(names[i], names[e->n_list]) == 0) {
				trace_error(p->diag, p->t.at, -EINVAL,
					    "the tuple has two fields %s", names[i]);
				return NULL;
			}
		}
		if (trace_advance(p) < 0 ||
		    trace_expect(p, '=', "between the name of a field and its value") < 0)
			return NULL;
		value = trace_parse_expr(p);
		if (!value || trace_list_add(p, e, value) < 0)
			return NULL;
	} while (trace_is_sign(p, ','));
	e->names = trace_alloc(p, e->n_list, sizeof(*e->names));
	if (!e->names)
		return NULL;
	memcpy(e->names, names, e->n_list * sizeof(*names));
	return trace_expect(p, ')', "at the end of the tuple") < 0 ? NULL : e;
}

static bool is_named_tuple(const struct trace_parser *p)
{
	struct trace_lexer ahead = p->lexer;
	struct trace_token next;

	ahead.diag = NULL;
	return p->t.kind == TOKEN_NAME && trace_lexer_next(&ahead, &next) == 0 &&
	       next.kind == TOKEN_SIGN && next.number == '=';
}

static struct trace_expr *parse_parenthesis(struct trace_parser *p)
{
	struct trace_at at = p->t.at;
	struct trace_expr *e, *first;

	if (trace_advance(p) < 0)
		return NULL;
	e = try_cast(p, at);
	if (e) {
		if (e->kind == TRACE_EXPR_CAST)
			e->a = trace_parse_unary(p);
		return e->a || e->kind == TRACE_EXPR_TYPE ? e : NULL;
	}
	if (p->diag->text[0])
		return NULL;
	if (is_named_tuple(p) || trace_is_sign(p, ')')) {
		e = trace_expr_new(p, TRACE_EXPR_TUPLE, at);
		if (!e)
			return NULL;
		if (trace_is_sign(p, ')'))
			return trace_advance(p) < 0 ? NULL : e;
		return parse_named_tuple(p, e);
	}
	first = trace_parse_expr(p);
	if (!first)
		return NULL;
	if (!trace_is_sign(p, ','))
		return trace_expect(p, ')', "to close the (") < 0 ? NULL : first;
	e = trace_expr_new(p, TRACE_EXPR_TUPLE, at);
	if (!e || trace_list_add(p, e, first) < 0 || trace_advance(p) < 0)
		return NULL;
	return trace_parse_list(p, e, ')', "at the end of the tuple") < 0 ? NULL : e;
}

/* ---- sizeof, offsetof, typeof, typeinfo ---- */

/* The fields of offsetof(type, a.b). */
static int parse_field_path(struct trace_parser *p, struct trace_expr *e)
{
	size_t begin = p->t.begin, end = begin;

	for (;;) {
		if (p->t.kind != TOKEN_NAME)
			return trace_unexpected(p, "the name of a field in offsetof(type, field)");
		end = p->t.end;
		if (trace_advance(p) < 0)
			return -EINVAL;
		if (!trace_is_sign(p, '.'))
			break;
		if (trace_advance(p) < 0)
			return -EINVAL;
	}
	e->text.n = (u32)(end - begin);
	return trace_copy(&p->lexer, e->at, p->lexer.text + begin, end - begin, &e->text.data);
}

static struct trace_expr *parse_of_type(struct trace_parser *p, enum trace_expr_kind kind)
{
	struct trace_expr *e = trace_expr_new(p, kind, p->t.at);

	if (!e)
		return NULL;
	if (kind == TRACE_EXPR_CALL)
		e->text = p->t.text;
	if (trace_advance(p) < 0 || trace_expect(p, '(', "before the type or value") < 0 ||
	    trace_parse_type_or_value(p, &e->type_name, &e->a) < 0)
		return NULL;
	if (kind == TRACE_EXPR_OFFSETOF) {
		if (trace_expect(p, ',', "between the type and the field of offsetof()") < 0 ||
		    parse_field_path(p, e) < 0)
			return NULL;
	}
	return trace_expect(p, ')', "after the type or value") < 0 ? NULL : e;
}

static struct trace_expr *parse_typeof(struct trace_parser *p)
{
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_TYPE, p->t.at);

	if (!e)
		return NULL;
	e->type_name = trace_parse_type(p);
	return e->type_name ? e : NULL;
}

/* ---- names ---- */

/* The body of a #define, read as an expression in its place. */
static struct trace_expr *parse_define(struct trace_parser *p, struct trace_define *define)
{
	struct trace_lexer lexer = p->lexer;
	struct trace_expr *e;

	if (define->has_parameters) {
		trace_error(p->diag, p->t.at, -EINVAL,
			    "%s is a #define with parameters, which the language does not have: "
			    "write macro %s(…) { … }",
			    define->name, define->name);
		return NULL;
	}
	if (define->is_active) {
		trace_error(p->diag, p->t.at, -EINVAL, "%s is defined by itself", define->name);
		return NULL;
	}
	p->lexer.text = p->source->joined;
	p->lexer.n = define->end;
	p->lexer.pos = define->begin;
	p->lexer.line = define->at.line;
	p->lexer.line_begin = define->begin - (define->at.column - 1);
	if (trace_advance(p) < 0)
		return NULL;
	define->is_active = true;
	e = trace_parse_expr(p);
	define->is_active = false;
	if (e && p->t.kind != TOKEN_END) {
		trace_unexpected(p, "the end of the #define, which is one expression");
		return NULL;
	}
	p->lexer = lexer;
	return e && trace_advance(p) == 0 ? e : NULL;
}

static struct trace_expr *parse_if(struct trace_parser *p)
{
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_IF, p->t.at);

	if (!e || trace_advance(p) < 0)
		return NULL;
	e->a = trace_parse_expr(p);
	if (!e->a)
		return NULL;
	e->block = trace_parse_block(p);
	if (!e->block || trace_block_to_value(p, e->block) < 0)
		return NULL;
	if (!trace_is_word(p, "else")) {
		trace_unexpected(p, "else: an if that is a value needs a value for both cases");
		return NULL;
	}
	if (trace_advance(p) < 0)
		return NULL;
	if (trace_is_word(p, "if")) {
		struct trace_expr *inner;

		e->otherwise = trace_alloc(p, 1, sizeof(*e->otherwise));
		if (!e->otherwise || trace_enter(p) < 0)
			return NULL;
		inner = parse_if(p);
		trace_leave(p);
		e->otherwise->first = trace_alloc(p, 1, sizeof(*e->otherwise->first));
		if (!inner || !e->otherwise->first)
			return NULL;
		e->otherwise->at = e->otherwise->first->at = inner->at;
		e->otherwise->first->kind = TRACE_STATEMENT_EXPR;
		e->otherwise->first->value = inner;
		return e;
	}
	e->otherwise = trace_parse_block(p);
	return e->otherwise && trace_block_to_value(p, e->otherwise) == 0 ? e : NULL;
}

/* name, name(…), and name!(…), which is the same. */
static struct trace_expr *parse_name(struct trace_parser *p)
{
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_NAME, p->t.at);
	struct trace_define *define = trace_find_define(p, p->t.text.data);

	if (!e)
		return NULL;
	if (define && !trace_is_macro_parameter(p, TRACE_EXPR_NAME, define->name))
		return parse_define(p, define);
	e->text = p->t.text;
	if (trace_advance(p) < 0)
		return NULL;
	if (trace_is_sign(p, '!') && p->lexer.pos < p->lexer.n &&
	    p->lexer.text[p->lexer.pos] == '(' && trace_advance(p) < 0)
		return NULL;
	if (!trace_is_sign(p, '('))
		return e;
	e->kind = TRACE_EXPR_CALL;
	if (trace_advance(p) < 0 ||
	    trace_parse_list(p, e, ')', "after the arguments of a call") < 0 ||
	    trace_resolve_call(p, &e) < 0)
		return NULL;
	return e;
}

static struct trace_expr *parse_comptime(struct trace_parser *p)
{
	struct trace_expr *e;

	if (trace_advance(p) < 0)
		return NULL;
	e = trace_parse_unary(p);
	if (e)
		e->is_comptime = true;
	return e;
}

static struct trace_expr *parse_word(struct trace_parser *p)
{
	static const char *const statements[] = {"else",   "for",      "while",	 "unroll", "let",
						 "break",  "continue", "return", "import", "macro",
						 "struct", "union",    "enum"};
	struct trace_expr *e;

	for (size_t i = 0; i < ARRAY_SIZE(statements); i++) {
		if (trace_is_word(p, statements[i])) {
			trace_unexpected(p, "a value");
			return NULL;
		}
	}
	if (trace_is_word(p, "true") || trace_is_word(p, "false")) {
		e = trace_expr_new(p, TRACE_EXPR_BOOL, p->t.at);
		if (!e)
			return NULL;
		e->number = p->t.text.data[0] == 't';
		return trace_advance(p) < 0 ? NULL : e;
	}
	if (trace_is_word(p, "if"))
		return parse_if(p);
	if (trace_is_word(p, "comptime"))
		return parse_comptime(p);
	if (trace_is_word(p, "sizeof"))
		return parse_of_type(p, TRACE_EXPR_SIZEOF);
	if (trace_is_word(p, "offsetof"))
		return parse_of_type(p, TRACE_EXPR_OFFSETOF);
	if (trace_is_word(p, "typeinfo"))
		return parse_of_type(p, TRACE_EXPR_CALL);
	if (trace_is_word(p, "typeof"))
		return parse_typeof(p);
	return parse_name(p);
}

/* ---- maps, literals ---- */

/* @x, @x[a, b]. @x[(a, b)] is the same key as @x[a, b]. */
static struct trace_expr *parse_map(struct trace_parser *p)
{
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_MAP, p->t.at);

	if (!e)
		return NULL;
	e->text = p->t.text;
	if (trace_advance(p) < 0)
		return NULL;
	if (!trace_is_sign(p, '['))
		return e;
	if (trace_advance(p) < 0 || trace_parse_list(p, e, ']', "after the key of a map") < 0)
		return NULL;
	if (!e->n_list) {
		trace_error(p->diag, e->at, -EINVAL, "@%s[] has no key: write @%s or @%s[key]",
			    e->text.data, e->text.data, e->text.data);
		return NULL;
	}
	if (e->n_list == 1 && e->list[0]->kind == TRACE_EXPR_TUPLE && e->list[0]->n_list > 1) {
		e->n_list = e->list[0]->n_list;
		e->list = e->list[0]->list;
	}
	return e;
}

static struct trace_expr *parse_literal(struct trace_parser *p)
{
	struct trace_expr *e;

	if (p->t.kind == TOKEN_PARAMETER) {
		e = trace_parameter_expr(p, p->t.at, p->t.number);
		return e && trace_advance(p) == 0 ? e : NULL;
	}
	e = trace_expr_new(p, TRACE_EXPR_NUMBER, p->t.at);
	if (!e)
		return NULL;
	if (p->t.kind == TOKEN_NUMBER) {
		e->number = (s64)p->t.number;
		e->is_unsigned = p->t.number > INT64_MAX;
	} else {
		e->kind = p->t.kind == TOKEN_STRING ? TRACE_EXPR_STRING : TRACE_EXPR_VARIABLE;
		e->text = p->t.text;
	}
	return trace_advance(p) < 0 ? NULL : e;
}

static struct trace_expr *parse_value_block(struct trace_parser *p)
{
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_BLOCK, p->t.at);

	if (!e)
		return NULL;
	e->block = trace_parse_block(p);
	return e->block && trace_block_to_value(p, e->block) == 0 ? e : NULL;
}

struct trace_expr *trace_parse_primary(struct trace_parser *p)
{
	switch (p->t.kind) {
	case TOKEN_NAME:
		return parse_word(p);
	case TOKEN_MAP:
		return parse_map(p);
	case TOKEN_VARIABLE:
	case TOKEN_PARAMETER:
	case TOKEN_NUMBER:
	case TOKEN_STRING:
		return parse_literal(p);
	case TOKEN_SIGN:
		if (trace_is_sign(p, '('))
			return parse_parenthesis(p);
		if (trace_is_sign(p, '{'))
			return parse_value_block(p);
		break;
	case TOKEN_END:
		break;
	}
	trace_unexpected(p, "a value");
	return NULL;
}
