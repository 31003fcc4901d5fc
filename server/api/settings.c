/* SPDX-License-Identifier: Apache-2.0 */
/* How agents sample always: what is set for hosts, and what the agents say. */
#include <errno.h>
#include <jansson.h>

#include "server/api/internal.h"

static int put_all(struct api_call *c)
{
	json_open_object(&c->json, NULL);
	settings_put(c->a->o.agent_settings, &c->json);
	json_close(&c->json);
	return 0;
}

static int set(struct api_call *c)
{
	char host[CONTROL_TEXT_BYTES];
	json_t *object;
	int r = api_json_body(c, &object);

	if (r == 0)
		r = settings_set(c->a->o.agent_settings, object, c->r->token_name, host, &c->d);
	json_decref(object);
	if (r < 0)
		return r;
	api_audit(c, "settings-set", host);
	return put_all(c);
}

static int unset(struct api_call *c)
{
	const char *host = net_parameter(c->r, "host");
	int r;

	if (!host || !*host)
		return diag_set(&c->d, -EINVAL, "host: of which hosts?");
	r = settings_unset(c->a->o.agent_settings, host, &c->d);
	if (r < 0)
		return r;
	api_audit(c, "settings-unset", host);
	return put_all(c);
}

#define R NET_ROLE_READ
#define ADMIN NET_ROLE_ADMIN
const struct api_route api_agent_settings_routes[] = {
	{"GET", "/api/v1/settings", R, API_STYLE_JSON, put_all},
	{"POST", "/api/v1/settings", ADMIN, API_STYLE_JSON, set},
	{"DELETE", "/api/v1/settings", ADMIN, API_STYLE_JSON, unset},
	{},
};
