/* SPDX-License-Identifier: Apache-2.0 */
/* Statements and blocks. */
#include <errno.h>
#include <string.h>

#include "trace/parse.h"

const char trace_no_import[] =
	"import is not supported: put the macros and types of the other file into this script";

static const struct {
	u64 sign;
	enum trace_op op;
} assignments[] = {
	{'=', TRACE_OP_NONE},
	{TRACE_SIGN2('+', '='), TRACE_OP_ADD},
	{TRACE_SIGN2('-', '='), TRACE_OP_SUB},
	{TRACE_SIGN2('*', '='), TRACE_OP_MUL},
	{TRACE_SIGN2('/', '='), TRACE_OP_DIV},
	{TRACE_SIGN2('%', '='), TRACE_OP_MOD},
	{TRACE_SIGN2('&', '='), TRACE_OP_AND},
	{TRACE_SIGN2('|', '='), TRACE_OP_OR},
	{TRACE_SIGN2('^', '='), TRACE_OP_XOR},
	{TRACE_SIGN3('<', '<', '='), TRACE_OP_SHL},
	{TRACE_SIGN3('>', '>', '='), TRACE_OP_SHR},
};

static bool is_assignment(const struct trace_parser *p, enum trace_op *ret_op)
{
	if (p->t.kind != TOKEN_SIGN)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(assignments); i++) {
		if (assignments[i].sign == p->t.number) {
			*ret_op = assignments[i].op;
			return true;
		}
	}
	return false;
}

static struct trace_statement *new_statement(struct trace_parser *p, enum trace_statement_kind kind)
{
	struct trace_statement *s = trace_alloc(p, 1, sizeof(*s));

	if (s) {
		s->kind = kind;
		s->at = p->t.at;
	}
	return s;
}

/* A value, or target = value. _ = value only runs the value. */
static int parse_assignment(struct trace_parser *p, struct trace_statement *s)
{
	s->value = trace_parse_expr(p);
	if (!s->value)
		return -EINVAL;
	if (!is_assignment(p, &s->op))
		return 0;
	s->target = s->value;
	if (s->target->kind == TRACE_EXPR_NAME && strcmp(s->target->text.data, "_") == 0)
		s->target = NULL;
	else if (s->target->kind == TRACE_EXPR_VARIABLE || s->target->kind == TRACE_EXPR_MAP)
		s->kind = TRACE_STATEMENT_ASSIGN;
	else if (s->target->kind == TRACE_EXPR_NAME)
		return trace_error(p->diag, s->at, -EINVAL,
				   "%s cannot be assigned to; did you mean $%s or @%s?",
				   s->target->text.data, s->target->text.data,
				   s->target->text.data);
	else
		return trace_error(p->diag, p->t.at, -EINVAL,
				   "only a variable ($x) or a map (@x, @x[key]) can be assigned "
				   "to; == compares");
	if (trace_advance(p) < 0)
		return -EINVAL;
	s->value = trace_parse_expr(p);
	return s->value ? 0 : -EINVAL;
}

static int parse_let(struct trace_parser *p, struct trace_statement *s)
{
	if (trace_advance(p) < 0)
		return -EINVAL;
	if (p->t.kind == TOKEN_MAP)
		return trace_error(p->diag, p->t.at, -EINVAL,
				   "a map is declared outside of actions: let @%s = hash(100);",
				   p->t.text.data);
	if (p->t.kind != TOKEN_VARIABLE)
		return trace_unexpected(p, "a variable ($x) after let");
	s->target = trace_parse_primary(p);
	if (!s->target)
		return -EINVAL;
	if (trace_is_sign(p, ':')) {
		if (trace_advance(p) < 0)
			return -EINVAL;
		s->type_name = trace_parse_type(p);
		if (!s->type_name)
			return -EINVAL;
	}
	if (!trace_is_sign(p, '='))
		return 0;
	s->value = trace_advance(p) < 0 ? NULL : trace_parse_expr(p);
	return s->value ? 0 : -EINVAL;
}

/* What stands between the word and the block of if, while and unroll. */
static int parse_condition(struct trace_parser *p, struct trace_statement *s, const char *what)
{
	if (trace_advance(p) < 0)
		return -EINVAL;
	if (trace_is_sign(p, '{'))
		return trace_unexpected(p, what);
	s->value = trace_parse_expr(p);
	return s->value ? 0 : -EINVAL;
}

static int parse_if(struct trace_parser *p, struct trace_statement *s)
{
	if (parse_condition(p, s, "a condition after if") < 0)
		return -EINVAL;
	s->body = trace_parse_block(p);
	if (!s->body || !trace_is_word(p, "else"))
		return s->body ? 0 : -EINVAL;
	if (trace_advance(p) < 0)
		return -EINVAL;
	if (trace_is_word(p, "if")) {
		struct trace_statement *inner = new_statement(p, TRACE_STATEMENT_IF);
		int r;

		s->otherwise = trace_alloc(p, 1, sizeof(*s->otherwise));
		if (!inner || !s->otherwise || trace_enter(p) < 0)
			return -EINVAL;
		s->otherwise->at = inner->at;
		s->otherwise->first = inner;
		r = parse_if(p, inner);
		trace_leave(p);
		return r;
	}
	s->otherwise = trace_parse_block(p);
	return s->otherwise ? 0 : -EINVAL;
}

/* while (value) { … }, unroll (value) { … } */
static int parse_repeat(struct trace_parser *p, struct trace_statement *s)
{
	bool is_while = s->kind == TRACE_STATEMENT_WHILE;

	if (parse_condition(p, s,
			    is_while ? "a condition after while" : "how many times, after unroll") <
	    0)
		return -EINVAL;
	s->body = trace_parse_block(p);
	return s->body ? 0 : -EINVAL;
}

static int parse_for(struct trace_parser *p, struct trace_statement *s)
{
	static const char form[] = "for runs over a map or a range: for ($kv : @map) { … }, "
				   "for ($i : 0..10) { … }";
	bool in_parentheses;

	if (trace_advance(p) < 0)
		return -EINVAL;
	in_parentheses = trace_is_sign(p, '(');
	if (in_parentheses && trace_advance(p) < 0)
		return -EINVAL;
	if (p->t.kind != TOKEN_VARIABLE)
		return trace_error(p->diag, p->t.at, -EINVAL, "%s", form);
	s->target = trace_parse_primary(p);
	if (!s->target)
		return -EINVAL;
	if (!trace_is_sign(p, ':'))
		return trace_error(p->diag, p->t.at, -EINVAL, "%s", form);
	s->value = trace_advance(p) < 0 ? NULL : trace_parse_binary(p, 1);
	if (!s->value)
		return -EINVAL;
	if (trace_is_sign(p, TRACE_SIGN2('.', '.'))) {
		s->kind = TRACE_STATEMENT_FOR_RANGE;
		s->end = trace_advance(p) < 0 ? NULL : trace_parse_binary(p, 1);
		if (!s->end)
			return -EINVAL;
	} else if (s->value->kind != TRACE_EXPR_MAP || s->value->n_list) {
		return trace_error(p->diag, s->value->at, -EINVAL, "%s", form);
	}
	if (in_parentheses && trace_expect(p, ')', "before the block of the loop") < 0)
		return -EINVAL;
	s->body = trace_parse_block(p);
	return s->body ? 0 : -EINVAL;
}

static int parse_return(struct trace_parser *p, struct trace_statement *s)
{
	if (trace_advance(p) < 0)
		return -EINVAL;
	if (trace_is_sign(p, ';') || trace_is_sign(p, '}'))
		return 0;
	s->value = trace_parse_expr(p);
	return s->value ? 0 : -EINVAL;
}

static int parse_nested(struct trace_parser *p, struct trace_statement *s)
{
	s->body = trace_parse_block(p);
	return s->body ? 0 : -EINVAL;
}

static int parse_jump(struct trace_parser *p, struct trace_statement *s)
{
	(void)s;
	return trace_advance(p);
}

static int parse_import(struct trace_parser *p, struct trace_statement *s)
{
	return trace_error(p->diag, s->at, -EINVAL, "%s", trace_no_import);
}

static int parse_statement(struct trace_parser *p, struct trace_statement **ret)
{
	static const struct {
		const char *word;
		enum trace_statement_kind kind;
		int (*parse)(struct trace_parser *p, struct trace_statement *s);
	} words[] = {
		{"let", TRACE_STATEMENT_LET, parse_let},
		{"if", TRACE_STATEMENT_IF, parse_if},
		{"while", TRACE_STATEMENT_WHILE, parse_repeat},
		{"unroll", TRACE_STATEMENT_UNROLL, parse_repeat},
		{"for", TRACE_STATEMENT_FOR_MAP, parse_for},
		{"break", TRACE_STATEMENT_BREAK, parse_jump},
		{"continue", TRACE_STATEMENT_CONTINUE, parse_jump},
		{"return", TRACE_STATEMENT_RETURN, parse_return},
		{"import", TRACE_STATEMENT_EXPR, parse_import},
	};
	struct trace_statement *s = new_statement(p, TRACE_STATEMENT_EXPR);

	if (!s)
		return -ENOMEM;
	*ret = s;
	if (trace_is_sign(p, '{')) {
		s->kind = TRACE_STATEMENT_BLOCK;
		return parse_nested(p, s);
	}
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!trace_is_word(p, words[i].word))
			continue;
		s->kind = words[i].kind;
		return words[i].parse(p, s);
	}
	return parse_assignment(p, s);
}

/* Whether the next statement may follow without a semicolon. */
static bool ends_with_block(const struct trace_statement *s)
{
	return s->body != NULL;
}

static int end_statement(struct trace_parser *p, const struct trace_statement *s)
{
	if (trace_is_sign(p, '{') && s->kind == TRACE_STATEMENT_EXPR && s->value &&
	    (s->value->kind == TRACE_EXPR_NAME || s->value->kind == TRACE_EXPR_CALL))
		return trace_error(p->diag, s->at, -EINVAL,
				   "%s has no block; there are if, else, for, while and unroll",
				   s->value->text.data);
	return trace_expect(p, ';', "after the statement");
}

struct trace_block *trace_parse_block(struct trace_parser *p)
{
	struct trace_block *b = trace_alloc(p, 1, sizeof(*b));
	struct trace_statement **tail;

	if (!b)
		return NULL;
	b->at = p->t.at;
	tail = &b->first;
	if (trace_expect(p, '{', "to begin a block") < 0 || trace_enter(p) < 0)
		return NULL;
	while (!trace_is_sign(p, '}')) {
		if (trace_is_sign(p, ';')) {
			if (trace_advance(p) < 0)
				return NULL;
			continue;
		}
		if (p->t.kind == TOKEN_END) {
			trace_error(p->diag, b->at, -EINVAL, "the block has no end: } is missing");
			return NULL;
		}
		if (parse_statement(p, tail) < 0)
			return NULL;
		if (!ends_with_block(*tail) && !trace_is_sign(p, '}') &&
		    end_statement(p, *tail) < 0)
			return NULL;
		tail = &(*tail)->next;
	}
	trace_leave(p);
	return trace_advance(p) < 0 ? NULL : b;
}

int trace_block_to_value(struct trace_parser *p, struct trace_block *b)
{
	struct trace_statement *s = b->first;
	struct trace_expr *e;
	int r;

	while (s && s->next)
		s = s->next;
	if (!s ||
	    (s->kind != TRACE_STATEMENT_BLOCK && (s->kind != TRACE_STATEMENT_IF || !s->otherwise)))
		return 0;
	e = trace_expr_new(p, s->kind == TRACE_STATEMENT_IF ? TRACE_EXPR_IF : TRACE_EXPR_BLOCK,
			   s->at);
	if (!e)
		return -ENOMEM;
	e->a = s->value;
	e->block = s->body;
	e->otherwise = s->otherwise;
	s->kind = TRACE_STATEMENT_EXPR;
	s->value = e;
	s->body = s->otherwise = NULL;
	r = trace_block_to_value(p, e->block);
	return r < 0 || !e->otherwise ? r : trace_block_to_value(p, e->otherwise);
}
