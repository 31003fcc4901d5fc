/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line decides: $1, $#, str($1), getopt(). They become literals. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "trace/parse.h"

/* -12, 0x10, 5ms */
static int signed_number(const char *s, s64 *ret, bool *ret_unsigned)
{
	bool negative = *s == '-';
	u64 value;
	int r = trace_number(s + negative, &value);

	if (r < 0)
		return r;
	if (negative && value > (u64)INT64_MAX + 1)
		return -ERANGE;
	*ret = (s64)(negative ? 0 - value : value);
	*ret_unsigned = !negative && value > INT64_MAX;
	return 0;
}

static int set_text(struct trace_parser *p, struct trace_expr *e, const char *s)
{
	e->text.n = (u32)strlen(s);
	return trace_copy(&p->lexer, e->at, s, e->text.n, &e->text.data);
}

struct trace_expr *trace_parameter_expr(struct trace_parser *p, struct trace_at at, u64 number)
{
	struct trace_expr *e = trace_expr_new(p, TRACE_EXPR_NUMBER, at);
	const struct trace_parameters *given = p->parameters;
	const char *value = given && number && number <= given->n ? given->values[number - 1] : "";

	if (!e)
		return NULL;
	if (!number) {
		e->number = given ? given->n : 0;
		return e;
	}
	if (set_text(p, e, value) < 0)
		return NULL;
	if (*value && signed_number(value, &e->number, &e->is_unsigned) < 0)
		e->kind = TRACE_EXPR_STRING;
	return e;
}

static bool was_parameter(const struct trace_expr *e)
{
	return (e->kind == TRACE_EXPR_NUMBER || e->kind == TRACE_EXPR_STRING) && e->text.data;
}

/* str($1), str($1 + 2): the text of the parameter, or what is left of it. */
static void resolve_str(struct trace_expr *call)
{
	struct trace_expr *e = call->n_list ? call->list[0] : NULL, *base = e;
	s64 skip = 0;

	if (e && e->kind == TRACE_EXPR_BINARY && e->op == TRACE_OP_ADD &&
	    e->b->kind == TRACE_EXPR_NUMBER) {
		base = e->a;
		skip = e->b->number;
	}
	if (!base || !was_parameter(base) || skip < 0 || skip > base->text.n)
		return;
	e->kind = TRACE_EXPR_STRING;
	e->text = (struct trace_text){base->text.data + skip, base->text.n - (u32)skip};
	e->a = e->b = NULL;
	e->op = TRACE_OP_NONE;
}

/* ---- getopt(name, default, description) ---- */

/* The value of --name=value; "" of --name; NULL: not given. The last one counts. */
static const char *find_option(struct trace_parser *p, const char *name)
{
	const struct trace_parameters *given = p->parameters;
	size_t n = strlen(name);
	const char *value = NULL;

	for (u32 i = 0; given && i < given->n_options; i++) {
		const char *option = given->options[i];

		if (strncmp(option, "--", 2) != 0 || strncmp(option + 2, name, n) != 0 ||
		    (option[2 + n] != '=' && option[2 + n]))
			continue;
		p->used_options[i] = true;
		value = option[2 + n] ? option + 2 + n + 1 : "";
	}
	return value;
}

static int option_bool(struct trace_parser *p, struct trace_expr *e, const char *name,
		       const char *value)
{
	if (!*value || strcmp(value, "true") == 0 || strcmp(value, "1") == 0)
		e->number = 1;
	else if (strcmp(value, "false") == 0 || strcmp(value, "0") == 0)
		e->number = 0;
	else
		return trace_error(p->diag, e->at, -EINVAL, "option --%s is true or false, not %s",
				   name, value);
	return 0;
}

static int option_value(struct trace_parser *p, struct trace_expr *e, const char *name,
			const char *value)
{
	switch (e->kind) {
	case TRACE_EXPR_BOOL:
		return option_bool(p, e, name, value);
	case TRACE_EXPR_STRING:
		return set_text(p, e, value);
	default:
		if (signed_number(value, &e->number, &e->is_unsigned) < 0)
			return trace_error(p->diag, e->at, -EINVAL,
					   "option --%s is a number, not %s", name,
					   *value ? value : "empty: write --option=NUMBER");
		return 0;
	}
}

static int resolve_getopt(struct trace_parser *p, struct trace_expr **call)
{
	struct trace_expr *e = *call, *name = e->n_list ? e->list[0] : NULL;
	struct trace_expr *fallback = e->n_list > 1 ? e->list[1] : NULL;
	const char *given;

	if (!name || name->kind != TRACE_EXPR_STRING || e->n_list > 3)
		return trace_error(p->diag, e->at, -EINVAL,
				   "getopt() has the name of an option as a text, its default "
				   "value, and a description: getopt(\"depth\", 3, \"levels\")");
	if (fallback && fallback->kind != TRACE_EXPR_NUMBER &&
	    fallback->kind != TRACE_EXPR_STRING && fallback->kind != TRACE_EXPR_BOOL)
		return trace_error(p->diag, fallback->at, -EINVAL,
				   "the default of getopt() is a number, a text, true or false");
	if (vec_push(&p->options, name->text.data) < 0)
		return trace_error(p->diag, e->at, -ENOMEM, "out of memory");
	if (!fallback) {
		fallback = trace_expr_new(p, TRACE_EXPR_BOOL, e->at);
		if (!fallback)
			return -ENOMEM;
	}
	given = find_option(p, name->text.data);
	*call = fallback;
	return given ? option_value(p, fallback, name->text.data, given) : 0;
}

int trace_resolve_call(struct trace_parser *p, struct trace_expr **e)
{
	const char *name = (*e)->text.data;

	if (strcmp(name, "getopt") == 0)
		return resolve_getopt(p, e);
	if (strcmp(name, "str") == 0)
		resolve_str(*e);
	return 0;
}
