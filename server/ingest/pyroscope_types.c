/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of the types in a pprof file that one of Pyroscope's clients sends to /ingest. The file
 * has no group ("memory" of "memory:alloc_space:…"), so Pyroscope takes it from words in the names
 * of the types, and all types of the file get the same one. Here types that abi/tbl/sample_type.tbl
 * knows keep the group that it says, and the others get Pyroscope's, so that Grafana finds them
 * where it looks for them.
 *
 * A client can name the types in the form's part sample_type_config: {"contentions":
 * {"display-name": "block_count"}}. Go's profiles of blocking and of mutexes differ in nothing
 * else.
 */
#include <errno.h>
#include <string.h>

#include <jansson.h>

#include "base/text.h"
#include "base/vocab.h"
#include "server/ingest/internal.h"

/* What is in the name of a type, and a type whose group it means: the first that any type has. */
static const struct {
	const char *word;
	enum sample_type type;
	bool whole; /* the word is the whole name */
} words[] = {
	{"cpu", SAMPLE_TYPE_CPU, false},
	{"alloc_", SAMPLE_TYPE_ALLOC_SPACE, false},
	{"inuse_", SAMPLE_TYPE_INUSE_SPACE, false},
	{"space", SAMPLE_TYPE_INUSE_SPACE, true},
	{"objects", SAMPLE_TYPE_INUSE_SPACE, true},
	{"mutex_", SAMPLE_TYPE_MUTEX_DELAY, false},
	{"block_", SAMPLE_TYPE_BLOCK_DELAY, false},
	{"goroutines", SAMPLE_TYPE_GOROUTINES, false},
};

static const char *group_of_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (words[i].whole ? !strcmp(name, words[i].word) : !!strstr(name, words[i].word))
			return vocab_sample_type(words[i].type)->profile;
	return NULL;
}

static const char *name_of(const struct profile *p, u32 type)
{
	return profile_string(p, p->types[type].name);
}

/* The name that the client shows the type with, or NULL. */
static const char *display_name(const json_t *config, const char *name)
{
	return json_string_value(json_object_get(json_object_get(config, name), "display-name"));
}

/* Whether one of the types is time by the wall clock. Pyroscope takes the others for its own. */
static bool is_wall(const struct profile *p)
{
	for (u32 i = 0; i < p->n_types; i++)
		if (!strcmp(name_of(p, i), vocab_sample_type(SAMPLE_TYPE_WALL)->name))
			return true;
	return false;
}

static const char *find_group(const struct profile *p, const json_t *config)
{
	const char *group = NULL;

	for (u32 i = 0; i < p->n_types && !group; i++) {
		const char *display = display_name(config, name_of(p, i));

		group = group_of_name(display ? display : name_of(p, i));
	}
	return group;
}

/* Names of old .NET clients: "alloc-space". */
static int mend_name(struct profile *p, struct profile_type *t)
{
	const char *name = profile_string(p, t->name);
	_cleanup_free_ char *to = strchr(name, '-') ? strdup(name) : NULL;

	if (!strchr(name, '-'))
		return 0;
	for (char *c = to; c && *c; c++)
		if (*c == '-')
			*c = '_';
	return to ? profile_add_string(p, to, strlen(to), &t->name) : -ENOMEM;
}

int ingest_name_groups(struct profile *p, const char *spy, const struct json_t *config)
{
	bool wall, dotnet = spy && !strcmp(spy, "dotnetspy");
	const char *group;
	int r = 0;

	for (u32 i = 0; i < p->n_types && r == 0 && dotnet; i++)
		r = mend_name(p, &p->types[i]);
	wall = is_wall(p);
	group = wall ? vocab_sample_type(SAMPLE_TYPE_WALL)->profile : find_group(p, config);
	for (u32 i = 0; i < p->n_types && r == 0 && group; i++) {
		struct profile_type *t = &p->types[i];
		const char *name = profile_string(p, t->name);
		bool known = vocab_find_sample_type(NULL, name, profile_string(p, t->unit)) <
			     SAMPLE_TYPE_N;

		if (wall || !known || display_name(config, name))
			r = profile_add_string(p, group, strlen(group), &t->group);
	}
	return r;
}
