/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Macros: macro name(value, $variable, @map) { … }. A call becomes a copy of the body in which each
 * parameter is replaced by its argument. Variables that the body makes are its own: they get a name
 * that nobody can write, $x'3 in the third copy. A map must be a parameter.
 *
 * The walk also finds trees that are too deep, from long chains of operators or from macros, so
 * that later parts may recurse.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "trace/parse.h"

/* One expansion, while the body is copied. */
struct copy {
	struct trace_parser *p;
	const struct trace_macro *macro;
	struct trace_expr **arguments;
	u32 number; /* of the expansion */
};

static int walk_expr(struct trace_parser *p, struct trace_expr **e, u32 depth);
static int walk_block(struct trace_parser *p, struct trace_block *b, u32 depth);
static struct trace_block *copy_block(const struct copy *c, const struct trace_block *b);
static struct trace_expr *copy_expr(const struct copy *c, const struct trace_expr *e);

/* ---- copies ---- */

/* The argument for a parameter; NULL: it is none. */
static struct trace_expr *argument(const struct copy *c, enum trace_expr_kind kind,
				   const char *name)
{
	for (u32 i = 0; i < c->macro->n; i++) {
		if (c->macro->parameters[i].kind == kind &&
		    strcmp(c->macro->parameters[i].name, name) == 0)
			return c->arguments[i];
	}
	return NULL;
}

/* An argument is copied as it is, without looking for parameters in it. */
static struct trace_expr *copy_argument(const struct copy *c, const struct trace_expr *e)
{
	static const struct trace_macro nothing = {};
	struct copy plain = {.p = c->p, .macro = &nothing};

	return copy_expr(&plain, e);
}

static struct trace_type_name *copy_type(const struct copy *c, const struct trace_type_name *t)
{
	struct trace_type_name *copy = trace_alloc(c->p, 1, sizeof(*copy));
	struct trace_expr *given;

	if (!copy)
		return NULL;
	*copy = *t;
	if (t->of) {
		copy->of = copy_type(c, t->of);
		return copy->of ? copy : NULL;
	}
	given = t->name ? argument(c, TRACE_EXPR_NAME, t->name) : NULL;
	if (given && given->kind == TRACE_EXPR_TYPE) {
		copy->name = NULL;
		copy->of = given->type_name;
		return copy;
	}
	if (given)
		copy->type_of = copy_argument(c, given);
	else if (t->type_of)
		copy->type_of = copy_expr(c, t->type_of);
	else
		return copy;
	copy->name = NULL;
	return copy->type_of ? copy : NULL;
}

static int copy_list(const struct copy *c, struct trace_expr *e)
{
	struct trace_expr **list;

	if (!e->n_list)
		return 0;
	list = trace_alloc(c->p, e->n_list, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (u32 i = 0; i < e->n_list; i++) {
		list[i] = copy_expr(c, e->list[i]);
		if (!list[i])
			return -ENOMEM;
	}
	e->list = list;
	return 0;
}

/* $x of the body: the caller's variable, or one of the body's own. */
static int rename_variable(const struct copy *c, struct trace_expr *e)
{
	const struct trace_expr *given = argument(c, TRACE_EXPR_VARIABLE, e->text.data);
	char name[160];
	int n;

	if (given) {
		e->text = given->text;
		return 0;
	}
	n = snprintf(name, sizeof(name), "%.120s'%u", e->text.data, c->number);
	e->text.n = (u32)n;
	return trace_copy(&c->p->lexer, e->at, name, (size_t)n, &e->text.data);
}

static int rename_map(const struct copy *c, struct trace_expr *e)
{
	const struct trace_expr *given = argument(c, TRACE_EXPR_MAP, e->text.data);

	if (!given)
		return trace_error(c->p->diag, e->at, -EINVAL,
				   "macro %s uses @%s, which is none of its parameters: write "
				   "macro %s(…, @%s)",
				   c->macro->name, e->text.data, c->macro->name, e->text.data);
	e->text = given->text;
	return 0;
}

static int copy_parts(const struct copy *c, struct trace_expr *e)
{
	struct trace_expr **parts[] = {&e->a, &e->b, &e->c};
	struct trace_block **blocks[] = {&e->block, &e->otherwise};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (!*parts[i])
			continue;
		*parts[i] = copy_expr(c, *parts[i]);
		if (!*parts[i])
			return -ENOMEM;
	}
	for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
		if (!*blocks[i])
			continue;
		*blocks[i] = copy_block(c, *blocks[i]);
		if (!*blocks[i])
			return -ENOMEM;
	}
	if (e->type_name) {
		e->type_name = copy_type(c, e->type_name);
		if (!e->type_name)
			return -ENOMEM;
	}
	return copy_list(c, e);
}

static struct trace_expr *copy_expr(const struct copy *c, const struct trace_expr *e)
{
	struct trace_expr *copy;
	bool in_macro = c->macro->name != NULL;

	if (e->kind == TRACE_EXPR_NAME) {
		const struct trace_expr *given = argument(c, TRACE_EXPR_NAME, e->text.data);

		if (given)
			return copy_argument(c, given);
	}
	copy = trace_expr_new(c->p, e->kind, e->at);
	if (!copy)
		return NULL;
	*copy = *e;
	if (in_macro && e->kind == TRACE_EXPR_VARIABLE && rename_variable(c, copy) < 0)
		return NULL;
	if (in_macro && e->kind == TRACE_EXPR_MAP && rename_map(c, copy) < 0)
		return NULL;
	return copy_parts(c, copy) < 0 ? NULL : copy;
}

static struct trace_statement *copy_statement(const struct copy *c, const struct trace_statement *s)
{
	struct trace_statement *copy = trace_alloc(c->p, 1, sizeof(*copy));

	if (!copy)
		return NULL;
	*copy = *s;
	if ((s->target && !(copy->target = copy_expr(c, s->target))) ||
	    (s->value && !(copy->value = copy_expr(c, s->value))) ||
	    (s->end && !(copy->end = copy_expr(c, s->end))) ||
	    (s->type_name && !(copy->type_name = copy_type(c, s->type_name))) ||
	    (s->body && !(copy->body = copy_block(c, s->body))) ||
	    (s->otherwise && !(copy->otherwise = copy_block(c, s->otherwise))))
		return NULL;
	return copy;
}

static struct trace_block *copy_block(const struct copy *c, const struct trace_block *b)
{
	struct trace_block *copy = trace_alloc(c->p, 1, sizeof(*copy));
	struct trace_statement **tail;

	if (!copy)
		return NULL;
	copy->at = b->at;
	tail = &copy->first;
	for (const struct trace_statement *s = b->first; s; s = s->next) {
		*tail = copy_statement(c, s);
		if (!*tail)
			return NULL;
		tail = &(*tail)->next;
	}
	*tail = NULL;
	return copy;
}

/* ---- calls ---- */

static bool argument_fits(const struct trace_macro_parameter *parameter, const struct trace_expr *e)
{
	if (parameter->kind == TRACE_EXPR_VARIABLE)
		return e->kind == TRACE_EXPR_VARIABLE;
	if (parameter->kind == TRACE_EXPR_MAP)
		return e->kind == TRACE_EXPR_MAP && !e->n_list;
	return true;
}

/* Of several that fit, the one that says most of its arguments. */
static struct trace_macro *find_macro(struct trace_parser *p, const struct trace_expr *e,
				      struct trace_macro **ret_other)
{
	struct trace_macro *found = NULL;
	u32 best = 0;

	vec_foreach (&p->macros, m) {
		u32 exact = 1;

		if (strcmp(m->name, e->text.data) != 0)
			continue;
		*ret_other = m;
		if (m->n != e->n_list)
			continue;
		for (u32 i = 0; i < m->n && exact; i++) {
			if (!argument_fits(&m->parameters[i], e->list[i]))
				exact = 0;
			else
				exact += m->parameters[i].kind != TRACE_EXPR_NAME;
		}
		if (exact > best) {
			best = exact;
			found = m;
		}
	}
	return found;
}

static int no_such_macro(struct trace_parser *p, const struct trace_expr *e,
			 const struct trace_macro *m)
{
	static const char *const kinds[] = {"", "a variable ($x)", "a map without keys (@x)"};

	if (m->n != e->n_list)
		return trace_error(p->diag, e->at, -EINVAL,
				   "macro %s of line %u has %u parameter%s, not %u", m->name,
				   m->at.line, m->n, m->n == 1 ? "" : "s", e->n_list);
	for (u32 i = 0; i < m->n; i++) {
		const struct trace_macro_parameter *parameter = &m->parameters[i];

		if (!argument_fits(parameter, e->list[i]))
			return trace_error(p->diag, e->list[i]->at, -EINVAL,
					   "macro %s wants %s as argument %u", m->name,
					   kinds[parameter->kind == TRACE_EXPR_VARIABLE ? 1 : 2],
					   i + 1);
	}
	return -EINVAL;
}

/* The body for a call, with the macros that are in it expanded, too. */
static int expand(struct trace_parser *p, struct trace_macro *m, struct trace_expr *call, u32 depth,
		  struct trace_block **ret)
{
	struct copy c = {.p = p, .macro = m, .arguments = call->list, .number = ++p->expansions};
	struct trace_block *body;
	int r;

	if (m->is_active)
		return trace_error(p->diag, call->at, -EINVAL,
				   "macro %s uses itself; the language has no recursion", m->name);
	body = copy_block(&c, m->body);
	if (!body)
		return -EINVAL;
	m->is_active = true;
	r = walk_block(p, body, depth);
	m->is_active = false;
	if (r == 0)
		*ret = body;
	return r;
}

/* A name or a call that may be of a macro. NULL without an error: it is none. */
static int expand_call(struct trace_parser *p, struct trace_expr *e, u32 depth,
		       struct trace_block **ret)
{
	struct trace_macro *other = NULL, *m;

	*ret = NULL;
	if (p->only_checks)
		return 0;
	if (e->kind != TRACE_EXPR_NAME && e->kind != TRACE_EXPR_CALL)
		return 0;
	m = find_macro(p, e, &other);
	if (m)
		return expand(p, m, e, depth, ret);
	if (!other || e->kind != TRACE_EXPR_CALL || trace_is_builtin(e->text.data))
		return 0;
	return no_such_macro(p, e, other);
}

/* ---- the walk ---- */

static int check_depth(struct trace_parser *p, u32 depth, struct trace_at at)
{
	if (depth > TRACE_MAX_DEPTH)
		return trace_error(p->diag, at, -E2BIG,
				   "the script is nested more than %d levels deep here, or has "
				   "more than %d operators in a row",
				   TRACE_MAX_DEPTH, TRACE_MAX_DEPTH);
	return 0;
}

static int walk_type(struct trace_parser *p, struct trace_type_name *t, u32 depth)
{
	if (!t || !t->type_of)
		return 0;
	return walk_expr(p, &t->type_of, depth + 1);
}

/* The last statement may have been a macro, and is a block now. */
static int walk_value_block(struct trace_parser *p, struct trace_block *b, u32 depth)
{
	int r = walk_block(p, b, depth);

	return r < 0 ? r : trace_block_to_value(p, b);
}

static int walk_parts(struct trace_parser *p, struct trace_expr *e, u32 depth)
{
	struct trace_expr **parts[] = {&e->a, &e->b, &e->c};
	int r = walk_type(p, e->type_name, depth);

	for (size_t i = 0; i < ARRAY_SIZE(parts) && r == 0; i++) {
		if (*parts[i])
			r = walk_expr(p, parts[i], depth + 1);
	}
	for (u32 i = 0; i < e->n_list && r == 0; i++)
		r = walk_expr(p, &e->list[i], depth + 1);
	if (r == 0 && e->block)
		r = walk_value_block(p, e->block, depth + 1);
	if (r == 0 && e->otherwise)
		r = walk_value_block(p, e->otherwise, depth + 1);
	return r;
}

/* A constant of an enum of the script's own comes before one of a header. */
static bool is_defined_by_script(const struct trace_parser *p, const char *name)
{
	vec_foreach (&p->script->structs, s) {
		vec_foreach (&s->constants, c) {
			if (strcmp(c->name, name) == 0)
				return true;
		}
	}
	return false;
}

static int walk_expr(struct trace_parser *p, struct trace_expr **ref, u32 depth)
{
	struct trace_expr *e = *ref, *value;
	struct trace_block *body;
	int r = check_depth(p, depth, e->at);

	if (r == 0)
		r = walk_parts(p, e, depth);
	if (r == 0)
		r = expand_call(p, e, depth + 1, &body);
	if (r == 0 && !body && e->kind == TRACE_EXPR_NAME && !p->only_checks &&
	    !is_defined_by_script(p, e->text.data) &&
	    trace_header_constant(e->text.data, &e->number))
		e->kind = TRACE_EXPR_NUMBER;
	if (r < 0 || !body)
		return r;
	r = trace_block_to_value(p, body);
	if (r < 0)
		return r;
	/* A body that is only a value needs no block. */
	if (body->first && !body->first->next && body->first->kind == TRACE_STATEMENT_EXPR) {
		*ref = body->first->value;
		return 0;
	}
	value = trace_expr_new(p, TRACE_EXPR_BLOCK, e->at);
	if (!value)
		return -ENOMEM;
	value->block = body;
	*ref = value;
	return 0;
}

/* The call of a macro as a statement: its value, if it has one, is not used. */
static int walk_value(struct trace_parser *p, struct trace_statement *s, u32 depth)
{
	struct trace_block *body = NULL;
	int r;

	if (s->kind != TRACE_STATEMENT_EXPR || s->target ||
	    (s->value->kind != TRACE_EXPR_CALL && s->value->kind != TRACE_EXPR_NAME))
		return walk_expr(p, &s->value, depth);
	r = walk_parts(p, s->value, depth);
	if (r == 0)
		r = expand_call(p, s->value, depth + 1, &body);
	if (r < 0 || !body)
		return r;
	s->kind = TRACE_STATEMENT_BLOCK;
	s->value = NULL;
	s->body = body;
	return 0;
}

static int walk_statement(struct trace_parser *p, struct trace_statement *s, u32 depth)
{
	int r = check_depth(p, depth, s->at);

	if (r == 0)
		r = walk_type(p, s->type_name, depth);
	if (r == 0 && s->target)
		r = walk_expr(p, &s->target, depth + 1);
	if (r == 0 && s->value)
		r = walk_value(p, s, depth + 1);
	if (r == 0 && s->end)
		r = walk_expr(p, &s->end, depth + 1);
	if (r == 0 && s->body)
		r = walk_block(p, s->body, depth + 1);
	if (r == 0 && s->otherwise)
		r = walk_block(p, s->otherwise, depth + 1);
	return r;
}

static int walk_block(struct trace_parser *p, struct trace_block *b, u32 depth)
{
	int r = check_depth(p, depth, b->at);

	for (struct trace_statement *s = b->first; s && r == 0; s = s->next)
		r = walk_statement(p, s, depth);
	return r;
}

int trace_expand(struct trace_parser *p)
{
	int r = 0;

	p->only_checks = true;
	vec_foreach (&p->macros, m) {
		if (r == 0)
			r = walk_block(p, m->body, 0);
	}
	p->only_checks = false;
	vec_foreach (&p->script->probes, probe) {
		if (r == 0 && probe->predicate)
			r = walk_expr(p, &probe->predicate, 0);
		if (r == 0)
			r = walk_block(p, probe->body, 0);
	}
	return r;
}
