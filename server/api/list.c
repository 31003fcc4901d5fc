/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of lists: order=COLUMN (ascending) or -COLUMN, search=TEXT, limit, offset. The
 * server sorts and searches all rows and returns a part, so that a part is never taken by an order
 * that the reader did not ask for. Handlers break ties by name: a row is on one page only.
 */
#include <errno.h>
#include <string.h>

#include "server/api/internal.h"

#define SEARCH_BYTES 256
#define MAX_OFFSET 10000000

static int read_order(struct api_call *c, const char *const *columns, size_t n, const char *order,
		      struct api_list *ret)
{
	_cleanup_str_ struct str all = {};

	ret->descending = *order == '-';
	order += ret->descending;
	for (ret->column = 0; ret->column < n; ret->column++)
		if (!strcmp(columns[ret->column], order))
			return 0;
	for (size_t i = 0; i < n; i++)
		str_printf(&all, "%s%s", i ? ", " : "", columns[i]);
	return diag_set(&c->d, -EINVAL, "order: one of %s; with - before it descending",
			str_get(&all));
}

int api_list(struct api_call *c, const char *const *columns, size_t n, const char *order,
	     struct api_list *list)
{
	const char *asked = net_parameter(c->r, "order"), *search = net_parameter(c->r, "search");
	int r = read_order(c, columns, n, asked && *asked ? asked : order, list);

	list->search = search ? search : "";
	if (r == 0 && strlen(list->search) > SEARCH_BYTES)
		r = diag_set(&c->d, -EINVAL, "search: at most %d bytes", SEARCH_BYTES);
	if (r == 0)
		r = api_number(c, "offset", 0, MAX_OFFSET, &list->offset);
	if (r == 0)
		r = api_number(c, "limit", 1, list->max, &list->limit);
	return r;
}

bool api_list_finds(const struct api_list *l, const char *text)
{
	return !*l->search || strcasestr(text, l->search);
}

int api_list_compare(const struct api_list *l, double a, double b)
{
	int order = a < b ? -1 : a > b;

	return l->descending ? -order : order;
}

int api_list_compare_text(const struct api_list *l, const char *a, const char *b)
{
	int order = strcmp(a, b);

	return l->descending ? -order : order;
}
