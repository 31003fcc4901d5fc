/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens of a script. The parser asks for one token after the other, because the same characters
 * are something else in an attach point; it may go back to any place that it remembers by value.
 *
 * The lexer reads a text that preprocess.c has made: the lines of directives are blank in it.
 */
#pragma once

#include "base/arena.h"
#include "base/diag.h"
#include "trace/ast.h"

enum trace_token_kind {
	TOKEN_END,
	TOKEN_NAME,	 /* text */
	TOKEN_VARIABLE,	 /* $x: text without the $ */
	TOKEN_PARAMETER, /* $1: number; $#: number is 0 */
	TOKEN_MAP,	 /* @x: text without the @, may be "" */
	TOKEN_NUMBER,	 /* number */
	TOKEN_STRING,	 /* text, unescaped */
	TOKEN_SIGN,	 /* number: the characters, see TRACE_SIGN */
};

/* The characters of a sign as a number: 'a' | 'b' << 8 | 'c' << 16. */
#define TRACE_SIGN2(a, b) ((u64)(u8)(a) | (u64)(u8)(b) << 8)
#define TRACE_SIGN3(a, b, c) (TRACE_SIGN2(a, b) | (u64)(u8)(c) << 16)

struct trace_token {
	enum trace_token_kind kind;
	struct trace_at at;
	struct trace_text text;
	u64 number;
	size_t begin, end; /* in the text */
};

struct trace_lexer {
	const char *text; /* borrowed */
	size_t n, pos;
	u32 line;
	size_t line_begin;
	struct arena *arena; /* of texts, borrowed */
	struct diag *diag;
};

/* Sets the diag to "LINE:COLUMN: text". Returns `error`. */
int trace_error(struct diag *d, struct trace_at at, int error, const char *fmt, ...)
	CULPRIT_PRINTF(4, 5);
/* n bytes of the arena with a NUL behind them; -ENOMEM sets the diag. */
int trace_copy(struct trace_lexer *l, struct trace_at at, const char *s, size_t n,
	       const char **ret);

void trace_lexer_init(struct trace_lexer *l, const char *text, size_t n, struct arena *a,
		      struct diag *d);
/* The place of the next character. */
struct trace_at trace_lexer_at(const struct trace_lexer *l);
/* Skips one character and counts lines. */
void trace_lexer_step(struct trace_lexer *l);
/* Skips spaces and comments. */
int trace_lexer_skip(struct trace_lexer *l);
/* The next token; TOKEN_END at the end of the text. */
int trace_lexer_next(struct trace_lexer *l, struct trace_token *ret);
/*
 * A number with everything that the language allows: 12, 0x1f, 017, 0b1, 1_000, 1e6, 5ms, 3UL.
 * -EINVAL: it is none; -ERANGE: it has more than 64 bits. ret_used: its characters.
 */
int trace_number_prefix(const char *s, size_t n, u64 *ret, size_t *ret_used);

static inline bool trace_is_name_start(char c)
{
	return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool trace_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline bool trace_is_name_part(char c)
{
	return trace_is_name_start(c) || trace_is_digit(c);
}

static inline bool trace_is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}
