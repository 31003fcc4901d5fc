/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose code a frame is. A path decides where it is known, a name only where none is. A pattern
 * that cannot tell, because a text is too long for it, does not match.
 */
#include "server/api/own.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/vocab.h"
#include "profile/profile.h"
#include "regex/regex.h"

enum what { START, PLUMBING, RUNTIME, SOURCE, BUILD, LIBRARY, NAME };

static const struct {
	enum what what;
	const char *kind, *pattern;
} rules[] = {
#define OWNER(what, kind, pattern) {what, kind, pattern},
#include "abi/tbl/owner.tbl"
#undef OWNER
};

struct own {
	struct regex *compiled[ARRAY_SIZE(rules)]; /* owned */
};

void own_destroy(struct own *o)
{
	if (!o)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		regex_destroy(o->compiled[i]);
	free(o);
}

int own_create(struct own **ret)
{
	_cleanup_own_ struct own *o = calloc(1, sizeof(*o));
	int r = o ? 0 : -ENOMEM;

	for (size_t i = 0; i < ARRAY_SIZE(rules) && r == 0; i++)
		r = regex_create(rules[i].pattern, false, NULL, &o->compiled[i]);
	if (r == 0)
		*ret = take_ptr(o);
	return r;
}

static bool matches(struct own *o, enum what what, const char *kind, const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].what == what && !strcmp(rules[i].kind, kind) &&
		    regex_match(o->compiled[i], text, NULL) > 0)
			return true;
	return false;
}

static bool has_rule(enum what what, const char *kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].what == what && !strcmp(rules[i].kind, kind))
			return true;
	return false;
}

static bool is_shared(const char *binary)
{
	const char *so = strstr(binary, ".so");

	return so && !isalnum((u8)so[3]) && so[3] != '_';
}

bool own_is(struct own *o, u8 kind, const char *name, const char *file, const char *binary)
{
	const struct vocab_frame_kind *k = vocab_frame_kind(kind);
	const char *program = profile_basename(binary), *kind_name = k->name;
	bool shared = is_shared(binary);

	if (k->class == FRAME_CLASS_NOTE || k->class == FRAME_CLASS_KERNEL ||
	    k->class == FRAME_CLASS_UNKNOWN || matches(o, START, "", name) ||
	    matches(o, PLUMBING, "", program) || matches(o, RUNTIME, "", program) ||
	    matches(o, SOURCE, "", file) ||
	    (shared && program == binary && matches(o, BUILD, "", file)))
		return false;
	/* A program may be anywhere; a shared object in a folder of the system is a library. */
	if ((shared || strstr(binary, "packages/") || strstr(binary, "node_modules/")) &&
	    matches(o, LIBRARY, "", binary))
		return false;
	if (strchr(file, '/') || (*file && !has_rule(NAME, kind_name)))
		return !matches(o, LIBRARY, "", file);
	if (matches(o, NAME, kind_name, name) &&
	    (kind != FRAME_NATIVE || !*file || str_ends(file, ".go")))
		return false;
	/* Functions of these that have no source are built in. */
	return *file || (kind != FRAME_JAVASCRIPT && kind != FRAME_RUBY && kind != FRAME_PHP);
}
