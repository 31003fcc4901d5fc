/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types as casts, sizeof() and declarations have them: a name and then any number of * and [n],
 * read from left to right.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "trace/compile.h"
#include "trace/parse.h"

bool trace_is_builtin(const char *name)
{
	const struct call *c = trace_call_find(name);

	return (c && c->flags & CALL_NAME) || strcmp(name, "true") == 0 ||
	       strcmp(name, "false") == 0;
}

/* ---- C's names of integers ---- */

struct c_words {
	u32 n, n_long;
	bool is_unsigned, is_signed, is_char, is_short, is_int;
};

static bool add_c_word(struct c_words *w, const char *word)
{
	if (strcmp(word, "unsigned") == 0)
		w->is_unsigned = true;
	else if (strcmp(word, "signed") == 0)
		w->is_signed = true;
	else if (strcmp(word, "long") == 0)
		w->n_long++;
	else if (strcmp(word, "short") == 0)
		w->is_short = true;
	else if (strcmp(word, "int") == 0)
		w->is_int = true;
	else if (strcmp(word, "char") == 0)
		w->is_char = true;
	else
		return false;
	w->n++;
	return true;
}

static const char *name_of_c_words(const struct c_words *w)
{
	if (w->is_char)
		return w->is_unsigned ? "uint8" : w->is_signed ? "int8" : "char";
	if (w->is_short)
		return w->is_unsigned ? "uint16" : "int16";
	if (w->n_long)
		return w->is_unsigned ? "uint64" : "int64";
	return w->is_unsigned ? "uint32" : "int32";
}

static int skip_qualifiers(struct trace_parser *p)
{
	while (trace_is_word(p, "const") || trace_is_word(p, "volatile") ||
	       trace_is_word(p, "restrict")) {
		if (trace_advance(p) < 0)
			return -EINVAL;
	}
	return 0;
}

static int read_c_words(struct trace_parser *p, struct c_words *w)
{
	while (p->t.kind == TOKEN_NAME && w->n < 6 && add_c_word(w, p->t.text.data)) {
		if (trace_advance(p) < 0 || skip_qualifiers(p) < 0)
			return -EINVAL;
	}
	return 0;
}

/* ---- names ---- */

/* "struct x" */
static int join_tag(struct trace_parser *p, const char *tag, const char **ret)
{
	struct trace_text name = p->t.text;
	size_t n = strlen(tag);
	char *s;

	if (p->t.kind != TOKEN_NAME) {
		char what[64];

		snprintf(what, sizeof(what), "the name of a type after %s", tag);
		return trace_unexpected(p, what);
	}
	s = trace_alloc(p, n + name.n + 2, 1);
	if (!s)
		return -ENOMEM;
	memcpy(s, tag, n);
	s[n] = ' ';
	memcpy(s + n + 1, name.data, name.n);
	*ret = s;
	return trace_advance(p);
}

bool trace_is_tag(const struct trace_parser *p)
{
	return trace_is_word(p, "struct") || trace_is_word(p, "union") || trace_is_word(p, "enum");
}

/*
 * A type is tried first, and it is one if it ends there. The try reads only names, * and [n], so
 * that tries cannot be nested: that would take time that doubles with each level.
 */
int trace_parse_type_or_value(struct trace_parser *p, struct trace_type_name **ret_type,
			      struct trace_expr **ret_value)
{
	struct trace_type_name *type;
	struct diag scratch = {};
	struct trace_mark m;

	*ret_type = NULL;
	if (trace_is_word(p, "typeof")) {
		*ret_type = trace_parse_type(p);
		return *ret_type ? 0 : -EINVAL;
	}
	if (p->t.kind == TOKEN_NAME && !trace_is_builtin(p->t.text.data) &&
	    !trace_find_define(p, p->t.text.data)) {
		trace_try(p, &m, &scratch);
		type = trace_parse_type(p);
		if (type && (trace_is_sign(p, ')') || trace_is_sign(p, ','))) {
			trace_try_held(p, &m);
			*ret_type = type;
			return 0;
		}
		trace_try_failed(p, &m);
		/* Behind struct nothing but a type can stand. */
		if (trace_is_tag(p) && scratch.text[0])
			return diag_set(p->diag, -EINVAL, "%s", scratch.text);
	}
	*ret_value = trace_parse_expr(p);
	return *ret_value ? 0 : -EINVAL;
}

/* typeof(type) is the type, typeof(value) that of the value. */
static int parse_type_of(struct trace_parser *p, struct trace_type_name *t)
{
	struct trace_type_name *inner;

	if (trace_advance(p) < 0 || trace_expect(p, '(', "after typeof") < 0 || trace_enter(p) < 0)
		return -EINVAL;
	if (trace_parse_type_or_value(p, &inner, &t->type_of) < 0)
		return -EINVAL;
	t->of = inner;
	trace_leave(p);
	return trace_expect(p, ')', "after the type or value");
}

/* Everything before the first * or [. */
static int parse_base(struct trace_parser *p, struct trace_type_name *t)
{
	struct c_words words = {};
	const char *tag;

	if (skip_qualifiers(p) < 0)
		return -EINVAL;
	if (trace_is_word(p, "typeof"))
		return parse_type_of(p, t);
	if (trace_is_tag(p)) {
		tag = p->t.text.data;
		if (trace_advance(p) < 0 || join_tag(p, tag, &t->name) < 0)
			return -EINVAL;
		return skip_qualifiers(p);
	}
	if (read_c_words(p, &words) < 0)
		return -EINVAL;
	if (words.n) {
		t->name = name_of_c_words(&words);
		return 0;
	}
	if (p->t.kind != TOKEN_NAME)
		return trace_unexpected(p, "a type");
	t->name = p->t.text.data;
	return trace_advance(p) < 0 ? -EINVAL : skip_qualifiers(p);
}

/* n] of an array; the [ is read. n is a number, or a #define that is one. */
static int parse_elements(struct trace_parser *p, struct trace_type_name *t)
{
	struct trace_at at = p->t.at;
	struct trace_expr *e;
	s64 n = 0;

	t->is_array = true;
	if (trace_is_sign(p, ']'))
		return trace_advance(p);
	if (p->t.kind != TOKEN_NUMBER &&
	    (p->t.kind != TOKEN_NAME || !trace_find_define(p, p->t.text.data)))
		return trace_unexpected(p, "a number as size of the array");
	e = trace_parse_primary(p);
	if (!e)
		return -EINVAL;
	if (trace_constant(e, &n) < 0 || n < 1 || n > INT32_MAX)
		return trace_error(p->diag, at, -EINVAL,
				   "the size of an array is a constant number above 0");
	t->elements = (u32)n;
	return trace_expect(p, ']', "after the size of an array");
}

struct trace_type_name *trace_parse_type(struct trace_parser *p)
{
	struct trace_type_name *t = trace_alloc(p, 1, sizeof(*t));
	u32 levels = 0;

	if (!t)
		return NULL;
	t->at = p->t.at;
	if (parse_base(p, t) < 0)
		return NULL;
	while (trace_is_sign(p, '*') || trace_is_sign(p, '[')) {
		/* What comes after [n] is of that array. */
		if (t->is_array) {
			struct trace_type_name *outer = trace_alloc(p, 1, sizeof(*outer));

			if (!outer)
				return NULL;
			if (++levels > 16) {
				trace_error(p->diag, t->at, -EINVAL,
					    "the type has more than 16 levels");
				return NULL;
			}
			outer->at = t->at;
			outer->of = t;
			t = outer;
		}
		if (trace_is_sign(p, '*')) {
			t->pointers++;
			if (trace_advance(p) < 0 || skip_qualifiers(p) < 0)
				return NULL;
		} else if (trace_advance(p) < 0 || parse_elements(p, t) < 0) {
			return NULL;
		}
	}
	return t;
}
