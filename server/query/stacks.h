/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicates over stacks:
 *
 *	or	:= and { "or" and }
 *	and	:= not { "and" not }
 *	not	:= "not" not | "(" or ")" | under
 *	under	:= test { "under" test }
 *	test	:= ("fn" | "file" | "binary" | "kind" | "leaf") ("=" | "!=" | "~" | "=~" | "!~") string
 *
 * A test accepts a stack if any of its frames matches; != and !~ if none does. "leaf" is the name
 * of the function that ran, the first frame. In a chain of "under" each frame is nearer to the root
 * than the one before it. Regular expressions (~) match anywhere in the text, because they search
 * for names. No lock: one thread per predicate.
 */
#pragma once

#include "base/diag.h"
#include "profile/profile.h"

/* In a selector, and in a predicate. */
#define QUERY_MAX_REGEXES 32

struct query_stacks;

/* -EINVAL and a diag for a malformed predicate. NULL or "" accepts all stacks. */
int query_stacks_parse(const char *text, struct diag *reterr_diag, struct query_stacks **ret);
void query_stacks_free(struct query_stacks *s);
DEFINE_CLEANUP(query_stacks, struct query_stacks *, query_stacks_free)
#define _cleanup_query_stacks_ _cleanup_(query_stacks)
/* Clears cached frames; call before the first stack of another profile. 0 or -ENOMEM. */
int query_stacks_profile(struct query_stacks *s, const struct profile *p);
/*
 * Besides, a stack must begin with frames of these names, from the root. The names are borrowed.
 */
void query_stacks_below(struct query_stacks *s, char *const *names, size_t n);
/*
 * Whether the predicate accepts a stack of that profile: 1 or 0, or an error of
 * regex_match(), which stays.
 */
int query_stacks_match(struct query_stacks *s, u32 stack, struct diag *reterr_diag);
