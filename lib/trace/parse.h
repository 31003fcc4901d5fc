/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the parser share: recursive descent over one token of lookahead, with binary
 * operators by precedence. A function that makes a node returns NULL when it failed; the diag says
 * why, and the first error is the one that counts.
 *
 * Depth is bounded (TRACE_MAX_DEPTH), and so is memory, by the arena of the script.
 */
#pragma once

#include "trace/lex.h"
#include "trace/trace.h"

#define TRACE_MAX_TEXT (256 << 10)  /* bytes of a script */
#define TRACE_MAX_MEMORY (64 << 20) /* of its tree */

/* #define NAME body. The body is read as an expression where the name stands. */
struct trace_define {
	const char *name;
	size_t begin, end; /* of the body, in trace_source.joined */
	struct trace_at at;
	bool has_parameters, is_active;
};

/* A script after its directives were obeyed. Both texts have the length of the original. */
struct trace_source {
	const char *text;   /* directives, and what #if left out, are blank */
	const char *joined; /* the original, where a line that ends with \ goes on in the next */
	size_t n;
	vec(struct trace_define) defines;
};

/* A macro of the script: macro name(value, $variable, @map) { … }. */
struct trace_macro_parameter {
	enum trace_expr_kind kind; /* NAME, VARIABLE or MAP */
	const char *name;
};

struct trace_macro {
	struct trace_at at;
	const char *name;
	struct trace_macro_parameter *parameters; /* n */
	u32 n;
	struct trace_block *body;
	bool is_active;
};

struct trace_parser {
	struct trace_script *script;
	struct trace_source *source;
	const struct trace_parameters *parameters;
	struct diag *diag;
	struct trace_lexer lexer;
	struct trace_token t; /* the next one */
	vec(struct trace_macro) macros;
	struct trace_macro *macro; /* whose body is being read */
	u32 depth;
	bool in_predicate;	   /* a / before { ends the expression */
	u32 expansions;		   /* of macros, so far */
	bool only_checks;	   /* the walk looks at the depth, and expands nothing */
	bool *used_options;	   /* of parameters->options */
	vec(const char *) options; /* names that the script asks for */
};

/* A place to go back to. */
struct trace_mark {
	struct trace_lexer lexer;
	struct trace_token t;
	struct diag *diag;
	u32 depth;
};

/* ---- parse.c ---- */

/* Zeroed memory of the script; NULL: the diag is set. */
void *trace_alloc(struct trace_parser *p, size_t n, size_t size);
struct trace_expr *trace_expr_new(struct trace_parser *p, enum trace_expr_kind kind,
				  struct trace_at at);
/* Reads the next token into p->t. */
int trace_advance(struct trace_parser *p);
/* Counts a level of nesting; fails above the limit. */
int trace_enter(struct trace_parser *p);
static inline void trace_leave(struct trace_parser *p)
{
	p->depth--;
}
static inline bool trace_is_sign(const struct trace_parser *p, u64 sign)
{
	return p->t.kind == TOKEN_SIGN && p->t.number == sign;
}
bool trace_is_word(const struct trace_parser *p, const char *word);
/* Goes past a sign; else an error: "expected SIGN WHERE, not …". */
int trace_expect(struct trace_parser *p, u64 sign, const char *where);
/* Sets an error at the next token: what … was expected, and what is there. -EINVAL. */
int trace_unexpected(struct trace_parser *p, const char *expected);
/* Between them errors are not kept, for a try. */
void trace_try(struct trace_parser *p, struct trace_mark *m, struct diag *scratch);
void trace_try_failed(struct trace_parser *p, const struct trace_mark *m);
void trace_try_held(struct trace_parser *p, const struct trace_mark *m);
/* The define of a name, or NULL. */
struct trace_define *trace_find_define(const struct trace_parser *p, const char *name);
/* A name that the macro which is being read has as a parameter of this kind. */
bool trace_is_macro_parameter(const struct trace_parser *p, enum trace_expr_kind kind,
			      const char *name);

/* ---- preprocess.c ---- */

/* Obeys the directives. p->source is filled; the caller frees source->defines. */
int trace_preprocess(struct trace_parser *p, const char *text, size_t n);

/* ---- parse_expr.c, parse_primary.c ---- */

struct trace_expr *trace_parse_expr(struct trace_parser *p);
struct trace_expr *trace_parse_binary(struct trace_parser *p, u32 least);
struct trace_expr *trace_parse_unary(struct trace_parser *p);
struct trace_expr *trace_parse_primary(struct trace_parser *p);
/* The comma-separated rest of a list up to `end`, which is passed. Adds to e->list. */
int trace_parse_list(struct trace_parser *p, struct trace_expr *e, u64 end, const char *where);
/* Adds to e->list. */
int trace_list_add(struct trace_parser *p, struct trace_expr *e, struct trace_expr *item);
/* The value of an expression of constants; -EINVAL without a diag: it has none. */
int trace_constant(const struct trace_expr *e, s64 *ret);
/* getopt(), str($1) and others that the parser answers; *e is replaced. */
int trace_resolve_call(struct trace_parser *p, struct trace_expr **e);
/* The number or the text that stands for a parameter. */
struct trace_expr *trace_parameter_expr(struct trace_parser *p, struct trace_at at, u64 number);

/* ---- parse_type.c ---- */

/* A type; NULL: error. */
struct trace_type_name *trace_parse_type(struct trace_parser *p);
/* A type up to ) or a comma, else an expression: one of the two is set. */
int trace_parse_type_or_value(struct trace_parser *p, struct trace_type_name **ret_type,
			      struct trace_expr **ret_value);
/* Whether the next token is struct, union or enum. */
bool trace_is_tag(const struct trace_parser *p);
/* Whether a name is a builtin, so that (name) is a value and no cast. */
bool trace_is_builtin(const char *name);

/* ---- parse_struct.c ---- */

/* struct, union or enum NAME { … } */
int trace_parse_definition(struct trace_parser *p);

/* ---- parse_statement.c ---- */

extern const char trace_no_import[]; /* what is said to `import` */

struct trace_block *trace_parse_block(struct trace_parser *p);
/* Makes the last statement of a block a value where it can be one: `if` with `else`, a block. */
int trace_block_to_value(struct trace_parser *p, struct trace_block *b);

/* ---- point.c ---- */

/* Attach points up to the predicate or the {. The lexer is at the first; p->t is read again. */
int trace_parse_points(struct trace_parser *p, struct trace_probe *probe);

/* ---- constants.c ---- */

/* A constant of a header that is in no BTF: AF_INET, EPERM, O_CREAT … */
bool trace_header_constant(const char *name, s64 *ret);

/* ---- macro.c ---- */

/* Puts the bodies of macros into all probes, and checks the depth of the tree. */
int trace_expand(struct trace_parser *p);
