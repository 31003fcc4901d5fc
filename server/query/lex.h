/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a selector and of a stack predicate; bounded regular expressions. */
#pragma once

#include <regex.h>

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
	enum lex_kind kind;	/* of the current word */
	struct str word;	/* owned */
	struct diag *diag;
};

/* Reads the first word. -EINVAL and a diag for what is too long or has no end. */
int lex_init(struct lex *l, const char *text, struct diag *reterr_diag);
void lex_deinit(struct lex *l);
#define _cleanup_lex_ __attribute__((cleanup(lex_deinit)))
int lex_next(struct lex *l);
bool lex_is(const struct lex *l, enum lex_kind kind, const char *word);
/* -EINVAL, with the place: "expected a name, not '}' (at character 12)". */
int lex_fail(struct lex *l, const char *expected);

/*
 * POSIX extended. Refused is what makes glibc take long or much memory: back references, and
 * counted repetitions beyond a thousand in all.
 */
int query_regex(const char *pattern, bool whole, regex_t *ret, struct diag *reterr_diag);
