/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions that users write, in RE2's syntax, which is also that of Pyroscope and
 * Grafana. doc/design/0012-regular-expressions.md says why RE2: the time of a match is bounded by
 * the size of the expression times the length of the text, and its memory is bounded.
 *
 * A pattern is compiled or refused; a match has an answer or an error, and never a wrong answer.
 * Text that is not UTF-8 is matched as it is shown, with U+FFFD for each wrong byte. '.' matches a
 * newline, too. No lock: one thread per expression.
 */
#pragma once

#include "base/cleanup.h"
#include "base/diag.h"

struct regex;

/*
 * `whole`: the text matches from its begin to its end; else a part of it matches. -EINVAL for what
 * is not a regular expression, and for one that is too large.
 */
int regex_create(const char *pattern, bool whole, struct diag *reterr_diag, struct regex **ret);
void regex_destroy(struct regex *r);
DEFINE_CLEANUP(regex, struct regex *, regex_destroy)
#define _cleanup_regex_ _cleanup_(regex)
/*
 * 1 or 0. -ERANGE if the text is too long for an expression of this size; -ENOMEM; the errors of
 * quota_check(), which it calls as often as long matches need it.
 */
int regex_match(struct regex *r, const char *text, struct diag *reterr_diag);
