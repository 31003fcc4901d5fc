/* SPDX-License-Identifier: Apache-2.0 */
#include "base/closest.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

#define MAX_LENGTH 64 /* of what is compared */
#define MORE_BYTES 24 /* " and N more" */

struct ranked {
	const char *name;
	u32 distance;
};

/* The number of characters that differ, are missing, or are swapped with their neighbour. */
static u32 distance(const char *a, const char *b)
{
	u32 rows[3][MAX_LENGTH + 1], n = (u32)strnlen(a, MAX_LENGTH),
				     m = (u32)strnlen(b, MAX_LENGTH);
	u32 *before = rows[0], *last = rows[1], *row = rows[2];

	for (u32 k = 0; k <= m; k++)
		last[k] = k;
	for (u32 i = 1; i <= n; i++) {
		u32 *next = before;

		row[0] = i;
		for (u32 k = 1; k <= m; k++) {
			int x = tolower((u8)a[i - 1]), y = tolower((u8)b[k - 1]);

			row[k] = MIN(last[k], row[k - 1]) + 1;
			row[k] = MIN(row[k], last[k - 1] + (x != y));
			if (i > 1 && k > 1 && x == tolower((u8)b[k - 2]) &&
			    y == tolower((u8)a[i - 2]))
				row[k] = MIN(row[k], before[k - 2] + 1);
		}
		before = last;
		last = row;
		row = next;
	}
	return last[m];
}

/* A part of a name is like it, however long the rest is. */
static u32 rank(const char *wanted, const char *name)
{
	if (*wanted && *name && (strcasestr(name, wanted) || strcasestr(wanted, name)))
		return 1;
	return distance(wanted, name);
}

static int compare_ranked(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return strcmp(x->name, y->name);
}

int closest_append(struct str *out, const char *wanted, const char *const *names, size_t n,
		   size_t max_bytes)
{
	_cleanup_free_ struct ranked *all = calloc(n + 1, sizeof(*all));
	size_t begin = out->n, i;

	if (!all)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		all[i] = (struct ranked){names[i], rank(wanted, names[i])};
	qsort(all, n, sizeof(*all), compare_ranked);
	for (i = 0; i < n; i++) {
		size_t need = strlen(all[i].name) + 2 + (i + 1 < n ? MORE_BYTES : 0);

		if (out->n - begin + need > max_bytes)
			break;
		str_printf(out, "%s%s", i ? ", " : "", all[i].name);
	}
	if (i < n)
		str_printf(out, i ? " and %zu more" : "%zu", n - i);
	return out->failed ? -ENOMEM : 0;
}

const char *closest_name(const char *wanted, const char *const *names, size_t n)
{
	u32 least = (u32)MIN(strlen(wanted), (size_t)MAX_LENGTH) / 3 + 1;
	const char *name = NULL;

	for (size_t i = 0; i < n; i++) {
		u32 d = distance(wanted, names[i]);

		if (d < least) {
			least = d;
			name = names[i];
		}
	}
	return name;
}
