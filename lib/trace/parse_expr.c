/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of expressions, by precedence, and the values of constants. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "trace/parse.h"

static const struct {
	u64 sign;
	u8 precedence; /* higher binds closer */
	u8 op;
} operators[] = {
	{TRACE_SIGN2('|', '|'), 1, TRACE_OP_LOR},
	{TRACE_SIGN2('&', '&'), 2, TRACE_OP_LAND},
	{'|', 3, TRACE_OP_OR},
	{'^', 4, TRACE_OP_XOR},
	{'&', 5, TRACE_OP_AND},
	{TRACE_SIGN2('=', '='), 6, TRACE_OP_EQ},
	{TRACE_SIGN2('!', '='), 6, TRACE_OP_NE},
	{'<', 7, TRACE_OP_LT},
	{TRACE_SIGN2('<', '='), 7, TRACE_OP_LE},
	{'>', 7, TRACE_OP_GT},
	{TRACE_SIGN2('>', '='), 7, TRACE_OP_GE},
	{TRACE_SIGN2('<', '<'), 8, TRACE_OP_SHL},
	{TRACE_SIGN2('>', '>'), 8, TRACE_OP_SHR},
	{'+', 9, TRACE_OP_ADD},
	{'-', 9, TRACE_OP_SUB},
	{'*', 10, TRACE_OP_MUL},
	{'/', 10, TRACE_OP_DIV},
	{'%', 10, TRACE_OP_MOD},
};

/* The / that ends a predicate stands before the { of the action. */
static bool ends_predicate(const struct trace_parser *p)
{
	struct trace_lexer ahead = p->lexer;

	if (!p->in_predicate || !trace_is_sign(p, '/'))
		return false;
	ahead.diag = NULL;
	return trace_lexer_skip(&ahead) == 0 && ahead.pos < ahead.n && ahead.text[ahead.pos] == '{';
}

static bool next_operator(const struct trace_parser *p, u32 *ret_precedence, enum trace_op *ret_op)
{
	if (p->t.kind != TOKEN_SIGN || ends_predicate(p))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(operators); i++) {
		if (operators[i].sign == p->t.number) {
			*ret_precedence = operators[i].precedence;
			*ret_op = (enum trace_op)operators[i].op;
			return true;
		}
	}
	return false;
}

struct trace_expr *trace_parse_binary(struct trace_parser *p, u32 least)
{
	struct trace_expr *left = trace_parse_unary(p);
	enum trace_op op;
	u32 precedence;

	while (left && next_operator(p, &precedence, &op) && precedence >= least) {
		struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_BINARY, p->t.at);

		if (!e || trace_advance(p) < 0)
			return NULL;
		e->op = op;
		e->a = left;
		e->b = trace_parse_binary(p, precedence + 1);
		if (!e->b)
			return NULL;
		left = e;
	}
	return left;
}

static struct trace_expr *parse_branches(struct trace_parser *p, struct trace_expr *condition)
{
	bool is_short = trace_is_sign(p, TRACE_SIGN2('?', ':'));
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_TERNARY, p->t.at);

	if (!e || trace_advance(p) < 0)
		return NULL;
	e->a = condition;
	if (!is_short && !trace_is_sign(p, ':')) {
		e->b = trace_parse_expr(p);
		if (!e->b)
			return NULL;
	}
	if (!is_short && trace_expect(p, ':', "between the two values after ?") < 0)
		return NULL;
	e->c = trace_parse_expr(p);
	return e->c ? e : NULL;
}

struct trace_expr *trace_parse_expr(struct trace_parser *p)
{
	struct trace_expr *e;

	if (trace_enter(p) < 0)
		return NULL;
	e = trace_parse_binary(p, 1);
	if (e && (trace_is_sign(p, '?') || trace_is_sign(p, TRACE_SIGN2('?', ':'))))
		e = parse_branches(p, e);
	trace_leave(p);
	return e;
}

/* ---- prefix and postfix ---- */

static int check_counts(struct trace_parser *p, const struct trace_expr *a, struct trace_at at)
{
	if (a->kind == TRACE_EXPR_VARIABLE || a->kind == TRACE_EXPR_MAP)
		return 0;
	return trace_error(p->diag, at, -EINVAL,
			   "++ and -- change a variable or a map: $x++ or @x[key]++");
}

static enum trace_op prefix_operator(const struct trace_parser *p)
{
	if (p->t.kind != TOKEN_SIGN)
		return TRACE_OP_NONE;
	switch (p->t.number) {
	case '-':
		return TRACE_OP_NEG;
	case '!':
		return TRACE_OP_NOT;
	case '~':
		return TRACE_OP_INVERT;
	case '*':
		return TRACE_OP_DEREF;
	case '&':
		return TRACE_OP_ADDRESS;
	case TRACE_SIGN2('+', '+'):
		return TRACE_OP_INCREMENT;
	case TRACE_SIGN2('-', '-'):
		return TRACE_OP_DECREMENT;
	default:
		return TRACE_OP_NONE;
	}
}

static int parse_prefix(struct trace_parser *p, struct trace_expr *e)
{
	e->op = prefix_operator(p);
	if (trace_advance(p) < 0)
		return -EINVAL;
	e->a = trace_parse_unary(p);
	if (!e->a)
		return -EINVAL;
	if (e->op == TRACE_OP_INCREMENT || e->op == TRACE_OP_DECREMENT)
		return check_counts(p, e->a, e->at);
	if (e->op == TRACE_OP_ADDRESS && e->a->kind != TRACE_EXPR_VARIABLE &&
	    e->a->kind != TRACE_EXPR_MAP && e->a->kind != TRACE_EXPR_NAME)
		return trace_error(p->diag, e->at, -EINVAL,
				   "& takes the address of a variable or a map: &$x or &@x");
	/* A negative number is a constant, so that it can be one where constants are wanted. */
	if (e->op == TRACE_OP_NEG && e->a->kind == TRACE_EXPR_NUMBER &&
	    (!e->a->is_unsigned || e->a->number == INT64_MIN)) {
		e->kind = TRACE_EXPR_NUMBER;
		e->op = TRACE_OP_NONE;
		e->number = (s64)(0 - (u64)e->a->number);
		e->is_unsigned = e->a->number == INT64_MIN && !e->a->is_unsigned;
		e->a = NULL;
	}
	return 0;
}

static struct trace_expr *parse_field(struct trace_parser *p, struct trace_expr *a)
{
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_FIELD, p->t.at);
	const char *digits;
	size_t n;

	if (!e)
		return NULL;
	e->a = a;
	e->is_arrow = !trace_is_sign(p, '.');
	if (trace_advance(p) < 0)
		return NULL;
	if (p->t.kind == TOKEN_NAME) {
		e->text = p->t.text;
	} else if (p->t.kind == TOKEN_NUMBER && !e->is_arrow) {
		digits = p->lexer.text + p->t.begin;
		n = p->t.end - p->t.begin;
		if (strspn(digits, "0123456789") < n || p->t.number > 1000) {
			trace_error(p->diag, p->t.at, -EINVAL,
				    "a field of a tuple is a decimal number: $x.0");
			return NULL;
		}
		if (trace_copy(&p->lexer, p->t.at, digits, n, &e->text.data) < 0)
			return NULL;
		e->text.n = (u32)n;
	} else {
		trace_unexpected(p, e->is_arrow ? "the name of a field after ->"
						: "the name of a field after .");
		return NULL;
	}
	return trace_advance(p) < 0 ? NULL : e;
}

static struct trace_expr *parse_index(struct trace_parser *p, struct trace_expr *a)
{
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_INDEX, p->t.at);

	if (!e || trace_advance(p) < 0)
		return NULL;
	e->a = a;
	e->b = trace_parse_expr(p);
	if (!e->b || trace_expect(p, ']', "after the index") < 0)
		return NULL;
	return e;
}

static struct trace_expr *parse_count(struct trace_parser *p, struct trace_expr *a)
{
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_UNARY, p->t.at);

	if (!e || check_counts(p, a, p->t.at) < 0)
		return NULL;
	e->a = a;
	e->is_postfix = true;
	e->op = prefix_operator(p);
	return trace_advance(p) < 0 ? NULL : e;
}

static struct trace_expr *parse_postfix(struct trace_parser *p)
{
	bool in_predicate = p->in_predicate;
	struct trace_expr *e;

	p->in_predicate = false; /* within parentheses and brackets */
	e = trace_parse_primary(p);
	while (e && p->t.kind == TOKEN_SIGN) {
		if (trace_is_sign(p, '.') || trace_is_sign(p, TRACE_SIGN2('-', '>')))
			e = parse_field(p, e);
		else if (trace_is_sign(p, '['))
			e = parse_index(p, e);
		else if (trace_is_sign(p, TRACE_SIGN2('+', '+')) ||
			 trace_is_sign(p, TRACE_SIGN2('-', '-')))
			e = parse_count(p, e);
		else
			break;
	}
	p->in_predicate = in_predicate;
	return e;
}

struct trace_expr *trace_parse_unary(struct trace_parser *p)
{
	struct trace_expr *e;

	if (trace_enter(p) < 0)
		return NULL;
	if (prefix_operator(p) != TRACE_OP_NONE) {
		e = trace_expr_new(p, TRACE_EXPR_UNARY, p->t.at);
		if (e && parse_prefix(p, e) < 0)
			e = NULL;
	} else {
		e = parse_postfix(p);
	}
	trace_leave(p);
	return e;
}

/* ---- constants ---- */

static int constant_comparison(enum trace_op op, s64 a, s64 b, s64 *ret)
{
	switch (op) {
	case TRACE_OP_LAND:
		*ret = a && b;
		return 0;
	case TRACE_OP_LOR:
		*ret = a || b;
		return 0;
	case TRACE_OP_EQ:
		*ret = a == b;
		return 0;
	case TRACE_OP_NE:
		*ret = a != b;
		return 0;
	case TRACE_OP_LT:
		*ret = a < b;
		return 0;
	case TRACE_OP_LE:
		*ret = a <= b;
		return 0;
	case TRACE_OP_GT:
		*ret = a > b;
		return 0;
	case TRACE_OP_GE:
		*ret = a >= b;
		return 0;
	default:
		return -EINVAL;
	}
}

static int constant_binary(enum trace_op op, s64 a, s64 b, s64 *ret)
{
	u64 x = (u64)a, y = (u64)b;

	switch (op) {
	case TRACE_OP_ADD:
		*ret = (s64)(x + y);
		return 0;
	case TRACE_OP_SUB:
		*ret = (s64)(x - y);
		return 0;
	case TRACE_OP_MUL:
		*ret = (s64)(x * y);
		return 0;
	case TRACE_OP_DIV:
	case TRACE_OP_MOD:
		if (!b || (b == -1 && a == INT64_MIN))
			return -EINVAL;
		*ret = op == TRACE_OP_DIV ? a / b : a % b;
		return 0;
	case TRACE_OP_AND:
		*ret = a & b;
		return 0;
	case TRACE_OP_OR:
		*ret = a | b;
		return 0;
	case TRACE_OP_XOR:
		*ret = a ^ b;
		return 0;
	case TRACE_OP_SHL:
		*ret = (s64)(x << (y & 63));
		return 0;
	case TRACE_OP_SHR:
		*ret = (s64)(x >> (y & 63));
		return 0;
	default:
		return constant_comparison(op, a, b, ret);
	}
}

static int constant_unary(enum trace_op op, s64 a, s64 *ret)
{
	switch (op) {
	case TRACE_OP_NEG:
		*ret = (s64) - (u64)a;
		return 0;
	case TRACE_OP_NOT:
		*ret = !a;
		return 0;
	case TRACE_OP_INVERT:
		*ret = ~a;
		return 0;
	default:
		return -EINVAL;
	}
}

static int constant_deep(const struct trace_expr *e, u32 depth, s64 *ret)
{
	s64 a = 0, b = 0;
	int r;

	if (!e || depth > TRACE_MAX_DEPTH)
		return -EINVAL;
	switch (e->kind) {
	case TRACE_EXPR_NUMBER:
	case TRACE_EXPR_BOOL:
		*ret = e->number;
		return 0;
	case TRACE_EXPR_UNARY:
		r = constant_deep(e->a, depth + 1, &a);
		return r < 0 ? r : constant_unary(e->op, a, ret);
	case TRACE_EXPR_BINARY:
		r = constant_deep(e->a, depth + 1, &a);
		if (r == 0)
			r = constant_deep(e->b, depth + 1, &b);
		return r < 0 ? r : constant_binary(e->op, a, b, ret);
	case TRACE_EXPR_TERNARY:
		r = constant_deep(e->a, depth + 1, &a);
		if (r < 0)
			return r;
		if (a && !e->b)
			*ret = a;
		else
			return constant_deep(a ? e->b : e->c, depth + 1, ret);
		return 0;
	default:
		return -EINVAL;
	}
}

int trace_constant(const struct trace_expr *e, s64 *ret)
{
	return constant_deep(e, 0, ret);
}
