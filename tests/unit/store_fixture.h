/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store for a test. The same tests run over every engine: tests/server/test_clickhouse.py sets
 * CULPRIT_TEST_STORE to a URL, in which %s stands for the name of a database.
 */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "dir_fixture.h"
#include "server/store/store.h"

static inline char *scratch_dir(void)
{
	char *dir = strdup("/tmp/culprit-store-XXXXXX");

	cr_assert_not_null(mkdtemp(dir));
	return dir;
}

static inline void remove_store_dir(char *dir)
{
	(void)remove_dir(dir);
	free(dir);
}

static inline bool is_embedded(void)
{
	return !getenv("CULPRIT_TEST_STORE");
}

static inline struct store *open_store(const char *dir, const struct store_options *o)
{
	const char *url = getenv("CULPRIT_TEST_STORE"), *name = url ? strstr(url, "%s") : NULL;
	_cleanup_str_ struct str where = {};
	struct diag d = {};
	struct store *s = NULL;

	if (name)
		str_printf(&where, "%.*sunit_%s%s", (int)(name - url), url, strrchr(dir, '-') + 1,
			   name + 2);
	cr_assert_eq(store_open(name ? str_get(&where) : dir, o, &d, &s), 0, "%s", d.text);
	return s;
}

/* Writes a profile as one batch. token: NULL, or of store_write(). */
static inline void write_profile(struct store *s, const struct profile *p, const u8 *token)
{
	_cleanup_store_batch_ struct store_batch b = {};
	struct diag d = {};

	cr_assert_eq(store_batch_init(&b, p, NULL, &d), 0, "%s", d.text);
	cr_assert_eq(store_write(s, &b, token, &d), 0, "%s", d.text);
}
