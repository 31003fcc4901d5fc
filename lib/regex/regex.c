/* SPDX-License-Identifier: Apache-2.0 */
#include "regex/regex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/quota.h"
#include "base/str.h"
#include "base/text.h"
#include "regex/re2.h"

#define MAX_PATTERN 512
/* RE2's instructions and states. It takes twice as much while it compiles. */
#define MAX_BYTES (1u << 20)
/* Steps of a match, about 5 ns each: 0.7 s. All but the largest expressions match 64 KiB. */
#define MAX_STEPS (1ULL << 27)
#define STEPS_PER_CHECK (1ULL << 16)
/* A pattern in a message. */
#define SHOWN "'%.80s'"

struct regex {
	struct re2_code *code;
	bool whole;
	struct str shown; /* text that is not UTF-8, repaired */
	u64 steps;	  /* since the last look at the quota */
	char pattern[];
};

int regex_create(const char *pattern, bool whole, struct diag *reterr_diag, struct regex **ret)
{
	_cleanup_regex_ struct regex *x = NULL;
	size_t n = strlen(pattern);
	char why[128] = "";
	int r;

	if (n > MAX_PATTERN)
		return diag_set(reterr_diag, -EINVAL, SHOWN ": longer than %d characters", pattern,
				MAX_PATTERN);
	if (!quota_take(MAX_BYTES))
		return quota_why(reterr_diag);
	x = calloc(1, sizeof(*x) + n + 1);
	if (!x) {
		quota_give(MAX_BYTES);
		return -ENOMEM;
	}
	memcpy(x->pattern, pattern, n);
	x->whole = whole;
	r = re2_compile(pattern, MAX_BYTES, why, sizeof(why), &x->code);
	if (r == -EINVAL)
		return diag_set(reterr_diag, r, SHOWN " is not a regular expression: %s", pattern,
				why);
	if (r == 0)
		*ret = take_ptr(x);
	return r;
}

void regex_destroy(struct regex *r)
{
	if (!r)
		return;
	re2_free(r->code);
	str_deinit(&r->shown);
	free(r);
	quota_give(MAX_BYTES);
}

/* The text as it is shown. */
static const char *repair(struct regex *r, const char *text, size_t *n)
{
	size_t at = 0, len = 1;
	u32 c;

	while (at < *n && (len = text_decode(text + at, *n - at, &c)))
		at += len;
	if (at == *n)
		return text;
	str_clear(&r->shown);
	for (str_append(&r->shown, text, at); at < *n; at += len ? len : 1) {
		len = text_decode(text + at, *n - at, &c);
		str_append(&r->shown, len ? text + at : "\xef\xbf\xbd", len ? len : 3);
	}
	*n = r->shown.n;
	return r->shown.failed ? NULL : str_get(&r->shown);
}

int regex_match(struct regex *r, const char *text, struct diag *reterr_diag)
{
	size_t n = strlen(text);
	u64 steps;
	int yes, e = 0;

	text = repair(r, text, &n);
	if (!text)
		return -ENOMEM;
	steps = (n + 1) * re2_size(r->code);
	if (steps > MAX_STEPS)
		return diag_set(reterr_diag, -ERANGE,
				SHOWN " is too large to match a name of %zu bytes: shorten it",
				r->pattern, n);
	yes = re2_match(r->code, text, n, r->whole);
	for (r->steps += steps; r->steps >= STEPS_PER_CHECK && e == 0; r->steps -= STEPS_PER_CHECK)
		e = quota_check(reterr_diag);
	return e < 0 ? e : yes;
}
