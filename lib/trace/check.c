// SPDX-License-Identifier: Apache-2.0
/* Statements, variables and maps: their types. Expressions are in check_expr.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "trace/compile.h"

void compile_fail(struct compiler *c, struct trace_at at, const char *fmt, ...)
{
	char text[sizeof(c->diag->text)];
	va_list ap;

	if (c->error)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	c->error = diag_set(c->diag, -EINVAL, "%u:%u: %s", at.line, at.column, text);
}

bool compile_ok(const struct compiler *c)
{
	return !c->error && !c->code.error;
}

/* ---- types that become one ---- */

static bool is_number(const struct trace_type *t)
{
	return t->kind == TRACE_INT || t->kind == TRACE_BOOL || t->kind == TRACE_POINTER ||
	       t->kind == TRACE_ENUM_NAME;
}

static void merge_numbers(struct trace_type *into, const struct trace_type *from)
{
	if (into->kind == TRACE_POINTER)
		return;
	if (from->kind == TRACE_POINTER || into->kind == TRACE_BOOL) {
		*into = *from;
		return;
	}
	if (from->kind != TRACE_INT)
		return;
	/* Signed wins, unless it would show a large number as a negative one. */
	if (into->is_signed != from->is_signed) {
		into->is_signed = !((!into->is_signed && into->bytes == 8) ||
				    (!from->is_signed && from->bytes == 8));
		into->bytes = 8;
	}
	into->bytes = MAX(into->bytes, from->bytes);
	if (into->btf != from->btf)
		into->btf = 0;
}

static bool merge_tuples(struct compiler *c, struct trace_type *into, const struct trace_type *from)
{
	const struct trace_type **fields;
	struct trace_type *copies;

	if (into->n != from->n || !trace_names_same(into, from))
		return false;
	fields = arena_calloc(c->types.arena, into->n, sizeof(*fields));
	copies = arena_calloc(c->types.arena, into->n, sizeof(*copies));
	if (!fields || !copies) {
		c->error = -ENOMEM;
		return true;
	}
	for (u32 i = 0; i < into->n; i++) {
		copies[i] = *into->fields[i];
		fields[i] = &copies[i];
		if (!check_merge(c, &copies[i], from->fields[i]))
			return false;
	}
	into->fields = fields;
	return true;
}

static bool merge_kinds(struct compiler *c, struct trace_type *into, const struct trace_type *from)
{
	if (is_number(into) && is_number(from)) {
		merge_numbers(into, from);
		return true;
	}
	if (into->kind != from->kind)
		return false;
	switch (into->kind) {
	case TRACE_STRING:
	case TRACE_BUFFER:
		into->bytes = MAX(into->bytes, from->bytes);
		return true;
	case TRACE_TUPLE:
		return merge_tuples(c, into, from);
	case TRACE_KSTACK:
	case TRACE_USTACK:
		into->n = MAX(into->n, from->n);
		return true;
	case TRACE_RECORD:
		return into->btf == from->btf;
	case TRACE_VALUES:
		return into->n == from->n && into->bytes == from->bytes;
	case TRACE_HIST:
		return into->n == from->n;
	case TRACE_SERIES:
		return into->n == from->n && into->bytes == from->bytes && into->step == from->step;
	case TRACE_LHIST:
		return into->low == from->low && into->high == from->high &&
		       into->step == from->step;
	default:
		return true;
	}
}

bool check_merge(struct compiler *c, struct trace_type *into, const struct trace_type *from)
{
	struct trace_type merged = *into;

	if (from->kind == TRACE_NONE)
		return true;
	if (into->kind == TRACE_NONE)
		merged = *from;
	else if (!merge_kinds(c, &merged, from))
		return false;
	if (!trace_type_same(&merged, into)) {
		*into = merged;
		c->changed = true;
	}
	return true;
}

bool check_merge_map(struct compiler *c, struct trace_type *into, const struct trace_type *from)
{
	bool before = c->changed, fits;

	c->changed = false;
	fits = check_merge(c, into, from);
	c->maps_changed |= c->changed;
	c->changed |= before;
	return fits;
}

struct trace_type check_value(const struct trace_type *t)
{
	switch (t->kind) {
	case TRACE_COUNT:
		return trace_type_int(8, true);
	case TRACE_SUM:
	case TRACE_MIN:
	case TRACE_MAX:
	case TRACE_AVG:
	case TRACE_STATS:
		return trace_type_int(8, t->is_signed);
	default:
		return *t;
	}
}

/* ---- variables ---- */

static struct variable *find_variable(struct compiler *c, const char *name, bool is_live)
{
	for (u32 i = c->next_variable; i-- > 0;) {
		struct variable *v = &c->variables.data[i];

		if (v->is_live == is_live && str_same(v->name, name))
			return v;
	}
	return NULL;
}

/*
 * Variables belong to their block, but scripts for bpftrace before 0.22 also read those that an
 * inner block has assigned. Such a variable has its room for the whole action.
 */
struct variable *check_variable(struct compiler *c, const char *name)
{
	struct variable *v = find_variable(c, name, true);

	if (!v) {
		v = find_variable(c, name, false);
		if (v && !v->is_declared)
			v->is_whole = true;
		else
			v = NULL;
	}
	return v;
}

static struct variable *declare(struct compiler *c, const char *name)
{
	struct variable *v, fresh = {.name = name};

	if (c->next_variable == c->variables.n && vec_push(&c->variables, fresh) < 0) {
		c->error = -ENOMEM;
		return NULL;
	}
	v = &c->variables.data[c->next_variable++];
	if (!str_same(v->name, name))
		*v = fresh; /* a branch that was not checked before */
	v->is_live = true;
	v->depth = c->depth;
	return v;
}

/* The variable that an assignment means: that of a closed block if its type fits. */
static struct variable *assigned_variable(struct compiler *c, const char *name,
					  const struct trace_type *t)
{
	struct variable *v = find_variable(c, name, true);
	struct trace_type merged;
	bool before = c->changed, fits;

	if (v)
		return v;
	v = find_variable(c, name, false);
	if (!v || v->is_declared)
		return declare(c, name);
	merged = v->type;
	fits = check_merge(c, &merged, t);
	c->changed = before;
	if (!fits)
		return declare(c, name);
	v->is_whole = true;
	return v;
}

static u32 variable_index(const struct compiler *c, const struct variable *v)
{
	return (u32)(v - c->variables.data);
}

/* Merges a type into the variable of an assignment. */
static void set_variable(struct compiler *c, struct trace_expr *target, const struct trace_type *t)
{
	struct trace_type value = check_value(t);
	struct variable *v = assigned_variable(c, target->text.data, &value);

	if (!v)
		return;
	target->symbol = variable_index(c, v);
	if (v->is_declared && v->type.kind == TRACE_INT && is_number(&value)) {
		target->type = v->type;
		return;
	}
	if (!check_merge(c, &v->type, &value))
		compile_fail(c, target->at, "$%s is a %s, and cannot become a %s", v->name,
			     trace_type_text(&c->types, &v->type),
			     trace_type_text(&c->types, &value));
	target->type = v->type;
}

/* ---- maps ---- */

struct trace_map *check_map(struct compiler *c, struct trace_expr *e)
{
	struct trace_map m = {.at = e->at};
	size_t n = 0, bytes;
	char *name;

	vec_foreach (&c->program->maps, old) {
		if (str_same(old->name, e->text.data)) {
			e->symbol = (u32)n;
			return old;
		}
		n++;
	}
	if (n >= 256) {
		compile_fail(c, e->at, "a script can have 256 maps at most");
		return NULL;
	}
	bytes = strlen(e->text.data) + 1;
	name = arena_alloc(&c->program->arena, bytes);
	m.name = name;
	if (!name || vec_push(&c->program->maps, m) < 0) {
		c->error = -ENOMEM;
		return NULL;
	}
	memcpy(name, e->text.data, bytes);
	c->maps_changed = c->changed = true;
	e->symbol = (u32)n;
	return &c->program->maps.data[n];
}

/* The key that one or more expressions are; false if a type is not known yet. */
static bool key_type(struct compiler *c, struct trace_expr **list, u32 n, struct trace_type *ret)
{
	const struct trace_type **fields;

	for (u32 i = 0; i < n; i++) {
		check_expr(c, list[i]);
		if (!compile_ok(c) || list[i]->type.kind == TRACE_NONE)
			return false;
		if (trace_type_is_memory(&list[i]->type)) {
			compile_fail(c, list[i]->at, "a %s cannot be a key",
				     trace_type_text(&c->types, &list[i]->type));
			return false;
		}
	}
	if (n == 1) {
		*ret = check_value(&list[0]->type);
		return true;
	}
	fields = arena_calloc(c->types.arena, n, sizeof(*fields));
	for (u32 i = 0; fields && i < n; i++)
		fields[i] = &list[i]->type;
	*ret = (struct trace_type){.kind = TRACE_TUPLE, .n = n, .fields = fields};
	if (!fields)
		c->error = -ENOMEM;
	return fields;
}

/* Types of keys are kept by value: those in the tree change with each point. */
static void keep_fields(struct compiler *c, struct trace_type *t)
{
	struct trace_type empty = {
		.kind = TRACE_TUPLE, .n = t->n, .fields = t->fields, .names = t->names};

	if (t->kind == TRACE_TUPLE && merge_tuples(c, &empty, t))
		t->fields = empty.fields;
}

void check_key(struct compiler *c, struct trace_expr *map, struct trace_expr **list, u32 n)
{
	struct trace_map *m = check_map(c, map);
	struct trace_type key;

	if (!m)
		return;
	if (!n) {
		if (m->key.kind != TRACE_NONE)
			compile_fail(c, map->at, "@%s has keys: write @%s[…]", m->name, m->name);
		m->is_scalar = true;
		return;
	}
	if (!key_type(c, list, n, &key))
		return;
	m = check_map(c, map); /* the keys may have added maps */
	if (m->is_scalar) {
		compile_fail(c, map->at, "@%s has no keys elsewhere in the script", m->name);
		return;
	}
	if (m->key.kind == TRACE_NONE)
		keep_fields(c, &key);
	if (trace_type_room(&key) > 4096)
		compile_fail(c, map->at, "a key of %u bytes is too long", trace_type_room(&key));
	if (!check_merge_map(c, &m->key, &key))
		compile_fail(c, map->at, "the key of @%s is a %s elsewhere, here it is a %s",
			     m->name, trace_type_text(&c->types, &m->key),
			     trace_type_text(&c->types, &key));
}

static void set_map_value(struct compiler *c, struct trace_statement *s, const struct trace_type *t)
{
	struct trace_map *m = check_map(c, s->target);
	struct trace_type value = *t;

	if (!m || t->kind == TRACE_NONE)
		return;
	if (s->value->kind != TRACE_EXPR_CALL)
		value = check_value(t);
	if (trace_type_is_memory(&value) && value.kind == TRACE_ARRAY) {
		compile_fail(c, s->value->at, "an array cannot be kept in a map: use buf()");
		return;
	}
	if (value.kind == TRACE_RECORD) {
		compile_fail(c, s->value->at,
			     "a struct cannot be kept in a map: keep its address or its members");
		return;
	}
	if (value.kind == TRACE_INT && m->value.kind == TRACE_NONE)
		value = trace_type_int(value.bytes, value.is_signed);
	if (m->value.kind == TRACE_NONE)
		keep_fields(c, &value);
	if (!check_merge_map(c, &m->value, &value))
		compile_fail(c, s->at, "@%s is a %s, and cannot hold a %s", m->name,
			     trace_type_text(&c->types, &m->value),
			     trace_type_text(&c->types, &value));
}

void check_assign_map(struct compiler *c, struct trace_statement *s)
{
	check_key(c, s->target, s->target->list, s->target->n_list);
	if (!compile_ok(c))
		return;
	check_expr(c, s->value);
	if (s->op != TRACE_OP_NONE && s->value->type.kind != TRACE_NONE) {
		struct trace_type number = trace_type_int(8, true);

		set_map_value(c, s, &number);
	} else {
		set_map_value(c, s, &s->value->type);
	}
	if (!compile_ok(c))
		return;
	check_map(c, s->target)->is_assigned |= s->op == TRACE_OP_NONE;
	s->target->type = check_map(c, s->target)->value;
}

/* ---- statements ---- */

bool check_constant(const struct trace_expr *e, s64 *ret)
{
	if (e->kind == TRACE_EXPR_NUMBER || e->kind == TRACE_EXPR_BOOL) {
		*ret = e->number;
		return true;
	}
	if (e->kind == TRACE_EXPR_BLOCK && e->block->first && !e->block->first->next &&
	    e->block->first->kind == TRACE_STATEMENT_EXPR)
		return check_constant(e->block->first->value, ret);
	return false;
}

bool check_branch(const struct trace_statement *s, struct trace_block **ret)
{
	s64 value;

	if (!check_constant(s->value, &value))
		return false;
	*ret = value ? s->body : s->otherwise;
	return true;
}

static void check_if(struct compiler *c, struct trace_statement *s)
{
	struct trace_block *only;

	if (check_branch(s, &only)) {
		if (only)
			check_block(c, only);
		return;
	}
	check_expr(c, s->value);
	if (s->body)
		check_block(c, s->body);
	if (s->otherwise)
		check_block(c, s->otherwise);
}

static void check_let(struct compiler *c, struct trace_statement *s)
{
	struct trace_type t = {};
	struct variable *v;

	if (s->value)
		check_expr(c, s->value);
	if (s->target->kind != TRACE_EXPR_VARIABLE || !compile_ok(c))
		return;
	v = find_variable(c, s->target->text.data, true);
	if (v && v->depth == c->depth) {
		compile_fail(c, s->at, "$%s is declared twice", v->name);
		return;
	}
	v = declare(c, s->target->text.data);
	if (!v)
		return;
	s->target->symbol = variable_index(c, v);
	if (s->type_name && !s->type_name->type_of) {
		c->error = trace_type_of_name(&c->types, s->type_name, &t, c->diag);
		if (c->error)
			return;
		v = check_variable(c, s->target->text.data);
		v->is_declared = true;
		check_merge(c, &v->type, &t);
	}
	if (s->value)
		set_variable(c, s->target, &s->value->type);
	s->target->type = v->type;
}

static void check_assign(struct compiler *c, struct trace_statement *s)
{
	struct variable *v;

	if (s->target->kind == TRACE_EXPR_MAP) {
		check_assign_map(c, s);
		return;
	}
	check_expr(c, s->value);
	if (!compile_ok(c))
		return;
	if (s->target->kind != TRACE_EXPR_VARIABLE) {
		compile_fail(c, s->at, "only variables and maps can be assigned");
		return;
	}
	if (trace_type_is_aggregation(&s->value->type)) {
		compile_fail(c, s->at, "%s can only be assigned to a map",
			     trace_type_text(&c->types, &s->value->type));
		return;
	}
	v = check_variable(c, s->target->text.data);
	if (s->op != TRACE_OP_NONE && !v) {
		compile_fail(c, s->at, "$%s has no value yet", s->target->text.data);
		return;
	}
	if (s->op != TRACE_OP_NONE)
		s->target->symbol = variable_index(c, v), s->target->type = v->type;
	else
		set_variable(c, s->target, &s->value->type);
	if (c->strict && compile_ok(c) && s->target->type.kind == TRACE_NONE)
		compile_fail(c, s->value->at, "this has no value");
}

/* Declares the variable of a loop in the block of its body. */
static void check_loop_variable(struct compiler *c, struct trace_statement *s, struct trace_type t)
{
	struct variable *v;

	c->depth++;
	v = declare(c, s->target->text.data);
	if (v) {
		s->target->symbol = variable_index(c, v);
		check_merge(c, &v->type, &t);
		s->target->type = v->type;
		check_block(c, s->body);
		c->variables.data[s->target->symbol].is_live = false;
	}
	c->depth--;
}

static void check_for_map(struct compiler *c, struct trace_statement *s)
{
	struct trace_map *m = s->value->kind == TRACE_EXPR_MAP ? check_map(c, s->value) : NULL;
	const struct trace_type **fields = arena_calloc(c->types.arena, 2, sizeof(*fields));
	struct trace_type *types = arena_calloc(c->types.arena, 2, sizeof(*types));

	if (!m || !fields || !types) {
		compile_fail(c, s->at, "`for` walks a map or a range");
		return;
	}
	if (m->is_scalar)
		compile_fail(c, s->at, "@%s has no keys to walk", m->name);
	if (trace_type_is_table(&m->value))
		compile_fail(c, s->at, "@%s has a %s: only print() can read it", m->name,
			     trace_type_text(&c->types, &m->value));
	c->has_functions = true;
	types[0] = m->key;
	types[1] = check_value(&m->value);
	fields[0] = &types[0];
	fields[1] = &types[1];
	check_loop_variable(
		c, s,
		m->key.kind == TRACE_NONE || types[1].kind == TRACE_NONE
			? (struct trace_type){}
			: (struct trace_type){.kind = TRACE_TUPLE, .n = 2, .fields = fields});
}

static void check_statement(struct compiler *c, struct trace_statement *s)
{
	switch (s->kind) {
	case TRACE_STATEMENT_EXPR:
		check_expr(c, s->value);
		if (compile_ok(c) && trace_type_is_aggregation(&s->value->type) &&
		    s->value->kind == TRACE_EXPR_CALL)
			compile_fail(c, s->at, "%s() needs a map: @x = %s(…)", s->value->text.data,
				     s->value->text.data);
		break;
	case TRACE_STATEMENT_ASSIGN:
		check_assign(c, s);
		break;
	case TRACE_STATEMENT_LET:
		check_let(c, s);
		break;
	case TRACE_STATEMENT_IF:
		check_if(c, s);
		break;
	case TRACE_STATEMENT_WHILE:
	case TRACE_STATEMENT_UNROLL:
		check_expr(c, s->value);
		check_block(c, s->body);
		break;
	case TRACE_STATEMENT_FOR_MAP:
		check_for_map(c, s);
		break;
	case TRACE_STATEMENT_FOR_RANGE:
		check_expr(c, s->value);
		check_expr(c, s->end);
		c->has_functions |= emit_range_is_called(c, s);
		check_loop_variable(c, s, trace_type_int(8, true));
		break;
	case TRACE_STATEMENT_RETURN:
		if (s->value)
			check_expr(c, s->value);
		break;
	case TRACE_STATEMENT_BLOCK:
		check_block(c, s->body);
		break;
	default:
		break;
	}
}

void check_block(struct compiler *c, struct trace_block *b)
{
	c->depth++;
	for (struct trace_statement *s = b->first; s && compile_ok(c); s = s->next)
		check_statement(c, s);
	for (u32 i = 0; i < c->next_variable; i++)
		if (c->variables.data[i].depth == c->depth)
			c->variables.data[i].is_live = false;
	c->depth--;
}
