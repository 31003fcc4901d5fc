/* SPDX-License-Identifier: Apache-2.0 */
/* A whole script: configuration, definitions, macros, maps and probes, and what all parts use. */
#include "trace/parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/closest.h"

/* ---- what all parts use ---- */

void *trace_alloc(struct trace_parser *p, size_t n, size_t size)
{
	void *m = arena_calloc(&p->script->arena, n, size);

	if (!m)
		trace_error(p->diag, p->t.at.line ? p->t.at : (struct trace_at){1, 1}, -E2BIG,
			    "the script needs more than %d MiB of memory", TRACE_MAX_MEMORY >> 20);
	return m;
}

struct trace_expr *trace_expr_new(struct trace_parser *p, enum trace_expr_kind kind,
				  struct trace_at at)
{
	struct trace_expr *e = trace_alloc(p, 1, sizeof(*e));

	if (e) {
		e->kind = kind;
		e->at = at;
	}
	return e;
}

int trace_advance(struct trace_parser *p)
{
	return trace_lexer_next(&p->lexer, &p->t);
}

int trace_enter(struct trace_parser *p)
{
	if (p->depth >= TRACE_MAX_DEPTH)
		return trace_error(p->diag, p->t.at, -E2BIG,
				   "the script is nested more than %d levels deep here",
				   TRACE_MAX_DEPTH / 2);
	p->depth++;
	return 0;
}

bool trace_is_word(const struct trace_parser *p, const char *word)
{
	return p->t.kind == TOKEN_NAME && strcmp(p->t.text.data, word) == 0;
}

/* What the next token looks like, for errors. */
static void describe_token(const struct trace_parser *p, char *out, size_t size)
{
	size_t n = p->t.end - p->t.begin;

	if (p->t.kind == TOKEN_END)
		snprintf(out, size, "the end");
	else
		snprintf(out, size, "%.*s%s", (int)MIN(n, (size_t)40), p->lexer.text + p->t.begin,
			 n > 40 ? "…" : "");
}

int trace_unexpected(struct trace_parser *p, const char *expected)
{
	char token[64];

	describe_token(p, token, sizeof(token));
	return trace_error(p->diag, p->t.at, -EINVAL, "expected %s, not %s", expected, token);
}

int trace_expect(struct trace_parser *p, u64 sign, const char *where)
{
	char token[64];
	char text[4] = {(char)sign, (char)(sign >> 8), (char)(sign >> 16), '\0'};

	if (trace_is_sign(p, sign))
		return trace_advance(p);
	describe_token(p, token, sizeof(token));
	return trace_error(p->diag, p->t.at, -EINVAL, "expected %s %s, not %s", text, where, token);
}

void trace_try(struct trace_parser *p, struct trace_mark *m, struct diag *scratch)
{
	*m = (struct trace_mark){p->lexer, p->t, p->diag, p->depth};
	p->diag = p->lexer.diag = scratch;
}

void trace_try_failed(struct trace_parser *p, const struct trace_mark *m)
{
	p->lexer = m->lexer;
	p->t = m->t;
	p->diag = m->diag;
	p->depth = m->depth;
}

void trace_try_held(struct trace_parser *p, const struct trace_mark *m)
{
	p->diag = p->lexer.diag = m->diag;
}

bool trace_is_macro_parameter(const struct trace_parser *p, enum trace_expr_kind kind,
			      const char *name)
{
	for (u32 i = 0; p->macro && i < p->macro->n; i++) {
		if (p->macro->parameters[i].kind == kind &&
		    strcmp(p->macro->parameters[i].name, name) == 0)
			return true;
	}
	return false;
}

/* ---- config = { … } ---- */

/* BPFTRACE_STACK_MODE and STACK_MODE are stack_mode. */
static int normalize_setting(struct trace_parser *p, struct trace_setting *s)
{
	const char *name = p->t.text.data;
	char *lower;

	name += str_starts(name, "BPFTRACE_") ? strlen("BPFTRACE_") : 0;
	lower = trace_alloc(p, strlen(name) + 1, 1);
	if (!lower)
		return -ENOMEM;
	for (size_t i = 0; name[i]; i++)
		lower[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + 'a' - 'A') : name[i];
	s->name = lower;
	return 0;
}

static int parse_setting(struct trace_parser *p)
{
	struct trace_setting s = {.at = p->t.at};
	bool is_value;

	if (p->t.kind != TOKEN_NAME)
		return trace_unexpected(p, "the name of a setting in config = { name = value; }");
	if (normalize_setting(p, &s) < 0 || trace_advance(p) < 0 ||
	    trace_expect(p, '=', "after the name of a setting") < 0)
		return -EINVAL;
	is_value =
		p->t.kind == TOKEN_NAME || p->t.kind == TOKEN_NUMBER || p->t.kind == TOKEN_STRING;
	if (!is_value)
		return trace_unexpected(p, "a name, a number or a text as value of the setting");
	s.value = p->t.text;
	if (p->t.kind == TOKEN_NUMBER) {
		char number[24];
		int n = snprintf(number, sizeof(number), "%llu", (unsigned long long)p->t.number);

		s.value.n = (u32)n;
		if (trace_copy(&p->lexer, s.at, number, (size_t)n, &s.value.data) < 0)
			return -ENOMEM;
	}
	if (vec_push(&p->script->settings, s) < 0)
		return trace_error(p->diag, s.at, -ENOMEM, "out of memory");
	if (trace_advance(p) < 0)
		return -EINVAL;
	return trace_is_sign(p, '}') ? 0 : trace_expect(p, ';', "after a setting");
}

static int parse_config(struct trace_parser *p)
{
	if (p->script->settings.n || p->script->probes.n || p->macros.n)
		return trace_error(p->diag, p->t.at, -EINVAL,
				   "config = { … } stands once, before macros and probes");
	if (trace_advance(p) < 0 || trace_expect(p, '=', "after config") < 0 ||
	    trace_expect(p, '{', "after config =") < 0)
		return -EINVAL;
	while (!trace_is_sign(p, '}')) {
		if (parse_setting(p) < 0)
			return -EINVAL;
	}
	if (trace_advance(p) < 0)
		return -EINVAL;
	return trace_is_sign(p, ';') ? trace_advance(p) : 0;
}

/* ---- macro name(…) { … } ---- */

static int parse_macro_parameter(struct trace_parser *p, struct trace_macro *m)
{
	struct trace_macro_parameter parameter = {.name = p->t.text.data};

	if (p->t.kind == TOKEN_NAME)
		parameter.kind = TRACE_EXPR_NAME;
	else if (p->t.kind == TOKEN_VARIABLE)
		parameter.kind = TRACE_EXPR_VARIABLE;
	else if (p->t.kind == TOKEN_MAP)
		parameter.kind = TRACE_EXPR_MAP;
	else
		return trace_unexpected(p, "a parameter of the macro (name, $name or @name)");
	if (trace_is_macro_parameter(p, parameter.kind, parameter.name))
		return trace_error(p->diag, p->t.at, -EINVAL,
				   "the macro has two parameters with this name");
	if (m->n == 16)
		return trace_error(p->diag, p->t.at, -EINVAL, "a macro has 16 parameters at most");
	m->parameters[m->n++] = parameter;
	return trace_advance(p);
}

static int parse_macro_head(struct trace_parser *p, struct trace_macro *m)
{
	if (p->t.kind != TOKEN_NAME)
		return trace_unexpected(p, "the name of the macro");
	m->at = p->t.at;
	m->name = p->t.text.data;
	m->parameters = trace_alloc(p, 16, sizeof(*m->parameters));
	if (!m->parameters || trace_advance(p) < 0)
		return -EINVAL;
	if (!trace_is_sign(p, '('))
		return 0;
	if (trace_advance(p) < 0)
		return -EINVAL;
	while (!trace_is_sign(p, ')')) {
		if (parse_macro_parameter(p, m) < 0)
			return -EINVAL;
		if (!trace_is_sign(p, ','))
			break;
		if (trace_advance(p) < 0)
			return -EINVAL;
	}
	return trace_expect(p, ')', "after the parameters of the macro");
}

static bool same_signature(const struct trace_macro *a, const struct trace_macro *b)
{
	if (strcmp(a->name, b->name) != 0 || a->n != b->n)
		return false;
	for (u32 i = 0; i < a->n; i++) {
		if (a->parameters[i].kind != b->parameters[i].kind)
			return false;
	}
	return true;
}

static int check_new_macro(struct trace_parser *p, const struct trace_macro *m)
{
	vec_foreach (&p->macros, other) {
		if (same_signature(other, m))
			return trace_error(p->diag, m->at, -EINVAL,
					   "macro %s is already defined in line %u", m->name,
					   other->at.line);
	}
	return 0;
}

static int parse_macro(struct trace_parser *p)
{
	struct trace_macro m = {};
	int r;

	if (trace_advance(p) < 0)
		return -EINVAL;
	p->macro = &m;
	r = parse_macro_head(p, &m);
	if (r == 0)
		r = check_new_macro(p, &m);
	if (r == 0) {
		m.body = trace_parse_block(p);
		r = m.body ? 0 : -EINVAL;
	}
	p->macro = NULL;
	if (r == 0 && vec_push(&p->macros, m) < 0)
		r = trace_error(p->diag, m.at, -ENOMEM, "out of memory");
	return r;
}

/* ---- let @name = type(n); ---- */

static int parse_map_declaration(struct trace_parser *p)
{
	struct trace_map_declaration m = {};
	struct trace_expr *e;
	s64 entries = 0;

	if (trace_advance(p) < 0)
		return -EINVAL;
	if (p->t.kind != TOKEN_MAP)
		return trace_unexpected(p, "a map after let: let @name = hash(100);");
	m.at = p->t.at;
	m.name = p->t.text.data;
	if (trace_advance(p) < 0 || trace_expect(p, '=', "after the name of the map") < 0)
		return -EINVAL;
	e = trace_parse_expr(p);
	if (!e)
		return -EINVAL;
	if (e->kind != TRACE_EXPR_CALL || e->n_list != 1 ||
	    trace_constant(e->list[0], &entries) < 0 || entries < 1)
		return trace_error(p->diag, e->at, -EINVAL,
				   "a map is declared by its type and its most entries: let @name "
				   "= hash(100); or lruhash, percpuhash, percpulruhash");
	m.type = e->text.data;
	m.max_entries = (u64)entries;
	if (vec_push(&p->script->maps, m) < 0)
		return trace_error(p->diag, m.at, -ENOMEM, "out of memory");
	return trace_expect(p, ';', "after the declaration of a map");
}

/* ---- probes ---- */

/* The lexer goes back to the first character of the next token, which is read in another way. */
static void step_back(struct trace_parser *p)
{
	p->lexer.pos = p->t.begin;
	p->lexer.line = p->t.at.line;
	p->lexer.line_begin = p->t.begin - (p->t.at.column - 1);
}

static int parse_predicate(struct trace_parser *p, struct trace_probe *probe)
{
	if (trace_advance(p) < 0)
		return -EINVAL;
	p->in_predicate = true;
	probe->predicate = trace_parse_expr(p);
	p->in_predicate = false;
	if (!probe->predicate)
		return -EINVAL;
	return trace_expect(p, '/', "at the end of the predicate");
}

static int parse_probe(struct trace_parser *p)
{
	struct trace_probe probe = {.at = p->t.at};
	int r;

	step_back(p);
	r = trace_parse_points(p, &probe);
	if (r == 0 && trace_is_sign(p, '/'))
		r = parse_predicate(p, &probe);
	if (r == 0) {
		if (trace_is_sign(p, '{'))
			probe.body = trace_parse_block(p);
		else
			trace_unexpected(p, "{ and an action, or / and a predicate");
		r = probe.body ? 0 : -EINVAL;
	}
	if (r == 0 && vec_push(&p->script->probes, probe) < 0)
		r = trace_error(p->diag, probe.at, -ENOMEM, "out of memory");
	if (r < 0)
		vec_deinit(&probe.points);
	return r;
}

static bool next_is_assignment(const struct trace_parser *p)
{
	struct trace_lexer ahead = p->lexer;
	struct trace_token next;

	ahead.diag = NULL;
	return trace_lexer_next(&ahead, &next) == 0 && next.kind == TOKEN_SIGN &&
	       next.number == '=';
}

static int parse_item(struct trace_parser *p)
{
	if (trace_is_word(p, "config") && next_is_assignment(p))
		return parse_config(p);
	if (trace_is_word(p, "macro"))
		return parse_macro(p);
	if (trace_is_word(p, "let"))
		return parse_map_declaration(p);
	if (trace_is_tag(p))
		return trace_parse_definition(p);
	if (trace_is_word(p, "import"))
		return trace_error(p->diag, p->t.at, -EINVAL, "%s", trace_no_import);
	if (trace_is_word(p, "fn"))
		return trace_error(p->diag, p->t.at, -EINVAL,
				   "fn is not supported: write macro name(…) { … }");
	if (trace_is_word(p, "typedef"))
		return trace_error(p->diag, p->t.at, -EINVAL,
				   "typedef is not supported: use the type that it stands for");
	return parse_probe(p);
}

/* ---- the whole ---- */

/* Options that no getopt() asked for are typing errors. */
static int check_options(struct trace_parser *p)
{
	const struct trace_parameters *given = p->parameters;

	for (u32 i = 0; given && i < given->n_options; i++) {
		_cleanup_str_ struct str closest = {};
		const char *option = given->options[i];

		if (p->used_options[i])
			continue;
		if (!p->options.n)
			return diag_set(p->diag, -EINVAL,
					"the script has no options, but %s is given", option);
		if (closest_append(&closest, option + strspn(option, "-"), p->options.data,
				   p->options.n, 80) < 0)
			return diag_set(p->diag, -ENOMEM, "out of memory");
		return diag_set(p->diag, -EINVAL, "the script has no option %s; it has %s", option,
				str_get(&closest));
	}
	return 0;
}

static int parse_all(struct trace_parser *p, const char *text, size_t n)
{
	int r = trace_preprocess(p, text, n);

	if (r < 0)
		return r;
	trace_lexer_init(&p->lexer, p->source->text, n, &p->script->arena, p->diag);
	r = trace_advance(p);
	while (r == 0 && p->t.kind != TOKEN_END)
		r = trace_is_sign(p, ';') ? trace_advance(p) : parse_item(p);
	if (r == 0 && !p->script->probes.n)
		r = trace_error(p->diag, p->t.at, -EINVAL,
				"the script has no probe, such as interval:s:1 { … }");
	if (r == 0)
		r = check_options(p);
	return r < 0 ? r : trace_expand(p);
}

int trace_parse(const char *file, const char *text, size_t n, const struct trace_parameters *p,
		struct diag *d, struct trace_script **ret)
{
	struct trace_source source = {};
	struct diag own = {};
	_cleanup_free_ bool *used = NULL;
	struct trace_parser parser = {
		.source = &source,
		.parameters = p,
		.diag = d ? d : &own,
		.lexer.diag = d ? d : &own,
	};
	int r;

	if (n > TRACE_MAX_TEXT)
		return diag_set(d, -E2BIG, "the script has more than %d KiB", TRACE_MAX_TEXT >> 10);
	used = calloc(p && p->n_options ? p->n_options : 1, sizeof(*used));
	parser.script = calloc(1, sizeof(*parser.script));
	if (!used || !parser.script) {
		free(parser.script);
		return diag_set(d, -ENOMEM, "out of memory");
	}
	parser.used_options = used;
	*parser.script = (struct trace_script){
		.file = file, .text = text, .n_text = n, .arena = ARENA_INIT(TRACE_MAX_MEMORY)};
	parser.lexer.arena = &parser.script->arena;
	r = parse_all(&parser, text, n);
	vec_deinit(&source.defines);
	vec_deinit(&parser.macros);
	vec_deinit(&parser.options);
	if (r < 0) {
		trace_script_destroy(parser.script);
		return parser.diag->text[0] ? r : diag_set(parser.diag, r, "the script is wrong");
	}
	*ret = parser.script;
	return 0;
}

void trace_script_destroy(struct trace_script *s)
{
	if (!s)
		return;
	vec_foreach (&s->probes, probe)
		vec_deinit(&probe->points);
	vec_foreach (&s->structs, type) {
		vec_deinit(&type->members);
		vec_deinit(&type->constants);
	}
	vec_deinit(&s->probes);
	vec_deinit(&s->structs);
	vec_deinit(&s->settings);
	vec_deinit(&s->maps);
	vec_deinit(&s->headers);
	arena_deinit(&s->arena);
	free(s);
}
