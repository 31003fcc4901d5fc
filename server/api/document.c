/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of the routes below /api/v1/ are those of the document (doc/api/openapi.json): a
 * request with another one is refused, because an answer to half of a question misleads. So the
 * document cannot lack a parameter. Routes of other protocols ignore parameters that they do not
 * know.
 */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "base/closest.h"
#include "server/api/internal.h"

extern const unsigned char openapi_json[];
extern const size_t openapi_json_n;

#define OWN_ROUTES "/api/v1/"
#define MAX_NAMES 64
#define NAMES_BYTES 170 /* of the diag's 256 */

int api_load_document(struct json_t **ret)
{
	return json_read((const char *)openapi_json, openapi_json_n, 0, ret, NULL);
}

/* The declaration, or the shared one that it refers to by "#/components/parameters/NAME". */
static json_t *resolve(json_t *document, json_t *declared)
{
	const char *ref = json_string_value(json_object_get(declared, "$ref"));
	json_t *shared = json_object_get(json_object_get(document, "components"), "parameters");

	return ref ? json_object_get(shared, strrchr(ref, '/') + 1) : declared;
}

/* The names of the route's parameters. Returns their number; -1: the document has no such route. */
static int declared_names(json_t *document, const struct api_route *route, const char **ret)
{
	json_t *path = json_object_get(json_object_get(document, "paths"), route->path);
	json_t *operation, *e;
	char method[8] = "";
	size_t i;
	int n = 0;

	for (i = 0; route->method[i] && i + 1 < sizeof(method); i++)
		method[i] = (char)tolower((u8)route->method[i]);
	operation = json_object_get(path, method);
	if (!operation)
		return -1;
	json_array_foreach(json_object_get(operation, "parameters"), i, e)
	{
		json_t *p = resolve(document, e);

		if (n < MAX_NAMES && !strcmp(json_string_value(json_object_get(p, "in")), "query"))
			ret[n++] = json_string_value(json_object_get(p, "name"));
	}
	return n;
}

static int refuse(struct api_call *c, const char *name, const char *const *names, size_t n)
{
	_cleanup_str_ struct str all = {};

	if (!n)
		return diag_set(&c->d, -EINVAL, "no parameter '%.30s': this takes none", name);
	if (closest_append(&all, name, names, n, NAMES_BYTES) < 0)
		return -ENOMEM;
	return diag_set(&c->d, -EINVAL, "no parameter '%.30s'; there %s %s", name,
			n == 1 ? "is" : "are", str_get(&all));
}

int api_check_parameters(struct api_call *c, const struct api_route *route)
{
	const char *names[MAX_NAMES], *name;
	int n = 0, k;

	if (!str_starts(route->path, OWN_ROUTES))
		return 0;
	n = declared_names(c->a->document, route, names);
	for (size_t i = 0; n >= 0 && (name = net_parameter_name(c->r, i)); i++) {
		for (k = 0; k < n && strcasecmp(names[k], name) != 0; k++)
			;
		if (k == n)
			return refuse(c, name, names, (size_t)n);
	}
	return 0;
}
