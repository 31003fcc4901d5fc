/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct, union and enum of C, for programs whose types are in no BTF. A struct without a name
 * within another gets one that nobody can write, "struct (at 3:9)".
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "trace/parse.h"

static int parse_body(struct trace_parser *p, struct trace_struct *s);

/* __attribute__((…)): packed counts, aligned is refused, others change nothing here. */
static int parse_attributes(struct trace_parser *p, bool *ret_packed)
{
	while (trace_is_word(p, "__attribute__")) {
		u32 open = 0;

		if (trace_advance(p) < 0)
			return -EINVAL;
		do {
			if (p->t.kind == TOKEN_END || (!open && !trace_is_sign(p, '(')))
				return trace_unexpected(p, "((…)) after __attribute__");
			if (trace_is_word(p, "packed") || trace_is_word(p, "__packed__"))
				*ret_packed = true;
			if (trace_is_word(p, "aligned") || trace_is_word(p, "__aligned__"))
				return trace_error(p->diag, p->t.at, -EINVAL,
						   "aligned is not supported: add members that "
						   "fill the room instead");
			open += trace_is_sign(p, '(');
			open -= trace_is_sign(p, ')');
			if (trace_advance(p) < 0)
				return -EINVAL;
		} while (open);
	}
	return 0;
}

static int name_anonymous(struct trace_parser *p, struct trace_at at, const char *tag,
			  const char **ret)
{
	char name[48];
	int n = snprintf(name, sizeof(name), "%s (at %u:%u)", tag, at.line, at.column);

	return trace_copy(&p->lexer, at, name, (size_t)n, ret);
}

/* struct [name] [{ … }]; ret_name: "struct name". Defines it if it has a body. */
static int parse_tagged(struct trace_parser *p, const char **ret_name, bool *ret_defined)
{
	struct trace_struct s = {.at = p->t.at};
	const char *tag = p->t.text.data;
	char name[160];
	int r;

	s.is_union = strcmp(tag, "union") == 0;
	s.is_enum = strcmp(tag, "enum") == 0;
	if (trace_advance(p) < 0 || parse_attributes(p, &s.is_packed) < 0)
		return -EINVAL;
	if (p->t.kind == TOKEN_NAME) {
		int n = snprintf(name, sizeof(name), "%s %s", tag, p->t.text.data);

		if (n >= (int)sizeof(name))
			return trace_error(p->diag, p->t.at, -EINVAL, "the name is too long");
		r = trace_copy(&p->lexer, s.at, name, (size_t)n, &s.name);
		if (r == 0)
			r = trace_advance(p);
	} else {
		r = name_anonymous(p, s.at, tag, &s.name);
	}
	if (r < 0)
		return r;
	*ret_name = s.name;
	*ret_defined = trace_is_sign(p, '{');
	if (!*ret_defined)
		return 0;
	r = trace_enter(p);
	if (r == 0) {
		r = parse_body(p, &s);
		trace_leave(p);
	}
	if (r == 0 && vec_push(&p->script->structs, s) < 0)
		r = trace_error(p->diag, s.at, -ENOMEM, "out of memory");
	if (r < 0) {
		vec_deinit(&s.members);
		vec_deinit(&s.constants);
	}
	return r;
}

/* ---- members ---- */

/* The [a][b] behind the name of a member, C's way: an array of a arrays of b. */
static int parse_dimensions(struct trace_parser *p, struct trace_type_name *t)
{
	u32 sizes[8], n = 0;

	while (trace_is_sign(p, '[')) {
		struct trace_at at = p->t.at;
		s64 size = 0;

		if (n == ARRAY_SIZE(sizes))
			return trace_error(p->diag, at, -EINVAL,
					   "an array has 8 dimensions at most");
		if (trace_advance(p) < 0)
			return -EINVAL;
		if (!trace_is_sign(p, ']')) {
			struct trace_expr *e = trace_parse_expr(p);

			if (!e)
				return -EINVAL;
			if (trace_constant(e, &size) < 0 || size < 0 || size > INT32_MAX)
				return trace_error(p->diag, at, -EINVAL,
						   "the size of an array is a constant number");
		}
		sizes[n++] = (u32)size;
		if (trace_expect(p, ']', "after the size of an array") < 0)
			return -EINVAL;
	}
	for (; n; n--) {
		if (t->is_array) {
			struct trace_type_name *inner = trace_alloc(p, 1, sizeof(*inner));

			if (!inner)
				return -ENOMEM;
			*inner = *t;
			*t = (struct trace_type_name){.at = t->at, .of = inner};
		}
		t->is_array = true;
		t->elements = sizes[n - 1];
	}
	return 0;
}

/* (*name)(arguments): the pointer is all that matters. */
static int parse_function_pointer(struct trace_parser *p, struct trace_member *m)
{
	u32 open = 0;

	if (trace_advance(p) < 0 || trace_expect(p, '*', "of a pointer to a function") < 0)
		return -EINVAL;
	if (p->t.kind != TOKEN_NAME)
		return trace_unexpected(p, "the name of the member");
	m->name = p->t.text.data;
	m->type = (struct trace_type_name){.at = m->at, .name = "void", .pointers = 1};
	if (trace_advance(p) < 0 || trace_expect(p, ')', "after the name of the member") < 0)
		return -EINVAL;
	do {
		if (p->t.kind == TOKEN_END)
			return trace_unexpected(p, ") after the arguments of the function");
		open += trace_is_sign(p, '(');
		open -= open && trace_is_sign(p, ')');
		if (trace_advance(p) < 0)
			return -EINVAL;
	} while (open);
	return 0;
}

static int parse_bits(struct trace_parser *p, struct trace_member *m)
{
	if (!trace_is_sign(p, ':'))
		return 0;
	if (trace_advance(p) < 0)
		return -EINVAL;
	if (p->t.kind != TOKEN_NUMBER || p->t.number > 64)
		return trace_unexpected(p, "the number of bits, 64 at most");
	m->bits = (u32)p->t.number;
	return trace_advance(p);
}

/* One name with its *, [n] and : bits; `type` is what stood before the first name. */
static int parse_member(struct trace_parser *p, const struct trace_type_name *type,
			struct trace_struct *s)
{
	struct trace_member m = {.at = p->t.at, .name = "", .type = *type};
	bool packed = false;
	int r = 0;

	while (trace_is_sign(p, '*')) {
		m.type.pointers++;
		if (trace_advance(p) < 0)
			return -EINVAL;
		while (trace_is_word(p, "const")) {
			if (trace_advance(p) < 0)
				return -EINVAL;
		}
	}
	if (trace_is_sign(p, '(')) {
		r = parse_function_pointer(p, &m);
	} else if (p->t.kind == TOKEN_NAME) {
		m.name = p->t.text.data;
		r = trace_advance(p);
		if (r == 0)
			r = parse_dimensions(p, &m.type);
	} else if (!trace_is_sign(p, ':') && !trace_is_sign(p, ';')) {
		r = trace_unexpected(p, "the name of a member");
	}
	if (r == 0)
		r = parse_bits(p, &m);
	if (r == 0)
		r = parse_attributes(p, &packed);
	if (r == 0 && packed && !s->is_packed)
		r = trace_error(p->diag, m.at, -EINVAL, "only a whole struct can be packed");
	if (r == 0 && vec_push(&s->members, m) < 0)
		r = trace_error(p->diag, m.at, -ENOMEM, "out of memory");
	return r;
}

static int parse_member_type(struct trace_parser *p, struct trace_type_name *t)
{
	struct trace_type_name *parsed;
	bool defined;

	while (trace_is_word(p, "const") || trace_is_word(p, "volatile")) {
		if (trace_advance(p) < 0)
			return -EINVAL;
	}
	t->at = p->t.at;
	if (trace_is_tag(p))
		return parse_tagged(p, &t->name, &defined);
	parsed = trace_parse_type(p);
	if (!parsed)
		return -EINVAL;
	*t = *parsed;
	return 0;
}

/*
 * A * behind the type of several members is of the first only: int *a, b. trace_parse_type() reads
 * it with the type, so it is taken off after the first.
 */
static int parse_members(struct trace_parser *p, struct trace_struct *s)
{
	struct trace_type_name t = {};
	int r = parse_member_type(p, &t);

	if (r == 0)
		r = parse_member(p, &t, s);
	t.pointers = 0;
	while (r == 0 && trace_is_sign(p, ',')) {
		r = trace_advance(p);
		if (r == 0)
			r = parse_member(p, &t, s);
	}
	if (r < 0 || trace_is_sign(p, '}'))
		return r; /* the last ; may be missing */
	return trace_expect(p, ';', "after a member");
}

static int parse_constants(struct trace_parser *p, struct trace_struct *s)
{
	s64 value = 0;

	while (p->t.kind == TOKEN_NAME) {
		struct trace_at at = p->t.at;
		const char *name = p->t.text.data;

		if (trace_advance(p) < 0)
			return -EINVAL;
		if (trace_is_sign(p, '=')) {
			struct trace_expr *e = trace_advance(p) < 0 ? NULL : trace_parse_expr(p);

			if (!e)
				return -EINVAL;
			if (trace_constant(e, &value) < 0)
				return trace_error(p->diag, at, -EINVAL,
						   "the value of %s is not a constant number",
						   name);
		}
		if (vec_reserve(&s->constants, s->constants.n + 1) < 0)
			return trace_error(p->diag, at, -ENOMEM, "out of memory");
		s->constants.data[s->constants.n].name = name;
		s->constants.data[s->constants.n++].value = value;
		value = (s64)((u64)value + 1);
		if (!trace_is_sign(p, ','))
			break;
		if (trace_advance(p) < 0)
			return -EINVAL;
	}
	return 0;
}

static int parse_body(struct trace_parser *p, struct trace_struct *s)
{
	int r = trace_advance(p);

	if (r == 0 && s->is_enum) {
		r = parse_constants(p, s);
	} else {
		while (r == 0 && !trace_is_sign(p, '}')) {
			if (p->t.kind == TOKEN_END)
				return trace_unexpected(p, "} at the end of the members");
			r = parse_members(p, s);
		}
	}
	if (r == 0)
		r = trace_expect(p, '}', s->is_enum ? "after the constants" : "after the members");
	return r < 0 ? r : parse_attributes(p, &s->is_packed);
}

int trace_parse_definition(struct trace_parser *p)
{
	const char *name;
	bool defined = false;
	int r = parse_tagged(p, &name, &defined);

	if (r == 0 && !defined && !trace_is_sign(p, ';'))
		r = trace_unexpected(p, "{ and the members, or ;");
	/* The ; is optional, as in bpftrace. */
	if (r == 0 && trace_is_sign(p, ';'))
		r = trace_advance(p);
	return r;
}
