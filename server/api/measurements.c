/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of functions: on all hosts that run them, for some seconds. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "server/api/internal.h"

#define PATH "/api/v1/measurements"

static int put_measurement(struct api_call *c, const char *id)
{
	_cleanup_measurement_info_ struct measurement_info i = {};
	int r = measurements_get(c->a->o.measurements, id, &i, &c->d);

	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	measurement_put(&c->json, &i, true);
	json_close(&c->json);
	return 0;
}

static int list(struct api_call *c)
{
	_cleanup_measurement_list_ struct measurement_list all = {};
	int r = measurements_list(c->a->o.measurements, &all);

	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_open_array(&c->json, "measurements");
	vec_foreach (&all.list, i) {
		json_open_object(&c->json, NULL);
		measurement_put(&c->json, i, false);
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
	return put_measurement(c, id);
}

static int add(struct api_call *c)
{
	char id[CONTROL_ID_BYTES];
	struct measurement_spec spec;
	json_t *object;
	int r = api_json_body(c, &object);

	if (r == 0)
		r = measurement_spec_read(object, &spec, &c->d);
	if (r == 0)
		r = measurements_add(c->a->o.measurements, &spec, c->r->token_name, id, &c->d);
	json_decref(object);
	if (r < 0)
		return r;
	api_audit(c, "measurement-added", id);
	return put_measurement(c, id);
}

static int stop(struct api_call *c)
{
	char id[CONTROL_ID_BYTES];
	int r;

	api_path_id(c, PATH, id);
	r = measurements_stop(c->a->o.measurements, id, &c->d);
	if (r < 0)
		return r;
	api_audit(c, "measurement-stopped", id);
	return put_measurement(c, id);
}

static int delete (struct api_call *c)
{
	char id[CONTROL_ID_BYTES];
	int r;

	api_path_id(c, PATH, id);
	r = measurements_delete(c->a->o.measurements, id, &c->d);
	if (r < 0)
		return r;
	api_audit(c, "measurement-deleted", id);
	json_open_object(&c->json, NULL);
	json_close(&c->json);
	return 0;
}

#define R NET_ROLE_READ
#define ADMIN NET_ROLE_ADMIN
const struct api_route api_measurement_routes[] = {
	{"GET", "/api/v1/measurements", R, API_STYLE_JSON, list},
	{"POST", "/api/v1/measurements", ADMIN, API_STYLE_JSON, add},
	{"GET", "/api/v1/measurements/{id}", R, API_STYLE_JSON, show},
	{"DELETE", "/api/v1/measurements/{id}", ADMIN, API_STYLE_JSON, delete},
	{"POST", "/api/v1/measurements/{id}/stop", ADMIN, API_STYLE_JSON, stop},
	{},
};
