/* SPDX-License-Identifier: Apache-2.0 */
/* Policies, which add tasks when something has gone wrong for so long. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "server/api/internal.h"

#define PATH "/api/v1/policies"

static int put_policy(struct api_call *c, const char *id)
{
	_cleanup_policy_info_ struct policy_info i = {};
	int r = policies_get(c->a->o.policies, id, &i, &c->d);

	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	policy_put(&c->json, &i, true);
	json_close(&c->json);
	return 0;
}

static int list(struct api_call *c)
{
	_cleanup_policy_list_ struct policy_list all = {};
	int r = policies_list(c->a->o.policies, &all);

	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_open_array(&c->json, "policies");
	vec_foreach (&all.list, i) {
		json_open_object(&c->json, NULL);
		policy_put(&c->json, i, false);
		json_close(&c->json);
	}
	json_close(&c->json);
	json_close(&c->json);
	return 0;
}

static int show(struct api_call *c)
{
	char id[CONTROL_ID_BYTES];

	api_path_id(c, PATH, id);
	return put_policy(c, id);
}

static int add(struct api_call *c)
{
	char id[CONTROL_ID_BYTES];
	struct policy_spec spec;
	json_t *object;
	int r = api_json_body(c, &object);

	if (r == 0)
		r = policy_spec_read(object, &spec, &c->d);
	if (r == 0)
		r = policies_add(c->a->o.policies, &spec, c->r->token_name, id, &c->d);
	json_decref(object);
	if (r < 0)
		return r;
	api_audit(c, "policy-added", id);
	return put_policy(c, id);
}

static int delete (struct api_call *c)
{
	char id[CONTROL_ID_BYTES];
	int r;

	api_path_id(c, PATH, id);
	r = policies_delete(c->a->o.policies, id, &c->d);
	if (r < 0)
		return r;
	api_audit(c, "policy-deleted", id);
	json_open_object(&c->json, NULL);
	json_close(&c->json);
	return 0;
}

#define R NET_ROLE_READ
#define ADMIN NET_ROLE_ADMIN
const struct api_route api_policy_routes[] = {
	{"GET", "/api/v1/policies", R, API_STYLE_JSON, list},
	{"POST", "/api/v1/policies", ADMIN, API_STYLE_JSON, add},
	{"GET", "/api/v1/policies/{id}", R, API_STYLE_JSON, show},
	{"DELETE", "/api/v1/policies/{id}", ADMIN, API_STYLE_JSON, delete},
	{},
};
