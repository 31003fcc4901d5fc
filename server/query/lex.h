/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens of selectors and stack predicates. No lock: one thread per lexer.
 */
#pragma once

#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"

#define QUERY_MAX_TEXT 4096

enum lex_kind {
	LEX_END,
	LEX_WORD,     /* letters, digits, _ . : / - */
	LEX_STRING,   /* in double or single quotes, with \\ \" \' \n \t */
	LEX_OPERATOR, /* = != =~ ~ !~ */
	LEX_OTHER,    /* any other single character */
};

struct lex {
	const char *text, *pos; /* borrowed */
	enum lex_kind kind;	/* kind of the current token */
	struct str word;	/* owned */
	struct diag *diag;
};

/*
 * Reads the first token. `text` is borrowed. -EINVAL and a diag if the text is too long or a string
 * has no end.
 */
int lex_init(struct lex *l, const char *text, struct diag *reterr_diag);
void lex_deinit(struct lex *l);
#define _cleanup_lex_ __attribute__((cleanup(lex_deinit)))
/* Reads the next token; the same errors. */
int lex_next(struct lex *l);
/* Whether the current token has this kind and, unless `word` is NULL, this text. */
bool lex_is(const struct lex *l, enum lex_kind kind, const char *word);
/*
 * Sets a diag with the position, such as "expected a name, not '}' (at character 12)". Returns
 * -EINVAL.
 */
int lex_fail(struct lex *l, const char *expected);
