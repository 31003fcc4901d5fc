/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store/store.h"

#include <errno.h>
#include <string.h>

/* The engines: a new one is a file and a line here. */
static const struct store_ops *const engines[] = {NULL};

int store_open(const char *url, const struct store_options *o, struct diag *reterr_diag,
	       struct store **ret)
{
	const char *colon = strstr(url, "://");
	size_t n = colon ? (size_t)(colon - url) : 0;

	for (size_t i = 0; engines[i]; i++)
		if (colon ? strlen(engines[i]->scheme) == n && !memcmp(engines[i]->scheme, url, n)
			  : i == 0)
			return engines[i]->open(colon ? colon + 3 : url, o, reterr_diag, ret);
	return diag_set(reterr_diag, -EINVAL, "no store is called '%.*s'", (int)n, url);
}

void store_close(struct store *s)
{
	s->ops->close(s);
}

void store_rows_deinit(struct store_rows *r)
{
	vec_deinit(&r->rows);
}

void store_series_set_deinit(struct store_series_set *s)
{
	profile_destroy(s->profile);
	vec_deinit(&s->series);
}
