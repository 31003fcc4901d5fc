/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store/store.h"

#include <errno.h>
#include <string.h>

int store_type_parse(const char *type, struct store_type *ret)
{
	const char **parts[] = {&ret->profile, &ret->name, &ret->unit, &ret->period,
				&ret->period_unit};
	size_t n = strlen(type);
	char *at = ret->text;

	if (n >= sizeof(ret->text))
		return -EINVAL;
	memcpy(ret->text, type, n + 1);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		*parts[i] = at;
		at += strcspn(at, ":");
		if (*at)
			*at++ = '\0';
	}
	return 0;
}

enum sample_type store_type_find(const struct store_type *t)
{
	enum sample_type type = vocab_find_sample_type(t->profile, t->name, t->unit);

	/* Clients may name the profile as they like. */
	return type < SAMPLE_TYPE_N ? type : vocab_find_sample_type(NULL, t->name, t->unit);
}

double store_type_cpu_seconds(const char *type)
{
	struct store_type t;
	u64 per_second;

	if (store_type_parse(type, &t) < 0 || !vocab_sample_type(store_type_find(&t))->is_cpu)
		return 0;
	per_second = vocab_per_second(t.unit);
	return per_second ? 1 / (double)per_second : 0;
}

bool store_type_has_waits(const char *type)
{
	enum sample_type row;
	struct store_type t;

	if (store_type_parse(type, &t) < 0)
		return false;
	row = store_type_find(&t);
	return row == SAMPLE_TYPE_OFF_CPU || row == SAMPLE_TYPE_WALL;
}

bool store_type_is_state(const char *type)
{
	struct store_type t;

	return store_type_parse(type, &t) == 0 &&
	       vocab_sample_type(store_type_find(&t))->adds == SAMPLE_ADDS_AT_MOMENT;
}

static int rank_of(const char *type)
{
	struct store_type t;
	enum sample_type row;

	if (store_type_parse(type, &t) < 0)
		return 0;
	row = store_type_find(&t);
	return row == SAMPLE_TYPE_SAMPLES ? 1 : vocab_sample_type(row)->is_cpu ? 3 : 2;
}

bool store_type_is_better(const char *type, u64 count, const char *than, u64 than_count)
{
	int a = rank_of(type), b = rank_of(than);

	if (!*than || !count != !than_count)
		return !*than || count;
	if (a != b)
		return a > b;
	/* With equal counts the last by name: bytes ("alloc_space") rather than objects. */
	return count != than_count ? count > than_count : strcmp(type, than) > 0;
}
